//! Latencies of small commands, which are sent one after the other while the cluster is loaded.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::BenchError;
use super::load::Annotator;

/// Interval between two commands.
const INTERVAL: Duration = Duration::from_millis(100);

/// Client that causes little load: it sends one command at a time.
#[derive(Debug)]
pub(super) struct LatencyProbe {
    task: JoinHandle<Result<Vec<Duration>, BenchError>>,
    stop_guard: DropGuard,
}

impl LatencyProbe {
    /// Starts sending commands.
    pub(super) fn begin(annotator: Annotator) -> Self {
        let ends = CancellationToken::new();
        let task = tokio::spawn(send(annotator, ends.clone()));
        Self { task, stop_guard: ends.drop_guard() }
    }

    /// Stops sending commands and returns the latency of each command.
    pub(super) async fn end(self) -> Result<Vec<Duration>, BenchError> {
        drop(self.stop_guard);
        self.task.await.map_err(BenchError::Panicked)?
    }
}

async fn send(annotator: Annotator, ends: CancellationToken) -> Result<Vec<Duration>, BenchError> {
    let (mut waited, mut turns) = (vec![], interval(INTERVAL));
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while ends.run_until_cancelled(turns.tick()).await.is_some() {
        waited.push(annotator.annotate(waited.len() as u64).await?);
    }
    Ok(waited)
}
