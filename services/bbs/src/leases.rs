//! Leases: a lease is the auctioneer's report that it works on an evaluation.
//!
//! If the auctioneer stops renewing a lease, it has lost the evaluation or is stuck. An evaluation was also
//! lost if an earlier term never answered one of its deliveries, and a later term leases the same delivery.
//! In both cases the evaluation is delivered again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::Timestamp;
use schemas::message::{Lease, LeaseTarget};
use schemas::names::EvaluationId;

/// Time without renewal after which the evaluation counts as lost.
pub(crate) const LEASE_DURATION: Duration = Duration::from_secs(60);

/// Current leases by evaluation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leases {
    held: BTreeMap<EvaluationId, HeldLease>,
    due: BTreeSet<(Timestamp, EvaluationId)>,
}

#[derive(Clone, Debug)]
struct HeldLease {
    of: LeaseTarget,
    delivery: u32,
    /// Term of the auctioneer that holds the lease.
    term: u64,
    ends_at: Timestamp,
}

impl Leases {
    /// Returns the number of leases.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns the time at which the first lease ends.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Drops all leases, because another BBS leads.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Records or renews a lease. Returns `true` if an earlier term held a lease of the same delivery and
    /// never answered it.
    pub(crate) fn renew(&mut self, lease: &Lease, term: u64, now: Timestamp) -> bool {
        let before = self.remove(lease.evaluation);
        let was_lost = before.is_some_and(|held| held.delivery == lease.delivery && held.term < term);
        if !was_lost {
            let ends_at = now + LEASE_DURATION;
            let (of, delivery) = (lease.target.clone(), lease.delivery);
            self.held.insert(lease.evaluation, HeldLease { of, delivery, term, ends_at });
            self.due.insert((ends_at, lease.evaluation));
        }
        was_lost
    }

    /// Drops the lease of an evaluation that is settled or delivered again.
    pub(crate) fn settle(&mut self, id: EvaluationId) {
        self.remove(id);
    }

    fn remove(&mut self, id: EvaluationId) -> Option<HeldLease> {
        let held = self.held.remove(&id)?;
        self.due.remove(&(held.ends_at, id));
        Some(held)
    }

    /// Removes and returns the leases that were not renewed in time.
    pub(crate) fn take_expired(&mut self, now: Timestamp) -> Vec<Lease> {
        let mut ended = vec![];
        while let Some((_, id)) = self.due.first().filter(|(at, _)| *at <= now).copied() {
            self.due.pop_first();
            let held = self.held.remove(&id);
            ended.extend(held.map(|held| Lease { evaluation: id, delivery: held.delivery, target: held.of }));
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use schemas::container::Epoch;
    use schemas::names::TaskGuid;
    use uuid::Uuid;

    use super::*;

    fn lease(delivery: u32) -> Lease {
        let target = LeaseTarget::Task(TaskGuid::new("t").unwrap(), Epoch::default());
        Lease { evaluation: EvaluationId(Uuid::from_u128(1)), delivery, target }
    }

    #[test]
    fn lease_expires_without_renewal() {
        let (mut leases, now) = (Leases::default(), Timestamp::from_millis(1_000));
        assert!(!leases.renew(&lease(1), 1, now));
        let later = now + LEASE_DURATION / 2;
        assert!(!leases.renew(&lease(1), 1, later));
        assert_eq!(leases.take_expired(now + LEASE_DURATION), []);
        assert_eq!(leases.next_due(), Some(later + LEASE_DURATION));
        assert_eq!(leases.take_expired(later + LEASE_DURATION), [lease(1)]);
        assert_eq!((leases.len(), leases.next_due()), (0, None));
    }

    #[test]
    fn lease_of_later_term_reports_lost_delivery() {
        let (mut leases, now) = (Leases::default(), Timestamp::from_millis(1_000));
        assert!(!leases.renew(&lease(1), 1, now));
        assert!(leases.renew(&lease(1), 2, now), "the first term never answered");
        assert_eq!(leases.len(), 0);
        assert!(!leases.renew(&lease(2), 2, now), "the evaluation was delivered again");
        leases.settle(lease(2).evaluation);
        assert_eq!((leases.len(), leases.next_due()), (0, None));
    }
}
