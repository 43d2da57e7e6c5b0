//! Conversion of states to the words and rows that clients read.

use std::time::Duration;

use machines::cell::Cell;
use machines::rollout::Rollout;
use machines::{actual, task};
use schemas::query::{CellState, InstanceState, RolloutRow, TaskState};

/// Time without a heartbeat after which a present cell is shown as SILENT. This time corresponds to two
/// missed heartbeats.
const SILENT_AFTER: Duration = Duration::from_secs(10);

/// Returns the state of an instance as shown in rows.
pub(crate) const fn instance_state(state: &actual::State) -> InstanceState {
    match state {
        actual::State::Unclaimed { .. } => InstanceState::Unclaimed,
        actual::State::Claimed { .. } => InstanceState::Claimed,
        actual::State::Running { .. } => InstanceState::Running,
        actual::State::Crashed { .. } => InstanceState::Crashed,
    }
}

/// Returns the state of a task as shown in rows.
pub(crate) const fn task_state(state: &task::State) -> TaskState {
    match state {
        task::State::Pending { .. } => TaskState::Pending,
        task::State::Running { .. } => TaskState::Running,
        task::State::Completed(_) => TaskState::Completed,
        task::State::Resolving(_) => TaskState::Resolving,
    }
}

/// Returns the state of a cell. `heartbeat_age` is the age of the last heartbeat that the caller received, if
/// any.
#[must_use]
pub fn cell_state(cell: &Cell, heartbeat_age: Option<Duration>) -> CellState {
    match (cell.present, cell.evacuating, cell.unhealthy.is_none()) {
        (false, _, _) => CellState::Absent,
        (true, _, _) if heartbeat_age.is_some_and(|age| age >= SILENT_AFTER) => CellState::Silent,
        (true, true, _) => CellState::Evacuating,
        (true, false, false) => CellState::Unhealthy,
        (true, false, true) => CellState::Present,
    }
}

/// Returns a rollout as shown to users.
pub(crate) fn rollout_row(rollout: &Rollout) -> RolloutRow {
    let in_replacement = rollout.steps.keys().filter(|index| rollout.replacement_step(**index).is_some());
    RolloutRow {
        number: rollout.number,
        kind: rollout.kind,
        status: rollout.status().to_owned(),
        reason: Some(rollout.reason.clone()).filter(|reason| !reason.is_empty()),
        target: rollout.target.clone(),
        rollback_to: rollout.rollback_to.clone(),
        total: rollout.total,
        replaced: rollout.replaced,
        in_replacement: in_replacement.copied().collect(),
        stalled: rollout.stalled.keys().copied().collect(),
        failed: rollout.failed.iter().copied().collect(),
        started_at: rollout.started_at,
        since: rollout.since,
    }
}
