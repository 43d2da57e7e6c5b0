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

/// Time for which a BBS whose clock is off leaves the lead to another one. If none has taken it by then, it leads itself.
const YIELD: Duration = Duration::from_secs(10);
/// Interval between two such attempts.
const YIELD_INTERVAL: Duration = Duration::from_mins(5);

/// State of this BBS that decides whether it leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// Whether the log is known.
    pub(crate) caught_up: bool,
    /// Whether entries of this BBS are on their way to the log.
    pub(crate) in_flight: bool,
    /// Whether its clock is off, and another BBS whose clock is right is alive.
    pub(crate) should_yield: bool,
}

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
    /// When it last began to leave the lead to another BBS.
    yields_since: Option<Timestamp>,
}

impl Leadership {
    pub(crate) const fn new(id: ServiceId, may_lead: bool) -> Self {
        let election = Election::new(id);
        Self {
            election,
            may_lead,
            leads: false,
            progress_at: Timestamp(0),
            is_behind: false,
            yields_since: None,
        }
    }

    /// Whether this BBS decides.
    pub(crate) const fn leads(&self) -> bool {
        self.leads
    }

    /// Returns `true` if the log names this BBS as the leader, even if nothing comes of what it decides.
    pub(crate) fn is_elected(&self) -> bool {
        self.election.leads()
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

    /// Follows what the log says, once that is known. Answers whether it leads from now on, or no longer, if that changes.
    pub(crate) fn follow(&mut self, leader: &Leader, state: State, now: Timestamp) -> Option<bool> {
        let State { caught_up, in_flight, should_yield } = state;
        self.election.follow(Some(leader), now);
        let stands_still = self.stands_still(in_flight, now);
        let leads = caught_up && self.election.leads() && !stands_still;
        let leads = leads && !self.yields(should_yield, now);
        (leads != std::mem::replace(&mut self.leads, leads)).then_some(leads)
    }

    /// Whether nothing comes of what it decides. Others may still be able to: it does not beat, so that they try.
    fn stands_still(&mut self, in_flight: bool, now: Timestamp) -> bool {
        if !self.is_behind && !in_flight {
            self.progress_at = now;
        }
        now.since(self.progress_at) >= STANDSTILL
    }

    /// Whether it leaves the lead to another BBS now, as it should: for a while, in case that one can't take it.
    fn yields(&mut self, should_yield: bool, now: Timestamp) -> bool {
        if !should_yield {
            return false;
        }
        let began = self.yields_since.filter(|since| now.since(*since) < YIELD_INTERVAL).unwrap_or(now);
        self.yields_since = Some(began);
        now.since(began) < YIELD
    }

    /// What the election asks of this BBS now. Beats are for a BBS that decides.
    pub(crate) fn duty(&mut self, should_yield: bool, now: Timestamp) -> Duty {
        match self.election.duty(now) {
            Duty::Campaign(_) if !self.may_lead || self.yields(should_yield, now) => Duty::None,
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

    const fn state(caught_up: bool, in_flight: bool) -> State {
        State { caught_up, in_flight, should_yield: false }
    }

    #[test]
    fn leader_with_a_wrong_clock_leaves_the_lead_to_another_for_a_while() {
        let id = ServiceId::new("b1").unwrap();
        let leader = Leader { id: id.clone(), term: 1, since: at(0) };
        let mut leadership = Leadership::new(id, true);
        let mut follow = |should_yield, second| {
            let changed =
                leadership.follow(&leader, State { should_yield, ..state(true, false) }, at(second));
            (changed, leadership.duty(should_yield, at(second)) == Duty::Beat)
        };
        assert_eq!(follow(false, 1), (Some(true), false), "it has just been elected");
        assert_eq!(follow(true, 2), (Some(false), false));
        assert_eq!(follow(true, 11), (None, false));
        assert_eq!(follow(true, 12), (Some(true), true), "nobody else took the lead");
        assert_eq!(follow(true, 301), (None, true));
        assert_eq!(follow(true, 302), (Some(false), false), "it tries again");
        assert_eq!(follow(false, 303), (Some(true), true), "its clock is right");
        // Nor does it campaign against a BBS whose clock is right.
        let other = Leader { id: ServiceId::new("b2").unwrap(), term: 2, since: at(0) };
        let campaigns = |should_yield| {
            let mut leadership = Leadership::new(ServiceId::new("b1").unwrap(), true);
            leadership.follow(&other, state(true, false), at(0));
            (1..60).find(|second| leadership.duty(should_yield, at(*second)) == Duty::Campaign(3))
        };
        let (soon, late) = (campaigns(false).unwrap(), campaigns(true).unwrap());
        assert!(soon < 5 && (soon + 10..soon + 15).contains(&late), "{soon} {late}");
    }

    #[test]
    fn one_that_only_shows_never_campaigns() {
        let last = Leader { id: ServiceId::new("gone").unwrap(), term: 3, since: at(0) };
        for (may_lead, duty) in [(false, Duty::None), (true, Duty::Campaign(4))] {
            let mut leadership = Leadership::new(ServiceId::new("b1").unwrap(), may_lead);
            leadership.follow(&last, state(true, false), at(0));
            let asked =
                (0..60).map(|second| leadership.duty(false, at(second))).find(|duty| *duty != Duty::None);
            assert_eq!(asked.unwrap_or(Duty::None), duty);
        }
    }

    #[test]
    fn it_leads_when_the_log_is_known_and_moves() {
        let id = ServiceId::new("b1").unwrap();
        let leader = Leader { id: id.clone(), term: 1, since: at(0) };
        let mut leadership = Leadership::new(id, true);
        leadership.delivered(at(0));
        assert_eq!(leadership.follow(&leader, state(false, false), at(0)), None, "the log is not known yet");
        assert_eq!(leadership.follow(&leader, state(true, false), at(0)), Some(true));
        assert_eq!(leadership.follow(&leader, state(true, true), at(0)), None, "nothing changed");
        let last = at(0) + STANDSTILL;
        assert_eq!(
            leadership.follow(&leader, state(true, true), last),
            Some(false),
            "nothing comes of what it decides"
        );
        assert_eq!(leadership.duty(false, last), Duty::None, "so it does not beat");
        leadership.delivered(last);
        assert_eq!(leadership.follow(&leader, state(true, false), last), Some(true));
        leadership.fell_behind();
        assert_eq!(leadership.follow(&leader, state(true, false), last + STANDSTILL), Some(false));
        // It hears of the log again, and nothing more is known to be there.
        let again = last + STANDSTILL;
        leadership.delivered(again);
        assert_eq!(leadership.follow(&leader, state(true, false), again), Some(true));
        assert_eq!(leadership.follow(&leader, state(true, false), again + STANDSTILL), None);
    }
}
