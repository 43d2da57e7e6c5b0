//! Leadership of this BBS. A BBS leads if the log names it as leader and it can make progress.

use std::time::Duration;

use election::{Duty, Election};
use schemas::Timestamp;
use schemas::cluster::Leader;
use schemas::message::LeaderHeartbeat;
use schemas::names::ServiceId;

/// Time without deliveries after which a leader with decisions in flight (sent, but not delivered) stops
/// leading. When the journal changes its own leader, it is unavailable for 4 to 9 s, so the timeout is
/// longer.
const STANDSTILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for which a BBS whose clock is off does not lead, so that another BBS can take the lead. If no other
/// BBS takes the lead within this time, this BBS leads.
const YIELD_PERIOD: Duration = Duration::from_secs(10);
/// Minimum interval between the starts of two yield periods.
const YIELD_INTERVAL: Duration = Duration::from_mins(5);

/// Inputs for the decision whether this BBS leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// `true` if the follower has reached the end of the log.
    pub(crate) caught_up: bool,
    /// `true` if entries of this BBS are in flight.
    pub(crate) in_flight: bool,
    /// `true` if the clock of this BBS is off, and a live BBS has a correct clock.
    pub(crate) should_yield: bool,
}

/// Role of this BBS in the election of the leading BBS.
#[derive(Clone, Debug)]
pub(crate) struct Leadership {
    election: Election,
    may_lead: bool,
    leads: bool,
    /// Time of the last delivery. If no delivery is expected, the current time.
    progress_at: Timestamp,
    /// `true` if the journal is known to be ahead of the follower.
    is_behind: bool,
    /// Start of the last yield period: the period in which this BBS left the lead to another BBS.
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

    /// Returns `true` if this BBS leads.
    pub(crate) const fn leads(&self) -> bool {
        self.leads
    }

    /// Returns `true` if the log names this BBS as the leader, even if this BBS makes no progress.
    pub(crate) fn is_elected(&self) -> bool {
        self.election.is_leader()
    }

    /// Returns the highest term in the log.
    pub(crate) const fn term(&self) -> u64 {
        self.election.term()
    }

    /// Replaces the election by one that has already received leader heartbeats.
    pub(crate) fn with_election(self, election: Election) -> Self {
        Self { election, ..self }
    }

    /// Records that this BBS is running and receives leader heartbeats.
    pub(crate) fn note_listening(&mut self, now: Timestamp) {
        self.election.poll(now);
    }

    /// Handles a leader heartbeat.
    pub(crate) fn record_heartbeat(&mut self, beat: &LeaderHeartbeat, now: Timestamp) {
        self.election.record_heartbeat(beat, now);
    }

    /// Records a delivery by the follower.
    pub(crate) const fn record_delivery(&mut self, now: Timestamp) {
        self.progress_at = now;
        self.is_behind = false;
    }

    /// Records that the journal is ahead of the follower.
    pub(crate) const fn mark_behind(&mut self) {
        self.is_behind = true;
    }

    /// Starts or stops leading according to the leader in the log, once the log has been read to its end.
    /// Returns the new value of [`Leadership::leads`] if it changed.
    pub(crate) fn follow(&mut self, leader: &Leader, state: State, now: Timestamp) -> Option<bool> {
        let State { caught_up, in_flight, should_yield } = state;
        self.election.follow(Some(leader), now);
        let stands_still = self.stands_still(in_flight, now);
        let leads = caught_up && self.election.is_leader() && !stands_still;
        let leads = leads && !self.should_yield_now(should_yield, now);
        (leads != std::mem::replace(&mut self.leads, leads)).then_some(leads)
    }

    /// Returns `true` if the decisions of this BBS do not reach the log. Other BBSs may still be able to
    /// write. In this case this BBS publishes no leader heartbeat, so that the other BBSs campaign.
    fn stands_still(&mut self, in_flight: bool, now: Timestamp) -> bool {
        if !self.is_behind && !in_flight {
            self.progress_at = now;
        }
        now.since(self.progress_at) >= STANDSTILL_TIMEOUT
    }

    /// Returns `true` if this BBS leaves the lead to another BBS now. The result is `true` for at most
    /// [`YIELD_PERIOD`], because no other BBS may be able to take the lead.
    fn should_yield_now(&mut self, should_yield: bool, now: Timestamp) -> bool {
        if !should_yield {
            return false;
        }
        let began = self.yields_since.filter(|since| now.since(*since) < YIELD_INTERVAL).unwrap_or(now);
        self.yields_since = Some(began);
        now.since(began) < YIELD_PERIOD
    }

    /// Returns the action that the election requires now. Only a BBS that leads publishes heartbeats.
    pub(crate) fn duty(&mut self, should_yield: bool, now: Timestamp) -> Duty {
        match self.election.duty(now) {
            Duty::Campaign(_) if !self.may_lead || self.should_yield_now(should_yield, now) => Duty::None,
            Duty::Heartbeat if !self.leads => Duty::None,
            duty @ (Duty::None | Duty::Heartbeat | Duty::Campaign(_)) => duty,
        }
    }

    /// Returns the time of the next action of the election.
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
    fn leader_with_wrong_clock_yields_for_limited_time() {
        let id = ServiceId::new("b1").unwrap();
        let leader = Leader { id: id.clone(), term: 1, since: at(0) };
        let mut leadership = Leadership::new(id, true);
        let mut follow = |should_yield, second| {
            let changed =
                leadership.follow(&leader, State { should_yield, ..state(true, false) }, at(second));
            (changed, leadership.duty(should_yield, at(second)) == Duty::Heartbeat)
        };
        assert_eq!(follow(false, 1), (Some(true), false), "it has just been elected");
        assert_eq!(follow(true, 2), (Some(false), false));
        assert_eq!(follow(true, 11), (None, false));
        assert_eq!(follow(true, 12), (Some(true), true), "no other BBS took the lead");
        assert_eq!(follow(true, 301), (None, true));
        assert_eq!(follow(true, 302), (Some(false), false), "it yields again");
        assert_eq!(follow(false, 303), (Some(true), true), "its clock is correct");
        // This BBS also does not campaign against a leader whose clock is correct.
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
    fn read_only_bbs_never_campaigns() {
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
    fn bbs_leads_only_while_log_is_caught_up_and_progresses() {
        let id = ServiceId::new("b1").unwrap();
        let leader = Leader { id: id.clone(), term: 1, since: at(0) };
        let mut leadership = Leadership::new(id, true);
        leadership.record_delivery(at(0));
        assert_eq!(
            leadership.follow(&leader, state(false, false), at(0)),
            None,
            "the log has not been read yet"
        );
        assert_eq!(leadership.follow(&leader, state(true, false), at(0)), Some(true));
        assert_eq!(leadership.follow(&leader, state(true, true), at(0)), None, "no change");
        let last = at(0) + STANDSTILL_TIMEOUT;
        assert_eq!(
            leadership.follow(&leader, state(true, true), last),
            Some(false),
            "its decisions do not reach the log"
        );
        assert_eq!(leadership.duty(false, last), Duty::None, "so it sends no heartbeat");
        leadership.record_delivery(last);
        assert_eq!(leadership.follow(&leader, state(true, false), last), Some(true));
        leadership.mark_behind();
        assert_eq!(leadership.follow(&leader, state(true, false), last + STANDSTILL_TIMEOUT), Some(false));
        // The follower delivers again, and the journal is not known to be ahead.
        let again = last + STANDSTILL_TIMEOUT;
        leadership.record_delivery(again);
        assert_eq!(leadership.follow(&leader, state(true, false), again), Some(true));
        assert_eq!(leadership.follow(&leader, state(true, false), again + STANDSTILL_TIMEOUT), None);
    }
}
