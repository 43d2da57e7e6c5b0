//! Throughput of the journal without services. It limits the throughput of the whole system.

use std::time::{Duration, Instant};

use bytes::Bytes;
use journal::{Append, Journal};
use schemas::names::{Domain, EntryId, IdGenerator};
use schemas::subject::{DEFAULT_SHARDS, Position, Subject};
use tokio::task::JoinSet;

use super::BenchError;

/// Number of sequential appends, and number of concurrent appends to each subject.
const MESSAGES: (u32, u32) = (100, 60);

/// Figures of the journal without other load.
#[derive(Clone, Debug, Default)]
pub(super) struct Limit {
    /// Latencies of sequential appends.
    pub(super) append_latencies: Vec<Duration>,
    /// Appends per second, with one unconfirmed append for each default shard.
    pub(super) per_second: f64,
}

/// Appends messages with the mean entry size of the run to separate subjects. The messages are not valid
/// entries, so readers quarantine them.
pub(super) async fn measure(journal: &Journal, bytes: usize) -> Result<Limit, BenchError> {
    let body = Bytes::from(vec![b' '; bytes]);
    let mut limit = Limit {
        append_latencies: measure_appends(journal.clone(), 0, MESSAGES.0, body.clone()).await?,
        per_second: 0.0,
    };
    let started = Instant::now();
    let mut subjects = JoinSet::new();
    for number in 1..=DEFAULT_SHARDS {
        subjects.spawn(measure_appends(journal.clone(), number, MESSAGES.1, body.clone()));
    }
    let mut count = 0;
    while let Some(done) = subjects.join_next().await {
        count += u32::try_from(done.map_err(BenchError::Panicked)??.len()).unwrap_or(u32::MAX);
    }
    limit.per_second = f64::from(count) / started.elapsed().as_secs_f64();
    Ok(limit)
}

/// Appends this number of messages to one subject and returns the latency of each.
async fn measure_appends(
    journal: Journal,
    number: u16,
    messages: u32,
    bytes: Bytes,
) -> Result<Vec<Duration>, BenchError> {
    let subject = Subject::Domain(Domain::new(&format!("bench-limit-{number}"))?);
    let mut ids = IdGenerator::new(clock::seed().map_err(BenchError::Randomness)?);
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
