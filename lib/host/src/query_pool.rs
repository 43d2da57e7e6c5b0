//! Answers queries from snapshots of the World (the state folded from the log). Queries do not run on the
//! thread that decides commands. The number of threads is bounded, and clients take turns.

use std::collections::VecDeque;
use std::num::NonZero;
use std::time::Duration;

use bbs::{Query, Reply};
use parking_lot::Mutex;
use projections::{Observed, WorldSnapshot};
use schemas::limits::{WORLD_SNAPSHOT_HELD_MS, WORLD_SNAPSHOTS_HELD};
use schemas::query::Cursor;
use schemas::subject::Position;
use schemas::{Code, Refusal};
use tokio::time::Instant;

use super::reply_target::ReplyTarget;
use super::turn_queue::TurnQueue;

/// Queues of queries, and World snapshots for the next pages of lists.
#[derive(Debug, Default)]
pub(super) struct QueryPool {
    rows: TurnQueue<QueuedQuery>,
    /// Queries that reps send. Separate threads answer these queries.
    records: TurnQueue<QueuedQuery>,
    held: Mutex<VecDeque<HeldSnapshot>>,
}

/// Kind of queries that a thread answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueryKind {
    /// Queries of clients, for rows.
    Rows,
    /// Queries of reps, for records.
    Records,
}

/// A query, and the World snapshot that the answer is read from.
#[derive(Debug)]
pub(super) struct QueuedQuery {
    pub(super) waiter: ReplyTarget,
    query: Query,
    picture: WorldSnapshot,
    observed: Observed,
}

/// Returns the number of threads for each kind of query.
pub(super) fn thread_count() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get).div_ceil(2)
}

/// A World snapshot that is kept for the next pages of a list.
#[derive(Clone, Debug)]
struct HeldSnapshot {
    until: Instant,
    picture: WorldSnapshot,
    observed: Observed,
}

impl QueryPool {
    /// Queues a query under the name of its caller.
    pub(super) fn enqueue(
        &self,
        waiter: ReplyTarget,
        query: Query,
        picture: WorldSnapshot,
        observed: Observed,
    ) {
        let lanes = match &query {
            Query::Rows(_) => &self.rows,
            Query::Records(_) => &self.records,
        };
        let name = waiter.name().to_owned();
        lanes.push(&name, QueuedQuery { waiter, query, picture, observed });
    }

    /// Returns the next query. Cancel-safe.
    pub(super) async fn next(&self, kind: QueryKind) -> QueuedQuery {
        match kind {
            QueryKind::Rows => self.rows.next().await,
            QueryKind::Records => self.records.next().await,
        }
    }

    /// Answers a query from its World snapshot.
    pub(super) async fn answer(&self, asked: QueuedQuery) -> (ReplyTarget, Reply) {
        let QueuedQuery { waiter, query, picture, observed } = asked;
        let paged = is_list(&query);
        let (shown, told) = (picture.clone(), observed.clone());
        let sight = waiter.read_scope();
        let answered =
            tokio::task::spawn_blocking(move || bbs::answer_within(&sight, &query, &shown, &told)).await;
        let reply = answered.unwrap_or_else(|error| {
            tracing::error!(%error, "a query could not be answered");
            Reply::Rows(Err(Refusal::new(Code::Unavailable, "the BBS is stopping")))
        });
        if paged && has_next_page(&reply) {
            self.hold(picture, observed);
        }
        (waiter, reply)
    }

    /// Returns the World snapshot that a cursor names. `None` if the pool does not keep this snapshot.
    pub(super) fn held(&self, cursor: &Cursor) -> Option<(WorldSnapshot, Observed)> {
        let now = Instant::now();
        let held = self.held.lock();
        let one = held.iter().find(|held| held.picture.position() == cursor.position && held.until > now);
        one.map(|held| (held.picture.clone(), held.observed.clone()))
    }

    fn hold(&self, picture: WorldSnapshot, observed: Observed) {
        let now = Instant::now();
        let until = now + Duration::from_millis(WORLD_SNAPSHOT_HELD_MS);
        let position: Position = picture.position();
        let mut held = self.held.lock();
        held.retain(|held| held.until > now);
        if let Some(known) = held.iter_mut().find(|held| held.picture.position() == position) {
            known.until = until;
            return;
        }
        if held.len() >= WORLD_SNAPSHOTS_HELD {
            held.pop_front();
        }
        held.push_back(HeldSnapshot { until, picture, observed });
    }
}

/// Returns `true` if the query returns pages. For other queries, no snapshots are kept.
const fn is_list(query: &Query) -> bool {
    use projections::Query as Rows;
    match query {
        Query::Rows(Rows::Cluster(_) | Rows::Status(_)) | Query::Records(_) => false,
        Query::Rows(rows) => rows.filter().is_some(),
    }
}

/// Returns `true` if a list has another page. The function relies on `next` being the last field of a page.
fn has_next_page(reply: &Reply) -> bool {
    match reply {
        Reply::Rows(Ok(rows)) => !rows.ends_with("\"next\":null}"),
        Reply::Rows(Err(_)) | Reply::Done(_) | Reply::Reported(_) | Reply::Records(_) => false,
    }
}
