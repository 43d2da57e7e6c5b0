//! Commands, reports and events of tasks, and the results of completion callbacks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::container::{Epoch, Instance};
use crate::definition::DesiredTask;
use crate::isolation::Isolation;
use crate::names::{Domain, EvaluationId};
use crate::placement::Explanation;
use crate::preemption::Eviction;

/// Result of the completion callback of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Callback {
    /// Number of calls so far.
    pub attempts: u32,
    /// Result of the last call.
    pub last: CallbackResult,
    /// Time at which the last call was recorded.
    pub at: Timestamp,
}

/// Result of one call of the completion callback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallbackResult {
    /// The server of the owner answered with this HTTP status.
    Answered(u16),
    /// The server of the owner did not answer, for this reason.
    Failed(String),
    /// The BBS did not call the server, because calls to this address are not allowed, for this reason.
    Refused(String),
}

/// Consequence of a call of the completion callback for the task and for further calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackVerdict {
    /// The owner is informed, and the task is deleted.
    Delivered,
    /// The owner is called again after a delay.
    Repeat,
    /// The owner is never called again. The task stays until it expires or a client resolves it.
    Ended,
}

impl CallbackResult {
    /// Returns the consequence. A 2xx status counts as a delivery. If the server does not answer, or answers
    /// with 408, 429 or 5xx, the owner is called again. After any other status, or if calls to the address
    /// are not allowed, the owner is not called again.
    #[must_use]
    pub const fn verdict(&self) -> CallbackVerdict {
        match self {
            Self::Answered(200..=299) => CallbackVerdict::Delivered,
            Self::Answered(408 | 429 | 500..=599) | Self::Failed(_) => CallbackVerdict::Repeat,
            Self::Answered(_) | Self::Refused(_) => CallbackVerdict::Ended,
        }
    }
}

impl std::fmt::Display for CallbackResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Answered(status) => write!(f, "answered {status}"),
            Self::Failed(why) => write!(f, "no answer: {why}"),
            Self::Refused(why) => write!(f, "not called: {why}"),
        }
    }
}

/// Outcome of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The task succeeded.
    Succeeded {
        /// Content of the result file, at most 50 KiB.
        result: String,
    },
    /// The task failed.
    Failed {
        /// Reason of the failure.
        reason: String,
    },
}

/// Command for a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Desire(Box<DesiredTask>),
    /// Creates a task on behalf of a periodic task that launches it.
    Launch(Box<DesiredTask>),
    Cancel,
    /// Resolves the task at the request of a client. One decision changes it from COMPLETED to RESOLVING and
    /// deletes it.
    Resolve,
    /// Stops the task to free its resources for more urgent work. Sent by the auctioneer.
    Evict(Box<Eviction>),
    /// Reports the container of the task. Sent by a rep.
    Report(Report),
    /// Reports that the task could not be placed. Sent by the auctioneer.
    Fail(Unplaced),
    /// Reports that the auctioneer did not answer a delivery of the evaluation.
    Unanswered {
        evaluation: EvaluationId,
        /// Number of the delivery.
        delivery: u32,
    },
    /// Retries an evaluation now, at the request of a client.
    Retry(EvaluationId),
    /// Announces that the BBS is about to call the completion callback.
    BeginResolving,
    /// Reports the result of a call of the completion callback. The call belongs to the task of this epoch.
    RecordCallback(Epoch, CallbackResult),
    /// Carries out everything that is due: fails tasks on lost cells, and ends waits that have expired.
    Converge,
}

/// Report of an auctioneer about a task that could not be placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unplaced {
    /// Evaluation whose work the auctioneer could not place.
    pub evaluation: EvaluationId,
    /// Placement error, as shown to users.
    pub error: String,
    /// `true` if the evaluation has no attempts left because reps refused the task too often.
    pub attempts_exhausted: bool,
    /// Explanation per cell.
    pub explanation: Option<Box<Explanation>>,
}

/// Report of a rep about a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub domain: Domain,
    /// Epoch that the container belongs to.
    pub epoch: Epoch,
    pub by: Instance,
    pub step: ReportStep,
}

/// Content of a report about a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportStep {
    /// The container has reserved its resources and requests to run the task.
    Start {
        /// Explanation of the auction for this placement.
        placement: Option<Box<Explanation>>,
        /// Isolation layers of the container.
        #[serde(default)]
        isolation: Isolation,
    },
    /// The container ended or does not exist.
    Complete { outcome: Outcome },
}

/// Event of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Desired(Box<DesiredTask>),
    /// A cell runs the task.
    Started {
        by: Instance,
        /// Explanation of the placement.
        placement: Option<Box<Explanation>>,
        /// Isolation layers of the container.
        isolation: Isolation,
    },
    /// The task could not be placed and waits for room (free resources on a cell).
    PlacementFailed {
        /// Placement error, as shown to users.
        error: String,
        /// Explanation per cell.
        explanation: Option<Box<Explanation>>,
    },
    /// The task ended.
    Completed {
        /// Container that ran the task. `None` if it never ran.
        by: Option<Instance>,
        outcome: Outcome,
        /// Explanation per cell, if the task could not be placed.
        explanation: Option<Box<Explanation>>,
    },
    /// The BBS or a client resolves the task.
    Resolving {},
    /// The owner of the task was called.
    CallbackTried {
        /// Number of the call in this epoch, from 1.
        attempt: u32,
        outcome: CallbackResult,
    },
    /// The task returns from RESOLVING to COMPLETED.
    Demoted {},
    Deleted {},
}

impl Event {
    /// Returns `true` if the event creates work: for an auction, for the program that resolves the task, or,
    /// after a cancellation, for the cell.
    #[must_use]
    pub const fn makes_work(&self) -> bool {
        match self {
            Self::Desired(_) | Self::Completed { .. } | Self::Resolving {} | Self::Demoted {} => true,
            Self::Started { .. }
            | Self::PlacementFailed { .. }
            | Self::CallbackTried { .. }
            | Self::Deleted {} => false,
        }
    }
}
