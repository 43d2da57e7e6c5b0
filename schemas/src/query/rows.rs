//! Rows of lists and shows. The command line, JSON and other front ends share these definitions. Field names
//! follow Diego's API, and states are words in capitals. A decision is one recorded change of an object.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::{Finding, Services};
use crate::container::{Epoch, Instance, PortMapping};
use crate::crash::{Attempts, NoRestartReason};
use crate::definition::{Definition, DesiredLrp, DesiredTask, Mode, Routes, TaskDefinition};
use crate::ended::EndKind;
use crate::evaluation::{Evaluation, Status};
use crate::isolation::Isolation;
use crate::names::{CellId, ClusterId, DefinitionId, Domain, InstanceGuid, ProcessGuid, TaskGuid, Zone};
use crate::policy::Policies;
use crate::priority::Priority;
use crate::quota::{Quotas, Usage};
use crate::resources::Resources;
use crate::rollout;
use crate::subject::Position;
use crate::task::Callback;
use crate::{Indices, Timestamp};
use crate::{actual, cell, cluster};

/// A rollout, as shown to users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RolloutRow {
    /// Number of the rollout within the process's epoch, from 1.
    pub number: u32,
    /// Direction of the rollout: forward or back.
    pub kind: rollout::Kind,
    /// `updating`, `paused`, `completed`, `rollback_started`, `rollback_paused` or `rollback_completed`.
    pub status: String,
    /// Reason for the status. `None` if the status needs no explanation.
    pub reason: Option<String>,
    /// Definition that every index is moved to.
    pub target: DefinitionId,
    /// Definition that a rollback returns to.
    pub rollback_to: Option<DefinitionId>,
    /// Number of indices to replace.
    pub total: u32,
    /// Number of indices replaced so far.
    pub replaced: u32,
    /// Indices that are being replaced.
    pub in_replacement: Indices,
    /// Indices that are given up for now.
    pub stalled: Indices,
    /// Indices at which an instance failed.
    pub failed: Indices,
    /// Start time of the rollout.
    pub started_at: Timestamp,
    /// Time when the status was entered.
    pub since: Timestamp,
}

impl RolloutRow {
    /// Returns `true` if every index runs the target.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.status.ends_with("completed")
    }

    /// Returns `true` if the rollout starts no further index until it is resumed.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.status.ends_with("paused")
    }
}

/// The state of an ActualLRP.
#[derive(strum::IntoStaticStr, strum::Display)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE", const_into_str)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum InstanceState {
    /// Waiting for placement.
    Unclaimed,
    /// Being started on a cell.
    Claimed,
    /// Running on a cell.
    Running,
    /// Crashed, and waiting to be restarted or given up.
    Crashed,
}

impl InstanceState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Unclaimed, Self::Claimed, Self::Running, Self::Crashed];

    /// Returns the state as shown in rows.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}

/// The record of a slot that a row represents. A slot has a second record while its cell evacuates.
#[derive(strum::IntoStaticStr, strum::Display)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE", const_into_str)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum InstancePresence {
    /// The ordinary instance.
    Ordinary,
    /// The evacuating instance.
    Evacuating,
}

impl InstancePresence {
    /// Both presences.
    pub const ALL: [Self; 2] = [Self::Ordinary, Self::Evacuating];

    /// Returns the presence as shown in rows.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}

/// The state of a task.
#[derive(strum::IntoStaticStr, strum::Display)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE", const_into_str)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TaskState {
    /// Waiting for placement.
    Pending,
    /// Running on a cell.
    Running,
    /// Completed, and waiting for its owner to be notified.
    Completed,
    /// Being resolved by its owner.
    Resolving,
}

impl TaskState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Running, Self::Completed, Self::Resolving];

    /// Returns the state as shown in rows.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}

/// The state of a cell.
#[derive(strum::IntoStaticStr, strum::Display)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE", const_into_str)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CellState {
    /// Available for work.
    Present,
    /// Available, and moving all its work to other cells.
    Evacuating,
    /// Available, but accepting no work because its self-test fails.
    Unhealthy,
    /// Present according to the log, but without recent heartbeats.
    Silent,
    /// Gone.
    Absent,
}

impl CellState {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Present, Self::Evacuating, Self::Unhealthy, Self::Silent, Self::Absent];

    /// Returns the state as shown in rows.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}

/// The target of an evaluation.
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

/// A DesiredLRP with its current state. `muster.query.<root>.lrp.list|show`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LrpRow {
    /// GUID of the process.
    pub process_guid: ProcessGuid,
    /// Domain of the process.
    pub domain: Domain,
    /// Epoch of the process: the time when it was created.
    pub epoch: Epoch,
    /// Number of decisions about the process so far.
    pub version: u64,
    /// Position of the last decision in the log.
    pub last_decision: Position,
    /// `true` if the process is desired. If `false`, its remaining instances are being stopped.
    pub desired: bool,
    /// Placement mode: replicated or global. `None` if the process is not desired.
    pub mode: Option<Mode>,
    /// Number of desired instances.
    pub instances: u32,
    /// Priority. `None` if the process is not desired.
    pub priority: Option<Priority>,
    /// Desired indices: those below `instances` or, for a global process, the ordinals of its cells.
    pub indices: Indices,
    /// Number of instances in state RUNNING.
    pub running: u32,
    /// Number of instances in state CLAIMED.
    pub claimed: u32,
    /// Number of instances in state UNCLAIMED.
    pub unclaimed: u32,
    /// Number of instances in state CRASHED.
    pub crashed: u32,
    /// Routing data.
    pub routes: Routes,
    /// Free text of the client.
    pub annotation: String,
    /// Active definition: the one that every instance is to run.
    pub definition_id: Option<DefinitionId>,
    /// Newest definition that is known to work. `None` if there is none.
    pub healthy_definition_id: Option<DefinitionId>,
    /// Ids of all definitions of the process, in order of their creation.
    pub definition_ids: Vec<DefinitionId>,
    /// Resources that an instance of each definition reserves on a cell.
    pub sizes: BTreeMap<DefinitionId, Resources>,
    /// Content of each definition. Lists contain it only on request.
    pub definitions: BTreeMap<DefinitionId, Definition>,
    /// Update, rollback and restart policies. Lists contain the policies only on request.
    pub policies: Option<Policies>,
    /// Rollout in progress, or the latest rollout.
    pub rollout: Option<RolloutRow>,
    /// Time of the last decision about the process.
    pub changed_at: Timestamp,
}

impl LrpRow {
    /// Returns the rollout of the process. `None` if the rollout is over.
    #[must_use]
    pub fn rollout_under_way(&self) -> Option<&RolloutRow> {
        self.rollout.as_ref().filter(|rollout| self.desired && !rollout.is_completed())
    }

    /// Returns the DesiredLRP. `None` if the process is not desired, or the row was listed without its
    /// definition.
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

/// The order of the states of an ActualLRP, like Diego's `ModificationTag`. Within an epoch, the state with
/// the higher index is newer. A new epoch starts when a removed process is created again (Updatable LRPs,
/// "Corresponding changes to ActualLRPs").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModificationTag {
    /// Epoch of the process. Events carry it in `epoch`.
    pub epoch: Epoch,
    /// Version of the process after the last decision that changed the instance. The version increases with
    /// each change, but not always by one. Events carry it in `version`.
    pub index: u64,
}

/// An ActualLRP. `muster.query.<root>.instance.list|show`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceRow {
    /// GUID of the process.
    pub process_guid: ProcessGuid,
    /// Index of the instance.
    pub index: u32,
    /// Domain of the process.
    pub domain: Domain,
    /// Epoch of the process.
    pub epoch: Epoch,
    /// Presence of the record: ordinary or evacuating.
    pub presence: InstancePresence,
    /// State of the instance.
    pub state: InstanceState,
    /// Container of the instance. `None` if it has none.
    pub instance_guid: Option<InstanceGuid>,
    /// Cell of the instance. `None` if it is not on a cell.
    pub cell_id: Option<CellId>,
    /// `true` if the instance has been asked to stop.
    pub stopping: bool,
    /// Address of the host. Set only while the instance is RUNNING.
    pub address: Option<String>,
    /// Port mappings. Set only while the instance is RUNNING.
    pub ports: Vec<PortMapping>,
    /// Isolation of the container. Set only while the instance is RUNNING and its cell does not evacuate.
    pub isolation: Option<Isolation>,
    /// Reason why placement failed. Set only while the instance is UNCLAIMED.
    pub placement_error: Option<String>,
    /// Number of counted crashes.
    pub crash_count: u32,
    /// Reason for the last crash.
    pub crash_reason: Option<String>,
    /// Container that crashed last. Its log is kept for a while.
    pub crashed_instance: Option<Instance>,
    /// Restart time of a CRASHED instance. `None` if it is not CRASHED or will not be restarted.
    pub restart_at: Option<Timestamp>,
    /// Reason why a CRASHED instance is not restarted. `None` if it is not CRASHED or will be restarted.
    pub no_restart_reason: Option<NoRestartReason>,
    /// Restart attempts that the policy counts and allows, as of the last crash. `None` if the policy does
    /// not limit the attempts.
    pub attempts: Option<Attempts>,
    /// Definition that the instance runs.
    pub definition_id: DefinitionId,
    /// Time when the state was entered.
    pub since: Timestamp,
    /// Modification tag of the instance.
    pub modification_tag: ModificationTag,
}

/// A task. `muster.query.<root>.task.list|show`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRow {
    /// GUID of the task.
    pub task_guid: TaskGuid,
    /// Domain of the task.
    pub domain: Domain,
    /// Epoch of the task: the time when it was created.
    pub epoch: Epoch,
    /// Number of decisions about the task so far.
    pub version: u64,
    /// Position of the last decision in the log.
    pub last_decision: Position,
    /// State of the task.
    pub state: TaskState,
    /// Container that runs or ran the task.
    pub instance_guid: Option<InstanceGuid>,
    /// Cell of the container.
    pub cell_id: Option<CellId>,
    /// `true` if the task failed. Set only once the task has completed.
    pub failed: Option<bool>,
    /// Reason for the failure.
    pub failure_reason: Option<String>,
    /// Content of the result file. Set only if the task succeeded.
    pub result: Option<String>,
    /// Reason why placement has failed so far.
    pub placement_error: Option<String>,
    /// Completion callbacks: the number of attempts and the latest outcome.
    pub callback: Option<Callback>,
    /// Time when the task first completed.
    pub first_completed_at: Option<Timestamp>,
    /// Time when the state was entered.
    pub since: Timestamp,
    /// Free text of the client.
    pub annotation: String,
    /// Priority of the task.
    pub priority: Priority,
    /// Definition of the task. Lists contain it only on request.
    pub definition: Option<TaskDefinition>,
}

impl TaskRow {
    /// Returns the task as a client creates it. `None` if the row has no definition.
    #[must_use]
    pub fn to_desired(&self) -> Option<DesiredTask> {
        Some(DesiredTask {
            task_guid: self.task_guid.clone(),
            domain: self.domain.clone(),
            definition: Arc::new(self.definition.clone()?),
        })
    }
}

/// A container of an instance that has ended. `muster.query.<root>.instance.ended`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndedInstanceRow {
    /// GUID of the process.
    pub process_guid: ProcessGuid,
    /// Index of the instance.
    pub index: u32,
    /// Domain of the process.
    pub domain: Domain,
    /// Epoch of the process that the container belonged to.
    pub epoch: Epoch,
    /// Definition that the container ran.
    pub definition_id: DefinitionId,
    /// The container. The cell keeps the container's log for a while.
    pub instance_guid: InstanceGuid,
    /// Cell of the container.
    pub cell_id: CellId,
    /// Time when the instance became RUNNING. `None` if the instance never became RUNNING.
    pub started_at: Option<Timestamp>,
    /// End time, according to the log.
    pub ended_at: Timestamp,
    /// Duration of the RUNNING state in milliseconds.
    pub duration_ms: Option<u64>,
    /// Kind of end: crashed, stopped, evacuated or another.
    pub end_kind: EndKind,
    /// Reason why the instance was asked to stop. `None` if no stop was requested.
    pub stop_reason: Option<actual::StopReason>,
    /// Reason for the crash. `None` if the instance did not crash.
    pub reason: Option<String>,
    /// Exit status of the action. Set only if the exit caused the crash.
    pub exit_status: Option<i32>,
    /// Number of counted crashes, including this one. 0 if the instance did not crash.
    pub crash_count: u32,
    /// Position of the log entry that recorded the end.
    pub position: Position,
    /// Number of this row among the containers that ended at `position`, from 0.
    pub nth: u32,
}

/// A task that has completed and been deleted. `muster.query.<root>.task.ended`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndedTaskRow {
    /// GUID of the task.
    pub task_guid: TaskGuid,
    /// Domain of the task.
    pub domain: Domain,
    /// Epoch of the task: the time when it was created.
    pub epoch: Epoch,
    /// Container that ran the task. `None` if the task never ran.
    pub instance_guid: Option<InstanceGuid>,
    /// Cell of the container.
    pub cell_id: Option<CellId>,
    /// `true` if the task failed.
    pub failed: bool,
    /// Reason for the failure.
    pub failure_reason: Option<String>,
    /// Content of the result file, truncated if it is long. Set only if the task succeeded.
    pub result: Option<String>,
    /// Completion callbacks: the number of attempts and the latest outcome.
    pub callback: Option<Callback>,
    /// Start time. `None` if the task never ran.
    pub started_at: Option<Timestamp>,
    /// Time when the task first completed.
    pub first_completed_at: Timestamp,
    /// Run time in milliseconds.
    pub duration_ms: Option<u64>,
    /// Time of deletion.
    pub deleted_at: Timestamp,
    /// `true` if the task was resolved. `false` if it was deleted because it was not resolved in time.
    pub resolved: bool,
    /// Position of the log entry that recorded the deletion.
    pub position: Position,
    /// Number of this row among the tasks that were deleted at `position`, from 0.
    pub nth: u32,
}

/// A domain. `muster.query.<root>.domain.list`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DomainRow {
    /// Name of the domain.
    pub domain: Domain,
    /// `true` if the domain is currently fresh.
    pub fresh: bool,
    /// Time of the last refresh.
    pub refreshed_at: Timestamp,
    /// Time when the domain stops being fresh. `None` if the domain stays fresh.
    pub expires_at: Option<Timestamp>,
}

/// Usage and quotas of a domain. `muster.query.<root>.domain.show`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DomainUseRow {
    /// Name of the domain.
    pub domain: Domain,
    /// Usage that the quotas limit.
    pub used: Usage,
    /// Quotas of the domain.
    pub quotas: Quotas,
    /// `true` if an operator has set quotas of this domain, `false` if the defaults apply.
    pub limited: bool,
}

/// A cell. `muster.query.<root>.cell.list|show`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CellRow {
    /// Id of the cell.
    pub cell_id: CellId,
    /// Recorded properties of the cell.
    pub presence: cell::Presence,
    /// State of the cell.
    pub state: CellState,
    /// `true` if an operator has requested evacuation.
    pub evacuation_requested: bool,
    /// `true` if an operator has cordoned the cell, so that it gets no new work.
    pub cordoned: bool,
    /// Index of the instances of global processes on this cell.
    pub ordinal: Option<u32>,
    /// Reason why the cell is ABSENT. `None` in other states.
    pub absent_reason: Option<String>,
    /// Reason why the self-test fails. `None` if the self-test passes.
    pub unhealthy: Option<String>,
    /// Age in milliseconds of the last heartbeat that the answering BBS received. `None` if it has received
    /// none.
    pub heartbeat_ms_ago: Option<u64>,
    /// Number of CLAIMED and RUNNING instance records that name the cell.
    pub instances: u32,
    /// Number of tasks that run on the cell.
    pub tasks: u32,
    /// Memory, disk, containers and ports that these instances and tasks use.
    pub used: Resources,
    /// Time when the state was entered.
    pub since: Timestamp,
}

/// An evaluation. `muster.query.<root>.evaluation.list|show`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EvaluationRow {
    /// Process or task that is evaluated.
    pub subject: EvaluationSubject,
    /// Domain of the process or task.
    pub domain: Domain,
    /// State of the evaluation.
    pub state: EvaluationState,
    /// The evaluation.
    pub evaluation: Evaluation,
    /// Number of placements that are still open.
    pub remaining: u32,
    /// Position in the auction order. Set only if this evaluation is shown alone and some of its work waits
    /// for a cell.
    pub queue_position: Option<QueuePosition>,
}

/// A position among all work that waits for a cell, in auction order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueuePosition {
    /// Number of waiting items before the first item of the evaluation.
    pub before: u32,
    /// Total number of waiting items, including those of the evaluation.
    pub waiting: u32,
}

/// The state of an evaluation (Nomad evaluation states), derived from its stored status, the time, and the
/// leader. A deleted evaluation exists only in the log, so no row shows this state.
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvaluationState {
    /// Waiting for scheduling while no auctioneer leads.
    Pending,
    /// Delayed until a fixed time.
    Delayed,
    /// Accepted by the leading auctioneer, with nothing placed yet.
    Scheduling,
    /// Partly placed.
    Applying,
    /// Waiting for free resources on a cell.
    Blocked,
    /// Finished: everything that could be placed is placed.
    Complete,
    /// Given up.
    Failed,
    /// No longer needed.
    Canceled,
    /// Deleted from the tables. Only the log still holds it.
    Deleted,
}

impl EvaluationState {
    /// Returns the state of an evaluation at the time `now`.
    #[must_use]
    pub fn from_evaluation(evaluation: &Evaluation, now: Timestamp, auctioneer_leads: bool) -> Self {
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

    /// Returns the name of the state.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}

/// The cluster. `muster.query.<root>.cluster.show`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterRow {
    /// Id of the cluster.
    pub cluster_id: ClusterId,
    /// Number of shards.
    pub shards: u16,
    /// The format level.
    pub format: u32,
    /// Leading BBS according to the log. `services` shows if this BBS still sends heartbeats.
    pub bbs: Option<cluster::Leader>,
    /// Leading auctioneer according to the log.
    pub auctioneer: Option<cluster::Leader>,
    /// BBSs and auctioneers whose heartbeats the answering BBS currently receives.
    pub services: Services,
    /// Findings about these services.
    pub problems: Vec<Finding>,
    /// Number of cells by state.
    pub cells: BTreeMap<CellState, u32>,
    /// Zones of the present cells.
    pub zones: Vec<Zone>,
    /// Number of desired processes.
    pub lrps: u64,
    /// Number of instances by state.
    pub instances: BTreeMap<InstanceState, u64>,
    /// Number of tasks by state.
    pub tasks: BTreeMap<TaskState, u64>,
    /// Number of times that convergence alone found work to do.
    pub found_by_convergence: u64,
    /// Number of evaluation commands that were refused because of the evaluation's status, since the
    /// answering BBS started.
    #[serde(default)]
    pub refused_transitions: u64,
    /// `true` if less urgent work may be stopped to make room for waiting work.
    #[serde(default)]
    pub preemption: bool,
    /// Durability of acknowledged entries on a power failure, as far as the BBS can determine.
    pub durability: String,
    /// Quarantined entries of the journal.
    #[serde(default)]
    pub quarantined_entries: QuarantinedEntries,
}

/// Quarantined entries of the journal: messages that are not valid entries. Every program skips these
/// messages, and queries show them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuarantinedEntries {
    /// Total number of quarantined entries.
    pub count: u64,
    /// Latest quarantined entries, the newest last.
    pub last: Vec<QuarantinedEntry>,
}

/// A message of the journal that is not a valid entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuarantinedEntry {
    /// Position of the message.
    pub position: Position,
    /// Subject of the message.
    pub subject: String,
    /// Reason why the message is not a valid entry.
    pub reason: String,
}
