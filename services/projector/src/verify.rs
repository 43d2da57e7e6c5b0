//! Comparison of the tables of a database with the result of folding the log, row by row.
//!
//! Each table is compared by the sum of its rows' hashes. The sum does not depend on the order of rows, so
//! neither the tables' rows nor the log's rows have to be sorted or stored. The hashes also divide each table
//! into parts. The search for differing rows covers only tables whose sums differ, and only a few of their
//! differing parts. An open row is kept as a hash until its end is known.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use journal::Journal;
use projections::cluster_log::QuarantinedPositions;
use projections::tables::{Batch, ColumnSpec, Interval, Kind, QuarantinedMessage, Table, Value, events, sql};
use schemas::Position;
use sha2::{Digest, Sha256};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::ask::begin;
use crate::connection::{Connection, TextRow};
use crate::database::{Generation, read_generations};
use crate::run::check_journal;
use crate::{Error, Projector, Url};

/// Maximum number of missing rows, and of surplus rows, in the output for a differing table.
const MAX_SHOWN_ROWS: usize = 5;
/// Maximum number of entries per read.
const READ_ENTRIES: usize = 4_000;
/// Pause before the next request for a page that a replica of the journal does not have yet.
const RETRY_DELAY: Duration = Duration::from_millis(100);
/// Number of hash bits that select the part of the table for a row.
const PART_BITS: u32 = 12;
/// Maximum number of differing parts of a table in which rows are searched.
const MAX_SEARCHED_PARTS: usize = 64;

/// Table to compare. The comparison uses the history tables, so that every past row is included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ComparedTable {
    History(Table),
    Events,
    /// Messages that are not valid entries.
    Quarantined,
}

/// Number and hash of a table's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub rows: u64,
    /// Sum of the rows' hashes.
    pub hash: u128,
}

/// Comparison of a table.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub table: ComparedTable,
    /// Sum of the rows in the database.
    pub found: Sum,
    /// Sum of the expected rows: the rows of the log, or the rows of the other generation.
    pub expected: Sum,
    /// Rows that only the database has, and rows that the database lacks, with a limit for each. They are the
    /// first differing rows, unless very many rows differ.
    pub differing: [Vec<TextRow>; 2],
}

impl ComparedTable {
    /// Returns every table to compare.
    pub fn all() -> impl Iterator<Item = Self> {
        Table::ALL.into_iter().map(Self::History).chain([Self::Events, Self::Quarantined])
    }

    /// Returns the name of the table for readers.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::History(table) => format!("{}_history", table.name()),
            Self::Events => "events".to_owned(),
            Self::Quarantined => "quarantined_entries".to_owned(),
        }
    }

    /// Returns the columns of the table.
    #[must_use]
    pub fn columns(self) -> Vec<ColumnSpec> {
        match self {
            Self::History(table) => sql::history_columns(table),
            Self::Events => events::column_specs(),
            Self::Quarantined => sql::QUARANTINED_COLUMNS.to_vec(),
        }
    }

    /// Returns the number of columns whose values are known when a row opens. The columns after these
    /// describe the end of the row.
    fn opening_columns(self) -> usize {
        match self {
            Self::History(table) => table.columns().len() + 2,
            Self::Events | Self::Quarantined => self.columns().len(),
        }
    }

    /// Returns the query for the rows of a generation: all rows, or the rows as of a position.
    fn query(self, moment: TablesAt) -> String {
        let (from, at) = match self {
            Self::History(table) => (sql::history_table(table, moment.generation), "from_position"),
            Self::Events => (sql::events_table(moment.generation), "position"),
            Self::Quarantined => (sql::quarantined_table(moment.generation), "position"),
        };
        let columns = self.columns();
        let select = |of: &dyn Fn(&str) -> String| {
            let columns: Vec<String> = columns.iter().map(|column| of(column.name)).collect();
            format!("SELECT {} FROM {from}", columns.join(", "))
        };
        match moment.position {
            None => select(&|name| format!("\"{name}\"")),
            Some(position) => {
                format!("{} WHERE {at} <= {position}", select(&|name| as_of(name, position)))
            }
        }
    }
}

/// Returns the SQL expression of a column as of a position. Rows that ended after the position count as open.
fn as_of(column: &str, position: Position) -> String {
    match column {
        "to_position" | "to_time" => format!("CASE WHEN to_position <= {position} THEN {column} END"),
        _ => format!("\"{column}\""),
    }
}

impl Comparison {
    /// Returns `true` if the found and the expected sums are equal.
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

/// Hashes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowHashes {
    /// Hash of the values that are known when the row opens.
    opening: u128,
    /// Hash of `opening` and the end of the row.
    complete: u128,
}

impl RowHashes {
    fn from_row(table: ComparedTable, row: &[Option<String>]) -> Self {
        let (begin, end) = row.split_at(table.opening_columns().min(row.len()));
        Self::new(hash(begin), end)
    }

    fn new(opening: u128, end: &[Option<String>]) -> Self {
        let complete = if end.is_empty() { opening } else { hash_after(&opening.to_be_bytes(), end) };
        Self { opening, complete }
    }

    /// Returns the part of the table that the row belongs to.
    const fn part(self) -> usize {
        part(self.opening)
    }
}

const fn part(begin: u128) -> usize {
    (begin >> (u128::BITS - PART_BITS)) as usize
}

/// Returns the first 16 bytes of the SHA-256 of values. Each value is hashed with its length, and NULL
/// differs from empty text.
fn hash(values: &[Option<String>]) -> u128 {
    hash_after(&[], values)
}

fn hash_after(before: &[u8], values: &[Option<String>]) -> u128 {
    let mut hasher = Sha256::new();
    hasher.update(before);
    for value in values {
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

/// Sum of a table's rows, and sum of each part.
#[derive(Clone, Debug)]
struct Parts {
    whole: Sum,
    parts: Vec<Sum>,
}

impl Default for Parts {
    fn default() -> Self {
        Self { whole: Sum::default(), parts: vec![Sum::default(); 1 << PART_BITS] }
    }
}

impl Parts {
    fn add(&mut self, row: RowHashes) {
        self.whole.add(row.complete);
        self.parts[row.part()].add(row.complete);
    }

    /// Returns the first parts that differ.
    fn differing(&self, other: &Self) -> BTreeSet<usize> {
        let both = self.parts.iter().zip(&other.parts).enumerate();
        both.filter(|(_, (one, other))| one != other).map(|(part, _)| part).take(MAX_SEARCHED_PARTS).collect()
    }
}

type Sums = BTreeMap<ComparedTable, Parts>;

/// Returns the sums of empty tables.
fn empty_sums() -> Sums {
    ComparedTable::all().map(|table| (table, Parts::default())).collect()
}

/// Rows of a generation of tables: as of `position` if it is set, otherwise all rows.
#[derive(Clone, Copy, Debug)]
struct TablesAt {
    generation: i64,
    position: Option<Position>,
}

/// Returns the sums of each table.
async fn sums(connection: &mut Connection, moment: TablesAt) -> Result<Sums, Error> {
    let mut all = Sums::new();
    for table in ComparedTable::all() {
        let sum = all.entry(table).or_default();
        for_each_row(connection, table, moment, |row| sum.add(RowHashes::from_row(table, &row))).await?;
    }
    Ok(all)
}

async fn for_each_row(
    connection: &mut Connection,
    table: ComparedTable,
    moment: TablesAt,
    take: impl FnMut(TextRow),
) -> Result<(), Error> {
    let kinds: Vec<Kind> = table.columns().iter().map(|column| column.kind).collect();
    let read = connection.for_each_text_row(&table.query(moment), &kinds, take).await;
    read.map_err(Error::database(format!("can't read the table {}", table.name())))
}

/// Compares the live tables with a fold of the log from its beginning to the position of the tables. `said`
/// receives the current position and the target position.
///
/// # Errors
/// The database or the journal cannot be read, they belong to different clusters, or the tables have another
/// shape.
pub async fn verify(
    journal: &Journal,
    quarantines: &QuarantinedPositions,
    url: &Url,
    mut said: impl FnMut(Position, Position),
) -> Result<(Generation, Vec<Comparison>), Error> {
    let mut connection = Connection::open_for_reading(url).await?;
    let standing = begin(&mut connection, url).await?;
    if !standing.is_of_this_program(url) {
        return Err(Error::OtherShape);
    }
    check_journal(journal, &standing, &CancellationToken::new()).await?;
    // One transaction reads both the rows and the position, so no row is newer than the position.
    let moment = TablesAt { generation: standing.number, position: None };
    let found = sums(&mut connection, moment).await?;
    let mut expected = empty_sums();
    LogRows::new(url, quarantines, None)
        .fold(journal, &standing, &mut said, &mut |told| {
            expected.entry(told.table).or_default().add(told.hashed);
        })
        .await?;
    let mut compared = compare(&found, &expected);
    let parts = differing_parts(&found, &expected);
    drop((found, expected));
    if !parts.is_empty() {
        let mut left = count_rows(&mut connection, moment, &parts).await?;
        let mut lacking: BTreeMap<ComparedTable, Vec<TextRow>> = BTreeMap::new();
        LogRows::new(url, quarantines, Some(&parts))
            .fold(journal, &standing, &mut said, &mut |told| {
                let Some(row) = told.row else { return };
                if !left.get_mut(&told.table).is_some_and(|left| take_one(left, told.hashed.complete)) {
                    let rows = lacking.entry(told.table).or_default();
                    if rows.len() < MAX_SHOWN_ROWS {
                        rows.push(row);
                    }
                }
            })
            .await?;
        add_differing_rows(&mut connection, moment, &mut compared, left, lacking).await?;
    }
    Ok((standing, compared))
}

/// Compares two generations as of a position that both generations have reached. Returns `None` if their
/// shapes differ. Differing rows are not searched, because only the log determines which generation is
/// correct.
pub(crate) async fn compare_generations(
    url: &Url,
    old: &Generation,
    new: &Generation,
) -> Result<Option<Vec<Comparison>>, Error> {
    if old.shape != new.shape {
        return Ok(None);
    }
    // The old tables may be at a later position.
    let position = Some(old.end.position.min(new.end.position));
    let mut connection = Connection::open_for_reading(url).await?;
    begin(&mut connection, url).await?;
    let found = sums(&mut connection, TablesAt { generation: old.number, position }).await?;
    let expected = sums(&mut connection, TablesAt { generation: new.number, position }).await?;
    Ok(Some(compare(&found, &expected)))
}

/// Returns the state of all generations of tables, oldest first.
///
/// # Errors
/// The database cannot be read, or contains no tables of Muster.
pub async fn list(url: &Url) -> Result<Vec<Generation>, Error> {
    let mut connection = Connection::open_for_reading(url).await?;
    read_generations(&mut connection, url).await?.ok_or_else(|| Error::Empty(url.clone()))
}

fn compare(found: &Sums, expected: &Sums) -> Vec<Comparison> {
    let of = |sums: &Sums, table| sums.get(&table).map(|parts| parts.whole).unwrap_or_default();
    ComparedTable::all()
        .map(|table| Comparison {
            table,
            found: of(found, table),
            expected: of(expected, table),
            differing: [vec![], vec![]],
        })
        .collect()
}

/// Differing parts of tables.
type Differing = BTreeMap<ComparedTable, BTreeSet<usize>>;

fn differing_parts(found: &Sums, expected: &Sums) -> Differing {
    let both = found.iter().filter_map(|(table, found)| Some((*table, found, expected.get(table)?)));
    let all = both.map(|(table, found, expected)| (table, found.differing(expected)));
    all.filter(|(_, parts)| !parts.is_empty()).collect()
}

fn is_searched(parts: &Differing, table: ComparedTable, begin: u128) -> bool {
    parts.get(&table).is_some_and(|parts| parts.contains(&part(begin)))
}

/// Number of occurrences of each row, by its hash.
type Counts = BTreeMap<u128, u64>;

/// Counts the rows that belong to differing parts.
async fn count_rows(
    connection: &mut Connection,
    moment: TablesAt,
    parts: &Differing,
) -> Result<BTreeMap<ComparedTable, Counts>, Error> {
    let mut all = BTreeMap::new();
    for table in parts.keys().copied() {
        let of: &mut Counts = all.entry(table).or_default();
        for_each_row(connection, table, moment, |row| {
            let row = RowHashes::from_row(table, &row);
            if is_searched(parts, table, row.opening) {
                *of.entry(row.complete).or_default() += 1;
            }
        })
        .await?;
    }
    Ok(all)
}

/// Removes one occurrence of a row. Returns `false` if the row does not occur.
fn take_one(counts: &mut Counts, hash: u128) -> bool {
    match counts.get_mut(&hash) {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        Some(_) | None => false,
    }
}

/// Adds the differing rows to the comparisons: rows that the log does not produce, and rows that the tables
/// lack.
async fn add_differing_rows(
    connection: &mut Connection,
    moment: TablesAt,
    compared: &mut [Comparison],
    left: BTreeMap<ComparedTable, Counts>,
    mut lacking: BTreeMap<ComparedTable, Vec<TextRow>>,
) -> Result<(), Error> {
    for (table, mut left) in left {
        let Some(one) = compared.iter_mut().find(|one| one.table == table) else { continue };
        let mut rows = vec![];
        for_each_row(connection, table, moment, |row| {
            if rows.len() < MAX_SHOWN_ROWS && take_one(&mut left, RowHashes::from_row(table, &row).complete) {
                rows.push(row);
            }
        })
        .await?;
        one.differing = [rows, lacking.remove(&table).unwrap_or_default()];
    }
    Ok(())
}

/// Source of the rows that the log produces. Open rows are kept as hashes until they end.
#[derive(Debug)]
struct LogRows<'a> {
    url: &'a Url,
    projector: Projector,
    /// Open rows, by table and hash of the key.
    open: BTreeMap<(Table, u128), OpenRow>,
    /// Parts whose rows are returned in full. With `None`, only hashes are returned.
    differing: Option<&'a Differing>,
}

/// A row that has not ended.
#[derive(Debug)]
struct OpenRow {
    begin: u128,
    /// Opening values of the row, if its part is searched.
    row: Option<TextRow>,
}

/// A row that the log produces.
#[derive(Debug)]
struct LogRow {
    table: ComparedTable,
    hashed: RowHashes,
    /// The row, if its part is searched.
    row: Option<TextRow>,
}

impl OpenRow {
    fn ends(self, table: Table, end: TextRow) -> LogRow {
        let hashed = RowHashes::new(self.begin, &end);
        let row = self.row.map(|row| [row, end].concat());
        LogRow { table: ComparedTable::History(table), hashed, row }
    }
}

impl<'a> LogRows<'a> {
    fn new(url: &'a Url, quarantines: &QuarantinedPositions, differing: Option<&'a Differing>) -> Self {
        Self {
            url,
            projector: Projector::with_quarantines(quarantines.clone()),
            open: BTreeMap::new(),
            differing,
        }
    }

    /// Emits every row that the log produces up to the position of the tables.
    async fn fold(
        &mut self,
        journal: &Journal,
        standing: &Generation,
        said: &mut impl FnMut(Position, Position),
        tell: &mut impl FnMut(LogRow),
    ) -> Result<(), Error> {
        let end = standing.end.position;
        // Pages instead of a follower, so that read-only access to the journal is sufficient.
        while self.projector.position() < end {
            let page = journal.read(self.projector.position(), None, READ_ENTRIES).await?;
            if page.is_empty() {
                // The tables already contain the entry. The entry therefore exists, and the lagging replica
                // will have it soon.
                sleep(RETRY_DELAY).await;
            }
            for one in page.iter().filter(|one| one.position <= end) {
                self.projector.fold(one)?;
            }
            let batch = self.projector.take_batch();
            self.take(&batch, tell);
            said(self.projector.position(), end);
        }
        standing.check_cluster(self.projector.cluster_id())?;
        let open = std::mem::take(&mut self.open);
        open.into_iter().for_each(|((table, _), open)| tell(open.ends(table, vec![None, None])));
        Ok(())
    }

    fn take(&mut self, batch: &Batch, tell: &mut impl FnMut(LogRow)) {
        for table in Table::ALL {
            for (key, end) in batch.ends(table) {
                if let Some(open) = self.open.remove(&(table, Self::key_hash(key))) {
                    tell(open.ends(table, self.row_text(end.values().into())));
                }
            }
            for interval in batch.intervals(table) {
                self.add_interval(interval, tell);
            }
        }
        for event in &batch.events {
            tell(self.row(ComparedTable::Events, event.values.clone()));
        }
        for aside in &batch.quarantined {
            tell(self.row(ComparedTable::Quarantined, QuarantinedMessage::values(aside)));
        }
    }

    fn add_interval(&mut self, interval: &Interval, tell: &mut impl FnMut(LogRow)) {
        let table = interval.row.table;
        let told = self.row(ComparedTable::History(table), interval.values());
        if interval.to.is_some() {
            return tell(told);
        }
        let begins = told.table.opening_columns();
        let row = told.row.map(|mut row| {
            row.truncate(begins);
            row
        });
        let open = OpenRow { begin: told.hashed.opening, row };
        self.open.insert((table, Self::key_hash(interval.row.key())), open);
    }

    fn row(&self, table: ComparedTable, values: Vec<Value>) -> LogRow {
        let row = self.row_text(values);
        let hashed = RowHashes::from_row(table, &row);
        let is_shown = self.differing.is_some_and(|parts| is_searched(parts, table, hashed.opening));
        LogRow { table, hashed, row: is_shown.then_some(row) }
    }

    /// Returns the hash of a key.
    fn key_hash(key: &[Value]) -> u128 {
        hash(&key.iter().cloned().map(Value::into_text).collect::<TextRow>())
    }

    /// Returns a row as the database returns it.
    fn row_text(&self, values: Vec<Value>) -> TextRow {
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
    fn row_hashes_are_distinct_and_sums_ignore_order() {
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
                assert_ne!(hash_after(&[0], one), hash_after(&[0], other), "{one:?} {other:?}");
                assert_eq!(sum(&[one, other]), sum(&[other, one]));
                assert_ne!(sum(&[one, one]), sum(&[one, other]));
            }
        }
    }

    #[test]
    fn row_hash_combines_opening_and_end() {
        let table = ComparedTable::History(Table::Domains);
        let mut row: TextRow = table.columns().iter().map(|column| Some(column.name.to_owned())).collect();
        let ended = RowHashes::from_row(table, &row);
        let begins = table.opening_columns();
        assert_eq!((row.len() - begins, table.columns()[begins].name), (2, "to_position"));
        assert_eq!(ended, RowHashes::new(hash(&row[..begins]), &row[begins..]));
        row.truncate(begins);
        row.extend([None, None]);
        let open = RowHashes::from_row(table, &row);
        assert_eq!(open.opening, ended.opening);
        assert_ne!(open.complete, ended.complete);
        assert_ne!(open.complete, open.opening);
        row[begins - 1] = None;
        assert_ne!(RowHashes::from_row(table, &row).opening, ended.opening);
    }

    #[test]
    fn differing_parts_locate_differing_rows() {
        let rows: Vec<RowHashes> = (0..1_000_u64)
            .map(|nth| RowHashes::from_row(ComparedTable::Quarantined, &[Some(nth.to_string()), None, None]))
            .collect();
        let (mut one, mut other) = (Parts::default(), Parts::default());
        rows.iter().for_each(|row| one.add(*row));
        rows.iter().rev().for_each(|row| other.add(*row));
        assert!(one.differing(&other).is_empty() && one.whole == other.whole);
        other.add(rows[7]);
        assert_eq!(one.differing(&other), BTreeSet::from([rows[7].part()]));
        assert!(Parts::default().differing(&one).len() == MAX_SEARCHED_PARTS);
    }
}
