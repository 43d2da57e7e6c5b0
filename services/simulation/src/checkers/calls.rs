//! Completion callbacks: calls of the owners of tasks, and their answers.

use std::collections::{BTreeMap, BTreeSet};

use projections::World;
use schemas::container::Epoch;
use schemas::names::TaskGuid;
use schemas::subject::Position;
use schemas::task::{CallbackResult, CallbackVerdict, Outcome};

use crate::checkers::Notes;
use crate::invariants::Invariant as I;
use crate::shape::Life;

type Key = (TaskGuid, Epoch);

/// Calls so far.
#[derive(Default)]
pub(super) struct Calls {
    called: BTreeSet<Key>,
    answers: BTreeMap<Key, Vec<CallbackResult>>,
    /// Owners whose final answer reached a BBS that leads.
    ended: BTreeSet<(Life, TaskGuid, Epoch)>,
    leading: BTreeSet<Life>,
    /// Position at which each task was deleted.
    deleted: BTreeMap<Key, Position>,
}

impl Calls {
    /// Records that a BBS starts or stops leading.
    pub(super) fn leads(&mut self, life: Life, leads: bool) {
        if leads {
            self.leading.insert(life);
        } else {
            self.leading.remove(&life);
        }
        self.ended.retain(|(by, ..)| *by != life);
    }

    /// Checks a call by a BBS that knows the log up to `delivered`.
    pub(super) fn check(
        &mut self,
        life: Life,
        (task, epoch): (&TaskGuid, Epoch),
        (delivered, body): (Position, &str),
        world: &World,
        notes: &mut Notes,
    ) {
        let key = (task.clone(), epoch);
        let gone = self.deleted.get(&key).is_some_and(|position| *position <= delivered);
        let ended = self.ended.contains(&(life, task.clone(), epoch));
        notes.check(I::OwnerCalled, !gone && !ended, || {
            format!("{} calls the owner of {task}: task deleted {gone}, owner answered {ended}", life.0)
        });
        // The reference World may be ahead of the caller, and may have deleted the task.
        if let Some(known) = world.task(task).filter(|known| known.epoch == epoch && known.state.is_some()) {
            let outcome = known.completed().map(|done| &done.outcome);
            let right = outcome
                .is_some_and(|outcome| is_true(body, (task, epoch), outcome, &known.definition.annotation));
            notes.check(I::OwnerCalled, right, || format!("the owner of {task} gets {body} for {outcome:?}"));
        }
        self.called.insert(key);
    }

    /// Records the answer of an owner. Returns `true` if it ends the calls.
    pub(super) fn answered(&mut self, task: &TaskGuid, epoch: Epoch, answer: &CallbackResult) -> bool {
        self.answers.entry((task.clone(), epoch)).or_default().push(answer.clone());
        answer.verdict() != CallbackVerdict::Repeat
    }

    /// Records that an answer reached the BBS that made the call.
    pub(super) fn returned(
        &mut self,
        life: Life,
        (task, epoch): (&TaskGuid, Epoch),
        answer: &CallbackResult,
    ) {
        if self.leading.contains(&life) && answer.verdict() != CallbackVerdict::Repeat {
            self.ended.insert((life, task.clone(), epoch));
        }
    }

    pub(super) fn deleted(&mut self, task: &TaskGuid, epoch: Epoch, position: Position) {
        self.deleted.entry((task.clone(), epoch)).or_insert(position);
    }

    /// Returns `true` if the owner gave this answer.
    pub(super) fn was_answered(&self, task: &TaskGuid, epoch: Epoch, answer: &CallbackResult) -> bool {
        self.answers.get(&(task.clone(), epoch)).is_some_and(|answers| answers.contains(answer))
    }

    pub(super) fn was_called(&self, task: &TaskGuid, epoch: Epoch) -> bool {
        self.called.contains(&(task.clone(), epoch))
    }

    /// Returns the tasks whose owners gave a final answer.
    pub(super) fn answered_tasks(&self) -> impl Iterator<Item = &TaskGuid> {
        let is_final = |answers: &&Vec<CallbackResult>| {
            answers.iter().any(|answer| answer.verdict() != CallbackVerdict::Repeat)
        };
        self.answers.iter().filter(move |(_, answers)| is_final(answers)).map(|((task, _), _)| task)
    }
}

/// Returns `true` if the body of a call contains the outcome of the task.
fn is_true(body: &str, (task, epoch): (&TaskGuid, Epoch), outcome: &Outcome, annotation: &str) -> bool {
    let (failed, reason, result) = match outcome {
        Outcome::Succeeded { result } => (false, "", result.as_str()),
        Outcome::Failed { reason } => (true, reason.as_str(), ""),
    };
    let expected = serde_json::json!({
        "task_guid": task,
        "failed": failed,
        "failure_reason": reason,
        "result": result,
        "annotation": annotation,
        "created_at": epoch,
    });
    serde_json::from_str::<serde_json::Value>(body).is_ok_and(|body| body == expected)
}
