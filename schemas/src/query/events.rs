//! What is read of the log and of containers: entries behind a position, and what a container wrote.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::entry::{Aggregate, Entry};
use crate::limits;
use crate::names::{CellId, Domain, InstanceGuid, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid};
use crate::refusal::{BadField, Refusal};
use crate::subject::{Position, Subject};

/// Which entries are read. `muster.query.<root>.events.read`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReadEvents {
    /// Entries behind this position.
    pub after: Position,
    /// Entries on the page, at most 1,000.
    pub limit: Option<usize>,
    /// How long to wait for one if there is none, in milliseconds, at most 30,000.
    pub wait_ms: Option<u64>,
    /// Only decisions about this: `lrp:GUID`, `task:GUID`, `periodic:GUID`, `parameterised:GUID`, `cell:ID`,
    /// `domain:NAME` or `cluster`.
    pub about: Option<String>,
}

/// An entry as it is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecordedEntry {
    /// Where it stands.
    pub position: Position,
    /// On which subject.
    pub subject: String,
    /// The entry; of a filtered read only the decisions asked for.
    pub entry: ReadEntry,
}

/// What an entry turned out to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReadEntry {
    /// An entry.
    Known(Entry),
    /// Bytes that this program doesn't understand, and why.
    Unknown {
        /// Why.
        why: String,
        /// The bytes, as text.
        raw: String,
    },
}

impl ReadEntry {
    /// Bytes that this program doesn't understand, and why. Of many bytes it keeps [`limits::EXPLANATION_BYTES`].
    #[must_use]
    pub fn unknown(why: String, bytes: &[u8]) -> Self {
        let raw = limits::cut(&String::from_utf8_lossy(bytes), limits::EXPLANATION_BYTES);
        Self::Unknown { why, raw }
    }
}

/// The answer to [`ReadEvents`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventsPage {
    /// Read on behind this position.
    pub next: Position,
    /// Where the journal ended when it was read.
    pub end: Position,
    /// The entries.
    pub entries: Vec<RecordedEntry>,
}

/// A piece of a container's log. `muster.query.<root>.instance.logs` and `muster.query.<root>.task.logs`
///
/// Of an index that has no container at present it is the log of the one that crashed last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadLogs {
    /// `PROCESS/INDEX`, a task guid, or an instance guid.
    pub id: String,
    /// From this byte on; 0: from the oldest that is kept.
    #[serde(default)]
    pub from: u64,
    /// Bytes at most, up to 65,536.
    #[serde(default)]
    pub limit: Option<usize>,
    /// Of an instance: the log of the container that crashed last, even while another runs.
    #[serde(default)]
    pub previous: bool,
}

/// The answer to [`ReadLogs`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Logs {
    /// The container.
    pub instance_guid: InstanceGuid,
    /// The text.
    pub text: String,
    /// Where to read on.
    pub next: u64,
    /// Whether the container is gone, so that nothing more comes.
    pub ended: bool,
}

/// The one subject of the journal on which everything about something is, in a cluster with `shards` shards.
///
/// # Errors
/// `InvalidRequest`: nothing is written so.
pub fn subject_about(about: &str, shards: u16) -> Result<Subject, Refusal> {
    let bad = |problem: String| Refusal::invalid(vec![BadField { field: "about".into(), problem }]);
    let none = || {
        let shown = limits::cut(about, 80);
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

/// What a reader of events asks about, taken from its text form.
#[must_use]
pub fn is_about(aggregate: &Aggregate, about: &str) -> bool {
    match (aggregate, about.split_once(':')) {
        (Aggregate::Process { guid, .. }, Some(("lrp", name))) => guid.as_str() == name,
        (Aggregate::Task { guid, .. }, Some(("task", name))) => guid.as_str() == name,
        (Aggregate::Periodic { guid, .. }, Some(("periodic", name))) => guid.as_str() == name,
        (Aggregate::Parameterised { guid, .. }, Some(("parameterised", name))) => guid.as_str() == name,
        (Aggregate::Cell(cell), Some(("cell", name))) => cell.as_str() == name,
        (Aggregate::Domain(domain), Some(("domain", name))) => domain.as_str() == name,
        (Aggregate::Cluster, None) => about == "cluster",
        (
            Aggregate::Process { .. }
            | Aggregate::Task { .. }
            | Aggregate::Cell(_)
            | Aggregate::Periodic { .. }
            | Aggregate::Parameterised { .. }
            | Aggregate::Domain(_)
            | Aggregate::Cluster,
            _,
        ) => false,
    }
}
