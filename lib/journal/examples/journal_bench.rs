//! Benchmark of the journals on this machine: `cargo run --release -p journal --example journal_bench
//! [entries]`.
//!
//! Each entry is 500 bytes. The benchmark starts its own NATS servers, with `sync_interval: always`.
#![expect(clippy::print_stdout, reason = "the benchmark prints its result")]

use std::error::Error;
use std::time::{Duration, Instant};

use bus::nats::Settings;
use bytes::Bytes;
use journal::Journal;
use journal::{Append, JetStream, Memory, Sqlite, StreamSettings};
use schemas::names::{EntryId, IdGenerator};
use schemas::{Position, Subject};
use support::server::NatsServer;

type Failed = Box<dyn Error + Send + Sync>;

/// Size of one entry in bytes.
const ENTRY_BYTES: usize = 500;
/// Number of subjects with concurrent writers.
const SUBJECTS: u16 = 32;

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let entries: u64 = std::env::args().nth(1).map_or(Ok(20_000), |text| text.parse())?;
    println!("{entries} entries of {ENTRY_BYTES} bytes");
    println!(
        "{:<22}{:>12}{:>10}{:>10}{:>14}{:>14}{:>12}",
        "", "1 at once/s", "p50", "p99", "32 at once/s", "follow/s", "read/s"
    );
    measure("memory", &Journal::Memory(Memory::new()), entries).await?;
    let folder = tempfile::tempdir()?;
    measure("SQLite", &Journal::Sqlite(Sqlite::open(folder.path()).await?), entries).await?;
    let folder = tempfile::tempdir()?;
    let server = NatsServer::start(folder.path()).await?;
    measure("JetStream", &open(&server, 1).await?, entries).await?;
    let folder = tempfile::tempdir()?;
    let servers = NatsServer::start_cluster(folder.path(), 3).await?;
    for server in &servers {
        // The cluster may still be electing the leader that creates streams.
        if let Ok(journal) = open(server, 3).await {
            return measure("JetStream on three", &journal, entries).await;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    Err("the cluster has no leader".into())
}

async fn open(server: &NatsServer, replicas: usize) -> Result<Journal, Failed> {
    let settings = Settings::new(vec![server.url.clone()], "bench", "muster.inbox.bench");
    let wanted = StreamSettings { replicas, ..StreamSettings::default() };
    Ok(Journal::JetStream(JetStream::open(settings.connect().await?, &wanted).await?))
}

async fn measure(name: &str, journal: &Journal, entries: u64) -> Result<(), Failed> {
    let alone = (entries / 10).max(100);
    let started = Instant::now();
    let mut waits = write(journal.clone(), Subject::Cluster, alone).await?;
    let sequential = rate(alone, started);
    waits.sort_unstable();
    let at = |share: usize| format!("{} us", waits[waits.len() * share / 100].as_micros());

    let started = Instant::now();
    let each = (entries / u64::from(SUBJECTS)).max(1);
    let writers: Vec<_> =
        (0..SUBJECTS).map(|shard| tokio::spawn(write(journal.clone(), Subject::Lrp(shard), each))).collect();
    for writer in writers {
        writer.await??;
    }
    let parallel = rate(each * u64::from(SUBJECTS), started);

    let (end, started) = (journal.end().await?, Instant::now());
    let mut follower = journal.follow(Position(0));
    while follower.position() < end {
        follower.next_batch(1_000).await?;
    }
    let followed = rate(end.0, started);

    let (mut after, started) = (Position(0), Instant::now());
    while after < end {
        let page = journal.read(after, None, 1_000).await?;
        after = page.last().map_or(after, |entry| entry.position);
    }
    let read = rate(end.0, started);
    println!("{name:<22}{sequential:>12}{:>10}{:>10}{parallel:>14}{followed:>14}{read:>12}", at(50), at(99));
    Ok(())
}

/// Appends entries to one subject, one after the other. Returns the latency of each append.
async fn write(journal: Journal, subject: Subject, entries: u64) -> Result<Vec<Duration>, Failed> {
    let mut ids = IdGenerator::new(clock::seed()?);
    let (bytes, mut waits, mut expected) = (Bytes::from(vec![b'x'; ENTRY_BYTES]), Vec::new(), Position(0));
    for _ in 0..entries {
        let (started, entry) = (Instant::now(), EntryId(ids.next(clock::now())));
        let append = Append { subject: subject.clone(), expected, entry, bytes: bytes.clone() };
        expected = journal.append(append).await?;
        waits.push(started.elapsed());
    }
    Ok(waits)
}

fn rate(count: u64, started: Instant) -> u64 {
    let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX).max(1);
    count * 1_000_000 / micros
}
