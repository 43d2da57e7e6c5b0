//! What is stored of evaluations, of processes and of tasks: every version of every event.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mirror::{Mirror, mirror};
use super::parts::Eligibility;
use crate::names::EvaluationId;
use crate::{Timestamp, evaluation};

/// Events of evaluations.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "EvaluationEvent")]
pub enum Evaluation {
    /// One begins.
    #[serde(rename = "created.v1")]
    CreatedV1 {
        /// Counts those that the decision creates, from 0: its id follows from that and the decision's.
        number: u8,
        /// What made it.
        trigger: Trigger,
        /// How it begins.
        begin: Begin,
        /// The evaluation whose work it goes on with.
        previous: Option<EvaluationId>,
    },
    /// A further cause joined one that is pending.
    #[serde(rename = "joined.v1")]
    JoinedV1 {
        /// Which.
        evaluation: EvaluationId,
        /// What made the work.
        trigger: Trigger,
    },
    /// The first restart that one waits for is at another time.
    #[serde(rename = "waits.v1")]
    WaitsV1 {
        /// Which.
        evaluation: EvaluationId,
        /// When.
        until: Timestamp,
    },
    /// The wait of one is over.
    #[serde(rename = "due.v1")]
    DueV1 {
        /// Which.
        evaluation: EvaluationId,
    },
    /// Nobody answered one: it is given to the auctioneer again.
    #[serde(rename = "redelivered.v1")]
    RedeliveredV1 {
        /// Which.
        evaluation: EvaluationId,
        /// The how manieth time, from 2.
        delivery: u32,
        /// No sooner than then.
        until: Timestamp,
    },
    /// What is left of a blocked one could not be placed, for another reason than before.
    #[serde(rename = "blocked.v1")]
    BlockedV1 {
        /// Which.
        evaluation: EvaluationId,
        /// Why.
        reason: String,
        /// Which kinds of cells were tried.
        eligibility: Option<Box<Eligibility>>,
    },
    /// What could be placed is placed.
    #[serde(rename = "completed.v1")]
    CompletedV1 {
        /// Which.
        evaluation: EvaluationId,
        /// How much it placed in all.
        placed: u32,
        /// How much found no place and waits for room.
        queued: u32,
        /// How much found no place and doesn't wait.
        rejected: u32,
        /// The evaluation that waited for room already, and now with this one's rest, too.
        blocked: Option<EvaluationId>,
    },
    /// One is given up.
    #[serde(rename = "failed.v1")]
    FailedV1 {
        /// Which.
        evaluation: EvaluationId,
        /// Why.
        reason: String,
    },
    /// One is no longer needed.
    #[serde(rename = "canceled.v1")]
    CanceledV1 {
        /// Which.
        evaluation: EvaluationId,
        /// Why.
        why: Canceled,
    },
    /// Somebody wants one tried again now.
    #[serde(rename = "retried.v1")]
    RetriedV1 {
        /// Which.
        evaluation: EvaluationId,
        /// Why what it stands for found no place; none: it is to be placed.
        blocked: Option<String>,
    },
}

/// How an evaluation begins.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Begin {
    /// It is scheduled at once.
    Pending,
    /// It is scheduled no sooner than then.
    Delayed {
        /// When.
        until: Timestamp,
    },
    /// It waits for room.
    Blocked {
        /// Why.
        reason: String,
        /// Which kinds of cells were tried.
        eligibility: Option<Box<Eligibility>>,
    },
    /// It needs no cell, and is complete with the decision that created it.
    Complete {
        /// How many instances were asked to stop.
        stopped: u32,
    },
}
mirror!(enum Begin = evaluation::Begin {
    Pending, Delayed { until }, Blocked { reason, eligibility }, Complete { stopped },
});

/// Why an evaluation is no longer needed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Canceled {
    /// Nothing was left to place.
    NothingLeft,
    /// Another evaluation took its work over.
    Superseded,
}
mirror!(enum Canceled = evaluation::Canceled { NothingLeft, Superseded });

/// What made the work.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// A process was desired, or a task.
    Desire,
    /// A process was removed, or a task cancelled.
    Remove,
    /// The number of instances changed.
    Scale,
    /// An instance was stopped and is still wanted.
    Stop,
    /// An instance crashed, and restarts at once or after a wait.
    Crash,
    /// A CRASHED instance's wait is over.
    Restart,
    /// A cell disappeared.
    CellLost,
    /// A cell evacuates.
    Evacuation,
    /// A rollout replaces an instance of a replicated process.
    Rollout,
    /// A rollout replaces an instance of a global process.
    RollingUpdate,
    /// A global process runs on another cell, or on one that takes work again.
    CellsChanged,
    /// A periodic task launched a task.
    Periodic,
    /// Something more urgent got the room of an instance or a task.
    Preemption,
    /// Something of an evaluation found no place.
    Queued,
    /// Reps refused something of an evaluation too often.
    Attempts,
    /// Nobody answered an evaluation.
    FollowUp,
    /// Only convergence found it.
    Convergence,
}
mirror!(enum Trigger = evaluation::Trigger {
    Desire, Remove, Scale, Stop, Crash, Restart, CellLost, Evacuation, Rollout, RollingUpdate, CellsChanged, Periodic, Preemption, Queued, Attempts, FollowUp, Convergence,
});

impl Mirror<evaluation::Event> for Evaluation {
    fn mirror(self) -> evaluation::Event {
        use evaluation::Event;
        match self {
            Self::CreatedV1 { number, trigger, begin, previous } => {
                Event::Created { number, trigger: trigger.mirror(), begin: begin.mirror(), previous }
            }
            Self::JoinedV1 { evaluation, trigger } => Event::Joined { evaluation, trigger: trigger.mirror() },
            Self::WaitsV1 { evaluation, until } => Event::Waits { evaluation, until },
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
            Self::CanceledV1 { evaluation, why } => Event::Canceled { evaluation, why: why.mirror() },
            Self::RetriedV1 { evaluation, blocked } => Event::Retried { evaluation, blocked },
        }
    }
}

impl Mirror<Evaluation> for evaluation::Event {
    fn mirror(self) -> Evaluation {
        match self {
            Self::Created { number, trigger, begin, previous } => {
                Evaluation::CreatedV1 { number, trigger: trigger.mirror(), begin: begin.mirror(), previous }
            }
            Self::Joined { evaluation, trigger } => {
                Evaluation::JoinedV1 { evaluation, trigger: trigger.mirror() }
            }
            Self::Waits { evaluation, until } => Evaluation::WaitsV1 { evaluation, until },
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
            Self::Canceled { evaluation, why } => Evaluation::CanceledV1 { evaluation, why: why.mirror() },
            Self::Retried { evaluation, blocked } => Evaluation::RetriedV1 { evaluation, blocked },
        }
    }
}

impl Evaluation {
    pub(super) const fn type_name(event: &evaluation::Event) -> &'static str {
        match event {
            evaluation::Event::Created { .. } => "evaluation.created.v1",
            evaluation::Event::Joined { .. } => "evaluation.joined.v1",
            evaluation::Event::Waits { .. } => "evaluation.waits.v1",
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
