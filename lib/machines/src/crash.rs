//! The crash policy: when an instance restarts immediately, after a delay, or never (Diego Dev Notes,
//! "Crashes"). A restart policy modifies the crash policy (SwarmKit orchestrators, "Restart supervisor"). For
//! cases that these two documents do not define, see docs/internals/model/crashes.md, "Crashes".

use std::time::Duration;

use schemas::Timestamp;
use schemas::crash::{Attempts, MAX_CRASHES, NoRestartReason, Restart};
use schemas::policy::RestartPolicy;

/// Number of immediate restarts. A crashed instance restarts immediately while its crash count before the
/// crash is below this number.
pub const IMMEDIATE_RESTARTS: u32 = 3;

/// Base of the exponential restart delay.
pub const BASE_DELAY: Duration = Duration::from_secs(30);

/// Maximum restart delay.
pub const MAX_DELAY: Duration = Duration::from_secs(16 * 60);

/// Running time after which the crash count of an instance is reset.
pub const STABLE_AFTER: Duration = Duration::from_secs(5 * 60);

/// Minimum time between the start of an instance (RUNNING) and its restart by a restart policy. If the
/// instance crashes earlier, the restart waits for the rest of this time.
pub const MIN_RUN: Duration = Duration::from_secs(1);

/// A crash and the history of the instance before it.
#[derive(Clone, Copy, Debug)]
pub struct Crash<'a> {
    /// Crash count before this crash.
    pub previous_crashes: u32,
    /// Times of the earlier restarts.
    pub restarts: &'a [Timestamp],
    /// Time at which the instance became RUNNING. `None` if the instance never became RUNNING.
    pub running_since: Option<Timestamp>,
    /// `true` if the action exited with status 0.
    pub succeeded: bool,
    /// `true` while a rollout is starting the instance. During this time the condition and the limit of the
    /// restart policy do not apply: only the rollout gives up the instance.
    pub is_starting: bool,
    /// Time of the crash.
    pub at: Timestamp,
}

/// Decides the restart after a crash. Also returns the restart attempts, if the policy limits them.
#[must_use]
#[rustfmt::skip]
pub fn decide(policy: &RestartPolicy, crash: &Crash<'_>) -> (Restart, Option<Attempts>) {
    use schemas::policy::RestartCondition as C;
    use Restart::Never;
    if crash.is_starting {
        return (crash.due(policy), None);
    }
    let counted = policy.max_attempts.map(|allowed| Attempts { counted: crash.restarts_in_window(policy), allowed });
    let attempts_exhausted = counted.is_some_and(|attempts| attempts.counted >= attempts.allowed);
    let restart = match (policy.condition, crash.succeeded, attempts_exhausted) {
        (C::None,      _,     _    ) => Never(NoRestartReason::RestartDisabled),
        (C::OnFailure, true,  _    ) => Never(NoRestartReason::Succeeded),
        (C::OnFailure, false, true ) => Never(NoRestartReason::AttemptsExhausted),
        (C::OnFailure, false, false) => crash.due(policy),
        (C::Any,       _,     true ) => Never(NoRestartReason::AttemptsExhausted),
        (C::Any,       _,     false) => crash.due(policy),
    };
    let follows = match restart {
        Restart::Immediate | Restart::At(_) => 1,
        Never(_)                         => 0,
    };
    (restart, counted.map(|attempts| Attempts { counted: attempts.counted + follows, ..attempts }))
}

impl Crash<'_> {
    /// Returns the number of restarts within the policy's window.
    fn restarts_in_window(&self, policy: &RestartPolicy) -> u32 {
        let window = Duration::from_millis(policy.window_ms.into());
        let counts = |restart: &&Timestamp| window.is_zero() || self.at.since(**restart) < window;
        u32::try_from(self.restarts.iter().filter(counts).count()).unwrap_or(u32::MAX)
    }

    /// Returns the restart time from the delays alone, without the policy's condition and limit.
    ///
    /// An instance that never became RUNNING waits at least as long as the crash policy requires, even if the
    /// delay of the restart policy is shorter. This prevents a fast restart loop.
    fn due(&self, policy: &RestartPolicy) -> Restart {
        let crashes = self.previous_crashes.saturating_add(1);
        let by_count = restart_due(crashes, self.at);
        let longest = self.at + MAX_DELAY;
        let due = match (policy.delay(), self.running_since) {
            (None, _) => by_count.or(self.is_starting.then_some(longest)),
            (Some(delay), Some(since)) => Some((self.at + delay).max(since + MIN_RUN)),
            (Some(delay), None) => Some((self.at + delay).max(by_count.unwrap_or(longest))),
        };
        match due {
            None => Restart::Never(NoRestartReason::CrashLimit),
            Some(due) if due <= self.at => Restart::Immediate,
            Some(due) => Restart::At(due),
        }
    }
}

/// Returns the crash count before this crash: `stored`, or 0 if the instance was RUNNING for 5 minutes or
/// more. A CLAIMED instance never resets the count.
#[must_use]
pub fn count_before(stored: u32, running_since: Option<Timestamp>, now: Timestamp) -> u32 {
    match running_since {
        Some(since) if now.since(since) >= STABLE_AFTER => 0,
        Some(_) | None => stored,
    }
}

/// Returns `true` if an instance restarts immediately after a crash. `count_before` is its crash count before
/// that crash.
#[must_use]
pub const fn restarts_at_once(count_before: u32) -> bool {
    count_before < IMMEDIATE_RESTARTS
}

/// Returns the restart time of an instance with `count` crashes that has been CRASHED since `since`. `None`
/// if the instance is never restarted.
#[must_use]
pub fn restart_at(count: u32, since: Timestamp) -> Option<Timestamp> {
    if count > MAX_CRASHES {
        return None;
    }
    let doublings = count.saturating_sub(IMMEDIATE_RESTARTS).min(16);
    Some(since + (BASE_DELAY * 2_u32.pow(doublings)).min(MAX_DELAY))
}

/// Returns the restart time of an instance that crashes at `at`: immediately or after the delay. `crashes`
/// includes this crash. `None` if the instance is never restarted.
#[must_use]
pub fn restart_due(crashes: u32, at: Timestamp) -> Option<Timestamp> {
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
