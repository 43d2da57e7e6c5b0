//! Queries: reads that any BBS answers, on `muster.query.<root>.<noun>.<verb>`, in JSON. Each answer is read
//! from the World (the state folded from the log) and names the position of the World. A query may demand a
//! minimum position.
//!
//! This module contains the requests. [`rows`], [`periodic`], [`parameterised`] and [`status`] contain the
//! rows of lists and of single results. [`events`] contains reads of the log and of container logs. [`files`]
//! contains reads of container files. The crate `projections` derives the rows from the World.

pub mod as_of;
pub mod cursor;
pub mod events;
pub mod files;
pub mod filter;
pub mod parameterised;
pub mod periodic;
pub mod rows;
pub mod status;

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::as_of::{AsOf, Moment};
pub use self::cursor::Cursor;
pub use self::events::{
    EventsPage, Logs, ReadEntry, ReadEvents, ReadLogs, RecordedEntry, is_target, target_subject,
};
pub use self::files::{FileContent, FileEntry, FileKind, Files, ReadFiles};
pub use self::filter::{Filter, FilterField};
pub use self::parameterised::ParameterisedRow;
pub use self::periodic::{PeriodicRow, PeriodicState};
pub use self::rows::{
    CellRow, CellState, ClusterRow, DomainRow, DomainUseRow, EndedInstanceRow, EndedTaskRow, EvaluationRow,
    EvaluationState, EvaluationSubject, InstancePresence, InstanceRow, InstanceState, LrpRow,
    ModificationTag, QuarantinedEntries, QuarantinedEntry, QueuePosition, RolloutRow, TaskRow, TaskState,
};
pub use self::status::{
    AppendProblem, ClockSkew, ClocksRow, Finding, FindingCode, Health, LogRow, ServiceRow, Services,
    Severity, StatusRow,
};
use crate::message::Record;
use crate::names::CellId;
use crate::subject::Position;

/// Request for a single row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Show {
    /// Name of the row. For an instance, `PROCESS/INDEX` or an instance guid. For an evaluation, the
    /// evaluation id.
    pub id: String,
    /// Minimum position of the World that the answer is read from.
    #[serde(default)]
    pub at_least: Option<Position>,
    /// Moment in the past to read from: a position such as `41`, a time such as `2026-10-02T14:00:00Z`, or a
    /// duration before now such as `-10m`. The answer contains the position that was read. Mutually exclusive
    /// with `at_least`.
    #[serde(default)]
    pub as_of: Option<AsOf>,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PageOf{T}", transform = require_next)]
pub struct Page<T> {
    /// Position of the World that the page was read from.
    pub position: Position,
    /// Rows sorted by name.
    pub rows: Vec<T>,
    /// Cursor of the next page. `None` if this is the last page.
    pub next: Option<String>,
}

/// Requires the cursor in the schema: a page always contains it, and `null` ends the list.
fn require_next(schema: &mut Schema) {
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.push("next".into());
    }
}

/// A single row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Single{T}")]
pub struct ShowAnswer<T> {
    /// Position of the World that the row was read from.
    pub position: Position,
    /// The row.
    pub row: T,
}

/// A rep's query for its cell's records. `muster.query.<root>.cell.records`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    /// Cell of the rep. The answer includes every record that names this cell.
    pub cell_id: CellId,
    /// Further records to return, for containers that exist on the cell.
    pub work: Vec<crate::container::WorkKey>,
    /// Minimum position of the World that the answer is read from.
    pub at_least: Option<Position>,
}

/// The answer to [`Records`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordsAnswer {
    /// Position of the World that the answer was read from.
    pub position: Position,
    /// Highest terms in the log at `position`. A rep accepts a leader of the next term at most.
    pub terms: crate::cluster::Terms,
    /// State of the cell's evacuation. A rep that starts accepts no work before it knows this state.
    pub evacuation: crate::cell::Evacuation,
    /// Every record that names the cell, and each requested record that exists.
    pub records: Vec<Record>,
}
