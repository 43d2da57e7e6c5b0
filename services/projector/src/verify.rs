//! Comparing the tables of a database with what the log gives, row by row.
//!
//! Rows are added up: the sum of the hashes of all rows of a table doesn't depend on their order, so that neither side
//! has to be sorted or kept. Only where sums differ the rows themselves are looked for, and there only in a few of the
//! parts into which their hashes divide them. A row that holds still is kept as a hash, too, until it is known when it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use journal::Journal;
use projections::cluster_log::Positions;
use projections::tables::{Batch, Interval, Kind, SetAside, Shape, Table, Value, events, sql};
use schemas::Position;
use sha2::{Digest, Sha256};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::ask::begin;
use crate::connection::{Connection, TextRow};
use crate::database::{Standing, standings};
use crate::run::check_journal;
use crate::{Error, Projector, Url};

/// Rows of each kind that are shown of a table that differs.
const SHOWN: usize = 5;
/// How many entries are read at once.
const ENTRIES: usize = 4_000;
/// How soon a page is asked for again that a replica of the journal doesn't have yet.
const AGAIN: Duration = Duration::from_millis(100);
/// Bits of a hash that say to which part of its table a row belongs.
const PART_BITS: u32 = 12;
/// Parts of a table that differ in which rows are looked for.
const SEARCHED: usize = 64;

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
    /// Rows that only the database has, and rows that it lacks: the first, unless very many differ.
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

    /// How many of its columns are known once a row is there; those behind them say when it ends.
    fn begins(self) -> usize {
        match self {
            Self::History(table) => table.columns().len() + 2,
            Self::Events | Self::SetAside => self.columns().len(),
        }
    }

    /// Asks for all its rows of a generation, whatever stands in them; or as of a position.
    fn query(self, moment: Moment) -> String {
        let (from, at) = match self {
            Self::History(table) => (sql::history(table, moment.generation), "from_position"),
            Self::Events => (sql::events_table(moment.generation), "position"),
            Self::SetAside => (sql::set_aside_table(moment.generation), "position"),
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

/// A row as hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hashed {
    /// Of what is known of it once it is there.
    begin: u128,
    /// Of that, and of when it ends.
    whole: u128,
}

impl Hashed {
    fn of(table: Compared, row: &[Option<String>]) -> Self {
        let (begin, end) = row.split_at(table.begins().min(row.len()));
        Self::new(hash(begin), end)
    }

    fn new(begin: u128, end: &[Option<String>]) -> Self {
        let whole = if end.is_empty() { begin } else { hash_on(&begin.to_be_bytes(), end) };
        Self { begin, whole }
    }

    /// To which part of its table it belongs.
    const fn part(self) -> usize {
        part(self.begin)
    }
}

const fn part(begin: u128) -> usize {
    (begin >> (u128::BITS - PART_BITS)) as usize
}

/// The first 16 bytes of the SHA-256 of values: each with its length, nothing apart from the empty text.
fn hash(values: &[Option<String>]) -> u128 {
    hash_on(&[], values)
}

fn hash_on(before: &[u8], values: &[Option<String>]) -> u128 {
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

/// What a table comes to, and each part of it.
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
    fn add(&mut self, row: Hashed) {
        self.whole.add(row.whole);
        self.parts[row.part()].add(row.whole);
    }

    /// The first parts that differ.
    fn differing(&self, other: &Self) -> BTreeSet<usize> {
        let both = self.parts.iter().zip(&other.parts).enumerate();
        both.filter(|(_, (one, other))| one != other).map(|(part, _)| part).take(SEARCHED).collect()
    }
}

type Sums = BTreeMap<Compared, Parts>;

/// No table of any rows.
fn no_sums() -> Sums {
    Compared::all().map(|table| (table, Parts::default())).collect()
}

/// A generation of tables as of a position; none: whatever stands in it.
#[derive(Clone, Copy, Debug)]
struct Moment {
    generation: i64,
    position: Option<Position>,
}

/// What each table comes to.
async fn sums(connection: &mut Connection, moment: Moment) -> Result<Sums, Error> {
    let mut all = Sums::new();
    for table in Compared::all() {
        let sum = all.entry(table).or_default();
        each(connection, table, moment, |row| sum.add(Hashed::of(table, &row))).await?;
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
    let read = connection.each(&table.query(moment), &kinds, take).await;
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
    check_journal(journal, &standing, &CancellationToken::new()).await?;
    // Rows and position are of one moment: nothing of these tables is of a later one.
    let moment = Moment { generation: standing.generation, position: None };
    let found = sums(&mut connection, moment).await?;
    let mut expected = no_sums();
    Folding::new(url, set_aside, None)
        .fold(journal, &standing, &mut said, &mut |told| {
            expected.entry(told.table).or_default().add(told.hashed);
        })
        .await?;
    let mut compared = compare(&found, &expected);
    let parts = differing(&found, &expected);
    drop((found, expected));
    if !parts.is_empty() {
        let mut left = hashes(&mut connection, moment, &parts).await?;
        let mut lacking: BTreeMap<Compared, Vec<TextRow>> = BTreeMap::new();
        Folding::new(url, set_aside, Some(&parts))
            .fold(journal, &standing, &mut said, &mut |told| {
                let Some(row) = told.row else { return };
                if !left.get_mut(&told.table).is_some_and(|left| take_one(left, told.hashed.whole)) {
                    let rows = lacking.entry(told.table).or_default();
                    if rows.len() < SHOWN {
                        rows.push(row);
                    }
                }
            })
            .await?;
        show(&mut connection, moment, &mut compared, left, lacking).await?;
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
    // The old ones may be further.
    let position = Some(old.end.position.min(new.end.position));
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
    let of = |sums: &Sums, table| sums.get(&table).map(|parts| parts.whole).unwrap_or_default();
    Compared::all()
        .map(|table| Comparison {
            table,
            found: of(found, table),
            expected: of(expected, table),
            differing: [vec![], vec![]],
        })
        .collect()
}

/// Parts of the tables that differ.
type Differing = BTreeMap<Compared, BTreeSet<usize>>;

fn differing(found: &Sums, expected: &Sums) -> Differing {
    let both = found.iter().filter_map(|(table, found)| Some((*table, found, expected.get(table)?)));
    let all = both.map(|(table, found, expected)| (table, found.differing(expected)));
    all.filter(|(_, parts)| !parts.is_empty()).collect()
}

fn is_searched(parts: &Differing, table: Compared, begin: u128) -> bool {
    parts.get(&table).is_some_and(|parts| parts.contains(&part(begin)))
}

/// How often each row is there, by its hash.
type Counts = BTreeMap<u128, u64>;

/// Those of the rows that belong to such parts.
async fn hashes(
    connection: &mut Connection,
    moment: Moment,
    parts: &Differing,
) -> Result<BTreeMap<Compared, Counts>, Error> {
    let mut all = BTreeMap::new();
    for table in parts.keys().copied() {
        let of: &mut Counts = all.entry(table).or_default();
        each(connection, table, moment, |row| {
            let row = Hashed::of(table, &row);
            if is_searched(parts, table, row.begin) {
                *of.entry(row.whole).or_default() += 1;
            }
        })
        .await?;
    }
    Ok(all)
}

/// Takes a row out, if it is there.
fn take_one(counts: &mut Counts, hash: u128) -> bool {
    match counts.get_mut(&hash) {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        Some(_) | None => false,
    }
}

/// Rows that nothing of the log gives, and those that the tables lack.
async fn show(
    connection: &mut Connection,
    moment: Moment,
    compared: &mut [Comparison],
    left: BTreeMap<Compared, Counts>,
    mut lacking: BTreeMap<Compared, Vec<TextRow>>,
) -> Result<(), Error> {
    for (table, mut left) in left {
        let Some(one) = compared.iter_mut().find(|one| one.table == table) else { continue };
        let mut rows = vec![];
        each(connection, table, moment, |row| {
            if rows.len() < SHOWN && take_one(&mut left, Hashed::of(table, &row).whole) {
                rows.push(row);
            }
        })
        .await?;
        one.differing = [rows, lacking.remove(&table).unwrap_or_default()];
    }
    Ok(())
}

/// The log as rows of tables: of what holds still the hash is kept until it ends.
#[derive(Debug)]
struct Folding<'a> {
    url: &'a Url,
    projector: Projector,
    /// Rows that hold still, by their tables and the hashes of their keys.
    open: BTreeMap<(Table, u128), Open>,
    /// The parts whose rows are told as they are; none: hashes are told alone.
    shown: Option<&'a Differing>,
}

/// A row that holds still.
#[derive(Debug)]
struct Open {
    begin: u128,
    /// What is known of it, if it is to be told.
    row: Option<TextRow>,
}

/// A row that there is.
#[derive(Debug)]
struct Told {
    table: Compared,
    hashed: Hashed,
    /// The row, if its part is shown.
    row: Option<TextRow>,
}

impl Open {
    fn ends(self, table: Table, end: TextRow) -> Told {
        let hashed = Hashed::new(self.begin, &end);
        let row = self.row.map(|row| [row, end].concat());
        Told { table: Compared::History(table), hashed, row }
    }
}

impl<'a> Folding<'a> {
    fn new(url: &'a Url, set_aside: &Positions, shown: Option<&'a Differing>) -> Self {
        Self { url, projector: Projector::knowing(set_aside.clone()), open: BTreeMap::new(), shown }
    }

    /// Tells every row that there is at the position at which tables stand.
    async fn fold(
        &mut self,
        journal: &Journal,
        standing: &Standing,
        said: &mut impl FnMut(Position, Position),
        tell: &mut impl FnMut(Told),
    ) -> Result<(), Error> {
        let end = standing.end.position;
        // Pages, not a follower: whoever may only read the journal may compare.
        while self.projector.position() < end {
            let page = journal.read(self.projector.position(), None, ENTRIES).await?;
            if page.is_empty() {
                // What a replica lacks yet comes soon: the tables have it.
                sleep(AGAIN).await;
            }
            for one in page.iter().filter(|one| one.position <= end) {
                self.projector.take(one)?;
            }
            let batch = self.projector.batch();
            self.take(&batch, tell);
            said(self.projector.position(), end);
        }
        standing.check_cluster(self.projector.cluster_id())?;
        let open = std::mem::take(&mut self.open);
        open.into_iter().for_each(|((table, _), open)| tell(open.ends(table, vec![None, None])));
        Ok(())
    }

    fn take(&mut self, batch: &Batch, tell: &mut impl FnMut(Told)) {
        for table in Table::ALL {
            for (key, end) in batch.ends(table) {
                if let Some(open) = self.open.remove(&(table, Self::name(key))) {
                    tell(open.ends(table, self.text(end.values().into())));
                }
            }
            for interval in batch.intervals(table) {
                self.interval(interval, tell);
            }
        }
        for event in &batch.events {
            tell(self.row(Compared::Events, event.values.clone()));
        }
        for aside in &batch.set_aside {
            tell(self.row(Compared::SetAside, SetAside::values(aside)));
        }
    }

    fn interval(&mut self, interval: &Interval, tell: &mut impl FnMut(Told)) {
        let table = interval.row.table;
        let told = self.row(Compared::History(table), interval.values());
        if interval.to.is_some() {
            return tell(told);
        }
        let begins = told.table.begins();
        let row = told.row.map(|mut row| {
            row.truncate(begins);
            row
        });
        let open = Open { begin: told.hashed.begin, row };
        self.open.insert((table, Self::name(interval.row.key())), open);
    }

    fn row(&self, table: Compared, values: Vec<Value>) -> Told {
        let row = self.text(values);
        let hashed = Hashed::of(table, &row);
        let is_shown = self.shown.is_some_and(|parts| is_searched(parts, table, hashed.begin));
        Told { table, hashed, row: is_shown.then_some(row) }
    }

    /// The hash of a key.
    fn name(key: &[Value]) -> u128 {
        hash(&key.iter().cloned().map(Value::into_text).collect::<TextRow>())
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
                assert_ne!(hash_on(&[0], one), hash_on(&[0], other), "{one:?} {other:?}");
                assert_eq!(sum(&[one, other]), sum(&[other, one]));
                assert_ne!(sum(&[one, one]), sum(&[one, other]));
            }
        }
    }

    #[test]
    fn a_row_has_the_hash_of_its_beginning_and_then_of_its_end() {
        let table = Compared::History(Table::Domains);
        let mut row: TextRow = table.columns().iter().map(|column| Some(column.name.to_owned())).collect();
        let ended = Hashed::of(table, &row);
        let begins = table.begins();
        assert_eq!((row.len() - begins, table.columns()[begins].name), (2, "to_position"));
        assert_eq!(ended, Hashed::new(hash(&row[..begins]), &row[begins..]));
        row.truncate(begins);
        row.extend([None, None]);
        let open = Hashed::of(table, &row);
        assert_eq!(open.begin, ended.begin);
        assert_ne!(open.whole, ended.whole);
        assert_ne!(open.whole, open.begin);
        row[begins - 1] = None;
        assert_ne!(Hashed::of(table, &row).begin, ended.begin);
    }

    #[test]
    fn parts_tell_where_rows_differ() {
        let rows: Vec<Hashed> = (0..1_000_u64)
            .map(|nth| Hashed::of(Compared::SetAside, &[Some(nth.to_string()), None, None]))
            .collect();
        let (mut one, mut other) = (Parts::default(), Parts::default());
        rows.iter().for_each(|row| one.add(*row));
        rows.iter().rev().for_each(|row| other.add(*row));
        assert!(one.differing(&other).is_empty() && one.whole == other.whole);
        other.add(rows[7]);
        assert_eq!(one.differing(&other), BTreeSet::from([rows[7].part()]));
        assert!(Parts::default().differing(&one).len() == SEARCHED);
    }
}
