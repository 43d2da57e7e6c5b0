//! What the journal alone can do: the limit beside which the figures of the whole system stand.

use std::time::{Duration, Instant};

use bytes::Bytes;
use journal::{Append, Journal};
use schemas::names::{Domain, EntryId, Ids};
use schemas::subject::{DEFAULT_SHARDS, Position, Subject};
use tokio::task::JoinSet;

use super::BenchError;

/// Messages that are appended one after the other, and on each of the subjects that are written to at once.
const MESSAGES: (u32, u32) = (100, 60);

/// What the journal does when nothing else is asked of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Limit {
    /// How long each append took while no other was under way.
    pub(super) alone: Vec<Duration>,
    /// Appends a second, as many at once as a cluster has shards.
    pub(super) per_second: f64,
}

/// Appends messages as large as the entries of the run were on average, on subjects of their own. They are no entries, and
/// everybody sets them aside.
pub(super) async fn measure(journal: &Journal, bytes: usize) -> Result<Limit, BenchError> {
    let body = Bytes::from(vec![b' '; bytes]);
    let mut limit =
        Limit { alone: appends(journal.clone(), 0, MESSAGES.0, body.clone()).await?, per_second: 0.0 };
    let started = Instant::now();
    let mut subjects = JoinSet::new();
    for number in 1..=DEFAULT_SHARDS {
        subjects.spawn(appends(journal.clone(), number, MESSAGES.1, body.clone()));
    }
    let mut count = 0;
    while let Some(done) = subjects.join_next().await {
        count += u32::try_from(done.map_err(BenchError::Panicked)??.len()).unwrap_or(u32::MAX);
    }
    limit.per_second = f64::from(count) / started.elapsed().as_secs_f64();
    Ok(limit)
}

/// Appends so many messages to one subject, and says how long each took.
async fn appends(
    journal: Journal,
    number: u16,
    messages: u32,
    bytes: Bytes,
) -> Result<Vec<Duration>, BenchError> {
    let subject = Subject::Domain(Domain::new(&format!("bench-limit-{number}"))?);
    let mut ids = Ids::new(clock::seed().map_err(BenchError::Randomness)?);
    let mut expected = Position(0);
    let mut took = vec![];
    for _ in 0..messages {
        let entry = EntryId(ids.next(clock::now()));
        let begun = Instant::now();
        let append = Append { subject: subject.clone(), expected, entry, bytes: bytes.clone() };
        expected = journal.append(append).await?;
        took.push(begun.elapsed());
    }
    Ok(took)
}
