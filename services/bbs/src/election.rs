//! Who leads: by an event with a term, kept up by beats. Compare-and-set is the safety; this only says who tries.

use std::time::Duration;

use schemas::Timestamp;
use schemas::message::Beat;
use schemas::names::ServiceId;

/// How often a leader beats.
pub const BEAT: Duration = Duration::from_millis(600);
/// A leader that missed this many beats is replaced.
pub const MISSED_BEATS: u32 = 3;

/// A leader whose follower tells it nothing for so long, while what it decided is on its way, gives way. It is longer
/// than the journal is away when it changes its own leader (4 to 9 s).
pub const STANDSTILL: Duration = Duration::from_secs(10);

/// What one program knows of leadership in its role.
#[derive(Clone, Debug)]
pub struct Election {
    id: ServiceId,
    /// The highest term that the log names, and who leads in it.
    term: u64,
    leader: Option<ServiceId>,
    heard: Timestamp,
    beat_at: Timestamp,
    stood_at: Option<Timestamp>,
    looked_at: Timestamp,
}

/// What leadership asks of the program now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Nothing.
    None,
    /// It leads and has to beat.
    Beat,
    /// Nobody leads: it has to stand in this term.
    Stand(u64),
}

impl Election {
    /// Knows of no leader yet.
    #[must_use]
    pub const fn new(id: ServiceId) -> Self {
        Self {
            id,
            term: 0,
            leader: None,
            heard: Timestamp(0),
            beat_at: Timestamp(0),
            stood_at: None,
            looked_at: Timestamp(0),
        }
    }

    /// Whether this program leads, as far as the log tells.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.leader.as_ref() == Some(&self.id)
    }

    /// The highest term.
    #[must_use]
    pub const fn term(&self) -> u64 {
        self.term
    }

    /// The log named a leader.
    pub fn elected(&mut self, leader: &ServiceId, term: u64, now: Timestamp) {
        self.term = term;
        self.leader = Some(leader.clone());
        self.heard = now;
        self.stood_at = None;
        // The first beat tells cells that somebody listens to them: not before that is so.
        self.beat_at = now + BEAT / 6;
    }

    /// Somebody beat. Only the leader of the highest term counts.
    pub fn heard(&mut self, beat: &Beat, now: Timestamp) {
        if beat.term >= self.term && beat.id != self.id {
            self.heard = now;
        }
    }

    /// What has to be done now.
    pub fn duty(&mut self, now: Timestamp) -> Duty {
        // A pause of this program is no silence of the leader.
        if now.since(self.looked_at) > BEAT * MISSED_BEATS {
            self.heard = now;
        }
        self.looked_at = now;
        if self.leads() {
            if now < self.beat_at {
                return Duty::None;
            }
            self.beat_at = now + BEAT;
            return Duty::Beat;
        }
        if now < self.stands_at() {
            return Duty::None;
        }
        self.stood_at = Some(now);
        Duty::Stand(self.term + 1)
    }

    /// When there is next something to do. Who stands by looks at every beat, so that its own pause is seen as one.
    #[must_use]
    pub fn next_due(&self) -> Timestamp {
        if self.leads() { self.beat_at } else { self.stands_at().min(self.looked_at + BEAT) }
    }

    /// Candidates stand one after the other, so that two don't race for ever. Where nobody ever led there is no beat to
    /// miss.
    fn stands_at(&self) -> Timestamp {
        let stagger = Duration::from_millis(u64::from(schemas::subject::shard(self.id.as_str(), 8)) * 50);
        let silence = if self.leader.is_some() { BEAT * MISSED_BEATS } else { Duration::ZERO };
        let again = self.stood_at.map_or(Timestamp(0), |at| at + BEAT * 2);
        (self.heard + silence + stagger).max(again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + millis)
    }

    #[test]
    fn who_looks_when_it_is_due_stands() {
        let (me, other) = (ServiceId::new("me").unwrap(), ServiceId::new("other").unwrap());
        let mut election = Election::new(me);
        election.elected(&other, 1, at(0));
        let mut now = at(0);
        for _ in 0..10 {
            if election.duty(now) == Duty::Stand(2) {
                return;
            }
            now = election.next_due().max(now.next());
        }
        panic!("never stood");
    }

    #[test]
    fn a_standby_stands_after_three_missed_beats_and_not_after_its_own_pause() {
        let (me, other) = (ServiceId::new("me").unwrap(), ServiceId::new("other").unwrap());
        let mut election = Election::new(me.clone());
        election.elected(&other, 4, at(0));
        let stood = (1..100).map(|tick| at(tick * 100)).find(|now| election.duty(*now) == Duty::Stand(5));
        let waited = stood.unwrap().since(at(0));
        assert!(waited >= BEAT * MISSED_BEATS && waited < Duration::from_millis(2_400), "{waited:?}");

        let mut paused = Election::new(me);
        paused.elected(&other, 4, at(0));
        assert_eq!(paused.duty(at(100)), Duty::None);
        assert_eq!(paused.duty(at(60_000)), Duty::None);
    }
}
