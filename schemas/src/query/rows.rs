//! Rows: what lists and shows answer. One definition for the command line, JSON, and whatever else shows them. They
//! carry the field names of Diego's API, and states as words in capitals.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::{Finding, Services};
use crate::container::{Epoch, Instance, PortMapping};
use crate::crash::{Attempts, Declined};
use crate::definition::{Definition, DesiredLrp, Mode, Routes, TaskDefinition};
use crate::ended::How;
use crate::evaluation::{Evaluation, Status};
use crate::isolation::Isolation;
use crate::names::{CellId, ClusterId, DefinitionId, Domain, InstanceGuid, ProcessGuid, TaskGuid, Zone};
use crate::policy::Policies;
use crate::quota::{Quotas, Usage};
use crate::rank::Priority;
use crate::resources::Resources;
use crate::rollout::{self, Rollout};
use crate::subject::Position;
use crate::task::Callback;
use crate::{Indices, Timestamp};
use crate::{actual, cell, cluster, task};

/// A rollout, as users see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RolloutRow {
    /// Counts the rollouts of the process's life, from 1.
    pub number: u32,
    /// Forward or back.
    pub kind: rollout::Kind,
    /// `updating`, `paused`, `completed`, `rollback_started`, `rollback_paused` or `rollback_completed`.
    pub status: String,
    /// Why it stands there; none: nothing to be said.
    pub reason: Option<String>,
    /// The definition that every index shall run.
    pub target: DefinitionId,
    /// Where a rollback goes.
    pub rollback_to: Option<DefinitionId>,
    /// How many indices were to be replaced.
    pub total: u32,
    /// How many were.
    pub replaced: u32,
    /// The indices that are being replaced.
    pub in_replacement: Indices,
    /// The indices that were given up for now.
    pub stalled: Indices,
    /// The indices of which an instance failed.
    pub failed: Indices,
    /// When it began.
    pub started_at: Timestamp,
    /// Since when it stands where it stands.
    pub since: Timestamp,
}

impl RolloutRow {
    /// Whether every index runs its target.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.status.ends_with("completed")
    }

    /// Whether no index takes its turn until somebody resumes it.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.status.ends_with("paused")
    }
}

impl From<&Rollout> for RolloutRow {
    fn from(rollout: &Rollout) -> Self {
        let in_replacement = rollout.steps.keys().filter(|index| rollout.in_replacement(**index).is_some());
        Self {
            number: rollout.number,
            kind: rollout.kind,
            status: rollout.status().to_owned(),
            reason: Some(rollout.reason.clone()).filter(|reason| !reason.is_empty()),
            target: rollout.target.clone(),
            rollback_to: rollout.rollback_to.clone(),
            total: rollout.total,
            replaced: rollout.replaced,
            in_replacement: in_replacement.copied().collect(),
            stalled: rollout.stalled.keys().copied().collect(),
            failed: rollout.failed.iter().copied().collect(),
            started_at: rollout.started_at,
            since: rollout.since,
        }
    }
}

/// The state of an ActualLRP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum InstanceState {
    /// To be placed.
    Unclaimed,
    /// Being started on a cell.
    Claimed,
    /// Running on a cell.
    Running,
    /// Crashed, and waiting to be restarted or given up.
    Crashed,
}

impl InstanceState {
    /// Every one of them.
    pub const ALL: [Self; 4] = [Self::Unclaimed, Self::Claimed, Self::Running, Self::Crashed];

    /// As rows say it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unclaimed => "UNCLAIMED",
            Self::Claimed => "CLAIMED",
            Self::Running => "RUNNING",
            Self::Crashed => "CRASHED",
        }
    }
}

impl fmt::Display for InstanceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<&actual::State> for InstanceState {
    fn from(state: &actual::State) -> Self {
        match state {
            actual::State::Unclaimed { .. } => Self::Unclaimed,
            actual::State::Claimed { .. } => Self::Claimed,
            actual::State::Running { .. } => Self::Running,
            actual::State::Crashed { .. } => Self::Crashed,
        }
    }
}

/// Which of the two records of a place a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum InstancePresence {
    /// The instance.
    Ordinary,
    /// Its evacuating twin.
    Evacuating,
}

impl InstancePresence {
    /// Every one of them.
    pub const ALL: [Self; 2] = [Self::Ordinary, Self::Evacuating];

    /// As rows say it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ordinary => "ORDINARY",
            Self::Evacuating => "EVACUATING",
        }
    }
}

impl fmt::Display for InstancePresence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TaskState {
    /// To be placed.
    Pending,
    /// Running on a cell.
    Running,
    /// Done; its owner is to be told.
    Completed,
    /// Being resolved by its owner.
    Resolving,
}

impl TaskState {
    /// Every one of them.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Running, Self::Completed, Self::Resolving];

    /// As rows say it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Completed => "COMPLETED",
            Self::Resolving => "RESOLVING",
        }
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<&task::State> for TaskState {
    fn from(state: &task::State) -> Self {
        match state {
            task::State::Pending { .. } => Self::Pending,
            task::State::Running { .. } => Self::Running,
            task::State::Completed(_) => Self::Completed,
            task::State::Resolving(_) => Self::Resolving,
        }
    }
}

/// The state of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CellState {
    /// There, and taking work.
    Present,
    /// There, and moving everything away.
    Evacuating,
    /// There, and taking no work: its self-test fails.
    Unhealthy,
    /// There as far as the log says, but no heartbeat came for a while.
    Silent,
    /// Gone.
    Absent,
}

/// A present cell of which nothing was heard for so long is shown as SILENT: two heartbeats are missing.
pub const SILENT_AFTER: Duration = Duration::from_secs(10);

impl CellState {
    /// Every one of them.
    pub const ALL: [Self; 5] = [Self::Present, Self::Evacuating, Self::Unhealthy, Self::Silent, Self::Absent];

    /// As rows say it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Present => "PRESENT",
            Self::Evacuating => "EVACUATING",
            Self::Unhealthy => "UNHEALTHY",
            Self::Silent => "SILENT",
            Self::Absent => "ABSENT",
        }
    }
}

impl fmt::Display for CellState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl CellState {
    /// The state of a cell that was heard so long ago, as far as who asks knows.
    #[must_use]
    pub fn of(cell: &cell::Cell, heard: Option<Duration>) -> Self {
        match (cell.present, cell.evacuating, cell.unhealthy.is_none()) {
            (false, _, _) => Self::Absent,
            (true, _, _) if heard.is_some_and(|ago| ago >= SILENT_AFTER) => Self::Silent,
            (true, true, _) => Self::Evacuating,
            (true, false, false) => Self::Unhealthy,
            (true, false, true) => Self::Present,
        }
    }
}

/// What an evaluation is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvaluationSubject {
    /// A process.
    Process(ProcessGuid),
    /// A task.
    Task(TaskGuid),
}

impl fmt::Display for EvaluationSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(guid) => write!(f, "process {guid}"),
            Self::Task(guid) => write!(f, "task {guid}"),
        }
    }
}

/// A DesiredLRP, with what became of it. `muster.query.<root>.lrp.list|show`
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
    /// Where the last of them stands in the log.
    pub last_decision: Position,
    /// Whether somebody desires it; if not, what is left of it is being stopped.
    pub desired: bool,
    /// Where its instances run; none: nobody desires it.
    pub mode: Option<Mode>,
    /// Desired instances.
    pub instances: u32,
    /// How urgent it is; none: nobody desires it.
    pub priority: Option<Priority>,
    /// The indices at which one is desired: those below `instances` or, of a global process, the ordinals of its cells.
    pub indices: Indices,
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
    /// The definition that every instance shall run: the active one.
    pub definition_id: Option<DefinitionId>,
    /// The definition that is known to work, if one is.
    pub healthy_definition_id: Option<DefinitionId>,
    /// Every definition that it has, in the order in which they came.
    pub definition_ids: Vec<DefinitionId>,
    /// What an instance of each of them takes of a cell.
    pub sizes: BTreeMap<DefinitionId, Resources>,
    /// The content of each of them; listed only if asked for.
    pub definitions: BTreeMap<DefinitionId, Definition>,
    /// How its instances are replaced; listed only if asked for.
    pub policies: Option<Policies>,
    /// The rollout that is under way, or the last one.
    pub rollout: Option<RolloutRow>,
    /// When the last decision on it was made.
    pub changed_at: Timestamp,
}

impl LrpRow {
    /// What is desired; none: nobody desires it any more, or the row was listed without its definition.
    #[must_use]
    pub fn to_desired(&self) -> Option<DesiredLrp> {
        let definition_id = self.definition_id.clone()?;
        let definition = self.definitions.get(&definition_id)?.clone();
        self.desired.then(|| DesiredLrp {
            process_guid: self.process_guid.clone(),
            domain: self.domain.clone(),
            mode: self.mode.unwrap_or_default(),
            instances: self.instances,
            priority: self.priority.unwrap_or_default(),
            routes: self.routes.clone(),
            annotation: self.annotation.clone(),
            policies: self.policies.clone().unwrap_or_default(),
            definition_id,
            definition: definition.into(),
        })
    }
}

/// Orders the states of one ActualLRP, as Diego's `ModificationTag` does. A state with the same epoch and a higher index is
/// newer; another epoch is another life of the process (Updatable LRPs, "Corresponding changes to ActualLRPs").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModificationTag {
    /// The life of the process. Events name it in `epoch`.
    pub epoch: Epoch,
    /// Version of the process by the last decision that changed the instance. It grows with each change, not by one. Events
    /// name it in `version`.
    pub index: u64,
}

/// An ActualLRP. `muster.query.<root>.instance.list|show`
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
    /// Which of the records of its place it is.
    pub presence: InstancePresence,
    /// Its state.
    pub state: InstanceState,
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
    /// How its container is kept apart; only while it runs and its cell doesn't evacuate.
    pub isolation: Option<Isolation>,
    /// Why it could not be placed; only while it is UNCLAIMED.
    pub placement_error: Option<String>,
    /// Crashes counted.
    pub crash_count: u32,
    /// Why it last crashed.
    pub crash_reason: Option<String>,
    /// The container that crashed last, whose log is there for a while.
    pub crashed_in: Option<Instance>,
    /// When a CRASHED instance is restarted; none: it isn't CRASHED, or it is not restarted.
    pub restart_at: Option<Timestamp>,
    /// Why a CRASHED instance is not restarted; none: it isn't CRASHED, or it is restarted.
    pub declined: Option<Declined>,
    /// How many restarts its policy allowed when it last crashed, and how many it counted; none: any number.
    pub attempts: Option<Attempts>,
    /// The definition that it runs.
    pub definition_id: DefinitionId,
    /// When its state was entered.
    pub since: Timestamp,
    /// Its modification tag.
    pub modification_tag: ModificationTag,
}

/// A task. `muster.query.<root>.task.list|show`
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
    /// Where the last of them stands in the log.
    pub last_decision: Position,
    /// Its state.
    pub state: TaskState,
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
    /// How often its owner was called, and what came of the last call.
    pub callback: Option<Callback>,
    /// When it first completed.
    pub first_completed_at: Option<Timestamp>,
    /// When its state was entered.
    pub since: Timestamp,
    /// The consumer's own text.
    pub annotation: String,
    /// How urgent it is.
    pub priority: Priority,
    /// What it runs; listed only if asked for.
    pub definition: Option<TaskDefinition>,
}

/// A container of an instance that ended. `muster.query.<root>.instance.ended`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndedInstanceRow {
    /// Its process.
    pub process_guid: ProcessGuid,
    /// Its index.
    pub index: u32,
    /// Its domain.
    pub domain: Domain,
    /// Which life of the process it belonged to.
    pub epoch: Epoch,
    /// The definition that it ran.
    pub definition_id: DefinitionId,
    /// The container: its cell keeps its log for a while.
    pub instance_guid: InstanceGuid,
    /// Its cell.
    pub cell_id: CellId,
    /// Since when it was RUNNING; none: it never was.
    pub started_at: Option<Timestamp>,
    /// When it ended, as far as the log says.
    pub ended_at: Timestamp,
    /// How long it was RUNNING, in milliseconds.
    pub duration_ms: Option<u64>,
    /// How it ended.
    pub how: How,
    /// Why it was asked to stop, if it was.
    pub stop: Option<actual::Ended>,
    /// Why it crashed, if it did.
    pub reason: Option<String>,
    /// The status that its action exited with, if that is why it crashed.
    pub exit_status: Option<i32>,
    /// Crashes counted, with this one; 0 if it didn't crash.
    pub crash_count: u32,
    /// Where the log says that it ended.
    pub position: Position,
    /// Which of those that ended there, from 0.
    pub nth: u32,
}

/// A task that completed and is deleted. `muster.query.<root>.task.ended`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndedTaskRow {
    /// Its name.
    pub task_guid: TaskGuid,
    /// Its domain.
    pub domain: Domain,
    /// Which life; also when it was created.
    pub epoch: Epoch,
    /// The container that ran it, if one did.
    pub instance_guid: Option<InstanceGuid>,
    /// Its cell.
    pub cell_id: Option<CellId>,
    /// Whether it failed.
    pub failed: bool,
    /// Why it failed.
    pub failure_reason: Option<String>,
    /// The content of its result file, of a long one the beginning; only when it succeeded.
    pub result: Option<String>,
    /// How often its owner was called, and what came of the last call.
    pub callback: Option<Callback>,
    /// Since when it ran; none: it never did.
    pub started_at: Option<Timestamp>,
    /// When it first completed.
    pub first_completed_at: Timestamp,
    /// How long it ran, in milliseconds.
    pub duration_ms: Option<u64>,
    /// When it was deleted.
    pub deleted_at: Timestamp,
    /// Whether it was resolved; else nobody did in time.
    pub resolved: bool,
    /// Where the log says that it was deleted.
    pub position: Position,
    /// Which of those that were deleted there, from 0.
    pub nth: u32,
}

/// A domain. `muster.query.<root>.domain.list`
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

/// Usage and quotas of a domain. `muster.query.<root>.domain.show`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DomainUseRow {
    /// Its name.
    pub domain: Domain,
    /// Usage that the quotas limit.
    pub used: Usage,
    /// Its quotas.
    pub quotas: Quotas,
    /// `true` if an operator has set quotas of this domain, `false` if the defaults apply.
    pub limited: bool,
}

/// A cell. `muster.query.<root>.cell.list|show`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CellRow {
    /// Its name.
    pub cell_id: CellId,
    /// What is recorded of it.
    pub presence: cell::Presence,
    /// Its state.
    pub state: CellState,
    /// Whether an operator wants it evacuated.
    pub evacuation_wanted: bool,
    /// Whether an operator wants no new work on it.
    pub cordoned: bool,
    /// The index of what global processes run on it.
    pub ordinal: Option<u32>,
    /// Why it is ABSENT, if it is.
    pub gone: Option<String>,
    /// Why its self-test fails, if it does.
    pub unhealthy: Option<String>,
    /// How long ago its last heartbeat came to the BBS that answers, in milliseconds; none: it heard of none yet.
    pub heard_ms_ago: Option<u64>,
    /// Records that name it, CLAIMED and RUNNING.
    pub instances: u32,
    /// Tasks that run on it.
    pub tasks: u32,
    /// Memory, disk, containers and ports that these take.
    pub used: Resources,
    /// Since when its state holds.
    pub since: Timestamp,
}

/// An evaluation. `muster.query.<root>.evaluation.list|show`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EvaluationRow {
    /// Its process or task.
    pub subject: EvaluationSubject,
    /// Its domain.
    pub domain: Domain,
    /// Where it stands, by the nine names of the document.
    pub state: EvaluationState,
    /// The evaluation.
    pub evaluation: Evaluation,
    /// How much of what it stands for is left.
    pub left: u32,
    /// Where that stands among all that waits for a cell; only if this evaluation alone is asked for, and something of it
    /// waits for a cell.
    pub turn: Option<Turn>,
}

/// Where work stands among all that waits for a cell, in the order in which auctions take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Turn {
    /// How much has its turn before the first of it.
    pub before: u32,
    /// How much waits in all, with it.
    pub waiting: u32,
}

/// Where an evaluation stands: the stored statuses, and what follows from them, from the time and from who leads (Nomad
/// evaluation states). One that left the tables is deleted: then only the log has it, and no row shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvaluationState {
    /// It is to be scheduled, and nobody leads who does.
    Pending,
    /// It is scheduled no sooner than its wait says.
    Delayed,
    /// The leading auctioneer has it, and nothing of it is placed yet.
    Scheduling,
    /// Some of it is placed.
    Applying,
    /// It waits for room.
    Blocked,
    /// What could be placed is placed.
    Complete,
    /// It was given up.
    Failed,
    /// It is no longer needed.
    Canceled,
    /// It left the tables: the log alone has it.
    Deleted,
}

impl EvaluationState {
    /// Where an evaluation stands at a time.
    #[must_use]
    pub fn of(evaluation: &Evaluation, now: Timestamp, auctioneer_leads: bool) -> Self {
        match &evaluation.status {
            Status::Pending if evaluation.wait.until().is_some_and(|until| until > now) => Self::Delayed,
            Status::Pending if evaluation.placed > 0 => Self::Applying,
            Status::Pending if auctioneer_leads => Self::Scheduling,
            Status::Pending => Self::Pending,
            Status::Blocked { .. } => Self::Blocked,
            Status::Complete => Self::Complete,
            Status::Failed { .. } => Self::Failed,
            Status::Canceled { .. } => Self::Canceled,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delayed => "delayed",
            Self::Scheduling => "scheduling",
            Self::Applying => "applying",
            Self::Blocked => "blocked",
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Deleted => "deleted",
        }
    }
}

/// The cluster. `muster.query.<root>.cluster.show`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterRow {
    /// Its id.
    pub cluster_id: ClusterId,
    /// Its shards.
    pub shards: u16,
    /// The format level.
    pub format: u32,
    /// Who decides, as the log says; whether it still beats, `services` tells.
    pub bbs: Option<cluster::Leader>,
    /// Who places, as the log says.
    pub auctioneer: Option<cluster::Leader>,
    /// The BBSs and auctioneers that beat now, as the BBS that answers hears them.
    pub services: Services,
    /// What is wrong with them.
    pub problems: Vec<Finding>,
    /// Cells by state.
    pub cells: BTreeMap<CellState, u32>,
    /// Zones of present cells.
    pub zones: Vec<Zone>,
    /// Desired processes.
    pub lrps: u64,
    /// Instances by state.
    pub instances: BTreeMap<InstanceState, u64>,
    /// Tasks by state.
    pub tasks: BTreeMap<TaskState, u64>,
    /// Work that only convergence found.
    pub found_by_convergence: u64,
    /// How often somebody asked of an evaluation what its status doesn't allow, since the BBS that answers started.
    #[serde(default)]
    pub refused_transitions: u64,
    /// Whether what is less urgent may be stopped for what waits.
    #[serde(default)]
    pub preemption: bool,
    /// Whether what is acknowledged survives a power cut, as far as the BBS can see.
    pub durability: String,
    /// The malformed entries of the journal.
    #[serde(default)]
    pub set_aside: MalformedEntries,
}

/// The malformed entries of the journal: set aside by everybody, and shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MalformedEntries {
    /// How much of it there is.
    pub count: u64,
    /// The last of it, the newest last.
    pub last: Vec<MalformedEntry>,
}

/// A message of the journal that is no valid entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MalformedEntry {
    /// Where they stand.
    pub position: Position,
    /// On which subject.
    pub subject: String,
    /// Why they are none.
    pub why: String,
}
