//! Who leads in a role: the log says it, by an event with a term. This only knows when the leader has to beat, and when
//! somebody else has to campaign. Compare-and-set is the safety, not this.
//!
//! A standby campaigns when the leader missed [`MISSED_BEATS`], or announced that it steps down. Two things keep it from campaigning wrongly, and one keeps
//! others from holding it back:
//!
//! - its own pause is not silence of the leader; nor is the time before it listened, which may begin long before it knows the
//!   log, if it is told who led then;
//! - standbys campaign one after the other, so that two don't race for ever, and not again before the log may have
//!   answered;
//! - a beat is believed only in the term that the log names, and, for no longer than one election takes, in the next.
//!
//! Where nobody was ever elected there is no beat to miss: whoever knows the log campaigns at once.

use std::time::Duration;

use schemas::Timestamp;
use schemas::cluster::Leader;
use schemas::message::Beat;
use schemas::names::ServiceId;
use schemas::subject::shard;

/// How often a leader beats.
pub const BEAT: Duration = Duration::from_millis(600);
/// A leader that missed this many beats is replaced.
pub const MISSED_BEATS: u32 = 3;
/// How long an election may take until the log names who won it: so long a campaign is not repeated, and a beat is
/// believed whose term the log does not name yet.
pub const ELECTION: Duration = Duration::from_millis(1_200);

/// So long nobody's beats may be missing.
const SILENCE: Duration = BEAT.saturating_mul(MISSED_BEATS);
/// How soon after its election a leader beats first: whoever hears that may ask it at once.
const FIRST_BEAT: Duration = Duration::from_millis(100);
/// By how much less standbys are apart when the leader stepped down than when its beats are missing.
const STEPPED_DOWN: u32 = 4;
/// How soon somebody campaigns again who could ask nobody; where nobody leads yet, and where somebody does.
const NOBODY_ASKED: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(150));

/// How soon somebody campaigns again whose campaign was refused for a reason that may pass.
const REFUSED: Duration = Duration::from_millis(400);

/// What one program knows of the election in its role.
#[derive(Clone, Debug)]
pub struct Election {
    id: ServiceId,
    /// The highest term that the log names, and who leads in it.
    term: u64,
    leader: Option<ServiceId>,
    /// When the leader was last heard.
    heard: Timestamp,
    /// Whether the leader announced that it steps down.
    vacant: bool,
    /// Since when somebody beats in the term after the highest.
    unconfirmed: Option<Timestamp>,
    beat_at: Timestamp,
    campaign_again: Timestamp,
    looked_at: Timestamp,
}

/// What the election asks of the program now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Nothing.
    None,
    /// It leads and has to beat.
    Beat,
    /// Nobody leads: it has to campaign in this term.
    Campaign(u64),
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
            vacant: false,
            unconfirmed: None,
            beat_at: Timestamp(0),
            campaign_again: Timestamp(0),
            looked_at: Timestamp(0),
        }
    }

    /// Whether this program leads, as far as the log says.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.leader.as_ref() == Some(&self.id)
    }

    /// The highest term that the log names.
    #[must_use]
    pub const fn term(&self) -> u64 {
        self.term
    }

    /// Who leads, as the log says; who led before that, as one says who reads the log from earlier on, is known to be past.
    /// A new leader has its time to beat.
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

    /// Somebody beat. Only the leader counts, and for the length of an election who may have been elected after it. A leader
    /// that steps down is not waited for.
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

    /// The campaign was answered: somebody else was elected, and the log will say who.
    pub fn lost(&mut self, now: Timestamp) {
        self.heard = now;
        self.vacant = false;
    }

    /// The campaign came to nobody. That says nothing of whether somebody leads, so it is tried again soon.
    pub fn unanswered(&mut self, now: Timestamp) {
        let soon = if self.leader.is_some() { NOBODY_ASKED.1 + self.stagger() / 4 } else { NOBODY_ASKED.0 };
        self.campaign_again = now + soon;
    }

    /// Nobody can be elected at present, as who was asked says: the log takes no entries, for example.
    pub fn refused(&mut self, now: Timestamp) {
        self.campaign_again = now + REFUSED;
    }

    /// Says that this program is there and listens. One that doesn't for a while had a pause, which is not silence of the
    /// leader. If time went back, the leader counts as heard now.
    pub fn look(&mut self, now: Timestamp) {
        if now < self.looked_at || now.since(self.looked_at) > SILENCE {
            self.heard = now;
        }
        self.looked_at = now;
    }

    /// What has to be done now. To be asked only once the log is known; before that it is enough to [`Election::look`].
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

    /// When there is next something to do. A standby looks at every beat, so that its own pause is seen as one.
    #[must_use]
    pub fn next_due(&self) -> Timestamp {
        if self.leads() { self.beat_at } else { self.campaigns_at().min(self.looked_at + BEAT) }
    }

    fn campaigns_at(&self) -> Timestamp {
        let due = match &self.leader {
            None => Timestamp(0),
            // As soon as it may be: what the leader decided last may still be on its way.
            Some(_) if self.vacant => self.heard + self.stagger() / STEPPED_DOWN,
            Some(_) => self.heard + SILENCE + self.stagger(),
        };
        due.max(self.campaign_again)
    }

    /// Another time for each program, shorter than a beat.
    fn stagger(&self) -> Duration {
        BEAT * u32::from(shard(self.id.as_str(), 64)) / 64
    }
}
