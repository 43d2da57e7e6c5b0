//! Stored events of tasks, in every version.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mirror::{Mirror, mirror};
use super::parts::{Action, Constraint, Explanation, Instance, Sandbox, Secret, Variable};
use crate::isolation::Isolation;
use crate::names::{Domain, TaskGuid};
use crate::priority::Priority;
use crate::{definition, task};

/// An event of a task.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TaskEvent")]
pub enum Task {
    /// The task was desired: a new epoch starts.
    #[serde(rename = "desired.v1")]
    DesiredV1(Box<DesiredTask>),
    /// A cell runs the task.
    #[serde(rename = "started.v1")]
    StartedV1 {
        /// Container of the task.
        by: Instance,
        /// Explanation of the placement.
        placement: Option<Box<Explanation>>,
        /// Isolation of the container.
        #[serde(default)]
        isolation: Isolation,
    },
    /// The task could not be placed and waits for free resources.
    #[serde(rename = "placement_failed.v1")]
    PlacementFailedV1 {
        /// Placement error, as shown to users.
        error: String,
        /// Explanation of the failure by cell.
        explanation: Option<Box<Explanation>>,
    },
    /// The task ended.
    #[serde(rename = "completed.v1")]
    CompletedV1 {
        /// Container that ran the task. `None` if the task never ran.
        by: Option<Instance>,
        /// Outcome of the task.
        outcome: Outcome,
        /// Explanation by cell, if the task could not be placed.
        explanation: Option<Box<Explanation>>,
    },
    /// The task is being resolved.
    #[serde(rename = "resolving.v1")]
    ResolvingV1 {},
    /// The completion callback of the task was tried.
    #[serde(rename = "callback_tried.v1")]
    CallbackTriedV1 {
        /// Number of the attempt within the epoch, from 1.
        attempt: u32,
        /// Outcome of the attempt.
        outcome: CallbackOutcome,
    },
    /// The task was not resolved in time and is COMPLETED again.
    #[serde(rename = "demoted.v1")]
    DemotedV1 {},
    /// The task was deleted.
    #[serde(rename = "deleted.v1")]
    DeletedV1 {},
}

/// A task as desired by a client.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DesiredTask {
    /// GUID of the task.
    pub task_guid: TaskGuid,
    /// Domain of the task.
    pub domain: Domain,
    /// Definition of the task.
    pub definition: Arc<TaskDefinition>,
}
mirror!(struct DesiredTask = definition::DesiredTask { task_guid, domain, definition });

/// The content and the requirements of a task.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StoredTaskDefinition")]
pub struct TaskDefinition {
    /// Constraint on the cells that may run the task.
    pub constraint: Constraint,
    /// Environment of every program in the container.
    pub environment_variables: Vec<Variable>,
    /// Action that is run once.
    pub action: Action,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Disk in MiB.
    pub disk_mb: u64,
    /// Share of the processor relative to other containers, 1 to 1024. 0 for the default of the cell.
    pub cpu_weight: u32,
    /// File whose content is the result of the task, relative to the work directory. Empty if the task has no
    /// result.
    pub result_file: String,
    /// URL that the completed task is posted to. `None` if the task waits to be resolved.
    pub completion_callback_url: Option<Secret>,
    /// Free text of the client.
    pub annotation: String,
    /// Priority, 1 to 100. Higher priorities are placed first.
    pub priority: Priority,
    /// Handling of the task while no cell can run it.
    pub placement: Placement,
    /// Time between TERM and KILL when the task is cancelled, in milliseconds.
    pub grace_period_ms: u64,
    /// Settings of the container's environment. `None` for the defaults.
    pub sandbox: Option<Arc<Sandbox>>,
}
mirror!(struct TaskDefinition = definition::TaskDefinition {
    constraint, environment_variables, action, memory_mb, disk_mb, cpu_weight, result_file,
    completion_callback_url, annotation, priority, placement, grace_period_ms, sandbox,
});

/// The handling of a task that cannot be placed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// The task fails immediately with the reason.
    Fail,
    /// The task waits for free resources until a deadline, and fails at the deadline.
    Queue {
        /// Time from the creation of the task to the deadline, in milliseconds.
        deadline_ms: u64,
    },
}
mirror!(enum Placement = definition::Placement { Fail, Queue { deadline_ms } });

/// The outcome of a task.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The task succeeded.
    Succeeded {
        /// Content of the result file.
        result: String,
    },
    /// The task failed.
    Failed {
        /// Reason for the failure.
        reason: String,
    },
}
mirror!(enum Outcome = task::Outcome { Succeeded { result }, Failed { reason } });

/// The outcome of one completion callback.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "CallbackResult")]
#[serde(rename_all = "snake_case")]
pub enum CallbackOutcome {
    /// The server answered with this status.
    Answered(u16),
    /// The server did not answer, for this reason.
    Failed(String),
    /// The server was not called, because the BBS may not call this URL. Holds the reason.
    Refused(String),
}
mirror!(enum CallbackOutcome = task::CallbackResult { Answered(status), Failed(why), Refused(why) });

impl Mirror<task::Event> for Task {
    fn mirror(self) -> task::Event {
        use task::Event;
        match self {
            Self::DesiredV1(task) => Event::Desired(task.mirror()),
            Self::StartedV1 { by, placement, isolation } => {
                Event::Started { by: by.mirror(), placement: placement.mirror(), isolation }
            }
            Self::PlacementFailedV1 { error, explanation } => {
                Event::PlacementFailed { error, explanation: explanation.mirror() }
            }
            Self::CompletedV1 { by, outcome, explanation } => Event::Completed {
                by: by.mirror(),
                outcome: outcome.mirror(),
                explanation: explanation.mirror(),
            },
            Self::ResolvingV1 {} => Event::Resolving {},
            Self::CallbackTriedV1 { attempt, outcome: called } => {
                Event::CallbackTried { attempt, outcome: called.mirror() }
            }
            Self::DemotedV1 {} => Event::Demoted {},
            Self::DeletedV1 {} => Event::Deleted {},
        }
    }
}

impl Mirror<Task> for task::Event {
    fn mirror(self) -> Task {
        match self {
            Self::Desired(task) => Task::DesiredV1(task.mirror()),
            Self::Started { by, placement, isolation } => {
                Task::StartedV1 { by: by.mirror(), placement: placement.mirror(), isolation }
            }
            Self::PlacementFailed { error, explanation } => {
                Task::PlacementFailedV1 { error, explanation: explanation.mirror() }
            }
            Self::Completed { by, outcome, explanation } => Task::CompletedV1 {
                by: by.mirror(),
                outcome: outcome.mirror(),
                explanation: explanation.mirror(),
            },
            Self::Resolving {} => Task::ResolvingV1 {},
            Self::CallbackTried { attempt, outcome: called } => {
                Task::CallbackTriedV1 { attempt, outcome: called.mirror() }
            }
            Self::Demoted {} => Task::DemotedV1 {},
            Self::Deleted {} => Task::DeletedV1 {},
        }
    }
}

impl Task {
    pub(super) const fn type_name(event: &task::Event) -> &'static str {
        match event {
            task::Event::Desired(_) => "task.desired.v1",
            task::Event::Started { .. } => "task.started.v1",
            task::Event::PlacementFailed { .. } => "task.placement_failed.v1",
            task::Event::Completed { .. } => "task.completed.v1",
            task::Event::Resolving {} => "task.resolving.v1",
            task::Event::CallbackTried { .. } => "task.callback_tried.v1",
            task::Event::Demoted {} => "task.demoted.v1",
            task::Event::Deleted {} => "task.deleted.v1",
        }
    }
}
