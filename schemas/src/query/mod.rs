//! Queries: reads that any BBS answers, on `muster.query.<root>.<noun>.<verb>`, in JSON. Each answer names the position at
//! which it stands, and a query may ask for at least a position.
//!
//! What is asked stands here; [`rows`], [`periodic`], [`parameterised`] and [`status`] hold what lists and shows answer, [`events`] what is read of the log and of
//! containers, [`files`] what is read of their files. How a row comes from the World is documented where the World is: in `projections`.

pub mod as_of;
pub mod cursor;
pub mod events;
pub mod files;
pub mod parameterised;
pub mod periodic;
pub mod rows;
pub mod status;

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::as_of::{AsOf, Moment};
pub use self::cursor::Cursor;
pub use self::events::{
    EventsPage, Logs, ReadEntry, ReadEvents, ReadLogs, RecordedEntry, is_about, subject_about,
};
pub use self::files::{FileEntry, FileKind, Files, FoundFile, ReadFiles};
pub use self::parameterised::ParameterisedRow;
pub use self::periodic::{PeriodicRow, PeriodicState};
pub use self::rows::{
    CellRow, CellState, ClusterRow, DomainRow, DomainUseRow, EndedInstanceRow, EndedTaskRow, EvaluationRow,
    EvaluationState, EvaluationSubject, InstancePresence, InstanceRow, InstanceState, LrpRow,
    MalformedEntries, MalformedEntry, ModificationTag, RolloutRow, TaskRow, TaskState, Turn,
};
pub use self::status::{
    AppendTrouble, ClockOff, ClocksRow, Finding, FindingCode, Health, LogRow, ServiceRow, Services, Severity,
    StatusRow,
};
use crate::message::Record;
use crate::names::{CellId, Domain, ProcessGuid};
use crate::subject::Position;

/// What lists filter by, and how they are paged. All may be left out; what a list can't filter by is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Only of this domain.
    pub domain: Option<Domain>,
    /// Only of this process.
    pub process_guid: Option<ProcessGuid>,
    /// Only of these processes, at most 1,000. Not together with `process_guid`.
    pub process_guids: BTreeSet<ProcessGuid>,
    /// Only on this cell.
    pub cell_id: Option<CellId>,
    /// Only of this index of the process.
    pub index: Option<u32>,
    /// Of instances: both records of an index that is being evacuated, and not only the one that counts: the
    /// EVACUATING one while the other is UNCLAIMED or CLAIMED, else the other.
    pub all: bool,
    /// Of processes, tasks, periodic and parameterised tasks: with their definitions.
    pub definitions: bool,
    /// Answer when the world stands at this position or later.
    pub at_least: Option<Position>,
    /// As of which moment of the past: a position, as `41`, a time, as `2026-10-02T14:00:00Z`, or a time ago, as `-10m`.
    /// The position of the answer says which that was. Not together with `at_least`.
    pub as_of: Option<AsOf>,
    /// Where the page begins: `next` of the one before, with otherwise the same filter.
    pub cursor: Option<String>,
    /// Rows on the page, at most 1,000.
    pub limit: Option<usize>,
}

/// What shows one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Show {
    /// Its name. Of an instance `PROCESS/INDEX` or an instance guid; of an evaluation its id.
    pub id: String,
    /// Answer when the world stands at this position or later.
    #[serde(default)]
    pub at_least: Option<Position>,
    /// As of which moment of the past: a position, as `41`, a time, as `2026-10-02T14:00:00Z`, or a time ago, as `-10m`.
    /// The position of the answer says which that was. Not together with `at_least`.
    #[serde(default)]
    pub as_of: Option<AsOf>,
}

/// One page of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Page<T> {
    /// Where the world stood.
    pub position: Position,
    /// The rows, in order of their names.
    pub rows: Vec<T>,
    /// Where the next page begins; none: this was the last.
    pub next: Option<String>,
}

/// One thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct One<T> {
    /// Where the world stood.
    pub position: Position,
    /// The thing.
    pub row: T,
}

/// What a rep asks of the records. `muster.query.<root>.cell.records`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    /// The cell: every record that names it is in the answer.
    pub cell_id: CellId,
    /// Further records, of containers that the cell has.
    pub work: Vec<crate::container::WorkKey>,
    /// Answer when the world stands at this position or later.
    pub at_least: Option<Position>,
}

/// The answer to [`Records`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordsAnswer {
    /// Where the world stood.
    pub position: Position,
    /// The highest terms that the log named then: a rep believes no leader of a later one than the next.
    pub terms: crate::cluster::Terms,
    /// Whether the cell is to be evacuated: a rep that starts takes no work before it knows.
    pub evacuation: crate::cell::Evacuation,
    /// Every record that names the cell, and one for each that was asked for, absent ones left out.
    pub records: Vec<Record>,
}
