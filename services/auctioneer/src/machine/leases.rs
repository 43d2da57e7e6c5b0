//! Leases: the evaluations that this auctioneer works on. An evaluation is one attempt to place the work of a
//! process or task. The auctioneer reports each lease to the BBS repeatedly until the evaluation is settled.
//! The BBS redelivers evaluations that no auctioneer reports. This module also counts the auction rounds in
//! which reps refused work of an evaluation.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::Timestamp;
use schemas::message::{Lease, LeaseTarget};
use schemas::names::EvaluationId;

/// Evaluations with work that is in an auction, was handed out, or was refused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leases {
    held: BTreeMap<EvaluationId, LeaseState>,
    /// Evaluations, ordered by the time of their next report to the BBS.
    due: BTreeSet<(Timestamp, EvaluationId)>,
}

#[derive(Clone, Debug)]
struct LeaseState {
    of: LeaseTarget,
    delivery: u32,
    /// Time of the next report. `None` if the BBS does not wait for a report.
    report_at: Option<Timestamp>,
    /// Number of rounds with refusals since the last placement of work of the evaluation.
    attempts: u8,
    /// Number of the last auction round with a refusal.
    refused_in: u64,
}

impl Leases {
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns the time of the next report.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Drops all evaluations after another auctioneer has become the leader.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Records that work of an evaluation is in an auction. A new delivery of the evaluation starts a new
    /// lease. `say_at` is the time of the first report to the BBS. It is `None` if the work waits for free
    /// resources and the BBS does not wait for a report.
    pub(crate) fn acquire(
        &mut self,
        id: EvaluationId,
        of: impl FnOnce() -> LeaseTarget,
        delivery: u32,
        say_at: Option<Timestamp>,
    ) {
        if self.held.get(&id).is_some_and(|held| held.delivery == delivery) {
            return;
        }
        self.end(id);
        let held = LeaseState { of: of(), delivery, report_at: say_at, attempts: 0, refused_in: 0 };
        self.held.insert(id, held);
        self.due.extend(say_at.map(|at| (at, id)));
    }

    /// Removes a settled evaluation.
    pub(crate) fn end(&mut self, id: EvaluationId) {
        if let Some(at) = self.held.remove(&id).and_then(|held| held.report_at) {
            self.due.remove(&(at, id));
        }
    }

    /// Resets the attempts of an evaluation after a placement of its work.
    pub(crate) fn reset_attempts(&mut self, id: EvaluationId) {
        if let Some(held) = self.held.get_mut(&id) {
            held.attempts = 0;
        }
    }

    /// Records that a rep refused work of this auction round. Returns `true` if the number of rounds with
    /// refusals is still below `most`.
    pub(crate) fn record_refusal(&mut self, id: EvaluationId, round: u64, most: u8) -> bool {
        let Some(held) = self.held.get_mut(&id) else { return true };
        if held.refused_in != round {
            held.attempts = held.attempts.saturating_add(1);
            held.refused_in = round;
        }
        held.attempts < most
    }

    /// Schedules a report of all evaluations for a new BBS leader, which does not know them.
    pub(crate) fn report_all(&mut self, now: Timestamp) {
        self.due.clear();
        for (id, held) in self.held.iter_mut().filter(|(_, held)| held.report_at.is_some()) {
            held.report_at = Some(now);
            self.due.insert((now, *id));
        }
    }

    /// Returns the due reports. Each evaluation is reported again after `every`.
    pub(crate) fn take_due(&mut self, now: Timestamp, every: Duration) -> Vec<Lease> {
        let mut leases = vec![];
        while let Some((_, id)) = self.due.first().filter(|(at, _)| *at <= now).copied() {
            self.due.pop_first();
            let Some(held) = self.held.get_mut(&id) else { continue };
            held.report_at = Some(now + every);
            self.due.insert((now + every, id));
            leases.push(Lease { evaluation: id, delivery: held.delivery, target: held.of.clone() });
        }
        leases
    }
}
