//! Tests of the embedded journal. The journal belongs to one process. Acknowledged entries survive the end of
//! that process.
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use journal::Journal;
use journal::{Append, AppendError, JournalError, Sqlite, StoredEntry};
use schemas::names::{EntryId, IdGenerator};
use schemas::{Position, Subject, Timestamp};

/// Environment variable with the folder of the child process.
const FOLDER: &str = "MUSTER_TEST_FOLDER";

async fn open(folder: &Path) -> Journal {
    Journal::Sqlite(Sqlite::open(folder).await.unwrap())
}

/// Appends to eight shards until killed, and prints each acknowledged entry. The next test runs this function
/// as a separate process.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the next test runs and kills it"]
async fn the_writer_that_is_killed() {
    let folder = std::env::var(FOLDER).unwrap();
    let journal = open(Path::new(&folder)).await;
    let start = journal.end().await.unwrap();
    let writers = (0..8_u16).map(|shard| {
        let journal = journal.clone();
        tokio::spawn(async move {
            let mut ids = IdGenerator::new(u64::from(shard) + start.0 * 8);
            let subject = Subject::Lrp(shard);
            let mut expected =
                journal.last(&subject).await.unwrap().map(|last| last.position).unwrap_or_default();
            loop {
                let entry = EntryId(ids.next(Timestamp::from_millis(1)));
                let append =
                    Append { subject: subject.clone(), expected, entry, bytes: vec![b'x'; 300].into() };
                expected = journal.append(append).await.unwrap();
                println!("acknowledged {expected} {entry}");
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    futures::future::join_all(writers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_entries_survive_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for round in 1..=5_usize {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_writer_that_is_killed", "--ignored", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let told = lines.map(Result::unwrap).filter_map(|line| {
            let (_, told) = line.split_once("acknowledged ")?;
            let (position, entry) = told.split_once(' ')?;
            Some((Position(position.parse().ok()?), entry.trim().parse::<EntryId>().ok()?))
        });
        for (n, told) in told.enumerate() {
            acknowledged.push(told);
            if n == 150 * round {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();

        let journal = open(folder.path()).await;
        let end = journal.end().await.unwrap();
        let (mut follower, mut entries) = (journal.follow(Position(0)), Vec::new());
        while follower.position() < end {
            entries.extend(follower.next_batch(1_000).await.unwrap());
        }
        for (position, entry) in &acknowledged {
            let stored = &entries[usize::try_from(position.0).unwrap() - 1];
            assert_eq!((stored.position, stored.entry), (*position, Some(*entry)));
        }
        println!("round {round}: {} acknowledged, {end} stored", acknowledged.len());
        journal.close().await;
    }
}

#[tokio::test]
async fn folder_is_locked_by_one_journal_and_keeps_entries() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path()).await;
    let entry = EntryId(IdGenerator::new(1).next(Timestamp::from_millis(1)));
    let append = Append { subject: Subject::Cluster, expected: Position(0), entry, bytes: "one".into() };
    assert_eq!(journal.append(append.clone()).await.unwrap(), Position(1));
    let second = Sqlite::open(folder.path()).await.unwrap_err().to_string();
    assert!(second.contains("is in use by process"), "{second}");
    journal.close().await;

    let journal = open(folder.path()).await;
    assert_eq!(journal.end().await.unwrap(), Position(1));
    assert_eq!(journal.append(append).await.unwrap(), Position(1), "the append is idempotent");
    assert_eq!(journal.last(&Subject::Cluster).await.unwrap().unwrap().entry, Some(entry));
}

#[tokio::test]
async fn file_of_other_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("journal.db"), "not a database, but long enough to have a header")
        .unwrap();
    let error = Sqlite::open(folder.path()).await.unwrap_err();
    assert!(error.to_string().contains("journal.db"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_journal_follows_writer_and_refuses_appends() {
    let folder = tempfile::tempdir().unwrap();
    let why = Sqlite::open_read_only(folder.path()).await.unwrap_err().to_string();
    assert!(why.contains("does not exist"), "{why}");
    let writes = open(folder.path()).await;
    let mut ids = IdGenerator::new(7);
    let mut append = |expected| Append {
        subject: Subject::Lrp(0),
        expected: Position(expected),
        entry: EntryId(ids.next(Timestamp::from_millis(1))),
        bytes: vec![b'x'; 30].into(),
    };
    writes.append(append(0)).await.unwrap();
    let reads = Journal::Sqlite(Sqlite::open_read_only(folder.path()).await.unwrap());
    assert_eq!(reads.end().await.unwrap(), Position(1));
    let mut follower = reads.follow(Position(0));
    assert_eq!(follower.next_batch(10).await.unwrap().len(), 1);
    writes.append(append(1)).await.unwrap();
    let later = follower.next_batch(10).await.unwrap();
    assert_eq!(later[0].position, Position(2));
    let refused = reads.append(append(2)).await.unwrap_err();
    assert!(matches!(refused, AppendError::Refused(_)), "{refused}");
    reads.close().await;
    assert!(matches!(follower.next_batch(1).await.unwrap_err(), JournalError::Closed));
    // A folder that no process holds can also be read.
    writes.close().await;
    let reads = Journal::Sqlite(Sqlite::open_read_only(folder.path()).await.unwrap());
    assert_eq!(reads.read(Position(0), None, 10).await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_rows_are_returned_only_for_inspection() {
    use sqlx::{Connection, SqliteConnection};
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path()).await;
    let mut ids = IdGenerator::new(3);
    let mut of = |position: u64| StoredEntry {
        position: Position(position),
        subject: Subject::Cluster.to_string(),
        entry: Some(EntryId(ids.next(Timestamp::from_millis(position)))),
        bytes: "{}".into(),
    };
    let log: Vec<StoredEntry> = (1..=3).map(&mut of).collect();
    journal.import(log.clone()).await.unwrap();
    journal.close().await;
    let url = format!("sqlite:{}", folder.path().join(journal::FILE).display());
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    for sql in [
        "UPDATE entry SET id = x'010203' WHERE position = 2",
        "UPDATE entry SET subject = CAST(x'ff' AS TEXT) WHERE position = 3",
    ] {
        sqlx::query(sql).execute(&mut connection).await.unwrap();
    }
    let strict = Journal::Sqlite(Sqlite::open_read_only(folder.path()).await.unwrap());
    for after in [1, 2] {
        let error = strict.read(Position(after), None, 1).await.unwrap_err();
        assert!(matches!(error, JournalError::Damaged(_)), "{error:?}");
    }
    let lenient = Journal::Sqlite(Sqlite::inspect(folder.path()).await.unwrap());
    let seen = lenient.read(Position(0), None, 10).await.unwrap();
    assert_eq!(seen[0], log[0]);
    assert_eq!(seen[1], StoredEntry { entry: None, ..log[1].clone() });
    assert_eq!(seen[2], StoredEntry { subject: "\u{fffd}".into(), ..log[2].clone() });
}
