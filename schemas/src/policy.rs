//! Policies of a deployment: how its instances are replaced and restarted. They live outside the definition, so that changing them
//! restarts nothing (SwarmKit orchestrators, "Update supervisor"; docs/model.md, "Rollouts").

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::rollout::Kind;

/// How a rollout replaces instances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UpdatePolicy {
    /// How many indices are in replacement at once.
    pub parallelism: Parallelism,
    /// How long to wait after an index was replaced before the next one takes its turn, in milliseconds.
    pub delay_ms: u64,
    /// Which comes first at an index: the start of the new instance or the stop of the old one.
    pub order: UpdateOrder,
    /// What a failing definition leads to.
    pub failure_action: FailureAction,
    /// How long a new instance has to be RUNNING before it counts as healthy and the old one goes, in milliseconds.
    pub monitor_ms: u64,
    /// The part of the indices that may fail before `failure_action` is taken: more than this.
    pub max_failure_ratio: Ratio,
    /// How long an index may take before the next one takes its turn, in milliseconds, once the definition is known to
    /// work; 0: for ever.
    pub index_deadline_ms: u64,
    /// Pause after so many indices were replaced; none: never.
    pub pause_after: Option<u32>,
}

/// How many indices are in replacement at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parallelism {
    /// So many.
    Count(u32),
    /// So many of a hundred of the instances, at least one.
    Percent(u8),
}

impl Parallelism {
    /// Reads a percentage as it is written, `"1%"` to `"100%"`.
    #[must_use]
    pub fn percentage(text: &str) -> Option<Self> {
        let digits = text.strip_suffix('%')?;
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        let percent = digits.parse().ok().filter(|percent| plain && (1..=100).contains(percent));
        percent.map(Self::Percent)
    }
}

/// How many indices are in replacement at once, as it is written.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Parallelism")]
enum Written {
    /// So many.
    Count(u32),
    /// `"1%"` to `"100%"` of the instances.
    Percentage(String),
}

impl Serialize for Parallelism {
    /// As clients write it; as a mere number, and what it is of, where nobody reads it.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self, serializer.is_human_readable()) {
            (Self::Count(count), true) => Written::Count(*count).serialize(serializer),
            (Self::Percent(percent), true) => {
                Written::Percentage(format!("{percent}%")).serialize(serializer)
            }
            (Self::Count(count), false) => (false, *count).serialize(serializer),
            (Self::Percent(percent), false) => (true, u32::from(*percent)).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Parallelism {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bad = || D::Error::custom("is no percentage from 1 to 100");
        if deserializer.is_human_readable() {
            return match Written::deserialize(deserializer)? {
                Written::Count(count) => Ok(Self::Count(count)),
                Written::Percentage(text) => Self::percentage(&text).ok_or_else(bad),
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
        Written::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Written::json_schema(generator)
    }
}

/// Which comes first at an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UpdateOrder {
    /// The new instance is RUNNING before the old one is asked to stop.
    #[default]
    StartFirst,
    /// The old instance is gone before the new one is placed.
    StopFirst,
}

/// What a failing definition leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureAction {
    /// The index is tried again and again, and everything else runs on as it is.
    #[default]
    Hold,
    /// The rollout pauses, and the failing instances are stopped.
    Pause,
    /// The next index takes its turn, whatever fails.
    Continue,
    /// Everything goes back to the definition that was healthy when the rollout began.
    Rollback,
}

/// A part of a whole, in millionths; a number from 0 to 1 as it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "f64", try_from = "f64")]
pub struct Ratio(u32);

/// How many millionths make a whole.
const WHOLE: u32 = 1_000_000;

impl Ratio {
    /// Whether `part` of `whole` is more than this.
    #[must_use]
    pub fn is_exceeded_by(self, part: u32, whole: u32) -> bool {
        u64::from(part) * u64::from(WHOLE) > u64::from(self.0) * u64::from(whole)
    }
}

impl From<Ratio> for f64 {
    fn from(ratio: Ratio) -> Self {
        Self::from(ratio.0) / Self::from(WHOLE)
    }
}

impl TryFrom<f64> for Ratio {
    type Error = &'static str;

    /// Rounds to a millionth.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and a million")]
    fn try_from(number: f64) -> Result<Self, Self::Error> {
        if (0.0..=1.0).contains(&number) {
            Ok(Self((number * f64::from(WHOLE)).round() as u32))
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
        json_schema!({"type": "number", "minimum": 0, "maximum": 1})
    }
}

impl UpdatePolicy {
    /// How an update rolls unless it is said otherwise: one index at a time, start before stop, and a failing definition
    /// changes nothing that runs (Updatable LRPs, "Further examples of behavioral cases").
    #[must_use]
    pub const fn of_update() -> Self {
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

    /// How a rollback rolls unless it is said otherwise: as an update, but it pauses when it fails, too.
    #[must_use]
    pub const fn of_rollback() -> Self {
        Self { failure_action: FailureAction::Pause, ..Self::of_update() }
    }

    /// How many indices are in replacement at once, of so many instances: at least one.
    #[must_use]
    pub fn indices_at_once(&self, instances: u32) -> u32 {
        match self.parallelism {
            Parallelism::Count(count) => count.max(1),
            Parallelism::Percent(percent) => {
                let share = u64::from(instances) * u64::from(percent) / 100;
                u32::try_from(share).unwrap_or(u32::MAX).max(1)
            }
        }
    }

    /// How long a new instance has to be RUNNING before it counts as healthy.
    #[must_use]
    pub const fn monitor(&self) -> Duration {
        Duration::from_millis(self.monitor_ms)
    }
}

/// Whether and when a crashed instance is restarted (SwarmKit orchestrators, "Restart supervisor"; docs/model.md,
/// "Crashes"). As usual, it is the crash policy that decides. Lost cells and evacuations are no crashes: their instances
/// start elsewhere whatever this says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RestartPolicy {
    /// After which crashes it is restarted at all.
    pub condition: RestartCondition,
    /// How long each restart waits, in milliseconds; none: as long as the crash policy says. What crashes before it is
    /// RUNNING waits as the crash policy says at least.
    pub delay_ms: Option<u32>,
    /// How often an index is restarted as one definition; none: for ever, or, without `delay_ms`, as often as the crash
    /// policy says.
    pub max_attempts: Option<u32>,
    /// Restarts that are longer ago than this are not counted, in milliseconds; 0: all of them are.
    pub window_ms: u32,
}

/// After which crashes an instance is restarted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RestartCondition {
    /// After each, however it ended.
    #[default]
    Any,
    /// Unless its action exited with status 0.
    OnFailure,
    /// After none.
    None,
}

impl RestartPolicy {
    /// What is wrong with `window_ms`; none: nothing.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let window = self.window_ms;
        if window == 0 {
            return None;
        }
        let Some(attempts) = self.max_attempts else {
            return Some(format!(
                "is {window}, and nothing is counted: give max_attempts too, or leave it out"
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

    /// How long each restart waits; none: as long as the crash policy says.
    #[must_use]
    pub fn delay(&self) -> Option<Duration> {
        self.delay_ms.map(|delay| Duration::from_millis(delay.into()))
    }
}

/// The policies of a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Policies {
    /// How an update rolls.
    pub update: UpdatePolicy,
    /// How a rollback rolls.
    pub rollback: UpdatePolicy,
    /// How many instances a rollout leaves RUNNING at least; none: all of them start-first, and all but those in
    /// replacement stop-first.
    pub min_running: Option<u32>,
    /// How many containers that ended are kept of each index for queries to show; none: as the cluster says. Decides nothing
    /// else.
    pub history_limit: Option<u32>,
    /// Whether and when a crashed instance is restarted.
    pub restart: RestartPolicy,
}

impl Policies {
    /// How a rollout of this kind rolls.
    #[must_use]
    pub const fn of(&self, kind: Kind) -> &UpdatePolicy {
        match kind {
            Kind::Update => &self.update,
            Kind::Rollback => &self.rollback,
        }
    }

    /// How many of so many instances a rollout by this policy leaves RUNNING at least.
    #[must_use]
    pub fn running_at_least(&self, rolls: &UpdatePolicy, instances: u32) -> u32 {
        let usual = match rolls.order {
            UpdateOrder::StartFirst => instances,
            UpdateOrder::StopFirst => instances.saturating_sub(rolls.indices_at_once(instances)),
        };
        self.min_running.unwrap_or(usual)
    }

    /// What is wrong with `min_running` where so many instances are desired; none: nothing.
    #[must_use]
    pub fn fault(&self, instances: u32) -> Option<String> {
        let stops_first = [self.update.order, self.rollback.order].contains(&UpdateOrder::StopFirst);
        let all = instances > 0 && self.min_running.is_some_and(|least| least >= instances);
        (stops_first && all).then(|| {
            format!(
                "is as many as the {instances} instances, so no instance could ever be stopped first: use less, or \
                 order start-first"
            )
        })
    }
}

impl Default for Policies {
    fn default() -> Self {
        Self {
            update: UpdatePolicy::of_update(),
            rollback: UpdatePolicy::of_rollback(),
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
    fn a_ratio_is_exceeded_only_by_more() {
        let quarter = Ratio::try_from(0.25).expect("a ratio");
        assert_eq!([0, 1, 2].map(|failed| quarter.is_exceeded_by(failed, 4)), [false, false, true]);
        let less = Ratio::try_from(0.24).expect("a ratio");
        assert!(less.is_exceeded_by(1, 4));
        assert!(Ratio::default().is_exceeded_by(1, 10_000));
        assert!([-0.1, 1.1, f64::NAN].map(Ratio::try_from).iter().all(Result::is_err));
    }

    #[test]
    fn a_percentage_is_of_the_instances_and_at_least_one() {
        let policy = |percent| UpdatePolicy {
            parallelism: Parallelism::Percent(percent),
            ..UpdatePolicy::of_update()
        };
        assert_eq!([1, 10, 25, 100].map(|percent| policy(percent).indices_at_once(20)), [1, 2, 5, 20]);
    }
}
