//! Parameterised tasks as rows.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::container::Epoch;
use crate::definition::{Overflow, PayloadRule, TaskDefinition};
use crate::names::{Domain, ParameterisedGuid, TaskGuid};
use crate::parameterised::Dispatched;
use crate::subject::Position;

/// A parameterised task. `muster.query.<root>.parameterised.list` and `muster.query.<root>.parameterised.show`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ParameterisedRow {
    /// Its name.
    pub parameterised_guid: ParameterisedGuid,
    /// Its domain.
    pub domain: Domain,
    /// Which life; also when it was desired.
    pub epoch: Epoch,
    /// Decisions so far.
    pub version: u64,
    /// Where the last of them stands in the log.
    pub last_decision: Position,
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
    /// How many dispatches wait.
    pub waiting: u64,
    /// What waits, the oldest first; listed at most the first 16, shown all.
    pub queued: Vec<Dispatched>,
    /// How many of its tasks are PENDING or RUNNING.
    pub running: u64,
    /// Their guids in order, at most the first 16.
    pub tasks: Vec<TaskGuid>,
    /// The last dispatch.
    pub last: Option<Dispatched>,
    /// How many dispatches there were in this life.
    pub dispatched: u64,
    /// How many of them became tasks.
    pub launched: u64,
    /// How many of them were withdrawn.
    pub withdrawn: u64,
    /// When it was desired or updated.
    pub since: Timestamp,
    /// What each task of it runs, without what is dispatched; listed only if asked for.
    pub definition: Option<TaskDefinition>,
}
