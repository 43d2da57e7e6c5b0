//! SQL tables of a projector: at every position they have the rows of the reference World, and they keep rows
//! that the World forgets later (docs/reference/sql-tables.md, "History").
//!
//! In some runs the log is folded into batches, which are written to tables in memory. The projector is
//! killed between two batches, and starts again. Then the tables are compared as of several positions.

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

/// Runs with tables, per thousand.
const SAMPLED: u64 = 400;
/// Number of compared positions.
const POSITIONS: u64 = 6;
/// Minimum number of batches of a log.
const BATCHES: u64 = 4;
/// Probability of a kill after a batch, in thousandths.
const KILLED: u64 = 60;
/// Maximum number of kills. After each one the projector reads the log from its start.
const KILLS: u32 = 2;

/// Name of a row.
type Key = (Table, Vec<Value>);

/// Log as every service reads it.
pub(super) type Entries = [(Position, Entry)];

/// Checks the tables of a log. Calls `saw` with the situations that were met.
pub(super) fn check(entries: &Entries, rng: &mut Rng, saw: &mut dyn FnMut(Situation)) -> Vec<Violation> {
    if !rng.chance(SAMPLED) {
        return vec![];
    }
    let wrong = project(entries, rng, saw).and_then(|database| compare(&database, entries, rng, saw));
    wrong.err().map(|how| Violation { invariant: I::TablesTrue, detail: how }).into_iter().collect()
}

/// Tables in memory: all rows of each key, in order.
#[derive(Default)]
struct Database {
    rows: BTreeMap<Key, Vec<Interval>>,
    /// Position of each event.
    events: Vec<(Position, u64)>,
    position: Position,
}

impl Database {
    /// Writes a batch and its position.
    fn write(&mut self, batch: &Batch) -> Result<(), String> {
        let begin = std::mem::replace(&mut self.position, batch.end.position);
        for table in Table::ALL {
            for (key, end) in batch.ends(table) {
                let known = self.rows.get_mut(&(table, key.to_vec())).and_then(|all| all.last_mut());
                match known.filter(|last| last.to.is_none()) {
                    Some(last) if last.from.position < end.position => last.to = Some(end),
                    Some(last) => return Err(format!("{last:?} ends at {}", end.position)),
                    // An ended and forgotten instance may end again, with or without a row.
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

    /// Inserts a row, unless it overlaps another row of its key.
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

    /// Returns the rows as of a position.
    fn at(&self, position: Position) -> BTreeMap<(Table, &[Value]), &Interval> {
        let holds =
            |one: &&Interval| one.from.position <= position && one.to.is_none_or(|to| position < to.position);
        let all = self.rows.values().flat_map(|all| all.iter().filter(holds));
        all.map(|one| (name(&one.row), one)).collect()
    }

    /// Returns the positions of rows about ended things.
    fn records(&self) -> Vec<Position> {
        let records = self.rows.iter().filter(|((table, _), _)| table.is_record());
        records.flat_map(|(_, all)| all.iter().map(|one| one.from.position)).collect()
    }
}

fn name(row: &Row) -> (Table, &[Value]) {
    (row.table, row.key())
}

/// Projects a log. After a kill the projector folds again up to its last batch.
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

/// Compares the tables as of several positions with a World.
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
    let mut looks = positions(database, entries, rng);
    let (mut world, mut shown) = (World::new(), EndedRows::default());
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

/// Draws positions: any, those of ended things, and the last.
fn positions(database: &Database, entries: &Entries, rng: &mut Rng) -> BTreeSet<Position> {
    let records = database.records();
    let mut looks: BTreeSet<Position> = entries.last().map(|(position, _)| *position).into_iter().collect();
    for nth in 0..POSITIONS {
        let anywhere = rng.place(entries.len()).map(|at| entries[at].0);
        let ended = rng.place(records.len()).map(|at| records[at]);
        looks.extend(if nth % 2 == 0 { anywhere } else { ended });
    }
    looks
}

/// Compares rows with the rows of a World. Rows about ended things may be additional.
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
    // A process without history has no rows of ended instances, not even at the position of the end.
    let wrong = others.into_values().find(|one| {
        let begins = one.from.position == position && one.row.table != Table::EndedInstances;
        begins || !one.row.table.is_record()
    });
    wrong.map_or(Ok(()), |one| Err(format!("{one:?} shouldn't be there")))
}

/// Checks that no container with a record has a row as ended. A container may come back with its cell.
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

/// Rows about ended things so far, which must stay.
#[derive(Default)]
struct EndedRows {
    records: BTreeSet<Key>,
    /// Current rows of the World.
    last: BTreeSet<Key>,
}

impl EndedRows {
    /// Removes containers that got a record again.
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
