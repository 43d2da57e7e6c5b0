//! Stored events of parameterised tasks, in every version.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::conversion::{By, Stored, stored};
use super::parts::{Secret, Variable};
use super::task::TaskDefinition;
use crate::definition::{Overflow, PayloadRule};
use crate::names::{DispatchKey, Domain, ParameterisedGuid, TaskGuid};
use crate::parameterised::WithdrawReason;
use crate::priority::Priority;
use crate::{definition, parameterised};

stored! {
    /// An event of a parameterised task.
    #[schemars(rename = "ParameterisedEvent")]
    pub enum Parameterised("parameterised") = parameterised::Event {
        /// The parameterised task was desired: a new epoch starts.
        "desired.v1": DesiredV1 {
            /// Spec of the parameterised task.
            desired: Box<DesiredParameterised>,
        } = Desired,
        /// The spec was replaced. The new spec applies from the next dispatch.
        "updated.v1": UpdatedV1 {
            /// New spec.
            desired: Box<DesiredParameterised>,
        } = Updated,
        /// A client dispatched the parameterised task. A task is launched immediately or after a wait.
        "dispatched.v1": DispatchedV1 {
            /// Number of the dispatch, which is the version that this decision creates.
            number: u64,
            /// Payload, parameters and further values of the dispatch.
            dispatch: Box<Dispatch>,
            /// Old key that was dropped so that the key of this dispatch can be stored.
            evicted_key: Option<DispatchKey>,
        } = Dispatched,
        /// A client repeated a dispatch with the same key. No task is created.
        "repeated.v1": RepeatedV1 {
            /// Number of the first dispatch.
            number: u64,
        } = Repeated,
        /// A dispatch became a task. The same entry contains the event that desires the task.
        "launched.v1": LaunchedV1 {
            /// Number of the dispatch.
            number: u64,
            /// GUID of the task.
            task_guid: TaskGuid,
        } = Launched,
        /// Waiting dispatches were withdrawn. They never become tasks.
        "withdrawn.v1": WithdrawnV1 {
            /// Numbers of the dispatches.
            numbers: Vec<u64>,
            /// Reason for the withdrawal.
            reason: WithdrawReason,
        } = Withdrawn,
        /// The parameterised task is no longer desired.
        "removed.v1": RemovedV1 {} = Removed,
    }
}

stored! {
    /// A parameterised task as desired by a client.
    pub struct DesiredParameterised = definition::DesiredParameterised {
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
}

stored! {
    /// A dispatch of a client.
    pub struct Dispatch = parameterised::Dispatch {
        /// Payload of the task, in base64.
        pub payload: Option<Secret>,
        /// Named parameters of the task, sorted by name.
        pub parameters: Vec<Variable>,
        /// Key of the dispatch. A dispatch with a known key is a repetition.
        pub key: Option<DispatchKey>,
        /// Priority of the task, 1 to 100. `None` for the priority of the template.
        pub priority: Option<Priority>,
    }
}
