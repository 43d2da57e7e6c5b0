//! What is stored of parameterised tasks: every version of every event.

use std::collections::BTreeSet;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mirror::{Mirror, mirror};
use super::parts::{Secret, Variable};
use super::task::TaskDefinition;
use crate::names::{DispatchKey, Domain, ParameterisedGuid, TaskGuid};
use crate::rank::Priority;
use crate::{definition, parameterised};

/// Events of parameterised tasks.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ParameterisedEvent")]
pub enum Parameterised {
    /// It was desired: a new epoch begins.
    #[serde(rename = "desired.v1")]
    DesiredV1 {
        /// As what.
        desired: Box<DesiredParameterised>,
    },
    /// It is another one from the next dispatch on.
    #[serde(rename = "updated.v1")]
    UpdatedV1 {
        /// As what.
        desired: Box<DesiredParameterised>,
    },
    /// Somebody dispatched it: a task follows at once, or when it is its turn.
    #[serde(rename = "dispatched.v1")]
    DispatchedV1 {
        /// Its number: the version that this decision makes.
        number: u64,
        /// What was dispatched.
        dispatch: Box<Dispatch>,
        /// The key that is forgotten for its key.
        forgets: Option<DispatchKey>,
    },
    /// Somebody dispatched again, by its key, what has this number: nothing is made.
    #[serde(rename = "repeated.v1")]
    RepeatedV1 {
        /// The number of the first dispatch.
        number: u64,
    },
    /// A dispatch became a task, which the same entry desires.
    #[serde(rename = "launched.v1")]
    LaunchedV1 {
        /// The number of the dispatch.
        number: u64,
        /// The task.
        task_guid: TaskGuid,
    },
    /// Dispatches that waited become no tasks.
    #[serde(rename = "withdrawn.v1")]
    WithdrawnV1 {
        /// Their numbers.
        numbers: Vec<u64>,
        /// Why.
        reason: WithdrawReason,
    },
    /// It is no longer desired.
    #[serde(rename = "removed.v1")]
    RemovedV1 {},
}

/// A parameterised task as a client desired it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DesiredParameterised {
    /// Names it.
    pub parameterised_guid: ParameterisedGuid,
    /// Its domain.
    pub domain: Domain,
    /// Whether a dispatch has a payload.
    pub payload: PayloadRule,
    /// The parameters that a dispatch must give.
    pub required_parameters: BTreeSet<String>,
    /// The parameters that it may give.
    pub optional_parameters: BTreeSet<String>,
    /// How many of its tasks may be PENDING or RUNNING at once; none: any number.
    pub concurrency: Option<u32>,
    /// What becomes of a dispatch beyond that.
    pub overflow: Overflow,
    /// What each task of it runs, without what is dispatched.
    pub definition: Arc<TaskDefinition>,
}
mirror!(struct DesiredParameterised = definition::DesiredParameterised {
    parameterised_guid, domain, payload, required_parameters, optional_parameters, concurrency, overflow, definition,
});

/// What a client dispatched.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Dispatch {
    /// Bytes for the task, in base64.
    pub payload: Option<Secret>,
    /// Named values for the task, in order of their names.
    pub parameters: Vec<Variable>,
    /// The same key again is the same dispatch.
    pub key: Option<DispatchKey>,
    /// How urgent the task is, 1 to 100; none: as the template says.
    pub priority: Option<Priority>,
}
mirror!(struct Dispatch = parameterised::Dispatch { payload, parameters, key, priority });

/// Whether a dispatch has a payload.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PayloadRule {
    /// It must have one.
    Required,
    /// It may have one.
    Optional,
    /// It must have none.
    Forbidden,
}
mirror!(enum PayloadRule = definition::PayloadRule { Required, Optional, Forbidden });

/// What becomes of a dispatch while as many tasks are PENDING or RUNNING as may.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// It waits for its turn.
    Queued,
    /// It is refused.
    Refused,
}
mirror!(enum Overflow = definition::Overflow { Queued, Refused });

/// Why a dispatch became no task.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WithdrawReason {
    /// Somebody withdrew it while it waited.
    Asked,
    /// The parameterised task was removed while it waited.
    Removed,
}
mirror!(enum WithdrawReason = parameterised::WithdrawReason { Asked, Removed });

impl Mirror<parameterised::Event> for Parameterised {
    fn mirror(self) -> parameterised::Event {
        use parameterised::Event;
        match self {
            Self::DesiredV1 { desired } => Event::Desired { desired: desired.mirror() },
            Self::UpdatedV1 { desired } => Event::Updated { desired: desired.mirror() },
            Self::DispatchedV1 { number, dispatch, forgets } => {
                Event::Dispatched { number, dispatch: dispatch.mirror(), forgets }
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
            Self::Dispatched { number, dispatch, forgets } => {
                Parameterised::DispatchedV1 { number, dispatch: dispatch.mirror(), forgets }
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
