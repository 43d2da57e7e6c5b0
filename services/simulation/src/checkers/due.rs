//! Due work: an undisturbed leader decides it in time.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::Timestamp;

use crate::checkers::Checkers;
use crate::cluster::Cluster;
use crate::event::ClusterEvent;
use crate::invariants::{Invariant as I, Violation};
use crate::shape::{Life, presence};

/// Interval between two checks.
const INTERVAL: Duration = Duration::from_millis(200);
/// Interval of convergence passes, which find work that has no timer.
const CONVERGENCE: Duration = Duration::from_secs(30);
/// Time until a BBS leads after the last disturbance.
const TAKEOVER: Duration = Duration::from_secs(15);
/// Number of violations that are reported for one kind of due work.
const REPORTED: usize = 3;

/// Due work, with the time since which it is due.
#[derive(Default)]
pub(super) struct Due {
    since: BTreeMap<(I, String), Timestamp>,
    reported: usize,
}

impl Due {
    /// Updates the due work. Returns the work that is due for longer than its own limit and `slack`.
    fn update(&mut self, now: Timestamp, due: Vec<(I, String, Duration)>, slack: Duration) -> Vec<Violation> {
        let before = std::mem::take(&mut self.since);
        let mut late = vec![];
        for (invariant, text, limit) in due {
            let key = (invariant, text);
            let since = before.get(&key).copied().unwrap_or(now);
            if now.since(since) > limit + slack && self.reported < REPORTED {
                self.reported += 1;
                let detail = format!("{} for {:?}", key.1, now.since(since));
                late.push(Violation { invariant, detail });
            }
            self.since.insert(key, since);
        }
        late
    }
}

impl Checkers {
    /// Returns the due work by the clock of the leader, each with its limit.
    fn due(&self, now: Timestamp, bbs: Life, clock: Timestamp) -> Vec<(I, String, Duration)> {
        let mut due = vec![];
        let silent = self.signs.overdue(bbs, &self.world, (now, self.calm_since.unwrap_or(now)));
        let probe = 2 * presence().pause;
        due.extend(
            silent.into_iter().map(|cell| (I::CellsLost, format!("{cell} is silent, and not lost"), probe)),
        );
        for (id, _) in self.world.cells().filter(|(_, cell)| !cell.present) {
            let left = self.world.on_cell(id);
            due.extend(
                left.map(|work| (I::CellsLost, format!("{work:?} is on the lost cell {id}"), Duration::ZERO)),
            );
        }
        let overdue = self.world.due_times(clock);
        due.extend(
            overdue
                .into_iter()
                .map(|(at, what)| (I::NothingOverdue, format!("{what:?} is due since {at}"), CONVERGENCE)),
        );
        for task in self.world.tasks_from(None) {
            let owner = task.definition.completion_callback_url.is_some();
            let open = task.completed().is_some_and(|done| done.is_callback_open());
            if owner && open && !self.calls.was_called(&task.guid, task.epoch) {
                due.push((I::OwnerCalled, format!("the owner of {} is not called", task.guid), CONVERGENCE));
            }
        }
        due
    }

    /// Checks due work by the clock of the leader. `None` without an undisturbed leader.
    pub(super) fn check_due(&mut self, now: Timestamp, leader: Option<(Life, Timestamp)>, slack: Duration) {
        self.calm_since = leader.map(|_| self.calm_since.unwrap_or(now));
        let due = leader.map_or_else(Vec::new, |(bbs, clock)| self.due(now, bbs, clock));
        let late = self.due.update(now, due, slack);
        self.violations.extend(late);
    }
}

impl Cluster {
    /// Checks due work, and schedules the next check.
    pub(crate) fn check_due(&mut self) {
        let leads = self.leading_bbss();
        let undisturbed = self.troubled_until <= self.now;
        let since = self.led_at.max(self.troubled_until);
        if !leads.is_empty() {
            self.led_at = self.now;
        } else if since + TAKEOVER <= self.now {
            self.violated(
                I::LedAgain,
                format!("no BBS has led since {since}, although no fault hindered one"),
            );
        }
        let leader = leads.first().filter(|_| leads.len() == 1 && undisturbed);
        let clock = leader.and_then(|node| self.life(*node).zip(self.place(*node).decision_time(self.now)));
        let slack = Duration::from_millis(500 + 4 * self.faults.delay_ms);
        self.checkers.check_due(self.now, clock, slack);
        self.schedule(self.now + INTERVAL, ClusterEvent::CheckDue);
    }
}
