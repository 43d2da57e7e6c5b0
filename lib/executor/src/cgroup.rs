//! Control groups (version 2), where this program may make them: a container that has one can't leave it, whatever its
//! processes do, and all of them are killed by one write.
//!
//! ```text
//!   PARENT/muster-<cell>-<hash of the data folder>/<instance guid>
//! ```
//!
//! `PARENT` is found by [`place`], unless the settings name another.

mod left;
mod limits;
mod place;

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use backon::{BlockingRetryable, ExponentialBuilder};
use rustix::fs::{Access, access};
use schemas::limits::CPU_WEIGHT;
use schemas::names::CellId;

use self::place::{may_limit, place};
use crate::process::{Groups, fnv};

pub(crate) use left::record_and_clean;
pub use limits::PROCESSES;
pub(crate) use limits::{Limiter, Limits, out_of_memory};

/// What a group weighs that nobody gave a weight, and so what the largest weight of a definition stands for.
const USUAL_WEIGHT: u32 = 100;
/// The least that a process is given by its nice value.
const LAST_NICE: i32 = 19;
/// What rules groups here.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
/// How much less of the processor each step of the nice value gives.
const NICE_STEP: f64 = 1.25;
/// How long the removal of a group is tried: the last process in it may still be on its way out, and where more wants to run
/// than there are processors that takes a while.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(10);
/// The first pause between two tries. Each is twice as long as the one before, up to the longest.
const REMOVAL_PAUSE: Duration = Duration::from_millis(2);
/// The longest pause between two tries.
const REMOVAL_LONGEST_PAUSE: Duration = Duration::from_millis(100);

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
    /// The controllers that rule the groups that are made here.
    given: Vec<&'static str>,
    /// Held while groups are made and removed: the base goes with its last group.
    making: Mutex<()>,
}

impl Cgroups {
    /// Finds out whether groups can be made; if not, why.
    pub(crate) fn open(groups: &Groups, cell_id: &CellId, data: &Path) -> Result<Self, NoCgroups> {
        let parent = match groups {
            Groups::Never => return Err(NoCgroups::Unwanted),
            Groups::Below(parent) => parent.clone(),
            Groups::Own => place().ok_or(NoCgroups::Absent)?,
        };
        let base = parent.join(base_name(cell_id, data));
        let mut cgroups = Self { parent, base, given: CONTROLLERS.to_vec(), making: Mutex::new(()) };
        let usable = cgroups.try_out();
        cgroups.given = switched_on(&cgroups.base);
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
        self.gives("cpu")
    }

    /// Whether a controller rules the groups that are made here.
    pub(crate) fn gives(&self, controller: &str) -> bool {
        self.given.contains(&controller)
    }

    /// The group that all of them are in.
    pub(crate) fn base(&self) -> &Path {
        &self.base
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
        let on = switched_on(&self.base);
        if self.base.is_dir() && self.given.iter().all(|name| on.contains(name)) {
            return Ok(());
        }
        switch_on(&self.parent, &self.given);
        make(&self.base)?;
        switch_on(&self.base, &self.given);
        Ok(())
    }

    /// Removes the groups that belong to none of these containers.
    pub(crate) fn remove_strays(&self, known: &BTreeSet<String>) {
        let _making = self.making.lock().expect("nobody panics while removing a group");
        remove_strays(&self.base, known);
    }

    /// Removes the base if nothing is in it.
    pub(crate) fn remove_base(&self) {
        let _making = self.making.lock().expect("nobody panics while removing a group");
        remove_base(&self.base);
    }
}

/// What is called a base: the cell and its data folder have one of their own.
fn base_name(cell_id: &CellId, data: &Path) -> String {
    format!("muster-{cell_id}-{:016x}", fnv(&data.display().to_string()))
}

/// The controllers that rule the groups in a group. None do in one that isn't there.
fn switched_on(group: &Path) -> Vec<&'static str> {
    listed(&group.join("cgroup.subtree_control"))
}

/// The controllers that a file of a group names.
fn listed(file: &Path) -> Vec<&'static str> {
    let text = fs::read_to_string(file).unwrap_or_default();
    CONTROLLERS.into_iter().filter(|known| text.split_whitespace().any(|name| name == *known)).collect()
}

/// Has controllers rule the groups in a group, each where it is to be had. The kernel would let some of them where the group has
/// processes, too, but then no group in it could be limited or take processes.
fn switch_on(group: &Path, controllers: &[&str]) {
    if !may_limit(group) {
        return;
    }
    let on = switched_on(group);
    for controller in controllers.iter().filter(|name| !on.contains(name)) {
        // Refused where there is no such controller, or the group is another's: what came of it is read afterwards.
        drop(fs::write(group.join("cgroup.subtree_control"), format!("+{controller}")));
    }
}

/// Makes a group, whose containers may read what is counted in it, whatever this program's umask.
fn make(group: &Path) -> io::Result<()> {
    match fs::create_dir(group) {
        Ok(()) => fs::set_permissions(group, Permissions::from_mode(0o755)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
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
    let pauses = ExponentialBuilder::new()
        .with_min_delay(REMOVAL_PAUSE)
        .with_max_delay(REMOVAL_LONGEST_PAUSE)
        .without_max_times()
        .with_total_delay(Some(REMOVAL_PATIENCE));
    (|| remove_once(group)).retry(pauses).when(|error| error.kind() == ErrorKind::ResourceBusy).call()
}

/// Removes the groups in a base that belong to none of these containers, with what runs there: who made them could not remove
/// them, or was killed before.
fn remove_strays(base: &Path, known: &BTreeSet<String>) {
    let groups = groups_in(base).unwrap_or_else(|error| {
        tracing::warn!(base = %base.display(), %error, "cannot see which control groups are there");
        vec![]
    });
    let is_known = |group: &&PathBuf| {
        group.file_name().and_then(|name| name.to_str()).is_some_and(|name| known.contains(name))
    };
    for group in groups.iter().filter(|group| !is_known(group)) {
        if let Err(error) = kill(group).and_then(|_| remove(group)) {
            tracing::warn!(group = %group.display(), %error, "cannot remove the control group of a container that is gone");
        }
    }
    remove_base(base);
}

/// Removes a base if nothing is in it.
fn remove_base(base: &Path) {
    // It stays as long as there is a container in it.
    drop(fs::remove_dir(base));
}

/// The groups right below one; none if that isn't there.
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
    fn the_groups_of_no_container_go_and_the_base_with_the_last() {
        let root = tempfile::tempdir().unwrap();
        let base = root.path().join("base");
        for group in ["known/below", "stray/below/more", "another"] {
            fs::create_dir_all(base.join(group)).unwrap();
        }
        remove_strays(&base, &BTreeSet::from(["known".to_owned()]));
        let left = fs::read_dir(&base).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["known"]);
        assert!(base.join("known/below").is_dir(), "it is left as it was");
        remove_strays(&base, &BTreeSet::new());
        assert!(!base.exists());
        remove_strays(&base, &BTreeSet::new());
    }
}
