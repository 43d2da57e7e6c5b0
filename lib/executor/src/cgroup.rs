//! Control groups (version 2), where this program may make them: a container that has one can't leave it, whatever its
//! processes do, and all of them are killed by one write.
//!
//! ```text
//!   PARENT/muster-<cell>-<hash of the data folder>/<instance guid>
//! ```
//!
//! `PARENT` is the group that this program is in, unless the settings name another. In version 2 no group has both processes and
//! groups that are limited: so if that group is called `rep`, where systemd puts a rep (`DelegateSubgroup=rep`) so that what was
//! given to it has none of its processes, `PARENT` is the group above.

mod limits;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use rustix::fs::{Access, access};
use schemas::limits::CPU_WEIGHT;
use schemas::names::CellId;

use crate::process::{Groups, fnv};

pub use limits::PROCESSES;
pub(crate) use limits::{Limiter, Limits};

/// What the group is called that a rep has for its own processes alone, beside those of its containers.
const LEAF: &str = "rep";
/// What a group weighs that nobody gave a weight, and so what the largest weight of a definition stands for.
const USUAL_WEIGHT: u32 = 100;
/// The least that a process is given by its nice value.
const LAST_NICE: i32 = 19;
/// What rules groups here.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
/// How much less of the processor each step of the nice value gives.
const NICE_STEP: f64 = 1.25;
/// How often the removal of a group is tried: the last process in it may still be on its way out.
const REMOVALS: u32 = 200;
/// Pause between two tries.
const REMOVAL_PAUSE: Duration = Duration::from_millis(2);

/// Why containers have no control groups.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoCgroups {
    /// The settings say so.
    #[error("none are wanted")]
    Unwanted,
    /// The host has none, or only older ones.
    #[error("this host has no control groups of version 2")]
    Absent,
    /// This program may not make any.
    #[error("{} can't be used", path.display())]
    Unusable {
        /// What it may not do something with.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The groups of one cell.
#[derive(Debug)]
pub(crate) struct Cgroups {
    parent: PathBuf,
    base: PathBuf,
    /// Held while groups are made and removed: the base goes with its last group.
    making: Mutex<()>,
}

impl Cgroups {
    /// Finds out whether groups can be made; if not, why.
    pub(crate) fn open(groups: &Groups, cell_id: &CellId, data: &Path) -> Result<Self, NoCgroups> {
        let parent = match groups {
            Groups::Never => return Err(NoCgroups::Unwanted),
            Groups::Below(parent) => parent.clone(),
            Groups::Own => place(own().ok_or(NoCgroups::Absent)?),
        };
        let base = parent.join(base_name(cell_id, data));
        let cgroups = Self { parent, base, making: Mutex::new(()) };
        let usable = cgroups.try_out();
        cgroups.remove_base();
        usable.map(|()| cgroups)
    }

    fn try_out(&self) -> Result<(), NoCgroups> {
        let unusable = |path: &Path, source| NoCgroups::Unusable { path: path.to_owned(), source };
        self.make_base().map_err(|error| unusable(&self.base, error))?;
        // To move a process, both ends and what is above them must be ours.
        for group in [&self.parent, &self.base] {
            let members = group.join("cgroup.procs");
            access(&members, Access::WRITE_OK).map_err(|error| unusable(&members, error.into()))?;
        }
        let kill = self.base.join("cgroup.kill");
        access(&kill, Access::WRITE_OK).map_err(|error| unusable(&kill, error.into()))
    }

    /// Whether the groups that are made here have a weight of their own.
    pub(crate) fn weighs(&self) -> bool {
        gives(&self.parent, "cpu")
    }

    /// Whether a controller rules the groups that are made here: it is switched on where that is possible.
    pub(crate) fn gives(&self, controller: &str) -> bool {
        if !gives(&self.parent, controller) {
            switch_on(&self.parent, controller);
        }
        gives(&self.parent, controller)
    }

    /// Where the group of a container is, or will be.
    pub(crate) fn group(&self, name: &str) -> PathBuf {
        self.base.join(name)
    }

    /// Makes the group of a container.
    pub(crate) fn make(&self, group: &Path) -> io::Result<()> {
        let _making = self.making.lock().expect("nobody panics while making a group");
        self.make_base()?;
        make(group)
    }

    fn make_base(&self) -> io::Result<()> {
        // To say it again would cost the kernel more than all else of a group.
        if gives(&self.base, "cpu") {
            return Ok(());
        }
        switch_on(&self.parent, "cpu");
        make(&self.base)?;
        for controller in CONTROLLERS.into_iter().filter(|name| gives(&self.parent, name)) {
            switch_on(&self.base, controller);
        }
        Ok(())
    }

    /// Removes the base if nothing is in it.
    pub(crate) fn remove_base(&self) {
        let _making = self.making.lock().expect("nobody panics while removing a group");
        // It stays as long as there is a container in it.
        drop(fs::remove_dir(&self.base));
    }
}

/// What is called a base: the cell and its data folder have one of their own.
fn base_name(cell_id: &CellId, data: &Path) -> String {
    format!("muster-{cell_id}-{:016x}", fnv(&data.display().to_string()))
}

/// Whether a controller rules the groups in a group. None does in one that isn't there.
fn gives(group: &Path, controller: &str) -> bool {
    let controllers = fs::read_to_string(group.join("cgroup.subtree_control")).unwrap_or_default();
    controllers.split_whitespace().any(|name| name == controller)
}

/// Has a controller rule the groups in a group. Refused where others share the group, or it has no such controller.
fn switch_on(group: &Path, controller: &str) {
    drop(fs::write(group.join("cgroup.subtree_control"), format!("+{controller}")));
}

fn make(group: &Path) -> io::Result<()> {
    match fs::create_dir(group) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Gives a group its weight.
pub(crate) fn weigh(group: &Path, cpu_weight: u32) -> io::Result<()> {
    fs::write(group.join("cpu.weight"), weight_of(cpu_weight).to_string())
}

/// Moves this program into a group.
pub(crate) fn enter(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), "0")
}

/// Kills all that is in a group; true if nothing is, or there is no such group.
pub(crate) fn kill(group: &Path) -> io::Result<bool> {
    let Some(populated) = populated(group)? else { return Ok(true) };
    if populated {
        fs::write(group.join("cgroup.kill"), "1")?;
    }
    Ok(!populated)
}

/// Whether something runs in a group; none if there is no such group.
fn populated(group: &Path) -> io::Result<Option<bool>> {
    match fs::read_to_string(group.join("cgroup.events")) {
        Ok(events) => Ok(Some(events.lines().any(|line| line == "populated 1"))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        // It was removed while its file was open.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes the group of a container of which nothing runs, and those that processes of it made below.
pub(crate) fn remove(group: &Path) -> io::Result<()> {
    for _ in 1..REMOVALS {
        match remove_once(group) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => std::thread::sleep(REMOVAL_PAUSE),
            other => return other,
        }
    }
    remove_once(group)
}

fn remove_once(group: &Path) -> io::Result<()> {
    let (mut open, mut found) = (vec![group.to_owned()], vec![]);
    while let Some(group) = open.pop() {
        let entries = match fs::read_dir(&group) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        open.extend(entries.flatten().filter(|entry| entry.path().is_dir()).map(|entry| entry.path()));
        found.push(group);
    }
    found.iter().rev().try_for_each(fs::remove_dir)
}

/// Where groups are made by a program that is in this one.
fn place(own: PathBuf) -> PathBuf {
    match own.parent() {
        Some(parent) if own.ends_with(LEAF) => parent.to_owned(),
        Some(_) | None => own,
    }
}

/// The group that this program is in.
fn own() -> Option<PathBuf> {
    let (mounts, groups) = seen()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    at(&mounts, group, |kind, _| kind == "cgroup2")
}

/// The group of version 1 that this program is in, of a controller that has a hierarchy of its own or shares one.
fn group_of(controller: &str) -> Option<PathBuf> {
    let (mounts, groups) = seen()?;
    own_of_older(&mounts, &groups, controller)
}

fn own_of_older(mounts: &str, groups: &str, controller: &str) -> Option<PathBuf> {
    let names = |list: &str| list.split(',').any(|name| name == controller);
    let group = groups.lines().find_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        names(controllers).then_some(group)
    })?;
    at(mounts, group, |kind, options| kind == "cgroup" && names(options))
}

/// The mounts and groups of this program.
fn seen() -> Option<(String, String)> {
    Some((fs::read_to_string("/proc/self/mountinfo").ok()?, fs::read_to_string("/proc/self/cgroup").ok()?))
}

/// Where a group is seen, in the hierarchy whose mount is of this kind and has these options.
fn at(mounts: &str, group: &str, is_meant: impl Fn(&str, &str) -> bool) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split_whitespace().skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let mut kind = kind.split_whitespace();
        if !is_meant(kind.next()?, kind.nth(1).unwrap_or_default()) {
            return None;
        }
        let below = Path::new(group).strip_prefix(root).ok()?;
        Some(Path::new(point).join(below))
    })
}

/// The weight of a definition, of which 0 is the usual one and the largest.
const fn share(cpu_weight: u32) -> u32 {
    if cpu_weight == 0 || cpu_weight > CPU_WEIGHT { CPU_WEIGHT } else { cpu_weight }
}

/// What a group weighs for the weight of a definition.
fn weight_of(cpu_weight: u32) -> u32 {
    (share(cpu_weight) * USUAL_WEIGHT).div_ceil(CPU_WEIGHT).max(1)
}

/// By how much the nice value is raised for the weight of a definition: each step is a fifth less of the processor.
pub(crate) fn nice_of(cpu_weight: u32) -> i32 {
    let steps = (f64::from(CPU_WEIGHT) / f64::from(share(cpu_weight))).ln() / NICE_STEP.ln();
    (1..=LAST_NICE).rev().find(|nice| steps >= f64::from(*nice) - 0.5).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that looks like a group.
    fn group(path: &Path, controllers: &str) {
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
    fn a_weight_is_a_share_by_group_and_by_nice_value() {
        let shares = |weight| (weight_of(weight), nice_of(weight));
        assert_eq!(shares(0), (100, 0), "the usual");
        assert_eq!(shares(CPU_WEIGHT), (100, 0));
        assert_eq!(shares(512), (50, 3));
        assert_eq!(shares(256), (25, 6));
        assert_eq!(shares(102), (10, 10));
        assert_eq!(shares(1), (1, 19));
        let nice: Vec<i32> = (1..=CPU_WEIGHT).map(nice_of).collect();
        assert!(nice.is_sorted_by(|a, b| a >= b), "more is never less");
    }

    #[test]
    fn a_group_gets_its_weight() {
        let root = tempfile::tempdir().unwrap();
        group(root.path(), "cpu memory");
        weigh(root.path(), 512).unwrap();
        assert_eq!(fs::read_to_string(root.path().join("cpu.weight")).unwrap(), "50");
    }

    #[test]
    fn what_is_populated_is_killed_and_what_is_gone_needs_not_be() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        assert!(kill(&path).unwrap());
        group(&path, "");
        assert!(!kill(&path).unwrap());
        assert_eq!(fs::read_to_string(path.join("cgroup.kill")).unwrap(), "1");
        fs::write(path.join("cgroup.events"), "populated 0\n").unwrap();
        assert!(kill(&path).unwrap());
    }

    #[test]
    fn groups_are_made_beside_the_one_that_a_rep_has_for_itself() {
        let made = |own: &str| place(own.into()).display().to_string();
        assert_eq!(
            made("/sys/fs/cgroup/system.slice/muster-rep.service/rep"),
            "/sys/fs/cgroup/system.slice/muster-rep.service"
        );
        assert_eq!(made("/sys/fs/cgroup/user.slice/a-rep"), "/sys/fs/cgroup/user.slice/a-rep");
        assert_eq!(made("/"), "/");
    }

    #[test]
    fn the_own_group_is_where_it_is_mounted() {
        let mounts = "25 1 0:23 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      31 1 0:29 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw\n";
        let newer = |mounts: &str, group: &str| {
            at(mounts, group, |kind, _| kind == "cgroup2").map(|path| path.display().to_string())
        };
        assert_eq!(newer(mounts, "/a/b").as_deref(), Some("/sys/fs/cgroup/unified/a/b"));
        let inner = "31 1 0:29 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(newer(inner, "/docker/1/c").as_deref(), Some("/sys/fs/cgroup/c"));
        assert_eq!(newer(inner, "/elsewhere"), None);
        let older = |groups: &str, name: &str| {
            own_of_older(mounts, groups, name).map(|path| path.display().to_string())
        };
        assert_eq!(older("4:cpu,cpuacct:/x\n0::/a\n", "cpu").as_deref(), Some("/sys/fs/cgroup/cpu/x"));
        assert_eq!(older("4:cpu:/x\n0::/a\n", "memory"), None);
    }
}
