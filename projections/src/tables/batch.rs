//! Combined changes of several entries to the tables. A database writes them in one transaction.

use std::collections::BTreeMap;

use schemas::{Entry, Position, Timestamp};

use super::value::{Value, number, text};
use super::{EventRow, Row, Step, Steps, Table};

/// Point in the log: a position and the time of its last decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    pub position: Position,
    /// Time of the last decision. Never decreases from one moment to the next.
    pub at: Timestamp,
}

/// A row and the interval in which it is valid: from `from` inclusive to `to` exclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    pub row: Row,
    /// Moment of the entry that opened the row.
    pub from: Moment,
    /// Moment of the entry that ended the row. `None` if the row is current.
    pub to: Option<Moment>,
}

impl Moment {
    /// Returns the values of the two columns that store a moment.
    #[must_use]
    pub fn values(self) -> [Value; 2] {
        [number(self.position.0), Value::Time(self.at)]
    }
}

impl Interval {
    /// Returns a value for each column of a history table.
    #[must_use]
    pub fn values(&self) -> Vec<Value> {
        let to = self.to.map_or([Value::Null, Value::Null], Moment::values);
        self.row.values.iter().cloned().chain(self.from.values()).chain(to).collect()
    }
}

/// Changes of one row.
#[derive(Clone, Debug, Default)]
struct Changes {
    /// End of the row that existed before the batch. `None` if the row does not end in the batch.
    ends: Option<Moment>,
    intervals: Vec<Interval>,
}

/// Journal message that is not a valid entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedMessage {
    pub position: Position,
    pub subject: String,
    /// Reason why the message is not a valid entry.
    pub reason: String,
}

impl QuarantinedMessage {
    /// Returns a value for each column.
    #[must_use]
    pub fn values(&self) -> Vec<Value> {
        vec![number(self.position.0), text(&self.subject), text(&self.reason)]
    }
}

/// Combined changes of several entries. A row that opens and ends within the batch is written once, as an
/// ended row.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    changes: BTreeMap<(Table, Vec<Value>), Changes>,
    /// Events of the entries.
    pub events: Vec<EventRow>,
    /// Messages of the batch that are not valid entries.
    pub quarantined: Vec<QuarantinedMessage>,
    /// Moment of the last entry.
    pub end: Moment,
    /// Checksum of the entry at `end`.
    pub checksum: u64,
    rows: usize,
    bytes: usize,
}

impl Batch {
    /// Creates an empty batch after a moment.
    #[must_use]
    pub fn after(end: Moment) -> Self {
        Self { end, ..Self::default() }
    }

    /// Adds the changes of an entry. Times never decrease within the tables, regardless of the clock of the
    /// deciding BBS.
    pub fn add(&mut self, steps: Steps) {
        let Steps { position, at, steps, events } = steps;
        self.end = Moment { position, at: self.end.at.max(at.unwrap_or_default()) };
        for step in steps {
            self.add_step(step);
        }
        for event in events {
            self.count(&event.values);
            self.events.push(event);
        }
    }

    /// Adds a message that is not a valid entry.
    pub fn add_quarantined(&mut self, aside: QuarantinedMessage) {
        self.count(&aside.values());
        self.quarantined.push(aside);
    }

    /// Skips an entry that the database already has.
    pub fn skip(&mut self, position: Position, entry: &Entry) {
        let at = entry.decisions.iter().map(|decision| decision.at).max();
        self.end = Moment { position, at: self.end.at.max(at.unwrap_or_default()) };
    }

    /// Returns the number of rows to write.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the approximate size of the values, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    fn count(&mut self, values: &[Value]) {
        self.rows += 1;
        self.bytes += values.iter().map(value_bytes).sum::<usize>();
    }

    fn add_step(&mut self, step: Step) {
        let (name, ends, opens) = match step {
            Step::Open(row) => (row.name(), false, Some(row)),
            Step::Replace(row) | Step::Renew(row) => (row.name(), true, Some(row)),
            Step::Close(row) => (row.name(), true, None),
            Step::Clear(table, key) => ((table, key), true, None),
        };
        self.count(opens.as_ref().map_or(&name.1, |row| &row.values));
        let changes = self.changes.entry(name).or_default();
        if ends {
            // If a row ends several times in the batch, the first end counts.
            let to = changes.intervals.last_mut().map_or(&mut changes.ends, |last| &mut last.to);
            to.get_or_insert(self.end);
        }
        if let Some(row) = opens {
            changes.intervals.push(Interval { row, from: self.end, to: None });
        }
    }

    /// Returns the keys of a table's rows that existed before the batch and end in the batch. If the record
    /// was renewed or cleared, there may be no such row.
    pub fn ends(&self, table: Table) -> impl Iterator<Item = (&[Value], Moment)> {
        self.table_changes(table).filter_map(|(key, changes)| Some((key, changes.ends?)))
    }

    /// Returns the ended rows as parameters of a statement: the key, then the position and the time of the
    /// end.
    pub fn end_values(&self, table: Table) -> impl Iterator<Item = Vec<Value>> {
        self.ends(table).map(|(key, end)| key.iter().cloned().chain(end.values()).collect())
    }

    /// Returns the rows that open in a table.
    pub fn intervals(&self, table: Table) -> impl Iterator<Item = &Interval> {
        self.table_changes(table).flat_map(|(_, changes)| &changes.intervals)
    }

    fn table_changes(&self, table: Table) -> impl Iterator<Item = (&[Value], &Changes)> {
        let all = self.changes.range((table, vec![])..);
        let of = all.take_while(move |((of, _), _)| *of == table);
        of.map(|((_, key), changes)| (key.as_slice(), changes))
    }

    /// Returns `true` if only the position has to be written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.events.is_empty() && self.quarantined.is_empty()
    }
}

/// Returns the size of a value including its text, in bytes.
fn value_bytes(value: &Value) -> usize {
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
    fn row_within_batch_is_written_once_as_ended() {
        let mut batch = Batch::after(Moment::default());
        batch.add(steps(3, vec![Step::Open(row(1))]));
        assert_eq!(written(&batch), (vec![], vec![(3, None)]));
        batch.add(steps(5, vec![Step::Replace(row(2))]));
        batch.add(steps(7, vec![Step::Close(row(2))]));
        batch.add(steps(9, vec![Step::Open(row(3))]));
        assert_eq!(written(&batch), (vec![], vec![(3, Some(5)), (5, Some(7)), (9, None)]));
        assert_eq!(batch.end, Moment { position: Position(9), at: Timestamp(90) });
    }

    #[test]
    fn existing_row_ends_once() {
        let mut batch = Batch::after(Moment::default());
        batch.add(steps(5, vec![Step::Replace(row(2))]));
        batch.add(steps(7, vec![Step::Close(row(2))]));
        assert_eq!(written(&batch), (vec![5], vec![(5, Some(7))]));
        let mut batch = Batch::after(batch.end);
        batch.add(steps(8, vec![]));
        assert!(batch.is_empty());
        batch.add(steps(9, vec![Step::Close(row(2))]));
        assert_eq!(written(&batch), (vec![9], vec![]));
        batch.add(steps(11, vec![Step::Open(row(2))]));
        assert_eq!(written(&batch), (vec![9], vec![(11, None)]));
    }

    #[test]
    fn renewed_row_ends_previous_one() {
        let mut batch = Batch::after(Moment::default());
        batch.add(steps(5, vec![Step::Renew(row(1))]));
        assert_eq!(written(&batch), (vec![5], vec![(5, None)]));
        batch.add(steps(7, vec![Step::Renew(row(2))]));
        assert_eq!(written(&batch), (vec![5], vec![(5, Some(7)), (7, None)]));
        let mut batch = Batch::after(batch.end);
        batch.add(steps(8, vec![Step::Close(row(2))]));
        batch.add(steps(9, vec![Step::Renew(row(3))]));
        assert_eq!(written(&batch), (vec![8], vec![(9, None)]));
        batch.add(steps(10, vec![Step::Clear(Table::Domains, row(3).key().to_vec())]));
        assert_eq!(written(&batch), (vec![8], vec![(9, Some(10))]));
    }

    #[test]
    fn rows_and_bytes_are_counted() {
        let mut batch = Batch::after(Moment::default());
        let values = |bytes| vec![Value::Json("x".repeat(bytes)), Value::Null];
        let event = EventRow { position: Position(3), nth: 0, values: values(1_000) };
        batch.add(Steps { events: vec![event], ..steps(3, vec![Step::Open(row(1)), Step::Close(row(1))]) });
        assert_eq!(batch.rows(), 3);
        let before = batch.bytes();
        assert!((1_000..1_500).contains(&before), "{before}");
        batch.add_quarantined(QuarantinedMessage {
            position: Position(4),
            subject: "s".into(),
            reason: "y".repeat(2_000),
        });
        assert_eq!((batch.rows(), batch.quarantined.len()), (4, 1));
        assert!((2_000..2_500).contains(&(batch.bytes() - before)), "{}", batch.bytes());
    }
}
