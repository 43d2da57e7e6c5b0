//! What this host has.

use std::path::Path;

use schemas::limits::RESOURCE_MB;
use schemas::message::Program;
use schemas::resources::Resources;

const MIB: u64 = 1024 * 1024;

/// Memory of the host and free disk of the folder, or of the nearest folder above that exists; 0 where it can't be
/// seen.
pub(crate) fn resources(data: &Path) -> Resources {
    let folder = data.ancestors().find(|folder| folder.is_dir());
    let disk = folder.and_then(|folder| rustix::fs::statvfs(folder).ok());
    let disk_mb = disk.map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize) / MIB);
    let memory_mb =
        std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_kib(&text)).unwrap_or(0) / 1024;
    Resources {
        memory_mb: memory_mb.min(RESOURCE_MB),
        disk_mb: disk_mb.min(RESOURCE_MB),
        ..Resources::default()
    }
}

/// This program, as operators look for it.
pub(crate) fn program() -> Program {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Program {
        host: host.trim().to_owned(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// How many ports a range has.
pub(crate) fn ports(range: &std::ops::RangeInclusive<u16>) -> u32 {
    u32::from(range.end().saturating_sub(*range.start())) + 1
}

fn total_kib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// A container needs a file of its rep each, and the usual soft limit of 1,024 is soon reached.
pub(crate) fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

#[cfg(test)]
mod tests {
    use super::total_kib;

    #[test]
    fn memory_is_read_from_meminfo() {
        let text = "MemFree: 1 kB\nMemTotal:       24576000 kB\n";
        assert_eq!(total_kib(text), Some(24_576_000));
        assert_eq!(total_kib(""), None);
    }
}
