//! Stored events of the evaluations of processes and tasks, in every version.

use super::conversion::{By, Stored, stored};
use super::parts::Eligibility;
use crate::evaluation::{CancelReason, Trigger};
use crate::names::EvaluationId;
use crate::{Timestamp, evaluation};

stored! {
    /// An event of an evaluation.
    #[schemars(rename = "EvaluationEvent")]
    pub enum Evaluation("evaluation") = evaluation::Event {
        /// An evaluation was created.
        "created.v1": CreatedV1 {
            /// Number of the evaluation within the decision, from 0. The evaluation id is derived from this
            /// number and the decision id.
            number: u8,
            /// Trigger of the evaluation.
            trigger: Trigger,
            /// Initial status.
            initial_status: InitialStatus,
            /// Earlier evaluation whose work this evaluation continues.
            previous: Option<EvaluationId>,
        } = Created,
        /// A further trigger was merged into a pending evaluation.
        "joined.v1": JoinedV1 {
            /// Id of the evaluation.
            evaluation: EvaluationId,
            /// Trigger that was merged.
            trigger: Trigger,
        } = Joined,
        /// The earliest restart that an evaluation waits for has changed.
        "delay_changed.v1": DelayChangedV1 {
            /// Id of the evaluation.
            evaluation: EvaluationId,
            /// Time of the earliest restart.
            until: Timestamp,
        } = DelayChanged,
        /// The wait of an evaluation ended.
        "due.v1": DueV1 {
            /// Id of the evaluation.
            evaluation: EvaluationId,
        } = Due,
        /// An evaluation got no answer and is delivered to the auctioneer again.
        "redelivered.v1": RedeliveredV1 {
            /// Id of the evaluation.
            evaluation: EvaluationId,
            /// Number of the delivery, from 2.
            delivery: u32,
            /// Earliest time of the delivery.
            until: Timestamp,
        } = Redelivered,
        /// The remaining work of a blocked evaluation could not be placed, for a different reason than
        /// before.
        "blocked.v1": BlockedV1 {
            /// Id of the evaluation.
            evaluation: EvaluationId,
            /// Placement error.
            reason: String,
            /// Classes of cells that were tried.
            eligibility: Option<Box<Eligibility>>,
        } = Blocked,
        /// An evaluation completed: everything that could be placed is placed.
        "completed.v1": CompletedV1 {
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
        } = Completed,
        /// An evaluation was given up.
        "failed.v1": FailedV1 {
            /// Id of the evaluation.
            evaluation: EvaluationId,
            /// Reason for the failure.
            reason: String,
        } = Failed,
        /// An evaluation is no longer needed.
        "canceled.v1": CanceledV1 {
            /// Id of the evaluation.
            evaluation: EvaluationId,
            /// Reason for the cancellation.
            reason: CancelReason,
        } = Canceled,
        /// A client requested an immediate retry of an evaluation.
        "retried.v1": RetriedV1 {
            /// Id of the evaluation.
            evaluation: EvaluationId,
            /// Reason why the evaluation is blocked. `None` if the evaluation is pending again.
            blocked: Option<String>,
        } = Retried,
    }
}

stored! {
    /// The initial status of an evaluation.
    #[serde(rename_all = "snake_case")]
    pub enum InitialStatus = evaluation::InitialStatus {
        /// Scheduled immediately.
        Pending = Pending,
        /// Scheduled after a delay.
        Delayed {
            /// Earliest time of the scheduling.
            until: Timestamp,
        } = Delayed,
        /// Waiting for free resources on a cell.
        Blocked {
            /// Placement error.
            reason: String,
            /// Classes of cells that were tried.
            eligibility: Option<Box<Eligibility>>,
        } = Blocked,
        /// Complete from the start: the decision that created the evaluation needs no cell.
        Complete {
            /// Number of instances that were asked to stop.
            stopped: u32,
        } = Complete,
    }
}
