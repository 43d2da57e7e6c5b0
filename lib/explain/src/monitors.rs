//! Failures that the monitors of starting instances report.

use std::time::Duration;

use client::Client;
use futures::future::join_all;
use schemas::limits::STATUS_NAMED;
use schemas::query::{InstanceRow, InstanceState};
use serde::Serialize;
use tokio::time::timeout;

use super::names::Names;

/// Timeout of the queries for monitor results.
const MONITOR_TIMEOUT: Duration = Duration::from_secs(2);

/// A failure reported by a monitor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MonitorFailure {
    pub instance: String,
    pub message: String,
}

/// Returns the names (`PROCESS/INDEX`) of the first starting instances whose monitors can be queried.
#[must_use]
pub fn starting_instances(rows: &[InstanceRow]) -> Vec<String> {
    let starting = rows.iter().filter(|row| row.state == InstanceState::Claimed && !row.stopping);
    let called = Names::from_rows(rows);
    starting.take(STATUS_NAMED).map(|row| called.row_name(row)).collect()
}

/// Returns the failures reported by the monitors of these instances. Leaves out cells that do not answer.
pub async fn monitor_failures(client: &Client, starting: &[String]) -> Vec<MonitorFailure> {
    if client.query_moment().is_some() {
        // The log contains no monitor results.
        return vec![];
    }
    let client = client.clone().patience(MONITOR_TIMEOUT);
    let ask = async |name: &String| {
        // The status already shows an unresponsive cell as silent.
        let all = timeout(MONITOR_TIMEOUT, client.instance_health(name)).await.ok()?.ok()?;
        let says = all.into_iter().find_map(|one| one.health)?.failure_summary()?;
        Some(MonitorFailure { instance: name.clone(), message: says })
    };
    join_all(starting.iter().map(ask)).await.into_iter().flatten().collect()
}
