//! Location of the control groups.
//!
//! In version 2, only the root of the hierarchy can have both processes and limited children. Therefore the
//! first matching row of this table determines the location:
//!
//! | group of this program | location of the containers' groups |
//! |---|---|
//! | a group called `rep`, set up by systemd (`DelegateSubgroup=rep`) so that the delegated group has no processes | the parent of `rep` |
//! | the root of the visible hierarchy, for example because the rep runs in a Docker container | the root, after its processes were moved to a group `rep` |
//! | any other group, if this program may create groups at the root of the hierarchy | `/muster.slice` |
//! | any other group | the group itself: no limits, but processes cannot escape |

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{CONTROLLERS, enable_controllers, listed_controllers, make_group};

/// Name of the group for a rep's own processes, next to the groups of its containers.
const REP_GROUP: &str = "rep";
/// Group for all cells of a host. Used if the containers' groups cannot be placed relative to the group of
/// this program.
const SLICE: &str = "muster.slice";
/// Maximum number of passes over the processes of a group. New processes may start during a pass.
const MAX_MOVE_PASSES: u32 = 10;

/// Returns the group of version 2 in which this program creates the containers' groups. `None` if this
/// program sees no hierarchy of version 2.
pub(super) fn cgroup_parent() -> Option<PathBuf> {
    let (mounts, groups) = read_mounts_and_groups()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let (root, own) = find_mounted_group(&mounts, group, |kind, _| kind == "cgroup2")?;
    Some(parent_for_group(&root, own))
}

/// Returns the parent of new groups for a program in the group `own` of the hierarchy at `root`.
fn parent_for_group(root: &Path, own: PathBuf) -> PathBuf {
    if own == root {
        if let Err(error) = move_into_leaf(root) {
            tracing::info!(group = %root.display(), %error, "cannot move the processes out of this control group");
        }
        return own;
    }
    match own.parent() {
        Some(above) if own.ends_with(REP_GROUP) => above.to_owned(),
        Some(_) | None => make_slice(root).unwrap_or(own),
    }
}

/// Returns the group for all cells of the host, and creates it if necessary. `None` if the creation fails or
/// no controller is available.
fn make_slice(root: &Path) -> Option<PathBuf> {
    if listed_controllers(&root.join("cgroup.controllers")).is_empty() {
        return None;
    }
    let slice = root.join(SLICE);
    make_group(&slice).ok()?;
    enable_controllers(root, &CONTROLLERS);
    Some(slice)
}

/// Moves all processes of a group into a child of that group, if the kernel requires an empty group before
/// its children can be limited.
fn move_into_leaf(group: &Path) -> io::Result<()> {
    for _ in 0..MAX_MOVE_PASSES {
        if can_limit_children(group) {
            return Ok(());
        }
        let leaf = group.join(REP_GROUP);
        make_group(&leaf)?;
        for pid in fs::read_to_string(group.join("cgroup.procs"))?.lines() {
            match fs::write(leaf.join("cgroup.procs"), pid) {
                Err(error) if error.raw_os_error() != Some(rustix::io::Errno::SRCH.raw_os_error()) => {
                    return Err(error);
                }
                // The process has ended, or it was moved.
                Ok(()) | Err(_) => {}
            }
        }
    }
    if can_limit_children(group) {
        Ok(())
    } else {
        Err(io::Error::other("new processes start in it faster than they are moved"))
    }
}

/// Returns `true` if children of this group can be limited. A group without processes can limit its children.
/// The root of the hierarchy can limit its children even if it has processes.
pub(super) fn can_limit_children(group: &Path) -> bool {
    let procs = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    procs.is_empty() || !group.join("cgroup.type").exists()
}

/// Returns the group of version 1 to which this program belongs for a controller.
pub(super) fn legacy_group(controller: &str) -> Option<PathBuf> {
    let (mounts, groups) = read_mounts_and_groups()?;
    find_legacy_group(&mounts, &groups, controller)
}

fn find_legacy_group(mounts: &str, groups: &str, controller: &str) -> Option<PathBuf> {
    let names = |list: &str| list.split(',').any(|name| name == controller);
    let group = groups.lines().find_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        names(controllers).then_some(group)
    })?;
    let found = find_mounted_group(mounts, group, |kind, options| kind == "cgroup" && names(options));
    found.map(|(_, own)| own)
}

/// Returns the mounts and the groups of this program.
fn read_mounts_and_groups() -> Option<(String, String)> {
    Some((fs::read_to_string("/proc/self/mountinfo").ok()?, fs::read_to_string("/proc/self/cgroup").ok()?))
}

/// Returns the mount point of the matching hierarchy, and the path at which the group is visible below it.
fn find_mounted_group(
    mounts: &str,
    group: &str,
    is_meant: impl Fn(&str, &str) -> bool,
) -> Option<(PathBuf, PathBuf)> {
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
        // Joining an empty path would add a trailing slash.
        let own = if below.as_os_str().is_empty() { point.clone() } else { point.join(below) };
        Some((point, own))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a folder that imitates a group with these processes.
    fn make_fake_group(path: &Path, controllers: &str, processes: &str) {
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
    fn groups_are_created_next_to_the_rep_group() {
        let root = tempfile::tempdir().unwrap();
        let unit = root.path().join("system.slice/muster-rep.service");
        make_fake_group(root.path(), "cpu memory pids", "");
        assert_eq!(parent_for_group(root.path(), unit.join("rep")), unit);
    }

    #[test]
    fn groups_are_created_in_the_slice_if_own_group_has_processes() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("user.slice/a-rep");
        make_fake_group(root.path(), "cpu memory pids", "");
        assert_eq!(parent_for_group(root.path(), own.clone()), root.path().join(SLICE));
        assert_eq!(fs::read_to_string(root.path().join("cgroup.subtree_control")).unwrap(), "+pids");
        make_fake_group(root.path(), "", "");
        assert_eq!(parent_for_group(root.path(), own.clone()), own, "the root has no controllers");
        assert_eq!(
            parent_for_group(&root.path().join("absent"), own.clone()),
            own,
            "the root does not exist"
        );
    }

    #[test]
    fn processes_at_the_visible_root_move_to_the_rep_group() {
        let root = tempfile::tempdir().unwrap();
        make_fake_group(root.path(), "cpu memory pids", "1\n42\n");
        assert!(!can_limit_children(root.path()));
        assert_eq!(parent_for_group(root.path(), root.path().into()), root.path());
        assert_eq!(fs::read_to_string(root.path().join("rep/cgroup.procs")).unwrap(), "42");
        fs::remove_file(root.path().join("cgroup.type")).unwrap();
        assert!(
            can_limit_children(root.path()),
            "the root of the host may have processes and limited children"
        );
    }

    #[test]
    fn own_group_is_found_relative_to_its_mount() {
        let mounts = "25 1 0:23 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      31 1 0:29 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw\n";
        let newer = |mounts: &str, group: &str| {
            find_mounted_group(mounts, group, |kind, _| kind == "cgroup2")
                .map(|(_, own)| own.display().to_string())
        };
        assert_eq!(newer(mounts, "/a/b").as_deref(), Some("/sys/fs/cgroup/unified/a/b"));
        let inner = "31 1 0:29 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(newer(inner, "/docker/1/c").as_deref(), Some("/sys/fs/cgroup/c"));
        assert_eq!(newer(inner, "/docker/1").as_deref(), Some("/sys/fs/cgroup"));
        assert_eq!(newer(inner, "/elsewhere"), None);
        let older = |groups: &str, name: &str| {
            find_legacy_group(mounts, groups, name).map(|path| path.display().to_string())
        };
        assert_eq!(older("4:cpu,cpuacct:/x\n0::/a\n", "cpu").as_deref(), Some("/sys/fs/cgroup/cpu/x"));
        assert_eq!(older("4:cpu:/x\n0::/a\n", "memory"), None);
    }
}
