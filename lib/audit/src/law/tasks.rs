//! What may happen to a task (docs/model.md, "Tasks").

use schemas::Decision;
use schemas::container::Instance;
use schemas::entry::Actor;
use schemas::task::{Event, Outcome, State, Task};

use super::Wrong;
use crate::Kind;

/// What is wrong with what happens to a task.
pub(super) fn judge(task: Option<&Task>, event: &Event, decision: &Decision) -> Option<Wrong> {
    let state = task.and_then(|task| task.state.as_ref());
    if let (Event::Completed { .. }, Some(State::Completed(done) | State::Resolving(done))) = (event, state) {
        let what = format!("it has ended already, as {:?}: the first outcome never changes", done.outcome);
        return Some((Kind::Promise, what));
    }
    if let Event::Completed { by, outcome, .. } = event
        && let Some(what) = ended(by.as_ref(), outcome, decision)
    {
        return Some((Kind::Illegal, what));
    }
    let legal = match (event, state) {
        (Event::Desired(_), None)
        | (Event::PlacementFailed { .. }, Some(State::Pending { .. }))
        | (Event::Resolving {}, Some(State::Completed(_)))
        | (Event::Demoted {}, Some(State::Resolving(_)))
        | (Event::Deleted {}, Some(State::Completed(_) | State::Resolving(_))) => true,
        (Event::Started { by, .. }, Some(State::Pending { .. })) => speaks(by, decision),
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
    let is = task.map_or("not there", Task::state_name);
    (!legal).then(|| (Kind::Illegal, format!("it is {is}, and {} said: {event:?}", decision.actor)))
}

/// Why it can't have ended so: a cell tells of its own containers only, and nobody else of a success.
fn ended(by: Option<&Instance>, outcome: &Outcome, decision: &Decision) -> Option<String> {
    let succeeded = match outcome {
        Outcome::Succeeded { .. } => true,
        Outcome::Failed { .. } => false,
    };
    match &decision.actor {
        Actor::Cell(cell) if by.is_some_and(|by| by.cell_id == *cell) => None,
        Actor::Cell(cell) => {
            Some(format!("cell {cell} says that it has ended, and it is not in a container there"))
        }
        Actor::Client { .. } | Actor::Operator(_) | Actor::Auctioneer(_) | Actor::Bbs(_) => succeeded
            .then(|| format!("{} says that it has succeeded, and only its cell does", decision.actor)),
    }
}

/// Only a container's own cell speaks for it.
fn speaks(by: &Instance, decision: &Decision) -> bool {
    matches!(&decision.actor, Actor::Cell(cell) if *cell == by.cell_id)
}
