//! What follows from a crash: when to restart at once, when to wait, when to give up (Diego Dev Notes, "Crashes"), and what
//! a restart policy changes of that (SwarmKit orchestrators, "Restart supervisor"). docs/model.md, "Crashes", settles
//! what the documents leave open.

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::policy::{RestartCondition, RestartPolicy};

/// A crash restarts at once while fewer than this many are counted: three immediate restarts.
pub const IMMEDIATE_RESTARTS: u32 = 3;
/// The unit of the wait.
pub const WAIT: Duration = Duration::from_secs(30);
/// The longest wait.
pub const LONGEST_WAIT: Duration = Duration::from_secs(16 * 60);
/// With more counted crashes than this an instance is never restarted.
pub const LAST_CRASH: u32 = 200;
/// An instance that ran this long or longer starts its count again.
pub const STABLE: Duration = Duration::from_secs(5 * 60);
/// An instance that came to run is RUNNING for so long before a policy starts it again, or waits for the rest of it.
pub const SHORTEST_RUN: Duration = Duration::from_secs(1);

/// Whether and when a crashed instance is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Restart {
    /// In the same decision.
    AtOnce,
    /// At this time.
    At(Timestamp),
    /// Not by itself: a rollout may bring something else, and whoever stops the instance gets another one.
    Never(Declined),
}

/// Why a crashed instance is not restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Declined {
    /// It exited with status 0, and the policy's condition is on-failure.
    Succeeded,
    /// The policy's condition is none.
    NoRestarts,
    /// The policy's restarts are used up.
    UsedUp,
    /// It crashed too often for the crash policy.
    GivenUp,
}

impl Declined {
    /// Every one of them.
    pub const ALL: [Self; 4] = [Self::Succeeded, Self::NoRestarts, Self::UsedUp, Self::GivenUp];
}

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeeded => f.write_str("exited with status 0, and its restart condition is on-failure"),
            Self::NoRestarts => f.write_str("its restart condition is none"),
            Self::UsedUp => f.write_str("the restarts that its policy allows are used up"),
            Self::GivenUp => write!(f, "crashed more than {LAST_CRASH} times"),
        }
    }
}

/// How many restarts a policy allows, and how many it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attempts {
    /// Those that it counts, with the one that follows from the crash, if one does.
    pub counted: u32,
    /// Those that it allows.
    pub allowed: u32,
}

/// A crash, and what came before it.
#[derive(Clone, Copy, Debug)]
pub struct Crash<'a> {
    /// Crashes counted before it.
    pub before: u32,
    /// The restarts that were counted.
    pub restarts: &'a [Timestamp],
    /// Since when it was RUNNING; none: it never was.
    pub running_since: Option<Timestamp>,
    /// Whether its action exited with status 0.
    pub succeeded: bool,
    /// Whether a rollout is starting it: until it proved itself, the rollout alone gives it up.
    pub is_starting: bool,
    /// When it crashed.
    pub at: Timestamp,
}

/// What follows from a crash, and how many restarts the policy counts, if it counts any.
#[must_use]
#[rustfmt::skip]
pub fn decide(policy: &RestartPolicy, crash: &Crash<'_>) -> (Restart, Option<Attempts>) {
    use RestartCondition as C;
    use Restart::Never;
    if crash.is_starting {
        return (crash.due(policy), None);
    }
    let counted = policy.max_attempts.map(|allowed| Attempts { counted: crash.counted(policy), allowed });
    let used_up = counted.is_some_and(|attempts| attempts.counted >= attempts.allowed);
    let restart = match (policy.condition, crash.succeeded, used_up) {
        (C::None,      _,     _    ) => Never(Declined::NoRestarts),
        (C::OnFailure, true,  _    ) => Never(Declined::Succeeded),
        (C::OnFailure, false, true ) => Never(Declined::UsedUp),
        (C::OnFailure, false, false) => crash.due(policy),
        (C::Any,       _,     true ) => Never(Declined::UsedUp),
        (C::Any,       _,     false) => crash.due(policy),
    };
    let follows = match restart {
        Restart::AtOnce | Restart::At(_) => 1,
        Never(_)                         => 0,
    };
    (restart, counted.map(|attempts| Attempts { counted: attempts.counted + follows, ..attempts }))
}

impl Crash<'_> {
    /// The restarts that the policy counts: those within its window.
    fn counted(&self, policy: &RestartPolicy) -> u32 {
        let window = Duration::from_millis(policy.window_ms.into());
        let counts = |restart: &&Timestamp| window.is_zero() || self.at.since(**restart) < window;
        u32::try_from(self.restarts.iter().filter(counts).count()).unwrap_or(u32::MAX)
    }

    /// When it is due, whatever the policy's condition and its restarts. What never ran waits as the crash policy says,
    /// whatever the policy's delay: nothing is started in a fast loop.
    fn due(&self, policy: &RestartPolicy) -> Restart {
        let crashes = self.before.saturating_add(1);
        let by_count = due(crashes, self.at);
        let longest = self.at + LONGEST_WAIT;
        let due = match (policy.delay(), self.running_since) {
            (None, _) => by_count.or(self.is_starting.then_some(longest)),
            (Some(delay), Some(since)) => Some((self.at + delay).max(since + SHORTEST_RUN)),
            (Some(delay), None) => Some((self.at + delay).max(by_count.unwrap_or(longest))),
        };
        match due {
            None => Restart::Never(Declined::GivenUp),
            Some(due) if due <= self.at => Restart::AtOnce,
            Some(due) => Restart::At(due),
        }
    }
}

/// The count before this crash: `stored`, or 0 if the instance was RUNNING for 5 minutes or more. A CLAIMED instance
/// never resets.
#[must_use]
pub fn count_before(stored: u32, running_since: Option<Timestamp>, now: Timestamp) -> u32 {
    match running_since {
        Some(since) if now.since(since) >= STABLE => 0,
        Some(_) | None => stored,
    }
}

/// Whether a crash restarts at once, given the count before it.
#[must_use]
pub const fn restarts_at_once(count_before: u32) -> bool {
    count_before < IMMEDIATE_RESTARTS
}

/// When a CRASHED instance with `count` crashes is due again, counted from `since`; never after the last.
#[must_use]
pub fn restart_at(count: u32, since: Timestamp) -> Option<Timestamp> {
    if count > LAST_CRASH {
        return None;
    }
    let doublings = count.saturating_sub(IMMEDIATE_RESTARTS).min(16);
    Some(since + (WAIT * 2_u32.pow(doublings)).min(LONGEST_WAIT))
}

/// When an instance that crashed so often, this crash counted, is due: at once, or when its wait is over.
#[must_use]
pub fn due(crashes: u32, at: Timestamp) -> Option<Timestamp> {
    if restarts_at_once(crashes.saturating_sub(1)) { Some(at) } else { restart_at(crashes, at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_from_60_seconds_to_16_minutes() {
        let wait = |count| restart_at(count, Timestamp(0)).map(|at| at.since(Timestamp(0)).as_secs());
        let waits = [4, 5, 6, 7, 8, 9, 200, 201].map(wait);
        assert_eq!(waits, [Some(60), Some(120), Some(240), Some(480), Some(960), Some(960), Some(960), None]);
    }

    #[test]
    fn five_minutes_of_running_reset_the_count() {
        let now = Timestamp::from_millis(600_000);
        assert_eq!(count_before(7, Some(Timestamp::from_millis(300_000)), now), 0);
        assert_eq!(count_before(7, Some(Timestamp::from_millis(300_001)), now), 7);
        assert_eq!(count_before(7, None, now), 7);
        assert_eq!([0, 1, 2, 3].map(restarts_at_once), [true, true, true, false]);
    }
}
