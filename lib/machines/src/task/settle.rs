//! Effects of a decision about a task on the evaluations of the task. In an evaluation, a task is one piece
//! of work.

use super::{CANCELLED, State, Task};
use crate::evaluation::{WaitingWork, WorkEffects};
use schemas::definition::Placement;
use schemas::evaluation::{self, Trigger};
use schemas::task::{Command, Event, Outcome};

/// Returns the waiting work of a task: no work, or one placement.
pub(super) fn left(task: Option<&Task>) -> WaitingWork {
    match task.and_then(|task| task.state.as_ref()) {
        Some(State::Pending { placement_error: None }) => {
            WaitingWork { unanswered: 1, ..WaitingWork::default() }
        }
        Some(State::Pending { placement_error: Some(_) }) => {
            WaitingWork { unplaced: 1, ..WaitingWork::default() }
        }
        Some(State::Running { .. } | State::Completed(_) | State::Resolving(_)) | None => {
            WaitingWork::default()
        }
    }
}

/// Returns the evaluation events that follow from the events of a decision.
pub(super) fn settle(task: Option<&Task>, command: &Command, events: &[Event]) -> Vec<evaluation::Event> {
    let before = left(task);
    let (mut after, mut did) = (before, WorkEffects::default());
    let placed = |did: &mut WorkEffects| (did.placed, did.unblocked) = (before.unanswered, before.unplaced);
    for event in events {
        match event {
            Event::Desired(_) => {
                did.new_work = Some(work_trigger(command));
                after = WaitingWork { unanswered: 1, ..WaitingWork::default() };
            }
            Event::Started { .. } => {
                placed(&mut did);
                after = WaitingWork::default();
            }
            Event::PlacementFailed { error, explanation } => {
                (did.error, did.attempts_exhausted) =
                    (Some(error.clone()), exhausts_attempts(command) && before.unanswered > 0);
                did.eligibility = explanation.as_ref().and_then(|why| why.eligibility.clone());
                did.queued = before.unanswered;
                after = WaitingWork { unplaced: 1, ..WaitingWork::default() };
            }
            Event::Completed { by: Some(_), outcome, .. } => {
                placed(&mut did);
                did.stopped = stop_trigger(command, outcome).map(|trigger| (trigger, 1));
                after = WaitingWork::default();
            }
            Event::Completed { by: None, outcome, .. } => {
                record_unstarted_end(task, command, outcome, &mut did);
                after = WaitingWork::default();
            }
            Event::Resolving {} | Event::CallbackTried { .. } | Event::Demoted {} | Event::Deleted {} => {}
        }
    }
    if after == before && did == WorkEffects::default() {
        return vec![];
    }
    let known = task.map(|task| task.evaluations.to_vec()).unwrap_or_default();
    crate::evaluation::decide(&known, &after, &did)
}

/// Returns the trigger for stopping a running task, or `None` if it was not asked to stop.
fn stop_trigger(command: &Command, outcome: &Outcome) -> Option<Trigger> {
    let cancelled = matches!(outcome, Outcome::Failed { reason } if reason == CANCELLED);
    if let Command::Evict(_) = command {
        Some(Trigger::Preemption)
    } else {
        cancelled.then_some(Trigger::Remove)
    }
}

/// Records that a task ended without having run. Its placement failed and it may not wait for free resources,
/// its time limit was exceeded, or a client cancelled it.
fn record_unstarted_end(task: Option<&Task>, command: &Command, outcome: &Outcome, did: &mut WorkEffects) {
    let Outcome::Failed { reason } = outcome else { return };
    let waits = task.is_some_and(|task| task.definition.placement != Placement::Fail);
    if let Command::Fail(_) = command
        && !waits
    {
        (did.rejected, did.attempts_exhausted) = (1, exhausts_attempts(command));
        did.error = Some(reason.clone());
    } else {
        did.failed = Some(reason.clone()).filter(|reason| reason != CANCELLED);
    }
}

const fn exhausts_attempts(command: &Command) -> bool {
    matches!(command, Command::Fail(failed) if failed.attempts_exhausted)
}

/// Returns the trigger of the work that a new task creates.
const fn work_trigger(command: &Command) -> Trigger {
    if let Command::Launch(_) = command { Trigger::Periodic } else { Trigger::Desire }
}
