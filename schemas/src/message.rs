//! Messages of the bus. They may be lost, late or duplicated. The log alone is authoritative.
//!
//! | subject | message | answer |
//! |---|---|---|
//! | `muster.client.<domain>.<client>.lrp.desire` ... | [`Request`], JSON | [`Answer`] of [`Ack`] |
//! | `muster.operator.<client>.cell.evacuate`, `.cordon`, `.uncordon`, `.forget`, `.accept-log` | [`Request`] of [`CellCommand`], JSON | [`Answer`] of [`Ack`] |
//! | `muster.operator.<client>.cluster.preemption` | [`Request`] of [`SwitchPreemption`], JSON | [`Answer`] of [`Ack`] |
//! | `muster.operator.<client>.cluster.shards` | [`Request`] of [`Reshard`], JSON | [`Answer`] of [`Ack`] |
//! | `muster.operator.<client>.domain.limit` | [`Request`] of [`LimitDomain`](crate::quota::LimitDomain), JSON | [`Answer`] of [`Ack`] |
//! | `muster.operator.<client>.journal.quarantine` | [`Request`] of [`QuarantineEntry`], JSON | [`Answer`] of [`Ack`] |
//! | `muster.cell.<cell_id>.bbs.attach` | [`Attach`] | [`Answer`] of [`Ack`] |
//! | `muster.cell.<cell_id>.bbs.leave` | [`Leave`] | [`Answer`] of [`Ack`] |
//! | `muster.cell.<cell_id>.bbs.report` | [`Reports`] | [`Answer`] of [`ReportsReply`] |
//! | `muster.cell.<cell_id>.heartbeat` | [`Heartbeat`] | |
//! | `muster.cell.<cell_id>.rep.perform` | [`Perform`] | [`Answer`] of [`PerformReply`] |
//! | `muster.cell.<cell_id>.rep.stop`, `.cancel` | [`Stop`] | |
//! | `muster.cell.<cell_id>.rep.dismiss` | [`Dismiss`] | |
//! | `muster.cell.<cell_id>.rep.exec` | [`StartExec`] | |
//! | `muster.cell.<cell_id>.rep.accept-log` | [`AcceptLog`], JSON | [`Answer`] of nothing |
//! | `muster.cell.<cell_id>.rep.evacuate`, `.uncordon`, `.state` | [`RepOrder`] | [`Answer`] of [`Heartbeat`] |
//! | `muster.auctioneer.bbs.outcome` | [`Outcomes`] | [`Answer`] of [`Ack`] |
//! | `muster.auctioneer.bbs.lead` | [`Lead`] | [`Answer`] of [`Ack`] |
//! | `muster.leader-heartbeat.bbs`, `muster.leader-heartbeat.auctioneer` | [`LeaderHeartbeat`] | |
//! | `muster.elected.bbs`, `muster.elected.auctioneer` | [`LeaderHeartbeat`] | |
//! | `muster.alive.bbs`, `muster.alive.auctioneer` | [`ServiceStatus`] | |
//! | `muster.founding.query` | nothing | |
//! | `muster.founding.reply` | [`KnownCluster`], JSON | |
//! | `muster.query.<root>.<noun>.<verb>` | [`crate::query`] | [`Answer`] of a page |

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cell::Presence;
use crate::cluster::{Role, Terms};
use crate::container::{Epoch, Instance, WorkKey};
use crate::definition::{Definition, TaskDefinition};
use crate::exec::Exec;
use crate::key::ActualLrpKey;
use crate::names::{
    CellId, ClientName, ClusterId, Domain, EvaluationId, FolderId, Incarnation, InstanceGuid, ProcessGuid,
    RequestId, ServiceId, TaskGuid,
};
use crate::placement::Explanation;
use crate::preemption::Eviction;
use crate::process;
use crate::query::AppendProblem;
use crate::refusal::Refusal;
use crate::resources::Resources;
use crate::subject::Position;
use crate::{Timestamp, task};

/// Command of an operator to quarantine the entry at a position. The envelope has the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuarantineEntry {
    /// Position of the entry.
    pub position: Position,
}

/// Command of an operator to switch preemption on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwitchPreemption {
    /// `true` allows the BBS to stop less urgent work to make room for waiting work.
    pub enabled: bool,
}

/// Command of an operator to change the number of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reshard {
    /// New number of shards, 1 to 1,024.
    pub shards: u16,
}

/// Metadata of a client's command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Envelope {
    /// Id that makes the command idempotent: a repeated request with the same id is carried out once.
    pub request_id: Option<RequestId>,
    /// Time in milliseconds that the client waits, counted from the receipt of the command by the BBS. After
    /// this time the BBS refuses the command. If absent, the command may be carried out at any later time.
    pub timeout_ms: Option<u64>,
    /// Version that the aggregate must have.
    pub expect_version: Option<u64>,
    /// Position of the log up to which the client knows the aggregate. The command is refused if a later
    /// decision about the aggregate exists.
    pub if_position: Option<Position>,
    /// Reason of the command, kept in the log.
    pub reason: Option<String>,
    /// W3C trace of the command.
    pub traceparent: Option<String>,
}

/// A client's command: `{"envelope": {"request_id": ..}, "body": {..}}`. The envelope and each of its fields
/// are optional.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Request<T> {
    /// Metadata of the command.
    pub envelope: Envelope,
    /// Body of the command.
    pub body: T,
}

/// Answer to a request: its result, or a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "AnswerWith{T}")]
pub enum Answer<T> {
    /// The request was carried out, or had no effect because the state was already as requested.
    Ok(T),
    /// The request was refused.
    Refused(Refusal),
}

impl<T> From<Result<T, Refusal>> for Answer<T> {
    fn from(result: Result<T, Refusal>) -> Self {
        match result {
            Ok(value) => Self::Ok(value),
            Err(refusal) => Self::Refused(refusal),
        }
    }
}

impl<T> From<Answer<T>> for Result<T, Refusal> {
    fn from(answer: Answer<T>) -> Self {
        match answer {
            Answer::Ok(value) => Ok(value),
            Answer::Refused(refusal) => Err(refusal),
        }
    }
}

/// Answer to a command that was carried out and is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ack {
    /// Position of the log at which the effect of the command is visible. A query with this minimum position
    /// includes the effect.
    pub position: Position,
    /// Version of the aggregate after the command.
    pub version: u64,
}

/// Body of a cell command of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellCommand {
    /// Cell of the command.
    pub cell_id: CellId,
}

/// Request of a rep, when it starts, to represent its cell. The rep does nothing until it receives the
/// answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// Data folder of the rep.
    pub folder: FolderId,
}

/// Notice of a rep that leaves the cluster because the evacuation of its cell is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leave {
    /// Data folder of the rep.
    pub folder: FolderId,
    /// Run of the rep.
    pub incarnation: Incarnation,
}

/// Notice that another rep represents the cell. The rep with this folder must attach again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dismiss {
    /// Data folder of the dismissed rep.
    pub folder: FolderId,
}

/// Cluster that a service belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownCluster {
    pub cluster_id: ClusterId,
    /// Service in human-readable form, such as `rep c1`.
    pub service: String,
}

/// Order of an operator to a rep: discard the terms and positions that the rep remembers, and continue with
/// the current log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptLog {
    /// Cluster that the current log belongs to. A rep of a different cluster refuses the order.
    pub cluster_id: ClusterId,
}

/// Batch of reports of a rep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reports {
    /// Data folder of the rep. The BBS refuses reports of a rep that does not represent the cell.
    pub folder: FolderId,
    /// Reports, at most [`crate::limits::BATCH`].
    pub reports: Vec<Report>,
}

/// Report about one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// Report about an instance of a process.
    Lrp {
        process_guid: ProcessGuid,
        /// Requested change of the record.
        report: process::Report,
    },
    /// Report about a task.
    Task {
        task_guid: TaskGuid,
        /// Requested change of the record.
        report: task::Report,
    },
}

/// Answer to [`Reports`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportsReply {
    /// Position of the log at the time of the answer.
    pub position: Position,
    /// Highest terms in the log at `position`. A rep accepts a leader of one of these terms or of the term
    /// directly above, but of no higher term.
    pub terms: Terms,
    /// One result for each report, in the same order.
    pub results: Vec<ReportResult>,
}

/// Result of one report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportResult {
    /// Refusal of the report. `None` if it was accepted.
    pub refused: Option<Refusal>,
    /// Record after the report.
    pub record: Record,
}

/// A record in the form that a rep needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// The slot or task has no record.
    Absent,
    /// Records of a slot of a process.
    Lrp(LrpRecord),
    Task(TaskRecord),
}

/// Records of one slot of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LrpRecord {
    /// Key of the slot.
    pub key: ActualLrpKey,
    /// Current epoch of the process.
    pub epoch: Epoch,
    /// Domain of the process.
    pub domain: Domain,
    /// State of the instance, or `None` if it does not exist. If the slot has only an evacuating instance,
    /// this is the state of the instance that replaces it. The replacement has the same index and a different
    /// definition.
    pub state: Option<LrpState>,
    /// Container of the evacuating instance. `None` if no instance evacuates.
    pub evacuating: Option<Instance>,
    /// Time at which the instance entered its state. This time identifies the placement attempt of an
    /// UNCLAIMED record.
    pub since: Timestamp,
    /// Time of the last change of these records. A report about the records contains this time.
    pub changed_at: Timestamp,
}

/// State of an instance in the form that a rep's tables need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LrpState {
    /// Waits for an auction to place the instance.
    Unclaimed {
        /// `true` if the last auction could not place the instance. The reconciliation tables mark this state
        /// with ε.
        placement_error: bool,
    },
    /// Assigned to a cell, which is starting the instance.
    Claimed {
        /// Container of the instance.
        by: Instance,
        /// `true` if the instance was asked to stop.
        stopping: bool,
    },
    /// Running and ready.
    Running {
        /// Container of the instance.
        by: Instance,
        /// `true` if the instance was asked to stop.
        stopping: bool,
    },
    Crashed,
}

/// Record of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRecord {
    pub task_guid: TaskGuid,
    /// Current epoch of the task.
    pub epoch: Epoch,
    pub domain: Domain,
    pub state: TaskState,
}

/// State of a task in the form that a rep's tables need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskState {
    /// Waits for an auction to place the task.
    Pending,
    Running {
        /// Container that runs the task.
        by: Instance,
    },
    Completed {
        /// Container that ran the task. `None` if the task never ran.
        by: Option<Instance>,
    },
    /// Completed, and being resolved.
    Resolving {
        /// Container that ran the task. `None` if the task never ran.
        by: Option<Instance>,
    },
}

/// Heartbeat of a rep, sent every 5 s and soon after a change. A heartbeat does not list the containers of
/// the cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Heartbeat {
    /// Cell of the rep.
    pub cell_id: CellId,
    /// Properties of the cell.
    pub presence: Presence,
    /// Free resources of the cell.
    pub free: Resources,
    /// Number of containers that are being started.
    pub starting: u32,
    /// `true` while the cell evacuates.
    pub evacuating: bool,
    /// Reason why the self-test fails. Absent if the cell is healthy.
    pub unhealthy: Option<String>,
    /// Last [`Perform`] that the rep has received. The field `free` contains the free resources after the rep
    /// handled this message.
    pub performed: PerformId,
    /// Sequence number of the heartbeat within this incarnation. A heartbeat with a lower number than an
    /// earlier one is late and is ignored.
    pub sequence: u64,
    /// Time of the host's clock; 0 if unknown.
    pub clock: Timestamp,
    /// Number of the postcard schema that the rep uses.
    pub schema: u64,
    /// Highest format level that the rep can read.
    pub format: u32,
}

/// Id of a [`Perform`]: the term of the auctioneer, and a counter within the term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct PerformId {
    /// Term of the auctioneer.
    pub term: u64,
    /// Counter within the term, separate for each cell.
    pub number: u64,
}

/// Work that an auctioneer assigns to a rep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Perform {
    /// Id of the message. A rep refuses a term that is lower than the highest term that it accepts.
    pub id: PerformId,
    /// Work items, at most [`crate::limits::BATCH`].
    pub work: Vec<Work>,
}

/// One work item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Instance or task with its epoch.
    pub key: WorkKey,
    /// Field `since` of the record that the auction used. Work items with the same key and attempt share one
    /// reservation.
    pub attempt: Timestamp,
    /// Domain of the instance or task.
    pub domain: Domain,
    /// Definition to run.
    pub definition: WorkDefinition,
    /// Explanation of the placement.
    pub placement: Option<Box<Explanation>>,
}

/// Definition of a work item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkDefinition {
    /// Definition of an instance.
    Lrp(Arc<Definition>),
    /// Definition of a task.
    Task(Arc<TaskDefinition>),
}

impl WorkDefinition {
    /// Returns the resources that the work reserves on a cell.
    #[must_use]
    pub fn resources(&self) -> Resources {
        match self {
            Self::Lrp(definition) => definition.resources(),
            Self::Task(definition) => definition.resources(),
        }
    }
}

/// Answer to [`Perform`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerformReply {
    /// Work items that the rep refused, each with its index in [`Perform::work`] and the reason. The rep has
    /// reserved resources for all other items.
    pub refused: Vec<(u32, String)>,
}

/// Order to a rep to stop containers or cancel tasks. The rep also finds the same request in the records. The
/// order only makes the request arrive sooner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Term of the BBS. A rep refuses a term that is lower than the highest term that it accepts.
    pub term: u64,
    /// Containers to stop, at most [`crate::limits::BATCH`].
    pub containers: Vec<(WorkKey, InstanceGuid)>,
}

/// Order to a rep to run a program in a container for a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartExec {
    /// Domain of the client.
    pub domain: Domain,
    /// Client of the session. The rep accepts no other client's requests to the program.
    pub client: ClientName,
    /// Request id of the client's command. This id identifies the session.
    pub request_id: RequestId,
    /// Container to run the program in.
    pub instance_guid: InstanceGuid,
    /// Program to run.
    pub exec: Exec,
    /// Quota `exec_sessions` of the domain.
    pub exec_sessions: u32,
}

/// Order of the leading BBS to a rep. The subject has the kind of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepOrder {
    /// Term of the BBS. A rep refuses a term that is lower than the highest term that it accepts.
    pub term: u64,
    /// Position of the log that the BBS has read. A rep ignores an order to evacuate, or to take work again,
    /// if an earlier order had a higher position.
    pub position: Position,
}

/// Batch of an auctioneer's leases, placement failures and evictions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes {
    /// Auctioneer that sends the batch.
    pub id: ServiceId,
    /// Term of the auctioneer. The BBS refuses a term other than that of the leading auctioneer.
    pub term: u64,
    /// Evaluations that the auctioneer is working on, at most [`crate::limits::BATCH`].
    pub leases: Vec<Lease>,
    /// Placement failures, at most [`crate::limits::BATCH`].
    pub outcomes: Vec<PlacementOutcome>,
    /// Proposed evictions to make room for waiting work, at most [`crate::limits::EVICTIONS`].
    pub evictions: Vec<Eviction>,
}

/// Lease of an auctioneer on a delivery of an evaluation: the report that the auctioneer works on this
/// delivery.
///
/// The auctioneer renews the lease until it has reported the outcome of the evaluation. The BBS delivers the
/// evaluation again if the lease is not renewed, or if a later term leases it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub evaluation: EvaluationId,
    /// Number of the delivery.
    pub delivery: u32,
    /// Aggregate of the evaluation.
    pub target: LeaseTarget,
}

/// Aggregate of a leased evaluation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LeaseTarget {
    /// A process, in one epoch.
    Process(ProcessGuid, Epoch),
    /// A task, in one epoch.
    Task(TaskGuid, Epoch),
}

/// Outcome of one evaluation. An outcome reports only the work that could not be placed. The claims of the
/// reps show which work was placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlacementOutcome {
    /// Outcome for a process.
    Lrp {
        process_guid: ProcessGuid,
        /// Epoch of the process.
        epoch: Epoch,
        /// Evaluation, and its work that could not be placed.
        outcome: process::Outcome,
    },
    /// Outcome for a task.
    Task {
        task_guid: TaskGuid,
        /// Epoch of the task.
        epoch: Epoch,
        /// Evaluation, and the reason why the task could not be placed.
        unplaced: task::Unplaced,
    },
}

/// Request of an auctioneer to be recorded as the leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lead {
    /// Auctioneer that campaigns.
    pub id: ServiceId,
    /// Term of the candidacy: the highest recorded term plus 1.
    pub term: u64,
}

/// Leader heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderHeartbeat {
    /// Service that leads.
    pub id: ServiceId,
    /// Term of the leader.
    pub term: u64,
    /// Position of the log up to which the leader has applied the entries.
    pub position: Position,
    /// `true` in the last heartbeat of a leader that steps down: a standby campaigns immediately.
    #[serde(default)]
    pub steps_down: bool,
}

/// Interval at which each BBS and each auctioneer publishes its status, as a leader or a standby.
pub const ALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// A running program, with the data that operators need to find its process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Program {
    /// Name of its host.
    pub host: String,
    /// Process id on the host.
    pub pid: u32,
    /// Version of the program.
    pub version: String,
}

/// Progress and leadership of a BBS or an auctioneer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeadershipStatus {
    /// Position of the log up to which the service has applied the entries.
    pub position: Position,
    /// Highest term of its role that the service knows.
    pub term: u64,
    /// `true` if the service leads in that term.
    pub leads: bool,
}

/// Status of a running BBS or auctioneer. Each BBS compares `clock` with its own clock. The other fields are
/// for display only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// Service that publishes the status.
    pub id: ServiceId,
    /// Role of the service, the same as in the subject.
    pub role: Role,
    /// Host, process id and version of the service.
    pub program: Program,
    /// Progress and leadership of the service.
    pub leadership: LeadershipStatus,
    /// Time of the service's clock; 0 if unknown.
    pub clock: Timestamp,
    /// `false` for a BBS that only answers queries.
    pub may_lead: bool,
    /// Problem that a BBS has with appending to the log. `None` if it has no such problem.
    pub append_problem: Option<AppendProblem>,
}
