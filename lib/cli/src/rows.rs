//! Formats query rows as tables and as text for people. All functions are pure: they take rows and the time,
//! and return text.

#[cfg(test)]
#[path = "rows_tests.rs"]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::fmt::Display;

use cli_base::output::RenderOptions;
use cli_base::table::{Cell, Table, facts, painted_state};
use explain::monitors::MonitorFailure;
use explain::names::Names;
use schemas::definition::Mode;
use schemas::names::{DefinitionId, ServiceId};
use schemas::query::{
    CellRow, ClusterRow, DomainRow, DomainUseRow, Finding, InstancePresence, InstanceRow, InstanceState,
    LrpRow, QuarantinedEntries, QuarantinedEntry, RecordedEntry, RolloutRow, Services, Severity, TaskRow,
};
use schemas::resources::Resources;
use schemas::spec;
use schemas::task::{Callback, CallbackVerdict};
use serde::Serialize;
use text::describe::{indices, rollout_name};
use text::words::{age, count, duration_text, escape_json, mebibytes, one_line, short_id, time_until};

use super::past::{Crash, PastRollout};
use super::restarts::{attempts_text, no_restart_text};
use super::waits;

/// Output of `muster lrp rollout status`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RolloutStatus {
    pub(crate) lrp: LrpRow,
    /// Reason why the rollout is not over. `None` if the rollout is over.
    pub(crate) waits: Option<String>,
    /// Last crash of an instance that the rollout started.
    pub(crate) last_crash: Option<Crash>,
}

/// Builds the table of processes.
pub(crate) fn lrps(rows: &[LrpRow], look: RenderOptions) -> Table {
    let headers =
        ["PROCESS", "DOMAIN", "DESIRED", "RUNNING", "STARTING", "WAITING", "CRASHED", "NOTE", "CHANGED"];
    Table::with_rows(headers, rows, |row| {
        [
            Cell::text(&row.process_guid),
            Cell::text(&row.domain),
            Cell::number(row.instances),
            Cell::number(row.running),
            Cell::number(row.claimed),
            Cell::number(row.unclaimed),
            Cell::number(row.crashed),
            lrp_note(row),
            Cell::text(age(look.now, row.changed_at)),
        ]
    })
}

/// Returns the note on a removal or rollout in progress.
fn lrp_note(row: &LrpRow) -> Cell {
    match row.rollout_under_way() {
        _ if !row.desired => Cell::text("being deleted"),
        Some(rollout) => Cell::text(rollout_note(rollout)),
        None => Cell::None,
    }
}

/// Formats a rollout in a few words: `rollout to v2, 1/3, paused`.
fn rollout_note(rollout: &RolloutRow) -> String {
    let paused = if rollout.is_paused() { ", paused" } else { "" };
    let name = rollout_name(rollout.kind, &rollout.target);
    format!("{name}, {}/{}{paused}", rollout.replaced, rollout.total)
}

/// Returns the first line of a text, cut to 40 characters. `None` if the line is empty.
fn first_line(text: &str) -> Option<String> {
    let line = text.lines().next().unwrap_or_default().trim();
    match line.char_indices().nth(40) {
        Some((end, _)) => Some(format!("{}...", &line[..end])),
        None => (!line.is_empty()).then(|| line.to_owned()),
    }
}

/// Formats the details of a process.
pub(crate) fn lrp(row: &LrpRow, instances: &[InstanceRow], look: RenderOptions) -> String {
    let mut text = facts(&[
        ("process", row.process_guid.to_string()),
        ("domain", row.domain.to_string()),
        (
            "desired",
            match row.mode {
                Some(Mode::Replicated) => count(row.instances.into(), "instance"),
                Some(Mode::Global) => format!("one per compatible cell: {}", row.instances),
                None => "no longer".into(),
            },
        ),
        ("running", row.running.to_string()),
        ("version", row.version.to_string()),
        ("changed", format!("{} ({} ago)", row.changed_at, age(look.now, row.changed_at))),
        ("definition", row.definition_id.as_ref().map(ToString::to_string).unwrap_or_default()),
        ("healthy", healthy(row)),
        ("definitions", definitions(row)),
        ("rollout", row.rollout.as_ref().map(|rollout| last_rollout(rollout, look)).unwrap_or_default()),
        ("waits", waits::waiting_reason(row, instances).unwrap_or_default()),
    ]);
    if let Some(desired) = row.to_desired() {
        text.push_str(&format!("\n\n{}", indented_json(&spec::to_json(&desired))));
    }
    if !instances.is_empty() {
        text.push_str(&format!("\n\n{}", self::instances(instances, look).render(look.colour)));
    }
    text
}

/// Returns the last definition that is known to be healthy.
pub(crate) fn healthy(row: &LrpRow) -> String {
    let none = || if row.desired { "none yet" } else { "" }.to_owned();
    row.healthy_definition_id.as_ref().map_or_else(none, ToString::to_string)
}

/// Returns the definitions of a process. Empty if there is only one definition.
fn definitions(row: &LrpRow) -> String {
    let ids: Vec<&str> = row.definition_ids.iter().map(|id| id.as_str()).collect();
    if ids.len() > 1 { ids.join(", ") } else { String::new() }
}

/// Formats the last rollout of a process in one line. The rollout may be over.
fn last_rollout(rollout: &RolloutRow, look: RenderOptions) -> String {
    let name = rollout_name(rollout.kind, &rollout.target);
    let (replaced, total, since) = (rollout.replaced, rollout.total, age(look.now, rollout.since));
    format!("{name}: {}, {replaced} of {total} replaced, for {since}", rollout.status)
}

/// Formats the status of a rollout.
pub(crate) fn rollout(status: &RolloutStatus, look: RenderOptions) -> String {
    let RolloutStatus { lrp, waits, last_crash } = status;
    let Some(rollout) = &lrp.rollout else { return String::new() };
    let ago = |at| format!("{at} ({} ago)", age(look.now, at));
    facts(&[
        ("process", lrp.process_guid.to_string()),
        ("rollout", format!("{}, {}", rollout.number, rollout_name(rollout.kind, &rollout.target))),
        ("status", painted_state(&rollout.status, look.colour)),
        ("reason", rollout.reason.as_deref().map(one_line).unwrap_or_default()),
        ("target", rollout.target.to_string()),
        ("healthy", healthy(lrp)),
        ("back to", rollout.rollback_to.as_ref().map(ToString::to_string).unwrap_or_default()),
        ("replaced", format!("{} of {}", rollout.replaced, rollout.total)),
        ("in replacement", indices(&rollout.in_replacement)),
        ("indices given up", indices(&rollout.stalled)),
        ("indices failed", indices(&rollout.failed)),
        ("began", ago(rollout.started_at)),
        ("since", ago(rollout.since)),
        ("waits", waits.clone().unwrap_or_default()),
        ("last crash", last_crash.as_ref().map(|crash| crash.summary(look)).unwrap_or_default()),
    ])
}

/// Builds the table of past rollouts.
pub(crate) fn rollouts(all: &[PastRollout], look: RenderOptions) -> Table {
    let columns = ["ROLLOUT", "WHAT", "STATUS", "REPLACED", "BEGAN", "TOOK", "WHO", "NOTE"];
    Table::with_rows(columns, all, |past| {
        let until = past.ended_at.unwrap_or(look.now);
        [
            Cell::number(past.number),
            Cell::text(rollout_name(past.kind, &past.target)),
            Cell::state(past.status),
            Cell::number(fraction(past.replaced.to_string(), past.total.to_string())),
            Cell::text(past.started_at),
            Cell::text(age(until, past.started_at)),
            Cell::text(&past.actor),
            Cell::optional(past.note()),
        ]
    })
}

/// Formats a value as JSON, indented by two spaces.
pub(super) fn indented_json(thing: &impl Serialize) -> String {
    let text = escape_json(&serde_json::to_string_pretty(thing).unwrap_or_default());
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// Builds the table of instances. Definition ids are shown if at least one id differs from the guid of its
/// process.
#[must_use]
pub fn instances(rows: &[InstanceRow], look: RenderOptions) -> Table {
    instances_with_complaints(rows, &[], look)
}

/// Builds the table of instances, with the failures of their monitors.
pub(crate) fn instances_with_complaints(
    rows: &[InstanceRow],
    complaints: &[MonitorFailure],
    look: RenderOptions,
) -> Table {
    let says = |name: &str, row: &InstanceRow| {
        let complaint = complaints.iter().find(|one| one.instance == name);
        let complaint = complaint.filter(|_| row.state == InstanceState::Claimed);
        complaint.map(|complaint| format!("not healthy yet: {}", complaint.message))
    };
    let names = Names::from_rows(rows);
    let definitions = rows.iter().any(|row| row.definition_id != DefinitionId::from(&row.process_guid));
    let definition = definitions.then_some("DEFINITION");
    let headers = ["ID", "STATE", "CELL", "ADDRESS", "CRASHES", "AGE", "NOTE"];
    let headers: Vec<&str> = ["INSTANCE"].into_iter().chain(definition).chain(headers).collect();
    let mut table = Table::new(&headers);
    for row in rows {
        let name = names.row_name(row);
        let note = says(&name, row).or_else(|| note(row, look));
        let mut cells = vec![Cell::text(name)];
        cells.extend(definitions.then(|| Cell::text(&row.definition_id)));
        cells.extend([
            Cell::optional(row.instance_guid.map(|guid| short_id(&guid, look.full_ids))),
            Cell::state(state(row)),
            Cell::optional(row.cell_id.as_ref()),
            Cell::optional(addresses(row)),
            Cell::number(row.crash_count),
            Cell::text(age(look.now, row.since)),
            Cell::optional(note),
        ]);
        table.row(cells);
    }
    table
}

/// Returns the state of an instance, including whether it is evacuating or stopping.
pub(crate) fn state(row: &InstanceRow) -> String {
    match (row.presence, row.stopping) {
        (InstancePresence::Evacuating, _) => format!("{} EVACUATING", row.state),
        (InstancePresence::Ordinary, true) => format!("STOPPING {}", row.state),
        (InstancePresence::Ordinary, false) => row.state.to_string(),
    }
}

/// Returns the addresses of an instance. `None` if the instance has no addresses.
pub(crate) fn addresses(row: &InstanceRow) -> Option<String> {
    let all: Vec<String> = row.ports.iter().filter_map(|port| client::port_address(row, port)).collect();
    (!all.is_empty()).then(|| all.join(" "))
}

/// Returns the problem or the last crash of an instance. `None` if there is neither.
pub(crate) fn note(row: &InstanceRow, look: RenderOptions) -> Option<String> {
    let due = || row.restart_at.map(|at| format!("restarts {}", time_until(look.now, at)));
    match row.state {
        InstanceState::Unclaimed => row.placement_error.clone(),
        InstanceState::Crashed => {
            let reason = row.crash_reason.clone().unwrap_or_default();
            let next = due().unwrap_or_else(|| no_restart_text(row));
            Some(format!("{reason}; {next}{}", attempts_text(row)))
        }
        InstanceState::Claimed | InstanceState::Running => {
            row.crash_reason.as_ref().map(|reason| format!("last crash: {reason}"))
        }
    }
}

/// Formats the details of an instance.
pub(crate) fn instance(name: &str, row: &InstanceRow, look: RenderOptions) -> String {
    let text = |value: Option<String>| value.unwrap_or_default();
    facts(&[
        ("instance", name.to_owned()),
        ("id", text(row.instance_guid.map(|guid| guid.to_string()))),
        ("domain", row.domain.to_string()),
        ("state", format!("{} since {} ({})", state(row), row.since, age(look.now, row.since))),
        ("cell", text(row.cell_id.as_ref().map(ToString::to_string))),
        ("address", text(addresses(row))),
        ("ports", ports(row)),
        ("isolation", text(row.isolation.map(|isolation| isolation.to_string()))),
        ("not placed", text(row.placement_error.clone())),
        ("crashes", row.crash_count.to_string()),
        ("last crash", text(row.crash_reason.clone())),
        ("restarts", text(row.restart_at.map(|at| format!("{at} ({})", time_until(look.now, at))))),
        ("not restarted", text(row.no_restart_reason.map(|why| why.to_string()))),
        ("attempts", text(row.attempts.map(|of| format!("{} of {} restarts", of.counted, of.allowed)))),
        ("definition", row.definition_id.to_string()),
    ])
}

fn ports(row: &InstanceRow) -> String {
    let port =
        |port: &schemas::container::PortMapping| format!("{} -> {}", port.container_port, port.host_port);
    row.ports.iter().map(port).collect::<Vec<_>>().join(", ")
}

/// Builds the table of tasks.
#[must_use]
pub fn tasks(rows: &[TaskRow], look: RenderOptions) -> Table {
    let headers = ["TASK", "DOMAIN", "STATE", "OUTCOME", "CELL", "AGE", "NOTE"];
    Table::with_rows(headers, rows, |row| {
        [
            Cell::text(&row.task_guid),
            Cell::text(&row.domain),
            Cell::state(row.state),
            outcome(row).map_or(Cell::None, Cell::state),
            Cell::optional(row.cell_id.as_ref()),
            Cell::text(age(look.now, row.since)),
            Cell::optional(task_note(row)),
        ]
    })
}

/// Returns the outcome of a task. `None` if the task has not ended.
pub(crate) fn outcome(row: &TaskRow) -> Option<&'static str> {
    row.failed.map(|failed| if failed { "FAILED" } else { "SUCCEEDED" })
}

/// Returns the reason for which a task failed or waits. For other tasks, returns the first line of the
/// result.
pub(crate) fn task_note(row: &TaskRow) -> Option<String> {
    let problem = row.failure_reason.as_ref().or(row.placement_error.as_ref()).cloned();
    problem.or_else(|| row.result.as_deref().and_then(first_line))
}

/// Formats the details of a task.
pub(crate) fn task(row: &TaskRow, look: RenderOptions) -> String {
    let text = |value: Option<String>| value.unwrap_or_default();
    let mut shown = facts(&[
        ("task", row.task_guid.to_string()),
        ("domain", row.domain.to_string()),
        ("state", format!("{} since {} ({})", row.state, row.since, age(look.now, row.since))),
        ("outcome", outcome(row).unwrap_or_default().to_owned()),
        ("reason", text(row.failure_reason.clone())),
        ("not placed", text(row.placement_error.clone())),
        ("created", row.epoch.0.to_string()),
        ("callback", text(row.callback.as_ref().map(callback_text))),
        ("completed", text(row.first_completed_at.map(|at| at.to_string()))),
        ("cell", text(row.cell_id.as_ref().map(ToString::to_string))),
        ("container", text(row.instance_guid.map(|guid| guid.to_string()))),
        ("result", text(row.result.clone())),
    ]);
    if let Some(desired) = row.to_desired() {
        shown.push_str(&format!("\n\n{}", indented_json(&spec::task_to_json(&desired))));
    }
    shown
}

/// Builds the table of domains.
pub(crate) fn domains(rows: &[DomainRow], look: RenderOptions) -> Table {
    let headers = ["DOMAIN", "STATE", "REFRESHED", "EXPIRES"];
    Table::with_rows(headers, rows, |row| {
        [
            Cell::text(&row.domain),
            Cell::state(if row.fresh { "FRESH" } else { "NOT FRESH" }),
            Cell::text(format!("{} ago", age(look.now, row.refreshed_at))),
            match row.expires_at {
                Some(at) if at <= look.now => Cell::text(format!("{} ago", age(look.now, at))),
                Some(at) => Cell::text(time_until(look.now, at)),
                None => Cell::text("never"),
            },
        ]
    })
}

/// Formats the use and the quotas of a domain.
pub(crate) fn domain_use(row: &DomainUseRow, _: RenderOptions) -> String {
    let DomainUseRow { domain, used, quotas, limited } = row;
    facts(&[
        ("domain", domain.to_string()),
        ("instances", format!("{} of {}", used.instances, quotas.instances)),
        ("processes and tasks", format!("{} of {}", used.processes_and_tasks, quotas.processes_and_tasks)),
        ("commands per second", format!("at most {}", quotas.commands_per_second)),
        ("exec sessions", format!("at most {} on one cell", quotas.exec_sessions)),
        ("quotas", if *limited { "set by an operator" } else { "defaults" }.to_owned()),
    ])
}

/// Builds the table of cells.
#[must_use]
pub fn cells(rows: &[CellRow], look: RenderOptions) -> Table {
    let headers = [
        "CELL",
        "ZONE",
        "STATE",
        "STACK",
        "TAGS",
        "INSTANCES",
        "TASKS",
        "MEMORY",
        "DISK",
        "CONTAINERS",
        "PORTS",
        "HEARTBEAT",
        "SINCE",
    ];
    Table::with_rows(headers, rows, |row| {
        let (used, total) = (row.used, row.presence.total);
        let tags: Vec<&str> = row.presence.placement_tags.iter().map(|tag| tag.as_str()).collect();
        [
            Cell::text(&row.cell_id),
            Cell::text(&row.presence.zone),
            if row.cordoned && row.absent_reason.is_none() {
                Cell::text(format!("{}, cordoned", row.state))
            } else {
                Cell::state(row.state)
            },
            Cell::text(&row.presence.stack),
            Cell::optional((!tags.is_empty()).then(|| tags.join(","))),
            Cell::number(row.instances),
            Cell::number(row.tasks),
            Cell::number(fraction(mebibytes(used.memory_mb), mebibytes(total.memory_mb))),
            Cell::number(fraction(mebibytes(used.disk_mb), mebibytes(total.disk_mb))),
            Cell::number(fraction(used.containers.to_string(), total.containers.to_string())),
            Cell::number(fraction(used.ports.to_string(), total.ports.to_string())),
            Cell::optional(heartbeat_age(row)),
            Cell::text(age(look.now, row.since)),
        ]
    })
}

/// Returns the time since the last heartbeat of a cell. `None` if the cell is absent.
fn heartbeat_age(row: &CellRow) -> Option<String> {
    let ago = row.heartbeat_ms_ago.filter(|_| row.absent_reason.is_none())?;
    Some(duration_text(std::time::Duration::from_millis(ago - ago % 1_000)))
}

/// Returns the remark on a cell. The remark is the reason that the cell is absent, a command that the cell's
/// rep has not received yet, or the fact that the cell is cordoned.
fn remark(row: &CellRow) -> String {
    match (&row.absent_reason, row.evacuation_requested, row.state == schemas::query::CellState::Evacuating) {
        (Some(why), _, _) => format!(": {why}"),
        (None, true, false) => ": evacuation requested, but its rep has not been reached yet".to_owned(),
        (None, false, true) => ": evacuation canceled, but its rep has not been reached yet".to_owned(),
        (None, _, _) if row.cordoned => ": cordoned, takes no new work".to_owned(),
        (None, _, _) => String::new(),
    }
}

fn fraction(used: String, total: String) -> String {
    format!("{used}/{total}")
}

/// Formats the details of a cell, and the instances and tasks on the cell.
pub(crate) fn cell(
    row: &CellRow,
    instances: &[InstanceRow],
    tasks: &[TaskRow],
    look: RenderOptions,
) -> String {
    let Resources { memory_mb, disk_mb, containers, ports } = row.used;
    let total = row.presence.total;
    let tags: Vec<&str> = row.presence.placement_tags.iter().map(|tag| tag.as_str()).collect();
    let attributes: Vec<String> =
        row.presence.attributes.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let attributes = attributes.join(", ");
    let mut text = facts(&[
        ("cell", row.cell_id.to_string()),
        ("zone", row.presence.zone.to_string()),
        ("state", format!("{} since {} ({}){}", row.state, row.since, age(look.now, row.since), remark(row))),
        ("last heartbeat", heartbeat_age(row).map_or_else(|| "-".to_owned(), |ago| format!("{ago} ago"))),
        ("stack", row.presence.stack.to_string()),
        ("tags", tags.join(", ")),
        ("attributes", attributes),
        ("memory", fraction(mebibytes(memory_mb), mebibytes(total.memory_mb))),
        ("disk", fraction(mebibytes(disk_mb), mebibytes(total.disk_mb))),
        ("containers", fraction(containers.to_string(), total.containers.to_string())),
        ("ports", fraction(ports.to_string(), total.ports.to_string())),
        ("rep", format!("started as {}", row.presence.incarnation)),
    ]);
    if !instances.is_empty() {
        text.push_str(&format!("\n\n{}", self::instances(instances, look).render(look.colour)));
    }
    if !tasks.is_empty() {
        text.push_str(&format!("\n\n{}", self::tasks(tasks, look).render(look.colour)));
    }
    text
}

/// Formats findings, one per line, with the severity in colour.
pub(crate) fn findings(all: &[Finding], look: RenderOptions) -> String {
    let line = |finding: &Finding| {
        let word = match finding.severity {
            Severity::Note => "note",
            Severity::Degraded => "DEGRADED",
            Severity::Unhealthy => "UNHEALTHY",
        };
        format!("{}: {}", painted_state(word, look.colour), one_line(&finding.message))
    };
    all.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Builds the table of BBSs and auctioneers that send heartbeats.
pub(crate) fn services(all: &Services, look: RenderOptions) -> String {
    let columns =
        ["SERVICE", "ROLE", "STATE", "TERM", "HOST", "PID", "VERSION", "POSITION", "LAG", "HEARTBEAT"];
    let table = Table::with_rows(columns, &all.rows, |row| {
        [
            Cell::text(&row.id),
            Cell::text(row.role.as_str()),
            Cell::state(if row.leads { "LEADS" } else { "STANDBY" }),
            Cell::number(row.term),
            Cell::text(&row.program.host),
            Cell::number(row.program.pid),
            Cell::text(&row.program.version),
            Cell::number(row.position),
            Cell::number(row.lag),
            Cell::text(format!(
                "{:.1}s ago",
                std::time::Duration::from_millis(row.heartbeat_ms_ago).as_secs_f64()
            )),
        ]
    });
    let text = table.render(look.colour);
    if all.complete {
        text
    } else {
        format!("{text}\nthis BBS has just started: other services may still appear")
    }
}

/// Formats the details of the cluster.
pub(crate) fn cluster(row: &ClusterRow, look: RenderOptions) -> String {
    let beats = |id: &ServiceId| row.services.rows.iter().any(|service| service.id == *id && service.leads);
    let leader = |leader: &Option<schemas::cluster::Leader>| match leader {
        Some(leader) => {
            let silent = row.services.complete && !beats(&leader.id);
            let silent = if silent { ", but sends no heartbeats" } else { "" };
            format!("{} in term {}, for {}{silent}", leader.id, leader.term, age(look.now, leader.since))
        }
        None => "no leader".to_owned(),
    };
    let zones: Vec<&str> = row.zones.iter().map(|zone| zone.as_str()).collect();
    let aside = &row.quarantined_entries;
    let text = facts(&[
        ("cluster", row.cluster_id.to_string()),
        ("bbs", leader(&row.bbs)),
        ("auctioneer", leader(&row.auctioneer)),
        ("cells", by_state(&row.cells)),
        ("zones", zones.join(", ")),
        ("processes", row.lrps.to_string()),
        ("instances", by_state(&row.instances)),
        ("tasks", by_state(&row.tasks)),
        ("found by convergence", row.found_by_convergence.to_string()),
        ("refused transitions", row.refused_transitions.to_string()),
        ("preemption", if row.preemption { "on" } else { "off" }.to_owned()),
        ("durability", row.durability.clone()),
        ("shards", row.shards.to_string()),
        ("format", row.format.to_string()),
        ("quarantined", if aside.count > 0 { malformed_count(aside) } else { String::new() }),
    ]);
    let mut parts = vec![text, services(&row.services, look)];
    if !row.problems.is_empty() {
        parts.insert(0, findings(&row.problems, look));
    }
    if !aside.last.is_empty() {
        parts.push(malformed_entries(&aside.last).render(look.colour));
    }
    parts.join("\n\n")
}

fn malformed_count(aside: &QuarantinedEntries) -> String {
    let entries = if aside.count == 1 { "entry" } else { "entries" };
    format!("{} malformed {entries}", aside.count)
}

/// Builds the table of malformed journal entries, the newest first.
fn malformed_entries(rows: &[QuarantinedEntry]) -> Table {
    let headers = ["POSITION", "SUBJECT", "PROBLEM"];
    Table::with_rows(headers, rows.iter().rev(), |row| {
        let subject = Cell::text(one_line(&row.subject));
        [Cell::number(row.position), subject, Cell::text(one_line(&row.reason))]
    })
}

pub(crate) fn by_state<S: Display, N: Display + Default + PartialEq>(counts: &BTreeMap<S, N>) -> String {
    let some = counts.iter().filter(|(_, number)| **number != N::default());
    let text = some.map(|(state, number)| format!("{number} {state}")).collect::<Vec<_>>().join(", ");
    if text.is_empty() { "none".to_owned() } else { text }
}

/// Formats a log entry with all its fields.
pub(crate) fn entry_details(row: &RecordedEntry) -> String {
    let head = facts(&[("position", row.position.to_string()), ("subject", row.subject.clone())]);
    format!("{head}\n\n{}", indented_json(&row.entry))
}

/// Describes the result of the callbacks of a task.
fn callback_text(callback: &Callback) -> String {
    let what = match callback.last.verdict() {
        CallbackVerdict::Delivered => "delivered",
        CallbackVerdict::Repeat => "retried until the task expires",
        CallbackVerdict::Ended => "not retried",
    };
    format!(
        "{} after {}, at {}: {what}",
        callback.last,
        count(callback.attempts.into(), "attempt"),
        callback.at
    )
}
