//! Test for full service: the cluster carries out every new command of a client.

use std::path::Path;
use std::time::Duration;

use client::ListFilter;
use schemas::query::{InstanceState, TaskState};

use crate::cluster::Cluster;
use crate::error::{Failed, Result, ensure, poll_until};
use crate::recording_client::RecordingClient;
use crate::work;

/// Timeout of each condition.
const SERVICE_TIMEOUT: Duration = Duration::from_secs(300);

/// Waits until every service is running, a new instance runs, a new task has completed, and the tables
/// contain the instance and the task.
///
/// # Errors
/// Returns an error if one of these conditions is not met in time.
pub async fn wait_for_full_service(
    cluster: &mut Cluster,
    asker: &RecordingClient,
    number: usize,
) -> Result<()> {
    let ran = cluster.folder().join("ran");
    let probed = probe(asker, &ran, number).await?;
    cluster.wait_until_complete(asker).await?;
    poll_until(SERVICE_TIMEOUT, "the tables are up to date", async || {
        let position = cluster.projected_position().await?;
        ensure(position >= probed, || format!("the tables are at {position}, the probe is at {probed}"))
    })
    .await
}

/// Desires an instance and a task, waits for both, and removes the instance's process. Returns the log
/// position of the removal.
async fn probe(asker: &RecordingClient, ran: &Path, number: usize) -> Result<u64> {
    let guid = work::process(&format!("probe-{number}"))?;
    asker.desire(work::sleeper(guid.as_str(), 1, 0)?).await?;
    let task = work::task_guid(&format!("probe-{number}"))?;
    asker.run(work::task(&task, ran, "0")?).await?;
    let client = asker.queries();
    poll_until(SERVICE_TIMEOUT, "a new instance runs", async || {
        let rows = client
            .instances(&ListFilter::process(guid.clone()))
            .await
            .map_err(Failed::context("instances"))?
            .rows;
        let runs = rows.iter().any(|row| row.state == InstanceState::Running);
        ensure(runs, || format!("{rows:?}"))
    })
    .await?;
    poll_until(SERVICE_TIMEOUT, "a new task has completed", async || {
        let row = client.task(&task).await.map_err(Failed::context("task show"))?.row;
        ensure(row.state == TaskState::Completed, || format!("{row:?}"))
    })
    .await?;
    Ok(asker.remove(guid).await?.position.0)
}
