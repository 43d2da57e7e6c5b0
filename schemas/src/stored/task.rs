//! Stored events of tasks, in every version.

use std::sync::Arc;

use super::conversion::{By, Stored, stored};
use super::parts::{Action, Constraint, Explanation, Instance, Sandbox, Secret, Variable};
use crate::isolation::Isolation;
use crate::names::{Domain, TaskGuid};
use crate::priority::Priority;
use crate::{definition, task};

stored! {
    /// An event of a task.
    #[schemars(rename = "TaskEvent")]
    pub enum Task("task") = task::Event {
        /// The task was desired: a new epoch starts.
        "desired.v1": DesiredV1(task: Box<DesiredTask>) = Desired,
        /// A cell runs the task.
        "started.v1": StartedV1 {
            /// Container of the task.
            by: Instance,
            /// Explanation of the placement.
            placement: Option<Box<Explanation>>,
            /// Isolation of the container.
            #[serde(default)]
            isolation: Isolation,
        } = Started,
        /// The task could not be placed and waits for free resources.
        "placement_failed.v1": PlacementFailedV1 {
            /// Placement error, as shown to users.
            error: String,
            /// Explanation of the failure by cell.
            explanation: Option<Box<Explanation>>,
        } = PlacementFailed,
        /// The task ended.
        "completed.v1": CompletedV1 {
            /// Container that ran the task. `None` if the task never ran.
            by: Option<Instance>,
            /// Outcome of the task.
            outcome: Outcome,
            /// Explanation by cell, if the task could not be placed.
            explanation: Option<Box<Explanation>>,
        } = Completed,
        /// The task is being resolved.
        "resolving.v1": ResolvingV1 {} = Resolving,
        /// The completion callback of the task was tried.
        "callback_tried.v1": CallbackTriedV1 {
            /// Number of the attempt within the epoch, from 1.
            attempt: u32,
            /// Outcome of the attempt.
            outcome: CallbackOutcome,
        } = CallbackTried,
        /// The task was not resolved in time and is COMPLETED again.
        "demoted.v1": DemotedV1 {} = Demoted,
        /// The task was deleted.
        "deleted.v1": DeletedV1 {} = Deleted,
    }
}

stored! {
    /// A task as desired by a client.
    pub struct DesiredTask = definition::DesiredTask {
        /// GUID of the task.
        pub task_guid: TaskGuid,
        /// Domain of the task.
        pub domain: Domain,
        /// Definition of the task.
        pub definition: Arc<TaskDefinition>,
    }
}

stored! {
    /// The content and the requirements of a task.
    #[schemars(rename = "StoredTaskDefinition")]
    pub struct TaskDefinition = definition::TaskDefinition {
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
        /// File whose content is the result of the task, relative to the work directory. Empty if the task
        /// has no result.
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
}

stored! {
    /// The handling of a task that cannot be placed.
    #[serde(rename_all = "snake_case")]
    pub enum Placement = definition::Placement {
        /// The task fails immediately with the reason.
        Fail = Fail,
        /// The task waits for free resources until a deadline, and fails at the deadline.
        Queue {
            /// Time from the creation of the task to the deadline, in milliseconds.
            deadline_ms: u64,
        } = Queue,
    }
}

stored! {
    /// The outcome of a task.
    #[serde(rename_all = "snake_case")]
    pub enum Outcome = task::Outcome {
        /// The task succeeded.
        Succeeded {
            /// Content of the result file.
            result: String,
        } = Succeeded,
        /// The task failed.
        Failed {
            /// Reason for the failure.
            reason: String,
        } = Failed,
    }
}

stored! {
    /// The outcome of one completion callback.
    #[schemars(rename = "CallbackResult")]
    #[serde(rename_all = "snake_case")]
    pub enum CallbackOutcome = task::CallbackResult {
        /// The server answered with this status.
        Answered(status: u16) = Answered,
        /// The server did not answer, for this reason.
        Failed(why: String) = Failed,
        /// The server was not called, because the BBS may not call this URL. Holds the reason.
        Refused(why: String) = Refused,
    }
}
