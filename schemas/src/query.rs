//! Queries: reads that any BBS answers, on `muster.query.<noun>.<verb>`, in JSON. Each answer names the position at
//! which it stands, and a query may ask for at least a position. Rows carry the seeds' field names.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::container::{Epoch, Instance, PortMapping};
use crate::definition::{Definition, Routes, TaskDefinition};
use crate::entry::{Aggregate, Entry};
use crate::evaluation::Evaluation;
use crate::message::Record;
use crate::names::{
    CellId, ClusterId, DecisionId, DefinitionId, Domain, InstanceGuid, ProcessGuid, TaskGuid, Zone,
};
use crate::subject::Position;
use crate::{cell, cluster};

/// What lists filter by, and how they are paged. All may be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Only of this domain.
    pub domain: Option<Domain>,
    /// Only of this process.
    pub process_guid: Option<ProcessGuid>,
    /// Only on this cell.
    pub cell_id: Option<CellId>,
    /// Answer when the world stands at this position or later.
    pub at_least: Option<Position>,
    /// Where the page begins: `next` of the one before.
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

/// A DesiredLRP (seed `003`), with what became of it. `muster.query.lrp.list|show`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LrpRow {
    /// Its name.
    pub process_guid: ProcessGuid,
    /// Its domain.
    pub domain: Domain,
    /// Which life.
    pub epoch: Epoch,
    /// Decisions so far.
    pub version: u64,
    /// Whether somebody desires it; if not, what is left of it is being stopped.
    pub desired: bool,
    /// Desired instances.
    pub instances: u32,
    /// Instances in state RUNNING.
    pub running: u32,
    /// Instances in state CLAIMED.
    pub claimed: u32,
    /// Instances in state UNCLAIMED.
    pub unclaimed: u32,
    /// Instances in state CRASHED.
    pub crashed: u32,
    /// Routing data.
    pub routes: Routes,
    /// The consumer's own text.
    pub annotation: String,
    /// The definition that new instances run.
    pub definition_id: Option<DefinitionId>,
    /// What it runs; only shown, not listed.
    pub definition: Option<Definition>,
    /// When the last decision on it was made.
    pub changed_at: Timestamp,
}

/// An ActualLRP (seed `003`). `muster.query.instance.list|show`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceRow {
    /// Its process.
    pub process_guid: ProcessGuid,
    /// Its index.
    pub index: u32,
    /// Its domain.
    pub domain: Domain,
    /// Which life of the process.
    pub epoch: Epoch,
    /// `ORDINARY`, or `EVACUATING` for the evacuating twin.
    pub presence: String,
    /// `UNCLAIMED`, `CLAIMED`, `RUNNING` or `CRASHED`.
    pub state: String,
    /// Its container, if it has one.
    pub instance_guid: Option<InstanceGuid>,
    /// Its cell, if it is on one.
    pub cell_id: Option<CellId>,
    /// Whether it was asked to stop.
    pub stopping: bool,
    /// The address of its host; only while it runs.
    pub address: Option<String>,
    /// Its ports; only while it runs.
    pub ports: Vec<PortMapping>,
    /// Why it could not be placed; only while it is UNCLAIMED.
    pub placement_error: Option<String>,
    /// Crashes counted.
    pub crash_count: u32,
    /// Why it last crashed.
    pub crash_reason: Option<String>,
    /// The container that crashed last, whose log is there for a while.
    pub crashed_in: Option<Instance>,
    /// When a CRASHED instance is restarted; none: it isn't CRASHED, or it is given up.
    pub restart_at: Option<Timestamp>,
    /// The definition that it runs.
    pub definition_id: Option<DefinitionId>,
    /// When its state was entered.
    pub since: Timestamp,
}

/// A task. `muster.query.task.list|show`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRow {
    /// Its name.
    pub task_guid: TaskGuid,
    /// Its domain.
    pub domain: Domain,
    /// Which life; also when it was created.
    pub epoch: Epoch,
    /// Decisions so far.
    pub version: u64,
    /// `PENDING`, `RUNNING`, `COMPLETED` or `RESOLVING`.
    pub state: String,
    /// The container that runs or ran it.
    pub instance_guid: Option<InstanceGuid>,
    /// Its cell.
    pub cell_id: Option<CellId>,
    /// Whether it failed; only when it is complete.
    pub failed: Option<bool>,
    /// Why it failed.
    pub failure_reason: Option<String>,
    /// The content of its result file; only when it succeeded.
    pub result: Option<String>,
    /// Why it could not be placed yet.
    pub placement_error: Option<String>,
    /// When it first completed.
    pub first_completed_at: Option<Timestamp>,
    /// When its state was entered.
    pub since: Timestamp,
    /// The consumer's own text.
    pub annotation: String,
    /// What it runs; only shown, not listed.
    pub definition: Option<TaskDefinition>,
}

/// A domain. `muster.query.domain.list`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DomainRow {
    /// Its name.
    pub domain: Domain,
    /// Whether it is fresh now.
    pub fresh: bool,
    /// When it was last refreshed.
    pub refreshed_at: Timestamp,
    /// When it stops being fresh; none: never.
    pub expires_at: Option<Timestamp>,
}

/// A cell. `muster.query.cell.list|show`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CellRow {
    /// Its name.
    pub cell_id: CellId,
    /// What is recorded of it.
    pub presence: cell::Presence,
    /// `PRESENT`, `EVACUATING`, `UNHEALTHY` or `ABSENT`.
    pub state: String,
    /// Records that name it, CLAIMED and RUNNING.
    pub instances: u32,
    /// Tasks that run on it.
    pub tasks: u32,
    /// Memory, disk, containers and ports that these take.
    pub used: crate::resources::Resources,
    /// Since when its state holds.
    pub since: Timestamp,
}

/// An evaluation. `muster.query.evaluation.list|show`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EvaluationRow {
    /// Its process or task.
    pub subject: String,
    /// Its domain.
    pub domain: Domain,
    /// The evaluation.
    pub evaluation: Evaluation,
    /// What is left to place.
    pub left: u32,
}

/// The cluster. `muster.query.cluster.show`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterRow {
    /// Its id.
    pub cluster_id: ClusterId,
    /// Its shards.
    pub shards: u16,
    /// The format level.
    pub format: u32,
    /// Who decides.
    pub bbs: Option<cluster::Leader>,
    /// Who places.
    pub auctioneer: Option<cluster::Leader>,
    /// Cells by state.
    pub cells: BTreeMap<String, u32>,
    /// Zones of present cells.
    pub zones: Vec<Zone>,
    /// Desired processes.
    pub lrps: u64,
    /// Instances by state.
    pub instances: BTreeMap<String, u64>,
    /// Tasks by state.
    pub tasks: BTreeMap<String, u64>,
    /// Work that only convergence found.
    pub found_by_convergence: u64,
    /// Whether what is acknowledged survives a power cut, as far as the BBS can see.
    pub durability: String,
    /// What the journal holds that is no entry.
    #[serde(default)]
    pub set_aside: SetAside,
}

/// What the journal holds that is no entry: passed over by everybody, and shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetAside {
    /// How much of it there is.
    pub count: u64,
    /// The last of it, the newest last.
    pub last: Vec<NoEntry>,
}

/// Bytes of the journal that are no entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NoEntry {
    /// Where they stand.
    pub position: Position,
    /// On which subject.
    pub subject: String,
    /// Why they are none.
    pub why: String,
}

/// What a rep asks of the records. `muster.query.cell.records`
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
    /// Every record that names the cell, and one for each that was asked for, absent ones left out.
    pub records: Vec<Record>,
}

/// Which entries are read. `muster.query.events.read`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReadEvents {
    /// Entries behind this position.
    pub after: Position,
    /// Entries on the page, at most 1,000.
    pub limit: Option<usize>,
    /// How long to wait for one if there is none, in milliseconds, at most 30,000.
    pub wait_ms: Option<u64>,
    /// Only decisions about this: `lrp:GUID`, `task:GUID`, `cell:ID`, `domain:NAME` or `cluster`.
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

/// A piece of a container's log. `muster.query.instance.logs` and `muster.query.task.logs`
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

/// What a reader of events asks about, taken from its text form.
#[must_use]
pub fn is_about(aggregate: &Aggregate, about: &str) -> bool {
    match (aggregate, about.split_once(':')) {
        (Aggregate::Process { guid, .. }, Some(("lrp", name))) => guid.as_str() == name,
        (Aggregate::Task { guid, .. }, Some(("task", name))) => guid.as_str() == name,
        (Aggregate::Cell(cell), Some(("cell", name))) => cell.as_str() == name,
        (Aggregate::Domain(domain), Some(("domain", name))) => domain.as_str() == name,
        (Aggregate::Cluster, None) => about == "cluster",
        (
            Aggregate::Process { .. }
            | Aggregate::Task { .. }
            | Aggregate::Cell(_)
            | Aggregate::Domain(_)
            | Aggregate::Cluster,
            _,
        ) => false,
    }
}

/// The decision that an evaluation id names is the evaluation's own.
pub type EvaluationId = DecisionId;
