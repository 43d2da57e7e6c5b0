//! Completion callbacks to the owners of tasks (docs/internals/model/tasks.md, "Completion callbacks").
//!
//! The BBS marks a task RESOLVING before it calls the owner, so that no two BBSs call at the same time. After
//! a network error or a status of 408, 429 or 5xx, the BBS repeats the call with backoff until the record of
//! the task expires. A 2xx response completes the callback, and any other response ends it. The result of
//! each call is recorded as a decision of the task.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::Timestamp;
use schemas::container::Epoch;
use schemas::limits::CALLBACKS_IN_FLIGHT;
use schemas::names::TaskGuid;
pub use schemas::task::CallbackResult;

/// Delay before the first repetition of a call. The delay doubles with each repetition.
pub const INITIAL_WAIT: Duration = Duration::from_secs(1);
/// Maximum delay before a call is repeated.
pub const MAX_WAIT: Duration = Duration::from_secs(30);

/// Outstanding callbacks by task.
#[derive(Clone, Debug, Default)]
pub struct Callbacks {
    owed: BTreeMap<TaskGuid, Pending>,
    /// Tasks with a call in flight, at most [`CALLBACKS_IN_FLIGHT`].
    out: BTreeSet<TaskGuid>,
}

#[derive(Clone, Debug)]
struct Pending {
    epoch: Epoch,
    tries: u32,
    due: Option<Timestamp>,
    /// `true` if this BBS has sent the call, so that a response may still arrive.
    called: bool,
    /// Response that ends the calls. Kept until the response is recorded.
    answered: Option<CallbackResult>,
}

impl Callbacks {
    /// Registers the callback of a completed task as due, unless one for this epoch is already registered.
    pub fn register(&mut self, task: &TaskGuid, epoch: Epoch, now: Timestamp) {
        let fresh = Pending { epoch, tries: 0, due: Some(now), called: false, answered: None };
        let owed = self.owed.entry(task.clone()).or_insert_with(|| fresh.clone());
        if owed.epoch != epoch {
            *owed = fresh;
            self.out.remove(task);
        }
    }

    /// Stores a response that ends the calls. After that, only the recording of the response is outstanding.
    pub fn store_response(&mut self, task: &TaskGuid, called: &CallbackResult) {
        if let Some(owed) = self.owed.get_mut(task) {
            owed.answered = Some(called.clone());
        }
        self.out.remove(task);
    }

    /// Notes that this BBS sends the call.
    pub fn mark_called(&mut self, task: &TaskGuid) {
        if let Some(owed) = self.owed.get_mut(task) {
            owed.called = true;
        }
    }

    /// Returns the response that ends the calls; `None` if there is none yet.
    #[must_use]
    pub fn response(&self, task: &TaskGuid) -> Option<&CallbackResult> {
        self.owed.get(task)?.answered.as_ref()
    }

    /// Removes the callback of a task that is gone, or whose owner must not be called again.
    pub fn forget(&mut self, task: &TaskGuid) {
        self.owed.remove(task);
        self.out.remove(task);
    }

    /// Removes all callbacks, because this BBS no longer leads.
    pub fn clear(&mut self) {
        self.owed.clear();
        self.out.clear();
    }

    /// Returns the tasks whose call is due, and marks them as in flight; at most [`CALLBACKS_IN_FLIGHT`] are
    /// in flight.
    pub fn due(&mut self, now: Timestamp) -> Vec<(TaskGuid, Epoch)> {
        let room = CALLBACKS_IN_FLIGHT.saturating_sub(self.out.len());
        let due = |owed: &&mut Pending| owed.due.is_some_and(|due| due <= now);
        let take = |(task, owed): (&TaskGuid, &mut Pending)| {
            owed.due = None;
            (task.clone(), owed.epoch)
        };
        let due: Vec<_> = self.owed.iter_mut().filter(|(_, owed)| due(owed)).take(room).map(take).collect();
        self.out.extend(due.iter().map(|(task, _)| task.clone()));
        due
    }

    /// Schedules a retry after a call failed, could not start, or could not be recorded.
    ///
    /// If only the response must still be recorded, the delay does not grow. The owner of the task is not
    /// called again, so a longer delay would not reduce its load.
    pub fn schedule_retry(&mut self, task: &TaskGuid, now: Timestamp) {
        self.out.remove(task);
        if let Some(owed) = self.owed.get_mut(task) {
            let doublings = if owed.answered.is_some() { 0 } else { owed.tries.min(8) };
            let wait = INITIAL_WAIT * 2_u32.pow(doublings);
            owed.tries += 1;
            owed.due = Some(now + wait.min(MAX_WAIT));
        }
    }

    /// Stops waiting for the call of a task that was RESOLVING for too long, and schedules the call again.
    ///
    /// If another BBS marked the task RESOLVING, this BBS has not called yet, so its call is due at once.
    pub fn abandon_call(&mut self, task: &TaskGuid, now: Timestamp) {
        self.out.remove(task);
        if let Some(owed) = self.owed.get_mut(task).filter(|owed| owed.due.is_none()) {
            let wait = if owed.called { MAX_WAIT } else { Duration::ZERO };
            owed.due = Some(now + wait);
        }
    }

    /// Returns the number of outstanding callbacks, due or not.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.owed.len()
    }

    /// Returns the number of tasks for which a call, or an attempt to start a call, is in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.out.len()
    }

    /// Returns the time of the next due call; `None` while the maximum number is in flight.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        if self.out.len() >= CALLBACKS_IN_FLIGHT {
            return None;
        }
        self.owed.values().filter_map(|owed| owed.due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unrecorded_response_is_retried_at_initial_wait() {
        let (now, epoch) = (Timestamp::from_millis(1_000), Epoch(Timestamp(1)));
        let task = TaskGuid::new("t").unwrap();
        let mut callbacks = Callbacks::default();
        callbacks.register(&task, epoch, now);
        (0..4).for_each(|_| callbacks.schedule_retry(&task, now));
        assert_eq!(callbacks.next_due(), Some(now + INITIAL_WAIT * 8));
        callbacks.store_response(&task, &CallbackResult::Answered(200));
        callbacks.schedule_retry(&task, now);
        assert_eq!(callbacks.next_due(), Some(now + INITIAL_WAIT));
    }

    #[test]
    fn abandoned_call_of_another_bbs_is_due_at_once() {
        let (now, epoch) = (Timestamp::from_millis(1_000), Epoch(Timestamp(1)));
        let task = TaskGuid::new("t").unwrap();
        for called in [false, true] {
            let mut callbacks = Callbacks::default();
            callbacks.register(&task, epoch, now);
            callbacks.due(now);
            if called {
                callbacks.mark_called(&task);
            }
            callbacks.abandon_call(&task, now);
            assert_eq!(callbacks.next_due(), Some(if called { now + MAX_WAIT } else { now }));
        }
    }

    #[test]
    fn new_epoch_registers_new_callback() {
        let (now, later) = (Timestamp::from_millis(1_000), Timestamp::from_millis(2_000));
        let task = TaskGuid::new("t").unwrap();
        let mut callbacks = Callbacks::default();
        callbacks.register(&task, Epoch(Timestamp(1)), now);
        callbacks.due(now);
        callbacks.mark_called(&task);
        callbacks.store_response(&task, &CallbackResult::Answered(204));
        callbacks.register(&task, Epoch(Timestamp(1)), later);
        assert_eq!(
            callbacks.response(&task),
            Some(&CallbackResult::Answered(204)),
            "the callback is already registered"
        );
        callbacks.register(&task, Epoch(Timestamp(2)), later);
        assert_eq!((callbacks.response(&task), callbacks.next_due()), (None, Some(later)));
    }

    #[test]
    fn forgotten_callbacks_are_never_due() {
        let (now, epoch) = (Timestamp::from_millis(1_000), Epoch(Timestamp(1)));
        let [one, other] = ["one", "other"].map(|task| TaskGuid::new(task).unwrap());
        let mut callbacks = Callbacks::default();
        callbacks.register(&one, epoch, now);
        callbacks.register(&other, epoch, now);
        callbacks.forget(&one);
        assert_eq!(callbacks.due(now), [(other, epoch)]);
        callbacks.schedule_retry(&one, now);
        callbacks.clear();
        assert_eq!((callbacks.next_due(), callbacks.due(now + MAX_WAIT)), (None, vec![]));
    }

    #[test]
    fn retry_wait_doubles_up_to_maximum() {
        let epoch = Epoch(Timestamp(1));
        let task = TaskGuid::new("t").unwrap();
        let mut now = Timestamp::from_millis(1_000);
        let mut callbacks = Callbacks::default();
        callbacks.register(&task, epoch, now);
        for seconds in [1, 2, 4, 8, 16, 30, 30, 30, 30, 30, 30] {
            let due = now + Duration::from_secs(seconds);
            callbacks.due(now);
            callbacks.schedule_retry(&task, now);
            assert_eq!(callbacks.next_due(), Some(due));
            now = due;
        }
    }

    #[test]
    fn calls_in_flight_are_bounded() {
        let (now, epoch) = (Timestamp::from_millis(1_000), Epoch(Timestamp(1)));
        let task = |number: usize| TaskGuid::new(&format!("t{number:05}")).unwrap();
        let mut callbacks = Callbacks::default();
        (0..3_000).for_each(|number| callbacks.register(&task(number), epoch, now));
        let out = callbacks.due(now);
        assert_eq!(out.len(), CALLBACKS_IN_FLIGHT);
        assert_eq!((callbacks.due(now), callbacks.next_due()), (vec![], None));
        callbacks.schedule_retry(&out[0].0, now);
        callbacks.store_response(&out[1].0, &CallbackResult::Answered(204));
        callbacks.forget(&out[2].0);
        assert_eq!(callbacks.next_due(), Some(now), "a call may start again");
        assert_eq!(callbacks.due(now).len(), 3);
    }
}
