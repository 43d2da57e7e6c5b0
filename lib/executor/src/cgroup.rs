//! Control groups (version 2), used if this program may create them. No process of a container can leave the
//! container's group, and one write kills all processes in the group.
//!
//! ```text
//!   PARENT/muster-<cell>-<hash of the data folder>/<instance guid>
//! ```
//!
//! `PARENT` is found by [`location`], unless the settings name a different group. The directory directly
//! below `PARENT` is called the base of the cell.

mod leftover;
mod limits;
mod location;

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use backon::{BlockingRetryable, ExponentialBuilder};
use parking_lot::Mutex;
use rustix::fs::{Access, access};
use schemas::limits::CPU_WEIGHT;
use schemas::names::CellId;

use self::location::{can_limit_children, cgroup_parent};
use crate::process::{Groups, fnv1a};

pub(crate) use leftover::record_and_clean;
pub use limits::MAX_PROCESSES;
pub(crate) use limits::{Limiter, Limits, out_of_memory_message};

/// Weight of a group whose definition has the maximum weight. This weight is the kernel's default.
const DEFAULT_WEIGHT: u32 = 100;
/// Highest nice value. A process with this value gets the smallest share of the processor.
const MAX_NICE: i32 = 19;
/// Controllers that are enabled for the groups of containers.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
/// Factor by which one step of the nice value reduces the processor share.
const NICE_STEP_FACTOR: f64 = 1.25;
/// Time limit for removing a group. The last process of the group may still be exiting. On an overloaded
/// host, this takes a while.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);
/// First delay between attempts to remove a group. The delay doubles with every attempt.
const REMOVAL_MIN_DELAY: Duration = Duration::from_millis(2);
/// Longest delay between attempts to remove a group.
const REMOVAL_MAX_DELAY: Duration = Duration::from_millis(100);

/// Reason why containers have no control groups.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CgroupsUnavailable {
    /// Disabled by the settings.
    #[error("disabled by the settings")]
    Disabled,
    /// The host has no control groups, or only version 1.
    #[error("this host has no control groups of version 2")]
    Unsupported,
    /// This program may not create groups.
    #[error("cannot use {}", path.display())]
    Unusable {
        /// Path on which an operation failed.
        path: PathBuf,
        source: io::Error,
    },
}

/// Control groups of one cell.
#[derive(Debug)]
pub(crate) struct Cgroups {
    parent: PathBuf,
    base: PathBuf,
    /// Controllers that are enabled in new groups.
    controllers: Vec<&'static str>,
    /// Held while groups are created or removed. The base is removed with its last group. This removal must
    /// not overlap the creation of another group.
    lock: Mutex<()>,
}

impl Cgroups {
    /// Tests whether groups can be created, and returns the reason if not.
    pub(crate) fn open(groups: &Groups, cell_id: &CellId, data: &Path) -> Result<Self, CgroupsUnavailable> {
        let parent = match groups {
            Groups::Never => return Err(CgroupsUnavailable::Disabled),
            Groups::Below(parent) => parent.clone(),
            Groups::Own => cgroup_parent().ok_or(CgroupsUnavailable::Unsupported)?,
        };
        let base = parent.join(base_name(cell_id, data));
        let mut cgroups = Self { parent, base, controllers: CONTROLLERS.to_vec(), lock: Mutex::new(()) };
        let usable = cgroups.check_access();
        cgroups.controllers = enabled_controllers(&cgroups.base);
        cgroups.remove_base();
        usable.map(|()| cgroups)
    }

    fn check_access(&self) -> Result<(), CgroupsUnavailable> {
        let unusable = |path: &Path, source| CgroupsUnavailable::Unusable { path: path.to_owned(), source };
        self.make_base().map_err(|error| unusable(&self.base, error))?;
        // Moving a process requires write access to the source group, the target group and their common
        // ancestor.
        for group in [&self.parent, &self.base] {
            let members = group.join("cgroup.procs");
            access(&members, Access::WRITE_OK).map_err(|error| unusable(&members, error.into()))?;
        }
        let kill = self.base.join("cgroup.kill");
        access(&kill, Access::WRITE_OK).map_err(|error| unusable(&kill, error.into()))
    }

    /// Returns `true` if new groups have a CPU weight.
    pub(crate) fn has_weight(&self) -> bool {
        self.has_controller("cpu")
    }

    /// Returns `true` if a controller is enabled in new groups.
    pub(crate) fn has_controller(&self, controller: &str) -> bool {
        self.controllers.contains(&controller)
    }

    /// Returns the path of the base, which contains the groups of all containers.
    pub(crate) fn base_path(&self) -> &Path {
        &self.base
    }

    /// Returns the path of a container's group. The group need not exist.
    pub(crate) fn group_path(&self, name: &str) -> PathBuf {
        self.base.join(name)
    }

    /// Creates the group of a container.
    pub(crate) fn create_group(&self, group: &Path) -> io::Result<()> {
        let _making = self.lock.lock();
        self.make_base()?;
        make_group(group)
    }

    fn make_base(&self) -> io::Result<()> {
        // All controllers are enabled already. Enabling them again would take the kernel longer than the rest
        // of the creation of a group.
        let on = enabled_controllers(&self.base);
        if self.base.is_dir() && self.controllers.iter().all(|name| on.contains(name)) {
            return Ok(());
        }
        enable_controllers(&self.parent, &self.controllers);
        make_group(&self.base)?;
        enable_controllers(&self.base, &self.controllers);
        Ok(())
    }

    /// Removes the groups that belong to none of the `known` containers.
    pub(crate) fn remove_strays(&self, known: &BTreeSet<String>) {
        let _making = self.lock.lock();
        remove_strays(&self.base, known);
    }

    /// Removes the base if it is empty.
    pub(crate) fn remove_base(&self) {
        let _making = self.lock.lock();
        remove_base(&self.base);
    }
}

/// Returns the name of the base, which is unique per cell and data folder.
fn base_name(cell_id: &CellId, data: &Path) -> String {
    format!("muster-{cell_id}-{:016x}", fnv1a(&data.display().to_string()))
}

/// Returns the controllers that are enabled for the children of a group. Empty if the group does not exist.
fn enabled_controllers(group: &Path) -> Vec<&'static str> {
    listed_controllers(&group.join("cgroup.subtree_control"))
}

/// Returns the controllers that a file of a group lists.
fn listed_controllers(file: &Path) -> Vec<&'static str> {
    let text = fs::read_to_string(file).unwrap_or_default();
    CONTROLLERS.into_iter().filter(|known| text.split_whitespace().any(|name| name == *known)).collect()
}

/// Enables the available controllers for the children of a group. Does nothing if the group has processes. In
/// that case the kernel would accept some controllers, but the children of the group could not be limited, or
/// could not contain processes.
fn enable_controllers(group: &Path, controllers: &[&str]) {
    if !can_limit_children(group) {
        return;
    }
    let on = enabled_controllers(group);
    for controller in controllers.iter().filter(|name| !on.contains(name)) {
        // The write fails if the controller does not exist or the group has another owner. The caller reads
        // back the result.
        drop(fs::write(group.join("cgroup.subtree_control"), format!("+{controller}")));
    }
}

/// Creates a group that containers may read, regardless of this program's umask.
fn make_group(group: &Path) -> io::Result<()> {
    match fs::create_dir(group) {
        Ok(()) => fs::set_permissions(group, Permissions::from_mode(0o755)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Sets the CPU weight of a group.
pub(crate) fn set_weight(group: &Path, cpu_weight: u32) -> io::Result<()> {
    fs::write(group.join("cpu.weight"), group_weight(cpu_weight).to_string())
}

/// Moves this program into a group.
pub(crate) fn enter(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), "0")
}

/// Kills all processes in a group. Returns `true` if the group was already empty or does not exist.
pub(crate) fn kill(group: &Path) -> io::Result<bool> {
    let Some(populated) = is_populated(group)? else { return Ok(true) };
    if populated {
        fs::write(group.join("cgroup.kill"), "1")?;
    }
    Ok(!populated)
}

/// Returns `true` if a group has processes. `None` if the group does not exist.
fn is_populated(group: &Path) -> io::Result<Option<bool>> {
    match fs::read_to_string(group.join("cgroup.events")) {
        Ok(events) => Ok(Some(events.lines().any(|line| line == "populated 1"))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        // The group was removed while its file was open.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes the group of a container that has no processes. Also removes the groups that the container created
/// below its group.
pub(crate) fn remove(group: &Path) -> io::Result<()> {
    let pauses = ExponentialBuilder::new()
        .with_min_delay(REMOVAL_MIN_DELAY)
        .with_max_delay(REMOVAL_MAX_DELAY)
        .without_max_times()
        .with_total_delay(Some(REMOVAL_TIMEOUT));
    (|| remove_once(group)).retry(pauses).when(|error| error.kind() == ErrorKind::ResourceBusy).call()
}

/// Removes the groups in a base that belong to none of the `known` containers, and kills their processes.
/// Such groups exist if an executor was killed or failed to remove them.
fn remove_strays(base: &Path, known: &BTreeSet<String>) {
    let groups = groups_in(base).unwrap_or_else(|error| {
        tracing::warn!(base = %base.display(), %error, "cannot list the control groups");
        vec![]
    });
    let is_known = |group: &&PathBuf| {
        group.file_name().and_then(|name| name.to_str()).is_some_and(|name| known.contains(name))
    };
    for group in groups.iter().filter(|group| !is_known(group)) {
        if let Err(error) = kill(group).and_then(|_| remove(group)) {
            tracing::warn!(group = %group.display(), %error, "cannot remove a stray control group");
        }
    }
    remove_base(base);
}

/// Removes a base if it is empty.
fn remove_base(base: &Path) {
    // The removal fails while the base contains a container's group.
    drop(fs::remove_dir(base));
}

/// Returns the direct children of a group. Empty if the group does not exist.
fn groups_in(group: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(group) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(vec![]),
        other => other?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let all: Vec<PathBuf> = paths.collect::<io::Result<_>>()?;
    Ok(all.into_iter().filter(|path| path.is_dir()).collect())
}

fn remove_once(group: &Path) -> io::Result<()> {
    let (mut open, mut found) = (vec![group.to_owned()], vec![]);
    while let Some(group) = open.pop() {
        open.extend(groups_in(&group)?);
        found.push(group);
    }
    found.iter().rev().try_for_each(|group| match fs::remove_dir(group) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    })
}

/// Returns the effective weight of a definition: 0 and values above the maximum stand for the maximum.
const fn effective_weight(cpu_weight: u32) -> u32 {
    if cpu_weight == 0 || cpu_weight > CPU_WEIGHT { CPU_WEIGHT } else { cpu_weight }
}

/// Converts the weight of a definition to a group's `cpu.weight`.
fn group_weight(cpu_weight: u32) -> u32 {
    (effective_weight(cpu_weight) * DEFAULT_WEIGHT).div_ceil(CPU_WEIGHT).max(1)
}

/// Converts the weight of a definition to an increment of the nice value. Each step of the nice value reduces
/// the processor share by a fifth.
pub(crate) fn nice_increment(cpu_weight: u32) -> i32 {
    let steps =
        (f64::from(CPU_WEIGHT) / f64::from(effective_weight(cpu_weight))).ln() / NICE_STEP_FACTOR.ln();
    (1..=MAX_NICE).rev().find(|nice| steps >= f64::from(*nice) - 0.5).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a folder that imitates a group.
    fn make_fake_group(path: &Path, controllers: &str) {
        fs::create_dir_all(path).unwrap();
        for (name, text) in [
            ("cgroup.procs", ""),
            ("cgroup.kill", ""),
            ("cgroup.events", "populated 1\nfrozen 0\n"),
            ("cgroup.subtree_control", controllers),
        ] {
            fs::write(path.join(name), text).unwrap();
        }
    }

    #[test]
    fn cpu_weight_maps_to_group_weight_and_nice_value() {
        let shares = |weight| (group_weight(weight), nice_increment(weight));
        assert_eq!(shares(0), (100, 0), "the default");
        assert_eq!(shares(CPU_WEIGHT), (100, 0));
        assert_eq!(shares(512), (50, 3));
        assert_eq!(shares(256), (25, 6));
        assert_eq!(shares(102), (10, 10));
        assert_eq!(shares(1), (1, 19));
        let nice: Vec<i32> = (1..=CPU_WEIGHT).map(nice_increment).collect();
        assert!(nice.is_sorted_by(|a, b| a >= b), "a higher weight never has a higher nice value");
    }

    #[test]
    fn weight_is_written_to_the_group() {
        let root = tempfile::tempdir().unwrap();
        make_fake_group(root.path(), "cpu memory");
        set_weight(root.path(), 512).unwrap();
        assert_eq!(fs::read_to_string(root.path().join("cpu.weight")).unwrap(), "50");
    }

    #[test]
    fn kill_reports_whether_the_group_was_already_empty() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        assert!(kill(&path).unwrap());
        make_fake_group(&path, "");
        assert!(!kill(&path).unwrap());
        assert_eq!(fs::read_to_string(path.join("cgroup.kill")).unwrap(), "1");
        fs::write(path.join("cgroup.events"), "populated 0\n").unwrap();
        assert!(kill(&path).unwrap());
    }

    #[test]
    fn stray_groups_are_removed_and_the_base_with_the_last_group() {
        let root = tempfile::tempdir().unwrap();
        let base = root.path().join("base");
        for group in ["known/below", "stray/below/more", "another"] {
            fs::create_dir_all(base.join(group)).unwrap();
        }
        remove_strays(&base, &BTreeSet::from(["known".to_owned()]));
        let left = fs::read_dir(&base).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["known"]);
        assert!(base.join("known/below").is_dir(), "a known group is left unchanged");
        remove_strays(&base, &BTreeSet::new());
        assert!(!base.exists());
        remove_strays(&base, &BTreeSet::new());
    }
}
