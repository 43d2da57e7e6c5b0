//! What is stored of tasks: every version of every event.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mirror::{Mirror, mirror};
use super::parts::{Action, Constraint, Explanation, Instance, Sandbox, Secret, Variable};
use crate::isolation::Isolation;
use crate::names::{Domain, TaskGuid};
use crate::rank::Priority;
use crate::{definition, task};

/// Events of tasks.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TaskEvent")]
pub enum Task {
    /// It was desired: a new epoch begins.
    #[serde(rename = "desired.v1")]
    DesiredV1(Box<DesiredTask>),
    /// A cell runs it.
    #[serde(rename = "started.v1")]
    StartedV1 {
        /// The container.
        by: Instance,
        /// Why there.
        placement: Option<Box<Explanation>>,
        /// How it is kept apart.
        #[serde(default)]
        isolation: Isolation,
    },
    /// It could not be placed and waits for room.
    #[serde(rename = "placement_failed.v1")]
    PlacementFailedV1 {
        /// Why, as users read it.
        error: String,
        /// Why, cell by cell.
        explanation: Option<Box<Explanation>>,
    },
    /// It ended.
    #[serde(rename = "completed.v1")]
    CompletedV1 {
        /// The container that ran it, if one did.
        by: Option<Instance>,
        /// Its outcome.
        outcome: Outcome,
        /// Why, cell by cell, if it could not be placed.
        explanation: Option<Box<Explanation>>,
    },
    /// Somebody resolves it.
    #[serde(rename = "resolving.v1")]
    ResolvingV1 {},
    /// Its owner was called.
    #[serde(rename = "callback_tried.v1")]
    CallbackTriedV1 {
        /// The how manieth call of this life it was, from 1.
        attempt: u32,
        /// What came of it.
        called: Called,
    },
    /// Nobody finished resolving it.
    #[serde(rename = "demoted.v1")]
    DemotedV1 {},
    /// It is gone.
    #[serde(rename = "deleted.v1")]
    DeletedV1 {},
}

/// A task as a client desired it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DesiredTask {
    /// Names the task.
    pub task_guid: TaskGuid,
    /// Its domain.
    pub domain: Domain,
    /// What it runs.
    pub definition: Arc<TaskDefinition>,
}
mirror!(struct DesiredTask = definition::DesiredTask { task_guid, domain, definition });

/// What a task runs and needs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TaskDefinition {
    /// Which cells may take it.
    pub constraint: Constraint,
    /// Environment of everything that runs in the container.
    pub environment_variables: Vec<Variable>,
    /// What is run, once.
    pub action: Action,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Disk in MiB.
    pub disk_mb: u64,
    /// Share of the processor relative to others, 1 to 1024; 0: the cell's usual share.
    pub cpu_weight: u32,
    /// The file whose content is the task's result, relative to the work directory; empty: no result.
    pub result_file: String,
    /// Where the completed task is posted to; none: it waits to be resolved.
    pub completion_callback_url: Option<Secret>,
    /// The consumer's own text.
    pub annotation: String,
    /// How urgent it is, 1 to 100: whose priority is greater is placed first.
    pub priority: Priority,
    /// What becomes of the task while no cell can take it.
    pub placement: Placement,
    /// Time between TERM and KILL when it is cancelled, in milliseconds.
    pub grace_period_ms: u64,
    /// What of its surroundings is not as usual; none: all is.
    pub sandbox: Option<Arc<Sandbox>>,
}
mirror!(struct TaskDefinition = definition::TaskDefinition {
    constraint, environment_variables, action, memory_mb, disk_mb, cpu_weight, result_file,
    completion_callback_url, annotation, priority, placement, grace_period_ms, sandbox,
});

/// What becomes of a task that can't be placed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// It fails at once with the reason.
    Fail,
    /// It waits from its creation for room, and only then fails.
    Queue {
        /// How long it waits, in milliseconds.
        deadline_ms: u64,
    },
}
mirror!(enum Placement = definition::Placement { Fail, Queue { deadline_ms } });

/// The outcome of a task.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It succeeded.
    Succeeded {
        /// The content of its result file.
        result: String,
    },
    /// It failed.
    Failed {
        /// Why.
        reason: String,
    },
}
mirror!(enum Outcome = task::Outcome { Succeeded { result }, Failed { reason } });

/// What came of one completion callback.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Called {
    /// The server answered with this status.
    Answered(u16),
    /// It did not answer, and why.
    Failed(String),
    /// It was not called: the BBS may not call there, and why.
    Refused(String),
}
mirror!(enum Called = task::Called { Answered(status), Failed(why), Refused(why) });

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
            Self::CallbackTriedV1 { attempt, called } => {
                Event::CallbackTried { attempt, called: called.mirror() }
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
            Self::CallbackTried { attempt, called } => {
                Task::CallbackTriedV1 { attempt, called: called.mirror() }
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
