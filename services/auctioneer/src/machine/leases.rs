//! Evaluations that this auctioneer works on. It reports them to the BBS repeatedly until they are settled,
//! so that the BBS can redeliver evaluations that no auctioneer works on. This module also counts the rounds
//! in which reps refused their work.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::Timestamp;
use schemas::message::{Lease, Leased};
use schemas::names::EvaluationId;

/// Evaluations with work that is in an auction, was handed out, or was refused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leases {
    held: BTreeMap<EvaluationId, Held>,
    /// Evaluations to report to the BBS, by time.
    due: BTreeSet<(Timestamp, EvaluationId)>,
}

#[derive(Clone, Debug)]
struct Held {
    of: Leased,
    delivery: u32,
    /// Time of the next report. `None` if the BBS does not wait for an answer.
    say_at: Option<Timestamp>,
    /// Number of rounds with refusals since work of the evaluation was last placed.
    attempts: u8,
    /// The last of these rounds.
    refused_in: u64,
}

impl Leases {
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns the time of the next report.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Drops all evaluations after another auctioneer has become the leader.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Records that work of an evaluation is in an auction. A new delivery starts a new lease. `say_at` is
    /// the time of the first report. It is `None` if the work waits for room and the BBS does not wait for an
    /// answer.
    pub(crate) fn hold(
        &mut self,
        id: EvaluationId,
        of: impl FnOnce() -> Leased,
        delivery: u32,
        say_at: Option<Timestamp>,
    ) {
        if self.held.get(&id).is_some_and(|held| held.delivery == delivery) {
            return;
        }
        self.end(id);
        let held = Held { of: of(), delivery, say_at, attempts: 0, refused_in: 0 };
        self.held.insert(id, held);
        self.due.extend(say_at.map(|at| (at, id)));
    }

    /// Removes an evaluation that is settled.
    pub(crate) fn end(&mut self, id: EvaluationId) {
        if let Some(at) = self.held.remove(&id).and_then(|held| held.say_at) {
            self.due.remove(&(at, id));
        }
    }

    /// Resets the attempts of an evaluation after some of its work was placed.
    pub(crate) fn progressed(&mut self, id: EvaluationId) {
        if let Some(held) = self.held.get_mut(&id) {
            held.attempts = 0;
        }
    }

    /// Records that a rep refused work of this round. Returns `true` if the number of attempts is below
    /// `most`.
    pub(crate) fn refused(&mut self, id: EvaluationId, round: u64, most: u8) -> bool {
        let Some(held) = self.held.get_mut(&id) else { return true };
        if held.refused_in != round {
            held.attempts = held.attempts.saturating_add(1);
            held.refused_in = round;
        }
        held.attempts < most
    }

    /// Schedules a report of every evaluation, because a new BBS leader does not know them.
    pub(crate) fn say_all(&mut self, now: Timestamp) {
        self.due.clear();
        for (id, held) in self.held.iter_mut().filter(|(_, held)| held.say_at.is_some()) {
            held.say_at = Some(now);
            self.due.insert((now, *id));
        }
    }

    /// Returns the reports that are due. Each is repeated after `every`.
    pub(crate) fn take_due(&mut self, now: Timestamp, every: Duration) -> Vec<Lease> {
        let mut leases = vec![];
        while let Some((_, id)) = self.due.first().filter(|(at, _)| *at <= now).copied() {
            self.due.pop_first();
            let Some(held) = self.held.get_mut(&id) else { continue };
            held.say_at = Some(now + every);
            self.due.insert((now + every, id));
            leases.push(Lease { evaluation: id, delivery: held.delivery, of: held.of.clone() });
        }
        leases
    }
}
