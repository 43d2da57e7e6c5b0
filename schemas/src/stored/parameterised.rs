//! Stored events of parameterised tasks, in every version.

use std::collections::BTreeSet;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mirror::{Mirror, mirror};
use super::parts::{Secret, Variable};
use super::task::TaskDefinition;
use crate::definition::{Overflow, PayloadRule};
use crate::names::{DispatchKey, Domain, ParameterisedGuid, TaskGuid};
use crate::parameterised::WithdrawReason;
use crate::priority::Priority;
use crate::{definition, parameterised};

/// An event of a parameterised task.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ParameterisedEvent")]
pub enum Parameterised {
    /// The parameterised task was desired: a new epoch starts.
    #[serde(rename = "desired.v1")]
    DesiredV1 {
        /// Spec of the parameterised task.
        desired: Box<DesiredParameterised>,
    },
    /// The spec was replaced. The new spec applies from the next dispatch.
    #[serde(rename = "updated.v1")]
    UpdatedV1 {
        /// New spec.
        desired: Box<DesiredParameterised>,
    },
    /// A client dispatched the parameterised task. A task is launched immediately or after a wait.
    #[serde(rename = "dispatched.v1")]
    DispatchedV1 {
        /// Number of the dispatch, which is the version that this decision creates.
        number: u64,
        /// Payload, parameters and further values of the dispatch.
        dispatch: Box<Dispatch>,
        /// Old key that was dropped so that the key of this dispatch can be stored.
        evicted_key: Option<DispatchKey>,
    },
    /// A client repeated a dispatch with the same key. No task is created.
    #[serde(rename = "repeated.v1")]
    RepeatedV1 {
        /// Number of the first dispatch.
        number: u64,
    },
    /// A dispatch became a task. The same entry contains the event that desires the task.
    #[serde(rename = "launched.v1")]
    LaunchedV1 {
        /// Number of the dispatch.
        number: u64,
        /// GUID of the task.
        task_guid: TaskGuid,
    },
    /// Waiting dispatches were withdrawn. They never become tasks.
    #[serde(rename = "withdrawn.v1")]
    WithdrawnV1 {
        /// Numbers of the dispatches.
        numbers: Vec<u64>,
        /// Reason for the withdrawal.
        reason: WithdrawReason,
    },
    /// The parameterised task is no longer desired.
    #[serde(rename = "removed.v1")]
    RemovedV1 {},
}

/// A parameterised task as desired by a client.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DesiredParameterised {
    /// GUID of the parameterised task.
    pub parameterised_guid: ParameterisedGuid,
    /// Domain of the parameterised task.
    pub domain: Domain,
    /// Rule for the payload of a dispatch.
    pub payload: PayloadRule,
    /// Parameters that a dispatch must pass.
    pub required_parameters: BTreeSet<String>,
    /// Parameters that a dispatch may pass.
    pub optional_parameters: BTreeSet<String>,
    /// Maximum number of launched tasks that may be PENDING or RUNNING at once. `None` for no limit.
    pub concurrency: Option<u32>,
    /// Handling of a dispatch beyond `concurrency`.
    pub overflow: Overflow,
    /// Definition of the launched tasks, without the dispatched values.
    pub definition: Arc<TaskDefinition>,
}
mirror!(struct DesiredParameterised = definition::DesiredParameterised {
    parameterised_guid, domain, payload, required_parameters, optional_parameters, concurrency, overflow, definition,
});

/// A dispatch of a client.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Dispatch {
    /// Payload of the task, in base64.
    pub payload: Option<Secret>,
    /// Named parameters of the task, sorted by name.
    pub parameters: Vec<Variable>,
    /// Key of the dispatch. A dispatch with a known key is a repetition.
    pub key: Option<DispatchKey>,
    /// Priority of the task, 1 to 100. `None` for the priority of the template.
    pub priority: Option<Priority>,
}
mirror!(struct Dispatch = parameterised::Dispatch { payload, parameters, key, priority });

impl Mirror<parameterised::Event> for Parameterised {
    fn mirror(self) -> parameterised::Event {
        use parameterised::Event;
        match self {
            Self::DesiredV1 { desired } => Event::Desired { desired: desired.mirror() },
            Self::UpdatedV1 { desired } => Event::Updated { desired: desired.mirror() },
            Self::DispatchedV1 { number, dispatch, evicted_key } => {
                Event::Dispatched { number, dispatch: dispatch.mirror(), evicted_key }
            }
            Self::RepeatedV1 { number } => Event::Repeated { number },
            Self::LaunchedV1 { number, task_guid } => Event::Launched { number, task_guid },
            Self::WithdrawnV1 { numbers, reason } => Event::Withdrawn { numbers, reason: reason.mirror() },
            Self::RemovedV1 {} => Event::Removed {},
        }
    }
}

impl Mirror<Parameterised> for parameterised::Event {
    fn mirror(self) -> Parameterised {
        match self {
            Self::Desired { desired } => Parameterised::DesiredV1 { desired: desired.mirror() },
            Self::Updated { desired } => Parameterised::UpdatedV1 { desired: desired.mirror() },
            Self::Dispatched { number, dispatch, evicted_key } => {
                Parameterised::DispatchedV1 { number, dispatch: dispatch.mirror(), evicted_key }
            }
            Self::Repeated { number } => Parameterised::RepeatedV1 { number },
            Self::Launched { number, task_guid } => Parameterised::LaunchedV1 { number, task_guid },
            Self::Withdrawn { numbers, reason } => {
                Parameterised::WithdrawnV1 { numbers, reason: reason.mirror() }
            }
            Self::Removed {} => Parameterised::RemovedV1 {},
        }
    }
}

impl Parameterised {
    pub(super) const fn type_name(event: &parameterised::Event) -> &'static str {
        match event {
            parameterised::Event::Desired { .. } => "parameterised.desired.v1",
            parameterised::Event::Updated { .. } => "parameterised.updated.v1",
            parameterised::Event::Dispatched { .. } => "parameterised.dispatched.v1",
            parameterised::Event::Repeated { .. } => "parameterised.repeated.v1",
            parameterised::Event::Launched { .. } => "parameterised.launched.v1",
            parameterised::Event::Withdrawn { .. } => "parameterised.withdrawn.v1",
            parameterised::Event::Removed {} => "parameterised.removed.v1",
        }
    }
}
