//! Pins the bytes of snapshots together with their version. The test fails if a stored type or a rule of
//! folding changes without a new version. Without a new version, a program could start from a World (the
//! state folded from the log) that the program itself would have folded differently.
//!
//! Two inputs are folded. `golden/history.jsonl` is a history that the state machines produced once. The file
//! never changes. The other input consists of all pairs of golden events of the schemas, with all optional
//! fields.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use fixtures::pages::{WRITE_VARIABLE, may_write};
use projections::{Reader, World, snapshot};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use schemas::checksum::crc64;
use schemas::entry::{Aggregate, Event};
use schemas::names::{DecisionId, EvaluationId};
use schemas::{Entry, Position, Timestamp, evaluation};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Returns the length and checksum of bytes as text.
fn digest(bytes: &[u8]) -> String {
    format!("{} bytes, CRC-64 {:016x}", bytes.len(), crc64(&[bytes]))
}

#[test]
fn snapshot_bytes_match_pinned_version() {
    let history = history();
    let events = events();
    let mut text = format!("version {}\n", snapshot::VERSION);
    for (what, bytes) in [
        ("the World after the history", folded(&history).to_bytes()),
        ("its reader", read(&history).to_bytes()),
        ("the Worlds within the history", after_each(&history)),
        ("the Worlds of every two events", after_every_pair(&events)),
    ] {
        writeln!(text, "{what}: {}", digest(&bytes)).unwrap();
    }
    let pinned = std::fs::read_to_string(path("snapshot.txt")).unwrap_or_default();
    let first = |text: &str| text.lines().next().map(str::to_owned);
    if text != pinned && first(&text) != first(&pinned) && may_write() {
        return std::fs::write(path("snapshot.txt"), text).unwrap();
    }
    assert_eq!(
        text, pinned,
        "the bytes of a snapshot, or the folded World, have changed: raise snapshot::VERSION and write \
         the golden file again with {WRITE_VARIABLE}=1"
    );
}

/// Returns a history that the state machines produced: one log that reaches every state of every aggregate,
/// continued by a random log.
fn history() -> Vec<Entry> {
    let path = path("history.jsonl");
    if !path.exists() && may_write() {
        let mut log = crate::rows::full_log();
        let mut runner = TestRunner::deterministic();
        for _ in 0..8 {
            let groups = crate::log::groups().new_tree(&mut runner).expect("a tree").current();
            groups.iter().for_each(|group| log.group(group));
        }
        let lines: Vec<Vec<u8>> = log.entries.iter().map(|(_, entry)| entry.encode()).collect();
        std::fs::write(&path, lines.join(&b'\n')).expect("the file can be written");
    }
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|_| panic!("{path:?} is missing: write it with {WRITE_VARIABLE}=1"));
    text.lines().map(|line| Entry::decode(line.as_bytes()).expect("an old entry stays readable")).collect()
}

fn positions(entries: &[Entry]) -> impl Iterator<Item = (Position, &Entry)> {
    (1..).map(Position).zip(entries)
}

fn folded(entries: &[Entry]) -> World {
    let mut world = World::new();
    positions(entries).for_each(|(position, entry)| drop(world.fold(position, entry)));
    world
}

fn read(entries: &[Entry]) -> Reader {
    let (mut reader, world) = (Reader::default(), folded(entries));
    for (position, entry) in positions(entries) {
        let subject = entry.decisions[0].aggregate.subject(world.shards()).to_string();
        reader.read(position, &subject, &entry.encode()).expect("a readable entry");
    }
    // Add a message that is not a valid entry and is therefore quarantined.
    let behind = Position(reader.ends().len() as u64 + entries.len() as u64);
    reader.read(behind, "muster.event.cluster", b"garbage").expect("a quarantined message is not an error");
    reader
}

/// Returns the checksum of the World after each entry.
fn after_each(entries: &[Entry]) -> Vec<u8> {
    let mut world = World::new();
    let mut sums = vec![];
    for (position, entry) in positions(entries) {
        world.fold(position, entry);
        sums.extend(crc64(&[&world.to_bytes()]).to_le_bytes());
    }
    sums
}

/// Returns every golden event of the schemas by its name, each in its own entry.
fn events() -> BTreeMap<String, Entry> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/golden");
    let files =
        std::fs::read_dir(folder).expect("the file exists").map(|file| file.expect("the file exists").path());
    let events = files.filter_map(|path| {
        let name = path.file_name()?.to_str()?.strip_suffix(".json")?.to_owned();
        // Other files are schemas.
        name.contains('.').then(|| {
            (name, Entry::decode(&std::fs::read(&path).expect("the file exists")).expect("a golden entry"))
        })
    });
    events.collect()
}

/// Events that set up the state for the other golden events, in causal order.
const SETUP_EVENTS: [&str; 13] = [
    "cluster.founded.v1",
    "cell.appeared.v1",
    "domain.refreshed.v1",
    "desired.desired.v1",
    "desired.definition_added.v1",
    "actual.created.v1",
    "actual.claimed.v1",
    "actual.started.v1",
    "evaluation.created.v1",
    "task.desired.v1",
    "periodic.desired.v1",
    "parameterised.desired.v1",
    "parameterised.dispatched.v1",
];

/// Returns the checksum of the World after every pair of events.
fn after_every_pair(events: &BTreeMap<String, Entry>) -> Vec<u8> {
    let mut world = World::new();
    SETUP_EVENTS.iter().for_each(|name| fold_next(&mut world, &events[*name]));
    let mut sums = vec![];
    for first in events.values() {
        let mut world = world.clone();
        fold_next(&mut world, first);
        for second in events.values() {
            let mut world = world.clone();
            fold_next(&mut world, second);
            sums.extend(crc64(&[&world.to_bytes()]).to_le_bytes());
        }
    }
    sums
}

/// Folds an event as the next entry. An event of an evaluation is folded for the process and for the task. A
/// created evaluation gets the id that the other golden events refer to.
fn fold_next(world: &mut World, entry: &Entry) {
    let position = Position(world.position().0 + 1);
    let mut entry = entry.clone();
    let mut decision = entry.decisions.remove(0);
    decision.version = position.0;
    decision.at = Timestamp(decision.at.0 + position.0 * 1_000_000_000);
    if let Event::Evaluation(evaluation::Event::Created { number, previous: Some(known), .. }) =
        &decision.events[0]
    {
        decision.id = DecisionId(EvaluationId::from_decision(DecisionId(known.0), *number).0);
    }
    if let (Event::Evaluation(_), Aggregate::Process { domain, epoch, .. }) =
        (&decision.events[0], &decision.aggregate)
    {
        let (guid, domain, epoch) = (fixtures::task_guid("job"), domain.clone(), *epoch);
        let of_task =
            schemas::Decision { aggregate: Aggregate::Task { guid, domain, epoch }, ..decision.clone() };
        entry.decisions.push(of_task);
    }
    entry.decisions.push(decision);
    world.fold(position, &entry);
}
