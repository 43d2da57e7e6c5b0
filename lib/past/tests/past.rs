//! The past is what a replay from the beginning gives, whatever is in the log and whatever became of the ladder.

#[expect(dead_code, reason = "it is shared with the tests of the World, which need all of it")]
#[path = "../../../projections/tests/fold/log.rs"]
mod log;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use journal::{Append, Journal, Memory};
use past::{Error, Past, Then, limits};
use projections::reader::{Read, nothing};
use projections::{Reader, World};
use proptest::prelude::*;
use schemas::names::{EntryId, Ids};
use schemas::query::MalformedEntries;
use schemas::{Entry, Position, Subject, Timestamp};
use tokio::runtime::Runtime;

/// What is put into a log that no BBS wrote.
#[derive(Clone, Copy, Debug)]
enum Spoil {
    /// No entry at all.
    Garbage,
    /// An entry of which a bit is flipped.
    Damaged,
    /// An entry that was written before, once more.
    Again,
    /// An entry where it doesn't belong.
    Stray,
}

fn spoils() -> impl Strategy<Value = Vec<(prop::sample::Index, Spoil)>> {
    let spoil =
        prop_oneof![Just(Spoil::Garbage), Just(Spoil::Damaged), Just(Spoil::Again), Just(Spoil::Stray)];
    prop::collection::vec((any::<prop::sample::Index>(), spoil), 0..12)
}

fn subject_of(entry: &Entry) -> Subject {
    entry.decisions[0].aggregate.subject(2)
}

/// The messages of a log, with what no BBS wrote in between.
fn messages(entries: &[(Position, Entry)], spoils: &[(prop::sample::Index, Spoil)]) -> Vec<(Subject, Bytes)> {
    let written = |entry: &Entry| (subject_of(entry), Bytes::from(entry.encode()));
    let mut all: Vec<(Subject, Bytes)> = entries.iter().map(|(_, entry)| written(entry)).collect();
    for (place, spoil) in spoils {
        // Behind the entry that founds the cluster.
        let at = 1 + place.index(all.len());
        let (subject, bytes) = all[place.index(at)].clone();
        let message = match spoil {
            Spoil::Garbage => (subject, Bytes::from_static(b"garbage")),
            Spoil::Damaged => {
                let mut flipped = bytes.to_vec();
                let last = flipped.len() - 1;
                flipped[last / 2] ^= 1;
                (subject, flipped.into())
            }
            Spoil::Again => (subject, bytes),
            Spoil::Stray => (Subject::Cell(fixtures::cell_id("nowhere")), bytes),
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
    let mut ids = Ids::new(seed);
    for (subject, bytes) in messages {
        let expected =
            journal.last(subject).await.expect("it works").map_or(Position(0), |last| last.position);
        let entry = EntryId(ids.next(Timestamp(1)));
        let append = Append { subject: subject.clone(), expected, entry, bytes: bytes.clone() };
        journal.append(append).await.expect("it works");
    }
}

/// What was true at each position, and set aside up to there; and when what counts there was decided.
struct Replay {
    at: Vec<(World, MalformedEntries)>,
    decided: Vec<Option<Timestamp>>,
}

impl Replay {
    fn of(messages: &[(Subject, Bytes)]) -> Self {
        let (mut world, mut reader) = (World::new(), Reader::default());
        let mut replay = Self { at: vec![], decided: vec![] };
        for (position, (subject, bytes)) in (1..).zip(messages) {
            let entry = match reader.read(Position(position), &subject.to_string(), bytes).expect("it works")
            {
                Read::Entry(entry) => entry,
                Read::SetAside(_) => nothing(),
            };
            world.fold(Position(position), &entry);
            replay.at.push((world.clone(), reader.set_aside().clone()));
            replay.decided.push(entry.decisions.iter().map(|decision| decision.at).max());
        }
        replay
    }

    fn end(&self) -> Position {
        Position(self.at.len() as u64)
    }

    fn at(&self, position: u64) -> &(World, MalformedEntries) {
        &self.at[usize::try_from(position).expect("it works") - 1]
    }

    /// The position before the first entry that was decided later, as the words say it.
    fn position_of(&self, time: Timestamp) -> Position {
        let later = self.decided.iter().position(|at| at.is_some_and(|at| at > time));
        Position(later.unwrap_or(self.decided.len()) as u64)
    }
}

async fn build(past: &Past, end: Position) {
    while past.build_next(end).await.expect("it works") {}
}

async fn check(past: &Past, replay: &Replay, positions: impl Iterator<Item = u64>) {
    for position in positions {
        let then = past.at(Position(position)).await.expect("it works");
        let (world, set_aside) = replay.at(position);
        assert_eq!(then.world(), world, "position {position}");
        assert_eq!(then.set_aside(), set_aside, "position {position}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_position_and_every_time_is_what_a_replay_gives(
        groups in log::groups(),
        spoils in spoils(),
        spacing in 1..24_u64,
        order in any::<u64>(),
    ) {
        let messages = messages(&log::write(&groups).entries, &spoils);
        let replay = Replay::of(&messages);
        Runtime::new().unwrap().block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let past = Past::open_spaced(folder.path(), journal_of(&messages).await, spacing).await.unwrap();
            build(&past, replay.end()).await;
            // In an order in which neighbours don't follow each other, so that not each is folded from the one before.
            let end = replay.end().0;
            let positions: BTreeSet<u64> = (1..=end).map(|n| 1 + (n * 7_919 + order % end) % end).collect();
            check(&past, &replay, positions.into_iter()).await;
            check(&past, &replay, (1..=end).rev()).await;
            let times: BTreeSet<Timestamp> = replay.decided.iter().flatten().copied().collect();
            for time in times.iter().flat_map(|at| [*at, at.next()]) {
                assert_eq!(past.position_of(time).await.unwrap(), replay.position_of(time), "{time}");
            }
            let verified = past.verify().await.unwrap();
            assert_eq!((verified.equal as u64, verified.wrong), (end / spacing, vec![]));
        });
    }
}

/// A log of a little of everything, with something in it that is no entry.
fn some_messages() -> Vec<(Subject, Bytes)> {
    use log::{Ask, OfProcess};
    let desire = |process| Ask::Process(process, OfProcess::Desire { domain: 0, instances: 3, size: 1 });
    let scale = |instances| Ask::Process(0, OfProcess::Scale { instances });
    let mut groups = vec![vec![desire(0)], vec![desire(1)]];
    groups.extend((0..40).map(|n| vec![scale(n % 4), Ask::Wait { seconds: 20 }]));
    let mut all: Vec<_> = log::write(&groups)
        .entries
        .iter()
        .map(|(_, entry)| (subject_of(entry), Bytes::from(entry.encode())))
        .collect();
    all.insert(9, (Subject::Lrp(0), Bytes::from_static(b"garbage")));
    all
}

fn rungs(folder: &Path) -> Vec<PathBuf> {
    let of_cluster =
        fs::read_dir(folder).expect("it works").next().expect("it works").expect("it works").path();
    let mut all: Vec<PathBuf> =
        fs::read_dir(of_cluster).expect("it works").map(|file| file.expect("it works").path()).collect();
    all.sort();
    all
}

#[tokio::test]
async fn what_is_damaged_is_deleted_and_counted_and_never_believed() {
    let messages = some_messages();
    let replay = Replay::of(&messages);
    let (folder, journal) = (tempfile::tempdir().unwrap(), journal_of(&messages).await);
    let past = Past::open_spaced(folder.path(), journal.clone(), 8).await.unwrap();
    build(&past, replay.end()).await;
    let files = rungs(folder.path());
    assert!(files.len() >= 5, "{files:?}");
    // Each in another place: the magic, the version, the cluster, the position, the reader, the World; and cut off.
    for (file, at) in files.iter().zip([0, 9, 20, 33, 90, 400]) {
        let mut bytes = fs::read(file).unwrap();
        let at = at.min(bytes.len() - 1);
        bytes[at] ^= 4;
        fs::write(file, bytes).unwrap();
    }
    check(&past, &replay, 1..=replay.end().0).await;
    assert!(past.standing().spoiled >= 5, "{:?}", past.standing());
    build(&past, replay.end()).await;
    assert_eq!(past.verify().await.unwrap().wrong, []);
    // Cut off, emptied, or of another position; found when the folder is opened again or when it is read.
    let files = rungs(folder.path());
    fs::write(&files[0], b"").unwrap();
    let bytes = fs::read(&files[1]).unwrap();
    fs::write(&files[1], &bytes[..bytes.len() - 1]).unwrap();
    fs::copy(&files[3], &files[2]).unwrap();
    let past = Past::open_spaced(folder.path(), journal, 8).await.unwrap();
    assert_eq!(past.standing().spoiled, 2);
    check(&past, &replay, (1..=replay.end().0).rev()).await;
    assert_eq!(past.standing().spoiled, 3);
}

#[tokio::test]
async fn the_cache_may_be_deleted_at_any_moment() {
    let messages = some_messages();
    let replay = Replay::of(&messages);
    let folder = tempfile::tempdir().unwrap();
    let past = Past::open_spaced(folder.path(), journal_of(&messages).await, 4).await.unwrap();
    build(&past, replay.end()).await;
    for entry in fs::read_dir(folder.path()).unwrap() {
        fs::remove_dir_all(entry.unwrap().path()).unwrap();
    }
    check(&past, &replay, (1..=replay.end().0).rev()).await;
    assert_eq!(past.standing().spoiled, 0, "what was deleted is not damaged");
    build(&past, replay.end()).await;
    let verified = past.verify().await.unwrap();
    assert_eq!((verified.equal as u64, verified.wrong), (replay.end().0 / 4, vec![]));
}

#[tokio::test]
async fn a_rung_of_another_history_of_the_same_cluster_is_not_believed() {
    let messages = some_messages();
    let folder = tempfile::tempdir().unwrap();
    let past = Past::open_spaced(folder.path(), journal_of(&messages).await, 8).await.unwrap();
    build(&past, Position(messages.len() as u64)).await;
    // A backup was restored, and something else was written behind it.
    let mut other = messages[..20].to_vec();
    let mut tail = messages[20..].to_vec();
    tail.remove(2);
    other.extend(tail);
    let replay = Replay::of(&other);
    let past = Past::open_spaced(folder.path(), journal_of(&other).await, 8).await.unwrap();
    check(&past, &replay, (1..=replay.end().0).rev()).await;
    assert!(past.standing().spoiled > 0);
    // One that ends before a rung has no such rung.
    let short = &messages[..12];
    let past = Past::open_spaced(folder.path(), journal_of(short).await, 8).await.unwrap();
    assert_eq!((past.standing().rungs, past.standing().highest), (1, Position(8)));
}

#[tokio::test]
async fn the_spacing_doubles_as_the_log_grows() {
    let messages = some_messages();
    let garbage = vec![(Subject::Lrp(1), Bytes::from_static(b"x")); usize::try_from(limits::RUNGS).unwrap()];
    let (folder, journal) = (tempfile::tempdir().unwrap(), journal_of(&messages).await);
    let past = Past::open_spaced(folder.path(), journal.clone(), 1).await.unwrap();
    build(&past, Position(messages.len() as u64)).await;
    assert_eq!((past.standing().rungs, past.standing().spacing), (messages.len(), 1));
    append(&journal, &garbage, 2).await;
    let end = journal.end().await.unwrap();
    build(&past, end).await;
    let standing = past.standing();
    assert_eq!((standing.rungs as u64, standing.spacing, standing.spoiled), (end.0 / 2, 2, 0));
    assert_eq!(rungs(folder.path()).len(), standing.rungs);
    assert_eq!(past.verify().await.unwrap().wrong, []);
}

#[tokio::test]
async fn who_starts_goes_on_from_the_end_of_the_log_as_it_was_lately() {
    let mut messages = some_messages();
    messages.truncate(20);
    let garbage = vec![(Subject::Lrp(1), Bytes::from_static(b"x")); 40];
    let (folder, journal) = (tempfile::tempdir().unwrap(), journal_of(&messages).await);
    let past = Past::open_spaced(folder.path(), journal.clone(), 16).await.unwrap();
    assert!(past.newest().await.unwrap().is_none());
    build(&past, Position(20)).await;
    assert_eq!(past.newest().await.unwrap().unwrap().position(), Position(16));
    past.build_last(Position(20)).await.unwrap();
    build(&past, Position(20)).await;
    let again = Past::open_spaced(folder.path(), journal.clone(), 16).await.unwrap();
    let newest = again.newest().await.unwrap().unwrap();
    assert_eq!((newest.position(), again.standing().rungs), (Position(20), 2));
    assert_eq!(newest, *again.at(Position(20)).await.unwrap());
    append(&journal, &garbage, 2).await;
    build(&again, Position(60)).await;
    again.build_last(Position(60)).await.unwrap();
    build(&again, Position(60)).await;
    let standing = again.standing();
    assert_eq!((standing.rungs, standing.highest, standing.spoiled), (4, Position(60), 0), "16, 32, 48, 60");
    assert_eq!(again.verify().await.unwrap().wrong, []);
}

#[tokio::test]
async fn who_stops_leaves_what_it_knows_to_the_next_start() {
    let messages = some_messages();
    let end = Position(messages.len() as u64);
    let (folder, journal) = (tempfile::tempdir().unwrap(), journal_of(&messages).await);
    let past = Past::open_spaced(folder.path(), journal.clone(), 16).await.unwrap();
    let there = past.at(end).await.unwrap();
    let (reader, world) = Then::clone(&there).into_parts();
    past.keep_last(reader.clone(), world.clone()).await.unwrap();
    let again = Past::open_spaced(folder.path(), journal, 16).await.unwrap();
    assert_eq!(again.newest().await.unwrap().as_ref(), Some(&*there), "as if it had been built");
    let made = rungs(folder.path());
    again.keep_last(reader, world).await.unwrap();
    assert_eq!(rungs(folder.path()), made, "it is there already");
}

#[tokio::test]
async fn what_is_not_in_the_log_is_refused_with_what_is() {
    let messages = some_messages();
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
    let early = told(past.position_of(Timestamp(7)).await.unwrap_err());
    assert!(early.starts_with("1970-01-01T00:00:00.000Z is before the first entry of the log"), "{early}");
    let late = Timestamp::from_millis(9 * log::START_MILLIS);
    assert_eq!(past.position_of(late).await.unwrap(), Position(end as u64));
    assert_eq!(past.world_at(Position(3)).await.unwrap(), Replay::of(&messages).at(3).0);
    let empty = Past::open(folder.path(), Journal::Memory(Memory::new())).await;
    assert!(matches!(empty, Err(Error::NotFounded)), "{empty:?}");
}
