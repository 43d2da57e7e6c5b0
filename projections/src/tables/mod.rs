//! The World as tables: what each entry changes in them, row by row.
//!
//! ```text
//!   entry ──▶ rows of what it touches, before ──┐
//!         ──▶ world.fold                        ├──▶ steps: a row opens, is replaced, closes
//!         ──▶ rows of what it touches, after  ──┘
//! ```
//! A row is the one that queries answer with, and its columns stand beside it ([`columns`]). What a query adds from
//! outside the log (what is fresh now, which heartbeat came when) and what SQL counts better by itself (how many
//! instances are RUNNING) is no column. A database keeps each row with the positions between which it held, so that
//! every moment of the past is in it; what the World forgets stays there.

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

pub use self::batch::{Batch, Interval, Moment, SetAside};
pub use self::columns::{Shape, Table};
pub use self::dialect::Dialect;
pub use self::events::EventRow;
use self::rows::Touched;
pub use self::value::{Kind, Value, micros, time};
use crate::world::World;

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Which table.
    pub table: Table,
    /// A value for each of its columns, the key first.
    pub values: Vec<Value>,
}

impl Row {
    /// What names it in its table.
    #[must_use]
    pub fn key(&self) -> &[Value] {
        &self.values[..self.table.key_columns()]
    }

    /// What names it among the rows of all tables.
    #[must_use]
    pub fn name(&self) -> (Table, Vec<Value>) {
        (self.table, self.key().to_vec())
    }
}

/// What an entry does to one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is there from now on.
    Open(Row),
    /// It is there already, and has other values from now on.
    Replace(Row),
    /// It was there, as it is given, and isn't any more.
    Close(Row),
    /// It is there from now on. Should one of its name be there that the World has forgotten, that ends.
    Renew(Row),
    /// Should one of this name be there, that the World has forgotten or not, it isn't any more.
    Clear(Table, Vec<Value>),
}

/// What an entry does to the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// Where the entry stands.
    pub position: Position,
    /// When the last of it was decided; none: it decides nothing.
    pub at: Option<Timestamp>,
    /// What it does, each row once.
    pub steps: Vec<Step>,
    /// Its events.
    pub events: Vec<EventRow>,
}

/// The tables at a position: which rows there are follows from the World alone, and from what it has forgotten.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    world: World,
}

impl Tables {
    /// The World that the tables show.
    #[must_use]
    pub const fn world(&self) -> &World {
        &self.world
    }

    /// Folds an entry. One at or below the World's position was folded already and does nothing.
    pub fn fold(&mut self, position: Position, entry: &Entry) -> Steps {
        let at = entry.decisions.iter().map(|decision| decision.at).max();
        if position <= self.world.position() {
            return Steps { position, at, steps: vec![], events: vec![] };
        }
        let touched = Touched::by(entry);
        let before = touched.rows(&self.world);
        let mut ended = rows::Ended::behind(&self.world, &touched);
        self.world.fold_telling(position, entry, &mut |told| ended.take(told, position));
        let mut steps = steps(before, touched.rows(&self.world));
        steps.extend(ended.into_steps());
        Steps { position, at, steps, events: events::rows(position, entry) }
    }

    /// The same, where nobody needs to know what changes.
    pub fn pass(&mut self, position: Position, entry: &Entry) {
        drop(self.world.fold(position, entry));
    }

    /// Every row that is there by the World alone, in order of tables and keys: without what the World has forgotten.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        rows(&self.world)
    }
}

/// Every row that a World shows, in order of tables and keys. What it has forgotten, the tables keep.
#[must_use]
pub fn rows(world: &World) -> Vec<Row> {
    rows::all(world)
}

/// What changed between the rows of the same things.
fn steps(before: Vec<Row>, after: Vec<Row>) -> Vec<Step> {
    let mut known: BTreeMap<_, Row> = before.into_iter().map(|row| (row.name(), row)).collect();
    let mut steps = vec![];
    for row in after {
        match known.remove(&row.name()) {
            Some(old) if old == row => {}
            Some(_) => steps.push(Step::Replace(row)),
            None => steps.push(Step::Open(row)),
        }
    }
    // What tells of something that is over stays, whether the World still remembers it or not.
    let gone = known.into_values().filter(|row| !row.table.is_record());
    steps.extend(gone.map(Step::Close));
    steps
}
