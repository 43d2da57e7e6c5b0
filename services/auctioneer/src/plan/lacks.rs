//! Reasons why each cell cannot run some work, and the cell that is closest to running it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use schemas::names::CellId;
use schemas::resources::{Constraint, Lack, Resources};
use schemas::rules::{Distinct, Rule};
use serde::Serialize;

use crate::auction::Item;
use crate::board::{Board, BoardCell, Standing};
use crate::explain::named;

/// Reasons why each cell does not accept the work, in the terms of placement errors. Cells that would accept
/// the work are left out.
pub type Lacks = BTreeMap<CellId, Vec<String>>;

/// Reason why a cell cannot run some work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Keeps {
    /// Amounts that are missing now but would be free on an idle cell.
    Taken(Resources),
    /// The cell has reached the number of instances that this constraint allows.
    Crowded(String),
    /// The cell accepts no new work.
    Closed {
        why: &'static str,
        /// Amounts that are also missing.
        taken: Resources,
    },
    /// Amounts by which the work exceeds the cell's totals.
    Small(Resources),
    /// The cell is not compatible: its stack, tags or isolation, or a constraint.
    Incompatible(String),
}

impl Keeps {
    /// Returns the reasons in the terms of placement errors.
    fn words(self) -> Vec<String> {
        match self {
            Self::Taken(short) | Self::Small(short) => {
                lacking(short).map(|what| what.word().into()).collect()
            }
            Self::Closed { why, .. } => vec![why.to_owned()],
            Self::Crowded(why) | Self::Incompatible(why) => vec![why],
        }
    }
}

/// Cell that is closest to running some work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Nearest {
    pub cell_id: CellId,
    /// Reason why the cell cannot run the work. `None` if it can.
    pub keeps: Option<Keeps>,
}

/// Returns `true` if a cell accepts such work, regardless of its free resources.
pub(super) fn takes(cell: &BoardCell, constraint: &Constraint) -> bool {
    cell.standing == Standing::Open && constraint.mismatch(&cell.offer()).is_none()
}

/// Returns the reasons for each cell, given the number of instances of the process on each.
pub(super) fn of(board: &Board, item: &Item, siblings: Option<&BTreeMap<CellId, u32>>) -> Lacks {
    let why = |(number, cell): (u32, &BoardCell)| {
        Some((cell.id.clone(), keeps(board, number, item, siblings)?.words()))
    };
    (0..).zip(board.cells()).filter_map(why).collect()
}

/// Returns the cell that is closest to running the work. Cells that lack free resources are closest. Next are
/// cells with too many instances of the process, then cells that accept no new work, cells that are too
/// small, and incompatible cells. `None` if no cell may run the work.
#[must_use]
pub fn nearest(board: &Board, item: &Item, siblings: Option<&BTreeMap<CellId, u32>>) -> Option<Nearest> {
    let may = |(_, cell): &(u32, &BoardCell)| item.only.as_ref().is_none_or(|only| cell.id == *only);
    let cells = (0..).zip(board.cells()).filter(may);
    let near = cells.map(|(number, cell)| (cell, keeps(board, number, item, siblings)));
    let (cell, keeps) = near.min_by_key(|(cell, keeps)| distance(cell, keeps.as_ref()))?;
    Some(Nearest { cell_id: cell.id.clone(), keeps })
}

/// Returns the distance of a cell from running the work, as a sort key: the kind of reason, the missing
/// amount in thousandths of the cell's totals, and the size of the cell, largest first.
fn distance(cell: &BoardCell, keeps: Option<&Keeps>) -> (u8, u64, Reverse<u64>) {
    let size = Reverse(cell.total.memory_mb);
    match keeps {
        None => (0, 0, size),
        Some(Keeps::Taken(short)) => (1, part_of(*short, cell.total), size),
        Some(Keeps::Crowded(_)) => (2, 0, size),
        Some(Keeps::Closed { taken, .. }) => (3, part_of(*taken, cell.total), size),
        Some(Keeps::Small(short)) => (4, part_of(*short, cell.total), size),
        Some(Keeps::Incompatible(_)) => (5, 0, size),
    }
}

/// Returns the largest ratio of an amount to its total, in thousandths.
fn part_of(asked: Resources, total: Resources) -> u64 {
    let part = |asked: u64, total: u64| asked.saturating_mul(1_000) / total.max(1);
    [
        part(asked.memory_mb, total.memory_mb),
        part(asked.disk_mb, total.disk_mb),
        part(asked.containers.into(), total.containers.into()),
        part(asked.ports.into(), total.ports.into()),
    ]
    .into_iter()
    .max()
    .unwrap_or(0)
}

/// Returns the reason why a cell cannot run some work.
pub(crate) fn keeps(
    board: &Board,
    number: u32,
    item: &Item,
    siblings: Option<&BTreeMap<CellId, u32>>,
) -> Option<Keeps> {
    let (constraint, size, cell) = (item.constraint(), item.order.resources(), board.cell(number));
    if let Some(mismatch) = constraint.mismatch(&cell.offer()) {
        return Some(Keeps::Incompatible(mismatch.word().into_owned()));
    }
    if !cell.total.fits(size) {
        return Some(Keeps::Small(size.minus(cell.total)));
    }
    let taken = size.minus(board.free(number));
    if let Some(why) = cell.standing.closed() {
        return Some(Keeps::Closed { why, taken });
    }
    if let Some(rule) = siblings.and_then(|siblings| crowding(board.cells(), cell, constraint, siblings)) {
        return Some(Keeps::Crowded(named(rule)));
    }
    (taken != Resources::default()).then_some(Keeps::Taken(taken))
}

/// Returns the constraint whose limit the cell's instances have reached.
fn crowding<'a>(
    cells: &[BoardCell],
    cell: &BoardCell,
    constraint: &'a Constraint,
    siblings: &BTreeMap<CellId, u32>,
) -> Option<&'a Rule> {
    let rules = constraint.rules.as_deref()?;
    let on = |cell: &BoardCell| siblings.get(&cell.id).copied().unwrap_or(0);
    let crowded = |distinct: Distinct<'_>| match distinct {
        Distinct::Cell { most } => on(cell) >= most,
        Distinct::Attribute { attribute, most } => {
            let here = cell.offer().attribute(attribute.as_str());
            let alike = cells.iter().filter(|other| other.offer().attribute(attribute.as_str()) == here);
            alike.map(on).sum::<u32>() >= most
        }
    };
    let (at, _) = rules.distinct().find(|(_, distinct)| crowded(*distinct))?;
    rules.constraints.get(at)
}

/// Returns the resources whose amount is not zero.
fn lacking(short: Resources) -> impl Iterator<Item = Lack> {
    Resources::default().lacks(short)
}
