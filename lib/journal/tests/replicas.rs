//! Servers that are killed, stopped and paused under load: no entry is lost or stored twice. In a cluster of
//! three servers, every replica has every entry. To its peers and clients, a paused server is a server whose
//! network is cut: nothing arrives and no connection closes.
//!
//! By default the tests disturb servers only a few times. The full form kills and pauses each of three servers
//! `REPLICA_KILLS` times alone, and `REPLICA_KILLS` times together with another server. The test prints its
//! progress:
//!
//! ```sh
//! REPLICA_KILLS=10 cargo test --release -p journal --test replicas three_servers -- --nocapture
//! REPLICA_KILLS=10 REPLICA_STREAM=migrated cargo test --release -p journal --test replicas three_servers -- --nocapture
//! ```
//!
//! `REPLICA_STREAM` selects how the stream is created: `none` (as Muster creates it), `migrated` (compressed,
//! filled, then migrated) or `s2` (compressed). With `s2` the test fails on nats-server 2.15.0 and 2.15.1:
//! servers lose their own copies, and the other servers have to restore the lost copies.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a panic fails the test")]

mod writing;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_nats::jetstream::stream::Compression;
use bus::nats::{Connection, Settings};
use bytes::Bytes;
use futures::future::join_all;
use journal::{JetStream, Journal, JournalError, STREAM, StoredEntry, StreamSettings};
use journal::{migrate, monitor};
use rustix::process::Signal;
use schemas::checksum::crc32c;
use schemas::names::{EntryId, IdGenerator};
use schemas::{Position, Subject, Timestamp};
use support::server::NatsServer;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use self::writing::{Stored, writer};

const PATIENCE: Duration = Duration::from_secs(120);
/// Number of entries written before the test. These entries fill several blocks of a compressed stream.
const OLD_ENTRIES: u64 = 30_000;
/// Number of writers, each with its own subject.
const WRITERS: u16 = 8;
/// Minimum number of entries written between two kills.
const BETWEEN: u64 = 200;

/// Duration of a pause. It exceeds the time after which the other servers elect another leader.
const PAUSE: Duration = Duration::from_secs(10);

/// Disturbance of one or more servers, given by their indexes from 0.
#[derive(Clone, Debug)]
enum Disturbance {
    /// SIGKILL.
    Kill(Vec<usize>),
    /// SIGTERM, and a wait for the exit.
    Stop(Vec<usize>),
    /// SIGSTOP for [`PAUSE`].
    Pause(Vec<usize>),
}

/// Compression of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamKind {
    Uncompressed,
    Migrated,
    Compressed,
}

#[tokio::test(flavor = "multi_thread")]
async fn one_disturbed_server_keeps_every_entry() {
    let folder = tempfile::tempdir().unwrap();
    let servers = vec![NatsServer::start(folder.path()).await.unwrap()];
    let rounds = [Disturbance::Kill, Disturbance::Stop, Disturbance::Pause].map(|round| round(vec![0]));
    survive(servers, StreamKind::Uncompressed, &rounds).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_disturbed_servers_keep_every_entry_in_each_replica() {
    let folder = tempfile::tempdir().unwrap();
    let servers = NatsServer::start_cluster(folder.path(), 3).await.unwrap();
    let made = match std::env::var("REPLICA_STREAM").as_deref() {
        Ok("migrated") => StreamKind::Migrated,
        Ok("s2") => StreamKind::Compressed,
        Ok("none") | Err(_) => StreamKind::Uncompressed,
        Ok(other) => panic!("REPLICA_STREAM is {other}: expected none, migrated or s2"),
    };
    let rounds = match std::env::var("REPLICA_KILLS") {
        Ok(kills) => rounds(kills.parse().unwrap()),
        Err(_) => vec![
            Disturbance::Kill(vec![0]),
            Disturbance::Stop(vec![1]),
            Disturbance::Pause(vec![2]),
            Disturbance::Kill(vec![2, 0]),
            Disturbance::Pause(vec![0, 1]),
        ],
    };
    let stores: Vec<PathBuf> = servers.iter().map(NatsServer::store).collect();
    let stored = survive(servers, made, &rounds).await;
    for (replica, store) in stores.iter().enumerate() {
        let read = entries_of_replica(store, |_| ()).await.unwrap();
        check_same(&stored, &read).unwrap_or_else(|why| panic!("replica {}: {why}", replica + 1));
        println!(
            "replica {}: {} positions read from its own store, all as acknowledged",
            replica + 1,
            read.len()
        );
    }
    // The check itself detects missing entries.
    let without_last_block = |folder: &Path| fs::remove_file(blocks(folder).pop().unwrap()).unwrap();
    let damaged = entries_of_replica(&stores[0], without_last_block).await;
    damaged.and_then(|read| check_same(&stored, &read)).expect_err("the last block is missing");
}

/// Returns rounds that kill and pause each of three servers `times` times alone, and `times` times together
/// with another server.
fn rounds(times: usize) -> Vec<Disturbance> {
    let alone = (0..3 * times).map(|round| vec![round % 3]);
    let together = (0..(3 * times).div_ceil(2)).map(|round| vec![round % 3, (round + 1) % 3]);
    alone.chain(together).flat_map(|all| [Disturbance::Kill(all.clone()), Disturbance::Pause(all)]).collect()
}

fn settings(servers: &[NatsServer]) -> Settings {
    let urls = servers.iter().map(|server| server.url.clone()).collect();
    Settings::new(urls, "bbs-writer", "muster.inbox.bbs-writer")
}

/// Retries `attempt` until it succeeds, because a cluster must first elect its leaders.
async fn retry<T, E: std::fmt::Debug>(mut attempt: impl AsyncFnMut() -> Result<T, E>) -> T {
    let begin = Instant::now();
    loop {
        match attempt().await {
            Ok(done) => return done,
            Err(error) if begin.elapsed() > PATIENCE => panic!("{error:?}"),
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Creates the stream with Muster's own code. Returns the journal and its existing entries.
async fn journal(connection: &Connection, replicas: usize, made: StreamKind) -> (Journal, Vec<Stored>) {
    let wanted = StreamSettings { replicas, ..StreamSettings::default() };
    let stream = retry(async || JetStream::open(connection.clone(), &wanted).await).await;
    let journal = Journal::JetStream(stream);
    if made == StreamKind::Uncompressed {
        return (journal, Vec::new());
    }
    let context = async_nats::jetstream::new(connection.client().clone());
    let mut config = context.get_stream(STREAM).await.unwrap().cached_info().config.clone();
    config.compression = Some(Compression::S2);
    context.update_stream(config).await.unwrap();
    let mut ids = IdGenerator::new(u64::from(WRITERS));
    let entries = (1..=OLD_ENTRIES).map(|at| StoredEntry {
        position: Position(at),
        subject: Subject::Lrp(WRITERS).to_string(),
        entry: Some(EntryId(ids.next(Timestamp::from_millis(at)))),
        bytes: body(at),
    });
    let entries: Vec<StoredEntry> = entries.collect();
    let stored = entries.iter().map(stored).collect();
    journal.import(entries).await.unwrap();
    if made == StreamKind::Migrated {
        assert!(migrate::uncompress(connection).await.unwrap(), "it was compressed");
        assert!(!migrate::uncompress(connection).await.unwrap(), "it is already uncompressed");
    }
    (journal, stored)
}

/// Returns about 700 bytes that compress well, like real entries.
fn body(number: u64) -> Bytes {
    let words: Vec<String> = (0..60).map(|word| format!("word-{}", (number * 7 + word) % 13)).collect();
    Bytes::from(format!("{{\"n\":{number},\"words\":\"{}\"}}", words.join(" ")))
}

fn stored(entry: &StoredEntry) -> Stored {
    (entry.position, entry.entry.unwrap(), crc32c(&entry.bytes))
}

/// Follows the journal until the position that is sent on `end`.
fn follower(
    journal: &Journal,
    end: tokio::sync::watch::Receiver<Option<Position>>,
) -> JoinHandle<Vec<Stored>> {
    let mut follower = journal.follow(Position(0));
    tokio::spawn(async move {
        let mut entries: Vec<Stored> = Vec::new();
        while end.borrow().is_none_or(|end| follower.position() < end) {
            if let Ok(batch) = timeout(Duration::from_millis(200), follower.next_batch(500)).await {
                entries.extend(batch.unwrap().iter().map(stored));
            }
        }
        entries
    })
}

/// Disturbs servers while writers append and a follower follows. Compares the acknowledged entries
/// with the entries that the follower received. Waits until every server has all entries, kills all servers,
/// and returns every stored entry.
async fn survive(mut servers: Vec<NatsServer>, made: StreamKind, rounds: &[Disturbance]) -> Vec<Stored> {
    let connection = settings(&servers).connect().await.unwrap();
    let (journal, mut stored) = journal(&connection, servers.len(), made).await;
    let stop = Arc::new(AtomicBool::new(false));
    let (end, ends) = tokio::sync::watch::channel(None);
    let following = follower(&journal, ends);
    let writers: Vec<_> =
        (0..WRITERS).map(|shard| writer(journal.clone(), shard, body, Arc::clone(&stop))).collect();
    for (number, round) in (1..).zip(rounds) {
        sleep(Duration::from_millis(700)).await;
        disturb(&mut servers, round).await;
        let before = retry(async || journal.end().await).await;
        retry(async || {
            let now = journal.end().await?;
            let more = now.0 >= before.0 + BETWEEN;
            more.then_some(()).ok_or_else(|| absent(format!("no further entry after {before}")))
        })
        .await;
        println!("round {number}: {round:?}, the journal continues after {before}");
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        stored.extend(timeout(PATIENCE, writer).await.expect("the writers finish").unwrap());
    }
    stored.sort_unstable();
    let last = retry(async || journal.end().await).await;
    assert_eq!(stored.len() as u64, last.0, "every entry is stored once");
    end.send_replace(Some(last));
    let followed = timeout(PATIENCE, following).await.expect("the follower reaches the end").unwrap();
    check_same(&stored, &followed).unwrap();
    for server in &servers {
        retry(async || holds(server, last).await).await;
        check_log(server).unwrap();
    }
    for server in &mut servers {
        server.kill9().await.unwrap();
    }
    println!(
        "{made:?}: {} rounds with {} servers, {} entries acknowledged",
        rounds.len(),
        servers.len(),
        stored.len()
    );
    stored
}

/// Disturbs servers, and returns when they run again.
async fn disturb(servers: &mut [NatsServer], round: &Disturbance) {
    let (Disturbance::Kill(numbers) | Disturbance::Stop(numbers) | Disturbance::Pause(numbers)) = round;
    for number in numbers {
        let server = &mut servers[*number];
        match round {
            Disturbance::Kill(_) => server.kill9().await.unwrap(),
            Disturbance::Stop(_) => server.stop().await.unwrap(),
            Disturbance::Pause(_) => server.signal(Signal::STOP).unwrap(),
        }
    }
    if let Disturbance::Pause(_) = round {
        sleep(PAUSE).await;
        return numbers.iter().for_each(|number| servers[*number].signal(Signal::CONT).unwrap());
    }
    sleep(Duration::from_millis(300)).await;
    let ended = servers.iter_mut().enumerate().filter(|(number, _)| numbers.contains(number));
    join_all(ended.map(|(_, server)| restart(server))).await;
}

fn absent(what: String) -> JournalError {
    JournalError::Unavailable { what, source: None }
}

/// Restarts a server.
///
/// A clustered server occasionally comes back without the routine that maintains its copy of a stream, and
/// keeps reporting this fault of nats-server. A second restart fixes the fault, and an operator would restart
/// the server, too.
async fn restart(server: &mut NatsServer) {
    if let Err(sick) = server.restart().await {
        println!("restarting the server again: {sick}");
        server.kill9().await.unwrap();
        server.restart().await.unwrap();
    }
}

/// Returns an error if a server's own replica lacks a position up to `last`.
async fn holds(server: &NatsServer, last: Position) -> Result<(), JournalError> {
    let answer = monitor::get(&server.monitoring, "/jsz?accounts=true&streams=true").await;
    let answer = answer.map_err(|error| absent(error.to_string()))?;
    let state = &answer["account_details"][0]["stream_detail"][0]["state"];
    let all = state["last_seq"] == last.0 && state["messages"] == last.0;
    all.then_some(()).ok_or_else(|| absent(format!("{} of {last}: {state}", server.monitoring)))
}

/// Returns an error if a server logged that it could not read or write its own copy of the stream.
///
/// The other servers restore such a copy. Therefore the comparison at the end detects the fault only if
/// another server was killed before the copy was restored.
fn check_log(server: &NatsServer) -> Result<(), String> {
    let file = server.store().with_file_name("nats.log");
    let log = fs::read_to_string(file).unwrap();
    let signs = ["Error recreating stream", "ritical write error", "error reading compression"];
    match log.lines().find(|line| signs.iter().any(|sign| line.contains(sign))) {
        None => Ok(()),
        Some(line) => Err(format!("a server lost its own copy: {line}")),
    }
}

/// Compares entries position by position.
fn check_same(stored: &[Stored], read: &[Stored]) -> Result<(), String> {
    for (number, stored) in stored.iter().enumerate() {
        match read.get(number) {
            Some(read) if read == stored => {}
            other => return Err(format!("acknowledged {stored:?}, read {other:?}")),
        }
    }
    let more = read.len() - stored.len();
    if more == 0 { Ok(()) } else { Err(format!("{more} entries without an append")) }
}

fn blocks(store: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(messages(store)).unwrap().map(|file| file.unwrap().path());
    let mut blocks: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|end| end == "blk")).collect();
    blocks.sort_by_key(|path| path.file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap());
    blocks
}

/// Returns the folder of the stream's blocks in a server's store.
fn messages(store: &Path) -> PathBuf {
    store.join("jetstream/$G/streams").join(STREAM).join("msgs")
}

/// Reads every entry in the store of one server of a cluster.
///
/// A single server refuses to open a stream that has replicas. Therefore the blocks are copied into the store
/// of a new server. The stream of the new server has the same name, the same block format and one replica.
/// `damage` may change the new store first.
async fn entries_of_replica(store: &Path, damage: impl FnOnce(&Path)) -> Result<Vec<Stored>, String> {
    let folder: TempDir = tempfile::tempdir().unwrap();
    let mut alone = NatsServer::start(folder.path()).await.unwrap();
    let opened = settings(std::slice::from_ref(&alone)).connect().await.unwrap();
    drop(JetStream::open(opened, &StreamSettings::default()).await.unwrap());
    alone.stop().await.unwrap();
    let own = messages(&alone.store());
    fs::remove_dir_all(&own).unwrap();
    fs::create_dir(&own).unwrap();
    for block in blocks(store) {
        // Without the index files, the server reads every block at startup.
        fs::copy(&block, own.join(block.file_name().unwrap())).unwrap();
    }
    damage(&alone.store());
    alone.restart().await.unwrap();
    let connection = settings(std::slice::from_ref(&alone)).connect().await.unwrap();
    let journal =
        Journal::JetStream(JetStream::inspect(connection).await.map_err(|error| error.to_string())?);
    let end = journal.end().await.map_err(|error| error.to_string())?;
    let mut read: Vec<Stored> = Vec::new();
    while read.last().is_none_or(|last| last.0 < end) {
        let after = read.last().map(|last| last.0).unwrap_or_default();
        let page = journal.read(after, None, 1_000).await.map_err(|error| error.to_string())?;
        if page.is_empty() {
            break;
        }
        read.extend(page.iter().map(stored));
    }
    Ok(read)
}
