//! Effects of a decision about a task on its evaluations. A task is one piece of work.

use super::{CANCELLED, Command, Event, Outcome, State, Task};
use crate::definition::Placement;
use crate::evaluation::{self, Did, Left, Trigger};

/// Returns the work that remains for a task.
pub(super) fn left(task: Option<&Task>) -> Left {
    match task.and_then(|task| task.state.as_ref()) {
        Some(State::Pending { placement_error: None }) => Left { unanswered: 1, ..Left::default() },
        Some(State::Pending { placement_error: Some(_) }) => Left { unplaced: 1, ..Left::default() },
        Some(State::Running { .. } | State::Completed(_) | State::Resolving(_)) | None => Left::default(),
    }
}

/// Returns the events of evaluations that follow from the events of a decision.
pub(super) fn settle(task: Option<&Task>, command: &Command, events: &[Event]) -> Vec<evaluation::Event> {
    let before = left(task);
    let (mut after, mut did) = (before, Did::default());
    let placed = |did: &mut Did| (did.placed, did.unblocked) = (before.unanswered, before.unplaced);
    for event in events {
        match event {
            Event::Desired(_) => {
                did.made = Some(made_by(command));
                after = Left { unanswered: 1, ..Left::default() };
            }
            Event::Started { .. } => {
                placed(&mut did);
                after = Left::default();
            }
            Event::PlacementFailed { error, explanation } => {
                (did.error, did.used_up) = (Some(error.clone()), uses_up(command) && before.unanswered > 0);
                did.eligibility = explanation.as_ref().and_then(|why| why.eligibility.clone());
                did.queued = before.unanswered;
                after = Left { unplaced: 1, ..Left::default() };
            }
            Event::Completed { by: Some(_), outcome, .. } => {
                placed(&mut did);
                did.stopped = stopped_for(command, outcome).map(|trigger| (trigger, 1));
                after = Left::default();
            }
            Event::Completed { by: None, outcome, .. } => {
                gave_up(task, command, outcome, &mut did);
                after = Left::default();
            }
            Event::Resolving {} | Event::CallbackTried { .. } | Event::Demoted {} | Event::Deleted {} => {}
        }
    }
    if after == before && did == Did::default() {
        return vec![];
    }
    let known = task.map(|task| task.evaluations.to_vec()).unwrap_or_default();
    evaluation::decide(&known, &after, &did)
}

/// Returns the trigger for stopping a running task, or `None` if it was not asked to stop.
fn stopped_for(command: &Command, outcome: &Outcome) -> Option<Trigger> {
    let cancelled = matches!(outcome, Outcome::Failed { reason } if reason == CANCELLED);
    match command {
        Command::Evict(_) => Some(Trigger::Preemption),
        Command::Cancel
        | Command::Fail(_)
        | Command::Desire(_)
        | Command::Launch(_)
        | Command::Resolve
        | Command::Report(_)
        | Command::BeginResolving
        | Command::Called(..)
        | Command::Unanswered { .. }
        | Command::Retry(_)
        | Command::Converge => cancelled.then_some(Trigger::Remove),
    }
}

/// Records that a task ended without having run: it may not wait for room, its time was over, or a client
/// cancelled it.
fn gave_up(task: Option<&Task>, command: &Command, outcome: &Outcome, did: &mut Did) {
    let Outcome::Failed { reason } = outcome else { return };
    let waits = task.is_some_and(|task| task.definition.placement != Placement::Fail);
    match command {
        Command::Fail(_) if !waits => {
            (did.rejected, did.used_up) = (1, uses_up(command));
            did.error = Some(reason.clone());
        }
        Command::Cancel
        | Command::Fail(_)
        | Command::Desire(_)
        | Command::Launch(_)
        | Command::Resolve
        | Command::Evict(_)
        | Command::Report(_)
        | Command::BeginResolving
        | Command::Called(..)
        | Command::Unanswered { .. }
        | Command::Retry(_)
        | Command::Converge => did.failed = Some(reason.clone()).filter(|reason| reason != CANCELLED),
    }
}

const fn uses_up(command: &Command) -> bool {
    match command {
        Command::Fail(failed) => failed.used_up,
        Command::Desire(_)
        | Command::Launch(_)
        | Command::Cancel
        | Command::Resolve
        | Command::Evict(_)
        | Command::Report(_)
        | Command::BeginResolving
        | Command::Called(..)
        | Command::Unanswered { .. }
        | Command::Retry(_)
        | Command::Converge => false,
    }
}

/// Returns the trigger of the work that a new task makes.
const fn made_by(command: &Command) -> Trigger {
    match command {
        Command::Launch(_) => Trigger::Periodic,
        Command::Desire(_)
        | Command::Cancel
        | Command::Fail(_)
        | Command::Resolve
        | Command::Evict(_)
        | Command::Report(_)
        | Command::BeginResolving
        | Command::Called(..)
        | Command::Unanswered { .. }
        | Command::Retry(_)
        | Command::Converge => Trigger::Desire,
    }
}
