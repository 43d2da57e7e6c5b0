//! Reasons why each cell cannot run some work, and the cell that is closest to running it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use schemas::names::CellId;
use schemas::resources::{Constraint, Resources, Shortage};
use schemas::rules::{Distinct, Rule};
use serde::Serialize;

use crate::auction::Item;
use crate::board::{Board, BoardCell, Standing};
use crate::explain::constraint_text;

/// Reasons for each cell that does not accept some work, in the terms of placement errors.
pub type ReasonsByCell = BTreeMap<CellId, Vec<String>>;

/// Reason why a cell cannot run some work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    /// The cell lacks these amounts now. They would be free if the cell ran no work.
    InsufficientFree(Resources),
    /// The cell has reached the number of instances that this constraint allows.
    InstanceLimit(String),
    /// The cell accepts no new work.
    Unavailable {
        reason: &'static str,
        /// Amounts that the cell lacks in addition.
        insufficient_free: Resources,
    },
    /// Amounts by which the work exceeds the cell's totals.
    InsufficientTotal(Resources),
    /// The stack, the tags, the isolation or another property of the cell does not match the constraint of
    /// the work.
    Incompatible(String),
}

impl Obstacle {
    /// Returns the reasons in the terms of placement errors.
    fn reasons(self) -> Vec<String> {
        match self {
            Self::InsufficientFree(short) | Self::InsufficientTotal(short) => {
                missing(short).map(|what| what.as_str().into()).collect()
            }
            Self::Unavailable { reason, .. } => vec![reason.to_owned()],
            Self::InstanceLimit(why) | Self::Incompatible(why) => vec![why],
        }
    }
}

/// Cell that is closest to running some work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Nearest {
    pub cell_id: CellId,
    /// Reason why the cell cannot run the work. `None` if the cell can run the work.
    pub obstacle: Option<Obstacle>,
}

/// Returns `true` if a cell accepts work with this constraint, regardless of the cell's free resources.
pub(super) fn accepts(cell: &BoardCell, constraint: &Constraint) -> bool {
    cell.standing == Standing::Open && constraint.mismatch(&cell.offer()).is_none()
}

/// Returns the reasons for each cell. `siblings` is the number of instances of the same process on each cell.
pub(super) fn reasons_by_cell(
    board: &Board,
    item: &Item,
    siblings: Option<&BTreeMap<CellId, u32>>,
) -> ReasonsByCell {
    let why = |(number, cell): (u32, &BoardCell)| {
        Some((cell.id.clone(), obstacle(board, number, item, siblings)?.reasons()))
    };
    (0..).zip(board.cells()).filter_map(why).collect()
}

/// Returns the cell that is closest to running the work. Cells that only lack free resources are closest.
/// Next are, in this order, cells with too many instances of the process, cells that accept no new work,
/// cells that are too small, and incompatible cells. `None` if no cell may run the work.
#[must_use]
pub fn nearest(board: &Board, item: &Item, siblings: Option<&BTreeMap<CellId, u32>>) -> Option<Nearest> {
    let may = |(_, cell): &(u32, &BoardCell)| item.only.as_ref().is_none_or(|only| cell.id == *only);
    let cells = (0..).zip(board.cells()).filter(may);
    let near = cells.map(|(number, cell)| (cell, obstacle(board, number, item, siblings)));
    let (cell, obstacle) = near.min_by_key(|(cell, keeps)| distance(cell, keeps.as_ref()))?;
    Some(Nearest { cell_id: cell.id.clone(), obstacle })
}

/// Returns a sort key: cells that are closer to running the work come first. The key consists of the kind of
/// the obstacle, the missing amount in thousandths of the cell's totals, and the size of the cell. Larger
/// cells come first.
fn distance(cell: &BoardCell, keeps: Option<&Obstacle>) -> (u8, u64, Reverse<u64>) {
    let size = Reverse(cell.total.memory_mb);
    match keeps {
        None => (0, 0, size),
        Some(Obstacle::InsufficientFree(short)) => (1, max_permille(*short, cell.total), size),
        Some(Obstacle::InstanceLimit(_)) => (2, 0, size),
        Some(Obstacle::Unavailable { insufficient_free, .. }) => {
            (3, max_permille(*insufficient_free, cell.total), size)
        }
        Some(Obstacle::InsufficientTotal(short)) => (4, max_permille(*short, cell.total), size),
        Some(Obstacle::Incompatible(_)) => (5, 0, size),
    }
}

/// Returns the largest ratio of one resource to its total, in thousandths.
fn max_permille(asked: Resources, total: Resources) -> u64 {
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

/// Returns the reason why a cell cannot run some work. `None` if the cell can run the work.
pub(crate) fn obstacle(
    board: &Board,
    number: u32,
    item: &Item,
    siblings: Option<&BTreeMap<CellId, u32>>,
) -> Option<Obstacle> {
    let (constraint, size, cell) = (item.constraint(), item.order.resources(), board.cell(number));
    if let Some(mismatch) = constraint.mismatch(&cell.offer()) {
        return Some(Obstacle::Incompatible(mismatch.description().into_owned()));
    }
    if !cell.total.fits(size) {
        return Some(Obstacle::InsufficientTotal(size.minus(cell.total)));
    }
    let insufficient_free = size.minus(board.free(number));
    if let Some(reason) = cell.standing.closed_reason() {
        return Some(Obstacle::Unavailable { reason, insufficient_free });
    }
    if let Some(rule) = siblings.and_then(|siblings| crowding(board.cells(), cell, constraint, siblings)) {
        return Some(Obstacle::InstanceLimit(constraint_text(rule)));
    }
    (insufficient_free != Resources::default()).then_some(Obstacle::InsufficientFree(insufficient_free))
}

/// Returns the first constraint on the number of instances whose limit is reached on this cell.
fn crowding<'a>(
    cells: &[BoardCell],
    cell: &BoardCell,
    constraint: &'a Constraint,
    siblings: &BTreeMap<CellId, u32>,
) -> Option<&'a Rule> {
    let rules = constraint.rules.as_deref()?;
    let on = |cell: &BoardCell| siblings.get(&cell.id).copied().unwrap_or(0);
    let crowded = |distinct: Distinct<'_>| match distinct {
        Distinct::Cell { max } => on(cell) >= max,
        Distinct::Attribute { attribute, max: most } => {
            let here = cell.offer().attribute(attribute.as_str());
            let alike = cells.iter().filter(|other| other.offer().attribute(attribute.as_str()) == here);
            alike.map(on).sum::<u32>() >= most
        }
    };
    let (at, _) = rules.distinct().find(|(_, distinct)| crowded(*distinct))?;
    rules.constraints.get(at)
}

/// Returns the resources whose amount is not zero.
fn missing(short: Resources) -> impl Iterator<Item = Shortage> {
    Resources::default().shortages(short)
}
