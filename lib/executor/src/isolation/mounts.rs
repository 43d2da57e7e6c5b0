//! Mounts, each by a system call or two.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use rustix::fs::{StatVfsMountFlags, statvfs};

use super::outer::named;

const NONE: Option<&str> = None;

/// What every mount of a container is: nobody becomes somebody else by a file, and nothing there is a device.
pub(super) const HARMLESS: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);

/// What is mounted from now on stays in this namespace.
pub(super) fn keep_to_ourselves() -> io::Result<()> {
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)
        .map_err(|error| named("keep mounts to the container", error.into()))
}

/// Mounts a file system of the kernel's.
pub(super) fn fresh(kind: &str, at: &Path, flags: MsFlags, options: &str) -> io::Result<()> {
    mount(Some(kind), at, Some(kind), flags, Some(options))
        .map_err(|error| named(&format!("mount {kind} at {}", at.display()), error.into()))
}

/// Shows what is at `from` at `at` too, with all that is mounted below.
pub(super) fn show(from: &Path, at: &Path) -> io::Result<()> {
    bind(from, at, MsFlags::MS_REC)
}

/// The same without what is mounted below.
pub(super) fn show_alone(from: &Path, at: &Path) -> io::Result<()> {
    bind(from, at, MsFlags::empty())
}

fn bind(from: &Path, at: &Path, flags: MsFlags) -> io::Result<()> {
    mount(Some(from), at, NONE, MsFlags::MS_BIND | flags, NONE)
        .map_err(|error| named(&format!("show {} at {}", from.display(), at.display()), error.into()))
}

/// Adds flags to a mount, and to all mounts below it.
pub(super) fn restrict(at: &Path, flags: MsFlags) -> io::Result<()> {
    for path in at_and_below(&fs::read_to_string("/proc/self/mountinfo")?, &fs::canonicalize(at)?) {
        remount(&path, flags | kept(&path)?)?;
    }
    Ok(())
}

fn remount(at: &Path, flags: MsFlags) -> io::Result<()> {
    mount(NONE, at, NONE, MsFlags::MS_REMOUNT | MsFlags::MS_BIND | flags, NONE)
        .map_err(|error| named(&format!("restrict {}", at.display()), error.into()))
}

/// Refuses writing to a mount of our own, and to none of those below it.
pub(super) fn only_read(at: &Path) -> io::Result<()> {
    remount(at, MsFlags::MS_RDONLY | HARMLESS)
}

/// Shows what is at `from` at `at` too, to be read alone.
pub(super) fn show_to_read(from: &Path, at: &Path) -> io::Result<()> {
    show(from, at)?;
    restrict(at, HARMLESS | MsFlags::MS_RDONLY)
}

/// The flags that a mount has already: who is root in a namespace may not take them away.
fn kept(at: &Path) -> io::Result<MsFlags> {
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

/// The mounts at a path and below it, the upper ones first.
fn at_and_below(mountinfo: &str, at: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = mountinfo
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(unescaped)
        .filter(|path| path.starts_with(at))
        .collect();
    found.sort();
    found.dedup();
    found
}

/// A path as the kernel writes it: what separates fields stands as `\040` and the like.
fn unescaped(text: &str) -> PathBuf {
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
    fn mounts_below_a_path_are_found_whatever_they_are_called() {
        let text = "1 0 0:1 / / rw - ext4 x rw\n2 1 0:2 / /a rw - tmpfs x rw\n3 2 0:3 / /a/b\\040c rw - tmpfs x rw\n\
                    4 1 0:4 / /ab rw - tmpfs x rw\n5 2 0:2 / /a rw - tmpfs x rw\n";
        let found = at_and_below(text, Path::new("/a"));
        assert_eq!(found, [Path::new("/a"), Path::new("/a/b c")]);
    }
}
