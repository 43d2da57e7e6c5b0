//! What each cell lacks to take some work.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemas::message::Order;
use schemas::names::CellId;
use schemas::resources::Constraint;

use crate::board::{Board, BoardCell, Standing};
use crate::explain::CORDONED;

/// For each cell why it doesn't take the work, in the words of placement errors; those that would take it are missing.
pub type Lacks = BTreeMap<CellId, Vec<String>>;

/// Whether a cell takes such work at all, whatever is free of it.
pub(super) fn takes(cell: &BoardCell, constraint: &Constraint) -> bool {
    cell.standing == Standing::Open && constraint.mismatch(&cell.offer()).is_none()
}

/// What each cell lacks.
pub(super) fn of(board: &Board, order: &Order) -> Lacks {
    let constraint = match order {
        Order::Lrp(definition) => &definition.constraint,
        Order::Task(definition) => &definition.constraint,
    };
    let all = (0..).zip(board.cells()).map(|(number, cell)| {
        let why: Vec<Cow<'static, str>> = match (constraint.mismatch(&cell.offer()), cell.standing) {
            (Some(mismatch), _) => vec![mismatch.word()],
            (None, Standing::Evacuating) => vec!["evacuating".into()],
            (None, Standing::Cordoned) => vec![CORDONED.into()],
            (None, Standing::Unhealthy) => vec!["unhealthy".into()],
            (None, Standing::Silent) => vec!["silent".into()],
            (None, Standing::Open) => {
                board.free(number).lacks(order.resources()).map(|what| what.word().into()).collect()
            }
        };
        (cell.id.clone(), why.into_iter().map(Cow::into_owned).collect::<Vec<_>>())
    });
    all.filter(|(_, why)| !why.is_empty()).collect()
}
