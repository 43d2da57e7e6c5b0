//! Evacuations: which reps must refuse new work, and which may delete live containers.
//!
//! An operator requests an evacuation. A rep must obey after it answered the order, or after a BBS that knew
//! the request allowed the rep to act for its cell. It may go on until the log records that it takes work again.

use std::collections::BTreeMap;

use schemas::cell;
use schemas::names::{CellId, Incarnation};
use schemas::subject::Position;

/// Evacuations in the log, and what the reps know of them.
#[derive(Default)]
pub(super) struct Evacuations {
    cells: BTreeMap<CellId, Cell>,
    /// Log position of each order to evacuate that no rep has answered.
    orders: BTreeMap<u64, Position>,
}

#[derive(Default)]
struct Cell {
    present: bool,
    evacuating: bool,
    incarnation: Option<Incarnation>,
    /// `true` while the rep may evacuate.
    may_go_on: bool,
    /// Position of the operator's request. `None` if it is withdrawn or over.
    requested: Option<Position>,
    /// Position of the request that the rep knows.
    known: Option<Position>,
}

impl Evacuations {
    /// Records an event of a cell.
    pub(super) fn recorded(&mut self, id: &CellId, event: &cell::Event, position: Position) {
        let cell = self.cells.entry(id.clone()).or_default();
        match event {
            cell::Event::Appeared(presence) => {
                let is_new = cell.incarnation != Some(presence.incarnation);
                if !cell.present && cell.evacuating && is_new {
                    // The cell was lost with all its containers.
                    (cell.requested, cell.known) = (None, None);
                }
                cell.may_go_on &= cell.requested.is_some() || !is_new;
                (cell.present, cell.evacuating) = (true, false);
                cell.incarnation = Some(presence.incarnation);
            }
            cell::Event::EvacuationRequested {} => (cell.requested, cell.may_go_on) = (Some(position), true),
            cell::Event::Evacuating {} => (cell.evacuating, cell.may_go_on) = (true, true),
            cell::Event::EvacuationWithdrawn {} => cell.requested = None,
            // A new order may have reached the rep before it reported the end of the last evacuation.
            cell::Event::Resumed {} => (cell.evacuating, cell.may_go_on) = (false, cell.requested.is_some()),
            cell::Event::Left {} => {
                *cell = Cell { incarnation: cell.incarnation, ..Cell::default() };
            }
            cell::Event::Disappeared { .. } => (cell.present, cell.known) = (false, None),
            cell::Event::Forgotten {} => (cell.evacuating, cell.requested) = (false, None),
            cell::Event::Cordoned {}
            | cell::Event::Uncordoned {}
            | cell::Event::Healthy {}
            | cell::Event::Unhealthy { .. } => {}
        }
    }

    /// Records that a BBS allows a rep to act for its cell.
    pub(super) fn attached(&mut self, id: &CellId, position: Position) {
        let cell = self.cells.entry(id.clone()).or_default();
        let goes_on = cell.present || !cell.evacuating;
        cell.known = cell.requested.filter(|requested| *requested <= position && goes_on);
    }

    /// Records an order to evacuate that reaches a rep.
    pub(super) fn ordered(&mut self, requester: u64, position: Position) {
        self.orders.insert(requester, position);
    }

    /// Records the answer of a rep to an order or a probe.
    pub(super) fn answered(&mut self, id: &CellId, requester: u64, evacuates: bool) {
        let Some(position) = self.orders.remove(&requester).filter(|_| evacuates) else { return };
        let cell = self.cells.entry(id.clone()).or_default();
        if let Some(requested) = cell.requested.filter(|requested| *requested <= position && cell.present) {
            cell.known = Some(requested);
        }
    }

    /// Returns `true` if the rep of a cell must refuse new work.
    pub(super) fn takes_nothing(&self, id: &CellId) -> bool {
        let knows = |cell: &Cell| cell.present && cell.known.is_some() && cell.known == cell.requested;
        self.cells.get(id).is_some_and(knows)
    }

    /// Returns `true` if the rep of a cell may evacuate it.
    pub(super) fn may_go_on(&self, id: &CellId) -> bool {
        self.cells.get(id).is_some_and(|cell| cell.may_go_on)
    }
}
