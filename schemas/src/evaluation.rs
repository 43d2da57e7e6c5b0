//! Evaluations: the record of every scheduling attempt and its cause (Nomad evaluation states;
//! docs/internals/model/evaluations.md, "Evaluations").

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::cause::Cause;
use crate::names::{DecisionId, EvaluationId};
use crate::placement::Eligibility;

/// Record of one scheduling attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evaluation {
    /// Id of the evaluation. The first evaluation that a decision creates has the id of the decision.
    pub id: EvaluationId,
    /// Decision that created the evaluation.
    pub decision: DecisionId,
    /// First decision of the chain that led to the evaluation.
    pub correlation: DecisionId,
    /// Decision that caused the evaluation. Absent if the evaluation starts a chain. The log always contains
    /// this decision. In contrast, `previous`, `next` and `blocked` may name evaluations that were removed
    /// from the tables.
    pub caused_by: Option<DecisionId>,
    /// Reason for the work.
    pub trigger: Trigger,
    /// Status of the evaluation.
    pub status: Status,
    /// Reason why a pending evaluation is not scheduled yet.
    pub wait: Wait,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last change of the status.
    pub since: Timestamp,
    /// Evaluation whose work this one continues.
    pub previous: Option<EvaluationId>,
    /// Evaluation that follows this one: the next step of a rolling update, or the follow-up of a failed
    /// evaluation.
    pub next: Option<EvaluationId>,
    /// Blocked evaluation that took over the work that this evaluation could not place. The blocked
    /// evaluation waits for room (free resources on a cell).
    pub blocked: Option<EvaluationId>,
    /// Number of instances or tasks that the evaluation placed.
    pub placed: u32,
    /// Number of instances or tasks that found no place and wait for room.
    pub queued: u32,
    /// Number of instances or tasks that found no place and do not wait.
    pub rejected: u32,
    /// Number of instances that the evaluation asked to stop.
    pub stopped: u32,
    /// Number of deliveries to the auctioneer.
    pub delivery: u32,
    /// Number of follow-ups before this evaluation in its chain.
    pub follow_ups: u32,
    /// Number of further causes that joined the evaluation while it was pending.
    pub joins: u32,
    /// Most recent causes that joined, oldest first.
    pub joined: Vec<Joined>,
    /// Kinds of cells that were tried for a blocked evaluation. These kinds determine which changes of cells
    /// can unblock the evaluation. Absent if reps refused the work too often and no cell was tried since.
    pub eligibility: Option<Box<Eligibility>>,
}

/// A further cause that joined a pending evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Joined {
    /// Reason for the work.
    pub trigger: Trigger,
    /// Decision that joined.
    pub decision: DecisionId,
    /// Time of that decision.
    pub at: Timestamp,
}

/// Reason for the work of an evaluation. The corresponding `TriggeredBy` of Nomad is in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// A process or task was desired (job-register).
    Desire,
    /// A process was removed (job-deregister).
    Remove,
    /// The number of instances changed (job-scaling).
    Scale,
    /// An instance was stopped and is still desired (alloc-stop).
    Stop,
    /// An instance crashed and restarts immediately or after a delay (alloc-failure).
    Crash,
    /// The restart delay of a CRASHED instance is over (alloc-failure).
    Restart,
    /// A cell disappeared (node-update).
    CellLost,
    /// A cell evacuates (node-drain).
    Evacuation,
    /// A rollout replaces an instance of a replicated process (deployment-watcher).
    Rollout,
    /// A rollout replaces an instance of a global process (rolling-update).
    RollingUpdate,
    /// A global process runs on a further cell, or one of its cells takes work again (node-update).
    CellsChanged,
    /// A periodic task launched a task (periodic-job).
    Periodic,
    /// An instance or a task was stopped, because more urgent work needs its resources (preemption).
    Preemption,
    /// Some work of an evaluation found no place (queued-allocs).
    Queued,
    /// Reps refused work of an evaluation too often (max-plan-attempts).
    Attempts,
    /// The auctioneer did not answer an evaluation (failed-follow-up).
    FollowUp,
    /// Convergence found work that no other trigger had reported (scheduled). In a healthy cluster this never
    /// happens.
    Convergence,
}

/// Status of an evaluation. The statuses delayed, scheduling, applying and deleted are derived, not stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Waiting to be scheduled.
    Pending,
    /// The remaining work could not be placed. The work is retried as soon as capacity appears.
    Blocked {
        /// Reason why the work could not be placed.
        reason: String,
    },
    /// The work is placed as far as possible.
    Complete,
    /// The evaluation was given up.
    Failed {
        /// Reason of the failure.
        reason: String,
    },
    /// The evaluation is no longer needed.
    Canceled {
        /// Reason of the cancellation.
        reason: CancelReason,
    },
}

/// Reason why an evaluation is no longer needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CancelReason {
    /// Nothing was left to place.
    NothingLeft,
    /// Another evaluation took over the work.
    Superseded,
}

/// Reason why a pending evaluation is not scheduled yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// No wait: the evaluation is scheduled immediately.
    #[default]
    Nothing,
    /// The evaluation waits until this time, when the first of its CRASHED instances restarts.
    Restart(Timestamp),
    /// The evaluation waits until this time for its next delivery. The auctioneer did not answer the
    /// evaluation, or the evaluation follows a failed one.
    Delivery(Timestamp),
}

impl Wait {
    /// Returns the end of the wait, or `None` for [`Wait::Nothing`].
    #[must_use]
    pub const fn until(self) -> Option<Timestamp> {
        match self {
            Self::Nothing => None,
            Self::Restart(at) | Self::Delivery(at) => Some(at),
        }
    }
}

/// Waiting work of a process or task that one open evaluation covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Duty {
    /// Work to place: UNCLAIMED instances and PENDING tasks without a placement error.
    Place,
    /// Work that found no place: UNCLAIMED instances and PENDING tasks with a placement error.
    Unblock,
    /// Delayed restarts: CRASHED instances with a restart time.
    Restart,
}

impl Status {
    /// Returns `true` if work waits for the evaluation.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        match self {
            Self::Pending | Self::Blocked { .. } => true,
            Self::Complete | Self::Failed { .. } | Self::Canceled { .. } => false,
        }
    }
}

impl Evaluation {
    /// Returns the reference by which later decisions name the creation of this evaluation as their cause.
    #[must_use]
    pub const fn cause(&self) -> Cause {
        Cause { decision: self.decision, correlation: self.correlation }
    }

    /// Returns the duty of the evaluation, or `None` if it has ended.
    #[must_use]
    pub const fn duty(&self) -> Option<Duty> {
        match (&self.status, self.wait) {
            (Status::Pending, Wait::Restart(_)) => Some(Duty::Restart),
            (Status::Pending, Wait::Nothing | Wait::Delivery(_)) => Some(Duty::Place),
            (Status::Blocked { .. }, _) => Some(Duty::Unblock),
            (Status::Complete | Status::Failed { .. } | Status::Canceled { .. }, _) => None,
        }
    }
}

/// Event of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An evaluation was created.
    Created {
        /// Number of the evaluation within the decision, from 0. The id of the evaluation is derived from
        /// this number.
        number: u8,
        trigger: Trigger,
        /// Initial status.
        initial_status: InitialStatus,
        /// Evaluation whose work this one continues. The event also links that evaluation to this one.
        previous: Option<EvaluationId>,
    },
    /// A further cause joined a pending evaluation.
    Joined { evaluation: EvaluationId, trigger: Trigger },
    /// The wait of a delayed evaluation ends at a different time, because the time of its first restart
    /// changed.
    DelayChanged { evaluation: EvaluationId, until: Timestamp },
    /// The delay of an evaluation is over.
    Due { evaluation: EvaluationId },
    /// The auctioneer did not answer an evaluation. The evaluation is delivered to the auctioneer again.
    Redelivered {
        evaluation: EvaluationId,
        /// Number of the delivery, from 2.
        delivery: u32,
        /// Earliest time of the delivery.
        until: Timestamp,
    },
    /// The remaining work of a blocked evaluation was tried again and could not be placed. The reason is
    /// different from the previous one.
    Blocked {
        evaluation: EvaluationId,
        reason: String,
        /// Kinds of cells that were tried.
        eligibility: Option<Box<Eligibility>>,
    },
    /// The work was placed as far as possible.
    Completed {
        evaluation: EvaluationId,
        /// Number of instances or tasks that the evaluation placed.
        placed: u32,
        /// Number of instances or tasks that found no place and wait for room.
        queued: u32,
        /// Number of instances or tasks that found no place and do not wait.
        rejected: u32,
        /// Blocked evaluation that takes over the remaining work, if this blocked evaluation existed before
        /// the event.
        blocked: Option<EvaluationId>,
    },
    /// The evaluation was given up.
    Failed { evaluation: EvaluationId, reason: String },
    /// The evaluation is no longer needed.
    Canceled { evaluation: EvaluationId, reason: CancelReason },
    /// A client requested an immediate retry.
    Retried {
        evaluation: EvaluationId,
        /// Reason of the block if the evaluation is blocked again. `None` if it is pending again.
        blocked: Option<String>,
    },
}

/// Initial status of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitialStatus {
    /// Scheduled immediately.
    Pending,
    /// Scheduled later.
    Delayed {
        /// Earliest time of scheduling.
        until: Timestamp,
    },
    /// Waits for room.
    Blocked {
        reason: String,
        /// Kinds of cells that were tried.
        eligibility: Option<Box<Eligibility>>,
    },
    /// The evaluation needs no cell, and is complete in the decision that creates it.
    Complete {
        /// Number of instances that were asked to stop.
        stopped: u32,
    },
}

impl Event {
    /// Returns the evaluation of the event, given the decision that contains it.
    #[must_use]
    pub fn evaluation(&self, decision: DecisionId) -> EvaluationId {
        match self {
            Self::Created { number, .. } => EvaluationId::from_decision(decision, *number),
            Self::Joined { evaluation, .. }
            | Self::DelayChanged { evaluation, .. }
            | Self::Due { evaluation }
            | Self::Redelivered { evaluation, .. }
            | Self::Blocked { evaluation, .. }
            | Self::Completed { evaluation, .. }
            | Self::Failed { evaluation, .. }
            | Self::Canceled { evaluation, .. }
            | Self::Retried { evaluation, .. } => *evaluation,
        }
    }
}
