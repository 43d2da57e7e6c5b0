//! Messages of the bus: what is being asked right now. May be lost, late, doubled; is never the truth.
//!
//! | subject | message | answer |
//! |---|---|---|
//! | `muster.client.<domain>.<client>.lrp.desire` ... | [`Request`], JSON | [`Answer`] of [`Done`] |
//! | `muster.operator.<client>.cell.evacuate`, `.cordon`, `.uncordon`, `.forget`, `.accept-log` | [`Request`] of [`OfCell`], JSON | [`Answer`] of [`Done`] |
//! | `muster.operator.<client>.cluster.preemption` | [`Request`] of [`SwitchPreemption`], JSON | [`Answer`] of [`Done`] |
//! | `muster.operator.<client>.cluster.shards` | [`Request`] of [`Reshard`], JSON | [`Answer`] of [`Done`] |
//! | `muster.operator.<client>.domain.limit` | [`Request`] of [`LimitDomain`](crate::quota::LimitDomain), JSON | [`Answer`] of [`Done`] |
//! | `muster.operator.<client>.journal.set-aside` | [`Request`] of [`SetAside`], JSON | [`Answer`] of [`Done`] |
//! | `muster.cell.<cell_id>.bbs.attach` | [`Attach`] | [`Answer`] of [`Done`] |
//! | `muster.cell.<cell_id>.bbs.leave` | [`Leave`] | [`Answer`] of [`Done`] |
//! | `muster.cell.<cell_id>.bbs.report` | [`Reports`] | [`Answer`] of [`Reported`] |
//! | `muster.cell.<cell_id>.heartbeat` | [`Heartbeat`] | |
//! | `muster.cell.<cell_id>.rep.perform` | [`Perform`] | [`Answer`] of [`Performed`] |
//! | `muster.cell.<cell_id>.rep.stop`, `.cancel` | [`Stop`] | |
//! | `muster.cell.<cell_id>.rep.dismiss` | [`Dismiss`] | |
//! | `muster.cell.<cell_id>.rep.enter` | [`Enter`] | |
//! | `muster.cell.<cell_id>.rep.accept-log` | [`AcceptLog`], JSON | [`Answer`] of nothing |
//! | `muster.cell.<cell_id>.rep.evacuate`, `.uncordon`, `.state` | [`RepOrder`] | [`Answer`] of [`Heartbeat`] |
//! | `muster.auctioneer.bbs.outcome` | [`Outcomes`] | [`Answer`] of [`Done`] |
//! | `muster.auctioneer.bbs.lead` | [`Lead`] | [`Answer`] of [`Done`] |
//! | `muster.beat.bbs`, `muster.beat.auctioneer` | [`Beat`] | |
//! | `muster.elected.bbs`, `muster.elected.auctioneer` | [`Beat`] | |
//! | `muster.alive.bbs`, `muster.alive.auctioneer` | [`Alive`] | |
//! | `muster.founding.asked` | nothing | |
//! | `muster.founding.known` | [`KnownCluster`], JSON | |
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
use crate::query::AppendTrouble;
use crate::refusal::Refusal;
use crate::resources::Resources;
use crate::subject::Position;
use crate::{Timestamp, task};

/// An operator's order: what stands at a position shall not count. The envelope says why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetAside {
    /// The position.
    pub position: Position,
}

/// An operator's order: whether what is less urgent may be stopped for what waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwitchPreemption {
    /// Whether it may.
    pub on: bool,
}

/// Order of an operator: the number of shards from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reshard {
    /// The number, 1 to 1,024.
    pub shards: u16,
}

/// What is around every client's command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Envelope {
    /// So that asking twice is asking once.
    pub request_id: Option<RequestId>,
    /// Time that the client still waits, in milliseconds, counted by the BBS from when it receives the command; after that the
    /// command is refused. Without it the command may be carried out at any later time.
    pub patience_ms: Option<u64>,
    /// The version that the aggregate must have.
    pub expect_version: Option<u64>,
    /// The position after which nothing may have been decided about the aggregate.
    pub if_position: Option<Position>,
    /// Why, in the client's words: kept in the log.
    pub reason: Option<String>,
    /// The W3C trace that it belongs to.
    pub traceparent: Option<String>,
}

/// A client's command as it travels: `{"envelope": {"request_id": ..}, "body": {..}}`; the envelope, and each part of
/// it, may be left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Request<T> {
    /// What is around the command.
    pub envelope: Envelope,
    /// What is asked.
    pub body: T,
}

/// An answer: it happened (or was so already), or no, because.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Answer<T> {
    /// Yes.
    Ok(T),
    /// No, because.
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

/// The answer to a command that was carried out and is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// Where the log stood when it was so: a query for at least this position sees it.
    pub position: Position,
    /// The aggregate's version.
    pub version: u64,
}

/// What an operator's command about a cell names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfCell {
    /// The cell.
    pub cell_id: CellId,
}

/// A rep that starts asks whether it may speak for its cell, before it does anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// Its data folder.
    pub folder: FolderId,
}

/// A rep leaves: its evacuation is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leave {
    /// Its data folder.
    pub folder: FolderId,
    /// Which run of it.
    pub incarnation: Incarnation,
}

/// Another rep speaks for the cell: the rep with this folder has to ask again whether it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dismiss {
    /// The data folder of the rep that is refused.
    pub folder: FolderId,
}

/// The cluster that a service belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownCluster {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// The service, as people read it: `rep c1`.
    pub service: String,
}

/// An operator has a rep forget the terms and positions that it knows, and go on with the log as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptLog {
    /// The cluster of that log: a rep of another one refuses.
    pub cluster_id: ClusterId,
}

/// What a rep reports, many in one message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reports {
    /// The data folder of the rep: reports of another rep than the one that speaks for the cell are refused.
    pub folder: FolderId,
    /// The reports, at most [`crate::limits::BATCH`].
    pub reports: Vec<Report>,
}

/// A report about one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// Of a process.
    Lrp {
        /// Which.
        process_guid: ProcessGuid,
        /// What is asked.
        report: process::Report,
    },
    /// Of a task.
    Task {
        /// Which.
        task_guid: TaskGuid,
        /// What is asked.
        report: task::Report,
    },
}

/// The answer to [`Reports`]: one for each, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reported {
    /// Where the log stood.
    pub position: Position,
    /// The highest terms that the log named then: a rep believes no leader of a later one than the next.
    pub terms: Terms,
    /// What became of each report, and the record as it is after it.
    pub results: Vec<ReportResult>,
}

/// What became of one report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportResult {
    /// Why it was refused, if it was.
    pub refused: Option<Refusal>,
    /// The record as it is now.
    pub record: Record,
}

/// A record as a rep needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// There is none.
    Absent,
    /// A place of a process.
    Lrp(LrpRecord),
    /// A task.
    Task(TaskRecord),
}

/// The records of one place of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LrpRecord {
    /// Which.
    pub key: ActualLrpKey,
    /// The current life of the guid.
    pub epoch: Epoch,
    /// The process's domain.
    pub domain: Domain,
    /// The instance, if there is one. Where only somebody evacuates it, the one that runs another definition in its
    /// place.
    pub state: Option<LrpState>,
    /// Who evacuates it, if somebody does.
    pub evacuating: Option<Instance>,
    /// Since when the instance's state holds; an UNCLAIMED record's attempt.
    pub since: Timestamp,
    /// When one of the records last changed: what a rep reports of them names it.
    pub changed_at: Timestamp,
}

/// The state of an instance, as a rep's tables need it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LrpState {
    /// Being scheduled.
    Unclaimed {
        /// Whether an auction failed to place it (ε).
        placement_error: bool,
    },
    /// Being started.
    Claimed {
        /// The container.
        by: Instance,
        /// Whether it was asked to stop.
        stopping: bool,
    },
    /// Running.
    Running {
        /// The container.
        by: Instance,
        /// Whether it was asked to stop.
        stopping: bool,
    },
    /// Crashed.
    Crashed,
}

/// The record of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// The task.
    pub task_guid: TaskGuid,
    /// The current life of the guid.
    pub epoch: Epoch,
    /// The task's domain.
    pub domain: Domain,
    /// Its state.
    pub state: TaskState,
}

/// The state of a task, as a rep's table needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskState {
    /// Being scheduled.
    Pending,
    /// Running.
    Running {
        /// The container.
        by: Instance,
    },
    /// Complete.
    Completed {
        /// The container that ran it, if one did.
        by: Option<Instance>,
    },
    /// Being resolved.
    Resolving {
        /// The container that ran it, if one did.
        by: Option<Instance>,
    },
}

/// What a rep says every 5 s and, coalesced, after a change. No lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Heartbeat {
    /// The cell.
    pub cell_id: CellId,
    /// What it is.
    pub presence: Presence,
    /// What is free of it.
    pub free: Resources,
    /// Containers that are being started.
    pub starting: u32,
    /// Whether it evacuates.
    pub evacuating: bool,
    /// Why its self-test fails, if it does.
    pub unhealthy: Option<String>,
    /// The last [`Perform`] that it took: what is free is after that one.
    pub performed: PerformId,
    /// Counts the heartbeats of this incarnation: an older one that comes late changes nothing.
    pub sequence: u64,
    /// Time that the clock of the cell's host showed; 0 if it is not known.
    pub clock: Timestamp,
    /// The schema that the program speaks.
    pub schema: u64,
    /// The highest format level that it reads.
    pub format: u32,
}

/// Names a [`Perform`]: the auctioneer's term, and a counter within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct PerformId {
    /// The auctioneer's term.
    pub term: u64,
    /// Counts up within the term, for each cell by itself.
    pub number: u64,
}

/// Work that an auctioneer gives to a rep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Perform {
    /// Which message of which term. A rep refuses a term below the highest that it believes.
    pub id: PerformId,
    /// The work, at most [`crate::limits::BATCH`].
    pub work: Vec<Work>,
}

/// One piece of work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// What, in which life.
    pub key: WorkKey,
    /// The `since` of the record that was judged: the same (key, attempt) has the same reservation.
    pub attempt: Timestamp,
    /// Its domain.
    pub domain: Domain,
    /// What it runs.
    pub order: Order,
    /// Why here.
    pub placement: Option<Box<Explanation>>,
}

/// What work runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// An instance of a process.
    Lrp(Arc<Definition>),
    /// A task.
    Task(Arc<TaskDefinition>),
}

impl Order {
    /// What it takes of a cell.
    #[must_use]
    pub fn resources(&self) -> Resources {
        match self {
            Self::Lrp(definition) => definition.resources(),
            Self::Task(definition) => definition.resources(),
        }
    }
}

/// The answer to [`Perform`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Performed {
    /// What the rep did not take, by its place in the list, and why. Everything else has a reservation.
    pub refused: Vec<(u32, String)>,
}

/// Containers that a rep shall stop, or tasks that it shall cancel. The records say so too: this is only faster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// The BBS's term. A rep refuses a term below the highest that it believes.
    pub term: u64,
    /// Which containers, at most [`crate::limits::BATCH`].
    pub containers: Vec<(WorkKey, InstanceGuid)>,
}

/// A client was let into a container: the rep runs a program there for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enter {
    /// The domain of the client.
    pub domain: Domain,
    /// The client: nobody else may talk to the program.
    pub client: ClientName,
    /// What it called its request: by this it names the program.
    pub request_id: RequestId,
    /// The container.
    pub instance_guid: InstanceGuid,
    /// What is run.
    pub exec: Exec,
    /// Quota `exec_sessions` of the domain.
    pub exec_sessions: u32,
}

/// An order of the leading BBS to a rep: what the subject says, needing nothing but in which term, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepOrder {
    /// The BBS's term. A rep refuses a term below the highest that it believes.
    pub term: u64,
    /// Where the log stood for the BBS: an order to evacuate, or to take work again, that comes after a later one changes
    /// nothing.
    pub position: Position,
}

/// What an auctioneer works on, and what it could not place, many in one message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes {
    /// Who says so.
    pub id: ServiceId,
    /// In which term. The BBS refuses a term that doesn't lead.
    pub term: u64,
    /// The evaluations that it has, at most [`crate::limits::BATCH`].
    pub leases: Vec<Lease>,
    /// The outcomes, at most [`crate::limits::BATCH`].
    pub outcomes: Vec<PlacementOutcome>,
    /// What is to stop so that work that waits has room, at most [`crate::limits::EVICTIONS`].
    pub evictions: Vec<Eviction>,
}

/// An auctioneer has a delivery of an evaluation. It says so again until it is answered: a BBS that hears nothing more of
/// it, or hears it from a later term, gives it out again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Which.
    pub evaluation: EvaluationId,
    /// The how manieth delivery.
    pub delivery: u32,
    /// Of what.
    pub of: Leased,
}

/// What an evaluation that somebody has is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Leased {
    /// A process, in one of its lives.
    Process(ProcessGuid, Epoch),
    /// A task, in one of its lives.
    Task(TaskGuid, Epoch),
}

/// What became of one evaluation. Only what could not be placed is reported: claims say the rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlacementOutcome {
    /// Of a process.
    Lrp {
        /// The process.
        process_guid: ProcessGuid,
        /// Which life.
        epoch: Epoch,
        /// The evaluation, and what of it could not be placed.
        outcome: process::Outcome,
    },
    /// Of a task.
    Task {
        /// The task.
        task_guid: TaskGuid,
        /// Which life.
        epoch: Epoch,
        /// The evaluation, and why the task could not be placed.
        unplaced: task::Unplaced,
    },
}

/// A candidate for auctioneer asks the BBS to record that it leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lead {
    /// Who.
    pub id: ServiceId,
    /// In which term: the one after the highest.
    pub term: u64,
}

/// A leader's sign of life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// Who.
    pub id: ServiceId,
    /// In which term.
    pub term: u64,
    /// Where its world stands.
    pub position: Position,
    /// Whether it stops leading now: a standby campaigns at once. `false` in every other beat.
    #[serde(default)]
    pub steps_down: bool,
}

/// How often a BBS and an auctioneer say that they are there, whether they lead or stand by.
pub const ALIVE_EVERY: Duration = Duration::from_secs(2);

/// A running program, as operators look for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Program {
    /// The name of its host.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// Its version.
    pub version: String,
}

/// Where a BBS or an auctioneer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Up to where it has folded the log.
    pub position: Position,
    /// The highest term of its role that it knows.
    pub term: u64,
    /// Whether it leads in that term.
    pub leads: bool,
}

/// A BBS or an auctioneer is there. Its clock is compared with those of others; the rest is only shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alive {
    /// Who.
    pub id: ServiceId,
    /// As what; the subject says it too.
    pub role: Role,
    /// Which program.
    pub program: Program,
    /// Where it stands.
    pub standing: Standing,
    /// Time that its clock showed; 0 if it is not known.
    pub clock: Timestamp,
    /// `false` for a BBS that only answers queries.
    pub may_lead: bool,
    /// Trouble of a BBS with appending to the log, if it has any.
    pub append_trouble: Option<AppendTrouble>,
}
