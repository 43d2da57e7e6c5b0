//! Rules for events of tasks (docs/internals/model/tasks.md, "Tasks").

use machines::task::{State, Task};
use schemas::Decision;
use schemas::container::Instance;
use schemas::stamp::Actor;
use schemas::task::{Event, Outcome};

use super::Violation;
use crate::Kind;

/// Checks an event of a task.
pub(super) fn check_task(task: Option<&Task>, event: &Event, decision: &Decision) -> Option<Violation> {
    let state = task.and_then(|task| task.state.as_ref());
    if let (Event::Completed { .. }, Some(State::Completed(done) | State::Resolving(done))) = (event, state) {
        let what =
            format!("the task has already ended as {:?}: the first outcome never changes", done.outcome);
        return Some((Kind::InvariantViolated, what));
    }
    if let Event::Completed { by, outcome, .. } = event
        && let Some(what) = check_completion_actor(by.as_ref(), outcome, decision)
    {
        return Some((Kind::Illegal, what));
    }
    let legal = match (event, state) {
        (Event::Desired(_), None)
        | (Event::PlacementFailed { .. }, Some(State::Pending { .. }))
        | (Event::Resolving {}, Some(State::Completed(_)))
        | (Event::Demoted {}, Some(State::Resolving(_)))
        | (Event::Deleted {}, Some(State::Completed(_) | State::Resolving(_))) => true,
        (Event::Started { by, .. }, Some(State::Pending { .. })) => is_own_cell(by, decision),
        (Event::Completed { .. }, Some(State::Pending { .. })) => true,
        (Event::Completed { by, .. }, Some(State::Running { by: runner })) => by.as_ref() == Some(runner),
        (Event::CallbackTried { attempt, .. }, Some(State::Completed(done) | State::Resolving(done))) => {
            *attempt == done.callback.as_ref().map_or(0, |callback| callback.attempts) + 1
        }
        (
            Event::Desired(_)
            | Event::Started { .. }
            | Event::PlacementFailed { .. }
            | Event::Completed { .. }
            | Event::Resolving {}
            | Event::CallbackTried { .. }
            | Event::Demoted {}
            | Event::Deleted {},
            _,
        ) => false,
    };
    let is = task.map_or("absent", Task::state_name);
    (!legal).then(|| (Kind::Illegal, format!("the task is {is}: {} cannot decide {event:?}", decision.actor)))
}

/// Checks the actor of a completion. A cell reports only its own containers, and only a cell reports success.
fn check_completion_actor(by: Option<&Instance>, outcome: &Outcome, decision: &Decision) -> Option<String> {
    let succeeded = match outcome {
        Outcome::Succeeded { .. } => true,
        Outcome::Failed { .. } => false,
    };
    match &decision.actor {
        Actor::Cell(cell) if by.is_some_and(|by| by.cell_id == *cell) => None,
        Actor::Cell(cell) => {
            Some(format!("cell {cell} cannot complete the task: it does not have its container"))
        }
        Actor::Client { .. } | Actor::Operator(_) | Actor::Auctioneer(_) | Actor::Bbs(_) => {
            succeeded.then(|| format!("{} reported success: only the cell of the task can", decision.actor))
        }
    }
}

/// Returns `true` if the actor is the cell of the container.
fn is_own_cell(by: &Instance, decision: &Decision) -> bool {
    matches!(&decision.actor, Actor::Cell(cell) if *cell == by.cell_id)
}
