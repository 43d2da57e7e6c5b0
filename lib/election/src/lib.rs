//! Timing of leader elections for one role. The log decides the leader: it records an election event with a
//! term. This crate only decides when the leader sends its heartbeat and when a standby campaigns. Safety
//! comes from compare-and-set on the log, not from this crate.
//!
//! A standby campaigns when the leader misses [`MISSED_BEATS`] heartbeats or announces that it steps down.
//! These rules keep a standby from campaigning needlessly, and keep other processes from delaying a takeover:
//!
//! - A pause of the standby does not count as silence of the leader. Neither does the time before the standby
//!   started to listen. A standby that knows the current leader may start to listen long before it has read
//!   the log.
//! - Standbys campaign one after the other, so that two of them do not race forever. A campaign is repeated
//!   only after the log had time to record a result.
//! - A heartbeat counts only if it has the term that the log names. A heartbeat of the next term counts for
//!   at most the duration of one election.
//!
//! If no leader was ever elected, no heartbeat can be missing. Every process that has read the log then
//! campaigns at once.

use std::time::Duration;

use schemas::Timestamp;
use schemas::cluster::Leader;
use schemas::message::Beat;
use schemas::names::ServiceId;
use schemas::subject::shard;

/// Interval between heartbeats of a leader.
pub const BEAT: Duration = Duration::from_millis(600);
/// Number of consecutive missed heartbeats after which standbys replace the leader.
pub const MISSED_BEATS: u32 = 3;
/// Maximum time until the log names the winner of an election. A campaign is not repeated within this time,
/// and heartbeats of a term that the log does not name yet count for no longer than this.
pub const ELECTION: Duration = Duration::from_millis(1_200);

/// Maximum time without a heartbeat of the leader.
const SILENCE: Duration = BEAT.saturating_mul(MISSED_BEATS);
/// Delay between an election and the leader's first heartbeat. It is short because clients may send requests
/// to the leader as soon as they receive a heartbeat.
const FIRST_BEAT: Duration = Duration::from_millis(100);
/// Divisor of the standbys' stagger after the leader stepped down. Standbys react faster then than to missing
/// heartbeats.
const STEPPED_DOWN: u32 = 4;
/// Delay before a campaign that received no answer is repeated: without a known leader, and with one.
const NOBODY_ASKED: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(150));

/// Delay before a campaign that was refused for a transient reason is repeated.
const REFUSED: Duration = Duration::from_millis(400);

/// State of the election of one role, from the point of view of one process.
#[derive(Clone, Debug)]
pub struct Election {
    id: ServiceId,
    /// Highest term in the log, and the leader elected in it.
    term: u64,
    leader: Option<ServiceId>,
    /// Time of the last heartbeat that counted.
    heard: Timestamp,
    /// `true` if the leader announced that it steps down.
    vacant: bool,
    /// Time of the first heartbeat in the term after the highest one.
    unconfirmed: Option<Timestamp>,
    beat_at: Timestamp,
    campaign_again: Timestamp,
    looked_at: Timestamp,
}

/// Action that the election requires of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    None,
    /// The process leads and must send a heartbeat.
    Beat,
    /// The process must campaign in this term.
    Campaign(u64),
}

impl Election {
    /// Creates an election without a known leader.
    #[must_use]
    pub const fn new(id: ServiceId) -> Self {
        Self {
            id,
            term: 0,
            leader: None,
            heard: Timestamp(0),
            vacant: false,
            unconfirmed: None,
            beat_at: Timestamp(0),
            campaign_again: Timestamp(0),
            looked_at: Timestamp(0),
        }
    }

    /// Returns `true` if this process leads according to the log.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.leader.as_ref() == Some(&self.id)
    }

    /// Returns the highest term in the log.
    #[must_use]
    pub const fn term(&self) -> u64 {
        self.term
    }

    /// Adopts the leader that the log names. Leaders of the current or an earlier term are ignored, so a
    /// process that reads the log from an earlier position is not misled. A new leader gets the full timeout
    /// to send its first heartbeat.
    pub fn follow(&mut self, leader: Option<&Leader>, now: Timestamp) {
        let Some(leader) = leader.filter(|leader| leader.term > self.term) else { return };
        self.term = leader.term;
        self.leader = Some(leader.id.clone());
        self.heard = now;
        self.vacant = false;
        self.unconfirmed = None;
        self.campaign_again = Timestamp(0);
        self.beat_at = now + FIRST_BEAT;
    }

    /// Records a heartbeat. Only heartbeats of the leader count, and heartbeats of the next term for the
    /// duration of one election. After the leader announced that it steps down, standbys do not wait for its
    /// heartbeats.
    pub fn heard(&mut self, beat: &Beat, now: Timestamp) {
        if beat.steps_down {
            self.vacant |=
                beat.term == self.term && self.leader.as_ref() == Some(&beat.id) && beat.id != self.id;
            return;
        }
        let counts = if beat.term == self.term {
            self.leader.as_ref() == Some(&beat.id)
        } else {
            let is_next = beat.term.checked_sub(1) == Some(self.term);
            is_next && now.since(*self.unconfirmed.get_or_insert(now)) < ELECTION
        };
        if counts && beat.id != self.id {
            self.heard = now;
        }
    }

    /// Records that the campaign was lost: another process was elected, and the log will name it.
    pub fn lost(&mut self, now: Timestamp) {
        self.heard = now;
        self.vacant = false;
    }

    /// Records that the campaign received no answer. This does not show whether a leader exists, so the
    /// campaign is repeated soon.
    pub fn unanswered(&mut self, now: Timestamp) {
        let soon = if self.leader.is_some() { NOBODY_ASKED.1 + self.stagger() / 4 } else { NOBODY_ASKED.0 };
        self.campaign_again = now + soon;
    }

    /// Records that no process can be elected at present, for example because the log accepts no entries.
    pub fn refused(&mut self, now: Timestamp) {
        self.campaign_again = now + REFUSED;
    }

    /// Records that this process is running and listening. A gap of more than the leader timeout is a pause
    /// of this process, not silence of the leader. The leader's timeout also restarts if the clock went back.
    pub fn look(&mut self, now: Timestamp) {
        if now < self.looked_at || now.since(self.looked_at) > SILENCE {
            self.heard = now;
        }
        self.looked_at = now;
    }

    /// Returns the action that is due. Call it only after the log has been read; before that,
    /// [`Election::look`] is enough.
    pub fn duty(&mut self, now: Timestamp) -> Duty {
        self.look(now);
        if self.leads() {
            if now < self.beat_at {
                return Duty::None;
            }
            self.beat_at = now + BEAT;
            return Duty::Beat;
        }
        if now < self.campaigns_at() {
            return Duty::None;
        }
        self.campaign_again = now + ELECTION;
        Duty::Campaign(self.term.saturating_add(1))
    }

    /// Returns the time of the next action. A standby must be polled once per heartbeat interval so that it
    /// detects its own pauses.
    #[must_use]
    pub fn next_due(&self) -> Timestamp {
        if self.leads() { self.beat_at } else { self.campaigns_at().min(self.looked_at + BEAT) }
    }

    fn campaigns_at(&self) -> Timestamp {
        let due = match &self.leader {
            None => Timestamp(0),
            // Campaign after a short stagger: the last decisions of the old leader may still be on their way
            // to the log.
            Some(_) if self.vacant => self.heard + self.stagger() / STEPPED_DOWN,
            Some(_) => self.heard + SILENCE + self.stagger(),
        };
        due.max(self.campaign_again)
    }

    /// Returns a delay shorter than a heartbeat interval, derived from the process id so that standbys rarely
    /// share it.
    fn stagger(&self) -> Duration {
        BEAT * u32::from(shard(self.id.as_str(), 64)) / 64
    }
}
