//! Queries that read the log and containers: journal entries after a position, and the output of a container.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::entry::{Aggregate, Entry};
use crate::limits;
use crate::names::{CellId, Domain, InstanceGuid, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid};
use crate::refusal::{BadField, Refusal};
use crate::subject::{Position, Subject};

/// Selects journal entries. `muster.query.<root>.events.read`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReadEvents {
    /// Position after which entries are read.
    pub after: Position,
    /// Maximum number of entries on the page, at most 1,000.
    pub limit: Option<usize>,
    /// Time to wait for an entry if there is none, in milliseconds, at most 30,000.
    pub wait_ms: Option<u64>,
    /// Target whose decisions are returned: `lrp:GUID`, `task:GUID`, `periodic:GUID`, `parameterised:GUID`,
    /// `cell:ID`, `domain:NAME` or `cluster`.
    pub target: Option<String>,
}

/// A journal entry with its position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecordedEntry {
    /// Position of the entry.
    pub position: Position,
    /// Subject of the entry.
    pub subject: String,
    /// The entry. A filtered read returns only the matching decisions.
    pub entry: ReadEntry,
}

/// The result of decoding a journal entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReadEntry {
    /// A decoded entry.
    Known(Entry),
    /// Bytes that the BBS could not decode.
    Unknown {
        /// Reason for the failure.
        reason: String,
        /// The bytes as text.
        raw: String,
    },
}

impl ReadEntry {
    /// Creates a [`ReadEntry::Unknown`] from bytes that could not be decoded. Keeps at most
    /// [`limits::EXPLANATION_BYTES`] of them.
    #[must_use]
    pub fn unknown(reason: String, bytes: &[u8]) -> Self {
        let raw = limits::truncate(&String::from_utf8_lossy(bytes), limits::EXPLANATION_BYTES);
        Self::Unknown { reason, raw }
    }
}

/// The answer to [`ReadEvents`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventsPage {
    /// Position from which to continue: the next `after`.
    pub next: Position,
    /// End of the journal at the time of the read.
    pub end: Position,
    /// Entries in order of their positions.
    pub entries: Vec<RecordedEntry>,
}

/// Reads a piece of a container's log. `muster.query.<root>.instance.logs` and
/// `muster.query.<root>.task.logs`
///
/// For an index that currently has no container, the log of the container that crashed last is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadLogs {
    /// `PROCESS/INDEX`, a task guid, or an instance guid.
    pub id: String,
    /// Offset of the first byte. 0 is the oldest byte that is kept.
    #[serde(default)]
    pub from: u64,
    /// Maximum number of bytes, up to 65,536.
    #[serde(default)]
    pub limit: Option<usize>,
    /// For an instance: reads the log of the container that crashed last, even while another container runs.
    #[serde(default)]
    pub previous: bool,
}

/// The answer to [`ReadLogs`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Logs {
    /// Container that wrote the log.
    pub instance_guid: InstanceGuid,
    /// Text of the log.
    pub text: String,
    /// Offset from which to continue.
    pub next: u64,
    /// `true` if the container is gone, so that no more output follows.
    pub ended: bool,
}

/// Returns the journal subject that holds all decisions about a target, in a cluster with `shards` shards.
///
/// # Errors
/// `InvalidRequest` if `about` is not a valid target.
pub fn target_subject(about: &str, shards: u16) -> Result<Subject, Refusal> {
    let bad = |problem: String| Refusal::invalid(vec![BadField { field: "target".into(), problem }]);
    let none = || {
        let shown = limits::truncate(about, 80);
        bad(format!(
            "{shown:?} is not valid: use lrp:GUID, task:GUID, periodic:GUID, parameterised:GUID, cell:ID, domain:NAME or cluster"
        ))
    };
    let name = |error: crate::names::BadName| bad(error.to_string());
    match about.split_once(':') {
        Some(("lrp", guid)) => Ok(Subject::of_process(&ProcessGuid::new(guid).map_err(name)?, shards)),
        Some(("task", guid)) => Ok(Subject::of_task(&TaskGuid::new(guid).map_err(name)?, shards)),
        Some(("periodic", guid)) => Ok(Subject::of_periodic(&PeriodicGuid::new(guid).map_err(name)?, shards)),
        Some(("parameterised", guid)) => {
            Ok(Subject::of_parameterised(&ParameterisedGuid::new(guid).map_err(name)?, shards))
        }
        Some(("cell", id)) => CellId::new(id).map(Subject::Cell).map_err(name),
        Some(("domain", id)) => Domain::new(id).map(Subject::Domain).map_err(name),
        None if about == "cluster" => Ok(Subject::Cluster),
        Some(_) | None => Err(none()),
    }
}

/// Returns `true` if the aggregate is the target named by `about`.
#[must_use]
pub fn is_target(aggregate: &Aggregate, about: &str) -> bool {
    match (aggregate, about.split_once(':')) {
        (Aggregate::Process { guid, .. }, Some(("lrp", name))) => guid.as_str() == name,
        (Aggregate::Task { guid, .. }, Some(("task", name))) => guid.as_str() == name,
        (Aggregate::Periodic { guid, .. }, Some(("periodic", name))) => guid.as_str() == name,
        (Aggregate::Parameterised { guid, .. }, Some(("parameterised", name))) => guid.as_str() == name,
        (Aggregate::Cell(cell), Some(("cell", name))) => cell.as_str() == name,
        (Aggregate::Domain(domain), Some(("domain", name))) => domain.as_str() == name,
        (Aggregate::Cluster, None) => about == "cluster",
        _ => false,
    }
}
