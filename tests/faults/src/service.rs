//! Whether a cluster is at full service: somebody who asks now gets everything.

use std::path::Path;
use std::time::Duration;

use client::Only;
use schemas::query::{InstanceState, TaskState};

use crate::asker::Asker;
use crate::cluster::Cluster;
use crate::failed::{Failed, Result, so, until};
use crate::work;

/// How long it may take at the most.
const SERVED: Duration = Duration::from_secs(300);

/// Waits until every service is there, a new instance runs, a new task has run, and the tables know of both.
///
/// # Errors
/// It doesn't come to that.
pub async fn full_service(cluster: &mut Cluster, asker: &Asker, number: usize) -> Result<()> {
    let ran = cluster.folder().join("ran");
    let probed = probe(asker, &ran, number).await?;
    cluster.serves(asker).await?;
    until(SERVED, "the tables are up to date", async || {
        let position = cluster.projected().await?;
        so(position >= probed, || format!("they are at {position}, and the probe at {probed}"))
    })
    .await
}

/// Desires an instance and a task, waits for both, and removes the process; answers where the log says so.
async fn probe(asker: &Asker, ran: &Path, number: usize) -> Result<u64> {
    let guid = work::process(&format!("probe-{number}"))?;
    asker.desire(work::sleeper(guid.as_str(), 1, 0)?).await?;
    let task = work::task_guid(&format!("probe-{number}"))?;
    asker.run(work::task(&task, ran, "0")?).await?;
    let client = asker.questions();
    until(SERVED, "a new instance runs", async || {
        let rows =
            client.instances(&Only::process(guid.clone())).await.map_err(Failed::at("instances"))?.rows;
        let runs = rows.iter().any(|row| row.state == InstanceState::Running);
        so(runs, || format!("{rows:?}"))
    })
    .await?;
    until(SERVED, "a new task is over", async || {
        let row = client.task(&task).await.map_err(Failed::at("task show"))?.row;
        so(row.state == TaskState::Completed, || format!("{row:?}"))
    })
    .await?;
    Ok(asker.remove(guid).await?.position.0)
}
