//! What is stored of rollouts and of the policies of a deployment. Every version of every event.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mirror::{Mirror, mirror};
use crate::names::DefinitionId;
use crate::policy::{self, Ratio};
use crate::{Indices, Timestamp, rollout};

/// The policies of a deployment.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Policies {
    /// How an update rolls.
    pub update: UpdatePolicy,
    /// How a rollback rolls.
    pub rollback: UpdatePolicy,
    /// How many instances a rollout leaves RUNNING at least.
    pub min_running: Option<u32>,
    /// How many containers that ended are kept of each index for queries to show.
    pub history_limit: Option<u32>,
    /// Whether and when a crashed instance is restarted.
    pub restart: RestartPolicy,
}
mirror!(struct Policies = policy::Policies { update, rollback, min_running, history_limit, restart });

/// Whether and when a crashed instance is restarted.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RestartPolicy {
    /// After which crashes.
    pub condition: RestartCondition,
    /// How long each restart waits, in milliseconds; none: as long as the crash policy says.
    pub delay_ms: Option<u32>,
    /// How often an index is restarted as one definition.
    pub max_attempts: Option<u32>,
    /// For how long a restart counts, in milliseconds; 0: for ever.
    pub window_ms: u32,
}
mirror!(struct RestartPolicy = policy::RestartPolicy { condition, delay_ms, max_attempts, window_ms });

/// After which crashes an instance is restarted.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RestartCondition {
    /// After each.
    Any,
    /// Unless its action exited with status 0.
    OnFailure,
    /// After none.
    None,
}
mirror!(enum RestartCondition = policy::RestartCondition { Any, OnFailure, None });

/// How a rollout replaces instances.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UpdatePolicy {
    /// How many indices are in replacement at once.
    pub parallelism: Parallelism,
    /// How long to wait after an index was replaced, in milliseconds.
    pub delay_ms: u64,
    /// Which comes first at an index.
    pub order: UpdateOrder,
    /// What a failing definition leads to.
    pub failure_action: FailureAction,
    /// How long a new instance has to be RUNNING before it counts as healthy, in milliseconds.
    pub monitor_ms: u64,
    /// The part of the indices that may fail.
    pub max_failure_ratio: Ratio,
    /// How long an index may take once the definition is known to work, in milliseconds; 0: for ever.
    pub index_deadline_ms: u64,
    /// Pause after so many indices were replaced.
    pub pause_after: Option<u32>,
}
mirror!(struct UpdatePolicy = policy::UpdatePolicy {
    parallelism, delay_ms, order, failure_action, monitor_ms, max_failure_ratio, index_deadline_ms, pause_after,
});

/// How many indices are in replacement at once.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Parallelism {
    /// So many.
    Count(u32),
    /// So many of a hundred of the instances.
    Percent(u8),
}
mirror!(enum Parallelism = policy::Parallelism { Count(count), Percent(percent) });

/// Which comes first at an index.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UpdateOrder {
    /// The start of the new instance.
    StartFirst,
    /// The stop of the old one.
    StopFirst,
}
mirror!(enum UpdateOrder = policy::UpdateOrder { StartFirst, StopFirst });

/// What a failing definition leads to.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureAction {
    /// The index is tried again and again.
    Hold,
    /// The rollout pauses.
    Pause,
    /// The next index takes its turn.
    Continue,
    /// Everything goes back.
    Rollback,
}
mirror!(enum FailureAction = policy::FailureAction { Hold, Pause, Continue, Rollback });

/// Forward or back.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "RolloutKind")]
pub enum Kind {
    /// To a definition that somebody asked for.
    Update,
    /// Back to the one that was healthy before.
    Rollback,
}
mirror!(enum Kind = rollout::Kind { Update, Rollback });

/// Why a rollout pauses.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pause {
    /// Somebody asked for it.
    Asked,
    /// As many indices were replaced as its policy's `pause_after` says.
    Canary,
    /// More indices failed than its policy allows.
    Failures,
}
mirror!(enum Pause = rollout::Pause { Asked, Canary, Failures });

/// Events of rollouts. Each but `started` speaks of the current one.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RolloutEvent")]
pub enum Rollout {
    /// One began; what was under way is superseded.
    #[serde(rename = "started.v1")]
    StartedV1 {
        /// Forward or back.
        kind: Kind,
        /// The definition that every index shall run.
        target: DefinitionId,
        /// Where a rollback goes.
        rollback_to: Option<DefinitionId>,
        /// How many indices are to be replaced.
        total: u32,
        /// How it rolls.
        policy: Box<UpdatePolicy>,
        /// Why, as users read it.
        reason: String,
    },
    /// Indices take their turn.
    #[serde(rename = "begun.v1")]
    BegunV1 {
        /// Which.
        indices: Indices,
    },
    /// There is no room for both instances of an index: the old one goes first.
    #[serde(rename = "fell_back.v1")]
    FellBackV1 {
        /// Which.
        index: u32,
    },
    /// The new instance of an index runs and survived its monitor: the old one is to go.
    #[serde(rename = "took_over.v1")]
    TookOverV1 {
        /// Which.
        index: u32,
    },
    /// The old instance of an index is gone.
    #[serde(rename = "replaced.v1")]
    ReplacedV1 {
        /// Which.
        index: u32,
        /// When the next one may take its turn.
        rests_until: Timestamp,
    },
    /// The new instance of an index failed: at most once of each index.
    #[serde(rename = "failed.v1")]
    FailedV1 {
        /// Which.
        index: u32,
        /// Why.
        reason: String,
    },
    /// An index is given up for now.
    #[serde(rename = "stalled.v1")]
    StalledV1 {
        /// Which.
        index: u32,
        /// When it may take its turn again.
        retry_at: Timestamp,
        /// Why.
        reason: String,
    },
    /// No index takes its turn any more.
    #[serde(rename = "paused.v1")]
    PausedV1 {
        /// Why.
        cause: Pause,
        /// Why, as users read it.
        reason: String,
    },
    /// Indices take their turns again.
    #[serde(rename = "resumed.v1")]
    ResumedV1 {},
    /// Every index runs the target.
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
            Self::BegunV1 { indices } => Event::Begun { indices },
            Self::FellBackV1 { index } => Event::FellBack { index },
            Self::TookOverV1 { index } => Event::TookOver { index },
            Self::ReplacedV1 { index, rests_until } => Event::Replaced { index, rests_until },
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
            Self::Begun { indices } => Rollout::BegunV1 { indices },
            Self::FellBack { index } => Rollout::FellBackV1 { index },
            Self::TookOver { index } => Rollout::TookOverV1 { index },
            Self::Replaced { index, rests_until } => Rollout::ReplacedV1 { index, rests_until },
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
            rollout::Event::Begun { .. } => "rollout.begun.v1",
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
