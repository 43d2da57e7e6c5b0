//! The tables and their columns. Each column has a name, a kind, a comment and a conversion from a row.

use machines::cluster::Cluster;
use schemas::container::Epoch;
use schemas::definition::Definition;
use schemas::evaluation::{CancelReason, Status};
use schemas::names::{DefinitionId, Domain, InstanceGuid, ProcessGuid};
use schemas::query::{
    CellRow, DomainRow, EndedInstanceRow, EndedTaskRow, EvaluationRow, EvaluationSubject, InstanceRow,
    LrpRow, ParameterisedRow, PeriodicRow, RolloutRow, TaskRow,
};

use super::Row;
use super::value::Kind::{Boolean, Integer, Json, Text, Time};
use super::value::{Kind, Value, json, number, optional, text, word};

/// Table of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Desired state of processes.
    DesiredLrps,
    /// Definitions of the instances of processes.
    Definitions,
    /// Instances of processes.
    ActualLrps,
    /// Ended containers of instances.
    EndedInstances,
    /// Replacements of one definition by another.
    Rollouts,
    /// Attempts to place work.
    Evaluations,
    Tasks,
    /// Completed tasks that were deleted.
    EndedTasks,
    PeriodicTasks,
    ParameterisedTasks,
    Domains,
    Cells,
    /// The cluster, in one row.
    Clusters,
}

/// Definition of a column in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnSpec {
    pub name: &'static str,
    /// Kind of the values.
    pub kind: Kind,
    /// Description, stored as a comment in the database.
    pub comment: &'static str,
}

/// Column with its conversion from rows of one type.
pub(super) struct Column<R> {
    shape: ColumnSpec,
    pub(super) value: fn(&R) -> Value,
}

impl<R> Column<R> {
    pub(super) const fn new(
        name: &'static str,
        kind: Kind,
        comment: &'static str,
        value: fn(&R) -> Value,
    ) -> Self {
        Self { shape: ColumnSpec { name, kind, comment }, value }
    }
}

pub(super) fn specs<R>(columns: &[Column<R>]) -> Vec<ColumnSpec> {
    columns.iter().map(|column| column.shape).collect()
}

fn row<R>(table: Table, columns: &[Column<R>], from: &R) -> Row {
    Row { table, values: columns.iter().map(|column| (column.value)(from)).collect() }
}

impl Table {
    /// Every table.
    pub const ALL: [Self; 13] = [
        Self::DesiredLrps,
        Self::Definitions,
        Self::ActualLrps,
        Self::EndedInstances,
        Self::Rollouts,
        Self::Evaluations,
        Self::Tasks,
        Self::EndedTasks,
        Self::PeriodicTasks,
        Self::ParameterisedTasks,
        Self::Domains,
        Self::Cells,
        Self::Clusters,
    ];

    /// Returns the name, the number of key columns, and the description. The key columns come first.
    const fn description(self) -> (&'static str, usize, &'static str) {
        match self {
            Self::DesiredLrps => ("desired_lrps", 1, "Desired processes."),
            Self::Definitions => ("definitions", 2, "Definitions of the instances of desired processes."),
            Self::ActualLrps => (
                "actual_lrps",
                4,
                "Instances of processes: one row for each record, including evacuating instances.",
            ),
            Self::EndedInstances => ("ended_instances", 1, "Ended containers of instances."),
            Self::Rollouts => {
                ("rollouts", 3, "Replacements of one definition by another in the instances of a process.")
            }
            Self::Evaluations => ("evaluations", 1, "Attempts to place work, with cause and outcome."),
            Self::Tasks => ("tasks", 1, "Tasks that have not been deleted."),
            Self::EndedTasks => ("ended_tasks", 2, "Completed tasks that were deleted."),
            Self::PeriodicTasks => ("periodic_tasks", 1, "Periodic tasks, which launch tasks on a schedule."),
            Self::ParameterisedTasks => {
                ("parameterised_tasks", 1, "Parameterised tasks, from which tasks are dispatched.")
            }
            Self::Domains => ("domains", 1, "Domains that were ever refreshed."),
            Self::Cells => ("cells", 1, "Known cells, present or absent."),
            Self::Clusters => ("clusters", 1, "The cluster, in one row."),
        }
    }

    /// Returns the name of the table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.description().0
    }

    /// Returns the number of key columns. They are the first columns.
    #[must_use]
    pub const fn key_columns(self) -> usize {
        self.description().1
    }

    /// Returns the description of the table.
    #[must_use]
    pub const fn comment(self) -> &'static str {
        self.description().2
    }

    /// Returns `true` if the table records outcomes. The rows of such a table stay when the World (the state
    /// folded from the log) forgets them.
    #[must_use]
    pub const fn is_record(self) -> bool {
        match self {
            Self::EndedInstances | Self::Rollouts | Self::Evaluations | Self::EndedTasks => true,
            Self::DesiredLrps
            | Self::Definitions
            | Self::ActualLrps
            | Self::Tasks
            | Self::PeriodicTasks
            | Self::ParameterisedTasks
            | Self::Domains
            | Self::Cells
            | Self::Clusters => false,
        }
    }

    /// Returns the columns of the table.
    #[must_use]
    pub fn columns(self) -> Vec<ColumnSpec> {
        match self {
            Self::DesiredLrps => specs(&DESIRED_LRPS),
            Self::Definitions => specs(&definitions()),
            Self::ActualLrps => specs(&ACTUAL_LRPS),
            Self::EndedInstances => specs(&ENDED_INSTANCES),
            Self::Rollouts => specs(&rollouts()),
            Self::Evaluations => specs(&EVALUATIONS),
            Self::Tasks => specs(&TASKS),
            Self::EndedTasks => specs(&ENDED_TASKS),
            Self::PeriodicTasks => specs(&PERIODIC_TASKS),
            Self::ParameterisedTasks => specs(&PARAMETERISED_TASKS),
            Self::Domains => specs(&DOMAINS),
            Self::Cells => specs(&CELLS),
            Self::Clusters => specs(&CLUSTERS),
        }
    }
}

const DESIRED_LRPS: [Column<LrpRow>; 13] = [
    Column::new("process_guid", Text, "Name of the process.", |lrp| text(&lrp.process_guid)),
    Column::new("domain", Text, "Domain of the process.", |lrp| text(&lrp.domain)),
    Column::new("epoch", Time, "Epoch: time at which it was desired.", |lrp| Value::Time(lrp.epoch.0)),
    Column::new(
        "mode",
        Text,
        "replicated: a number of instances; global: one instance on each cell.",
        |lrp| optional(lrp.mode, |mode| word(&mode)),
    ),
    Column::new("instances", Integer, "Number of desired instances.", |lrp| number(lrp.instances)),
    Column::new("priority", Integer, "Priority of its placement.", |lrp| {
        optional(lrp.priority, |priority| number(u8::from(priority)))
    }),
    Column::new("indices", Json, "Desired indices, as ranges.", |lrp| json(&lrp.indices)),
    Column::new("definition_id", Text, "Active definition: every instance should run it.", |lrp| {
        optional(lrp.definition_id.as_ref(), text)
    }),
    Column::new("healthy_definition_id", Text, "Healthy definition, which is known to work.", |lrp| {
        optional(lrp.healthy_definition_id.as_ref(), text)
    }),
    Column::new(
        "definition_ids",
        Json,
        "Definitions of the process, in the order of their addition.",
        |lrp| json(&lrp.definition_ids),
    ),
    Column::new("routes", Json, "Routing data.", |lrp| json(&lrp.routes)),
    Column::new("annotation", Text, "Annotation of the consumer.", |lrp| text(&lrp.annotation)),
    Column::new("policies", Json, "Policies for updates, restarts and history.", |lrp| {
        optional(lrp.policies.as_ref(), json)
    }),
];

/// Definition with the process that it belongs to.
pub(super) struct DefinitionSource<'a> {
    pub(super) process_guid: &'a ProcessGuid,
    pub(super) domain: &'a Domain,
    pub(super) definition_id: &'a DefinitionId,
    pub(super) definition: &'a Definition,
}

const fn definitions<'a>() -> [Column<DefinitionSource<'a>>; 10] {
    [
        Column::new("process_guid", Text, "Process of the definition.", |of| text(of.process_guid)),
        Column::new("definition_id", Text, "Name of the definition.", |of| text(of.definition_id)),
        Column::new("domain", Text, "Domain of the process.", |of| text(of.domain)),
        Column::new("memory_mb", Integer, "Memory of an instance, in MiB.", |of| {
            number(of.definition.memory_mb)
        }),
        Column::new("disk_mb", Integer, "Disk of an instance, in MiB.", |of| number(of.definition.disk_mb)),
        Column::new("cpu_weight", Integer, "CPU weight of an instance.", |of| {
            number(of.definition.cpu_weight)
        }),
        Column::new(
            "start_timeout_ms",
            Integer,
            "Maximum time until an instance is RUNNING, in milliseconds; 0 for no limit.",
            |of| number(of.definition.start_timeout_ms),
        ),
        Column::new(
            "grace_period_ms",
            Integer,
            "Maximum time for an instance to stop, in milliseconds.",
            |of| number(of.definition.grace_period_ms),
        ),
        Column::new("constraint", Json, "Constraint on the cells that may run it.", |of| {
            json(&of.definition.constraint)
        }),
        Column::new("ports", Json, "Ports on which an instance listens.", |of| json(&of.definition.ports)),
    ]
}

const ACTUAL_LRPS: [Column<InstanceRow>; 21] = [
    Column::new("process_guid", Text, "Process of the instance.", |row| text(&row.process_guid)),
    Column::new("definition_id", Text, "Definition of the instance.", |row| text(&row.definition_id)),
    Column::new("index", Integer, "Index of the instance.", |row| number(row.index)),
    Column::new(
        "presence",
        Text,
        "ORDINARY, or EVACUATING for an instance on an evacuating cell that waits for its replacement.",
        |row| text(row.presence),
    ),
    Column::new("domain", Text, "Domain of the process.", |row| text(&row.domain)),
    Column::new("epoch", Time, "Epoch of the process.", |row| Value::Time(row.epoch.0)),
    Column::new("state", Text, "UNCLAIMED, CLAIMED, RUNNING or CRASHED.", |row| text(row.state)),
    Column::new("instance_guid", Text, "Container; null without a container.", |row| {
        optional(row.instance_guid, text)
    }),
    Column::new("cell_id", Text, "Cell; null if it is on no cell.", |row| {
        optional(row.cell_id.as_ref(), text)
    }),
    Column::new("stopping", Boolean, "True if a stop was requested.", |row| Value::Boolean(row.stopping)),
    Column::new("address", Text, "Address of its host, while it runs.", |row| {
        optional(row.address.as_ref(), text)
    }),
    Column::new(
        "ports",
        Json,
        "Container ports and the host ports that lead to them, while it runs.",
        |row| json(&row.ports),
    ),
    Column::new(
        "isolation",
        Text,
        "Isolation of its container: full, none, or degraded with the missing layers, while it runs.",
        |row| optional(row.isolation, text),
    ),
    Column::new(
        "placement_error",
        Text,
        "Reason why it could not be placed, while it is UNCLAIMED.",
        |row| optional(row.placement_error.as_ref(), text),
    ),
    Column::new("crash_count", Integer, "Counted crashes.", |row| number(row.crash_count)),
    Column::new("crash_reason", Text, "Reason of the last crash.", |row| {
        optional(row.crash_reason.as_ref(), text)
    }),
    Column::new("crashed_instance", Text, "Container of the last crash.", |row| {
        optional(row.crashed_instance.as_ref(), |by| text(by.instance_guid))
    }),
    Column::new("restart_at", Time, "Time of its restart, while it is CRASHED.", |row| {
        optional(row.restart_at, Value::Time)
    }),
    Column::new("no_restart_reason", Text, "Reason why it is not restarted, while it is CRASHED.", |row| {
        optional(row.no_restart_reason.as_ref(), word)
    }),
    Column::new("since", Time, "Start time of its state.", |row| Value::Time(row.since)),
    Column::new(
        "modification_index",
        Integer,
        "Version of the process after the last decision that changed it; with the epoch, its modification \
         tag.",
        |row| number(row.modification_tag.index),
    ),
];

const ENDED_INSTANCES: [Column<EndedInstanceRow>; 15] = [
    Column::new("instance_guid", Text, "Container.", |row| text(row.instance_guid)),
    Column::new("process_guid", Text, "Process of the instance.", |row| text(&row.process_guid)),
    Column::new("definition_id", Text, "Definition of the instance.", |row| text(&row.definition_id)),
    Column::new("index", Integer, "Index of the instance.", |row| number(row.index)),
    Column::new("domain", Text, "Domain of the process.", |row| text(&row.domain)),
    Column::new("epoch", Time, "Epoch of the process.", |row| Value::Time(row.epoch.0)),
    Column::new("cell_id", Text, "Cell of the container.", |row| text(&row.cell_id)),
    Column::new("started_at", Time, "Time at which it became RUNNING; null if it never did.", |row| {
        optional(row.started_at, Value::Time)
    }),
    Column::new("ended_at", Time, "Time of its end, according to the log.", |row| Value::Time(row.ended_at)),
    Column::new("duration_ms", Integer, "Time for which it was RUNNING, in milliseconds.", |row| {
        optional(row.duration_ms, number)
    }),
    Column::new(
        "end_kind",
        Text,
        "Kind of end: crashed, stopped, crashed_stopping, cell_lost, evacuated, evacuation_expired or \
         displaced.",
        |row| word(&row.end_kind),
    ),
    Column::new("stop_reason", Text, "Reason of the stop request, if there was one.", |row| {
        optional(row.stop_reason.as_ref(), word)
    }),
    Column::new("reason", Text, "Reason of the crash, if it crashed.", |row| {
        optional(row.reason.as_ref(), text)
    }),
    Column::new("exit_status", Integer, "Exit status of its action, if that caused the crash.", |row| {
        optional(row.exit_status, number)
    }),
    Column::new(
        "crash_count",
        Integer,
        "Counted crashes including this one; 0 if it did not crash.",
        |row| number(row.crash_count),
    ),
];

/// Rollout with the process that it belongs to.
pub(super) struct RolloutSource<'a> {
    pub(super) process_guid: &'a ProcessGuid,
    pub(super) epoch: Epoch,
    pub(super) domain: &'a Domain,
    pub(super) row: &'a RolloutRow,
}

const fn rollouts<'a>() -> [Column<RolloutSource<'a>>; 16] {
    [
        Column::new("process_guid", Text, "Process of the rollout.", |of| text(of.process_guid)),
        Column::new("epoch", Time, "Epoch of the process.", |of| Value::Time(of.epoch.0)),
        Column::new("number", Integer, "Number of the rollout in the epoch, from 1.", |of| {
            number(of.row.number)
        }),
        Column::new("domain", Text, "Domain of the process.", |of| text(of.domain)),
        Column::new("kind", Text, "Direction: forward or back.", |of| word(&of.row.kind)),
        Column::new(
            "status",
            Text,
            "updating, paused, completed, rollback_started, rollback_paused or rollback_completed.",
            |of| text(&of.row.status),
        ),
        Column::new("reason", Text, "Reason of its state.", |of| optional(of.row.reason.as_ref(), text)),
        Column::new("target", Text, "Definition that every index should run.", |of| text(&of.row.target)),
        Column::new("rollback_to", Text, "Definition that a rollback returns to.", |of| {
            optional(of.row.rollback_to.as_ref(), text)
        }),
        Column::new("total", Integer, "Number of indices to replace.", |of| number(of.row.total)),
        Column::new("replaced", Integer, "Number of replaced indices.", |of| number(of.row.replaced)),
        Column::new("in_replacement", Json, "Indices that are being replaced, as ranges.", |of| {
            json(&of.row.in_replacement)
        }),
        Column::new("stalled", Json, "Indices that are given up for now, as ranges.", |of| {
            json(&of.row.stalled)
        }),
        Column::new("failed", Json, "Indices with a failed instance, as ranges.", |of| json(&of.row.failed)),
        Column::new("started_at", Time, "Start time.", |of| Value::Time(of.row.started_at)),
        Column::new("since", Time, "Start time of its state.", |of| Value::Time(of.row.since)),
    ]
}

const EVALUATIONS: [Column<EvaluationRow>; 24] = [
    Column::new("evaluation_id", Text, "Id of the evaluation.", |row| text(row.evaluation.id)),
    Column::new("process_guid", Text, "Process; null for a task.", |row| match &row.subject {
        EvaluationSubject::Process(guid) => text(guid),
        EvaluationSubject::Task(_) => Value::Null,
    }),
    Column::new("task_guid", Text, "Task; null for a process.", |row| match &row.subject {
        EvaluationSubject::Task(guid) => text(guid),
        EvaluationSubject::Process(_) => Value::Null,
    }),
    Column::new("domain", Text, "Domain of the process or task.", |row| text(&row.domain)),
    Column::new("trigger", Text, "Cause of the work, such as desire, scale or crash.", |row| {
        word(&row.evaluation.trigger)
    }),
    Column::new("status", Text, "pending, blocked, complete, failed or canceled.", |row| {
        text(status_text(&row.evaluation.status).0)
    }),
    Column::new("reason", Text, "Reason why it is blocked, failed or canceled.", |row| {
        optional(status_text(&row.evaluation.status).1, text)
    }),
    Column::new("wait_until", Time, "Earliest time of its scheduling, while it is delayed.", |row| {
        optional(row.evaluation.wait.until(), Value::Time)
    }),
    Column::new("decision", Text, "Decision that created it.", |row| text(row.evaluation.decision)),
    Column::new("correlation", Text, "First decision of the causal chain.", |row| {
        text(row.evaluation.correlation)
    }),
    Column::new("caused_by", Text, "Decision that caused it.", |row| {
        optional(row.evaluation.caused_by, text)
    }),
    Column::new("created_at", Time, "Time of its creation.", |row| Value::Time(row.evaluation.created_at)),
    Column::new("since", Time, "Time of the last change of its status.", |row| {
        Value::Time(row.evaluation.since)
    }),
    Column::new("previous", Text, "Evaluation whose work it continues.", |row| {
        optional(row.evaluation.previous, text)
    }),
    Column::new("next", Text, "Evaluation that follows it.", |row| optional(row.evaluation.next, text)),
    Column::new("blocked", Text, "Blocked evaluation with the work that it could not place.", |row| {
        optional(row.evaluation.blocked, text)
    }),
    Column::new("placed", Integer, "Number of placed instances and tasks.", |row| {
        number(row.evaluation.placed)
    }),
    Column::new(
        "queued",
        Integer,
        "Number of instances and tasks that could not be placed and wait for room.",
        |row| number(row.evaluation.queued),
    ),
    Column::new(
        "rejected",
        Integer,
        "Number of instances and tasks that could not be placed and do not wait.",
        |row| number(row.evaluation.rejected),
    ),
    Column::new("stopped", Integer, "Number of instances that it asked to stop.", |row| {
        number(row.evaluation.stopped)
    }),
    Column::new("delivery", Integer, "Number of deliveries to the auctioneer.", |row| {
        number(row.evaluation.delivery)
    }),
    Column::new("follow_ups", Integer, "Number of earlier follow-ups in its chain.", |row| {
        number(row.evaluation.follow_ups)
    }),
    Column::new("joins", Integer, "Number of further causes that joined it.", |row| {
        number(row.evaluation.joins)
    }),
    Column::new(
        "eligibility",
        Json,
        "Classes of cells that were tried when it could not be placed.",
        |row| optional(row.evaluation.eligibility.as_ref(), json),
    ),
];

/// Returns a status as one word, and its reason.
fn status_text(status: &Status) -> (&'static str, Option<&str>) {
    match status {
        Status::Pending => ("pending", None),
        Status::Blocked { reason } => ("blocked", Some(reason)),
        Status::Complete => ("complete", None),
        Status::Failed { reason } => ("failed", Some(reason)),
        Status::Canceled { reason: CancelReason::NothingLeft } => ("canceled", Some("nothing_left")),
        Status::Canceled { reason: CancelReason::Superseded } => ("canceled", Some("superseded")),
    }
}

const TASKS: [Column<TaskRow>; 18] = [
    Column::new("task_guid", Text, "Name of the task.", |row| text(&row.task_guid)),
    Column::new("domain", Text, "Domain of the task.", |row| text(&row.domain)),
    Column::new("epoch", Time, "Epoch: time at which it was created.", |row| Value::Time(row.epoch.0)),
    Column::new("state", Text, "PENDING, RUNNING, COMPLETED or RESOLVING.", |row| text(row.state)),
    Column::new("instance_guid", Text, "Container that runs or ran it.", |row| {
        optional(row.instance_guid, text)
    }),
    Column::new("cell_id", Text, "Cell of the container.", |row| optional(row.cell_id.as_ref(), text)),
    Column::new("failed", Boolean, "True if it failed; null before it is completed.", |row| {
        optional(row.failed, Value::Boolean)
    }),
    Column::new("failure_reason", Text, "Reason of the failure.", |row| {
        optional(row.failure_reason.as_ref(), text)
    }),
    Column::new("result", Text, "Content of its result file, if it succeeded.", |row| {
        optional(row.result.as_ref(), text)
    }),
    Column::new("placement_error", Text, "Reason why it could not be placed yet.", |row| {
        optional(row.placement_error.as_ref(), text)
    }),
    Column::new("callback", Json, "Number of completion callbacks, and the result of the last one.", |row| {
        optional(row.callback.as_ref(), json)
    }),
    Column::new("first_completed_at", Time, "Time of its first completion.", |row| {
        optional(row.first_completed_at, Value::Time)
    }),
    Column::new("since", Time, "Start time of its state.", |row| Value::Time(row.since)),
    Column::new("annotation", Text, "Annotation of the consumer.", |row| text(&row.annotation)),
    Column::new("priority", Integer, "Priority of its placement.", |row| number(u8::from(row.priority))),
    Column::new("memory_mb", Integer, "Memory of the task, in MiB.", |row| {
        optional(row.definition.as_ref(), |of| number(of.memory_mb))
    }),
    Column::new("disk_mb", Integer, "Disk of the task, in MiB.", |row| {
        optional(row.definition.as_ref(), |of| number(of.disk_mb))
    }),
    Column::new("constraint", Json, "Constraint on the cells that may run it.", |row| {
        optional(row.definition.as_ref(), |of| json(&of.constraint))
    }),
];

const ENDED_TASKS: [Column<EndedTaskRow>; 14] = [
    Column::new("task_guid", Text, "Name of the task.", |row| text(&row.task_guid)),
    Column::new("epoch", Time, "Epoch: time at which it was created.", |row| Value::Time(row.epoch.0)),
    Column::new("domain", Text, "Domain of the task.", |row| text(&row.domain)),
    Column::new("instance_guid", Text, "Container that ran it; null if none did.", |row| {
        optional(row.instance_guid, text)
    }),
    Column::new("cell_id", Text, "Cell of the container.", |row| optional(row.cell_id.as_ref(), text)),
    Column::new("failed", Boolean, "True if it failed.", |row| Value::Boolean(row.failed)),
    Column::new("failure_reason", Text, "Reason of the failure.", |row| {
        optional(row.failure_reason.as_ref(), text)
    }),
    Column::new(
        "result",
        Text,
        "Content of its result file, truncated if it is long; null if it failed.",
        |row| optional(row.result.as_ref(), text),
    ),
    Column::new("callback", Json, "Number of completion callbacks, and the result of the last one.", |row| {
        optional(row.callback.as_ref(), json)
    }),
    Column::new("started_at", Time, "Start time; null if it never ran.", |row| {
        optional(row.started_at, Value::Time)
    }),
    Column::new("first_completed_at", Time, "Time of its first completion.", |row| {
        Value::Time(row.first_completed_at)
    }),
    Column::new("duration_ms", Integer, "Run time, in milliseconds.", |row| {
        optional(row.duration_ms, number)
    }),
    Column::new("deleted_at", Time, "Time of its deletion.", |row| Value::Time(row.deleted_at)),
    Column::new(
        "resolved",
        Boolean,
        "True if it was resolved; false if it was deleted without having been resolved in time.",
        |row| Value::Boolean(row.resolved),
    ),
];

const PERIODIC_TASKS: [Column<PeriodicRow>; 12] = [
    Column::new("periodic_guid", Text, "Name of the periodic task.", |row| text(&row.periodic_guid)),
    Column::new("domain", Text, "Domain of the periodic task.", |row| text(&row.domain)),
    Column::new("epoch", Time, "Epoch: time at which it was desired.", |row| Value::Time(row.epoch.0)),
    Column::new("state", Text, "ACTIVE or PAUSED.", |row| text(row.state.as_str())),
    Column::new("cron", Text, "Schedule: minute, hour, day of the month, month, day of the week.", |row| {
        text(&row.cron)
    }),
    Column::new("time_zone", Text, "Time zone of the schedule.", |row| text(&row.time_zone)),
    Column::new("overlap", Text, "Treatment of a launch that is due while an earlier one runs.", |row| {
        word(&row.overlap)
    }),
    Column::new("next", Time, "Time of the next launch; null while it is paused.", |row| {
        optional(row.next, Value::Time)
    }),
    Column::new("queued", Time, "Due time of a launch that waits for the end of an earlier one.", |row| {
        optional(row.queued, Value::Time)
    }),
    Column::new("launched", Integer, "Number of tasks launched in this epoch.", |row| number(row.launched)),
    Column::new("skipped", Integer, "Number of launches skipped in this epoch.", |row| number(row.skipped)),
    Column::new("since", Time, "Time at which it was desired, updated, paused or resumed.", |row| {
        Value::Time(row.since)
    }),
];

const PARAMETERISED_TASKS: [Column<ParameterisedRow>; 13] = [
    Column::new("parameterised_guid", Text, "Name of the parameterised task.", |row| {
        text(&row.parameterised_guid)
    }),
    Column::new("domain", Text, "Domain of the parameterised task.", |row| text(&row.domain)),
    Column::new("epoch", Time, "Epoch: time at which it was desired.", |row| Value::Time(row.epoch.0)),
    Column::new("payload", Text, "Payload of a dispatch: required, optional or forbidden.", |row| {
        word(&row.payload)
    }),
    Column::new("required_parameters", Json, "Parameters that a dispatch must set.", |row| {
        json(&row.required_parameters)
    }),
    Column::new("optional_parameters", Json, "Parameters that a dispatch may set.", |row| {
        json(&row.optional_parameters)
    }),
    Column::new(
        "concurrency",
        Integer,
        "Maximum number of its tasks that are PENDING or RUNNING at once; null for no limit.",
        |row| optional(row.concurrency, number),
    ),
    Column::new("overflow", Text, "Treatment of a dispatch beyond that limit.", |row| word(&row.overflow)),
    Column::new("waiting", Integer, "Number of waiting dispatches.", |row| number(row.waiting)),
    Column::new("dispatched", Integer, "Number of dispatches in this epoch.", |row| number(row.dispatched)),
    Column::new("launched", Integer, "Number of dispatches that became tasks.", |row| number(row.launched)),
    Column::new("withdrawn", Integer, "Number of withdrawn dispatches.", |row| number(row.withdrawn)),
    Column::new("since", Time, "Time at which it was desired or updated.", |row| Value::Time(row.since)),
];

const DOMAINS: [Column<DomainRow>; 3] = [
    Column::new("domain", Text, "Name of the domain.", |row| text(&row.domain)),
    Column::new("refreshed_at", Time, "Time of the last refresh.", |row| Value::Time(row.refreshed_at)),
    Column::new("expires_at", Time, "Time until which it is fresh; null if it never expires.", |row| {
        optional(row.expires_at, Value::Time)
    }),
];

const CELLS: [Column<CellRow>; 15] = [
    Column::new("cell_id", Text, "Name of the cell.", |row| text(&row.cell_id)),
    Column::new("state", Text, "PRESENT, EVACUATING, UNHEALTHY or ABSENT.", |row| text(row.state)),
    Column::new("zone", Text, "Zone of the cell.", |row| text(&row.presence.zone)),
    Column::new("stack", Text, "Stack that it offers.", |row| text(&row.presence.stack)),
    Column::new(
        "placement_tags",
        Json,
        "Placement tags: only work that requires all of them is placed there.",
        |row| json(&row.presence.placement_tags),
    ),
    Column::new("attributes", Json, "Further attributes that its rep reports.", |row| {
        json(&row.presence.attributes)
    }),
    Column::new("memory_mb", Integer, "Total memory, in MiB.", |row| number(row.presence.total.memory_mb)),
    Column::new("disk_mb", Integer, "Total disk, in MiB.", |row| number(row.presence.total.disk_mb)),
    Column::new("containers", Integer, "Maximum number of containers.", |row| {
        number(row.presence.total.containers)
    }),
    Column::new("ports", Integer, "Maximum number of host ports.", |row| number(row.presence.total.ports)),
    Column::new("evacuation_requested", Boolean, "True if an operator requested its evacuation.", |row| {
        Value::Boolean(row.evacuation_requested)
    }),
    Column::new("cordoned", Boolean, "True if an operator cordoned it: it gets no new work.", |row| {
        Value::Boolean(row.cordoned)
    }),
    Column::new("ordinal", Integer, "Ordinal: the index of global processes on it.", |row| {
        optional(row.ordinal, number)
    }),
    Column::new("absent_reason", Text, "Reason why it is ABSENT.", |row| {
        optional(row.absent_reason.as_ref(), text)
    }),
    Column::new("since", Time, "Start time of its state.", |row| Value::Time(row.since)),
];

const CLUSTERS: [Column<Cluster>; 10] = [
    Column::new("cluster_id", Text, "Id of the cluster.", |of| text(of.id)),
    Column::new("shards", Integer, "Number of shards.", |of| number(of.shards)),
    Column::new("format", Integer, "Format level of new entries.", |of| number(of.format)),
    Column::new("bbs", Text, "Leading BBS.", |of| optional(of.bbs.as_ref(), |leader| text(&leader.id))),
    Column::new("bbs_term", Integer, "Term of the leading BBS.", |of| {
        optional(of.bbs.as_ref(), |leader| number(leader.term))
    }),
    Column::new("bbs_since", Time, "Time of its election.", |of| {
        optional(of.bbs.as_ref(), |leader| Value::Time(leader.since))
    }),
    Column::new("auctioneer", Text, "Leading auctioneer.", |of| {
        optional(of.auctioneer.as_ref(), |leader| text(&leader.id))
    }),
    Column::new("auctioneer_term", Integer, "Term of the leading auctioneer.", |of| {
        optional(of.auctioneer.as_ref(), |leader| number(leader.term))
    }),
    Column::new("auctioneer_since", Time, "Time of its election.", |of| {
        optional(of.auctioneer.as_ref(), |leader| Value::Time(leader.since))
    }),
    Column::new(
        "preemption",
        Boolean,
        "True if less urgent work may be stopped for waiting work (preemption).",
        |of| Value::Boolean(of.preemption),
    ),
];

pub(super) fn desired_lrp(of: &LrpRow) -> Row {
    row(Table::DesiredLrps, &DESIRED_LRPS, of)
}

pub(super) fn definition(of: &DefinitionSource<'_>) -> Row {
    row(Table::Definitions, &definitions(), of)
}

pub(super) fn actual_lrp(of: &InstanceRow) -> Row {
    row(Table::ActualLrps, &ACTUAL_LRPS, of)
}

pub(super) fn ended_instance(of: &EndedInstanceRow) -> Row {
    row(Table::EndedInstances, &ENDED_INSTANCES, of)
}

/// Returns the key of an ended container's row.
pub(super) fn ended_instance_key(container: InstanceGuid) -> Vec<Value> {
    vec![text(container)]
}

pub(super) fn rollout(of: &RolloutSource<'_>) -> Row {
    row(Table::Rollouts, &rollouts(), of)
}

pub(super) fn evaluation(of: &EvaluationRow) -> Row {
    row(Table::Evaluations, &EVALUATIONS, of)
}

pub(super) fn task(of: &TaskRow) -> Row {
    row(Table::Tasks, &TASKS, of)
}

pub(super) fn ended_task(of: &EndedTaskRow) -> Row {
    row(Table::EndedTasks, &ENDED_TASKS, of)
}

pub(super) fn periodic(of: &PeriodicRow) -> Row {
    row(Table::PeriodicTasks, &PERIODIC_TASKS, of)
}

pub(super) fn parameterised(of: &ParameterisedRow) -> Row {
    row(Table::ParameterisedTasks, &PARAMETERISED_TASKS, of)
}

pub(super) fn domain(of: &DomainRow) -> Row {
    row(Table::Domains, &DOMAINS, of)
}

pub(super) fn cell(of: &CellRow) -> Row {
    row(Table::Cells, &CELLS, of)
}

pub(super) fn cluster(of: &Cluster) -> Row {
    row(Table::Clusters, &CLUSTERS, of)
}
