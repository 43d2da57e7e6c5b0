//! What several entries do to the tables, as a database writes it at once.

use std::collections::BTreeMap;

use schemas::{Entry, Position, Timestamp};

use super::value::{Value, number, text};
use super::{EventRow, Row, Step, Steps, Table};

/// A moment of the log: a position, and when its last decision was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// The position.
    pub position: Position,
    /// When.
    pub at: Timestamp,
}

/// A row, and between which moments it held: from the first one on, and no more at the second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The row.
    pub row: Row,
    /// From when on.
    pub from: Moment,
    /// Until when; none: it holds still.
    pub to: Option<Moment>,
}

impl Moment {
    /// As it stands in two columns.
    #[must_use]
    pub fn values(self) -> [Value; 2] {
        [number(self.position.0), Value::Time(self.at)]
    }
}

impl Interval {
    /// A value for each column of a history.
    #[must_use]
    pub fn values(&self) -> Vec<Value> {
        let to = self.to.map_or([Value::Null, Value::Null], Moment::values);
        self.row.values.iter().cloned().chain(self.from.values()).chain(to).collect()
    }
}

/// What changes of one row.
#[derive(Clone, Debug, Default)]
struct Changes {
    /// When the row ends that was there before.
    ends: Option<Moment>,
    intervals: Vec<Interval>,
}

/// A message of the journal that is no entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// Where it stands.
    pub position: Position,
    /// On which subject.
    pub subject: String,
    /// Why it is none.
    pub why: String,
}

impl SetAside {
    /// A value for each of its columns.
    #[must_use]
    pub fn values(&self) -> Vec<Value> {
        vec![number(self.position.0), text(&self.subject), text(&self.why)]
    }
}

/// What several entries do. A row that comes and goes in between is written once, as the past that it is.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    changes: BTreeMap<(Table, Vec<Value>), Changes>,
    /// Their events.
    pub events: Vec<EventRow>,
    /// What among them is no entry.
    pub set_aside: Vec<SetAside>,
    /// Where the last of them stands.
    pub end: Moment,
    /// A checksum of the entry there.
    pub checksum: u64,
    rows: usize,
    bytes: usize,
}

impl Batch {
    /// What comes behind a moment.
    #[must_use]
    pub fn behind(end: Moment) -> Self {
        Self { end, ..Self::default() }
    }

    /// Takes in what an entry does. Times of the log go forward here, whoever decided.
    pub fn take(&mut self, steps: Steps) {
        let Steps { position, at, steps, events } = steps;
        self.end = Moment { position, at: self.end.at.max(at.unwrap_or_default()) };
        for step in steps {
            self.step(step);
        }
        for event in events {
            self.count(&event.values);
            self.events.push(event);
        }
    }

    /// Takes in what is no entry.
    pub fn put_aside(&mut self, aside: SetAside) {
        self.count(&aside.values());
        self.set_aside.push(aside);
    }

    /// Passes an entry that a database has already.
    pub fn pass(&mut self, position: Position, entry: &Entry) {
        let at = entry.decisions.iter().map(|decision| decision.at).max();
        self.end = Moment { position, at: self.end.at.max(at.unwrap_or_default()) };
    }

    /// How many rows it writes, all in all.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// How many bytes their values take, about.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    fn count(&mut self, values: &[Value]) {
        self.rows += 1;
        self.bytes += values.iter().map(size).sum::<usize>();
    }

    fn step(&mut self, step: Step) {
        let (name, ends, opens) = match step {
            Step::Open(row) => (row.name(), false, Some(row)),
            Step::Replace(row) | Step::Renew(row) => (row.name(), true, Some(row)),
            Step::Close(row) => (row.name(), true, None),
            Step::Clear(table, key) => ((table, key), true, None),
        };
        self.count(opens.as_ref().map_or(&name.1, |row| &row.values));
        let changes = self.changes.entry(name).or_default();
        if ends {
            // What has ended already, ends no later.
            let to = changes.intervals.last_mut().map_or(&mut changes.ends, |last| &mut last.to);
            to.get_or_insert(self.end);
        }
        if let Some(row) = opens {
            changes.intervals.push(Interval { row, from: self.end, to: None });
        }
    }

    /// The rows of a table that were there before and end, by their keys. Those of a record that was renewed or cleared may
    /// not have been there.
    pub fn ends(&self, table: Table) -> impl Iterator<Item = (&[Value], Moment)> {
        self.of(table).filter_map(|(key, changes)| Some((key, changes.ends?)))
    }

    /// The same as a database ends them: for each the key, and the position and the time at which it ends.
    pub fn end_values(&self, table: Table) -> impl Iterator<Item = Vec<Value>> {
        self.ends(table).map(|(key, end)| key.iter().cloned().chain(end.values()).collect())
    }

    /// The rows of a table that come.
    pub fn intervals(&self, table: Table) -> impl Iterator<Item = &Interval> {
        self.of(table).flat_map(|(_, changes)| &changes.intervals)
    }

    fn of(&self, table: Table) -> impl Iterator<Item = (&[Value], &Changes)> {
        let all = self.changes.range((table, vec![])..);
        let of = all.take_while(move |((of, _), _)| *of == table);
        of.map(|((_, key), changes)| (key.as_slice(), changes))
    }

    /// Whether there is nothing to be written but the position.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.events.is_empty() && self.set_aside.is_empty()
    }
}

/// Bytes that a value takes, with its text.
fn size(value: &Value) -> usize {
    size_of::<Value>() + value.as_text().map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(value: i64) -> Row {
        Row { table: Table::Domains, values: vec![Value::Text("d".into()), Value::Integer(value)] }
    }

    fn steps(position: u64, steps: Vec<Step>) -> Steps {
        Steps { position: Position(position), at: Some(Timestamp(position * 10)), steps, events: vec![] }
    }

    fn written(batch: &Batch) -> (Vec<u64>, Vec<(u64, Option<u64>)>) {
        let ends = batch.ends(Table::Domains).map(|(_, moment)| moment.position.0).collect();
        let of = batch.intervals(Table::Domains);
        (ends, of.map(|of| (of.from.position.0, of.to.map(|to| to.position.0))).collect())
    }

    #[test]
    fn what_comes_and_goes_between_is_written_once() {
        let mut batch = Batch::behind(Moment::default());
        batch.take(steps(3, vec![Step::Open(row(1))]));
        assert_eq!(written(&batch), (vec![], vec![(3, None)]));
        batch.take(steps(5, vec![Step::Replace(row(2))]));
        batch.take(steps(7, vec![Step::Close(row(2))]));
        batch.take(steps(9, vec![Step::Open(row(3))]));
        assert_eq!(written(&batch), (vec![], vec![(3, Some(5)), (5, Some(7)), (9, None)]));
        assert_eq!(batch.end, Moment { position: Position(9), at: Timestamp(90) });
    }

    #[test]
    fn what_was_there_ends() {
        let mut batch = Batch::behind(Moment::default());
        batch.take(steps(5, vec![Step::Replace(row(2))]));
        batch.take(steps(7, vec![Step::Close(row(2))]));
        assert_eq!(written(&batch), (vec![5], vec![(5, Some(7))]));
        let mut batch = Batch::behind(batch.end);
        batch.take(steps(8, vec![]));
        assert!(batch.is_empty());
        batch.take(steps(9, vec![Step::Close(row(2))]));
        assert_eq!(written(&batch), (vec![9], vec![]));
        batch.take(steps(11, vec![Step::Open(row(2))]));
        assert_eq!(written(&batch), (vec![9], vec![(11, None)]));
    }

    #[test]
    fn what_is_renewed_ends_what_may_be_there() {
        let mut batch = Batch::behind(Moment::default());
        batch.take(steps(5, vec![Step::Renew(row(1))]));
        assert_eq!(written(&batch), (vec![5], vec![(5, None)]));
        batch.take(steps(7, vec![Step::Renew(row(2))]));
        assert_eq!(written(&batch), (vec![5], vec![(5, Some(7)), (7, None)]));
        let mut batch = Batch::behind(batch.end);
        batch.take(steps(8, vec![Step::Close(row(2))]));
        batch.take(steps(9, vec![Step::Renew(row(3))]));
        assert_eq!(written(&batch), (vec![8], vec![(9, None)]));
        batch.take(steps(10, vec![Step::Clear(Table::Domains, row(3).key().to_vec())]));
        assert_eq!(written(&batch), (vec![8], vec![(9, Some(10))]));
    }

    #[test]
    fn whatever_is_written_is_counted() {
        let mut batch = Batch::behind(Moment::default());
        let values = |bytes| vec![Value::Json("x".repeat(bytes)), Value::Null];
        let event = EventRow { position: Position(3), nth: 0, values: values(1_000) };
        batch.take(Steps { events: vec![event], ..steps(3, vec![Step::Open(row(1)), Step::Close(row(1))]) });
        assert_eq!(batch.rows(), 3);
        let before = batch.bytes();
        assert!((1_000..1_500).contains(&before), "{before}");
        batch.put_aside(SetAside { position: Position(4), subject: "s".into(), why: "y".repeat(2_000) });
        assert_eq!((batch.rows(), batch.set_aside.len()), (4, 1));
        assert!((2_000..2_500).contains(&(batch.bytes() - before)), "{}", batch.bytes());
    }
}
