//! Tasks of a BBS that answer queries about the past, and extend the index of snapshots as the log grows.

use std::sync::Arc;
use std::time::Duration;

use bbs::Reply;
use past::Error;
use schemas::Position;
use text::chain;
use tokio::time::Instant;

use super::driver::Driver;
use super::past::PastQuery;

/// Shorter interval for a busy log, and its threshold in bytes. The shorter interval applies if the entries
/// since the last snapshot have at least this number of bytes. Without a newer snapshot, the next start of
/// the service would take seconds longer.
const BUSY_END_SNAPSHOT: (Duration, u64) = (Duration::from_secs(60), 32 * 1024 * 1024);
/// Interval between snapshots of the end of the log.
const END_SNAPSHOT_INTERVAL: Duration = Duration::from_secs(300);
/// Interval between checks for a missing snapshot.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Pause after a failed attempt to build a snapshot.
const RETRY_PAUSE: Duration = Duration::from_secs(30);
/// Lag in entries above which a BBS builds no snapshots.
const MAX_LAG: u64 = 10_000;

impl Driver {
    /// Answers queries about the past, one after the other.
    pub(super) async fn answer_past_queries(self: Arc<Self>) {
        while let Some(asked) = self.ends.run_until_cancelled(self.looking.asked.next()).await {
            let PastQuery { waiter, query, as_of, observed } = asked;
            let answered = self.looking.answer(waiter.read_scope(), query, as_of, &observed);
            let answered = self.ends.run_until_cancelled(answered).await;
            let Some(rows) = answered else { return };
            self.reply(waiter, Reply::Rows(rows)).await;
        }
    }

    /// Extends the snapshot index as the log grows.
    pub(super) async fn maintain_snapshot_index(self: Arc<Self>) {
        let followed = self.followed();
        let (mut last, mut bytes) = (Instant::now(), 0);
        loop {
            let end = *followed.borrow();
            let (soon, much) = BUSY_END_SNAPSHOT;
            let is_much = self.followed_bytes() - bytes >= much;
            if last.elapsed() >= if is_much { soon } else { END_SNAPSHOT_INTERVAL }
                && self.stopped().is_none()
            {
                (last, bytes) = (Instant::now(), self.followed_bytes());
                if let Some(Err(error)) = self.ends.run_until_cancelled(self.looking.build_last(end)).await {
                    tracing::warn!("can't create a snapshot of the end of the log: {}", chain(&error));
                }
            }
            let pause = match self.ends.run_until_cancelled(self.extend_snapshot_index(end)).await {
                None => return,
                Some(Ok(())) => CHECK_INTERVAL,
                Some(Err(Error::NoCache)) => return,
                Some(Err(error)) => {
                    tracing::warn!("can't create a snapshot of the past: {}", chain(&error));
                    RETRY_PAUSE
                }
            };
            if self.ends.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
        }
    }

    async fn extend_snapshot_index(&self, end: Position) -> Result<(), Error> {
        if self.stopped().is_some() || !self.looking.is_due(end).await? {
            return Ok(());
        }
        let behind = self.looking.journal.end().await?.0.saturating_sub(end.0);
        if behind > MAX_LAG { Ok(()) } else { self.looking.build(end).await }
    }
}
