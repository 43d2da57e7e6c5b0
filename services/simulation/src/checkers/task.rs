//! Tasks: outcomes and callbacks, compared with what containers and owners did.

use machines::task::{self as machine, Task};
use schemas::container::{Instance, RunResult, WorkKey};
use schemas::entry::Event;
use schemas::names::TaskGuid;
use schemas::stamp::Actor;
use schemas::task::{self, Outcome};

use crate::checkers::calls::Calls;
use crate::checkers::{Notes, Scene};
use crate::coverage::Situation;
use crate::invariants::Invariant as I;

/// Checks a decision about a task, and returns the task after it.
pub(super) fn check(
    guid: &TaskGuid,
    mut task: Option<Task>,
    calls: &mut Calls,
    scene: &mut Scene<'_>,
    notes: &mut Notes,
) -> Option<Task> {
    for event in &scene.decision.events {
        if let Event::Task(event) = event {
            check_event(guid, task.as_ref(), event, calls, scene, notes);
        }
        task = machine::evolve(task, std::slice::from_ref(event), &scene.decision.stamp());
    }
    let Some(known) = &task else { return task };
    if known.state.is_none() {
        calls.deleted(guid, known.epoch, scene.position);
    }
    task
}

fn check_event(
    guid: &TaskGuid,
    task: Option<&Task>,
    event: &task::Event,
    calls: &Calls,
    scene: &mut Scene<'_>,
    notes: &mut Notes,
) {
    let Some(task) = task else { return };
    match event {
        task::Event::Started { by, .. } => {
            notes.check(I::OneContainer, scene.is_present(by), || format!("the cell of {by:?} is absent"));
            let work = WorkKey::Task { task_guid: guid.clone(), epoch: task.epoch };
            scene.truth.claimed(by.instance_guid, work);
        }
        task::Event::Completed { by, outcome, .. } => {
            let (invariant, right) = check_outcome(by.as_ref(), outcome, scene, notes);
            notes.check(invariant, right, || {
                format!("task {guid} is {}: {} reports {outcome:?}", task.state_name(), scene.decision.actor)
            });
        }
        task::Event::CallbackTried { outcome, .. } => {
            notes.check(I::OwnerCalled, calls.was_answered(guid, task.epoch, outcome), || {
                format!("the owner of task {guid} did not answer {outcome:?}")
            });
        }
        task::Event::Deleted {} => {
            let by_client = matches!(scene.decision.actor, Actor::Client { .. });
            let waited = task
                .completed()
                .filter(|done| scene.at_peace_since.is_some_and(|peace| peace < done.first_completed_at));
            let owed = waited.is_some() && task.definition.completion_callback_url.is_some();
            notes.check(I::OwnerCalled, by_client || !owed || calls.was_called(guid, task.epoch), || {
                format!("task {guid} is deleted and its owner was never called")
            });
        }
        task::Event::Desired(_)
        | task::Event::PlacementFailed { .. }
        | task::Event::Resolving {}
        | task::Event::Demoted {} => {}
    }
}

fn check_outcome(
    by: Option<&Instance>,
    outcome: &Outcome,
    scene: &Scene<'_>,
    notes: &mut Notes,
) -> (I, bool) {
    match (&scene.decision.actor, outcome, by) {
        (Actor::Cell(_), Outcome::Succeeded { result }, Some(by)) => {
            let ended = scene.truth.ended(by.instance_guid);
            (I::OutcomeTrue, matches!(ended, Some(RunResult::Succeeded { result: truth }) if truth == result))
        }
        (Actor::Cell(_), Outcome::Failed { reason }, Some(by)) => {
            let timed_out = reason == machine::EVACUATION_TIMED_OUT;
            if timed_out {
                notes.met(Situation::EvacuationTimedOut);
            }
            (I::OutcomeTrue, timed_out || has_failed(by, reason, scene))
        }
        (Actor::Bbs(_), Outcome::Failed { reason }, by) if reason == machine::CELL_DISAPPEARED => {
            (I::CellsLost, by.is_some_and(|by| scene.is_lost(by)))
        }
        _ => (I::OutcomeTrue, true),
    }
}

/// Returns `true` if the container of a task failed with this reason, or does not exist.
fn has_failed(by: &Instance, reason: &str, scene: &Scene<'_>) -> bool {
    if scene.truth.is_live(by.instance_guid) {
        return false;
    }
    let truth = scene.truth.result(by.instance_guid);
    let same = match truth {
        Some(RunResult::Failed { reason: truth, .. }) => truth == reason,
        Some(RunResult::Stopped) => reason == "stopped",
        Some(RunResult::Succeeded { .. }) | None => false,
    };
    same || reason == machine::NO_CONTAINER
}
