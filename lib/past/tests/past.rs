//! Tests that the past equals a replay from the beginning, for any content of the log and any state of the
//! snapshot index.

#[expect(dead_code, reason = "the module is shared with the tests of the World")]
#[path = "../../../projections/tests/fold/log.rs"]
mod log;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use journal::{Append, Journal, Memory};
use past::{Error, Past, PastState, limits};
use projections::reader::{ReadMessage, empty_entry};
use projections::{Reader, World};
use proptest::prelude::*;
use schemas::names::{EntryId, IdGenerator};
use schemas::query::QuarantinedEntries;
use schemas::{Entry, Position, Subject, Timestamp};
use tokio::runtime::Runtime;

/// Message that is inserted into a log and that no BBS wrote.
#[derive(Clone, Copy, Debug)]
enum InvalidMessage {
    /// Bytes that are not an entry.
    Garbage,
    /// Entry with a flipped bit.
    Damaged,
    /// Copy of an earlier entry.
    Repeated,
    /// Entry on a wrong subject.
    Stray,
}

fn invalid_messages() -> impl Strategy<Value = Vec<(prop::sample::Index, InvalidMessage)>> {
    let spoil = prop_oneof![
        Just(InvalidMessage::Garbage),
        Just(InvalidMessage::Damaged),
        Just(InvalidMessage::Repeated),
        Just(InvalidMessage::Stray)
    ];
    prop::collection::vec((any::<prop::sample::Index>(), spoil), 0..12)
}

fn subject_of(entry: &Entry) -> Subject {
    entry.decisions[0].aggregate.subject(2)
}

/// Returns the messages of a log, with messages in between that no BBS wrote.
fn messages(
    entries: &[(Position, Entry)],
    spoils: &[(prop::sample::Index, InvalidMessage)],
) -> Vec<(Subject, Bytes)> {
    let written = |entry: &Entry| (subject_of(entry), Bytes::from(entry.encode()));
    let mut all: Vec<(Subject, Bytes)> = entries.iter().map(|(_, entry)| written(entry)).collect();
    for (place, spoil) in spoils {
        // Insert the message after the entry that founds the cluster.
        let at = 1 + place.index(all.len());
        let (subject, bytes) = all[place.index(at)].clone();
        let message = match spoil {
            InvalidMessage::Garbage => (subject, Bytes::from_static(b"garbage")),
            InvalidMessage::Damaged => {
                let mut flipped = bytes.to_vec();
                let last = flipped.len() - 1;
                flipped[last / 2] ^= 1;
                (subject, flipped.into())
            }
            InvalidMessage::Repeated => (subject, bytes),
            InvalidMessage::Stray => (Subject::Cell(fixtures::cell_id("nowhere")), bytes),
        };
        all.insert(at, message);
    }
    all
}

async fn journal_of(messages: &[(Subject, Bytes)]) -> Journal {
    let journal = Journal::Memory(Memory::new());
    append(&journal, messages, 1).await;
    journal
}

async fn append(journal: &Journal, messages: &[(Subject, Bytes)], seed: u64) {
    let mut ids = IdGenerator::new(seed);
    for (subject, bytes) in messages {
        let expected =
            journal.last(subject).await.expect("should succeed").map_or(Position(0), |last| last.position);
        let entry = EntryId(ids.next(Timestamp(1)));
        let append = Append { subject: subject.clone(), expected, entry, bytes: bytes.clone() };
        journal.append(append).await.expect("should succeed");
    }
}

/// World and malformed entries at each position, and the time at which each entry was decided.
struct ReplayedLog {
    at: Vec<(World, QuarantinedEntries)>,
    decided: Vec<Option<Timestamp>>,
}

impl ReplayedLog {
    fn new(messages: &[(Subject, Bytes)]) -> Self {
        let (mut world, mut reader) = (World::new(), Reader::default());
        let mut replay = Self { at: vec![], decided: vec![] };
        for (position, (subject, bytes)) in (1..).zip(messages) {
            let entry =
                match reader.read(Position(position), &subject.to_string(), bytes).expect("should succeed") {
                    ReadMessage::Entry(entry) => entry,
                    ReadMessage::Quarantined(_) => empty_entry(),
                };
            world.fold(Position(position), &entry);
            replay.at.push((world.clone(), reader.quarantined().clone()));
            replay.decided.push(entry.decisions.iter().map(|decision| decision.at).max());
        }
        replay
    }

    fn end(&self) -> Position {
        Position(self.at.len() as u64)
    }

    fn at(&self, position: u64) -> &(World, QuarantinedEntries) {
        &self.at[usize::try_from(position).expect("should succeed") - 1]
    }

    /// Returns the position before the first entry that was decided later than `time`, computed from the
    /// definition.
    fn position_at_time(&self, time: Timestamp) -> Position {
        let later = self.decided.iter().position(|at| at.is_some_and(|at| at > time));
        Position(later.unwrap_or(self.decided.len()) as u64)
    }
}

async fn build_all(past: &Past, end: Position) {
    while past.build_next(end).await.expect("should succeed") {}
}

async fn check(past: &Past, replay: &ReplayedLog, positions: impl Iterator<Item = u64>) {
    for position in positions {
        let then = past.at(Position(position)).await.expect("should succeed");
        let (world, quarantines) = replay.at(position);
        assert_eq!(then.world(), world, "position {position}");
        assert_eq!(then.quarantined_entries(), quarantines, "position {position}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_position_and_time_equals_replay(
        groups in log::groups(),
        spoils in invalid_messages(),
        spacing in 1..24_u64,
        order in any::<u64>(),
    ) {
        let messages = messages(&log::write(&groups).entries, &spoils);
        let replay = ReplayedLog::new(&messages);
        Runtime::new().unwrap().block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let past = Past::open_with_spacing(folder.path(), journal_of(&messages).await, spacing).await.unwrap();
            build_all(&past, replay.end()).await;
            // Check some positions in ascending order, so that a state can be folded from the previous one.
            // Then check all positions in descending order, so that no state can be folded from the previous
            // one.
            let end = replay.end().0;
            let positions: BTreeSet<u64> = (1..=end).map(|n| 1 + (n * 7_919 + order % end) % end).collect();
            check(&past, &replay, positions.into_iter()).await;
            check(&past, &replay, (1..=end).rev()).await;
            let times: BTreeSet<Timestamp> = replay.decided.iter().flatten().copied().collect();
            for time in times.iter().flat_map(|at| [*at, at.next()]) {
                assert_eq!(past.position_at_time(time).await.unwrap(), replay.position_at_time(time), "{time}");
            }
            let verified = past.verify().await.unwrap();
            assert_eq!((verified.equal as u64, verified.mismatched), (end / spacing, vec![]));
        });
    }
}

/// Returns a log with different kinds of entries and a message that is not an entry.
fn sample_messages() -> Vec<(Subject, Bytes)> {
    use log::{Action, ProcessAction};
    let desire =
        |process| Action::Process(process, ProcessAction::Desire { domain: 0, instances: 3, size: 1 });
    let scale = |instances| Action::Process(0, ProcessAction::Scale { instances });
    let mut groups = vec![vec![desire(0)], vec![desire(1)]];
    groups.extend((0..40).map(|n| vec![scale(n % 4), Action::Wait { seconds: 20 }]));
    let mut all: Vec<_> = log::write(&groups)
        .entries
        .iter()
        .map(|(_, entry)| (subject_of(entry), Bytes::from(entry.encode())))
        .collect();
    all.insert(9, (Subject::Lrp(0), Bytes::from_static(b"garbage")));
    all
}

fn snapshot_files(folder: &Path) -> Vec<PathBuf> {
    let of_cluster = fs::read_dir(folder)
        .expect("should succeed")
        .next()
        .expect("should succeed")
        .expect("should succeed")
        .path();
    let mut all: Vec<PathBuf> = fs::read_dir(of_cluster)
        .expect("should succeed")
        .map(|file| file.expect("should succeed").path())
        .collect();
    all.sort();
    all
}

#[tokio::test]
async fn damaged_snapshot_is_deleted_and_counted() {
    let messages = sample_messages();
    let replay = ReplayedLog::new(&messages);
    let (folder, journal) = (tempfile::tempdir().unwrap(), journal_of(&messages).await);
    let past = Past::open_with_spacing(folder.path(), journal.clone(), 8).await.unwrap();
    build_all(&past, replay.end()).await;
    let files = snapshot_files(folder.path());
    assert!(files.len() >= 5, "{files:?}");
    // Damage each file in another place: the magic, the version, the cluster, the position, the reader, the
    // World.
    for (file, at) in files.iter().zip([0, 9, 20, 33, 90, 400]) {
        let mut bytes = fs::read(file).unwrap();
        let at = at.min(bytes.len() - 1);
        bytes[at] ^= 4;
        fs::write(file, bytes).unwrap();
    }
    check(&past, &replay, 1..=replay.end().0).await;
    assert!(past.standing().spoiled >= 5, "{:?}", past.standing());
    build_all(&past, replay.end()).await;
    assert_eq!(past.verify().await.unwrap().mismatched, []);
    // When the folder is opened, an empty file and a file of another position are found. A truncated file is
    // found when it is read.
    let files = snapshot_files(folder.path());
    fs::write(&files[0], b"").unwrap();
    let bytes = fs::read(&files[1]).unwrap();
    fs::write(&files[1], &bytes[..bytes.len() - 1]).unwrap();
    fs::copy(&files[3], &files[2]).unwrap();
    let past = Past::open_with_spacing(folder.path(), journal, 8).await.unwrap();
    assert_eq!(past.standing().spoiled, 2);
    check(&past, &replay, (1..=replay.end().0).rev()).await;
    assert_eq!(past.standing().spoiled, 3);
}

#[tokio::test]
async fn deleted_cache_is_rebuilt() {
    let messages = sample_messages();
    let replay = ReplayedLog::new(&messages);
    let folder = tempfile::tempdir().unwrap();
    let past = Past::open_with_spacing(folder.path(), journal_of(&messages).await, 4).await.unwrap();
    build_all(&past, replay.end()).await;
    for entry in fs::read_dir(folder.path()).unwrap() {
        fs::remove_dir_all(entry.unwrap().path()).unwrap();
    }
    check(&past, &replay, (1..=replay.end().0).rev()).await;
    assert_eq!(past.standing().spoiled, 0, "a deleted snapshot is not a damaged one");
    build_all(&past, replay.end()).await;
    let verified = past.verify().await.unwrap();
    assert_eq!((verified.equal as u64, verified.mismatched), (replay.end().0 / 4, vec![]));
}

#[tokio::test]
async fn snapshot_of_another_history_is_discarded() {
    let messages = sample_messages();
    let folder = tempfile::tempdir().unwrap();
    let past = Past::open_with_spacing(folder.path(), journal_of(&messages).await, 8).await.unwrap();
    build_all(&past, Position(messages.len() as u64)).await;
    // A backup was restored, and other entries were written after it.
    let mut other = messages[..20].to_vec();
    let mut tail = messages[20..].to_vec();
    tail.remove(2);
    other.extend(tail);
    let replay = ReplayedLog::new(&other);
    let past = Past::open_with_spacing(folder.path(), journal_of(&other).await, 8).await.unwrap();
    check(&past, &replay, (1..=replay.end().0).rev()).await;
    assert!(past.standing().spoiled > 0);
    // A history that ends before the position of a snapshot does not have that snapshot.
    let short = &messages[..12];
    let past = Past::open_with_spacing(folder.path(), journal_of(short).await, 8).await.unwrap();
    assert_eq!((past.standing().rungs, past.standing().highest), (1, Position(8)));
}

#[tokio::test]
async fn spacing_doubles_as_log_grows() {
    let messages = sample_messages();
    let garbage =
        vec![(Subject::Lrp(1), Bytes::from_static(b"x")); usize::try_from(limits::MAX_SNAPSHOTS).unwrap()];
    let (folder, journal) = (tempfile::tempdir().unwrap(), journal_of(&messages).await);
    let past = Past::open_with_spacing(folder.path(), journal.clone(), 1).await.unwrap();
    build_all(&past, Position(messages.len() as u64)).await;
    assert_eq!((past.standing().rungs, past.standing().spacing), (messages.len(), 1));
    append(&journal, &garbage, 2).await;
    let end = journal.end().await.unwrap();
    build_all(&past, end).await;
    let standing = past.standing();
    assert_eq!((standing.rungs as u64, standing.spacing, standing.spoiled), (end.0 / 2, 2, 0));
    assert_eq!(snapshot_files(folder.path()).len(), standing.rungs);
    assert_eq!(past.verify().await.unwrap().mismatched, []);
}

#[tokio::test]
async fn final_snapshot_serves_the_next_start() {
    let mut messages = sample_messages();
    messages.truncate(20);
    let garbage = vec![(Subject::Lrp(1), Bytes::from_static(b"x")); 40];
    let (folder, journal) = (tempfile::tempdir().unwrap(), journal_of(&messages).await);
    let past = Past::open_with_spacing(folder.path(), journal.clone(), 16).await.unwrap();
    assert!(past.newest_snapshot().await.unwrap().is_none());
    build_all(&past, Position(20)).await;
    assert_eq!(past.newest_snapshot().await.unwrap().unwrap().position(), Position(16));
    past.build_final(Position(20)).await.unwrap();
    build_all(&past, Position(20)).await;
    let again = Past::open_with_spacing(folder.path(), journal.clone(), 16).await.unwrap();
    let newest = again.newest_snapshot().await.unwrap().unwrap();
    assert_eq!((newest.position(), again.standing().rungs), (Position(20), 2));
    assert_eq!(newest, *again.at(Position(20)).await.unwrap());
    append(&journal, &garbage, 2).await;
    build_all(&again, Position(60)).await;
    again.build_final(Position(60)).await.unwrap();
    build_all(&again, Position(60)).await;
    let standing = again.standing();
    assert_eq!((standing.rungs, standing.highest, standing.spoiled), (4, Position(60), 0), "16, 32, 48, 60");
    assert_eq!(again.verify().await.unwrap().mismatched, []);
}

#[tokio::test]
async fn stored_final_state_serves_the_next_start() {
    let messages = sample_messages();
    let end = Position(messages.len() as u64);
    let (folder, journal) = (tempfile::tempdir().unwrap(), journal_of(&messages).await);
    let past = Past::open_with_spacing(folder.path(), journal.clone(), 16).await.unwrap();
    let there = past.at(end).await.unwrap();
    let (reader, world) = PastState::clone(&there).into_parts();
    past.store_final(reader.clone(), world.clone()).await.unwrap();
    let again = Past::open_with_spacing(folder.path(), journal, 16).await.unwrap();
    assert_eq!(again.newest_snapshot().await.unwrap().as_ref(), Some(&*there), "it equals a built one");
    let made = snapshot_files(folder.path());
    again.store_final(reader, world).await.unwrap();
    assert_eq!(snapshot_files(folder.path()), made, "there is one already");
}

#[tokio::test]
async fn position_or_time_outside_the_log_is_refused_with_valid_range() {
    let messages = sample_messages();
    let end = messages.len();
    let folder = tempfile::tempdir().unwrap();
    let past = Past::open(folder.path(), journal_of(&messages).await).await.unwrap();
    let told = |error: Error| error.to_string();
    assert_eq!(
        told(past.at(Position(999)).await.unwrap_err()),
        format!("position 999 is beyond the end of the log: use 1 to {end}")
    );
    assert_eq!(
        told(past.at(Position(0)).await.unwrap_err()),
        format!("position 0 is before the first entry of the log: use 1 to {end}")
    );
    let early = told(past.position_at_time(Timestamp(7)).await.unwrap_err());
    assert!(early.starts_with("1970-01-01T00:00:00.000Z is before the first entry of the log"), "{early}");
    let late = Timestamp::from_millis(9 * log::START_MILLIS);
    assert_eq!(past.position_at_time(late).await.unwrap(), Position(end as u64));
    assert_eq!(past.world_at(Position(3)).await.unwrap(), ReplayedLog::new(&messages).at(3).0);
    let empty = Past::open(folder.path(), Journal::Memory(Memory::new())).await;
    assert!(matches!(empty, Err(Error::NotFounded)), "{empty:?}");
}
