//! `muster status`: shows the health of the cluster on one screen, and returns it as the exit status.

use std::time::Duration;

use cli_base::connect::connect;
use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::{Output, RenderOptions};
use cli_base::table::{Cell, Table, facts, painted_state};
use explain::monitors::{MonitorFailure, monitor_failures};
use runtime::exit::Exit;
use schemas::query::{Finding, FindingCode, Health, InstanceState, LogRow, StatusRow, TaskState};
use serde::Serialize;
use text::words::{bytes_text, count, one_line};

use super::rows;

/// Timeout of the query. A short timeout reports an unreachable cluster soon.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);

/// Output of `muster status`: the status of the cluster, and monitor results. Monitor results come from the
/// cells.
#[derive(Serialize)]
struct ShownStatus {
    #[serde(flatten)]
    status: StatusRow,
    /// Failures of the monitors of starting instances.
    monitors: Vec<MonitorFailure>,
}

pub(crate) async fn run(global: &Global) -> Result<(), Failure> {
    let client = connect(global).await?;
    let client = match global.past {
        // A query of the past is not urgent.
        Some(_) => client,
        None => client.patience(global.timeout.unwrap_or(QUERY_TIMEOUT).min(QUERY_TIMEOUT)),
    };
    let mut status = client.status().await?.row;
    let monitors = monitor_failures(&client, &status.starting).await;
    if !monitors.is_empty() {
        let why = format!("the monitors of {} fail", count(monitors.len() as u64, "starting instance"));
        status.add_finding(Finding::new(FindingCode::MonitorsFail, why));
    }
    let exit = exit_of(status.health);
    Output::new(global).write_one(&ShownStatus { status, monitors }, |shown, look| {
        screen(&shown.status, &shown.monitors, look)
    })?;
    if exit == Exit::Done { Ok(()) } else { Err(Failure::silent(exit)) }
}

const fn exit_of(health: Health) -> Exit {
    match health {
        Health::Healthy => Exit::Done,
        Health::Degraded => Exit::Degraded,
        Health::Unhealthy => Exit::Unhealthy,
    }
}

/// Formats the status as text.
fn screen(row: &StatusRow, monitors: &[MonitorFailure], look: RenderOptions) -> String {
    let mut parts = vec![head(row, look), rows::services(&row.cluster.services, look)];
    if !row.cells.is_empty() {
        parts.push(rows::cells(&row.cells, look).render(look.colour));
    }
    if !row.worst.is_empty() {
        parts.push(rows::instances(&row.worst, look).render(look.colour));
    }
    if !monitors.is_empty() {
        let headers = ["INSTANCE", "MONITOR FAILURE"];
        let table = Table::with_rows(headers, monitors, |MonitorFailure { instance, message }| {
            [Cell::text(instance), Cell::text(one_line(message))]
        });
        parts.push(table.render(look.colour));
    }
    parts.join("\n\n")
}

/// Formats the state of the stream that holds the log: `3 replicas, 3 in sync, 4711 entries, 12 MiB`.
fn log_text(log: &LogRow) -> String {
    let most = log.max_bytes.map(|most| format!(" of {}", bytes_text(most))).unwrap_or_default();
    format!(
        "{}, {} in sync, {}, {}{most}",
        count(log.replicas.into(), "replica"),
        log.replicas_in_sync,
        if log.entries == 1 { "1 entry".to_owned() } else { format!("{} entries", log.entries) },
        bytes_text(log.bytes)
    )
}

fn head(row: &StatusRow, look: RenderOptions) -> String {
    let cluster = &row.cluster;
    let of = |state: InstanceState| cluster.instances.get(&state).copied().unwrap_or_default();
    let pending = cluster.tasks.get(&TaskState::Pending).copied().unwrap_or_default();
    let mut shown = vec![
        ("cells", rows::by_state(&cluster.cells)),
        ("processes", cluster.lrps.to_string()),
        (
            "instances",
            format!(
                "{} desired, {} running, {} starting, {} waiting for placement, {} crashed, {} unplaced",
                row.instances_desired,
                of(InstanceState::Running),
                of(InstanceState::Claimed),
                of(InstanceState::Unclaimed).saturating_sub(row.instances_unplaced),
                of(InstanceState::Crashed),
                row.instances_unplaced
            ),
        ),
        ("tasks", format!("{pending} pending, {} of them unplaced", row.tasks_unplaced)),
        ("evaluations", format!("{} blocked", row.evaluations_blocked)),
        ("callbacks", format!("{} being retried", row.callbacks_retried)),
        ("malformed entries", format!("{} quarantined", cluster.quarantined_entries.count)),
        ("durability", cluster.durability.clone()),
    ];
    shown.extend(row.log.as_ref().map(|log| ("log", log_text(log))));
    let text = facts(&shown);
    let findings = rows::findings(&row.findings, look);
    let health = painted_state(row.health.as_str(), look.colour);
    let top = if findings.is_empty() { health } else { format!("{health}\n{findings}") };
    format!("{top}\n\n{text}")
}
