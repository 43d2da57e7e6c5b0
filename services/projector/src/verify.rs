//! Comparing the tables of a database with what the log gives, row by row.
//!
//! Rows are added up: the sum of the hashes of all rows of a table doesn't depend on their order, so that neither side
//! has to be sorted or kept. Only where sums differ the rows themselves are looked for.

use std::collections::BTreeMap;

use journal::Journal;
use projections::cluster_log::Positions;
use projections::tables::{Batch, Interval, Kind, Row, SetAside, Shape, Table, Value, events, sql};
use schemas::Position;
use sha2::{Digest, Sha256};

use crate::ask::begin;
use crate::connection::{Connection, TextRow};
use crate::database::{Standing, standings};
use crate::run::{check_cluster, check_end};
use crate::{Error, Projector, Url};

/// Rows of each kind that are shown of a table that differs.
const SHOWN: usize = 5;
/// How many entries are read at once.
const ENTRIES: usize = 4_000;

/// A table that is compared: of each its history, so that every row that ever was is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Compared {
    /// The history of a table.
    History(Table),
    /// All events.
    Events,
    /// What is no entry.
    SetAside,
}

/// What the rows of a table come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many they are.
    pub rows: u64,
    /// The sum of their hashes.
    pub hash: u128,
}

/// A table, as two sides have it.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Which table.
    pub table: Compared,
    /// What it comes to in the database.
    pub found: Sum,
    /// What it comes to on the other side.
    pub expected: Sum,
    /// The first rows that only the database has, and the first that it lacks.
    pub differing: [Vec<TextRow>; 2],
}

impl Compared {
    /// Every one of them.
    pub fn all() -> impl Iterator<Item = Self> {
        Table::ALL.into_iter().map(Self::History).chain([Self::Events, Self::SetAside])
    }

    /// Its name, as readers know it.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::History(table) => format!("{}_history", table.name()),
            Self::Events => "events".to_owned(),
            Self::SetAside => "set_aside".to_owned(),
        }
    }

    /// Its columns.
    #[must_use]
    pub fn columns(self) -> Vec<Shape> {
        match self {
            Self::History(table) => sql::history_columns(table),
            Self::Events => events::shapes(),
            Self::SetAside => sql::SET_ASIDE.to_vec(),
        }
    }

    /// Asks for all its rows, of a generation and as of a position.
    fn query(self, generation: i64, position: Position) -> String {
        let (from, at) = match self {
            Self::History(table) => (sql::history(table, generation), "from_position"),
            Self::Events => (sql::events_table(generation), "position"),
            Self::SetAside => (sql::set_aside_table(generation), "position"),
        };
        let columns: Vec<String> = self.columns().iter().map(|column| as_of(column.name, position)).collect();
        format!("SELECT {} FROM {from} WHERE {at} <= {position}", columns.join(", "))
    }
}

/// What ended later held still.
fn as_of(column: &str, position: Position) -> String {
    match column {
        "to_position" | "to_time" => format!("CASE WHEN to_position <= {position} THEN {column} END"),
        _ => format!("\"{column}\""),
    }
}

impl Comparison {
    /// Whether both sides are the same.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.found == self.expected
    }
}

impl Sum {
    fn add(&mut self, hash: u128) {
        self.rows += 1;
        self.hash = self.hash.wrapping_add(hash);
    }
}

/// The first 16 bytes of the SHA-256 of a row: each value with its length, nothing apart from the empty text.
fn hash(row: &TextRow) -> u128 {
    let mut hasher = Sha256::new();
    for value in row {
        match value {
            None => hasher.update([0]),
            Some(text) => {
                hasher.update([1]);
                hasher.update(text.len().to_be_bytes());
                hasher.update(text.as_bytes());
            }
        }
    }
    let whole: [u8; 32] = hasher.finalize().into();
    let mut first = [0; 16];
    first.copy_from_slice(&whole[..16]);
    u128::from_be_bytes(first)
}

type Sums = BTreeMap<Compared, Sum>;

/// A generation of tables as of a position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) generation: i64,
    pub(crate) position: Position,
}

/// What each table comes to.
async fn sums(connection: &mut Connection, moment: Moment) -> Result<Sums, Error> {
    let mut all = Sums::new();
    for table in Compared::all() {
        let sum = all.entry(table).or_default();
        each(connection, table, moment, |row| sum.add(hash(&row))).await?;
    }
    Ok(all)
}

async fn each(
    connection: &mut Connection,
    table: Compared,
    moment: Moment,
    take: impl FnMut(TextRow),
) -> Result<(), Error> {
    let kinds: Vec<Kind> = table.columns().iter().map(|column| column.kind).collect();
    let read = connection.each(&table.query(moment.generation, moment.position), &kinds, take).await;
    read.map_err(Error::database(format!("can't read the table {}", table.name())))
}

/// Compares the live tables with what the log gives up to where they stand, by folding it from its beginning. `said` is
/// told how far that is.
///
/// # Errors
/// The database or the journal can't be read; they are of two clusters; the tables have another shape.
pub async fn verify(
    journal: &Journal,
    set_aside: &Positions,
    url: &Url,
    mut said: impl FnMut(Position, Position),
) -> Result<(Standing, Vec<Comparison>), Error> {
    let mut connection = Connection::reading(url).await?;
    let standing = begin(&mut connection, url).await?;
    if !standing.is_of_this_program(url) {
        return Err(Error::OtherShape);
    }
    check_end(journal, &standing).await?;
    let moment = Moment { generation: standing.generation, position: standing.end.position };
    let found = sums(&mut connection, moment).await?;
    let mut expected = Sums::new();
    let mut folding = Folding::new(url, set_aside);
    folding
        .fold(journal, &standing, &mut said, &mut |table, row| {
            expected.entry(table).or_default().add(hash(&row));
        })
        .await?;
    let mut compared = compare(&found, &expected);
    if compared.iter().any(|one| !one.is_same()) {
        let mut hashes = hashes(&mut connection, moment, &compared).await?;
        let mut lacking: BTreeMap<Compared, Vec<TextRow>> = BTreeMap::new();
        Folding::new(url, set_aside)
            .fold(journal, &standing, &mut said, &mut |table, row| {
                if let Some(of) = hashes.get_mut(&table)
                    && !take_one(of, hash(&row))
                {
                    let rows = lacking.entry(table).or_default();
                    if rows.len() < SHOWN {
                        rows.push(row);
                    }
                }
            })
            .await?;
        show(&mut connection, moment, &mut compared, &hashes, lacking).await?;
    }
    Ok((standing, compared))
}

/// Compares two generations as of the position that both have reached; none: they have other shapes. Rows are not looked
/// for: which of both is right only the log says.
pub(crate) async fn generations(
    url: &Url,
    old: &Standing,
    new: &Standing,
) -> Result<Option<Vec<Comparison>>, Error> {
    if old.shape != new.shape {
        return Ok(None);
    }
    let position = old.end.position.min(new.end.position);
    let mut connection = Connection::reading(url).await?;
    begin(&mut connection, url).await?;
    let found = sums(&mut connection, Moment { generation: old.generation, position }).await?;
    let expected = sums(&mut connection, Moment { generation: new.generation, position }).await?;
    Ok(Some(compare(&found, &expected)))
}

/// Where all generations of tables stand, the oldest first.
///
/// # Errors
/// The database can't be read, or holds no tables of Muster.
pub async fn list(url: &Url) -> Result<Vec<Standing>, Error> {
    let mut connection = Connection::reading(url).await?;
    standings(&mut connection, url).await?.ok_or_else(|| Error::Empty(url.clone()))
}

fn compare(found: &Sums, expected: &Sums) -> Vec<Comparison> {
    let of = |sums: &Sums, table| sums.get(&table).copied().unwrap_or_default();
    Compared::all()
        .map(|table| Comparison {
            table,
            found: of(found, table),
            expected: of(expected, table),
            differing: [vec![], vec![]],
        })
        .collect()
}

/// How often each row is there, by its hash, of tables that differ.
type Hashes = BTreeMap<Compared, BTreeMap<u128, u64>>;

async fn hashes(
    connection: &mut Connection,
    moment: Moment,
    compared: &[Comparison],
) -> Result<Hashes, Error> {
    let mut all = Hashes::new();
    for one in compared.iter().filter(|one| !one.is_same()) {
        let of = all.entry(one.table).or_default();
        each(connection, one.table, moment, |row| *of.entry(hash(&row)).or_default() += 1).await?;
    }
    Ok(all)
}

/// Takes a row out, if it is there.
fn take_one(hashes: &mut BTreeMap<u128, u64>, hash: u128) -> bool {
    match hashes.get_mut(&hash) {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        Some(_) | None => false,
    }
}

/// The first rows that nothing of the log gives, and those that the tables lack.
async fn show(
    connection: &mut Connection,
    moment: Moment,
    compared: &mut [Comparison],
    left: &Hashes,
    mut lacking: BTreeMap<Compared, Vec<TextRow>>,
) -> Result<(), Error> {
    for one in compared.iter_mut().filter(|one| !one.is_same()) {
        let mut left = left.get(&one.table).cloned().unwrap_or_default();
        let mut rows = vec![];
        each(connection, one.table, moment, |row| {
            if rows.len() < SHOWN && take_one(&mut left, hash(&row)) {
                rows.push(row);
            }
        })
        .await?;
        one.differing = [rows, lacking.remove(&one.table).unwrap_or_default()];
    }
    Ok(())
}

/// The log as rows of tables: what holds still is kept until it ends.
#[derive(Debug)]
struct Folding<'a> {
    url: &'a Url,
    projector: Projector,
    open: BTreeMap<(Table, Vec<Value>), Interval>,
}

impl<'a> Folding<'a> {
    fn new(url: &'a Url, set_aside: &Positions) -> Self {
        Self { url, projector: Projector::knowing(set_aside.clone()), open: BTreeMap::new() }
    }

    /// Tells every row that there is at the position at which tables stand.
    async fn fold(
        &mut self,
        journal: &Journal,
        standing: &Standing,
        said: &mut impl FnMut(Position, Position),
        tell: &mut impl FnMut(Compared, TextRow),
    ) -> Result<(), Error> {
        let end = standing.end.position;
        let mut follower = journal.follow(Position(0));
        while self.projector.position() < end {
            for one in follower.next_batch(ENTRIES).await? {
                if one.position <= end {
                    self.projector.take(&one)?;
                }
            }
            let batch = self.projector.batch();
            self.take(&batch, tell);
            said(self.projector.position(), end);
        }
        check_cluster(standing, self.projector.cluster_id())?;
        let open = std::mem::take(&mut self.open);
        open.into_values()
            .for_each(|interval| tell(Compared::History(interval.row.table), self.text(interval.values())));
        Ok(())
    }

    fn take(&mut self, batch: &Batch, tell: &mut impl FnMut(Compared, TextRow)) {
        for table in Table::ALL {
            for (key, end) in batch.ends(table) {
                if let Some(mut interval) = self.open.remove(&(table, key.to_vec())) {
                    interval.to = Some(end);
                    tell(Compared::History(table), self.text(interval.values()));
                }
            }
            for interval in batch.intervals(table) {
                match interval.to {
                    Some(_) => tell(Compared::History(table), self.text(interval.values())),
                    None => {
                        let key = Row::key(&interval.row).to_vec();
                        self.open.insert((table, key), interval.clone());
                    }
                }
            }
        }
        batch.events.iter().for_each(|event| tell(Compared::Events, self.text(event.values.clone())));
        batch.set_aside.iter().for_each(|one| tell(Compared::SetAside, self.text(SetAside::values(one))));
    }

    /// A row as the database answers it.
    fn text(&self, values: Vec<Value>) -> TextRow {
        let dialect = self.url.dialect();
        values
            .into_iter()
            .map(|value| value.into_text().map(|text| dialect.storable(&text).into_owned()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_differ_have_other_hashes_and_their_order_does_not_count() {
        let row = |values: &[Option<&str>]| -> TextRow {
            values.iter().map(|value| value.map(str::to_owned)).collect()
        };
        let rows = [
            row(&[Some("a"), Some("b")]),
            row(&[Some("ab"), Some("")]),
            row(&[Some("ab"), None]),
            row(&[None, Some("ab")]),
        ];
        let sum = |rows: &[&TextRow]| {
            let mut sum = Sum::default();
            rows.iter().for_each(|row| sum.add(hash(row)));
            sum
        };
        for (nth, one) in rows.iter().enumerate() {
            for other in &rows[nth + 1..] {
                assert_ne!(hash(one), hash(other), "{one:?} {other:?}");
                assert_eq!(sum(&[one, other]), sum(&[other, one]));
                assert_ne!(sum(&[one, one]), sum(&[one, other]));
            }
        }
    }
}
