//! Resource limits of a container: memory, processes, and its processor share. A kernel controller enforces
//! each limit. Each limit is set in the container's control group of version 2. If the host mounts the
//! controller in version 1, the limit is set in a group of version 1 instead.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use schemas::isolation::{Isolation, IsolationLayer};

use super::location::legacy_group;
use super::{
    Cgroups, base_name, effective_weight, group_weight, make_group, remove, remove_base, remove_strays,
};
use crate::process::Groups;
use schemas::names::CellId;

/// Maximum number of processes and threads of one container.
pub const MAX_PROCESSES: u32 = 1_024;
/// Memory that is added to the memory limit of a definition, for the shim, in MiB.
const SHIM_MEMORY_MB: u64 = 16;
const MIB: u64 = 1024 * 1024;
/// Smallest `cpu.shares` value that version 1 accepts.
const MIN_SHARES: u32 = 2;

/// Control groups of version 1 that limit one container. They are used in addition to its group of version 2.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// Groups of version 1, one per controller.
    pub(crate) groups: Vec<PathBuf>,
    /// File in which the kernel counts OOM kills. `None` if memory is not limited.
    pub(crate) oom_events: Option<PathBuf>,
}

/// Location of the groups that a controller uses.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Hierarchy {
    /// The groups of version 2.
    Unified,
    /// A hierarchy of version 1. The groups are below this group.
    Legacy(PathBuf),
}

/// Available limits for the containers of one cell.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    memory: Option<Hierarchy>,
    processes: Option<Hierarchy>,
    cpu: Option<Hierarchy>,
}

impl Limiter {
    /// Detects the usable controllers.
    pub(crate) fn open(common: Option<&Cgroups>, groups: &Groups, cell_id: &CellId, data: &Path) -> Self {
        if *groups == Groups::Never {
            return Self::default();
        }
        let place = |controller: &str, file: &str| {
            if common.is_some_and(|common| common.has_controller(controller)) {
                return Some(Hierarchy::Unified);
            }
            let base = legacy_group(controller)?.join(base_name(cell_id, data));
            let usable = make_group(&base).is_ok() && is_writable(&base.join(file));
            // The base group is created again for the first container.
            remove_base(&base);
            usable.then_some(Hierarchy::Legacy(base))
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
                Hierarchy::Unified => {}
                Hierarchy::Legacy(base) => remove_strays(base, known),
            }
        }
    }

    /// Returns the base groups in the hierarchies of version 1.
    pub(crate) fn bases(&self) -> Vec<PathBuf> {
        let places = [&self.memory, &self.processes, &self.cpu];
        let own = |place: &Hierarchy| match place {
            Hierarchy::Unified => None,
            Hierarchy::Legacy(base) => Some(base.clone()),
        };
        places.into_iter().flatten().filter_map(own).collect()
    }

    /// Returns the isolation layers that the available limits provide.
    pub(crate) fn isolation(&self) -> Isolation {
        let known = [
            (&self.memory, IsolationLayer::Memory),
            (&self.processes, IsolationLayer::Pids),
            (&self.cpu, IsolationLayer::Cpu),
        ];
        let had = known.into_iter().filter(|(place, _)| place.is_some());
        had.fold(Isolation::NONE, |layers, (_, layer)| layers.with(layer))
    }

    /// Returns the limits of a container, given its name and its group of version 2. The groups need not
    /// exist.
    pub(crate) fn limits_of(&self, name: &str, common: Option<&Path>) -> Limits {
        let places = [&self.memory, &self.processes, &self.cpu];
        let own = |place: &Hierarchy| match place {
            Hierarchy::Unified => None,
            Hierarchy::Legacy(base) => Some(base.join(name)),
        };
        let groups = places.into_iter().flatten().filter_map(own).collect();
        let oom_events = self.memory.as_ref().and_then(|place| match place {
            Hierarchy::Unified => common.map(|group| group.join("memory.events")),
            Hierarchy::Legacy(base) => Some(base.join(name).join("memory.oom_control")),
        });
        Limits { groups, oom_events }
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
            limit_memory(place, name, common, memory_mb.saturating_add(SHIM_MEMORY_MB).saturating_mul(MIB))?;
        } else if let Some(Hierarchy::Legacy(base)) = &self.memory {
            make_below(base, name)?;
        }
        match (&self.processes, common) {
            (Some(Hierarchy::Unified), Some(group)) => write_value(group, "pids.max", MAX_PROCESSES)?,
            (Some(Hierarchy::Legacy(base)), _) => {
                write_value(&make_below(base, name)?, "pids.max", MAX_PROCESSES)?;
            }
            (Some(Hierarchy::Unified), None) | (None, _) => {}
        }
        match (&self.cpu, common) {
            (Some(Hierarchy::Unified), Some(group)) => {
                write_value(group, "cpu.weight", group_weight(cpu_weight))
            }
            (Some(Hierarchy::Legacy(base)), _) => write_value(
                &make_below(base, name)?,
                "cpu.shares",
                effective_weight(cpu_weight).max(MIN_SHARES),
            ),
            (Some(Hierarchy::Unified), None) | (None, _) => Ok(()),
        }
    }
}

fn limit_memory(place: &Hierarchy, name: &str, common: Option<&Path>, bytes: u64) -> io::Result<()> {
    match (place, common) {
        (Hierarchy::Unified, Some(group)) => {
            write_value(group, "memory.max", bytes)?;
            // Kill the whole container if one of its processes is killed. A container that lost one of its
            // processes is of no use.
            write_value(group, "memory.oom.group", 1)?;
            ignore_unsupported(write_value(group, "memory.swap.max", 0))
        }
        (Hierarchy::Unified, None) => Ok(()),
        (Hierarchy::Legacy(base), _) => {
            let group = make_below(base, name)?;
            write_value(&group, "memory.limit_in_bytes", bytes)?;
            // Where the kernel counts swap, the limit of memory and swap equals the memory limit, so that no
            // swap is used beyond it.
            ignore_unsupported(write_value(&group, "memory.memsw.limit_in_bytes", bytes))
        }
    }
}

fn make_below(base: &Path, name: &str) -> io::Result<PathBuf> {
    make_group(base)?;
    let group = base.join(name);
    make_group(&group)?;
    Ok(group)
}

fn write_value(group: &Path, file: &str, value: impl ToString) -> io::Result<()> {
    let path = group.join(file);
    let written = fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut file| io::Write::write_all(&mut file, value.to_string().as_bytes()));
    written.map_err(|error| io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display())))
}

fn ignore_unsupported(set: io::Result<()>) -> io::Result<()> {
    match set {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => Ok(()),
        other => other,
    }
}

fn is_writable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

/// Returns the failure message of a container that the kernel killed for lack of memory. Either the container
/// exceeded its limit of `memory_mb` MiB, or the host ran out of memory.
pub(crate) fn out_of_memory_message(memory_mb: u64) -> String {
    match memory_mb {
        0 => "out of memory".to_owned(),
        limit => format!("out of memory (limit {limit} MiB)"),
    }
}

impl Limits {
    /// Returns the number of processes of the container that the kernel killed for lack of memory.
    pub(crate) fn oom_kills(&self) -> u64 {
        let text =
            self.oom_events.as_ref().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
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

    /// Creates a folder with the files that the kernel would create in a group of version 1 or version 2.
    fn make_fake_group(path: &Path) {
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
        make_fake_group(&common);
        let all = || Some(Hierarchy::Unified);
        let limiter = Limiter { memory: all(), processes: all(), cpu: all() };
        limiter.make("c", Some(&common), 64, 512).unwrap();
        assert_eq!(read(common.join("memory.max")), (80 * MIB).to_string());
        assert_eq!(read(common.join("memory.oom.group")), "1");
        assert_eq!(read(common.join("pids.max")), "1024");
        assert_eq!(read(common.join("cpu.weight")), "50");
        let limits = limiter.limits_of("c", Some(&common));
        assert_eq!(limits, Limits { groups: vec![], oom_events: Some(common.join("memory.events")) });
        assert_eq!(limits.oom_kills(), 0);
        fs::write(common.join("memory.events"), "low 0\noom 3\noom_kill 2\noom_group_kill 1\n").unwrap();
        assert_eq!(limits.oom_kills(), 2);
        assert_eq!([0, 64].map(out_of_memory_message), ["out of memory", "out of memory (limit 64 MiB)"]);
    }

    #[test]
    fn limits_are_set_in_legacy_groups_per_controller() {
        let root = tempfile::tempdir().unwrap();
        let base = |name: &str| root.path().join(name).join("muster-c");
        for name in ["memory", "pids", "cpu"] {
            make_fake_group(&base(name).join("c"));
        }
        let own = |name: &str| Some(Hierarchy::Legacy(base(name)));
        let limiter = Limiter { memory: own("memory"), processes: own("pids"), cpu: own("cpu") };
        limiter.make("c", None, 64, 512).unwrap();
        assert_eq!(read(base("memory").join("c/memory.limit_in_bytes")), (80 * MIB).to_string());
        assert_eq!(read(base("pids").join("c/pids.max")), "1024");
        assert_eq!(read(base("cpu").join("c/cpu.shares")), "512");
        let limits = limiter.limits_of("c", None);
        assert_eq!(limits.groups, [base("memory").join("c"), base("pids").join("c"), base("cpu").join("c")]);
        fs::write(
            base("memory").join("c/memory.oom_control"),
            "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
        )
        .unwrap();
        assert_eq!(limits.oom_kills(), 1);
        assert_eq!(
            limiter.isolation(),
            Isolation::NONE.with(IsolationLayer::Memory).with(IsolationLayer::Cpu).with(IsolationLayer::Pids)
        );
        assert_eq!(Limiter::default().isolation(), Isolation::NONE);
    }
}
