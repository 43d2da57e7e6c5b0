//! Timing of leader elections for one role. The log decides who leads: it contains an election event with a
//! term. This crate only decides when the leader sends its heartbeat and when a standby campaigns. Safety
//! comes from compare-and-set on the log, not from this crate.
//!
//! A standby campaigns when the leader misses [`MAX_MISSED_HEARTBEATS`] heartbeats or announces that it steps
//! down. The following rules keep a standby from campaigning needlessly, and keep other processes from
//! delaying a takeover:
//!
//! - A pause of the standby does not count as silence of the leader. The time before the standby started to
//!   receive heartbeats does not count either. A standby that knows the current leader may receive its
//!   heartbeats long before it has read the log.
//! - Standbys campaign one after the other, so that two of them do not race forever. A campaign is repeated
//!   only after there was enough time for its result to reach the log.
//! - A heartbeat counts only if it has the term that the log names. As an exception, heartbeats of the next
//!   term count, but at most for the duration of one election.
//!
//! If no leader was ever elected, no heartbeat can be missing. In this case every process that has read the
//! log campaigns at once.

use std::time::Duration;

use schemas::Timestamp;
use schemas::cluster::Leader;
use schemas::message::LeaderHeartbeat;
use schemas::names::ServiceId;
use schemas::subject::shard;

/// Interval between heartbeats of a leader.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(600);
/// Number of consecutive missed heartbeats after which standbys replace the leader.
pub const MAX_MISSED_HEARTBEATS: u32 = 3;
/// Maximum time until the log names the winner of an election. A campaign is not repeated within this time.
/// Heartbeats of a term that the log does not name yet count only for this time.
pub const ELECTION_TIMEOUT: Duration = Duration::from_millis(1_200);

/// Maximum time without a heartbeat of the leader.
const LEADER_TIMEOUT: Duration = HEARTBEAT_INTERVAL.saturating_mul(MAX_MISSED_HEARTBEATS);
/// Delay between an election and the leader's first heartbeat. It is short because clients may send requests
/// to the leader as soon as they receive a heartbeat.
const FIRST_HEARTBEAT_DELAY: Duration = Duration::from_millis(100);
/// Divisor of the standbys' stagger if the leader stepped down. Standbys then react faster than to missing
/// heartbeats.
const STEP_DOWN_STAGGER_DIVISOR: u32 = 4;
/// Delays before a campaign that received no answer is repeated. The first delay applies if no leader is
/// known, the second if one is known.
const UNANSWERED_RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(150));

/// Delay before a campaign that was refused for a transient reason is repeated.
const REFUSED_RETRY_DELAY: Duration = Duration::from_millis(400);

/// State of the election of one role, from the point of view of one process.
#[derive(Clone, Debug)]
pub struct Election {
    id: ServiceId,
    /// Highest term in the log, and the leader elected in it.
    term: u64,
    leader: Option<ServiceId>,
    /// Time of the last leader heartbeat that counted.
    last_heartbeat: Timestamp,
    /// `true` if the leader announced that it steps down.
    vacant: bool,
    /// Time of the first heartbeat of the term that follows `term`. `None` if there was none.
    unconfirmed_since: Option<Timestamp>,
    next_heartbeat: Timestamp,
    next_campaign: Timestamp,
    last_polled: Timestamp,
}

/// Action that the election requires of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    None,
    /// The process leads and must send a heartbeat.
    Heartbeat,
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
            last_heartbeat: Timestamp(0),
            vacant: false,
            unconfirmed_since: None,
            next_heartbeat: Timestamp(0),
            next_campaign: Timestamp(0),
            last_polled: Timestamp(0),
        }
    }

    /// Returns `true` if this process leads according to the log.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.leader.as_ref() == Some(&self.id)
    }

    /// Returns the highest term in the log.
    #[must_use]
    pub const fn term(&self) -> u64 {
        self.term
    }

    /// Adopts the leader that the log names. Leaders of the current or an earlier term are ignored, so
    /// reading old parts of the log does not change the leader. A new leader gets the full timeout to send
    /// its first heartbeat.
    pub fn follow(&mut self, leader: Option<&Leader>, now: Timestamp) {
        let Some(leader) = leader.filter(|leader| leader.term > self.term) else { return };
        self.term = leader.term;
        self.leader = Some(leader.id.clone());
        self.last_heartbeat = now;
        self.vacant = false;
        self.unconfirmed_since = None;
        self.next_campaign = Timestamp(0);
        self.next_heartbeat = now + FIRST_HEARTBEAT_DELAY;
    }

    /// Records a heartbeat. Heartbeats of the current leader count. Heartbeats of the next term count as
    /// well, for the duration of one election. After the leader announced that it steps down, standbys no
    /// longer wait for its heartbeats.
    pub fn record_heartbeat(&mut self, beat: &LeaderHeartbeat, now: Timestamp) {
        if beat.steps_down {
            self.vacant |=
                beat.term == self.term && self.leader.as_ref() == Some(&beat.id) && beat.id != self.id;
            return;
        }
        let counts = if beat.term == self.term {
            self.leader.as_ref() == Some(&beat.id)
        } else {
            let is_next = beat.term.checked_sub(1) == Some(self.term);
            is_next && now.since(*self.unconfirmed_since.get_or_insert(now)) < ELECTION_TIMEOUT
        };
        if counts && beat.id != self.id {
            self.last_heartbeat = now;
        }
    }

    /// Records that the campaign was lost: another process was elected, and the log will name it.
    pub fn campaign_lost(&mut self, now: Timestamp) {
        self.last_heartbeat = now;
        self.vacant = false;
    }

    /// Records that the campaign received no answer. This does not show whether a leader exists, so the
    /// campaign is repeated soon.
    pub fn campaign_unanswered(&mut self, now: Timestamp) {
        let soon = if self.leader.is_some() {
            UNANSWERED_RETRY_DELAYS.1 + self.stagger() / 4
        } else {
            UNANSWERED_RETRY_DELAYS.0
        };
        self.next_campaign = now + soon;
    }

    /// Records that no process can be elected at the moment, for example because the log accepts no entries.
    pub fn campaign_refused(&mut self, now: Timestamp) {
        self.next_campaign = now + REFUSED_RETRY_DELAY;
    }

    /// Records that this process is running and receives heartbeats. If the last call is longer ago than the
    /// leader timeout, this process was paused, and the leader was not silent. The leader timeout then
    /// restarts. It also restarts if the clock went back.
    pub fn poll(&mut self, now: Timestamp) {
        if now < self.last_polled || now.since(self.last_polled) > LEADER_TIMEOUT {
            self.last_heartbeat = now;
        }
        self.last_polled = now;
    }

    /// Returns the action that is due. Call this function only after the log has been read. Before that,
    /// [`Election::poll`] is enough.
    pub fn duty(&mut self, now: Timestamp) -> Duty {
        self.poll(now);
        if self.is_leader() {
            if now < self.next_heartbeat {
                return Duty::None;
            }
            self.next_heartbeat = now + HEARTBEAT_INTERVAL;
            return Duty::Heartbeat;
        }
        if now < self.campaign_due() {
            return Duty::None;
        }
        self.next_campaign = now + ELECTION_TIMEOUT;
        Duty::Campaign(self.term.saturating_add(1))
    }

    /// Returns the time of the next action. A standby must be polled once per heartbeat interval, so that it
    /// detects its own pauses.
    #[must_use]
    pub fn next_due(&self) -> Timestamp {
        if self.is_leader() {
            self.next_heartbeat
        } else {
            self.campaign_due().min(self.last_polled + HEARTBEAT_INTERVAL)
        }
    }

    fn campaign_due(&self) -> Timestamp {
        let due = match &self.leader {
            None => Timestamp(0),
            // Campaign after a short stagger, because the last decisions of the old leader may not have
            // reached the log yet.
            Some(_) if self.vacant => self.last_heartbeat + self.stagger() / STEP_DOWN_STAGGER_DIVISOR,
            Some(_) => self.last_heartbeat + LEADER_TIMEOUT + self.stagger(),
        };
        due.max(self.next_campaign)
    }

    /// Returns a delay that is shorter than a heartbeat interval. It is derived from the process id, so that
    /// two standbys rarely have the same delay.
    fn stagger(&self) -> Duration {
        HEARTBEAT_INTERVAL * u32::from(shard(self.id.as_str(), 64)) / 64
    }
}
