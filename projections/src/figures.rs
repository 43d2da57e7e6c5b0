//! Figures of the World (the state folded from the log) for metrics.
//!
//! Folding maintains most figures. The other figures need a scan over all processes, so callers compute them
//! where latency does not matter. A World snapshot is sufficient.

use std::collections::BTreeMap;
use std::time::Duration;

use machines::actual::{Actual, State};
use machines::process::Process;
use machines::rollout::Rollout;
use machines::task::{self, Task};
use schemas::Timestamp;
use schemas::names::CellId;
use schemas::query::CellState;
use schemas::resources::Resources;
use schemas::rollout::Phase;

use crate::index::Counts;
use crate::queries::{Observed, cell_state};
use crate::world::World;

/// Point-in-time figures of a cluster, exported as metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Counts that folding maintains.
    pub counts: Counts,
    /// Processes with at least one CRASHED instance.
    pub processes_crashing: u64,
    /// Desired instances of all processes.
    pub instances_desired: u64,
    /// Desired indices without an instance in any state.
    pub instances_missing: u64,
    /// Instances at indices that are not desired.
    pub instances_extra: u64,
    /// UNCLAIMED instances with a placement error: no cell can run them.
    pub instances_unplaced: u64,
    /// Instances that have been UNCLAIMED for two minutes or longer.
    pub instances_waiting: u64,
    /// PENDING tasks with a placement error: no cell can run them.
    pub tasks_unplaced: u64,
    /// Rollouts that are not completed, by phase.
    pub rollouts: RolloutCounts,
    /// Domains that are fresh.
    pub domains_fresh: u64,
    pub cells: BTreeMap<CellState, u64>,
    /// Resources and heartbeats of the present cells.
    pub present: BTreeMap<CellId, CellFigures>,
}

/// Uncompleted rollouts by phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RolloutCounts {
    /// Rollouts that replace indices and have not given up any index.
    pub rolling: u64,
    /// Rollouts that wait until an operator or a client resumes them or rolls them back.
    pub paused: u64,
    /// Rollouts in progress that have given up some indices for now.
    pub stalled: u64,
}

/// Figures of a present cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellFigures {
    /// Capacity of the cell.
    pub total: Resources,
    /// Resources that the containers on the cell reserve, according to the log.
    pub used: Resources,
    /// Time since the last heartbeat. `None` if this BBS has not received a heartbeat yet.
    pub heartbeat_age: Option<Duration>,
}

impl Figures {
    /// Computes the figures from a World and from the BBS's observations, which are not in the log.
    #[must_use]
    pub fn new(world: &World, observed: &Observed) -> Self {
        let mut figures = Self { counts: world.counts(), ..Self::default() };
        for process in world.processes_from(None) {
            figures.add_process(process, observed.now);
        }
        figures.tasks_unplaced = count(world.tasks_from(None).filter(|task| is_unplaced(task)));
        let now = observed.now;
        figures.domains_fresh = count(world.domains().filter(|(_, freshness)| freshness.is_fresh(now)));
        for (id, cell) in world.cells() {
            let heartbeat_age = observed.heartbeat_ages.get(id).copied();
            *figures.cells.entry(cell_state(cell, heartbeat_age)).or_default() += 1;
            if cell.present {
                let (total, used) = (cell.presence.total, world.used_on(id));
                figures.present.insert(id.clone(), CellFigures { total, used, heartbeat_age });
            }
        }
        figures
    }

    fn add_process(&mut self, process: &Process, now: Timestamp) {
        let desired = process.desired.as_deref();
        let wanted = desired.map_or(0, |desired| u64::from(desired.instances));
        let (mut last, mut there, mut crashed) = (None, 0, false);
        for slot in process.slots.iter() {
            let index = slot.place.index;
            let is_wanted = desired.is_some_and(|desired| desired.desires_index(index));
            // Slots of the same index are adjacent.
            if is_wanted && last.replace(index) != Some(index) {
                there += 1;
            }
            if let Some(lrp) = &slot.actual {
                self.instances_extra += u64::from(!is_wanted);
                self.instances_waiting += u64::from(is_waiting_long(lrp, now));
                crashed |= matches!(lrp.state, State::Crashed { .. });
            }
        }
        self.instances_desired += wanted;
        self.instances_missing += wanted.saturating_sub(there);
        self.instances_unplaced += u64::from(process.unplaced);
        self.processes_crashing += u64::from(crashed);
        if let Some(rollout) = process.rollout.as_deref() {
            self.rollouts.add(rollout);
        }
    }
}

impl RolloutCounts {
    fn add(&mut self, rollout: &Rollout) {
        match rollout.phase {
            Phase::Completed => {}
            Phase::Paused => self.paused += 1,
            Phase::Rolling if !rollout.stalled.is_empty() => self.stalled += 1,
            Phase::Rolling => self.rolling += 1,
        }
    }
}

/// Time in the UNCLAIMED state after which an instance is counted in `instances_waiting`.
pub(crate) const LONG_WAIT: Duration = Duration::from_mins(2);

/// Returns `true` if an instance has been UNCLAIMED for [`LONG_WAIT`] or longer, for any reason.
pub(crate) fn is_waiting_long(lrp: &Actual, now: Timestamp) -> bool {
    match lrp.state {
        State::Unclaimed { .. } => now.since(lrp.since) >= LONG_WAIT,
        State::Claimed { .. } | State::Running { .. } | State::Crashed { .. } => false,
    }
}

/// Returns `true` if a task is PENDING with a placement error.
pub(crate) fn is_unplaced(task: &Task) -> bool {
    match &task.state {
        Some(task::State::Pending { placement_error }) => placement_error.is_some(),
        Some(task::State::Running { .. } | task::State::Completed(_) | task::State::Resolving(_)) | None => {
            false
        }
    }
}

fn count(all: impl Iterator) -> u64 {
    u64::try_from(all.count()).unwrap_or(u64::MAX)
}
