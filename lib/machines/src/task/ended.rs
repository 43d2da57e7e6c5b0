//! Deleted tasks: the rows of the history.

use super::{State, Task, evolve};
use crate::ended::EndedTask;
use schemas::stamp::Stamp;
use schemas::task::{Event, Outcome};
use schemas::{entry, limits};

/// Returns the history row of a task that this decision deletes after the task's completion. `None` if the
/// decision deletes no completed task.
#[must_use]
pub fn ended_task(before: Option<&Task>, events: &[entry::Event], stamp: &Stamp) -> Option<EndedTask> {
    let is_end = |event: &entry::Event| matches!(event, entry::Event::Task(Event::Deleted {}));
    let end = events.iter().position(is_end)?;
    let last = evolve(before.cloned(), &events[..end], stamp)?;
    let done = last.completed()?;
    // A resolved task ends in RESOLVING, an expired one in COMPLETED.
    let resolved = matches!(last.state, Some(State::Resolving(_)));
    let outcome = match &done.outcome {
        Outcome::Succeeded { result } => {
            Outcome::Succeeded { result: limits::truncate(result, limits::ENDED_RESULT_BYTES) }
        }
        Outcome::Failed { reason } => Outcome::Failed { reason: reason.clone() },
    };
    Some(EndedTask {
        guid: last.guid.clone(),
        domain: last.domain.clone(),
        epoch: last.epoch,
        by: done.by.clone(),
        started_at: done.started_at,
        completed_at: done.first_completed_at,
        outcome,
        callback: done.callback.clone(),
        deleted_at: stamp.at,
        resolved,
    })
}
