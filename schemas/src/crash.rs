//! The crash policy: when to restart at once, when to wait, when to give up (Diego Dev Notes, "Crashes"; docs/model.md,
//! "Crashes", settles what the document leaves open).

use std::time::Duration;

use crate::Timestamp;

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
