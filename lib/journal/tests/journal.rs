//! Tests that every implementation of the journal must pass.
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bus::nats::Settings;
use bytes::Bytes;
use journal::Journal;
use journal::{
    Append, AppendError, Durability, ImportError, JetStream, JournalError, Memory, Sqlite, StoredEntry,
    StreamSettings,
};
use schemas::limits::{ENTRY_BYTES, PAGE_BYTES};
use schemas::names::{CellId, Domain, EntryId, IdGenerator};
use schemas::{Position, Subject, Timestamp};
use support::server::NatsServer;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(60);

/// A journal, and the resources that must live as long as the journal.
struct Bench {
    name: &'static str,
    journal: Journal,
    _servers: Vec<NatsServer>,
    _folder: TempDir,
}

async fn benches() -> Vec<Bench> {
    let folder = || tempfile::tempdir().unwrap();
    let mut benches = Vec::new();
    let mut bench = |name, journal, folder, servers| {
        benches.push(Bench { name, journal, _servers: servers, _folder: folder });
    };
    bench("memory", Journal::Memory(Memory::new()), folder(), Vec::new());
    let place = folder();
    bench("SQLite", Journal::Sqlite(Sqlite::open(place.path()).await.unwrap()), place, Vec::new());
    let place = folder();
    let server = NatsServer::start(place.path()).await.unwrap();
    bench("JetStream", open(&server, 1).await, place, vec![server]);
    let place = folder();
    let servers = NatsServer::start_cluster(place.path(), 3).await.unwrap();
    bench("JetStream on three", open(&servers[0], 3).await, place, servers);
    benches
}

fn settings(server: &NatsServer) -> Settings {
    Settings::new(vec![server.url.clone()], "bbs-writer", "muster.inbox.bbs-writer")
}

async fn open(server: &NatsServer, replicas: usize) -> Journal {
    let wanted =
        StreamSettings { replicas, monitoring: vec![server.monitoring.clone()], ..StreamSettings::default() };
    // A cluster that has just started may still be electing the leader that creates streams.
    let started = Instant::now();
    loop {
        let connection = settings(server).connect().await.unwrap();
        match JetStream::open(connection, &wanted).await {
            Ok(journal) => return Journal::JetStream(journal),
            Err(error) if started.elapsed() > PATIENCE => panic!("{error:?}"),
            Err(_) => sleep(Duration::from_millis(200)).await,
        }
    }
}

fn ids(seed: u64) -> impl FnMut() -> EntryId {
    let mut ids = IdGenerator::new(seed);
    move || EntryId(ids.next(Timestamp::from_millis(1)))
}

fn entry(subject: &Subject, expected: Position, entry: EntryId, text: &str) -> Append {
    Append { subject: subject.clone(), expected, entry, bytes: Bytes::from(text.to_owned()) }
}

/// Repeats an append until its outcome is known.
async fn append_until_known(journal: &Journal, append: Append) -> Result<Position, AppendError> {
    let started = Instant::now();
    loop {
        match journal.append(append.clone()).await {
            Err(AppendError::Unknown(error)) => {
                assert!(started.elapsed() < PATIENCE, "{error:?}");
                sleep(Duration::from_millis(20)).await;
            }
            known => return known,
        }
    }
}

/// Returns all entries up to a position as a follower receives them.
async fn follow_to(journal: &Journal, after: Position, end: Position, max: usize) -> Vec<StoredEntry> {
    let mut follower = journal.follow(after);
    let mut entries = Vec::new();
    while follower.position() < end {
        let batch = timeout(PATIENCE, follower.next_batch(max)).await.expect("entries arrive").unwrap();
        assert!(!batch.is_empty() && batch.len() <= max);
        entries.extend(batch);
    }
    entries
}

fn assert_unbroken(name: &str, after: Position, entries: &[StoredEntry]) {
    for (n, entry) in entries.iter().enumerate() {
        assert_eq!(entry.position.0, after.0 + n as u64 + 1, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn append_succeeds_only_at_expected_position() {
    for Bench { name, journal, _servers, _folder } in benches().await {
        let mut id = ids(1);
        let (a, b) = (Subject::Lrp(0), Subject::Cell(CellId::new("c1").unwrap()));
        assert_eq!(journal.end().await.unwrap(), Position(0), "{name}");
        assert_eq!(journal.last(&a).await.unwrap(), None, "{name}");
        let first = entry(&a, Position(0), id(), "one");
        assert_eq!(append_until_known(&journal, first.clone()).await.unwrap(), Position(1), "{name}");
        assert_eq!(
            append_until_known(&journal, entry(&b, Position(0), id(), "two")).await.unwrap(),
            Position(2),
            "{name}"
        );

        let conflict = |result: Result<Position, AppendError>| {
            assert!(matches!(result, Err(AppendError::Conflict)), "{name}: {result:?}");
        };
        conflict(append_until_known(&journal, entry(&a, Position(0), id(), "must not exist")).await);
        conflict(append_until_known(&journal, entry(&b, Position(1), id(), "another subject's")).await);
        conflict(append_until_known(&journal, entry(&a, Position(9), id(), "not yet")).await);
        let third = entry(&a, Position(1), id(), "three");
        assert_eq!(append_until_known(&journal, third.clone()).await.unwrap(), Position(3), "{name}");
        conflict(append_until_known(&journal, entry(&a, Position(1), id(), "stale")).await);

        let expected = StoredEntry {
            position: Position(3),
            subject: "muster.event.lrp.0".into(),
            entry: Some(third.entry),
            bytes: "three".into(),
        };
        assert_eq!(journal.last(&a).await.unwrap(), Some(expected), "{name}");
        assert_eq!(journal.end().await.unwrap(), Position(3), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_append_stores_entry_once() {
    for Bench { name, journal, _servers, _folder } in benches().await {
        let mut id = ids(2);
        let subject = Subject::Task(7);
        let first = entry(&subject, Position(0), id(), "one");
        let second = entry(&subject, Position(1), id(), "two");
        // After the timeout, the caller does not know the outcome.
        drop(timeout(Duration::from_micros(50), journal.append(first.clone())).await);
        for _ in 0..3 {
            assert_eq!(append_until_known(&journal, first.clone()).await.unwrap(), Position(1), "{name}");
        }
        assert_eq!(append_until_known(&journal, second.clone()).await.unwrap(), Position(2), "{name}");
        for _ in 0..3 {
            assert_eq!(append_until_known(&journal, second.clone()).await.unwrap(), Position(2), "{name}");
        }
        // The entry is stored, and another entry already follows it. The repeated append is still no
        // conflict.
        assert_eq!(append_until_known(&journal, first.clone()).await.unwrap(), Position(1), "{name}");
        assert_eq!(journal.end().await.unwrap(), Position(2), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_writers_never_win_the_same_position() {
    const EACH: usize = 150;
    for Bench { name, journal, _servers, _folder } in benches().await {
        let writers = [10, 11].map(|seed| {
            let journal = journal.clone();
            tokio::spawn(async move {
                let (mut id, subject, mut won, mut conflicts) = (ids(seed), Subject::Cluster, Vec::new(), 0);
                let mut last = Position(0);
                while won.len() < EACH {
                    match append_until_known(
                        &journal,
                        entry(&subject, last, id(), &format!("{seed}:{}", won.len())),
                    )
                    .await
                    {
                        Ok(position) => {
                            assert!(position > last);
                            last = position;
                            won.push(position);
                        }
                        Err(AppendError::Conflict) => {
                            conflicts += 1;
                            let seen = journal.last(&subject).await.unwrap();
                            last = seen.map(|entry| entry.position).unwrap_or_default();
                        }
                        Err(
                            error @ (AppendError::Unknown(_)
                            | AppendError::NotStored(_)
                            | AppendError::Refused(_)),
                        ) => {
                            panic!("{error:?}")
                        }
                    }
                }
                (won, conflicts)
            })
        });
        let (mut all, mut conflicts) = (BTreeSet::new(), 0);
        for writer in writers {
            let (won, lost) = writer.await.unwrap();
            conflicts += lost;
            for position in won {
                assert!(all.insert(position), "{name}: {position} was won twice");
            }
        }
        println!("{name}: {conflicts} conflicts for {} entries", 2 * EACH);
        assert_eq!(journal.end().await.unwrap(), Position(2 * EACH as u64), "{name}");
        let entries = follow_to(&journal, Position(0), Position(2 * EACH as u64), 64).await;
        assert_unbroken(name, Position(0), &entries);
        assert_eq!(
            entries.iter().map(|entry| entry.entry).collect::<BTreeSet<_>>().len(),
            2 * EACH,
            "{name}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_followers_receive_all_entries_in_order() {
    const ENTRIES: u64 = 2_000;
    for Bench { name, journal, _servers, _folder } in benches().await {
        let reader = journal.clone();
        let slow = tokio::spawn(async move {
            let (mut follower, mut entries) = (reader.follow(Position(0)), Vec::new());
            while entries.len() < usize::try_from(ENTRIES).unwrap() {
                entries.extend(timeout(PATIENCE, follower.next_batch(97)).await.unwrap().unwrap());
                sleep(Duration::from_millis(2)).await;
            }
            entries
        });
        let writers = (0..8).map(|shard| {
            let (journal, mut id) = (journal.clone(), ids(100 + u64::from(shard)));
            tokio::spawn(async move {
                let (subject, mut last) = (Subject::Lrp(shard), Position(0));
                for n in 0..ENTRIES / 8 {
                    last = append_until_known(&journal, entry(&subject, last, id(), &n.to_string()))
                        .await
                        .unwrap();
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        let all = slow.await.unwrap();
        assert_unbroken(name, Position(0), &all);
        assert_eq!(journal.end().await.unwrap(), Position(ENTRIES), "{name}");
        let middle = follow_to(&journal, Position(777), Position(ENTRIES), 1_000).await;
        assert_eq!(middle, all[777..], "{name}");

        let mut waiting = journal.follow(Position(ENTRIES));
        assert!(timeout(Duration::from_millis(100), waiting.next_batch(9)).await.is_err(), "{name}");
        let append = entry(&Subject::Cluster, Position(0), ids(5)(), "late");
        let position = append_until_known(&journal, append).await.unwrap();
        let late = timeout(PATIENCE, waiting.next_batch(9)).await.unwrap().unwrap();
        assert_eq!(late.iter().map(|entry| entry.position).collect::<Vec<_>>(), [position], "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn read_returns_pages() {
    for Bench { name, journal, _servers, _folder } in benches().await {
        let (mut id, mut lasts) = (ids(3), [Position(0); 2]);
        let subjects = [Subject::Domain(Domain::new("apps").unwrap()), Subject::Task(1)];
        for n in 0..20_usize {
            let text = "x".repeat(PAGE_BYTES / 8);
            let append = entry(&subjects[n % 2], lasts[n % 2], id(), &text);
            lasts[n % 2] = append_until_known(&journal, append).await.unwrap();
        }
        let positions =
            |entries: Vec<StoredEntry>| entries.iter().map(|entry| entry.position.0).collect::<Vec<_>>();
        let read = async |after, subject, limit| {
            positions(journal.read(Position(after), subject, limit).await.unwrap())
        };
        assert_eq!(read(0, None, 3).await, [1, 2, 3], "{name}");
        assert_eq!(read(17, None, 100).await, [18, 19, 20], "{name}");
        assert_eq!(read(20, None, 100).await, [0; 0], "{name}");
        assert_eq!(read(1_000, None, 100).await, [0; 0], "{name}: beyond the end");
        assert_eq!(read(1_000, Some(&subjects[0]), 100).await, [0; 0], "{name}: beyond the end");
        assert_eq!(read(0, None, 0).await, [0; 0], "{name}");
        assert_eq!(read(1, Some(&subjects[0]), 3).await, [3, 5, 7], "{name}");
        assert_eq!(read(0, Some(&Subject::Lrp(0)), 3).await, [0; 0], "{name}");
        let page = read(0, None, 100).await;
        assert!((8..20).contains(&page.len()), "{name}: {} entries on a page", page.len());
        assert_unbroken(name, Position(0), &journal.read(Position(0), None, 100).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entry_above_size_limit_is_refused() {
    for Bench { name, journal, _servers, _folder } in benches().await {
        let mut id = ids(4);
        let largest = entry(&Subject::Lrp(1), Position(0), id(), &"x".repeat(ENTRY_BYTES));
        assert_eq!(append_until_known(&journal, largest).await.unwrap(), Position(1), "{name}");
        let larger = entry(&Subject::Lrp(1), Position(1), id(), &"x".repeat(ENTRY_BYTES + 1));
        let refused = append_until_known(&journal, larger).await.unwrap_err();
        assert!(matches!(refused, AppendError::Refused(_)), "{name}: {refused:?}");
        assert_eq!(journal.end().await.unwrap(), Position(1), "{name}");
        assert_eq!(
            follow_to(&journal, Position(0), Position(1), 9).await[0].bytes.len(),
            ENTRY_BYTES,
            "{name}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_journal_returns_closed_and_position_beyond_end_is_damaged() {
    for Bench { name, journal, _servers, _folder } in benches().await {
        append_until_known(&journal, entry(&Subject::Cluster, Position(0), ids(6)(), "one")).await.unwrap();
        if name != "JetStream on three" && name != "JetStream" {
            let beyond = journal.follow(Position(9)).next_batch(1).await.unwrap_err();
            assert!(matches!(beyond, JournalError::Damaged(_)), "{name}: {beyond:?}");
        }
        let mut follower = journal.follow(Position(1));
        let waiting = tokio::spawn(async move { follower.next_batch(1).await });
        sleep(Duration::from_millis(50)).await;
        journal.clone().close().await;
        let ended = timeout(PATIENCE, waiting).await.expect(name).unwrap();
        assert!(matches!(ended, Err(JournalError::Closed)), "{name}: {ended:?}");
        assert!(matches!(journal.end().await, Err(JournalError::Closed)), "{name}");
        let late = journal.append(entry(&Subject::Cluster, Position(1), ids(7)(), "two")).await;
        assert!(matches!(late, Err(AppendError::Unknown(JournalError::Closed))), "{name}: {late:?}");
    }
}

#[tokio::test]
async fn durability_matches_journal_kind() {
    let told: Vec<_> = benches().await.iter().map(|bench| bench.journal.durability()).collect();
    assert_eq!(told, [Durability::Volatile, Durability::Synced, Durability::Synced, Durability::Synced]);
}

/// Returns a log with entries of Muster, and with messages of another program.
fn foreign_log() -> Vec<StoredEntry> {
    let mut next = ids(9);
    let (first, second) = (next(), next());
    let message = |position, subject: &str, entry, bytes: &[u8]| StoredEntry {
        position: Position(position),
        subject: subject.to_owned(),
        entry,
        bytes: Bytes::copy_from_slice(bytes),
    };
    vec![
        message(1, "muster.event.cluster", Some(first), b"{}"),
        message(2, "muster.event.cell.c1", Some(second), &vec![b'x'; 100_000]),
        message(3, "muster.event.nobody.knows", None, b"garbage"),
        message(4, "muster.event.cell.c1", None, &[0, 159, 146, 150]),
        message(5, "muster.event.cell.c1", Some(next()), b""),
    ]
}

async fn read_all(journal: &Journal) -> Vec<StoredEntry> {
    let (end, mut read) = (journal.end().await.unwrap(), Vec::new());
    let mut follower = journal.follow(Position(0));
    while follower.position() < end {
        read.extend(follower.next_batch(2).await.unwrap());
    }
    read
}

#[tokio::test(flavor = "multi_thread")]
async fn import_keeps_entries_unchanged() {
    let log = foreign_log();
    for bench in benches().await {
        let journal = &bench.journal;
        // The stream may not have a leader yet.
        let started = Instant::now();
        while let Err(error) = journal.import(log[..2].to_vec()).await {
            assert!(started.elapsed() < PATIENCE, "{}: {error}", bench.name);
            if journal.end().await.unwrap_or_default() == Position(2) {
                break;
            }
            sleep(Duration::from_millis(200)).await;
        }
        let again = journal.import(log[..2].to_vec()).await.unwrap_err();
        assert!(matches!(again, ImportError::NotNext { end: Position(2), .. }), "{}: {again}", bench.name);
        let gap = journal.import(log[3..].to_vec()).await.unwrap_err();
        assert!(matches!(gap, ImportError::NotNext { end: Position(2), .. }), "{}: {gap}", bench.name);
        let broken = [log[2].clone(), log[4].clone()].to_vec();
        assert!(journal.import(broken).await.is_err(), "{}", bench.name);
        journal.import(log[2..].to_vec()).await.unwrap();
        assert_eq!(read_all(journal).await, log, "{}", bench.name);
        // The journal accepts appends after the imported entries.
        let subject = Subject::Cell(CellId::new("c1").unwrap());
        let next = entry(&subject, Position(5), ids(10)(), "next");
        assert_eq!(append_until_known(journal, next).await.unwrap(), Position(6), "{}", bench.name);
        let behind = entry(&subject, Position(4), ids(11)(), "behind");
        assert!(
            matches!(append_until_known(journal, behind).await, Err(AppendError::Conflict)),
            "{}",
            bench.name
        );
    }
}
