//! Whether this BBS leads: what the log says of it, unless the journal stands still for it.

use std::time::Duration;

use election::{Duty, Election};
use schemas::Timestamp;
use schemas::cluster::Leader;
use schemas::message::Beat;
use schemas::names::ServiceId;

/// A leader whose follower tells it nothing for so long, while what it decided is on its way, gives way. It is longer
/// than the journal is away when it changes its own leader (4 to 9 s).
const STANDSTILL: Duration = Duration::from_secs(10);

/// This BBS's part in the election of the one that decides.
#[derive(Clone, Debug)]
pub(crate) struct Leadership {
    election: Election,
    may_lead: bool,
    leads: bool,
    /// When the follower told something last, or nothing was waited for.
    progress_at: Timestamp,
    /// Whether the journal is known to stand further than the follower has told.
    is_behind: bool,
}

impl Leadership {
    pub(crate) const fn new(id: ServiceId, may_lead: bool) -> Self {
        let election = Election::new(id);
        Self { election, may_lead, leads: false, progress_at: Timestamp(0), is_behind: false }
    }

    /// Whether this BBS decides.
    pub(crate) const fn leads(&self) -> bool {
        self.leads
    }

    /// The highest term that the log names.
    pub(crate) const fn term(&self) -> u64 {
        self.election.term()
    }

    /// The same, that has listened to beats before.
    pub(crate) fn listened(self, election: Election) -> Self {
        Self { election, ..self }
    }

    /// It is there, and listens.
    pub(crate) fn look(&mut self, now: Timestamp) {
        self.election.look(now);
    }

    /// A BBS beat.
    pub(crate) fn heard(&mut self, beat: &Beat, now: Timestamp) {
        self.election.heard(beat, now);
    }

    /// The follower told something.
    pub(crate) const fn delivered(&mut self, now: Timestamp) {
        self.progress_at = now;
        self.is_behind = false;
    }

    /// The journal stands further than the follower has told.
    pub(crate) const fn fell_behind(&mut self) {
        self.is_behind = true;
    }

    /// Follows what the log says, once that is known (`caught_up`). `in_flight`: whether entries of this BBS are on their
    /// way to the log. Answers whether it leads from now on, or no longer, if that changes.
    pub(crate) fn follow(
        &mut self,
        leader: &Leader,
        caught_up: bool,
        in_flight: bool,
        now: Timestamp,
    ) -> Option<bool> {
        self.election.follow(Some(leader), now);
        let leads = caught_up && self.election.leads() && !self.stands_still(in_flight, now);
        (leads != std::mem::replace(&mut self.leads, leads)).then_some(leads)
    }

    /// Whether nothing comes of what it decides. Others may still be able to: it does not beat, so that they try.
    fn stands_still(&mut self, in_flight: bool, now: Timestamp) -> bool {
        if !self.is_behind && !in_flight {
            self.progress_at = now;
        }
        now.since(self.progress_at) >= STANDSTILL
    }

    /// What the election asks of this BBS now. Beats are for a BBS that decides.
    pub(crate) fn duty(&mut self, now: Timestamp) -> Duty {
        match self.election.duty(now) {
            Duty::Campaign(_) if !self.may_lead => Duty::None,
            Duty::Beat if !self.leads => Duty::None,
            duty @ (Duty::None | Duty::Beat | Duty::Campaign(_)) => duty,
        }
    }

    /// When the election next asks something.
    pub(crate) fn next_due(&self) -> Timestamp {
        self.election.next_due()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(100_000 + seconds * 1_000)
    }

    #[test]
    fn one_that_only_shows_never_campaigns() {
        let last = Leader { id: ServiceId::new("gone").unwrap(), term: 3, since: at(0) };
        for (may_lead, duty) in [(false, Duty::None), (true, Duty::Campaign(4))] {
            let mut leadership = Leadership::new(ServiceId::new("b1").unwrap(), may_lead);
            leadership.follow(&last, true, false, at(0));
            let asked = (0..60).map(|second| leadership.duty(at(second))).find(|duty| *duty != Duty::None);
            assert_eq!(asked.unwrap_or(Duty::None), duty);
        }
    }

    #[test]
    fn it_leads_when_the_log_is_known_and_moves() {
        let id = ServiceId::new("b1").unwrap();
        let leader = Leader { id: id.clone(), term: 1, since: at(0) };
        let mut leadership = Leadership::new(id, true);
        leadership.delivered(at(0));
        assert_eq!(leadership.follow(&leader, false, false, at(0)), None, "the log is not known yet");
        assert_eq!(leadership.follow(&leader, true, false, at(0)), Some(true));
        assert_eq!(leadership.follow(&leader, true, true, at(0)), None, "nothing changed");
        let last = at(0) + STANDSTILL;
        assert_eq!(
            leadership.follow(&leader, true, true, last),
            Some(false),
            "nothing comes of what it decides"
        );
        assert_eq!(leadership.duty(last), Duty::None, "so it does not beat");
        leadership.delivered(last);
        assert_eq!(leadership.follow(&leader, true, false, last), Some(true));
        leadership.fell_behind();
        assert_eq!(leadership.follow(&leader, true, false, last + STANDSTILL), Some(false));
        // It hears of the log again, and nothing more is known to be there.
        let again = last + STANDSTILL;
        leadership.delivered(again);
        assert_eq!(leadership.follow(&leader, true, false, again), Some(true));
        assert_eq!(leadership.follow(&leader, true, false, again + STANDSTILL), None);
    }
}
