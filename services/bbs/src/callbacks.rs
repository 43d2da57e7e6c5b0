//! Telling the owners of completed tasks (seed `000`, "Resolving Completed Tasks").
//!
//! The BBS marks a task RESOLVING before it calls, so that no two BBSs call at once. A call is repeated with backoff
//! until the record expires on network errors, 408, 429 and 5xx; any other answer ends it.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::Timestamp;
use schemas::container::Epoch;
use schemas::names::TaskGuid;

/// The first wait before a call is repeated; it doubles.
pub const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait before a call is repeated.
pub const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The calls that are owed, by task.
#[derive(Clone, Debug, Default)]
pub struct Callbacks(BTreeMap<TaskGuid, Owed>);

#[derive(Clone, Copy, Debug)]
struct Owed {
    epoch: Epoch,
    tries: u32,
    due: Option<Timestamp>,
    /// Whether the owner answered for good: it is never called again.
    answered: bool,
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Called {
    /// The server answered with this status.
    Answered(u16),
    /// It did not answer.
    Failed(String),
}

impl Called {
    /// Whether the call has to be repeated.
    #[must_use]
    pub const fn is_to_be_repeated(&self) -> bool {
        match self {
            Self::Answered(status) => matches!(status, 408 | 429 | 500..=599),
            Self::Failed(_) => true,
        }
    }
}

impl Callbacks {
    /// A task completed: its call is due, unless one for this life is owed already.
    pub fn owe(&mut self, task: &TaskGuid, epoch: Epoch, now: Timestamp) {
        let fresh = Owed { epoch, tries: 0, due: Some(now), answered: false };
        let owed = self.0.entry(task.clone()).or_insert(fresh);
        if owed.epoch != epoch {
            *owed = fresh;
        }
    }

    /// The owner answered for good: all that is owed is to let the task go.
    pub fn answered(&mut self, task: &TaskGuid) {
        if let Some(owed) = self.0.get_mut(task) {
            owed.answered = true;
        }
    }

    /// Whether the owner answered for good.
    #[must_use]
    pub fn is_answered(&self, task: &TaskGuid) -> bool {
        self.0.get(task).is_some_and(|owed| owed.answered)
    }

    /// The task is gone.
    pub fn forget(&mut self, task: &TaskGuid) {
        self.0.remove(task);
    }

    /// Nothing is owed by this BBS.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The tasks whose call is due; each is out until [`Callbacks::came_back`].
    pub fn due(&mut self, now: Timestamp) -> Vec<(TaskGuid, Epoch)> {
        let due = |owed: &&mut Owed| owed.due.is_some_and(|due| due <= now);
        let take = |(task, owed): (&TaskGuid, &mut Owed)| {
            owed.due = None;
            (task.clone(), owed.epoch)
        };
        self.0.iter_mut().filter(|(_, owed)| due(owed)).map(take).collect()
    }

    /// A call, or the attempt to begin one, failed: it is due again after a wait.
    pub fn came_back(&mut self, task: &TaskGuid, now: Timestamp) {
        if let Some(owed) = self.0.get_mut(task) {
            let wait = FIRST_WAIT * 2_u32.pow(owed.tries.min(8));
            owed.tries += 1;
            owed.due = Some(now + wait.min(LONGEST_WAIT));
        }
    }

    /// The task was RESOLVING for too long: whatever is out is not waited for any more.
    pub fn gave_up(&mut self, task: &TaskGuid, now: Timestamp) {
        if let Some(owed) = self.0.get_mut(task).filter(|owed| owed.due.is_none()) {
            owed.due = Some(now + LONGEST_WAIT);
        }
    }

    /// When the next call is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.0.values().filter_map(|owed| owed.due).min()
    }
}
