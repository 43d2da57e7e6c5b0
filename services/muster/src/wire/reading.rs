//! Answers queries off the deciding thread: from World snapshots, with a bounded number of threads, clients
//! in turn.

use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::Mutex;
use std::time::Duration;

use bbs::{Query, Reply};
use projections::{Observed, Picture};
use schemas::limits::{PICTURE_HELD_MS, PICTURES_HELD};
use schemas::query::Cursor;
use schemas::subject::Position;
use schemas::{Code, Refusal};
use tokio::time::Instant;

use super::bbs::Waiter;
use super::lanes::Lanes;

/// Queues of queries, and the World snapshots that further pages need.
#[derive(Debug, Default)]
pub(super) struct Reading {
    rows: Lanes<Asked>,
    /// Queries of reps, which have threads of their own.
    records: Lanes<Asked>,
    held: Mutex<VecDeque<Held>>,
}

/// Kind of queries that a thread answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Queries of clients, for rows.
    Rows,
    /// Queries of reps, for records.
    Records,
}

/// A query with the World snapshot to answer it from.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) waiter: Waiter,
    query: Query,
    picture: Picture,
    observed: Observed,
}

/// Returns the number of threads for each kind of query.
pub(super) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get).div_ceil(2)
}

/// A World snapshot that is held for further pages.
#[derive(Clone, Debug)]
struct Held {
    until: Instant,
    picture: Picture,
    observed: Observed,
}

impl Reading {
    /// Queues a query under the name of its caller.
    pub(super) fn put(&self, waiter: Waiter, query: Query, picture: Picture, observed: Observed) {
        let lanes = match &query {
            Query::Rows(_) => &self.rows,
            Query::Records(_) => &self.records,
        };
        let name = waiter.name().to_owned();
        lanes.put(&name, Asked { waiter, query, picture, observed });
    }

    /// Returns the next query. Cancel-safe.
    pub(super) async fn next(&self, kind: Kind) -> Asked {
        match kind {
            Kind::Rows => self.rows.next().await,
            Kind::Records => self.records.next().await,
        }
    }

    /// Answers a query from its World snapshot.
    pub(super) async fn answer(&self, asked: Asked) -> (Waiter, Reply) {
        let Asked { waiter, query, picture, observed } = asked;
        let paged = is_list(&query);
        let (shown, told) = (picture.clone(), observed.clone());
        let sight = waiter.sight();
        let answered =
            tokio::task::spawn_blocking(move || bbs::answer_to(&sight, &query, &shown, &told)).await;
        let reply = answered.unwrap_or_else(|error| {
            tracing::error!(%error, "a query could not be answered");
            Reply::Rows(Err(Refusal::new(Code::Unavailable, "the BBS is stopping")))
        });
        if paged && has_next_page(&reply) {
            self.hold(picture, observed);
        }
        (waiter, reply)
    }

    /// Returns the World snapshot that a cursor names, if it is still held.
    pub(super) fn held(&self, cursor: &Cursor) -> Option<(Picture, Observed)> {
        let now = Instant::now();
        let held = self.lock();
        let one = held.iter().find(|held| held.picture.position() == cursor.position && held.until > now);
        one.map(|held| (held.picture.clone(), held.observed.clone()))
    }

    fn hold(&self, picture: Picture, observed: Observed) {
        let now = Instant::now();
        let until = now + Duration::from_millis(PICTURE_HELD_MS);
        let position: Position = picture.position();
        let mut held = self.lock();
        held.retain(|held| held.until > now);
        if let Some(known) = held.iter_mut().find(|held| held.picture.position() == position) {
            known.until = until;
            return;
        }
        if held.len() >= PICTURES_HELD {
            held.pop_front();
        }
        held.push_back(Held { until, picture, observed });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Held>> {
        self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Returns `true` if the query returns pages. Snapshots of other queries are not held.
const fn is_list(query: &Query) -> bool {
    use projections::Query as Rows;
    match query {
        Query::Rows(
            Rows::Lrps(_)
            | Rows::Instances(_)
            | Rows::EndedInstances(_)
            | Rows::Tasks(_)
            | Rows::EndedTasks(_)
            | Rows::Periodics(_)
            | Rows::Parameterised(_)
            | Rows::Domains(_)
            | Rows::Cells(_)
            | Rows::Evaluations(_),
        ) => true,
        Query::Rows(
            Rows::Lrp(_)
            | Rows::Instance(_)
            | Rows::Task(_)
            | Rows::Periodic(_)
            | Rows::ParameterisedOne(_)
            | Rows::DomainUse(_)
            | Rows::Cell(_)
            | Rows::Evaluation(_)
            | Rows::Cluster(_)
            | Rows::Status(_),
        )
        | Query::Records(_) => false,
    }
}

/// Returns `true` if a list has another page. Relies on `next` being the last field of a page.
fn has_next_page(reply: &Reply) -> bool {
    match reply {
        Reply::Rows(Ok(rows)) => !rows.ends_with("\"next\":null}"),
        Reply::Rows(Err(_)) | Reply::Done(_) | Reply::Reported(_) | Reply::Records(_) => false,
    }
}
