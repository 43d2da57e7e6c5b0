//! The projected state (World) as tables: row-by-row changes of each entry.
//!
//! ```text
//!   entry ──▶ rows of touched records, before ──┐
//!         ──▶ world.fold                        ├──▶ steps: a row opens, is replaced, closes
//!         ──▶ rows of touched records, after  ──┘
//! ```
//!
//! A row has the contents of a query's row. The columns are defined in [`columns`]. Values from outside the
//! log, such as current freshness and heartbeats, have no column. Counts that SQL can compute, such as the
//! number of RUNNING instances, have no column either. A database stores each row with the positions between
//! which it is valid. So the database can show every past state, including records that the World forgets.

pub mod batch;
pub mod columns;
mod dialect;
pub mod events;
mod rows;
pub mod sql;
mod value;
pub mod views;

use std::collections::BTreeMap;

use schemas::{Entry, Position, Timestamp};

pub use self::batch::{Batch, Interval, Moment, QuarantinedMessage};
pub use self::columns::{ColumnSpec, Table};
pub use self::dialect::Dialect;
pub use self::events::EventRow;
use self::rows::Touched;
pub use self::value::{Kind, Value, micros, time};
use crate::world::World;

/// Row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub table: Table,
    /// A value for each column, the key first.
    pub values: Vec<Value>,
}

impl Row {
    /// Returns the key within the table.
    #[must_use]
    pub fn key(&self) -> &[Value] {
        &self.values[..self.table.key_columns()]
    }

    /// Returns the table and the key, which identify the row among the rows of all tables.
    #[must_use]
    pub fn name(&self) -> (Table, Vec<Value>) {
        (self.table, self.key().to_vec())
    }
}

/// Change of one row by an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The row is new.
    Open(Row),
    /// The row exists and gets other values.
    Replace(Row),
    /// The row ends. The given values are the row's last ones.
    Close(Row),
    /// The row is new. If the World has forgotten a row with the same key, the forgotten row ends.
    Renew(Row),
    /// A row with this key ends, if there is one. The World may have forgotten this row.
    Clear(Table, Vec<Value>),
}

/// Changes of an entry to the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// Position of the entry.
    pub position: Position,
    /// Time of the entry's latest decision. `None` if the entry has no decisions.
    pub at: Option<Timestamp>,
    /// Changes, at most one for each row.
    pub steps: Vec<Step>,
    /// Events of the entry.
    pub events: Vec<EventRow>,
}

/// Tables at a position. The rows can be computed from the World alone, except for rows that the World has
/// forgotten.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    world: World,
}

impl Tables {
    /// Returns the World that the tables show.
    #[must_use]
    pub const fn world(&self) -> &World {
        &self.world
    }

    /// Folds an entry and returns its changes. An entry at or below the World's position was folded already
    /// and changes nothing.
    pub fn fold(&mut self, position: Position, entry: &Entry) -> Steps {
        let at = entry.decisions.iter().map(|decision| decision.at).max();
        if position <= self.world.position() {
            return Steps { position, at, steps: vec![], events: vec![] };
        }
        let touched = Touched::from_entry(entry);
        let before = touched.rows(&self.world);
        let mut ended = rows::EndChanges::for_next_entry(&self.world, &touched);
        self.world.fold_with_history(position, entry, &mut |told| ended.take(told, position));
        let mut steps = diff(before, touched.rows(&self.world));
        steps.extend(ended.into_steps());
        Steps { position, at, steps, events: events::rows(position, entry) }
    }

    /// Folds an entry without computing its changes.
    pub fn fold_only(&mut self, position: Position, entry: &Entry) {
        drop(self.world.fold(position, entry));
    }

    /// Returns every row that can be computed from the World alone, in order of tables and keys. Rows that
    /// the World has forgotten are missing.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        rows(&self.world)
    }
}

/// Returns every row that a World shows, in order of tables and keys. The tables of a database also keep
/// forgotten rows.
#[must_use]
pub fn rows(world: &World) -> Vec<Row> {
    rows::all(world)
}

/// Returns the changes between the rows of the same records before and after an entry.
fn diff(before: Vec<Row>, after: Vec<Row>) -> Vec<Step> {
    let mut known: BTreeMap<_, Row> = before.into_iter().map(|row| (row.name(), row)).collect();
    let mut steps = vec![];
    for row in after {
        match known.remove(&row.name()) {
            Some(old) if old == row => {}
            Some(_) => steps.push(Step::Replace(row)),
            None => steps.push(Step::Open(row)),
        }
    }
    // Rows that record an outcome stay, even if the World forgets them.
    let gone = known.into_values().filter(|row| !row.table.is_record());
    steps.extend(gone.map(Step::Close));
    steps
}
