//! How long one small command after the other waits while the cluster has much to do.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::BenchError;
use super::load::Annotator;

/// Between two commands.
const PAUSE: Duration = Duration::from_millis(100);

/// A client that asks for little, one thing after the other.
#[derive(Debug)]
pub(super) struct Waits {
    waited: JoinHandle<Result<Vec<Duration>, BenchError>>,
    ends: DropGuard,
}

impl Waits {
    /// Sends commands from now on.
    pub(super) fn begin(annotator: Annotator) -> Self {
        let ends = CancellationToken::new();
        let waited = tokio::spawn(send(annotator, ends.clone()));
        Self { waited, ends: ends.drop_guard() }
    }

    /// Sends no more. Answers how long each waited.
    pub(super) async fn end(self) -> Result<Vec<Duration>, BenchError> {
        drop(self.ends);
        self.waited.await.map_err(BenchError::Panicked)?
    }
}

async fn send(annotator: Annotator, ends: CancellationToken) -> Result<Vec<Duration>, BenchError> {
    let (mut waited, mut turns) = (vec![], interval(PAUSE));
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while ends.run_until_cancelled(turns.tick()).await.is_some() {
        waited.push(annotator.annotate(waited.len() as u64).await?);
    }
    Ok(waited)
}
