//! History of ended containers and tasks, which queries show after the records are deleted (SwarmKit
//! orchestrators, "Task reaper"; docs/internals/model/history.md, "Ended containers and tasks").
//!
//! The history is folded from the log for display. No decision reads the history, so its size affects no
//! behaviour.

use serde::{Deserialize, Serialize};

use schemas::Timestamp;
use schemas::actual::StopReason;
use schemas::container::{Epoch, Instance};
use schemas::ended::EndKind;
use schemas::key::Place;
use schemas::names::{Domain, TaskGuid};
use schemas::task::{Callback, Outcome};

/// An ended container of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedInstance {
    pub place: Place,
    /// Container and its cell.
    pub by: Instance,
    /// Domain of the process.
    pub domain: Domain,
    /// Epoch of the process.
    pub epoch: Epoch,
    /// Time at which the container became RUNNING. `None` if the container was never RUNNING.
    pub started_at: Option<Timestamp>,
    /// Time of the container's end, according to the log.
    pub ended_at: Timestamp,
    pub end_kind: EndKind,
    /// Reason of the stop request, or `None` if there was none.
    pub stop_reason: Option<StopReason>,
    /// Reason of the crash. Empty if the container did not crash, or if the reason is unknown.
    pub reason: Box<str>,
    /// Exit status of the action. `None` if the crash has a different reason.
    pub exit_status: Option<i32>,
    /// Crash count of the index including this crash; 0 if the container did not crash.
    pub crash_count: u32,
}

/// A task that was deleted after its completion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedTask {
    pub guid: TaskGuid,
    pub domain: Domain,
    /// Epoch of the task, which is also the time of its creation.
    pub epoch: Epoch,
    /// Container that ran the task. `None` if no container ran the task.
    pub by: Option<Instance>,
    /// Time at which the task became RUNNING. `None` if the task was never RUNNING.
    pub started_at: Option<Timestamp>,
    pub completed_at: Timestamp,
    /// Outcome. A long result is truncated.
    pub outcome: Outcome,
    /// State of the completion callback. `None` if no call was attempted.
    pub callback: Option<Callback>,
    pub deleted_at: Timestamp,
    /// `true` if the task was resolved, `false` if it expired.
    pub resolved: bool,
}
