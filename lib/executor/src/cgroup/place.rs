//! Where control groups are made.
//!
//! In version 2 no group has both processes and groups that are limited, the root of the hierarchy excepted. So it is, in this
//! order:
//!
//! | this program is in | groups are made in |
//! |---|---|
//! | a group called `rep`: systemd put it there (`DelegateSubgroup=rep`), so that what was given to it has no processes | the group above |
//! | the root of what it sees, as in a container | there; its processes go to a group `rep` first |
//! | another, and may make groups at the root of the hierarchy | `/muster.slice` |
//! | another | there, as it is: nothing is limited, but nobody gets away |

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{CONTROLLERS, listed, make, switch_on};

/// What the group is called that a rep has for its own processes alone, beside those of its containers.
const LEAF: &str = "rep";
/// The group of all cells of a host, where theirs can't be below the one that they are in.
const SLICE: &str = "muster.slice";
/// How often what is in a group is moved: some may start meanwhile.
const MOVES: u32 = 10;

/// Where groups of version 2 are made by this program; none if it sees none.
pub(super) fn place() -> Option<PathBuf> {
    let (mounts, groups) = seen()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let (root, own) = at(&mounts, group, |kind, _| kind == "cgroup2")?;
    Some(place_of(&root, own))
}

/// The same for a program in the group `own` of a hierarchy.
fn place_of(root: &Path, own: PathBuf) -> PathBuf {
    if own == root {
        if let Err(error) = move_into_leaf(root) {
            tracing::info!(group = %root.display(), %error, "what is in this control group can't be moved");
        }
        return own;
    }
    match own.parent() {
        Some(above) if own.ends_with(LEAF) => above.to_owned(),
        Some(_) | None => slice(root).unwrap_or(own),
    }
}

/// The group of all cells, made if need be; none if it can't be, or would limit nothing.
fn slice(root: &Path) -> Option<PathBuf> {
    if listed(&root.join("cgroup.controllers")).is_empty() {
        return None;
    }
    let slice = root.join(SLICE);
    make(&slice).ok()?;
    switch_on(root, &CONTROLLERS);
    Some(slice)
}

/// Moves all processes of a group into one below it, if the kernel asks for that.
fn move_into_leaf(group: &Path) -> io::Result<()> {
    for _ in 0..MOVES {
        if may_limit(group) {
            return Ok(());
        }
        let leaf = group.join(LEAF);
        make(&leaf)?;
        for pid in fs::read_to_string(group.join("cgroup.procs"))?.lines() {
            match fs::write(leaf.join("cgroup.procs"), pid) {
                Err(error) if error.raw_os_error() != Some(rustix::io::Errno::SRCH.raw_os_error()) => {
                    return Err(error);
                }
                // It has ended, or is there.
                Ok(()) | Err(_) => {}
            }
        }
    }
    if may_limit(group) {
        Ok(())
    } else {
        Err(io::Error::other("others start in it as fast as they are moved"))
    }
}

/// Whether groups in this one may be limited: it has no processes, or is the root, where that doesn't count.
pub(super) fn may_limit(group: &Path) -> bool {
    let procs = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    procs.is_empty() || !group.join("cgroup.type").exists()
}

/// The group of version 1 that this program is in, of a controller that has a hierarchy of its own or shares one.
pub(super) fn group_of(controller: &str) -> Option<PathBuf> {
    let (mounts, groups) = seen()?;
    own_of_older(&mounts, &groups, controller)
}

fn own_of_older(mounts: &str, groups: &str, controller: &str) -> Option<PathBuf> {
    let names = |list: &str| list.split(',').any(|name| name == controller);
    let group = groups.lines().find_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        names(controllers).then_some(group)
    })?;
    let found = at(mounts, group, |kind, options| kind == "cgroup" && names(options));
    found.map(|(_, own)| own)
}

/// The mounts and groups of this program.
fn seen() -> Option<(String, String)> {
    Some((fs::read_to_string("/proc/self/mountinfo").ok()?, fs::read_to_string("/proc/self/cgroup").ok()?))
}

/// Where a group is seen, after the root of its hierarchy, whose mount is of this kind and has these options.
fn at(mounts: &str, group: &str, is_meant: impl Fn(&str, &str) -> bool) -> Option<(PathBuf, PathBuf)> {
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split_whitespace().skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let mut kind = kind.split_whitespace();
        if !is_meant(kind.next()?, kind.nth(1).unwrap_or_default()) {
            return None;
        }
        let below = Path::new(group).strip_prefix(root).ok()?;
        let point = PathBuf::from(point);
        // What is joined with nothing ends with a slash.
        let own = if below.as_os_str().is_empty() { point.clone() } else { point.join(below) };
        Some((point, own))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that looks like a group with these processes.
    fn group(path: &Path, controllers: &str, processes: &str) {
        fs::create_dir_all(path).unwrap();
        for (name, text) in [
            ("cgroup.procs", processes),
            ("cgroup.controllers", controllers),
            ("cgroup.subtree_control", ""),
            ("cgroup.type", "domain\n"),
        ] {
            fs::write(path.join(name), text).unwrap();
        }
    }

    #[test]
    fn groups_are_made_beside_the_one_that_a_rep_has_for_itself() {
        let root = tempfile::tempdir().unwrap();
        let unit = root.path().join("system.slice/muster-rep.service");
        group(root.path(), "cpu memory pids", "");
        assert_eq!(place_of(root.path(), unit.join("rep")), unit);
    }

    #[test]
    fn groups_are_made_at_the_root_where_the_own_one_has_processes() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("user.slice/a-rep");
        group(root.path(), "cpu memory pids", "");
        assert_eq!(place_of(root.path(), own.clone()), root.path().join(SLICE));
        assert_eq!(fs::read_to_string(root.path().join("cgroup.subtree_control")).unwrap(), "+pids");
        group(root.path(), "", "");
        assert_eq!(place_of(root.path(), own.clone()), own, "nothing is to be had there");
        assert_eq!(place_of(&root.path().join("absent"), own.clone()), own, "nothing can be made there");
    }

    #[test]
    fn who_is_at_the_root_of_all_it_sees_moves_below() {
        let root = tempfile::tempdir().unwrap();
        group(root.path(), "cpu memory pids", "1\n42\n");
        assert!(!may_limit(root.path()));
        assert_eq!(place_of(root.path(), root.path().into()), root.path());
        assert_eq!(fs::read_to_string(root.path().join("rep/cgroup.procs")).unwrap(), "42");
        fs::remove_file(root.path().join("cgroup.type")).unwrap();
        assert!(may_limit(root.path()), "of the host's root the kernel doesn't ask it");
    }

    #[test]
    fn the_own_group_is_where_it_is_mounted() {
        let mounts = "25 1 0:23 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      31 1 0:29 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw\n";
        let newer = |mounts: &str, group: &str| {
            at(mounts, group, |kind, _| kind == "cgroup2").map(|(_, own)| own.display().to_string())
        };
        assert_eq!(newer(mounts, "/a/b").as_deref(), Some("/sys/fs/cgroup/unified/a/b"));
        let inner = "31 1 0:29 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(newer(inner, "/docker/1/c").as_deref(), Some("/sys/fs/cgroup/c"));
        assert_eq!(newer(inner, "/docker/1").as_deref(), Some("/sys/fs/cgroup"));
        assert_eq!(newer(inner, "/elsewhere"), None);
        let older = |groups: &str, name: &str| {
            own_of_older(mounts, groups, name).map(|path| path.display().to_string())
        };
        assert_eq!(older("4:cpu,cpuacct:/x\n0::/a\n", "cpu").as_deref(), Some("/sys/fs/cgroup/cpu/x"));
        assert_eq!(older("4:cpu:/x\n0::/a\n", "memory"), None);
    }
}
