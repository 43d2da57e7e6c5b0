//! What follows from a crash, as docs/internals/model/crashes.md has it ("Crashes", "Restart policies"): told anew from the log alone.

use std::time::Duration;

use schemas::Timestamp;
use schemas::crash::{Attempts, NoRestartReason, Restart};
use schemas::policy::{RestartCondition, RestartPolicy};

/// So long after a crash an instance starts again that crashed so often, this one counted; none: never.
pub(super) fn usual_wait(crashes: u32) -> Option<Duration> {
    let doublings = crashes.saturating_sub(3).min(10);
    let wait = if crashes <= 3 { 0 } else { (30 * 2_u64.pow(doublings)).min(16 * 60) };
    (crashes <= 200).then(|| Duration::from_secs(wait))
}

/// The longest of these waits.
pub(super) const LONGEST: Duration = Duration::from_secs(16 * 60);

/// A crash.
pub(super) struct Fall<'a> {
    /// Crashes with this one.
    pub(super) crashes: u32,
    /// The restarts that were counted before.
    pub(super) restarts: &'a [Timestamp],
    /// Since when it ran, if it did.
    pub(super) ran_since: Option<Timestamp>,
    pub(super) exit_status: Option<i32>,
    /// Whether a rollout was starting it.
    pub(super) starts: bool,
    pub(super) at: Timestamp,
}

impl Fall<'_> {
    /// What has to follow.
    pub(super) fn follows(&self, policy: &RestartPolicy) -> (Restart, Option<Attempts>) {
        if self.starts {
            return (self.due(policy, Some(LONGEST)), None);
        }
        let long_ago = |restart: &Timestamp| {
            policy.window_ms > 0 && *restart + Duration::from_millis(policy.window_ms.into()) <= self.at
        };
        let recent = self.restarts.iter().filter(|restart| !long_ago(restart)).count();
        let counted = u32::try_from(recent).unwrap_or(u32::MAX);
        let ended_well = self.exit_status == Some(0);
        let restart = if policy.condition == RestartCondition::None {
            Restart::Never(NoRestartReason::RestartDisabled)
        } else if policy.condition == RestartCondition::OnFailure && ended_well {
            Restart::Never(NoRestartReason::Succeeded)
        } else if policy.max_attempts.is_some_and(|most| counted >= most) {
            Restart::Never(NoRestartReason::AttemptsExhausted)
        } else {
            self.due(policy, None)
        };
        let one_more = u32::from(!matches!(restart, Restart::Never(_)));
        (restart, policy.max_attempts.map(|allowed| Attempts { counted: counted + one_more, allowed }))
    }

    fn due(&self, policy: &RestartPolicy, at_last: Option<Duration>) -> Restart {
        let usual = usual_wait(self.crashes);
        let due = match (policy.delay_ms, self.ran_since) {
            (None, _) => usual.or(at_last).map(|wait| self.at + wait),
            (Some(delay), None) => {
                Some(self.at + Duration::from_millis(delay.into()).max(usual.unwrap_or(LONGEST)))
            }
            (Some(delay), Some(since)) => {
                Some((self.at + Duration::from_millis(delay.into())).max(since + Duration::from_secs(1)))
            }
        };
        due.map_or(Restart::Never(NoRestartReason::CrashLimit), |due| {
            if due == self.at { Restart::Immediate } else { Restart::At(due) }
        })
    }
}
