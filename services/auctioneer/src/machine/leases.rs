//! The evaluations that this auctioneer has: it says so to the BBS, again and again until they are answered, so that what
//! nobody works on is given out again. And how often reps refused what is of one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::Timestamp;
use schemas::message::{Lease, Leased};
use schemas::names::EvaluationId;

/// The evaluations of which something is in an auction, handed out, or was refused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leases {
    held: BTreeMap<EvaluationId, Held>,
    /// What is to be said to the BBS, by when.
    due: BTreeSet<(Timestamp, EvaluationId)>,
}

#[derive(Clone, Debug)]
struct Held {
    of: Leased,
    delivery: u32,
    /// When that is said; none: nobody waits for an answer.
    say_at: Option<Timestamp>,
    /// In how many rounds reps refused something of it, since the last of it was placed.
    attempts: u8,
    /// The last of these rounds.
    refused_in: u64,
}

impl Leases {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// When something is to be said.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Forgets all: somebody else leads.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Something of an evaluation is in an auction. A new delivery is a new lease. `say_at`: from when that is said; none: it
    /// waits for room, and nobody for an answer.
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

    /// An evaluation is settled.
    pub(crate) fn end(&mut self, id: EvaluationId) {
        if let Some(at) = self.held.remove(&id).and_then(|held| held.say_at) {
            self.due.remove(&(at, id));
        }
    }

    /// Something of it was placed: its attempts count anew.
    pub(crate) fn progressed(&mut self, id: EvaluationId) {
        if let Some(held) = self.held.get_mut(&id) {
            held.attempts = 0;
        }
    }

    /// A rep refused something of it that was in a round. Answers whether it may try again: so often.
    pub(crate) fn refused(&mut self, id: EvaluationId, round: u64, most: u8) -> bool {
        let Some(held) = self.held.get_mut(&id) else { return true };
        if held.refused_in != round {
            held.attempts = held.attempts.saturating_add(1);
            held.refused_in = round;
        }
        held.attempts < most
    }

    /// Everything is to be said again: another BBS leads, and knows nothing of it.
    pub(crate) fn say_all(&mut self, now: Timestamp) {
        self.due.clear();
        for (id, held) in self.held.iter_mut().filter(|(_, held)| held.say_at.is_some()) {
            held.say_at = Some(now);
            self.due.insert((now, *id));
        }
    }

    /// What is to be said now; each is said again after `every`.
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
