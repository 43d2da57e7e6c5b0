//! Events of rollouts, and the progress of a rollout as clients see it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::indices::Indices;
use crate::names::DefinitionId;
use crate::policy::{Policies, UpdateOrder, UpdatePolicy};

/// Direction of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "RolloutKind")]
pub enum Kind {
    /// Rollout to a definition that a client requested.
    Update,
    /// Return to the definition that was healthy before.
    Rollback,
}

impl Kind {
    /// Returns the policy for a rollout of this kind.
    #[must_use]
    pub const fn policy(self, policies: &Policies) -> &UpdatePolicy {
        match self {
            Self::Update => &policies.update,
            Self::Rollback => &policies.rollback,
        }
    }
}

/// Phase of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Indices are being replaced.
    Rolling,
    /// No further index takes its turn until a client resumes the rollout.
    Paused,
    /// Every index runs the target.
    Completed,
}

/// Progress of an index that is being replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// Time at which the index took its turn.
    pub started_at: Timestamp,
    /// Update order at this index: the order of the policy, or stop-first if both instances did not fit.
    pub order: UpdateOrder,
    /// Stage that the index has reached.
    pub stage: Stage,
}

/// Stage of an index that is being replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The index waits for the new instance to be placed, to start and to survive its monitor.
    Starting,
    /// The index waits for the old instance to stop.
    Leaving,
    /// The index is replaced. The next index may take its turn at this time.
    Resting(Timestamp),
}

/// Index that the rollout has given up for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StalledIndex {
    /// Earliest time of the next attempt. The attempt also waits until all other indices have had their turn.
    pub retry_at: Timestamp,
    /// Number of times that the rollout has given up the index.
    pub times: u32,
}

/// Reason for a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PauseReason {
    /// A client paused the rollout.
    Requested,
    /// The number of replaced indices has reached `pause_after` of the policy.
    Canary,
    /// More indices failed than `max_failure_ratio` of the policy allows.
    Failures,
}

/// Event of a rollout. Each event except `started` concerns the current rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A rollout started. It supersedes the current one.
    Started {
        kind: Kind,
        target: DefinitionId,
        /// Definition to which a rollback returns. `None` if no definition was healthy.
        rollback_to: Option<DefinitionId>,
        /// Number of indices to replace.
        total: u32,
        policy: Box<UpdatePolicy>,
        /// Reason, as shown to users.
        reason: String,
    },
    /// Indices take their turn: their replacement starts.
    IndicesStarted { indices: Indices },
    /// The new instance of an index does not fit beside the old instance, so the old instance stops first.
    FellBack { index: u32 },
    /// The new instance of an index runs and has survived its monitor, so the old instance has to stop.
    TookOver { index: u32 },
    /// The old instance of an index has ended.
    Replaced {
        index: u32,
        /// Time at which the next index may take its turn.
        delay_until: Timestamp,
    },
    /// The new instance of an index failed. The event is recorded only once for each index, until the rollout
    /// is resumed.
    Failed { index: u32, reason: String },
    /// The rollout gives up an index for now.
    Stalled {
        index: u32,
        /// Earliest time of the next attempt.
        retry_at: Timestamp,
        reason: String,
    },
    /// No further index takes its turn.
    Paused {
        cause: PauseReason,
        /// Reason, as shown to users.
        reason: String,
    },
    /// Indices take their turns again, and failures are counted from zero.
    Resumed {},
    /// Every index runs the target.
    Completed {},
}

impl Event {
    /// Returns the indices that the event concerns, or `None` if it concerns the whole rollout.
    #[must_use]
    pub fn indices(&self) -> Option<Indices> {
        match self {
            Self::IndicesStarted { indices } => Some(indices.clone()),
            Self::FellBack { index }
            | Self::TookOver { index }
            | Self::Replaced { index, .. }
            | Self::Failed { index, .. }
            | Self::Stalled { index, .. } => Some((*index).into()),
            Self::Started { .. } | Self::Paused { .. } | Self::Resumed {} | Self::Completed {} => None,
        }
    }
}
