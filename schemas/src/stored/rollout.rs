//! Stored events of rollouts, and the stored policies of a deployment, in every version.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mirror::{Mirror, mirror};
use crate::names::DefinitionId;
use crate::policy::{self, FailureAction, Ratio, RestartCondition, UpdateOrder};
use crate::rollout::{Kind, PauseReason};
use crate::{Indices, Timestamp, rollout};

/// The policies of a deployment.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StoredPolicies")]
pub struct Policies {
    /// Policy of updates.
    pub update: UpdatePolicy,
    /// Policy of rollbacks.
    pub rollback: UpdatePolicy,
    /// Minimum number of instances that a rollout keeps RUNNING.
    pub min_running: Option<u32>,
    /// Number of ended containers per index that are kept for queries.
    pub history_limit: Option<u32>,
    /// Restart policy of crashed instances.
    pub restart: RestartPolicy,
}
mirror!(struct Policies = policy::Policies { update, rollback, min_running, history_limit, restart });

/// The policy for restarts of crashed instances.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RestartPolicy {
    /// Crashes that cause a restart.
    pub condition: RestartCondition,
    /// Delay of each restart, in milliseconds. `None` for the delays of the crash policy.
    pub delay_ms: Option<u32>,
    /// Maximum number of restarts of an index with the same definition.
    pub max_attempts: Option<u32>,
    /// Time for which a restart is counted, in milliseconds. 0 for no limit.
    pub window_ms: u32,
}
mirror!(struct RestartPolicy = policy::RestartPolicy { condition, delay_ms, max_attempts, window_ms });

/// The policy for the replacement of instances by a rollout.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StoredUpdatePolicy")]
pub struct UpdatePolicy {
    /// Number of indices that are in replacement at once.
    pub parallelism: Parallelism,
    /// Delay after an index was replaced, in milliseconds.
    pub delay_ms: u64,
    /// Order of start and stop at an index.
    pub order: UpdateOrder,
    /// Action on a failing definition.
    pub failure_action: FailureAction,
    /// Time that a new instance must be RUNNING to count as healthy, in milliseconds.
    pub monitor_ms: u64,
    /// Fraction of the indices that may fail.
    pub max_failure_ratio: Ratio,
    /// Maximum time for the replacement of an index once the definition is known to work, in milliseconds. 0
    /// for no limit.
    pub index_deadline_ms: u64,
    /// Number of replaced indices after which the rollout pauses.
    pub pause_after: Option<u32>,
}
mirror!(struct UpdatePolicy = policy::UpdatePolicy {
    parallelism, delay_ms, order, failure_action, monitor_ms, max_failure_ratio, index_deadline_ms, pause_after,
});

/// The number of indices that are in replacement at once.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StoredParallelism")]
#[serde(rename_all = "snake_case")]
pub enum Parallelism {
    /// A number of indices.
    Count(u32),
    /// A percentage of the instances.
    Percent(u8),
}
mirror!(enum Parallelism = policy::Parallelism { Count(count), Percent(percent) });

/// An event of rollouts. Each event except `started` refers to the current rollout.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RolloutEvent")]
pub enum Rollout {
    /// A rollout started and superseded any rollout in progress.
    #[serde(rename = "started.v1")]
    StartedV1 {
        /// Direction of the rollout.
        kind: Kind,
        /// Definition that every index must run.
        target: DefinitionId,
        /// Definition that a rollback returns to.
        rollback_to: Option<DefinitionId>,
        /// Number of indices to replace.
        total: u32,
        /// Policy of the rollout.
        policy: Box<UpdatePolicy>,
        /// Reason, as shown to users.
        reason: String,
    },
    /// The replacement of indices started.
    #[serde(rename = "indices_started.v1")]
    IndicesStartedV1 {
        /// The indices.
        indices: Indices,
    },
    /// The old instance of an index stops first, because the free resources are not sufficient for both
    /// instances.
    #[serde(rename = "fell_back.v1")]
    FellBackV1 {
        /// The index.
        index: u32,
    },
    /// The new instance of an index was RUNNING for `monitor_ms`, so the old instance must stop.
    #[serde(rename = "took_over.v1")]
    TookOverV1 {
        /// The index.
        index: u32,
    },
    /// The old instance of an index is gone.
    #[serde(rename = "replaced.v1")]
    ReplacedV1 {
        /// The index.
        index: u32,
        /// End of the delay before the next index may start.
        delay_until: Timestamp,
    },
    /// The new instance of an index failed. The event is recorded at most once for each index.
    #[serde(rename = "failed.v1")]
    FailedV1 {
        /// The index.
        index: u32,
        /// Reason for the failure.
        reason: String,
    },
    /// The rollout gave up an index until `retry_at`.
    #[serde(rename = "stalled.v1")]
    StalledV1 {
        /// The index.
        index: u32,
        /// Time when the index may be tried again.
        retry_at: Timestamp,
        /// Reason for the stall.
        reason: String,
    },
    /// The rollout paused: no further index starts.
    #[serde(rename = "paused.v1")]
    PausedV1 {
        /// Cause of the pause.
        cause: PauseReason,
        /// Reason, as shown to users.
        reason: String,
    },
    /// The rollout resumed.
    #[serde(rename = "resumed.v1")]
    ResumedV1 {},
    /// The rollout completed: every index runs the target.
    #[serde(rename = "completed.v1")]
    CompletedV1 {},
}

impl Mirror<rollout::Event> for Rollout {
    fn mirror(self) -> rollout::Event {
        use rollout::Event;
        match self {
            Self::StartedV1 { kind, target, rollback_to, total, policy, reason } => {
                let (kind, policy) = (kind.mirror(), policy.mirror());
                Event::Started { kind, target, rollback_to, total, policy, reason }
            }
            Self::IndicesStartedV1 { indices } => Event::IndicesStarted { indices },
            Self::FellBackV1 { index } => Event::FellBack { index },
            Self::TookOverV1 { index } => Event::TookOver { index },
            Self::ReplacedV1 { index, delay_until } => Event::Replaced { index, delay_until },
            Self::FailedV1 { index, reason } => Event::Failed { index, reason },
            Self::StalledV1 { index, retry_at, reason } => Event::Stalled { index, retry_at, reason },
            Self::PausedV1 { cause, reason } => Event::Paused { cause: cause.mirror(), reason },
            Self::ResumedV1 {} => Event::Resumed {},
            Self::CompletedV1 {} => Event::Completed {},
        }
    }
}

impl Mirror<Rollout> for rollout::Event {
    fn mirror(self) -> Rollout {
        match self {
            Self::Started { kind, target, rollback_to, total, policy, reason } => {
                let (kind, policy) = (kind.mirror(), policy.mirror());
                Rollout::StartedV1 { kind, target, rollback_to, total, policy, reason }
            }
            Self::IndicesStarted { indices } => Rollout::IndicesStartedV1 { indices },
            Self::FellBack { index } => Rollout::FellBackV1 { index },
            Self::TookOver { index } => Rollout::TookOverV1 { index },
            Self::Replaced { index, delay_until } => Rollout::ReplacedV1 { index, delay_until },
            Self::Failed { index, reason } => Rollout::FailedV1 { index, reason },
            Self::Stalled { index, retry_at, reason } => Rollout::StalledV1 { index, retry_at, reason },
            Self::Paused { cause, reason } => Rollout::PausedV1 { cause: cause.mirror(), reason },
            Self::Resumed {} => Rollout::ResumedV1 {},
            Self::Completed {} => Rollout::CompletedV1 {},
        }
    }
}

impl Rollout {
    pub(super) const fn type_name(event: &rollout::Event) -> &'static str {
        match event {
            rollout::Event::Started { .. } => "rollout.started.v1",
            rollout::Event::IndicesStarted { .. } => "rollout.indices_started.v1",
            rollout::Event::FellBack { .. } => "rollout.fell_back.v1",
            rollout::Event::TookOver { .. } => "rollout.took_over.v1",
            rollout::Event::Replaced { .. } => "rollout.replaced.v1",
            rollout::Event::Failed { .. } => "rollout.failed.v1",
            rollout::Event::Stalled { .. } => "rollout.stalled.v1",
            rollout::Event::Paused { .. } => "rollout.paused.v1",
            rollout::Event::Resumed {} => "rollout.resumed.v1",
            rollout::Event::Completed {} => "rollout.completed.v1",
        }
    }
}
