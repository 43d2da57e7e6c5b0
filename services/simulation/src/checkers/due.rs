//! Due times: what the clock brings about is not late, where somebody leads who can do it.
//!
//! When something is due is computed here, from the times in the log and what clients asked, with the numbers that the
//! documents name. Whoever leads reads it off its own clock: so what is held against a due time is that clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::Timestamp;

use schemas::subject::Position;

use super::{Checkers, lrp};
use crate::cluster::{Cluster, ClusterEvent};
use crate::nodes::Life;
use crate::promises::{Broken, Promise as P};

/// How often it is looked whether something is overdue.
const LOOK: Duration = Duration::from_millis(200);

/// What brings about that nobody desires has no timer of its own: convergence finds it, every 30 s.
const CONVERGENCE: Duration = Duration::from_secs(30);

/// A silent cell is asked, for as long as whoever asks is patient, and looked at again.
const LOSING: Duration = Duration::from_secs(6);
/// So long after the last trouble a BBS leads again.
const TAKEOVER: Duration = Duration::from_secs(15);

/// Something that is due, in words that name it for good, and the promise that it keeps.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Thing {
    pub(super) promise: P,
    pub(super) what: String,
    /// How long it may take where everything is in order, apart from the ways of messages.
    pub(super) slow: Duration,
}

impl Thing {
    pub(super) const fn new(promise: P, what: String) -> Self {
        Self { promise, what, slow: Duration::ZERO }
    }

    /// Something that convergence finds, and nobody else.
    pub(super) const fn for_convergence(promise: P, what: String) -> Self {
        Self { promise, what, slow: CONVERGENCE }
    }
}

/// What is overdue, and since when nothing hinders anybody.
#[derive(Default)]
pub(super) struct Due {
    since: BTreeMap<Thing, Timestamp>,
    told: BTreeSet<Thing>,
}

impl Due {
    /// Takes in what is due now. Answers what has been so for too long.
    fn look(&mut self, now: Timestamp, due: Vec<Thing>, ways: Duration) -> Vec<Broken> {
        let due: BTreeSet<Thing> = due.into_iter().collect();
        self.since.retain(|thing, _| due.contains(thing));
        let mut late = vec![];
        for thing in due {
            let since = *self.since.entry(thing.clone()).or_insert(now);
            if now.since(since) > thing.slow + ways && self.told.insert(thing.clone()) {
                let how = format!("{} for {:?}", thing.what, now.since(since));
                late.push(Broken { promise: thing.promise, how });
            }
        }
        late
    }
}

impl Checkers {
    /// What is due by this clock.
    fn due(&self, now: Timestamp, bbs: Life, clock: Timestamp) -> Vec<Thing> {
        let present = self.log.present(Position(u64::MAX));
        let silent = self.signs.overdue(bbs, &present, (now, self.calm_since.unwrap_or(now)));
        let lost = |cell| Thing {
            promise: P::LostNotLate,
            what: format!("{cell} is silent, and not lost"),
            slow: LOSING,
        };
        let mut due: Vec<Thing> = silent.into_iter().map(lost).collect();
        for (guid, process) in &self.lrps {
            let of = lrp::Context { clock, log: &self.log, orders: &self.orders };
            due.extend(process.due(guid, &of));
        }
        for (guid, task) in &self.tasks {
            due.extend(task.due(guid, clock, &self.log));
            let waits = task.waits_since().is_some();
            due.extend(waits.then(|| self.calls.owed(guid, task.epoch(), task.is_resolving())).flatten());
        }
        due.extend(self.periodics.due(clock));
        due.extend(self.dispatches.due());
        due.extend(self.calm_since.into_iter().flat_map(|since| self.orders.uncancelled(since)));
        due
    }

    /// Somebody leads by this clock, and nothing hinders it; or not.
    pub(super) fn look_at_clock(
        &mut self,
        now: Timestamp,
        leader: Option<(Life, Timestamp)>,
        ways: Duration,
    ) -> Vec<Broken> {
        self.calm_since = leader.map(|_| self.calm_since.unwrap_or(now));
        let due = leader.map_or_else(Vec::new, |(bbs, clock)| self.due(now, bbs, clock));
        self.due.look(now, due, ways)
    }
}

impl Cluster {
    /// Looks whether something is overdue, and will look again.
    pub(crate) fn look_at_clock(&mut self) {
        let leads = self.leading_bbss();
        let undisturbed = self.troubled_until <= self.now;
        let since = self.led_at.max(self.troubled_until);
        if !leads.is_empty() {
            self.led_at = self.now;
        } else if since + TAKEOVER <= self.now {
            self.broken(P::LedAgain, format!("no BBS has led since {since}, and none was hindered"));
        }
        let leader = leads.first().filter(|_| leads.len() == 1 && undisturbed);
        let clock = leader.and_then(|node| self.life(*node).zip(self.place(*node).decision_time(self.now)));
        let ways = Duration::from_millis(500 + 4 * self.faults.delay_ms);
        let late = self.checkers.look_at_clock(self.now, clock, ways);
        late.into_iter().for_each(|broken| self.breaks(broken));
        self.schedule(self.now + LOOK, ClusterEvent::LookAtClock);
    }
}
