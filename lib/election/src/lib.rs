//! Timing of leader elections for one role. The log decides who leads: it contains an election event with a
//! term. This crate only decides when the leader sends its heartbeat and when a standby campaigns. Safety
//! comes from compare-and-set on the log, and does not depend on this crate.
//!
//! A standby campaigns when the leader misses [`MAX_MISSED_HEARTBEATS`] heartbeats or announces that it steps
//! down. The following rules prevent unnecessary campaigns, and prevent other processes from delaying a
//! takeover:
//!
//! - A pause of the standby does not count as silence of the leader. The time before the standby started to
//!   receive heartbeats does not count either. A standby that knows the current leader may receive the
//!   leader's heartbeats long before the standby has read the log.
//! - Standbys campaign one after the other, so that two standbys do not compete forever. A standby repeats a
//!   campaign only after there was enough time for the result to reach the log.
//! - A heartbeat counts only if it has the term that the log names. There is one exception: heartbeats of the
//!   next term count, but at most for the duration of one election.
//!
//! If no leader was ever elected, no heartbeat can be missing. In this case, a process campaigns as soon as
//! it has read the log.

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
/// Maximum time until the log names the winner of an election. Within this time, a campaign is not repeated.
/// Heartbeats of a term that the log does not name yet count only within this time.
pub const ELECTION_TIMEOUT: Duration = Duration::from_millis(1_200);

/// Maximum time without a heartbeat of the leader.
const LEADER_TIMEOUT: Duration = HEARTBEAT_INTERVAL.saturating_mul(MAX_MISSED_HEARTBEATS);
/// Delay between an election and the leader's first heartbeat. The delay is short because clients may send
/// requests to the leader as soon as they receive a heartbeat.
const FIRST_HEARTBEAT_DELAY: Duration = Duration::from_millis(100);
/// Divisor of the standbys' stagger after the leader stepped down. With this divisor, standbys react faster
/// than to missing heartbeats.
const STEP_DOWN_STAGGER_DIVISOR: u32 = 4;
/// Delays before a campaign that received no answer is repeated. The first delay applies if no leader is
/// known; the second applies if a leader is known.
const UNANSWERED_RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(150));

/// Delay before a campaign that was refused for a transient reason is repeated.
const REFUSED_RETRY_DELAY: Duration = Duration::from_millis(400);

/// State of the election of one role, as one process sees it.
#[derive(Clone, Debug)]
pub struct Election {
    id: ServiceId,
    /// Highest term in the log, and the leader of this term.
    term: u64,
    leader: Option<ServiceId>,
    /// Time of the last leader heartbeat that counted.
    last_heartbeat: Timestamp,
    /// `true` if the leader announced that it steps down.
    vacant: bool,
    /// Time of the first heartbeat of the term after `term`. `None` if there was no such heartbeat.
    unconfirmed_since: Option<Timestamp>,
    next_heartbeat: Timestamp,
    next_campaign: Timestamp,
    last_polled: Timestamp,
}

/// Next action of the process in the election.
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

    /// Adopts the leader that the log names. A leader of the current or an earlier term is ignored, so old
    /// parts of the log do not change the leader. A new leader has the full timeout to send its first
    /// heartbeat.
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

    /// Records a heartbeat. Heartbeats of the current leader count. For the duration of one election,
    /// heartbeats of the next term count, too. After the leader announced that it steps down, standbys no
    /// longer wait for the leader's heartbeats.
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

    /// Records that this process lost the campaign: another process was elected, and the log will name the
    /// other process.
    pub fn campaign_lost(&mut self, now: Timestamp) {
        self.last_heartbeat = now;
        self.vacant = false;
    }

    /// Records that the campaign received no answer. The process does not know whether a leader exists, so it
    /// soon repeats the campaign.
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
    /// leader timeout, this process was paused, so the leader was not silent. In this case, and if the clock
    /// went back, the leader timeout restarts.
    pub fn poll(&mut self, now: Timestamp) {
        if now < self.last_polled || now.since(self.last_polled) > LEADER_TIMEOUT {
            self.last_heartbeat = now;
        }
        self.last_polled = now;
    }

    /// Returns the action that is due. The log must have been read before the first call. Until the log is
    /// read, call only [`Election::poll`].
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

    /// Returns the time of the next action. A standby must be polled once per heartbeat interval to detect
    /// its own pauses.
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

    /// Returns a delay that is shorter than a heartbeat interval. The delay is derived from the process id,
    /// so two standbys rarely have the same delay.
    fn stagger(&self) -> Duration {
        HEARTBEAT_INTERVAL * u32::from(shard(self.id.as_str(), 64)) / 64
    }
}
