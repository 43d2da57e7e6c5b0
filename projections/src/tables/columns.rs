//! The tables and their columns: for each column its name, its kind, what it says, and how it comes from a row.

use schemas::cluster::Cluster;
use schemas::container::Epoch;
use schemas::definition::Definition;
use schemas::evaluation::{Canceled, Status};
use schemas::names::{DefinitionId, Domain, InstanceGuid, ProcessGuid};
use schemas::query::{
    CellRow, DomainRow, EndedInstanceRow, EndedTaskRow, EvaluationRow, EvaluationSubject, InstanceRow,
    LrpRow, ParameterisedRow, PeriodicRow, RolloutRow, TaskRow,
};

use super::Row;
use super::value::Kind::{Boolean, Integer, Json, Text, Time};
use super::value::{Kind, Value, json, maybe, number, text, word};

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// What is desired of processes.
    DesiredLrps,
    /// What their instances run.
    Definitions,
    /// Their instances.
    ActualLrps,
    /// The containers of instances that ended.
    EndedInstances,
    /// How one definition replaces another.
    Rollouts,
    /// Attempts to place work.
    Evaluations,
    /// Tasks.
    Tasks,
    /// Tasks that completed and are deleted.
    EndedTasks,
    /// What launches tasks at times.
    PeriodicTasks,
    /// What tasks are dispatched of.
    ParameterisedTasks,
    /// Domains.
    Domains,
    /// Cells.
    Cells,
    /// The cluster.
    Clusters,
}

/// A column, as a database makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its name.
    pub name: &'static str,
    /// The kind of its values.
    pub kind: Kind,
    /// What it says.
    pub comment: &'static str,
}

/// A column of rows of one kind.
pub(super) struct Column<R> {
    shape: Shape,
    pub(super) value: fn(&R) -> Value,
}

impl<R> Column<R> {
    pub(super) const fn new(
        name: &'static str,
        kind: Kind,
        comment: &'static str,
        value: fn(&R) -> Value,
    ) -> Self {
        Self { shape: Shape { name, kind, comment }, value }
    }
}

pub(super) fn shapes<R>(columns: &[Column<R>]) -> Vec<Shape> {
    columns.iter().map(|column| column.shape).collect()
}

fn row<R>(table: Table, columns: &[Column<R>], from: &R) -> Row {
    Row { table, values: columns.iter().map(|column| (column.value)(from)).collect() }
}

impl Table {
    /// Every one of them.
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

    /// Its name, how many of its first columns name a row, and what it holds.
    const fn described(self) -> (&'static str, usize, &'static str) {
        match self {
            Self::DesiredLrps => ("desired_lrps", 1, "The processes that somebody desires."),
            Self::Definitions => ("definitions", 2, "What the instances of desired processes run."),
            Self::ActualLrps => (
                "actual_lrps",
                4,
                "The instances of processes: one row for each record, with the evacuating twins.",
            ),
            Self::EndedInstances => ("ended_instances", 1, "The containers of instances that ended."),
            Self::Rollouts => {
                ("rollouts", 3, "How the instances of a process come to run another definition.")
            }
            Self::Evaluations => {
                ("evaluations", 1, "Attempts to place work, each with its cause and what came of it.")
            }
            Self::Tasks => ("tasks", 1, "Tasks that are not deleted."),
            Self::EndedTasks => ("ended_tasks", 2, "Tasks that completed and are deleted."),
            Self::PeriodicTasks => ("periodic_tasks", 1, "What launches tasks at the times that it says."),
            Self::ParameterisedTasks => ("parameterised_tasks", 1, "What tasks are dispatched of."),
            Self::Domains => ("domains", 1, "The domains that were ever refreshed."),
            Self::Cells => ("cells", 1, "The cells that are known, there or not."),
            Self::Clusters => ("clusters", 1, "The cluster: one row."),
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.described().0
    }

    /// How many of its columns, the first ones, name a row.
    #[must_use]
    pub const fn key_columns(self) -> usize {
        self.described().1
    }

    /// What it holds.
    #[must_use]
    pub const fn comment(self) -> &'static str {
        self.described().2
    }

    /// Whether it tells what came of something: its rows stay when the World forgets them.
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

    /// Its columns.
    #[must_use]
    pub fn columns(self) -> Vec<Shape> {
        match self {
            Self::DesiredLrps => shapes(&DESIRED_LRPS),
            Self::Definitions => shapes(&definitions()),
            Self::ActualLrps => shapes(&ACTUAL_LRPS),
            Self::EndedInstances => shapes(&ENDED_INSTANCES),
            Self::Rollouts => shapes(&rollouts()),
            Self::Evaluations => shapes(&EVALUATIONS),
            Self::Tasks => shapes(&TASKS),
            Self::EndedTasks => shapes(&ENDED_TASKS),
            Self::PeriodicTasks => shapes(&PERIODIC_TASKS),
            Self::ParameterisedTasks => shapes(&PARAMETERISED_TASKS),
            Self::Domains => shapes(&DOMAINS),
            Self::Cells => shapes(&CELLS),
            Self::Clusters => shapes(&CLUSTERS),
        }
    }
}

const DESIRED_LRPS: [Column<LrpRow>; 13] = [
    Column::new("process_guid", Text, "Its name.", |lrp| text(&lrp.process_guid)),
    Column::new("domain", Text, "Its domain.", |lrp| text(&lrp.domain)),
    Column::new("epoch", Time, "Which life of the name; also when it was desired.", |lrp| {
        Value::Time(lrp.epoch.0)
    }),
    Column::new("mode", Text, "replicated: so many instances; global: one on each cell.", |lrp| {
        maybe(lrp.mode, |mode| word(&mode))
    }),
    Column::new("instances", Integer, "Desired instances.", |lrp| number(lrp.instances)),
    Column::new("priority", Integer, "How urgent it is.", |lrp| {
        maybe(lrp.priority, |priority| number(u8::from(priority)))
    }),
    Column::new("indices", Json, "The indices at which one is desired, as ranges.", |lrp| json(&lrp.indices)),
    Column::new("definition_id", Text, "The definition that every instance shall run.", |lrp| {
        maybe(lrp.definition_id.as_ref(), text)
    }),
    Column::new("healthy_definition_id", Text, "The definition that is known to work.", |lrp| {
        maybe(lrp.healthy_definition_id.as_ref(), text)
    }),
    Column::new(
        "definition_ids",
        Json,
        "Every definition that it has, in the order in which they came.",
        |lrp| json(&lrp.definition_ids),
    ),
    Column::new("routes", Json, "Routing data.", |lrp| json(&lrp.routes)),
    Column::new("annotation", Text, "The consumer's own text.", |lrp| text(&lrp.annotation)),
    Column::new("policies", Json, "How its instances are replaced, restarted and kept in mind.", |lrp| {
        maybe(lrp.policies.as_ref(), json)
    }),
];

/// A definition, and whose it is.
pub(super) struct Defined<'a> {
    pub(super) process_guid: &'a ProcessGuid,
    pub(super) domain: &'a Domain,
    pub(super) definition_id: &'a DefinitionId,
    pub(super) definition: &'a Definition,
}

const fn definitions<'a>() -> [Column<Defined<'a>>; 10] {
    [
        Column::new("process_guid", Text, "Its process.", |of| text(of.process_guid)),
        Column::new("definition_id", Text, "Its name.", |of| text(of.definition_id)),
        Column::new("domain", Text, "The domain of its process.", |of| text(of.domain)),
        Column::new("memory_mb", Integer, "Memory that an instance takes, in MiB.", |of| {
            number(of.definition.memory_mb)
        }),
        Column::new("disk_mb", Integer, "Disk that an instance takes, in MiB.", |of| {
            number(of.definition.disk_mb)
        }),
        Column::new("cpu_weight", Integer, "Its weight where processors are short.", |of| {
            number(of.definition.cpu_weight)
        }),
        Column::new(
            "start_timeout_ms",
            Integer,
            "How long an instance may take to become RUNNING, in milliseconds; 0: as long as it takes.",
            |of| number(of.definition.start_timeout_ms),
        ),
        Column::new(
            "grace_period_ms",
            Integer,
            "How long an instance may take to stop, in milliseconds.",
            |of| number(of.definition.grace_period_ms),
        ),
        Column::new("constraint", Json, "Which cells may take it.", |of| json(&of.definition.constraint)),
        Column::new("ports", Json, "The ports on which an instance listens.", |of| {
            json(&of.definition.ports)
        }),
    ]
}

const ACTUAL_LRPS: [Column<InstanceRow>; 21] = [
    Column::new("process_guid", Text, "Its process.", |row| text(&row.process_guid)),
    Column::new("definition_id", Text, "The definition that it runs.", |row| text(&row.definition_id)),
    Column::new("index", Integer, "Its index.", |row| number(row.index)),
    Column::new(
        "presence",
        Text,
        "ORDINARY, or EVACUATING for the twin that runs on an evacuating cell.",
        |row| text(row.presence),
    ),
    Column::new("domain", Text, "Its domain.", |row| text(&row.domain)),
    Column::new("epoch", Time, "Which life of the process.", |row| Value::Time(row.epoch.0)),
    Column::new("state", Text, "UNCLAIMED, CLAIMED, RUNNING or CRASHED.", |row| text(row.state)),
    Column::new("instance_guid", Text, "Its container, if it has one.", |row| maybe(row.instance_guid, text)),
    Column::new("cell_id", Text, "Its cell, if it is on one.", |row| maybe(row.cell_id.as_ref(), text)),
    Column::new("stopping", Boolean, "Whether it was asked to stop.", |row| Value::Boolean(row.stopping)),
    Column::new("address", Text, "The address of its host; only while it runs.", |row| {
        maybe(row.address.as_ref(), text)
    }),
    Column::new(
        "ports",
        Json,
        "Its ports and those of the host that lead to them; only while it runs.",
        |row| json(&row.ports),
    ),
    Column::new(
        "isolation",
        Text,
        "How its container is kept apart: full, none, or degraded with what is lacking; only while it runs.",
        |row| maybe(row.isolation, text),
    ),
    Column::new("placement_error", Text, "Why it could not be placed; only while it is UNCLAIMED.", |row| {
        maybe(row.placement_error.as_ref(), text)
    }),
    Column::new("crash_count", Integer, "Crashes counted.", |row| number(row.crash_count)),
    Column::new("crash_reason", Text, "Why it last crashed.", |row| maybe(row.crash_reason.as_ref(), text)),
    Column::new("crashed_in", Text, "The container that crashed last.", |row| {
        maybe(row.crashed_in.as_ref(), |by| text(by.instance_guid))
    }),
    Column::new("restart_at", Time, "When it is restarted; only while it is CRASHED.", |row| {
        maybe(row.restart_at, Value::Time)
    }),
    Column::new("declined", Text, "Why it is not restarted; only while it is CRASHED.", |row| {
        maybe(row.declined.as_ref(), word)
    }),
    Column::new("since", Time, "When its state was entered.", |row| Value::Time(row.since)),
    Column::new(
        "modification_index",
        Integer,
        "Version of the process by the last decision that changed it; with epoch its modification tag.",
        |row| number(row.modification_tag.index),
    ),
];

const ENDED_INSTANCES: [Column<EndedInstanceRow>; 15] = [
    Column::new("instance_guid", Text, "The container.", |row| text(row.instance_guid)),
    Column::new("process_guid", Text, "Its process.", |row| text(&row.process_guid)),
    Column::new("definition_id", Text, "The definition that it ran.", |row| text(&row.definition_id)),
    Column::new("index", Integer, "Its index.", |row| number(row.index)),
    Column::new("domain", Text, "Its domain.", |row| text(&row.domain)),
    Column::new("epoch", Time, "Which life of the process it belonged to.", |row| Value::Time(row.epoch.0)),
    Column::new("cell_id", Text, "Its cell.", |row| text(&row.cell_id)),
    Column::new("started_at", Time, "Since when it was RUNNING; null: it never was.", |row| {
        maybe(row.started_at, Value::Time)
    }),
    Column::new("ended_at", Time, "When it ended, as far as the log says.", |row| Value::Time(row.ended_at)),
    Column::new("duration_ms", Integer, "How long it was RUNNING, in milliseconds.", |row| {
        maybe(row.duration_ms, number)
    }),
    Column::new(
        "how",
        Text,
        "How it ended: crashed, stopped, crashed_stopping, cell_lost, evacuated, evacuation_expired or displaced.",
        |row| word(&row.how),
    ),
    Column::new("stop", Text, "Why it was asked to stop, if it was.", |row| maybe(row.stop.as_ref(), word)),
    Column::new("reason", Text, "Why it crashed, if it did.", |row| maybe(row.reason.as_ref(), text)),
    Column::new(
        "exit_status",
        Integer,
        "The status that its action exited with, if that is why it crashed.",
        |row| maybe(row.exit_status, number),
    ),
    Column::new("crash_count", Integer, "Crashes counted, with this one; 0 if it didn't crash.", |row| {
        number(row.crash_count)
    }),
];

/// A rollout, and whose it is.
pub(super) struct Rolled<'a> {
    pub(super) process_guid: &'a ProcessGuid,
    pub(super) epoch: Epoch,
    pub(super) domain: &'a Domain,
    pub(super) row: &'a RolloutRow,
}

const fn rollouts<'a>() -> [Column<Rolled<'a>>; 16] {
    [
        Column::new("process_guid", Text, "Its process.", |of| text(of.process_guid)),
        Column::new("epoch", Time, "Which life of the process.", |of| Value::Time(of.epoch.0)),
        Column::new("number", Integer, "Counts the rollouts of that life, from 1.", |of| {
            number(of.row.number)
        }),
        Column::new("domain", Text, "The domain of its process.", |of| text(of.domain)),
        Column::new("kind", Text, "Forward or back.", |of| word(&of.row.kind)),
        Column::new(
            "status",
            Text,
            "updating, paused, completed, rollback_started, rollback_paused or rollback_completed.",
            |of| text(&of.row.status),
        ),
        Column::new("reason", Text, "Why it stands there.", |of| maybe(of.row.reason.as_ref(), text)),
        Column::new("target", Text, "The definition that every index shall run.", |of| text(&of.row.target)),
        Column::new("rollback_to", Text, "Where a rollback goes.", |of| {
            maybe(of.row.rollback_to.as_ref(), text)
        }),
        Column::new("total", Integer, "How many indices were to be replaced.", |of| number(of.row.total)),
        Column::new("replaced", Integer, "How many were.", |of| number(of.row.replaced)),
        Column::new("in_replacement", Json, "The indices that are being replaced, as ranges.", |of| {
            json(&of.row.in_replacement)
        }),
        Column::new("stalled", Json, "The indices that were given up for now, as ranges.", |of| {
            json(&of.row.stalled)
        }),
        Column::new("failed", Json, "The indices of which an instance failed, as ranges.", |of| {
            json(&of.row.failed)
        }),
        Column::new("started_at", Time, "When it began.", |of| Value::Time(of.row.started_at)),
        Column::new("since", Time, "Since when it stands where it stands.", |of| Value::Time(of.row.since)),
    ]
}

const EVALUATIONS: [Column<EvaluationRow>; 24] = [
    Column::new("evaluation_id", Text, "Its name.", |row| text(row.evaluation.id)),
    Column::new("process_guid", Text, "Its process, if it is one's.", |row| match &row.subject {
        EvaluationSubject::Process(guid) => text(guid),
        EvaluationSubject::Task(_) => Value::Null,
    }),
    Column::new("task_guid", Text, "Its task, if it is one's.", |row| match &row.subject {
        EvaluationSubject::Task(guid) => text(guid),
        EvaluationSubject::Process(_) => Value::Null,
    }),
    Column::new("domain", Text, "Its domain.", |row| text(&row.domain)),
    Column::new("trigger", Text, "What made the work: desire, scale, crash...", |row| {
        word(&row.evaluation.trigger)
    }),
    Column::new("status", Text, "pending, blocked, complete, failed or canceled.", |row| {
        text(status(&row.evaluation.status).0)
    }),
    Column::new("reason", Text, "Why it is blocked, failed or canceled.", |row| {
        maybe(status(&row.evaluation.status).1, text)
    }),
    Column::new("wait_until", Time, "When it may be scheduled; only while it waits for that.", |row| {
        maybe(row.evaluation.wait.until(), Value::Time)
    }),
    Column::new("decision", Text, "The decision that created it.", |row| text(row.evaluation.decision)),
    Column::new("correlation", Text, "The first command of the chain that led to it.", |row| {
        text(row.evaluation.correlation)
    }),
    Column::new("caused_by", Text, "The decision that brought it about.", |row| {
        maybe(row.evaluation.caused_by, text)
    }),
    Column::new("created_at", Time, "When it was created.", |row| Value::Time(row.evaluation.created_at)),
    Column::new("since", Time, "When its status last changed.", |row| Value::Time(row.evaluation.since)),
    Column::new("previous", Text, "The evaluation whose work it goes on with.", |row| {
        maybe(row.evaluation.previous, text)
    }),
    Column::new("next", Text, "The evaluation that follows it.", |row| maybe(row.evaluation.next, text)),
    Column::new("blocked", Text, "The evaluation that waits for room with what it could not place.", |row| {
        maybe(row.evaluation.blocked, text)
    }),
    Column::new("placed", Integer, "How much it placed.", |row| number(row.evaluation.placed)),
    Column::new("queued", Integer, "How much of it found no place and waits for room.", |row| {
        number(row.evaluation.queued)
    }),
    Column::new("rejected", Integer, "How much of it found no place and doesn't wait.", |row| {
        number(row.evaluation.rejected)
    }),
    Column::new("stopped", Integer, "How many instances it asked to stop.", |row| {
        number(row.evaluation.stopped)
    }),
    Column::new("delivery", Integer, "How often it was given to the auctioneer.", |row| {
        number(row.evaluation.delivery)
    }),
    Column::new("follow_ups", Integer, "How many follow-ups there were before it in its chain.", |row| {
        number(row.evaluation.follow_ups)
    }),
    Column::new("joins", Integer, "How many further causes joined it.", |row| number(row.evaluation.joins)),
    Column::new("eligibility", Json, "Which kinds of cells were tried when it found no place.", |row| {
        maybe(row.evaluation.eligibility.as_ref(), json)
    }),
];

/// A status in one word, and its reason.
fn status(status: &Status) -> (&'static str, Option<&str>) {
    match status {
        Status::Pending => ("pending", None),
        Status::Blocked { reason } => ("blocked", Some(reason)),
        Status::Complete => ("complete", None),
        Status::Failed { reason } => ("failed", Some(reason)),
        Status::Canceled { why: Canceled::NothingLeft } => ("canceled", Some("nothing_left")),
        Status::Canceled { why: Canceled::Superseded } => ("canceled", Some("superseded")),
    }
}

const TASKS: [Column<TaskRow>; 18] = [
    Column::new("task_guid", Text, "Its name.", |row| text(&row.task_guid)),
    Column::new("domain", Text, "Its domain.", |row| text(&row.domain)),
    Column::new("epoch", Time, "Which life of the name; also when it was created.", |row| {
        Value::Time(row.epoch.0)
    }),
    Column::new("state", Text, "PENDING, RUNNING, COMPLETED or RESOLVING.", |row| text(row.state)),
    Column::new("instance_guid", Text, "The container that runs or ran it.", |row| {
        maybe(row.instance_guid, text)
    }),
    Column::new("cell_id", Text, "Its cell.", |row| maybe(row.cell_id.as_ref(), text)),
    Column::new("failed", Boolean, "Whether it failed; only when it is complete.", |row| {
        maybe(row.failed, Value::Boolean)
    }),
    Column::new("failure_reason", Text, "Why it failed.", |row| maybe(row.failure_reason.as_ref(), text)),
    Column::new("result", Text, "The content of its result file; only when it succeeded.", |row| {
        maybe(row.result.as_ref(), text)
    }),
    Column::new("placement_error", Text, "Why it could not be placed yet.", |row| {
        maybe(row.placement_error.as_ref(), text)
    }),
    Column::new("callback", Json, "How often its owner was called, and what came of the last call.", |row| {
        maybe(row.callback.as_ref(), json)
    }),
    Column::new("first_completed_at", Time, "When it first completed.", |row| {
        maybe(row.first_completed_at, Value::Time)
    }),
    Column::new("since", Time, "When its state was entered.", |row| Value::Time(row.since)),
    Column::new("annotation", Text, "The consumer's own text.", |row| text(&row.annotation)),
    Column::new("priority", Integer, "How urgent it is.", |row| number(u8::from(row.priority))),
    Column::new("memory_mb", Integer, "Memory that it takes, in MiB.", |row| {
        maybe(row.definition.as_ref(), |of| number(of.memory_mb))
    }),
    Column::new("disk_mb", Integer, "Disk that it takes, in MiB.", |row| {
        maybe(row.definition.as_ref(), |of| number(of.disk_mb))
    }),
    Column::new("constraint", Json, "Which cells may take it.", |row| {
        maybe(row.definition.as_ref(), |of| json(&of.constraint))
    }),
];

const ENDED_TASKS: [Column<EndedTaskRow>; 14] = [
    Column::new("task_guid", Text, "Its name.", |row| text(&row.task_guid)),
    Column::new("epoch", Time, "Which life of the name; also when it was created.", |row| {
        Value::Time(row.epoch.0)
    }),
    Column::new("domain", Text, "Its domain.", |row| text(&row.domain)),
    Column::new("instance_guid", Text, "The container that ran it, if one did.", |row| {
        maybe(row.instance_guid, text)
    }),
    Column::new("cell_id", Text, "Its cell.", |row| maybe(row.cell_id.as_ref(), text)),
    Column::new("failed", Boolean, "Whether it failed.", |row| Value::Boolean(row.failed)),
    Column::new("failure_reason", Text, "Why it failed.", |row| maybe(row.failure_reason.as_ref(), text)),
    Column::new(
        "result",
        Text,
        "The content of its result file, of a long one the beginning; only when it succeeded.",
        |row| maybe(row.result.as_ref(), text),
    ),
    Column::new("callback", Json, "How often its owner was called, and what came of the last call.", |row| {
        maybe(row.callback.as_ref(), json)
    }),
    Column::new("started_at", Time, "Since when it ran; null: it never did.", |row| {
        maybe(row.started_at, Value::Time)
    }),
    Column::new("first_completed_at", Time, "When it first completed.", |row| {
        Value::Time(row.first_completed_at)
    }),
    Column::new("duration_ms", Integer, "How long it ran, in milliseconds.", |row| {
        maybe(row.duration_ms, number)
    }),
    Column::new("deleted_at", Time, "When it was deleted.", |row| Value::Time(row.deleted_at)),
    Column::new("resolved", Boolean, "Whether it was resolved; else nobody did in time.", |row| {
        Value::Boolean(row.resolved)
    }),
];

const PERIODIC_TASKS: [Column<PeriodicRow>; 12] = [
    Column::new("periodic_guid", Text, "Its name.", |row| text(&row.periodic_guid)),
    Column::new("domain", Text, "Its domain.", |row| text(&row.domain)),
    Column::new("epoch", Time, "Which life of the name; also when it was desired.", |row| {
        Value::Time(row.epoch.0)
    }),
    Column::new("state", Text, "ACTIVE or PAUSED.", |row| text(row.state.as_str())),
    Column::new(
        "cron",
        Text,
        "When it is due: minute, hour, day of the month, month, day of the week.",
        |row| text(&row.cron),
    ),
    Column::new("time_zone", Text, "The time zone in which that is meant.", |row| text(&row.time_zone)),
    Column::new("overlap", Text, "What becomes of a launch that is due while an earlier one runs.", |row| {
        word(&row.overlap)
    }),
    Column::new("next", Time, "When it is next due; null while it is paused.", |row| {
        maybe(row.next, Value::Time)
    }),
    Column::new(
        "queued",
        Time,
        "When the launch was due that waits until nothing of it runs any more.",
        |row| maybe(row.queued, Value::Time),
    ),
    Column::new("launched", Integer, "How many tasks it launched in this life.", |row| number(row.launched)),
    Column::new("skipped", Integer, "How many launches it skipped in this life.", |row| number(row.skipped)),
    Column::new("since", Time, "When it was desired, updated, paused or resumed.", |row| {
        Value::Time(row.since)
    }),
];

const PARAMETERISED_TASKS: [Column<ParameterisedRow>; 13] = [
    Column::new("parameterised_guid", Text, "Its name.", |row| text(&row.parameterised_guid)),
    Column::new("domain", Text, "Its domain.", |row| text(&row.domain)),
    Column::new("epoch", Time, "Which life of the name; also when it was desired.", |row| {
        Value::Time(row.epoch.0)
    }),
    Column::new("payload", Text, "Whether a dispatch has a payload.", |row| word(&row.payload)),
    Column::new("required_parameters", Json, "The parameters that a dispatch must give.", |row| {
        json(&row.required_parameters)
    }),
    Column::new("optional_parameters", Json, "The parameters that it may give.", |row| {
        json(&row.optional_parameters)
    }),
    Column::new(
        "concurrency",
        Integer,
        "How many of its tasks may be PENDING or RUNNING at once; null: any number.",
        |row| maybe(row.concurrency, number),
    ),
    Column::new("overflow", Text, "What becomes of a dispatch beyond that.", |row| word(&row.overflow)),
    Column::new("waiting", Integer, "How many dispatches wait.", |row| number(row.waiting)),
    Column::new("dispatched", Integer, "How many dispatches there were in this life.", |row| {
        number(row.dispatched)
    }),
    Column::new("launched", Integer, "How many of them became tasks.", |row| number(row.launched)),
    Column::new("withdrawn", Integer, "How many of them were withdrawn.", |row| number(row.withdrawn)),
    Column::new("since", Time, "When it was desired or updated.", |row| Value::Time(row.since)),
];

const DOMAINS: [Column<DomainRow>; 3] = [
    Column::new("domain", Text, "Its name.", |row| text(&row.domain)),
    Column::new("refreshed_at", Time, "When it was last refreshed.", |row| Value::Time(row.refreshed_at)),
    Column::new("expires_at", Time, "When it stops being fresh; null: never.", |row| {
        maybe(row.expires_at, Value::Time)
    }),
];

const CELLS: [Column<CellRow>; 15] = [
    Column::new("cell_id", Text, "Its name.", |row| text(&row.cell_id)),
    Column::new("state", Text, "PRESENT, EVACUATING, UNHEALTHY or ABSENT.", |row| text(row.state)),
    Column::new("zone", Text, "Its zone.", |row| text(&row.presence.zone)),
    Column::new("stack", Text, "What it offers.", |row| text(&row.presence.stack)),
    Column::new("placement_tags", Json, "Work must ask for all of these to be placed there.", |row| {
        json(&row.presence.placement_tags)
    }),
    Column::new("attributes", Json, "What else its rep says of it.", |row| json(&row.presence.attributes)),
    Column::new("memory_mb", Integer, "Memory that it has in all, in MiB.", |row| {
        number(row.presence.total.memory_mb)
    }),
    Column::new("disk_mb", Integer, "Disk that it has in all, in MiB.", |row| {
        number(row.presence.total.disk_mb)
    }),
    Column::new("containers", Integer, "Containers that it takes in all.", |row| {
        number(row.presence.total.containers)
    }),
    Column::new("ports", Integer, "Ports of the host that it can give in all.", |row| {
        number(row.presence.total.ports)
    }),
    Column::new("evacuation_wanted", Boolean, "Whether an operator wants it evacuated.", |row| {
        Value::Boolean(row.evacuation_wanted)
    }),
    Column::new("cordoned", Boolean, "Whether an operator wants no new work on it.", |row| {
        Value::Boolean(row.cordoned)
    }),
    Column::new("ordinal", Integer, "The index of what global processes run on it.", |row| {
        maybe(row.ordinal, number)
    }),
    Column::new("gone", Text, "Why it is ABSENT, if it is.", |row| maybe(row.gone.as_ref(), text)),
    Column::new("since", Time, "Since when its state holds.", |row| Value::Time(row.since)),
];

const CLUSTERS: [Column<Cluster>; 10] = [
    Column::new("cluster_id", Text, "Its id.", |of| text(of.id)),
    Column::new("shards", Integer, "Its shards.", |of| number(of.shards)),
    Column::new("format", Integer, "The format level at which everybody writes.", |of| number(of.format)),
    Column::new("bbs", Text, "Who decides.", |of| maybe(of.bbs.as_ref(), |leader| text(&leader.id))),
    Column::new("bbs_term", Integer, "The term of that.", |of| {
        maybe(of.bbs.as_ref(), |leader| number(leader.term))
    }),
    Column::new("bbs_since", Time, "Since when.", |of| {
        maybe(of.bbs.as_ref(), |leader| Value::Time(leader.since))
    }),
    Column::new("auctioneer", Text, "Who places.", |of| {
        maybe(of.auctioneer.as_ref(), |leader| text(&leader.id))
    }),
    Column::new("auctioneer_term", Integer, "The term of that.", |of| {
        maybe(of.auctioneer.as_ref(), |leader| number(leader.term))
    }),
    Column::new("auctioneer_since", Time, "Since when.", |of| {
        maybe(of.auctioneer.as_ref(), |leader| Value::Time(leader.since))
    }),
    Column::new("preemption", Boolean, "Whether what is less urgent may be stopped for what waits.", |of| {
        Value::Boolean(of.preemption)
    }),
];

pub(super) fn desired_lrp(of: &LrpRow) -> Row {
    row(Table::DesiredLrps, &DESIRED_LRPS, of)
}

pub(super) fn definition(of: &Defined<'_>) -> Row {
    row(Table::Definitions, &definitions(), of)
}

pub(super) fn actual_lrp(of: &InstanceRow) -> Row {
    row(Table::ActualLrps, &ACTUAL_LRPS, of)
}

pub(super) fn ended_instance(of: &EndedInstanceRow) -> Row {
    row(Table::EndedInstances, &ENDED_INSTANCES, of)
}

/// What names the row of a container that ended.
pub(super) fn ended_instance_key(container: InstanceGuid) -> Vec<Value> {
    vec![text(container)]
}

pub(super) fn rollout(of: &Rolled<'_>) -> Row {
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
