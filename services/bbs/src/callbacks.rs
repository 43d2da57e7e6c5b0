//! Telling the owners of completed tasks (docs/model.md, "Completion callbacks").
//!
//! The BBS marks a task RESOLVING before it calls, so that no two BBSs call at once. A call is repeated with backoff
//! until the record expires on network errors, 408, 429 and 5xx; 2xx lets the task go, and any other answer ends the
//! calls. What came of each call is a decision of the task.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::Timestamp;
use schemas::container::Epoch;
use schemas::limits::CALLBACKS_IN_FLIGHT;
use schemas::names::TaskGuid;
pub use schemas::task::Called;

/// The first wait before a call is repeated; it doubles.
pub const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait before a call is repeated.
pub const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The calls that are owed, by task.
#[derive(Clone, Debug, Default)]
pub struct Callbacks {
    owed: BTreeMap<TaskGuid, Owed>,
    /// Those that are out, at most [`CALLBACKS_IN_FLIGHT`].
    out: BTreeSet<TaskGuid>,
}

#[derive(Clone, Debug)]
struct Owed {
    epoch: Epoch,
    tries: u32,
    due: Option<Timestamp>,
    /// Whether this BBS called: an answer may still come.
    called: bool,
    /// The answer that ends the calls, until it is recorded.
    answered: Option<Called>,
}

impl Callbacks {
    /// A task completed: its call is due, unless one for this life is owed already.
    pub fn owe(&mut self, task: &TaskGuid, epoch: Epoch, now: Timestamp) {
        let fresh = Owed { epoch, tries: 0, due: Some(now), called: false, answered: None };
        let owed = self.owed.entry(task.clone()).or_insert_with(|| fresh.clone());
        if owed.epoch != epoch {
            *owed = fresh;
            self.out.remove(task);
        }
    }

    /// The owner answered so that the calls end: all that is owed is to record it.
    pub fn answered(&mut self, task: &TaskGuid, called: &Called) {
        if let Some(owed) = self.owed.get_mut(task) {
            owed.answered = Some(called.clone());
        }
        self.out.remove(task);
    }

    /// The owner is called.
    pub fn calls(&mut self, task: &TaskGuid) {
        if let Some(owed) = self.owed.get_mut(task) {
            owed.called = true;
        }
    }

    /// The answer that ends the calls, if there was one.
    #[must_use]
    pub fn answer(&self, task: &TaskGuid) -> Option<&Called> {
        self.owed.get(task)?.answered.as_ref()
    }

    /// The task is gone, or its owner is left alone.
    pub fn forget(&mut self, task: &TaskGuid) {
        self.owed.remove(task);
        self.out.remove(task);
    }

    /// Nothing is owed by this BBS.
    pub fn clear(&mut self) {
        self.owed.clear();
        self.out.clear();
    }

    /// The tasks whose call is due, as many as may be out; each is until it came back, or is not waited for any more.
    pub fn due(&mut self, now: Timestamp) -> Vec<(TaskGuid, Epoch)> {
        let room = CALLBACKS_IN_FLIGHT.saturating_sub(self.out.len());
        let due = |owed: &&mut Owed| owed.due.is_some_and(|due| due <= now);
        let take = |(task, owed): (&TaskGuid, &mut Owed)| {
            owed.due = None;
            (task.clone(), owed.epoch)
        };
        let due: Vec<_> = self.owed.iter_mut().filter(|(_, owed)| due(owed)).take(room).map(take).collect();
        self.out.extend(due.iter().map(|(task, _)| task.clone()));
        due
    }

    /// A call, or the attempt to begin one or to record what came of it, failed: it is due again after a wait. The owner of
    /// a call that only is to be recorded is not spared by waiting longer.
    pub fn came_back(&mut self, task: &TaskGuid, now: Timestamp) {
        self.out.remove(task);
        if let Some(owed) = self.owed.get_mut(task) {
            let doublings = if owed.answered.is_some() { 0 } else { owed.tries.min(8) };
            let wait = FIRST_WAIT * 2_u32.pow(doublings);
            owed.tries += 1;
            owed.due = Some(now + wait.min(LONGEST_WAIT));
        }
    }

    /// The task was RESOLVING for too long: whatever is out is not waited for any more. Where another BBS marked it,
    /// this one did not call: its call is due.
    pub fn gave_up(&mut self, task: &TaskGuid, now: Timestamp) {
        self.out.remove(task);
        if let Some(owed) = self.owed.get_mut(task).filter(|owed| owed.due.is_none()) {
            let wait = if owed.called { LONGEST_WAIT } else { Duration::ZERO };
            owed.due = Some(now + wait);
        }
    }

    /// How many calls are owed, due or not.
    #[must_use]
    pub fn owed(&self) -> usize {
        self.owed.len()
    }

    /// How many calls, or attempts to begin one, are out.
    #[must_use]
    pub fn out(&self) -> usize {
        self.out.len()
    }

    /// When the next call is due; none while as many are out as may be.
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
    fn an_answer_that_could_not_be_recorded_is_recorded_soon() {
        let (now, epoch) = (Timestamp::from_millis(1_000), Epoch(Timestamp(1)));
        let task = TaskGuid::new("t").unwrap();
        let mut callbacks = Callbacks::default();
        callbacks.owe(&task, epoch, now);
        (0..4).for_each(|_| callbacks.came_back(&task, now));
        assert_eq!(callbacks.next_due(), Some(now + FIRST_WAIT * 8));
        callbacks.answered(&task, &Called::Answered(200));
        callbacks.came_back(&task, now);
        assert_eq!(callbacks.next_due(), Some(now + FIRST_WAIT));
    }

    #[test]
    fn a_task_that_another_bbs_marked_and_did_not_call_for_is_called_when_it_is_given_up() {
        let (now, epoch) = (Timestamp::from_millis(1_000), Epoch(Timestamp(1)));
        let task = TaskGuid::new("t").unwrap();
        for called in [false, true] {
            let mut callbacks = Callbacks::default();
            callbacks.owe(&task, epoch, now);
            callbacks.due(now);
            if called {
                callbacks.calls(&task);
            }
            callbacks.gave_up(&task, now);
            assert_eq!(callbacks.next_due(), Some(if called { now + LONGEST_WAIT } else { now }));
        }
    }

    #[test]
    fn a_task_of_another_life_is_called_for_anew() {
        let (now, later) = (Timestamp::from_millis(1_000), Timestamp::from_millis(2_000));
        let task = TaskGuid::new("t").unwrap();
        let mut callbacks = Callbacks::default();
        callbacks.owe(&task, Epoch(Timestamp(1)), now);
        callbacks.due(now);
        callbacks.calls(&task);
        callbacks.answered(&task, &Called::Answered(204));
        callbacks.owe(&task, Epoch(Timestamp(1)), later);
        assert_eq!(callbacks.answer(&task), Some(&Called::Answered(204)), "it is owed already");
        callbacks.owe(&task, Epoch(Timestamp(2)), later);
        assert_eq!((callbacks.answer(&task), callbacks.next_due()), (None, Some(later)));
    }

    #[test]
    fn what_is_forgotten_is_owed_no_more() {
        let (now, epoch) = (Timestamp::from_millis(1_000), Epoch(Timestamp(1)));
        let [one, other] = ["one", "other"].map(|task| TaskGuid::new(task).unwrap());
        let mut callbacks = Callbacks::default();
        callbacks.owe(&one, epoch, now);
        callbacks.owe(&other, epoch, now);
        callbacks.forget(&one);
        assert_eq!(callbacks.due(now), [(other, epoch)]);
        callbacks.came_back(&one, now);
        callbacks.clear();
        assert_eq!((callbacks.next_due(), callbacks.due(now + LONGEST_WAIT)), (None, vec![]));
    }

    #[test]
    fn the_wait_before_a_call_doubles_up_to_the_longest() {
        let epoch = Epoch(Timestamp(1));
        let task = TaskGuid::new("t").unwrap();
        let mut now = Timestamp::from_millis(1_000);
        let mut callbacks = Callbacks::default();
        callbacks.owe(&task, epoch, now);
        for seconds in [1, 2, 4, 8, 16, 30, 30, 30, 30, 30, 30] {
            let due = now + Duration::from_secs(seconds);
            callbacks.due(now);
            callbacks.came_back(&task, now);
            assert_eq!(callbacks.next_due(), Some(due));
            now = due;
        }
    }

    #[test]
    fn no_more_calls_are_out_than_may_be() {
        let (now, epoch) = (Timestamp::from_millis(1_000), Epoch(Timestamp(1)));
        let task = |number: usize| TaskGuid::new(&format!("t{number:05}")).unwrap();
        let mut callbacks = Callbacks::default();
        (0..3_000).for_each(|number| callbacks.owe(&task(number), epoch, now));
        let out = callbacks.due(now);
        assert_eq!(out.len(), CALLBACKS_IN_FLIGHT);
        assert_eq!((callbacks.due(now), callbacks.next_due()), (vec![], None));
        callbacks.came_back(&out[0].0, now);
        callbacks.answered(&out[1].0, &Called::Answered(204));
        callbacks.forget(&out[2].0);
        assert_eq!(callbacks.next_due(), Some(now), "there is room again");
        assert_eq!(callbacks.due(now).len(), 3);
    }
}
