//! What each cell lacks to take some work.

use std::collections::BTreeMap;

use schemas::message::Order;
use schemas::names::CellId;
use schemas::resources::{Constraint, Lack, Mismatch};

use crate::board::{Board, BoardCell, Standing};
use crate::explain::CORDONED;

/// For each cell why it doesn't take the work, in the words of placement errors; those that would take it are missing.
pub type Lacks = BTreeMap<CellId, Vec<String>>;

/// Whether a cell takes such work at all, whatever is free of it.
pub(super) fn takes(cell: &BoardCell, constraint: &Constraint) -> bool {
    cell.standing == Standing::Open && constraint.mismatch(&cell.stack, &cell.placement_tags).is_none()
}

/// What each cell lacks.
pub(super) fn of(board: &Board, order: &Order) -> Lacks {
    let constraint = match order {
        Order::Lrp(definition) => &definition.constraint,
        Order::Task(definition) => &definition.constraint,
    };
    let all = (0..).zip(board.cells()).map(|(number, cell)| {
        let why = match (constraint.mismatch(&cell.stack, &cell.placement_tags), cell.standing) {
            (Some(mismatch), _) => vec![Mismatch::word(mismatch)],
            (None, Standing::Evacuating) => vec!["evacuating"],
            (None, Standing::Cordoned) => vec![CORDONED],
            (None, Standing::Unhealthy) => vec!["unhealthy"],
            (None, Standing::Silent) => vec!["silent"],
            (None, Standing::Open) => board.free(number).lacks(order.resources()).map(Lack::word).collect(),
        };
        (cell.id.clone(), why.into_iter().map(str::to_owned).collect::<Vec<_>>())
    });
    all.filter(|(_, why)| !why.is_empty()).collect()
}
