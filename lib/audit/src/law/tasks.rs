//! What may happen to a task (docs/model.md, "Tasks").

use schemas::Decision;
use schemas::container::Instance;
use schemas::entry::Actor;
use schemas::task::{Event, State, Task};

use super::Wrong;
use crate::Kind;

/// What is wrong with what happens to a task.
pub(super) fn judge(task: Option<&Task>, event: &Event, decision: &Decision) -> Option<Wrong> {
    let state = task.and_then(|task| task.state.as_ref());
    if let (Event::Completed { .. }, Some(State::Completed(done) | State::Resolving(done))) = (event, state) {
        let what = format!("it has ended already, as {:?}: the first outcome never changes", done.outcome);
        return Some((Kind::Promise, what));
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

/// Only a container's own cell speaks for it.
fn speaks(by: &Instance, decision: &Decision) -> bool {
    matches!(&decision.actor, Actor::Cell(cell) if *cell == by.cell_id)
}
