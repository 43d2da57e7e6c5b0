//! Completion callbacks: who was called, who answered for good, and whether it is left at that.

use std::collections::{BTreeMap, BTreeSet};

use schemas::container::Epoch;
use schemas::names::TaskGuid;
use schemas::subject::Position;
use schemas::task::{Called, Outcome};

use crate::nodes::Life;
use crate::promises::{Broken, Promise};

type Key = (TaskGuid, Epoch);

/// The calls so far.
#[derive(Default)]
pub(super) struct Calls {
    made: BTreeSet<Key>,
    /// Owners that answered for good.
    known: BTreeSet<Key>,
    /// What owners answered.
    said: BTreeMap<Key, Vec<Called>>,
    /// Who knows that the owner answered for good, and led ever since.
    ended: BTreeSet<(Life, TaskGuid, Epoch)>,
    leading: BTreeSet<Life>,
    /// Where the log says that a task is gone.
    deleted: BTreeMap<Key, Position>,
}

/// Whether an answer ends the calls: they are repeated on network errors, 408, 429 and 5xx, and after no other answer.
const fn ends(called: &Called) -> bool {
    match called {
        Called::Answered(408 | 429) | Called::Failed(_) => false,
        Called::Answered(status) => *status < 500 || *status > 599,
    }
}

impl Calls {
    pub(super) fn leads(&mut self, life: Life, leads: bool) {
        if leads {
            self.leading.insert(life);
        } else {
            self.leading.remove(&life);
            self.ended.retain(|(by, ..)| *by != life);
        }
    }

    /// A BBS calls. Answers what is wrong with that.
    pub(super) fn call(
        &mut self,
        life: Life,
        (task, epoch): (&TaskGuid, Epoch),
        delivered: Position,
        body: &str,
        outcome: Option<&Outcome>,
    ) -> Vec<Broken> {
        let mut broken = vec![];
        let key = (task.clone(), epoch);
        if self.ended.contains(&(life, task.clone(), epoch)) {
            let how = format!("{} calls the owner of {task} again, who answered for good", life.0);
            broken.push(Broken { promise: Promise::CallEnds, how });
        }
        if self.deleted.get(&key).is_some_and(|position| *position <= delivered) {
            let how = format!("{} calls the owner of {task}, which it knows to be gone", life.0);
            broken.push(Broken { promise: Promise::CallEnds, how });
        }
        let (failed, reason, result) = match outcome {
            None => {
                let how = format!("the owner of {task} is called before it completed");
                return vec![Broken { promise: Promise::CallTrue, how }];
            }
            Some(Outcome::Succeeded { result }) => (false, "", result.as_str()),
            Some(Outcome::Failed { reason }) => (true, reason.as_str(), ""),
        };
        let said: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
        if said["failed"] != failed || said["failure_reason"] != reason || said["result"] != result {
            let how = format!("the owner of {task} is told {body}, it ended as {outcome:?}");
            broken.push(Broken { promise: Promise::CallTrue, how });
        }
        self.made.insert(key);
        broken
    }

    /// What an owner answers, whoever hears of it. Tells whether that ends the calls.
    pub(super) fn owner_answers(&mut self, task: &TaskGuid, epoch: Epoch, called: &Called) -> bool {
        let ends = ends(called);
        if ends {
            self.known.insert((task.clone(), epoch));
        }
        self.said.entry((task.clone(), epoch)).or_default().push(called.clone());
        ends
    }

    /// Whether an owner ever answered so.
    pub(super) fn came_of(&self, task: &TaskGuid, epoch: Epoch, called: &Called) -> bool {
        self.said.get(&(task.clone(), epoch)).is_some_and(|said| said.contains(called))
    }

    /// Tasks whose owners answered for good.
    pub(super) fn told(&self) -> impl Iterator<Item = &TaskGuid> {
        self.known.iter().map(|(task, _)| task)
    }

    /// The owner's answer reached the BBS that called.
    pub(super) fn came_back(&mut self, life: Life, task: &TaskGuid, epoch: Epoch, called: &Called) {
        if ends(called) && self.leading.contains(&life) {
            self.ended.insert((life, task.clone(), epoch));
        }
    }

    pub(super) fn deleted(&mut self, task: &TaskGuid, epoch: Epoch, position: Position) {
        self.deleted.entry((task.clone(), epoch)).or_insert(position);
    }

    pub(super) fn was_called(&self, task: &TaskGuid, epoch: Epoch) -> bool {
        self.made.contains(&(task.clone(), epoch))
    }
}
