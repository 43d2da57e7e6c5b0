//! The tables of a database, as a projector keeps them: at every position they show what a World shows that was folded up
//! to there from the start, and they keep what such a World forgets later (docs/reference/sql-tables.md, "History").
//!
//! The log is folded into batches, as large as the backlog may be, and each is written to a database in memory, which
//! knows no rule, as SQL knows none. The projector is killed between two batches, and begins again. Then
//! positions are drawn. That is done in some runs only, by their seeds.

use std::collections::{BTreeMap, BTreeSet};

use machines::process::Slot;
use projections::World;
use projections::tables::{self, Batch, Interval, Row, Table, Tables, Value};
use schemas::entry::Event;
use schemas::subject::Position;
use schemas::{Entry, actual, evacuating};

use crate::coverage::Situation;
use crate::invariants::{Invariant as I, Violation};
use crate::rng::Rng;

/// So many runs of a thousand have tables: they take time.
const SAMPLED: u64 = 400;
/// At so many positions a run's tables are compared.
const POSITIONS: u64 = 6;
/// As many batches as a backlog of a run may be at least.
const BATCHES: u64 = 4;
/// So many times in a thousand a projector is killed after a batch.
const KILLED: u64 = 60;
/// So often a projector is killed at most: each time it reads the log from its start.
const KILLS: u32 = 2;

/// Names a row.
type Key = (Table, Vec<Value>);

/// The log, as a reader reads it.
pub(super) type Entries = [(Position, Entry)];

/// What is wrong with the tables of a log, and what was met.
pub(super) fn check(entries: &Entries, rng: &mut Rng, saw: &mut dyn FnMut(Situation)) -> Vec<Violation> {
    if !rng.chance(SAMPLED) {
        return vec![];
    }
    let wrong = project(entries, rng, saw).and_then(|database| compare(&database, entries, rng, saw));
    wrong.err().map(|how| Violation { invariant: I::TablesTrue, detail: how }).into_iter().collect()
}

/// Tables in memory: every row that ever was, of each key in the order in which they came.
#[derive(Default)]
struct Database {
    rows: BTreeMap<Key, Vec<Interval>>,
    /// Where each event stands.
    events: Vec<(Position, u64)>,
    position: Position,
}

impl Database {
    /// Writes a batch and the position up to which it goes: both, or nothing.
    fn write(&mut self, batch: &Batch) -> Result<(), String> {
        let begin = std::mem::replace(&mut self.position, batch.end.position);
        for table in Table::ALL {
            for (key, end) in batch.ends(table) {
                let known = self.rows.get_mut(&(table, key.to_vec())).and_then(|all| all.last_mut());
                match known.filter(|last| last.to.is_none()) {
                    Some(last) if last.from.position < end.position => last.to = Some(end),
                    Some(last) => return Err(format!("{last:?} ends at {}", end.position)),
                    // What had ended, and was forgotten, ends once more: its row may be there or not.
                    None if table == Table::EndedInstances => {}
                    None => {
                        return Err(format!("{table:?} {key:?} ends at {}, and isn't there", end.position));
                    }
                }
            }
            for interval in batch.intervals(table) {
                self.insert(interval, begin)?;
            }
        }
        self.events.extend(batch.events.iter().map(|event| (event.position, event.nth)));
        Ok(())
    }

    /// What a unique index refuses, and what no reader could make sense of.
    fn insert(&mut self, interval: &Interval, begin: Position) -> Result<(), String> {
        let of = self.rows.entry(interval.row.name()).or_default();
        let ended = of.last().is_none_or(|last| last.to.is_some_and(|to| to <= interval.from));
        let forward = interval.to.is_none_or(|to| to.position > interval.from.position);
        let within = (begin.0 + 1..=self.position.0).contains(&interval.from.position.0);
        if !(ended && forward && within) {
            return Err(format!(
                "in a batch from {begin} to {}, {interval:?} is beside {of:?}",
                self.position
            ));
        }
        of.push(interval.clone());
        Ok(())
    }

    /// What holds at a position.
    fn at(&self, position: Position) -> BTreeMap<(Table, &[Value]), &Interval> {
        let holds =
            |one: &&Interval| one.from.position <= position && one.to.is_none_or(|to| position < to.position);
        let all = self.rows.values().flat_map(|all| all.iter().filter(holds));
        all.map(|one| (name(&one.row), one)).collect()
    }

    /// Where rows begin that tell how something ended.
    fn records(&self) -> Vec<Position> {
        let records = self.rows.iter().filter(|((table, _), _)| table.is_record());
        records.flat_map(|(_, all)| all.iter().map(|one| one.from.position)).collect()
    }
}

fn name(row: &Row) -> (Table, &[Value]) {
    (row.table, row.key())
}

/// Follows the log as a projector does. One that is killed begins where its last batch ended: up to there it only folds.
fn project(entries: &Entries, rng: &mut Rng, saw: &mut dyn FnMut(Situation)) -> Result<Database, String> {
    let mut database = Database::default();
    let most = (entries.len() as u64 / BATCHES).max(1);
    let (mut kills, mut done) = (0, 0);
    while done < entries.len() {
        let mut projector = Tables::default();
        let mut batch = fold(&mut projector, Batch::default(), &entries[..done]);
        loop {
            let next = entries.len().min(done + 1 + usize::try_from(rng.below(most)).unwrap_or(0));
            let begins = Batch::after(batch.end);
            batch = fold(&mut projector, begins, &entries[done..next]);
            database.write(&batch)?;
            done = next;
            if done == entries.len() {
                return Ok(database);
            }
            if kills < KILLS && rng.chance(KILLED) {
                kills += 1;
                saw(Situation::ProjectorKilled);
                break;
            }
        }
    }
    Ok(database)
}

fn fold(projector: &mut Tables, mut batch: Batch, entries: &Entries) -> Batch {
    for (position, entry) in entries {
        batch.add(projector.fold(*position, entry));
    }
    batch
}

/// Compares the tables as of some positions with a World that is folded from the start.
fn compare(
    database: &Database,
    entries: &Entries,
    rng: &mut Rng,
    saw: &mut dyn FnMut(Situation),
) -> Result<(), String> {
    let events = entries.iter().flat_map(|(position, entry)| {
        let count = entry.decisions.iter().map(|decision| decision.events.len() as u64).sum();
        (0..count).map(|nth| (*position, nth))
    });
    if !events.eq(database.events.iter().copied()) {
        return Err("the events are not those of the log, each once and in order".into());
    }
    let mut looks = looks(database, entries, rng);
    let (mut world, mut shown) = (World::new(), Shown::default());
    for (position, entry) in entries {
        shown.returned(entry);
        world.fold(*position, entry);
        if looks.remove(position) {
            let held = database.at(*position);
            let expected = tables::rows(&world);
            same(&held, &expected, *position)
                .and_then(|()| shown.stays(&held, expected))
                .and_then(|()| ended_no_more(&held, &world))
                .map_err(|how| format!("as of {position}, {how}"))?;
            if held.values().any(|one| !shown.last.contains(&one.row.name())) {
                saw(Situation::TablesRemember);
            }
        }
    }
    Ok(())
}

/// At which positions is looked: anywhere, where something ended, and at the end.
fn looks(database: &Database, entries: &Entries, rng: &mut Rng) -> BTreeSet<Position> {
    let records = database.records();
    let mut looks: BTreeSet<Position> = entries.last().map(|(position, _)| *position).into_iter().collect();
    for nth in 0..POSITIONS {
        let anywhere = rng.place(entries.len()).map(|at| entries[at].0);
        let ended = rng.place(records.len()).map(|at| records[at]);
        looks.extend(if nth % 2 == 0 { anywhere } else { ended });
    }
    looks
}

/// The rows that a World shows are held, each as it shows it; and nothing else is, but what tells how something ended.
fn same(
    held: &BTreeMap<(Table, &[Value]), &Interval>,
    expected: &[Row],
    position: Position,
) -> Result<(), String> {
    let mut others = held.clone();
    for row in expected {
        match others.remove(&name(row)) {
            Some(one) if one.row == *row => {}
            Some(one) => return Err(format!("{:?} should be {row:?}", one.row)),
            None => return Err(format!("{row:?} is missing")),
        }
    }
    // A process that keeps no history shows nothing of what ended, not even at once.
    let wrong = others.into_values().find(|one| {
        let begins = one.from.position == position && one.row.table != Table::EndedInstances;
        begins || !one.row.table.is_record()
    });
    wrong.map_or(Ok(()), |one| Err(format!("{one:?} shouldn't be there")))
}

/// What runs, or is to, is not told of as ended: a container may come back with its cell.
fn ended_no_more(held: &BTreeMap<(Table, &[Value]), &Interval>, world: &World) -> Result<(), String> {
    let slots = world.processes_from(None).flat_map(|process| process.slots.iter());
    for by in slots.flat_map(Slot::holders) {
        let key = [Value::Text(by.instance_guid.to_string())];
        if held.contains_key(&(Table::EndedInstances, key.as_slice())) {
            return Err(format!("{by:?} is there again, and shown as ended"));
        }
    }
    Ok(())
}

/// What was shown before: what tells how something ended stays.
#[derive(Default)]
struct Shown {
    records: BTreeSet<Key>,
    /// What the World shows now.
    last: BTreeSet<Key>,
}

impl Shown {
    /// A container that a record names again has not ended.
    fn returned(&mut self, entry: &Entry) {
        for event in entry.decisions.iter().flat_map(|decision| &decision.events) {
            if let Event::Actual(actual::Event::Claimed { by, .. } | actual::Event::Started { by, .. })
            | Event::Evacuating(evacuating::Event::Set { by, .. }) = event
            {
                let guid = Value::Text(by.instance_guid.to_string());
                self.records.remove(&(Table::EndedInstances, vec![guid]));
            }
        }
    }

    fn stays(
        &mut self,
        held: &BTreeMap<(Table, &[Value]), &Interval>,
        expected: Vec<Row>,
    ) -> Result<(), String> {
        self.last = expected.iter().map(Row::name).collect();
        self.records.extend(expected.iter().filter(|row| row.table.is_record()).map(Row::name));
        let lost = self.records.iter().find(|(table, key)| !held.contains_key(&(*table, key.as_slice())));
        lost.map_or(Ok(()), |(table, key)| Err(format!("{table:?} {key:?} was there, and is gone")))
    }
}
