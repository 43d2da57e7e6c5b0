//! Fixtures of the projector tests: logs, both kinds of databases, and helpers that project a log.

use bytes::Bytes;
use journal::{Append, Journal, Memory};
use projections::cluster_log::QuarantinedPositions;
use projector::ask::QuerySession;
use projector::{Error, Url, run};
use schemas::entry::{Aggregate, Decision, Event};
use schemas::names::{ClusterId, Domain};
use schemas::{Entry, Position, Subject, Timestamp, cluster, domain};
use support::postgres::Postgres;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

fn entry(number: u64, aggregate: Aggregate, events: Vec<Event>) -> Entry {
    let id = Uuid::from_u128(u128::from(number) + 1);
    let at = Timestamp(1_800_000_000_000_000_000 + number * 1_000_000);
    let reason = Some("it's \"so\"\0".into());
    fixtures::entry(Decision { version: number + 1, reason, ..fixtures::decision(id, at, aggregate, events) })
}

fn name(number: u64) -> Domain {
    Domain::new(&format!("d{}", number % 7)).expect("a valid value")
}

/// Returns a log with this many entries. The log belongs to a cluster whose domains are refreshed, and
/// contains one message that is not an entry.
pub(crate) async fn journal(cluster: u128, entries: u64) -> Journal {
    let journal = Journal::Memory(Memory::new());
    append(&journal, cluster, 0, entries).await;
    journal
}

/// Appends entries to a log that already has `begin` entries.
pub(crate) async fn append(journal: &Journal, cluster: u128, begin: u64, entries: u64) {
    for number in begin..begin + entries {
        let id = ClusterId(Uuid::from_u128(cluster));
        let founded = cluster::Event::Founded { id, shards: 4, format: cluster::FORMAT };
        let (subject, entry) = match number {
            0 => (Subject::Cluster, entry(0, Aggregate::Cluster, vec![Event::Cluster(founded)])),
            _ => {
                let until = (number % 3 > 0).then_some(Timestamp(number));
                let refreshed = domain::Event::Refreshed { expires_at: until };
                let aggregate = Aggregate::Domain(name(number));
                (Subject::Domain(name(number)), entry(number, aggregate, vec![Event::Domain(refreshed)]))
            }
        };
        let bytes = if number == 5 { Bytes::from_static(b"garbage") } else { Bytes::from(entry.encode()) };
        let last = journal.last(&subject).await.expect("should succeed");
        let expected = last.map_or(Position(0), |last| last.position);
        let append = Append { subject, expected, entry: entry.id, bytes };
        journal.append(append).await.expect("should succeed");
    }
}

pub(crate) async fn query_number(url: &Url, question: &str) -> i64 {
    let (mut reading, _) = QuerySession::open(url).await.expect("should succeed");
    reading.ask(question).await.expect("should succeed").rows[0][0].as_i64().expect("should succeed")
}

/// Runs a projector until the tables reach the journal's end.
pub(crate) async fn catch_up(journal: &Journal, url: &Url) -> Result<(), Error> {
    catch_up_with_quarantines(journal, url, QuarantinedPositions::new()).await
}

/// Runs a projector with these quarantined positions until the tables reach the journal's end.
pub(crate) async fn catch_up_with_quarantines(
    journal: &Journal,
    url: &Url,
    quarantines: QuarantinedPositions,
) -> Result<(), Error> {
    let (stop, end) = (CancellationToken::new(), journal.end().await.expect("should succeed"));
    let ends = stop.clone();
    run(journal, quarantines, url, &stop, |written| {
        if written.is_some_and(|written| written.position == end) {
            ends.cancel();
        }
    })
    .await
}

/// Both kinds of databases, without tables.
pub(crate) struct Databases {
    pub(crate) folder: TempDir,
    pub(crate) server: Postgres,
}

impl Databases {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("should succeed");
        Self { folder, server: Postgres::start().unwrap_or_else(|why| panic!("{why}")) }
    }

    pub(crate) fn file(&self) -> Url {
        Url::Sqlite(self.folder.path().join("tables.db"))
    }

    pub(crate) fn server(&self) -> Url {
        self.server.url("postgres", "postgres").parse().expect("should be valid")
    }

    pub(crate) fn both(&self) -> [Url; 2] {
        [self.file(), self.server()]
    }
}
