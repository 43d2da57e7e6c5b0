//! Queries are answered here, off the deciding thread: from pictures of the World, by a bounded number of threads, and
//! each client within its budget. Who asks for more is refused; nobody waits for another client's questions.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bbs::{Query, Reply};
use bus::{INBOX_ROOT, ReplyTo};
use projections::{Observed, Picture};
use schemas::limits::{
    LONG_POLLS, LONG_POLLS_WAITING, PICTURE_HELD_MS, PICTURES_HELD, QUERIES_IN_FLIGHT, QUERIES_WAITING,
};
use schemas::query::Cursor;
use schemas::subject::Position;
use schemas::{Code, Refusal};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// What answers queries.
#[derive(Debug)]
pub(super) struct Reading {
    /// Threads that make rows for clients.
    rows: Arc<Semaphore>,
    /// Threads that look up records for reps: a flood of clients' queries doesn't make a cell wait.
    records: Arc<Semaphore>,
    held: Mutex<VecDeque<Held>>,
    queries: Arc<Budget>,
    polls: Arc<Budget>,
}

/// A picture that further pages are of.
#[derive(Clone, Debug)]
struct Held {
    until: Instant,
    picture: Picture,
    observed: Observed,
}

impl Reading {
    pub(super) fn new() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get).div_ceil(2);
        Self {
            rows: Arc::new(Semaphore::new(threads)),
            records: Arc::new(Semaphore::new(threads)),
            held: Mutex::default(),
            queries: Arc::new(Budget::new(QUERIES_IN_FLIGHT, QUERIES_WAITING, "queries")),
            polls: Arc::new(Budget::new(LONG_POLLS, LONG_POLLS_WAITING, "reads of events and logs")),
        }
    }

    /// Admits a query that has rows or records as its answer.
    pub(super) fn admit_query(&self, reply: &ReplyTo) -> Result<Ticket, Refusal> {
        self.queries.admit(client_of(reply))
    }

    /// Admits a read of events or logs, which may wait long.
    pub(super) fn admit_poll(&self, reply: &ReplyTo) -> Result<Ticket, Refusal> {
        self.polls.admit(client_of(reply))
    }

    /// Answers a query from a picture.
    pub(super) async fn answer(&self, query: Query, picture: Picture, observed: Observed) -> Reply {
        let threads = match &query {
            Query::Rows(_) => &self.rows,
            Query::Records(_) => &self.records,
        };
        let stopping = || Reply::Rows(Err(Refusal::new(Code::Unavailable, "the BBS is stopping")));
        let Ok(permit) = Arc::clone(threads).acquire_owned().await else { return stopping() };
        let paged = is_list(&query);
        let (shown, told) = (picture.clone(), observed.clone());
        let answered = tokio::task::spawn_blocking(move || {
            let reply = bbs::answer(&query, &shown, &told);
            drop(permit);
            reply
        });
        match answered.await {
            Ok(reply) => {
                if paged && has_next_page(&reply) {
                    self.hold(picture, observed);
                }
                reply
            }
            Err(error) => {
                tracing::error!(%error, "a query could not be answered");
                stopping()
            }
        }
    }

    /// The picture that a cursor names, if it is still held.
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

/// Whether a query is answered with a page. What shows one thing has no further pages, so that its picture isn't held.
const fn is_list(query: &Query) -> bool {
    use projections::Query as Rows;
    match query {
        Query::Rows(
            Rows::Lrps(_)
            | Rows::Instances(_)
            | Rows::Tasks(_)
            | Rows::Domains(_)
            | Rows::Cells(_)
            | Rows::Evaluations(_),
        ) => true,
        Query::Rows(
            Rows::Lrp(_)
            | Rows::Instance(_)
            | Rows::Task(_)
            | Rows::Cell(_)
            | Rows::Evaluation(_)
            | Rows::Cluster(_),
        )
        | Query::Records(_) => false,
    }
}

/// Whether the rows of a list are followed by another page. What a page's `next` says is its last field.
fn has_next_page(reply: &Reply) -> bool {
    match reply {
        Reply::Rows(Ok(rows)) => !rows.ends_with("\"next\":null}"),
        Reply::Rows(Err(_)) | Reply::Done(_) | Reply::Reported(_) | Reply::Records(_) => false,
    }
}

/// Who asks, as far as it can be known: the inbox below which its answers come. Plain NATS clients, whose inboxes say
/// nothing, share one budget.
fn client_of(reply: &ReplyTo) -> String {
    let Some(inbox) = reply.subject().strip_prefix(INBOX_ROOT) else { return "anonymous".to_owned() };
    let words = if inbox.starts_with("client.") { 3 } else { 2 };
    inbox.split('.').take(words).collect::<Vec<_>>().join(".")
}

/// How much of something each client may have under way.
#[derive(Debug)]
struct Budget {
    each: usize,
    all: usize,
    what: &'static str,
    used: Mutex<BTreeMap<String, usize>>,
}

/// Room in a budget, until it is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    budget: Arc<Budget>,
    client: String,
}

impl Budget {
    fn new(each: usize, all: usize, what: &'static str) -> Self {
        Self { each, all, what, used: Mutex::default() }
    }

    fn admit(self: &Arc<Self>, client: String) -> Result<Ticket, Refusal> {
        let mut used = self.lock();
        let of_client = used.get(&client).copied().unwrap_or(0);
        let too_many = |of: &str, limit: usize| {
            let why = format!("{limit} {} of {of} wait already, which is the most: try again", self.what);
            Err(Refusal::new(Code::Overloaded, why))
        };
        if of_client >= self.each {
            return too_many(&client, self.each);
        }
        if used.values().sum::<usize>() >= self.all {
            return too_many("all clients", self.all);
        }
        used.insert(client.clone(), of_client + 1);
        drop(used);
        Ok(Ticket { budget: Arc::clone(self), client })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, usize>> {
        self.used.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut used = self.budget.lock();
        if let Some(count) = used.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                used.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_more_than_its_budget_is_refused_and_nobody_else() {
        let budget = Arc::new(Budget::new(2, 3, "queries"));
        let admit = |client: &str| budget.admit(client.to_owned());
        let first = [admit("a").unwrap(), admit("a").unwrap()];
        assert_eq!(admit("a").unwrap_err().code, Code::Overloaded);
        let other = admit("b").unwrap();
        assert_eq!(admit("c").unwrap_err().code, Code::Overloaded, "there is a limit for all");
        drop(first);
        assert!(admit("a").is_ok() && admit("c").is_ok());
        drop(other);
        assert!(budget.lock().is_empty(), "nothing is left of who asked");
    }
}
