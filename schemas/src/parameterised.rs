//! Commands and events of parameterised tasks, and their dispatches.

use data_encoding::BASE64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::action::{Secret, Variable};
use crate::definition::{DesiredParameterised, TaskDefinition};
use crate::names::{DispatchKey, ParameterisedGuid, TaskGuid};
use crate::priority::Priority;

/// Environment variable with the payload, set if the payload is text.
const PAYLOAD_VARIABLE: &str = "MUSTER_PAYLOAD";

/// Environment variable with the payload in base64.
const PAYLOAD_BASE64_VARIABLE: &str = "MUSTER_PAYLOAD_BASE64";

/// Prefix of the environment variables with the parameters.
const PARAMETER_PREFIX: &str = "MUSTER_PARAM_";

/// Environment variable with the guid of the template.
const TEMPLATE_VARIABLE: &str = "MUSTER_PARAMETERISED_GUID";

/// Environment variable with the key of the dispatch.
const KEY_VARIABLE: &str = "MUSTER_DISPATCH_KEY";

/// Content of a dispatch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Dispatch {
    /// Payload for the task, at most 16 KiB, in base64 with padding.
    pub payload: Option<Secret>,
    /// Named values for the task, sorted by name: at most 64 of at most 16 KiB together. They cannot be secret.
    pub parameters: Vec<Variable>,
    /// Idempotency key. A dispatch with a known key refers to the earlier dispatch.
    pub key: Option<DispatchKey>,
    /// Priority of the task. If unset, the priority of the template applies.
    pub priority: Option<Priority>,
}

/// Summary of a dispatch, as shown to clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DispatchSummary {
    /// Dispatch number.
    pub number: u64,
    /// Guid of the task. The task exists only after the dispatch was launched.
    pub task_guid: TaskGuid,
    /// Idempotency key that the client chose.
    pub key: Option<DispatchKey>,
    /// Time of the dispatch.
    pub at: Timestamp,
}

/// Reason that a dispatch did not become a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WithdrawReason {
    /// A client withdrew the dispatch while it waited.
    Requested,
    /// The parameterised task was removed while the dispatch waited.
    Removed,
}

/// Command for a parameterised task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Desire(Box<DesiredParameterised>),
    /// Replaces the template. The change applies to later dispatches.
    Update(Box<DesiredParameterised>),
    /// Makes one task from the template.
    Dispatch(Box<Dispatch>),
    /// Withdraws the waiting dispatch with this number.
    Withdraw(u64),
    /// Removes the template and withdraws the waiting dispatches. Launched tasks keep running.
    Remove,
    /// Launches the oldest waiting dispatch if another task may run.
    Converge,
}

/// Event of a parameterised task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Starts a new epoch.
    Desired {
        desired: Box<DesiredParameterised>,
    },
    /// Replaces the template. The change applies to later dispatches.
    Updated {
        desired: Box<DesiredParameterised>,
    },
    /// A client dispatched a task. The task is launched at once, or after the earlier dispatches in the
    /// queue.
    Dispatched {
        /// Number of the dispatch: the version of the parameterised task after this decision.
        number: u64,
        dispatch: Box<Dispatch>,
        /// Oldest remembered key, which is forgotten because the number of remembered keys is limited.
        evicted_key: Option<DispatchKey>,
    },
    /// A client repeated a dispatch with a known key. No task is created, and the answer to the request is
    /// remembered.
    Repeated {
        /// Number of the first dispatch.
        number: u64,
    },
    /// A dispatch became a task. The same log entry creates that task.
    Launched {
        number: u64,
        task_guid: TaskGuid,
    },
    /// Waiting dispatches will not become tasks.
    Withdrawn {
        /// Numbers of the dispatches.
        numbers: Vec<u64>,
        reason: WithdrawReason,
    },
    Removed {},
}

impl Dispatch {
    /// Returns a digest of the content without the key. Different digests show that a client reused a key for
    /// different content.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let Self { payload, parameters, key: _, priority } = self;
        let text = serde_json::to_string(&(payload, parameters, priority)).unwrap_or_default();
        crate::subject::fnv_1a(&text)
    }

    /// Returns the payload as bytes, or `None` if the dispatch has no payload or the payload cannot be
    /// decoded.
    #[must_use]
    pub fn payload_bytes(&self) -> Option<Vec<u8>> {
        BASE64.decode(self.payload.as_ref()?.plain()?.as_bytes()).ok()
    }

    /// Returns the environment variables that the dispatch adds to its task: the guid of the template, the
    /// key, the payload and the parameters. The payload is added in base64. A payload in UTF-8 without NUL is
    /// also added as text. The names of parameters get the prefix `MUSTER_PARAM_`.
    #[must_use]
    pub fn environment(&self, of: &ParameterisedGuid) -> Vec<Variable> {
        let variable = |name: &str, value| Variable { name: name.into(), value };
        let plain = |text: &str| Secret::Plain(text.into());
        let mut all = vec![variable(TEMPLATE_VARIABLE, plain(of.as_str()))];
        all.extend(self.key.as_ref().map(|key| variable(KEY_VARIABLE, plain(key.as_str()))));
        all.extend(self.payload.clone().map(|payload| variable(PAYLOAD_BASE64_VARIABLE, payload)));
        let text = self.payload_bytes().and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.filter(|text| !text.contains('\0'));
        all.extend(text.map(|text| variable(PAYLOAD_VARIABLE, Secret::Plain(text.into()))));
        let parameter =
            |one: &Variable| variable(&format!("{PARAMETER_PREFIX}{}", one.name), one.value.clone());
        all.extend(self.parameters.iter().map(parameter));
        all
    }

    /// Returns the environment of the task. Variables of the dispatch override variables of the template.
    #[must_use]
    pub fn merged_environment(&self, of: &ParameterisedGuid, template: &TaskDefinition) -> Vec<Variable> {
        let own = self.environment(of);
        let said = |one: &&Variable| own.iter().all(|other| other.name != one.name);
        let mut all: Vec<Variable> = template.environment_variables.iter().filter(said).cloned().collect();
        all.extend(own);
        all
    }
}
