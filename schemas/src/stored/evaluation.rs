//! Stored events of the evaluations of processes and tasks, in every version.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mirror::{Mirror, mirror};
use super::parts::Eligibility;
use crate::evaluation::{CancelReason, Trigger};
use crate::names::EvaluationId;
use crate::{Timestamp, evaluation};

/// An event of an evaluation.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "EvaluationEvent")]
pub enum Evaluation {
    /// An evaluation was created.
    #[serde(rename = "created.v1")]
    CreatedV1 {
        /// Number of the evaluation within the decision, from 0. The evaluation id is derived from this
        /// number and the decision id.
        number: u8,
        /// Trigger of the evaluation.
        trigger: Trigger,
        /// Initial status.
        initial_status: InitialStatus,
        /// Earlier evaluation whose work this evaluation continues.
        previous: Option<EvaluationId>,
    },
    /// A further trigger was merged into a pending evaluation.
    #[serde(rename = "joined.v1")]
    JoinedV1 {
        /// Id of the evaluation.
        evaluation: EvaluationId,
        /// Trigger that was merged.
        trigger: Trigger,
    },
    /// The earliest restart that an evaluation waits for has changed.
    #[serde(rename = "delay_changed.v1")]
    DelayChangedV1 {
        /// Id of the evaluation.
        evaluation: EvaluationId,
        /// Time of the earliest restart.
        until: Timestamp,
    },
    /// The wait of an evaluation ended.
    #[serde(rename = "due.v1")]
    DueV1 {
        /// Id of the evaluation.
        evaluation: EvaluationId,
    },
    /// An evaluation got no answer and is delivered to the auctioneer again.
    #[serde(rename = "redelivered.v1")]
    RedeliveredV1 {
        /// Id of the evaluation.
        evaluation: EvaluationId,
        /// Number of the delivery, from 2.
        delivery: u32,
        /// Earliest time of the delivery.
        until: Timestamp,
    },
    /// The remaining work of a blocked evaluation could not be placed, for a different reason than before.
    #[serde(rename = "blocked.v1")]
    BlockedV1 {
        /// Id of the evaluation.
        evaluation: EvaluationId,
        /// Placement error.
        reason: String,
        /// Classes of cells that were tried.
        eligibility: Option<Box<Eligibility>>,
    },
    /// An evaluation completed: everything that could be placed is placed.
    #[serde(rename = "completed.v1")]
    CompletedV1 {
        /// Id of the evaluation.
        evaluation: EvaluationId,
        /// Total number of placements.
        placed: u32,
        /// Number of failed placements that wait for free resources.
        queued: u32,
        /// Number of failed placements that do not wait.
        rejected: u32,
        /// Existing blocked evaluation that took over the waiting work.
        blocked: Option<EvaluationId>,
    },
    /// An evaluation was given up.
    #[serde(rename = "failed.v1")]
    FailedV1 {
        /// Id of the evaluation.
        evaluation: EvaluationId,
        /// Reason for the failure.
        reason: String,
    },
    /// An evaluation is no longer needed.
    #[serde(rename = "canceled.v1")]
    CanceledV1 {
        /// Id of the evaluation.
        evaluation: EvaluationId,
        /// Reason for the cancellation.
        reason: CancelReason,
    },
    /// A client requested an immediate retry of an evaluation.
    #[serde(rename = "retried.v1")]
    RetriedV1 {
        /// Id of the evaluation.
        evaluation: EvaluationId,
        /// Reason why the evaluation is blocked. `None` if the evaluation is pending again.
        blocked: Option<String>,
    },
}

/// The initial status of an evaluation.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InitialStatus {
    /// Scheduled immediately.
    Pending,
    /// Scheduled after a delay.
    Delayed {
        /// Earliest time of the scheduling.
        until: Timestamp,
    },
    /// Waiting for free resources on a cell.
    Blocked {
        /// Placement error.
        reason: String,
        /// Classes of cells that were tried.
        eligibility: Option<Box<Eligibility>>,
    },
    /// Complete from the start: the decision that created the evaluation needs no cell.
    Complete {
        /// Number of instances that were asked to stop.
        stopped: u32,
    },
}
mirror!(enum InitialStatus = evaluation::InitialStatus {
    Pending, Delayed { until }, Blocked { reason, eligibility }, Complete { stopped },
});

impl Mirror<evaluation::Event> for Evaluation {
    fn mirror(self) -> evaluation::Event {
        use evaluation::Event;
        match self {
            Self::CreatedV1 { number, trigger, initial_status, previous } => Event::Created {
                number,
                trigger: trigger.mirror(),
                initial_status: initial_status.mirror(),
                previous,
            },
            Self::JoinedV1 { evaluation, trigger } => Event::Joined { evaluation, trigger: trigger.mirror() },
            Self::DelayChangedV1 { evaluation, until } => Event::DelayChanged { evaluation, until },
            Self::DueV1 { evaluation } => Event::Due { evaluation },
            Self::RedeliveredV1 { evaluation, delivery, until } => {
                Event::Redelivered { evaluation, delivery, until }
            }
            Self::BlockedV1 { evaluation, reason, eligibility } => {
                Event::Blocked { evaluation, reason, eligibility: eligibility.mirror() }
            }
            Self::CompletedV1 { evaluation, placed, queued, rejected, blocked } => {
                Event::Completed { evaluation, placed, queued, rejected, blocked }
            }
            Self::FailedV1 { evaluation, reason } => Event::Failed { evaluation, reason },
            Self::CanceledV1 { evaluation, reason: why } => {
                Event::Canceled { evaluation, reason: why.mirror() }
            }
            Self::RetriedV1 { evaluation, blocked } => Event::Retried { evaluation, blocked },
        }
    }
}

impl Mirror<Evaluation> for evaluation::Event {
    fn mirror(self) -> Evaluation {
        match self {
            Self::Created { number, trigger, initial_status, previous } => Evaluation::CreatedV1 {
                number,
                trigger: trigger.mirror(),
                initial_status: initial_status.mirror(),
                previous,
            },
            Self::Joined { evaluation, trigger } => {
                Evaluation::JoinedV1 { evaluation, trigger: trigger.mirror() }
            }
            Self::DelayChanged { evaluation, until } => Evaluation::DelayChangedV1 { evaluation, until },
            Self::Due { evaluation } => Evaluation::DueV1 { evaluation },
            Self::Redelivered { evaluation, delivery, until } => {
                Evaluation::RedeliveredV1 { evaluation, delivery, until }
            }
            Self::Blocked { evaluation, reason, eligibility } => {
                Evaluation::BlockedV1 { evaluation, reason, eligibility: eligibility.mirror() }
            }
            Self::Completed { evaluation, placed, queued, rejected, blocked } => {
                Evaluation::CompletedV1 { evaluation, placed, queued, rejected, blocked }
            }
            Self::Failed { evaluation, reason } => Evaluation::FailedV1 { evaluation, reason },
            Self::Canceled { evaluation, reason: why } => {
                Evaluation::CanceledV1 { evaluation, reason: why.mirror() }
            }
            Self::Retried { evaluation, blocked } => Evaluation::RetriedV1 { evaluation, blocked },
        }
    }
}

impl Evaluation {
    pub(super) const fn type_name(event: &evaluation::Event) -> &'static str {
        match event {
            evaluation::Event::Created { .. } => "evaluation.created.v1",
            evaluation::Event::Joined { .. } => "evaluation.joined.v1",
            evaluation::Event::DelayChanged { .. } => "evaluation.delay_changed.v1",
            evaluation::Event::Due { .. } => "evaluation.due.v1",
            evaluation::Event::Redelivered { .. } => "evaluation.redelivered.v1",
            evaluation::Event::Blocked { .. } => "evaluation.blocked.v1",
            evaluation::Event::Completed { .. } => "evaluation.completed.v1",
            evaluation::Event::Failed { .. } => "evaluation.failed.v1",
            evaluation::Event::Canceled { .. } => "evaluation.canceled.v1",
            evaluation::Event::Retried { .. } => "evaluation.retried.v1",
        }
    }
}
