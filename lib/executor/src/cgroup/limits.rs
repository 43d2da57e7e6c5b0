//! Resource limits of a container: memory, processes, and its processor share. Each uses the controller of
//! that name. The limit is set in the container's group of version 2, or in a group of version 1 if the host
//! mounts the controller there.

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

/// Maximum number of processes and threads of one container.
pub const PROCESSES: u32 = 1_024;
/// Memory added to the limit of a definition for the shim, in MiB.
const OWN_MB: u64 = 16;
const MIB: u64 = 1024 * 1024;
/// Smallest `cpu.shares` value that version 1 accepts.
const LEAST_SHARES: u32 = 2;

/// Groups of version 1 that limit one container, in addition to its group of version 2.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// Groups of version 1, one per controller.
    pub(crate) groups: Vec<PathBuf>,
    /// File in which the kernel counts OOM kills. `None` if memory is not limited.
    pub(crate) kills: Option<PathBuf>,
}

/// Location of a controller's groups.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// The groups of version 2.
    Common,
    /// A hierarchy of version 1, below this group.
    Own(PathBuf),
}

/// Available limits for the containers of one cell.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    memory: Option<Place>,
    processes: Option<Place>,
    cpu: Option<Place>,
}

impl Limiter {
    /// Detects the usable controllers.
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
            // The base is created again for the first container.
            remove_base(&base);
            usable.then_some(Place::Own(base))
        };
        Self {
            memory: place("memory", "memory.limit_in_bytes"),
            processes: place("pids", "cgroup.procs"),
            cpu: place("cpu", "cpu.shares"),
        }
    }

    /// Removes the groups of version 1 that belong to none of the `known` containers.
    pub(crate) fn remove_strays(&self, known: &BTreeSet<String>) {
        for place in [&self.memory, &self.processes, &self.cpu].into_iter().flatten() {
            match place {
                Place::Common => {}
                Place::Own(base) => remove_strays(base, known),
            }
        }
    }

    /// Returns the bases of version 1.
    pub(crate) fn bases(&self) -> Vec<PathBuf> {
        let places = [&self.memory, &self.processes, &self.cpu];
        let own = |place: &Place| match place {
            Place::Common => None,
            Place::Own(base) => Some(base.clone()),
        };
        places.into_iter().flatten().filter_map(own).collect()
    }

    /// Returns the isolation layers that these limits provide.
    pub(crate) fn walls(&self) -> Isolation {
        let known = [(&self.memory, Wall::Memory), (&self.processes, Wall::Forks), (&self.cpu, Wall::Cpu)];
        let had = known.into_iter().filter(|(place, _)| place.is_some());
        had.fold(Isolation::NONE, |walls, (_, wall)| walls.with(wall))
    }

    /// Returns the groups of a container by its name and its group of version 2. They need not exist.
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

    /// Creates and configures the groups of a container. `memory_mb` is in MiB; 0 means no limit.
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
            // Kill the whole container: a container that lost one of its processes is of no use.
            set(group, "memory.oom.group", 1)?;
            unless_absent(set(group, "memory.swap.max", 0))
        }
        (Place::Common, None) => Ok(()),
        (Place::Own(base), _) => {
            let group = make_below(base, name)?;
            set(&group, "memory.limit_in_bytes", bytes)?;
            // No swap beyond the memory limit, where the kernel counts swap.
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

/// Returns the failure message of a container that was killed for exceeding its memory limit in MiB, or
/// because the host ran out of memory.
pub(crate) fn out_of_memory(memory_mb: u64) -> String {
    match memory_mb {
        0 => "out of memory".to_owned(),
        limit => format!("out of memory (limit {limit} MiB)"),
    }
}

impl Limits {
    /// Returns the number of processes of the container that the kernel killed for lack of memory.
    pub(crate) fn kills(&self) -> u64 {
        let text = self.kills.as_ref().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }

    /// Moves this program into the groups. Programs that it starts inherit them.
    pub(crate) fn enter(&self) -> io::Result<()> {
        self.groups.iter().try_for_each(|group| super::enter(group))
    }

    /// Removes the groups once the container has no processes.
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

    /// Creates a folder with the files that the kernel would create in a group of either version.
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
    fn limits_are_set_in_the_unified_group() {
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
    fn limits_are_set_in_legacy_groups_per_controller() {
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
