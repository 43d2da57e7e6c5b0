//! The World in numbers, for whoever watches it from afar.
//!
//! Most numbers are kept up to date while entries are folded. The rest takes a look at every process, and so is for somebody
//! who has time: a picture is enough for it.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::Timestamp;
use schemas::actual::{Actual, State};
use schemas::names::CellId;
use schemas::process::Process;
use schemas::query::CellState;
use schemas::resources::Resources;
use schemas::rollout::{Phase, Rollout};
use schemas::task::{self, Task};

use crate::index::Counts;
use crate::queries::Observed;
use crate::world::World;

/// How much there is of everything, and what of it isn't as it ought to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// What is counted as it changes.
    pub counts: Counts,
    /// Processes with at least one CRASHED instance.
    pub processes_crashing: u64,
    /// Instances that are desired.
    pub instances_desired: u64,
    /// Desired indices of which there is no instance, in whatever state.
    pub instances_missing: u64,
    /// Instances at indices that are not desired.
    pub instances_extra: u64,
    /// Instances that no cell takes.
    pub instances_unplaced: u64,
    /// Instances that have waited for placement for longer than two minutes.
    pub instances_waiting: u64,
    /// Tasks that no cell takes.
    pub tasks_unplaced: u64,
    /// Rollouts that are not over.
    pub rollouts: RolloutCounts,
    /// Domains that are fresh.
    pub domains_fresh: u64,
    /// Cells by state.
    pub cells: BTreeMap<CellState, u64>,
    /// The cells that are present.
    pub present: BTreeMap<CellId, CellFigures>,
}

/// Rollouts by phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RolloutCounts {
    /// Indices are being replaced.
    pub rolling: u64,
    /// Somebody has to say how they go on.
    pub paused: u64,
    /// They roll, and gave some index up for now.
    pub stalled: u64,
}

/// A present cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellFigures {
    /// What it has in all.
    pub total: Resources,
    /// What its containers take.
    pub used: Resources,
    /// How long ago it was heard; none: not yet.
    pub heard: Option<Duration>,
}

impl Figures {
    /// The figures of a World, with what a BBS knows besides.
    #[must_use]
    pub fn of(world: &World, observed: &Observed) -> Self {
        let mut figures = Self { counts: world.counts(), ..Self::default() };
        for process in world.processes_from(None) {
            figures.take_process(process, observed.now);
        }
        figures.tasks_unplaced = count(world.tasks_from(None).filter(|task| is_unplaced(task)));
        let now = observed.now;
        figures.domains_fresh = count(world.domains().filter(|(_, freshness)| freshness.is_fresh(now)));
        for (id, cell) in world.cells() {
            let heard = observed.heard.get(id).copied();
            *figures.cells.entry(CellState::of(cell, heard)).or_default() += 1;
            if cell.present {
                let (total, used) = (cell.presence.total, world.used_on(id));
                figures.present.insert(id.clone(), CellFigures { total, used, heard });
            }
        }
        figures
    }

    fn take_process(&mut self, process: &Process, now: Timestamp) {
        let desired = process.desired.as_deref();
        let wanted = desired.map_or(0, |desired| u64::from(desired.instances));
        let (mut last, mut there, mut crashed) = (None, 0, false);
        for slot in process.slots.iter() {
            let index = slot.place.index;
            let is_wanted = desired.is_some_and(|desired| desired.has(index));
            // The slots of an index stand beside each other.
            if is_wanted && last.replace(index) != Some(index) {
                there += 1;
            }
            if let Some(lrp) = &slot.actual {
                self.instances_extra += u64::from(!is_wanted);
                self.instances_waiting += u64::from(waits_long(lrp, now));
                crashed |= matches!(lrp.state, State::Crashed { .. });
            }
        }
        self.instances_desired += wanted;
        self.instances_missing += wanted.saturating_sub(there);
        self.instances_unplaced += u64::from(process.unplaced);
        self.processes_crashing += u64::from(crashed);
        if let Some(rollout) = process.rollout.as_deref() {
            self.rollouts.take(rollout);
        }
    }
}

impl RolloutCounts {
    fn take(&mut self, rollout: &Rollout) {
        match rollout.phase {
            Phase::Completed => {}
            Phase::Paused => self.paused += 1,
            Phase::Rolling if !rollout.stalled.is_empty() => self.stalled += 1,
            Phase::Rolling => self.rolling += 1,
        }
    }
}

/// How long an instance may wait for placement before that is worth knowing.
pub(crate) const WAITS_LONG: Duration = Duration::from_mins(2);

/// Returns `true` if an instance has been UNCLAIMED for longer than [`WAITS_LONG`], for whatever reason.
pub(crate) fn waits_long(lrp: &Actual, now: Timestamp) -> bool {
    match lrp.state {
        State::Unclaimed { .. } => now.since(lrp.since) >= WAITS_LONG,
        State::Claimed { .. } | State::Running { .. } | State::Crashed { .. } => false,
    }
}

/// Whether no cell takes a task.
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
