//! Helpers for mounts, each with one or two system calls.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use rustix::fs::{StatVfsMountFlags, statvfs};

use super::outer::with_operation;

const NONE: Option<&str> = None;

/// Flags of every mount of a container. Setuid files grant no rights, and device files cannot be used.
pub(super) const NOSUID_NODEV: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);

/// Ensures that mounts that are made later are not visible outside of this mount namespace.
pub(super) fn make_private() -> io::Result<()> {
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)
        .map_err(|error| with_operation("make the mounts private", error.into()))
}

/// Mounts a kernel file system.
pub(super) fn mount_kernel_fs(kind: &str, at: &Path, flags: MsFlags, options: &str) -> io::Result<()> {
    mount(Some(kind), at, Some(kind), flags, Some(options))
        .map_err(|error| with_operation(&format!("mount {kind} at {}", at.display()), error.into()))
}

/// Bind-mounts `from` at `at`, with all mounts below `from`.
pub(super) fn bind_recursive(from: &Path, at: &Path) -> io::Result<()> {
    bind(from, at, MsFlags::MS_REC)
}

/// Bind-mounts `from` at `at`, without the mounts below `from`.
pub(super) fn bind_single(from: &Path, at: &Path) -> io::Result<()> {
    bind(from, at, MsFlags::empty())
}

fn bind(from: &Path, at: &Path, flags: MsFlags) -> io::Result<()> {
    mount(Some(from), at, NONE, MsFlags::MS_BIND | flags, NONE).map_err(|error| {
        with_operation(&format!("bind-mount {} at {}", from.display(), at.display()), error.into())
    })
}

/// Adds flags to a mount and to all mounts below it.
pub(super) fn add_flags(at: &Path, flags: MsFlags) -> io::Result<()> {
    for path in mounts_below(&fs::read_to_string("/proc/self/mountinfo")?, &fs::canonicalize(at)?) {
        remount(&path, flags | existing_flags(&path)?)?;
    }
    Ok(())
}

fn remount(at: &Path, flags: MsFlags) -> io::Result<()> {
    mount(NONE, at, NONE, MsFlags::MS_REMOUNT | MsFlags::MS_BIND | flags, NONE)
        .map_err(|error| with_operation(&format!("restrict {}", at.display()), error.into()))
}

/// Makes a mount of this namespace read-only. The mounts below this mount stay unchanged.
pub(super) fn make_read_only(at: &Path) -> io::Result<()> {
    remount(at, MsFlags::MS_RDONLY | NOSUID_NODEV)
}

/// Bind-mounts `from` at `at`, read-only and with all mounts below `from`.
pub(super) fn bind_read_only(from: &Path, at: &Path) -> io::Result<()> {
    bind_recursive(from, at)?;
    add_flags(at, NOSUID_NODEV | MsFlags::MS_RDONLY)
}

/// Returns the flags that a mount already has. The root user of a user namespace may not remove them.
fn existing_flags(at: &Path) -> io::Result<MsFlags> {
    let has = statvfs(at)?.f_flag;
    let pairs = [
        (StatVfsMountFlags::RDONLY, MsFlags::MS_RDONLY),
        (StatVfsMountFlags::NOSUID, MsFlags::MS_NOSUID),
        (StatVfsMountFlags::NODEV, MsFlags::MS_NODEV),
        (StatVfsMountFlags::NOEXEC, MsFlags::MS_NOEXEC),
        (StatVfsMountFlags::NOATIME, MsFlags::MS_NOATIME),
        (StatVfsMountFlags::NODIRATIME, MsFlags::MS_NODIRATIME),
        (StatVfsMountFlags::RELATIME, MsFlags::MS_RELATIME),
    ];
    Ok(pairs.into_iter().filter(|(flag, _)| has.contains(*flag)).map(|(_, flag)| flag).collect())
}

/// Returns the mounts at a path and below it, parents first.
fn mounts_below(mountinfo: &str, at: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = mountinfo
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(unescape)
        .filter(|path| path.starts_with(at))
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Decodes a path from the kernel, which escapes white space and backslashes in the form `\040`.
fn unescape(text: &str) -> PathBuf {
    let mut path = text.to_owned();
    for (escape, meant) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        path = path.replace(escape, meant);
    }
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_below_a_path_are_found_with_escaped_names() {
        let text = "1 0 0:1 / / rw - ext4 x rw\n2 1 0:2 / /a rw - tmpfs x rw\n3 2 0:3 / /a/b\\040c rw - tmpfs x rw\n\
                    4 1 0:4 / /ab rw - tmpfs x rw\n5 2 0:2 / /a rw - tmpfs x rw\n";
        let found = mounts_below(text, Path::new("/a"));
        assert_eq!(found, [Path::new("/a"), Path::new("/a/b c")]);
    }
}
