//! Rows of parameterised tasks.

use std::collections::BTreeSet;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::container::Epoch;
use crate::definition::{DesiredParameterised, Overflow, PayloadRule, TaskDefinition};
use crate::names::{Domain, ParameterisedGuid, TaskGuid};
use crate::parameterised::DispatchSummary;
use crate::subject::Position;

/// A parameterised task. `muster.query.<root>.parameterised.list` and `muster.query.<root>.parameterised.show`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ParameterisedRow {
    /// GUID of the parameterised task.
    pub parameterised_guid: ParameterisedGuid,
    /// Domain of the parameterised task.
    pub domain: Domain,
    /// Current epoch of the guid: the time when the parameterised task was created.
    pub epoch: Epoch,
    /// Number of decisions so far.
    pub version: u64,
    /// Position of the last decision in the log.
    pub last_decision: Position,
    /// Rule for the payload of a dispatch.
    pub payload: PayloadRule,
    /// Parameters that a dispatch must pass.
    pub required_parameters: BTreeSet<String>,
    /// Parameters that a dispatch may pass.
    pub optional_parameters: BTreeSet<String>,
    /// Maximum number of PENDING and RUNNING tasks of this parameterised task. `None` if unlimited.
    pub concurrency: Option<u32>,
    /// Handling of a dispatch beyond `concurrency`.
    pub overflow: Overflow,
    /// Number of dispatches that wait.
    pub waiting: u64,
    /// Waiting dispatches, the oldest first. The answer to `list` contains at most the first 16, the answer
    /// to `show` all of them.
    pub queued: Vec<DispatchSummary>,
    /// Number of PENDING and RUNNING tasks of this parameterised task.
    pub running: u64,
    /// GUIDs of the PENDING and RUNNING tasks in ascending order, at most the first 16.
    pub tasks: Vec<TaskGuid>,
    /// Latest dispatch.
    pub last: Option<DispatchSummary>,
    /// Number of dispatches in this epoch.
    pub dispatched: u64,
    /// Number of dispatches that became tasks in this epoch.
    pub launched: u64,
    /// Number of dispatches that were withdrawn in this epoch.
    pub withdrawn: u64,
    /// Time when the parameterised task was created or last updated.
    pub since: Timestamp,
    /// Definition of the launched tasks, without the dispatched values. Lists contain it only on request.
    pub definition: Option<TaskDefinition>,
}

impl ParameterisedRow {
    /// Returns the desired state of a self. `None` if the row has no definition.
    #[must_use]
    pub fn to_desired(&self) -> Option<DesiredParameterised> {
        Some(DesiredParameterised {
            parameterised_guid: self.parameterised_guid.clone(),
            domain: self.domain.clone(),
            payload: self.payload,
            required_parameters: self.required_parameters.clone(),
            optional_parameters: self.optional_parameters.clone(),
            concurrency: self.concurrency,
            overflow: self.overflow,
            definition: Arc::new(self.definition.clone()?),
        })
    }
}
