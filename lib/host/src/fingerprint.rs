//! Resources and attributes of this host.

use std::collections::BTreeMap;
use std::path::Path;

use schemas::attributes::{AttributeName, Attributes, BadAttribute, ISOLATION, check_value};
use schemas::isolation::Isolation;
use schemas::limits::RESOURCE_MB;
use schemas::message::Program;
use schemas::resources::Resources;

const MIB: u64 = 1024 * 1024;

/// Returns the memory of the host and the free disk space of the folder. If the folder does not exist, the
/// nearest existing parent counts. A value that cannot be determined is 0.
#[must_use]
pub fn resources(data: &Path) -> Resources {
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

/// Returns the host, process id and version of this program, for operators.
pub(crate) fn program() -> Program {
    Program {
        host: first_line("/proc/sys/kernel/hostname"),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// Returns the name and version of this program, as written to exports.
#[must_use]
pub fn version() -> String {
    format!("muster {}", env!("CARGO_PKG_VERSION"))
}

/// Returns the attributes of the cells on this host: the detected attributes, the attributes set by an
/// operator, and the isolation. The operator's attributes override detected attributes, but not the
/// isolation.
///
/// # Errors
/// The operator's attributes exceed a limit, or one of them is reserved.
pub(crate) fn attributes(
    given: BTreeMap<AttributeName, String>,
    isolation: Isolation,
) -> Result<Attributes, BadAttribute> {
    if given.contains_key(ISOLATION) {
        return Err(BadAttribute::Reserved(ISOLATION.to_owned()));
    }
    let mut all = fingerprint();
    all.extend(given);
    all.insert(AttributeName::isolation(), isolation.to_string());
    Attributes::new(all)
}

/// Returns the attributes that can be detected on this host. A rep detects them once, at its start.
fn fingerprint() -> BTreeMap<AttributeName, String> {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let memory = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_kib(&text));
    let found = [
        ("os.name", Some(std::env::consts::OS.to_owned())),
        ("os.distribution", os_release_value(&release, "ID")),
        ("os.version", os_release_value(&release, "VERSION_ID")),
        ("kernel.version", Some(first_line("/proc/sys/kernel/osrelease"))),
        ("cpu.arch", Some(std::env::consts::ARCH.to_owned())),
        ("cpu.count", std::thread::available_parallelism().ok().map(|count| count.to_string())),
        ("memory.mb", memory.map(|kib| (kib / 1024).to_string())),
        ("unique.hostname", Some(first_line("/proc/sys/kernel/hostname"))),
        ("muster.version", Some(env!("CARGO_PKG_VERSION").to_owned())),
    ];
    let known = |(name, value): (&str, Option<String>)| {
        let value = value.filter(|value| check_value(value).is_ok())?;
        Some((AttributeName::new(name).ok()?, value))
    };
    found.into_iter().filter_map(known).collect()
}

/// Returns the first line of a kernel file. Empty if the file cannot be read.
fn first_line(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// Returns a value from `/etc/os-release` without its quotes.
fn os_release_value(text: &str, name: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.trim().trim_matches(['"', '\'']).to_owned())
}

/// Returns the number of ports in a range.
#[must_use]
pub fn port_count(range: &std::ops::RangeInclusive<u16>) -> u32 {
    u32::from(range.end().saturating_sub(*range.start())) + 1
}

fn total_kib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Raises the soft limit on open files to the hard limit. The default limit of 1,024 is too low, because the
/// rep keeps a file open for each container.
pub fn raise_open_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "can't raise the open-file limit");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_attributes_override_the_fingerprint() {
        let name = |text: &str| AttributeName::new(text).unwrap();
        let given = BTreeMap::from([(name("rack"), "r1".into()), (name("cpu.arch"), "z80".into())]);
        let attributes = attributes(given, Isolation::FULL).unwrap();
        assert_eq!(attributes.get("rack"), Some("r1"));
        assert_eq!(attributes.get("cpu.arch"), Some("z80"));
        assert_eq!(attributes.get("os.name"), Some(std::env::consts::OS));
        assert_eq!(attributes.get("isolation"), Some("full"));
        for taken in ["zone", "isolation"] {
            let refused = super::attributes(BTreeMap::from([(name(taken), "z1".into())]), Isolation::NONE);
            assert_eq!(refused, Err(BadAttribute::Reserved(taken.into())));
        }
    }

    #[test]
    fn os_release_value_may_be_quoted() {
        let text = "NAME=\"Ubuntu\"\nVERSION_ID=\"24.04\"\nID=ubuntu\nID_LIKE=debian\n";
        assert_eq!(os_release_value(text, "VERSION_ID").as_deref(), Some("24.04"));
        assert_eq!(os_release_value(text, "ID").as_deref(), Some("ubuntu"));
        assert_eq!(os_release_value(text, "VARIANT"), None);
    }

    #[test]
    fn memory_is_read_from_meminfo() {
        let text = "MemFree: 1 kB\nMemTotal:       24576000 kB\n";
        assert_eq!(total_kib(text), Some(24_576_000));
        assert_eq!(total_kib(""), None);
    }
}
