//! What each cell lacks to take some work, and which cell lacks least.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use schemas::names::CellId;
use schemas::resources::{Constraint, Lack, Resources};
use schemas::rules::{Distinct, Rule};
use serde::Serialize;

use crate::auction::Item;
use crate::board::{Board, BoardCell, Standing};
use crate::explain::named;

/// For each cell why it doesn't take the work, in the words of placement errors; those that would take it are missing.
pub type Lacks = BTreeMap<CellId, Vec<String>>;

/// What keeps a cell from taking some work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Keeps {
    /// So much is not free that the work needs, and would be on a cell that runs nothing.
    Taken(Resources),
    /// It has all instances of the process that a constraint allows: this one.
    Crowded(String),
    /// It takes no new work.
    Closed {
        /// Why.
        why: &'static str,
        /// What is not free besides.
        taken: Resources,
    },
    /// So much it doesn't have at all.
    Small(Resources),
    /// It is not compatible: its stack, its tags, or a constraint.
    Incompatible(String),
}

impl Keeps {
    /// In the words of placement errors.
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

/// The cell that is nearest to taking some work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Nearest {
    /// Which.
    pub cell_id: CellId,
    /// What keeps it from that; none: nothing does.
    pub keeps: Option<Keeps>,
}

/// Whether a cell takes such work at all, whatever is free of it.
pub(super) fn takes(cell: &BoardCell, constraint: &Constraint) -> bool {
    cell.standing == Standing::Open && constraint.mismatch(&cell.offer()).is_none()
}

/// What each cell lacks. So many instances of the process are on each.
pub(super) fn of(board: &Board, item: &Item, siblings: Option<&BTreeMap<CellId, u32>>) -> Lacks {
    let why = |(number, cell): (u32, &BoardCell)| {
        Some((cell.id.clone(), keeps(board, number, item, siblings)?.words()))
    };
    (0..).zip(board.cells()).filter_map(why).collect()
}

/// The cell that lacks least: one where something is taken before one with too many instances of the process, then one that
/// takes nothing new, one that is too small, and one that is not compatible. None: there is no cell that it may run on.
#[must_use]
pub fn nearest(board: &Board, item: &Item, siblings: Option<&BTreeMap<CellId, u32>>) -> Option<Nearest> {
    let may = |(_, cell): &(u32, &BoardCell)| item.only.as_ref().is_none_or(|only| cell.id == *only);
    let cells = (0..).zip(board.cells()).filter(may);
    let near = cells.map(|(number, cell)| (cell, keeps(board, number, item, siblings)));
    let (cell, keeps) = near.min_by_key(|(cell, keeps)| distance(cell, keeps.as_ref()))?;
    Some(Nearest { cell_id: cell.id.clone(), keeps })
}

/// How far a cell is from taking work: which kind of thing keeps it, how much of what it has that is in thousandths, and
/// how large it is.
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

/// The largest part of something that is asked for, in thousandths of what there is.
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

/// What keeps a cell from taking some work.
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

/// The constraint by which a cell has enough instances of the process already.
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

/// What of it is not nothing.
fn lacking(short: Resources) -> impl Iterator<Item = Lack> {
    Resources::default().lacks(short)
}
