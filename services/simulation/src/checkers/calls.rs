//! Completion callbacks: who was called, how often, with what, and who answered so that it is left at that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::Timestamp;
use schemas::container::Epoch;
use schemas::names::TaskGuid;
use schemas::subject::Position;
use schemas::task::{CallbackResult, Outcome};

use super::due::Thing;
use crate::nodes::Life;
use crate::promises::{Broken, Promise as P};

type Key = (TaskGuid, Epoch);

/// An owner is called again after this long at least.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
/// And after this long at most.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Clocks of a node may run so unevenly.
const UNEVEN: Duration = Duration::from_millis(100);

/// What a call says: the task's outcome and what its client wrote to it.
pub(super) struct CallBody<'a> {
    pub(super) outcome: Option<&'a Outcome>,
    pub(super) annotation: &'a str,
}

/// The calls of one BBS for one task.
#[derive(Clone, Debug, Default)]
struct Row {
    /// When the last call was made.
    called: Timestamp,
    /// When it came back; none: it is out.
    back: Option<Timestamp>,
    /// How often calls came back so that they are repeated.
    failed: u32,
    /// The owner answered so that it is left at that.
    ended: bool,
    /// And well.
    well: bool,
}

/// The calls so far.
#[derive(Default)]
pub(super) struct Calls {
    made: BTreeSet<Key>,
    /// Owners that answered so that they are not called again.
    known: BTreeSet<Key>,
    /// What owners answered.
    said: BTreeMap<Key, Vec<CallbackResult>>,
    /// The calls of whoever leads.
    rows: BTreeMap<(Life, TaskGuid, Epoch), Row>,
    leading: BTreeSet<Life>,
    /// Where the log says that a task is gone.
    deleted: BTreeMap<Key, Position>,
}

/// Whether an answer ends the calls (docs/internals/model/tasks.md, "Completion callbacks"): they are repeated on network errors, 408,
/// 429 and 5xx, and never after any other answer or where nobody may be called.
const fn ends(called: &CallbackResult) -> bool {
    match called {
        CallbackResult::Answered(408 | 429) | CallbackResult::Failed(_) => false,
        CallbackResult::Refused(_) => true,
        CallbackResult::Answered(status) => *status < 500 || *status > 599,
    }
}

impl Calls {
    pub(super) fn leads(&mut self, life: Life, leads: bool) {
        if leads {
            self.leading.insert(life);
        } else {
            self.leading.remove(&life);
        }
        self.rows.retain(|(by, ..), _| *by != life);
    }

    /// A BBS calls. Answers what is wrong with that.
    pub(super) fn call(
        &mut self,
        life: Life,
        (task, epoch): (&TaskGuid, Epoch),
        (delivered, now, uneven): (Position, Timestamp, Duration),
        body: &str,
        told: &CallBody<'_>,
    ) -> Vec<Broken> {
        let mut broken = vec![];
        let mut breaks = |promise, how| broken.push(Broken { promise, how });
        let key = (task.clone(), epoch);
        if self.deleted.get(&key).is_some_and(|position| *position <= delivered) {
            breaks(P::CallEnds, format!("{} calls the owner of {task}, which it knows to be gone", life.0));
        }
        let before = self.rows.get(&(life, task.clone(), epoch)).cloned();
        let mut row = Row { called: now, ..Row::default() };
        if let Some(before) = before {
            if before.ended {
                breaks(P::CallEnds, format!("{} calls the owner of {task} again, who answered", life.0));
            }
            let waited = now.since(before.back.unwrap_or(before.called));
            let doublings = before.failed.saturating_sub(1).min(10);
            let least = (SHORTEST_WAIT * 2_u32.pow(doublings)).min(LONGEST_WAIT);
            if before.back.is_some() && waited + UNEVEN + uneven < least {
                let how = format!("the owner of {task} is called again after {waited:?}, not {least:?}");
                breaks(P::CallBacksOff, how);
            }
            row.failed = before.failed;
        }
        self.rows.insert((life, task.clone(), epoch), row);
        match told.outcome {
            None => breaks(P::CallTrue, format!("the owner of {task} is called before it completed")),
            Some(_) if !is_true(body, task, epoch, told) => {
                breaks(
                    P::CallTrue,
                    format!("the owner of {task} is told {body}, it ended as {:?}", told.outcome),
                );
            }
            Some(_) => {}
        }
        self.made.insert(key);
        broken
    }

    /// What an owner answers, whoever hears of it. Tells whether that ends the calls.
    pub(super) fn owner_answers(&mut self, task: &TaskGuid, epoch: Epoch, called: &CallbackResult) -> bool {
        let ends = ends(called);
        if ends {
            self.known.insert((task.clone(), epoch));
        }
        self.said.entry((task.clone(), epoch)).or_default().push(called.clone());
        ends
    }

    /// Whether an owner ever answered so.
    pub(super) fn came_of(&self, task: &TaskGuid, epoch: Epoch, called: &CallbackResult) -> bool {
        self.said.get(&(task.clone(), epoch)).is_some_and(|said| said.contains(called))
    }

    /// Tasks whose owners are not to be called again.
    pub(super) fn told(&self) -> impl Iterator<Item = &TaskGuid> {
        self.known.iter().map(|(task, _)| task)
    }

    /// What came of a call reaches the BBS that made it.
    pub(super) fn came_back(
        &mut self,
        life: Life,
        (task, epoch): (&TaskGuid, Epoch),
        called: &CallbackResult,
        now: Timestamp,
    ) {
        if let Some(row) =
            self.rows.get_mut(&(life, task.clone(), epoch)).filter(|_| self.leading.contains(&life))
        {
            row.back = Some(now);
            row.ended |= ends(called);
            row.well |= matches!(called, CallbackResult::Answered(200..=299));
            row.failed += 1;
        }
    }

    /// What the owner of a task is owed that completed then.
    pub(super) fn owed(&self, task: &TaskGuid, epoch: Epoch, resolving: bool) -> Option<Thing> {
        let rows = self
            .rows
            .iter()
            .filter(|((life, guid, of), _)| guid == task && *of == epoch && self.leading.contains(life));
        let last = rows.map(|(_, row)| row).max_by_key(|row| row.called);
        match last {
            // Who refused is left alone, and the task is kept for its time.
            Some(row) if row.ended && !row.well => None,
            Some(row) if row.ended => {
                Some(Thing::new(P::CallEnds, format!("the owner of {task} answered, it stays")))
            }
            Some(Row { back: None, .. }) => None,
            Some(Row { back: Some(back), .. }) => {
                let what = format!("the owner of {task} did not answer at {back} and is not called again");
                Some(Thing { promise: P::CallBacksOff, what, slow: LONGEST_WAIT })
            }
            // Whoever marked it has to call; if that is somebody who is gone, it is demoted first.
            None if resolving => None,
            None => {
                let what = format!("the owner of {task} is not called");
                Some(Thing { promise: P::OwnerCalled, what, slow: SHORTEST_WAIT })
            }
        }
    }

    pub(super) fn deleted(&mut self, task: &TaskGuid, epoch: Epoch, position: Position) {
        self.deleted.entry((task.clone(), epoch)).or_insert(position);
    }

    pub(super) fn was_called(&self, task: &TaskGuid, epoch: Epoch) -> bool {
        self.made.contains(&(task.clone(), epoch))
    }
}

/// Whether a call says what is true.
fn is_true(body: &str, task: &TaskGuid, epoch: Epoch, told: &CallBody<'_>) -> bool {
    let (failed, reason, result) = match told.outcome {
        None => return false,
        Some(Outcome::Succeeded { result }) => (false, "", result.as_str()),
        Some(Outcome::Failed { reason }) => (true, reason.as_str(), ""),
    };
    let wanted = serde_json::json!({
        "task_guid": task,
        "failed": failed,
        "failure_reason": reason,
        "result": result,
        "annotation": told.annotation,
        "created_at": epoch,
    });
    serde_json::from_str::<serde_json::Value>(body).is_ok_and(|said| said == wanted)
}
