//! Policies of a deployment: the rules by which its instances are replaced and restarted. They are not part
//! of the definition, so changing them restarts nothing (SwarmKit orchestrators, "Update supervisor";
//! docs/internals/model/definitions-and-rollouts.md, "Rollouts").

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Rules by which a rollout replaces instances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UpdatePolicy {
    /// Number of indices that are in replacement at once: a number, or a percentage of the instances such as
    /// `"25%"`. 1 by default.
    pub parallelism: Parallelism,
    /// Delay between the replacement of one index and the start of the next, in milliseconds.
    pub delay_ms: u64,
    /// Order of the two steps at an index: the start of the new instance and the stop of the old one.
    /// `start-first` by default.
    pub order: UpdateOrder,
    /// Reaction to a failing definition, `hold` by default.
    pub failure_action: FailureAction,
    /// Time that a new instance has to be RUNNING before it counts as healthy, in milliseconds. The old
    /// instance is stopped after this time.
    pub monitor_ms: u64,
    /// Fraction of the indices that may fail. If more indices fail, `failure_action` is carried out.
    pub max_failure_ratio: Ratio,
    /// Time limit for the replacement of one index, in milliseconds. After this time the next index starts.
    /// The limit applies only if the definition is known to work. 600,000 by default, 0 for no limit.
    pub index_deadline_ms: u64,
    /// Number of replaced indices after which the rollout pauses. If unset, the rollout does not pause for
    /// this reason.
    pub pause_after: Option<u32>,
}

/// Number of indices that are in replacement at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parallelism {
    /// Absolute number of indices.
    Count(u32),
    /// Percentage of the instances, rounded down, but at least one instance.
    Percent(u8),
}

impl Parallelism {
    /// Parses a percentage, `"1%"` to `"100%"`.
    #[must_use]
    pub fn percentage(text: &str) -> Option<Self> {
        let digits = text.strip_suffix('%')?;
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        let percent = digits.parse().ok().filter(|percent| plain && (1..=100).contains(percent));
        percent.map(Self::Percent)
    }
}

/// Number of indices that are in replacement at once, as clients write it.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Parallelism")]
enum ParallelismRepr {
    /// Absolute number of indices.
    Count(u32),
    /// Percentage of the instances, `"1%"` to `"100%"`.
    Percentage(String),
}

impl Serialize for Parallelism {
    /// Serializes to the clients' notation in human-readable formats. Binary formats contain a flag (`true`
    /// for a percentage) followed by the number.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self, serializer.is_human_readable()) {
            (Self::Count(count), true) => ParallelismRepr::Count(*count).serialize(serializer),
            (Self::Percent(percent), true) => {
                ParallelismRepr::Percentage(format!("{percent}%")).serialize(serializer)
            }
            (Self::Count(count), false) => (false, *count).serialize(serializer),
            (Self::Percent(percent), false) => (true, u32::from(*percent)).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Parallelism {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bad = || D::Error::custom("expected a percentage from 1% to 100%");
        if deserializer.is_human_readable() {
            return match ParallelismRepr::deserialize(deserializer)? {
                ParallelismRepr::Count(count) => Ok(Self::Count(count)),
                ParallelismRepr::Percentage(text) => Self::percentage(&text).ok_or_else(bad),
            };
        }
        match <(bool, u32)>::deserialize(deserializer)? {
            (false, count) => Ok(Self::Count(count)),
            (true, percent) => u8::try_from(percent).map(Self::Percent).map_err(|_| bad()),
        }
    }
}

impl JsonSchema for Parallelism {
    fn schema_name() -> Cow<'static, str> {
        ParallelismRepr::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        ParallelismRepr::json_schema(generator)
    }
}

/// Order of start and stop at an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UpdateOrder {
    /// The new instance is RUNNING before the old one is asked to stop.
    #[default]
    StartFirst,
    /// The old instance has ended before the new one is placed.
    StopFirst,
}

/// Reaction to a failing definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureAction {
    /// The failing index is retried without limit, and all other instances keep running unchanged.
    #[default]
    Hold,
    /// The rollout pauses, and the failing instances are stopped.
    Pause,
    /// The rollout continues with the next index despite the failures.
    Continue,
    /// The deployment returns to the definition that was healthy when the rollout started.
    Rollback,
}

/// Fraction of a whole, stored in millionths and written as a number from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "f64", try_from = "f64")]
pub struct Ratio(u32);

/// Denominator of a [`Ratio`].
const MILLIONTHS: u32 = 1_000_000;

impl Ratio {
    /// Returns `true` if `part / whole` is greater than this ratio.
    #[must_use]
    pub fn is_exceeded_by(self, part: u32, whole: u32) -> bool {
        u64::from(part) * u64::from(MILLIONTHS) > u64::from(self.0) * u64::from(whole)
    }
}

impl From<Ratio> for f64 {
    fn from(ratio: Ratio) -> Self {
        Self::from(ratio.0) / Self::from(MILLIONTHS)
    }
}

impl TryFrom<f64> for Ratio {
    type Error = &'static str;

    /// Converts a number from 0 to 1, rounded to a millionth.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and a million")]
    fn try_from(number: f64) -> Result<Self, Self::Error> {
        if (0.0..=1.0).contains(&number) {
            Ok(Self((number * f64::from(MILLIONTHS)).round() as u32))
        } else {
            Err("must be a number from 0 to 1")
        }
    }
}

impl JsonSchema for Ratio {
    fn schema_name() -> Cow<'static, str> {
        "Ratio".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"description": "A fraction.", "type": "number", "minimum": 0, "maximum": 1})
    }
}

impl UpdatePolicy {
    /// Returns the default policy for updates: one index at a time, and the new instance starts before the
    /// old one stops. If the new definition fails, the running instances stay unchanged (Updatable LRPs,
    /// "Further examples of behavioral cases").
    #[must_use]
    pub const fn default_update() -> Self {
        Self {
            parallelism: Parallelism::Count(1),
            delay_ms: 0,
            order: UpdateOrder::StartFirst,
            failure_action: FailureAction::Hold,
            monitor_ms: 0,
            max_failure_ratio: Ratio(0),
            index_deadline_ms: 600_000,
            pause_after: None,
        }
    }

    /// Returns the default policy for rollbacks. It equals the default policy for updates, except that a
    /// failing rollback pauses.
    #[must_use]
    pub const fn default_rollback() -> Self {
        Self { failure_action: FailureAction::Pause, ..Self::default_update() }
    }

    /// Returns the maximum number of indices that are replaced at once in a deployment with this number of
    /// instances, at least one.
    #[must_use]
    pub fn max_parallel_indices(&self, instances: u32) -> u32 {
        match self.parallelism {
            Parallelism::Count(count) => count.max(1),
            Parallelism::Percent(percent) => {
                let share = u64::from(instances) * u64::from(percent) / 100;
                u32::try_from(share).unwrap_or(u32::MAX).max(1)
            }
        }
    }

    /// Returns the time that a new instance has to be RUNNING before it counts as healthy.
    #[must_use]
    pub const fn monitor(&self) -> Duration {
        Duration::from_millis(self.monitor_ms)
    }
}

/// Rules by which a crashed instance is restarted (SwarmKit orchestrators, "Restart supervisor";
/// docs/internals/model/crashes.md, "Crashes"). By default the crash policy decides. Lost cells and evacuations are not
/// crashes: their instances start elsewhere regardless of this policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RestartPolicy {
    /// Crashes after which the instance is restarted, `any` by default.
    pub condition: RestartCondition,
    /// Delay of each restart, in milliseconds. If unset, the crash policy determines the delay. If an
    /// instance crashes before it is RUNNING, the delay of the crash policy is the minimum.
    pub delay_ms: Option<u32>,
    /// Maximum number of restarts of an index with one definition, 1 to 100. If unset, the number of restarts is
    /// unlimited with `delay_ms`, and limited by the crash policy without `delay_ms`.
    pub max_attempts: Option<u32>,
    /// Period within which restarts are counted, in milliseconds. 0: the period is unlimited.
    pub window_ms: u32,
}

/// Crashes after which an instance is restarted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RestartCondition {
    /// Every crash.
    #[default]
    Any,
    /// Every crash except an exit of the action with status 0.
    OnFailure,
    /// No crash.
    None,
}

impl RestartPolicy {
    /// Returns the problem with `window_ms`, or `None` if it is valid.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let window = self.window_ms;
        if window == 0 {
            return None;
        }
        let Some(attempts) = self.max_attempts else {
            return Some(format!(
                "is {window}, but has no effect without max_attempts: set max_attempts, or omit window_ms"
            ));
        };
        let delay = self.delay_ms.unwrap_or(0);
        let least = u64::from(delay) * u64::from(attempts.saturating_sub(1).max(1));
        (u64::from(window) <= least).then(|| {
            format!(
                "is {window}, so max_attempts = {attempts} would never be reached with delay_ms = {delay}: must be more \
                 than {least}, or 0 to count all restarts"
            )
        })
    }

    /// Returns the delay of each restart. `None` if the crash policy determines the delay.
    #[must_use]
    pub fn delay(&self) -> Option<Duration> {
        self.delay_ms.map(|delay| Duration::from_millis(delay.into()))
    }
}

/// The policies of a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Policies {
    /// Rules for the replacement of instances by an update.
    pub update: UpdatePolicy,
    /// Rules for the replacement of instances by a rollback. Their `failure_action` is `pause` by default and
    /// cannot be `rollback`.
    pub rollback: UpdatePolicy,
    /// Minimum number of instances that a rollout leaves RUNNING. If unset, a start-first rollout leaves all
    /// instances RUNNING, and a stop-first rollout leaves all instances RUNNING except those in replacement.
    pub min_running: Option<u32>,
    /// Number of ended containers per index that queries can show, 0 to 100. If unset, the limit of the cluster
    /// applies. No other behaviour depends on this number.
    pub history_limit: Option<u32>,
    /// Rules for restarts of crashed instances.
    pub restart: RestartPolicy,
}

impl Policies {
    /// Returns the minimum number of instances that a rollout with the policy `rolls` leaves RUNNING, out of
    /// `instances` desired instances.
    #[must_use]
    pub fn required_running(&self, rolls: &UpdatePolicy, instances: u32) -> u32 {
        let default_value = match rolls.order {
            UpdateOrder::StartFirst => instances,
            UpdateOrder::StopFirst => instances.saturating_sub(rolls.max_parallel_indices(instances)),
        };
        self.min_running.unwrap_or(default_value)
    }

    /// Returns the problem with `min_running` for this number of desired instances, or `None` if it is valid.
    #[must_use]
    pub fn fault(&self, instances: u32) -> Option<String> {
        let stops_first = [self.update.order, self.rollback.order].contains(&UpdateOrder::StopFirst);
        let all = instances > 0 && self.min_running.is_some_and(|least| least >= instances);
        (stops_first && all).then(|| {
            format!(
                "lets stop-first stop none of the {instances} instances: use a smaller number, or order \
                 start-first"
            )
        })
    }
}

impl Default for Policies {
    fn default() -> Self {
        Self {
            update: UpdatePolicy::default_update(),
            rollback: UpdatePolicy::default_rollback(),
            min_running: None,
            history_limit: None,
            restart: RestartPolicy::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_is_exceeded_only_by_a_greater_fraction() {
        let quarter = Ratio::try_from(0.25).expect("a ratio");
        assert_eq!([0, 1, 2].map(|failed| quarter.is_exceeded_by(failed, 4)), [false, false, true]);
        let less = Ratio::try_from(0.24).expect("a ratio");
        assert!(less.is_exceeded_by(1, 4));
        assert!(Ratio::default().is_exceeded_by(1, 10_000));
        assert!([-0.1, 1.1, f64::NAN].map(Ratio::try_from).iter().all(Result::is_err));
    }

    #[test]
    fn percentage_of_instances_is_at_least_one() {
        let policy = |percent| UpdatePolicy {
            parallelism: Parallelism::Percent(percent),
            ..UpdatePolicy::default_update()
        };
        assert_eq!([1, 10, 25, 100].map(|percent| policy(percent).max_parallel_indices(20)), [1, 2, 5, 20]);
    }
}
