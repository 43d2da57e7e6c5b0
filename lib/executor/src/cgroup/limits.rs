//! What limits a container: memory, processes, its share of the processor. Each by the controller of that name, in the
//! group of version 2 that the container has anyway, or in one of version 1 where the host has that.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use schemas::isolation::{Isolation, Wall};

use super::place::group_of;
use super::{Cgroups, base_name, make, remove, remove_base, remove_strays, share, weight_of};
use crate::process::Groups;
use schemas::names::CellId;

/// Most processes and threads of one container.
pub const PROCESSES: u32 = 1_024;
/// Memory that a container has beyond what its definition asks for, in MiB: what keeps it takes about as much.
const OWN_MB: u64 = 16;
/// Bytes in a MiB.
const MIB: u64 = 1024 * 1024;
/// The least that the controller of version 1 takes for a share of the processor.
const LEAST_SHARES: u32 = 2;

/// The groups that limit one container, beside its group of version 2.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// Groups of version 1, one for each controller.
    pub(crate) groups: Vec<PathBuf>,
    /// Where the kernel counts whom it killed for want of memory.
    pub(crate) kills: Option<PathBuf>,
}

/// Where a controller's groups are made.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// In the groups of version 2.
    Common,
    /// In a hierarchy of its own, of version 1, below this group.
    Own(PathBuf),
}

/// What limits the containers of one cell.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    memory: Option<Place>,
    processes: Option<Place>,
    cpu: Option<Place>,
}

impl Limiter {
    /// Finds out which controllers can be used.
    pub(crate) fn open(common: Option<&Cgroups>, groups: &Groups, cell_id: &CellId, data: &Path) -> Self {
        if *groups == Groups::Never {
            return Self::default();
        }
        let place = |controller: &str, file: &str| {
            if common.is_some_and(|common| common.gives(controller)) {
                return Some(Place::Common);
            }
            let base = group_of(controller)?.join(base_name(cell_id, data));
            let usable = make(&base).is_ok() && is_writable(&base.join(file));
            // Made anew for the first container.
            remove_base(&base);
            usable.then_some(Place::Own(base))
        };
        Self {
            memory: place("memory", "memory.limit_in_bytes"),
            processes: place("pids", "cgroup.procs"),
            cpu: place("cpu", "cpu.shares"),
        }
    }

    /// Removes the groups of version 1 that belong to none of these containers.
    pub(crate) fn remove_strays(&self, known: &BTreeSet<String>) {
        for place in [&self.memory, &self.processes, &self.cpu].into_iter().flatten() {
            match place {
                Place::Common => {}
                Place::Own(base) => remove_strays(base, known),
            }
        }
    }

    /// The groups of version 1 that those of the containers are in.
    pub(crate) fn bases(&self) -> Vec<PathBuf> {
        let places = [&self.memory, &self.processes, &self.cpu];
        let own = |place: &Place| match place {
            Place::Common => None,
            Place::Own(base) => Some(base.clone()),
        };
        places.into_iter().flatten().filter_map(own).collect()
    }

    /// The walls that these are.
    pub(crate) fn walls(&self) -> Isolation {
        let known = [(&self.memory, Wall::Memory), (&self.processes, Wall::Forks), (&self.cpu, Wall::Cpu)];
        let had = known.into_iter().filter(|(place, _)| place.is_some());
        had.fold(Isolation::NONE, |walls, (_, wall)| walls.with(wall))
    }

    /// The groups of the container with this name, and with this group of version 2, whether they are made or not.
    pub(crate) fn of(&self, name: &str, common: Option<&Path>) -> Limits {
        let places = [&self.memory, &self.processes, &self.cpu];
        let own = |place: &Place| match place {
            Place::Common => None,
            Place::Own(base) => Some(base.join(name)),
        };
        let groups = places.into_iter().flatten().filter_map(own).collect();
        let kills = self.memory.as_ref().and_then(|place| match place {
            Place::Common => common.map(|group| group.join("memory.events")),
            Place::Own(base) => Some(base.join(name).join("memory.oom_control")),
        });
        Limits { groups, kills }
    }

    /// Makes the groups of a container. Memory in MiB, of which 0 is no limit.
    pub(crate) fn make(
        &self,
        name: &str,
        common: Option<&Path>,
        memory_mb: u64,
        cpu_weight: u32,
    ) -> io::Result<()> {
        if let (Some(place), true) = (&self.memory, memory_mb > 0) {
            limit_memory(place, name, common, memory_mb.saturating_add(OWN_MB).saturating_mul(MIB))?;
        } else if let Some(Place::Own(base)) = &self.memory {
            make_below(base, name)?;
        }
        match (&self.processes, common) {
            (Some(Place::Common), Some(group)) => set(group, "pids.max", PROCESSES)?,
            (Some(Place::Own(base)), _) => set(&make_below(base, name)?, "pids.max", PROCESSES)?,
            (Some(Place::Common), None) | (None, _) => {}
        }
        match (&self.cpu, common) {
            (Some(Place::Common), Some(group)) => set(group, "cpu.weight", weight_of(cpu_weight)),
            (Some(Place::Own(base)), _) => {
                set(&make_below(base, name)?, "cpu.shares", share(cpu_weight).max(LEAST_SHARES))
            }
            (Some(Place::Common), None) | (None, _) => Ok(()),
        }
    }
}

fn limit_memory(place: &Place, name: &str, common: Option<&Path>, bytes: u64) -> io::Result<()> {
    match (place, common) {
        (Place::Common, Some(group)) => {
            set(group, "memory.max", bytes)?;
            // All of a container ends when one of its programs has to: half of one is of no use.
            set(group, "memory.oom.group", 1)?;
            unless_absent(set(group, "memory.swap.max", 0))
        }
        (Place::Common, None) => Ok(()),
        (Place::Own(base), _) => {
            let group = make_below(base, name)?;
            set(&group, "memory.limit_in_bytes", bytes)?;
            // Where the kernel counts swap, there is none beyond.
            unless_absent(set(&group, "memory.memsw.limit_in_bytes", bytes))
        }
    }
}

fn make_below(base: &Path, name: &str) -> io::Result<PathBuf> {
    make(base)?;
    let group = base.join(name);
    make(&group)?;
    Ok(group)
}

fn set(group: &Path, file: &str, value: impl ToString) -> io::Result<()> {
    let path = group.join(file);
    let written = fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut file| io::Write::write_all(&mut file, value.to_string().as_bytes()));
    written.map_err(|error| io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display())))
}

fn unless_absent(set: io::Result<()>) -> io::Result<()> {
    match set {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => Ok(()),
        other => other,
    }
}

fn is_writable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

/// Why a container ended that took more memory than it may, in MiB, or than the host had.
pub(crate) fn out_of_memory(memory_mb: u64) -> String {
    match memory_mb {
        0 => "out of memory".to_owned(),
        limit => format!("out of memory (limit {limit} MiB)"),
    }
}

impl Limits {
    /// How often the kernel killed a program of the container for want of memory.
    pub(crate) fn kills(&self) -> u64 {
        let text = self.kills.as_ref().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }

    /// Has this program, and all that it starts, be in them.
    pub(crate) fn enter(&self) -> io::Result<()> {
        self.groups.iter().try_for_each(|group| super::enter(group))
    }

    /// Removes them, when nothing of the container runs.
    pub(crate) fn remove(&self) -> io::Result<()> {
        for group in &self.groups {
            remove(group)?;
            group.parent().into_iter().for_each(remove_base);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that looks like a group of both versions: the kernel makes the files of a real one.
    fn group(path: &Path) {
        fs::create_dir_all(path).unwrap();
        let files = [
            "memory.max",
            "memory.oom.group",
            "pids.max",
            "cpu.weight",
            "memory.limit_in_bytes",
            "cpu.shares",
        ];
        for file in files {
            fs::write(path.join(file), "").unwrap();
        }
    }

    fn read(path: PathBuf) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn version_2_limits_the_common_group() {
        let root = tempfile::tempdir().unwrap();
        let common = root.path().join("c");
        group(&common);
        let all = || Some(Place::Common);
        let limiter = Limiter { memory: all(), processes: all(), cpu: all() };
        limiter.make("c", Some(&common), 64, 512).unwrap();
        assert_eq!(read(common.join("memory.max")), (80 * MIB).to_string());
        assert_eq!(read(common.join("memory.oom.group")), "1");
        assert_eq!(read(common.join("pids.max")), "1024");
        assert_eq!(read(common.join("cpu.weight")), "50");
        let limits = limiter.of("c", Some(&common));
        assert_eq!(limits, Limits { groups: vec![], kills: Some(common.join("memory.events")) });
        assert_eq!(limits.kills(), 0);
        fs::write(common.join("memory.events"), "low 0\noom 3\noom_kill 2\noom_group_kill 1\n").unwrap();
        assert_eq!(limits.kills(), 2);
        assert_eq!([0, 64].map(out_of_memory), ["out of memory", "out of memory (limit 64 MiB)"]);
    }

    #[test]
    fn version_1_limits_groups_of_its_own() {
        let root = tempfile::tempdir().unwrap();
        let base = |name: &str| root.path().join(name).join("muster-c");
        for name in ["memory", "pids", "cpu"] {
            group(&base(name).join("c"));
        }
        let own = |name: &str| Some(Place::Own(base(name)));
        let limiter = Limiter { memory: own("memory"), processes: own("pids"), cpu: own("cpu") };
        limiter.make("c", None, 64, 512).unwrap();
        assert_eq!(read(base("memory").join("c/memory.limit_in_bytes")), (80 * MIB).to_string());
        assert_eq!(read(base("pids").join("c/pids.max")), "1024");
        assert_eq!(read(base("cpu").join("c/cpu.shares")), "512");
        let limits = limiter.of("c", None);
        assert_eq!(limits.groups, [base("memory").join("c"), base("pids").join("c"), base("cpu").join("c")]);
        fs::write(
            base("memory").join("c/memory.oom_control"),
            "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
        )
        .unwrap();
        assert_eq!(limits.kills(), 1);
        assert_eq!(limiter.walls(), Isolation::NONE.with(Wall::Memory).with(Wall::Cpu).with(Wall::Forks));
        assert_eq!(Limiter::default().walls(), Isolation::NONE);
    }
}
