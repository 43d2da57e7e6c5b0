//! Stored events of rollouts, and the stored policies of a deployment, in every version.

use super::conversion::{By, Stored, stored};
use crate::names::DefinitionId;
use crate::policy::{self, FailureAction, Ratio, RestartCondition, UpdateOrder};
use crate::rollout::{Kind, PauseReason};
use crate::{Indices, Timestamp, rollout};

stored! {
    /// The policies of a deployment.
    #[schemars(rename = "StoredPolicies")]
    pub struct Policies = policy::Policies {
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
}

stored! {
    /// The policy for restarts of crashed instances.
    pub struct RestartPolicy = policy::RestartPolicy {
        /// Crashes that cause a restart.
        pub condition: RestartCondition,
        /// Delay of each restart, in milliseconds. `None` for the delays of the crash policy.
        pub delay_ms: Option<u32>,
        /// Maximum number of restarts of an index with the same definition.
        pub max_attempts: Option<u32>,
        /// Time for which a restart is counted, in milliseconds. 0 for no limit.
        pub window_ms: u32,
    }
}

stored! {
    /// The policy for the replacement of instances by a rollout.
    #[schemars(rename = "StoredUpdatePolicy")]
    pub struct UpdatePolicy = policy::UpdatePolicy {
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
        /// Maximum time for the replacement of an index once the definition is known to work, in
        /// milliseconds. 0 for no limit.
        pub index_deadline_ms: u64,
        /// Number of replaced indices after which the rollout pauses.
        pub pause_after: Option<u32>,
    }
}

stored! {
    /// The number of indices that are in replacement at once.
    #[schemars(rename = "StoredParallelism")]
    #[serde(rename_all = "snake_case")]
    pub enum Parallelism = policy::Parallelism {
        /// A number of indices.
        Count(count: u32) = Count,
        /// A percentage of the instances.
        Percent(percent: u8) = Percent,
    }
}

stored! {
    /// An event of rollouts. Each event except `started` refers to the current rollout.
    #[schemars(rename = "RolloutEvent")]
    pub enum Rollout("rollout") = rollout::Event {
        /// A rollout started and superseded any rollout in progress.
        "started.v1": StartedV1 {
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
        } = Started,
        /// The replacement of indices started.
        "indices_started.v1": IndicesStartedV1 {
            /// The indices.
            indices: Indices,
        } = IndicesStarted,
        /// The old instance of an index stops first, because the free resources are not sufficient for both
        /// instances.
        "fell_back.v1": FellBackV1 {
            /// The index.
            index: u32,
        } = FellBack,
        /// The new instance of an index was RUNNING for `monitor_ms`, so the old instance must stop.
        "took_over.v1": TookOverV1 {
            /// The index.
            index: u32,
        } = TookOver,
        /// The old instance of an index is gone.
        "replaced.v1": ReplacedV1 {
            /// The index.
            index: u32,
            /// End of the delay before the next index may start.
            delay_until: Timestamp,
        } = Replaced,
        /// The new instance of an index failed. The event is recorded at most once for each index.
        "failed.v1": FailedV1 {
            /// The index.
            index: u32,
            /// Reason for the failure.
            reason: String,
        } = Failed,
        /// The rollout gave up an index until `retry_at`.
        "stalled.v1": StalledV1 {
            /// The index.
            index: u32,
            /// Time when the index may be tried again.
            retry_at: Timestamp,
            /// Reason for the stall.
            reason: String,
        } = Stalled,
        /// The rollout paused: no further index starts.
        "paused.v1": PausedV1 {
            /// Cause of the pause.
            cause: PauseReason,
            /// Reason, as shown to users.
            reason: String,
        } = Paused,
        /// The rollout resumed.
        "resumed.v1": ResumedV1 {} = Resumed,
        /// The rollout completed: every index runs the target.
        "completed.v1": CompletedV1 {} = Completed,
    }
}
