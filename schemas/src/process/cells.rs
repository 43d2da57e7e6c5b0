//! Which cells a global process runs on: one instance on each cell that fits its active definition, at the index that is the
//! cell's ordinal (SwarmKit orchestrators, "Global orchestrator"). A cell that is lost or evacuates leaves, and nothing
//! takes its place elsewhere.

use std::collections::BTreeMap;

use super::Report;
use super::draft::Draft;
use crate::actual::{self, Actual, Ended};
use crate::cell::Cell;
use crate::desired::{self, Desired, GlobalCell};
use crate::evaluation::Trigger;
use crate::indices::Indices;
use crate::key::Place;
use crate::refusal::{Code, Refusal};

/// What is to change at one index.
struct Change {
    index: u32,
    /// The cell that is to be there; none: the one that is leaves.
    cell: Option<GlobalCell>,
}

impl Draft<'_> {
    /// Follows every cell that came, changed or left, for whatever makes work there.
    pub(super) fn follow_cells(&mut self, trigger: Trigger) {
        let changes = self.changes_of_cells();
        self.change_cells(changes, trigger);
    }

    /// Follows one cell, so that what comes of it has one cause. Answers whether there was one.
    pub(super) fn follow_a_cell(&mut self) -> bool {
        let first: Vec<Change> = self.changes_of_cells().into_iter().take(1).collect();
        let followed = !first.is_empty();
        self.change_cells(first, Trigger::CellsChanged);
        followed
    }

    /// What of the cells that it runs on is not so any more.
    fn changes_of_cells(&self) -> Vec<Change> {
        let Some((desired, known)) = self.desired().and_then(|known| Some((known, known.cells.as_ref()?)))
        else {
            return vec![];
        };
        let mut fitting = self.fitting_cells(desired);
        // Another cell at an index comes once the one before has left.
        let left = known
            .iter()
            .filter(|(index, cell)| fitting.get(index).is_none_or(|fitting| fitting.cell_id != cell.cell_id));
        let mut changes: Vec<Change> = left.map(|(index, _)| Change { index: *index, cell: None }).collect();
        fitting.retain(|index, cell| known.get(index) != Some(cell));
        let news = fitting.into_iter().map(|(index, cell)| Change { index, cell: Some(cell) });
        changes.extend(news);
        changes
    }

    /// The cells that fit the active definition, by their ordinals.
    fn fitting_cells(&self, desired: &Desired) -> BTreeMap<u32, GlobalCell> {
        let mut fitting = BTreeMap::new();
        let Some(definition) = desired.definition(&desired.active_definition_id) else { return fitting };
        (self.context.numbered)(&mut |ordinal, id, cell| {
            let presence = &cell.presence;
            let fits = definition.constraint.mismatch(&presence.stack, &presence.placement_tags).is_none();
            if fits && stays(cell) {
                let cell = GlobalCell { cell_id: id.clone(), cordoned: cell.cordoned };
                fitting.insert(ordinal, cell);
            }
        });
        fitting
    }

    fn change_cells(&mut self, changes: Vec<Change>, trigger: Trigger) {
        if changes.is_empty() {
            return;
        }
        let left: Indices =
            changes.iter().filter(|change| change.cell.is_none()).map(|change| change.index).collect();
        let indices: Vec<u32> = changes.iter().map(|change| change.index).collect();
        let cells = changes.into_iter().filter_map(|change| Some((change.index, change.cell?))).collect();
        self.record_desired(desired::Event::CellsChanged { cells, left: left.clone() });
        left.iter().for_each(|index| self.leave(index));
        self.settle_each(&indices, trigger);
    }

    /// Ends what is at an index whose cell left.
    fn leave(&mut self, index: u32) {
        let there: Vec<(Place, Ended)> =
            self.actuals_at(index).map(|(place, lrp)| (place.clone(), self.end_of(lrp))).collect();
        for (place, cause) in there {
            match cause {
                Ended::CellLost => self.record(actual::Event::Removed { places: place.into(), cause }),
                Ended::Evacuated
                | Ended::Scale
                | Ended::Removed
                | Ended::Retired
                | Ended::Superseded
                | Ended::Undesired
                | Ended::Stopped
                | Ended::Crashed
                | Ended::Replaced
                | Ended::RolloutFailed => self.end(vec![place], cause),
            }
        }
    }

    /// A cell takes work only at the index that is its own.
    pub(super) fn check_cell(&self, report: &Report, code: Code) -> Result<(), Refusal> {
        let index = report.place.index;
        let only = self.desired().and_then(|desired| desired.only_cell(index));
        match only.filter(|only| **only != report.by.cell_id) {
            None => Ok(()),
            Some(only) => Err(Refusal::new(code, format!("index {index} belongs to cell {only}"))),
        }
    }

    /// Why an instance ends whose cell left: the cell is lost, or evacuates, or doesn't fit any more.
    fn end_of(&self, lrp: &Actual) -> Ended {
        let Some(by) = lrp.holder() else { return Ended::Scale };
        if !(self.context.present)(&by.cell_id) {
            return Ended::CellLost;
        }
        let mut cause = Ended::Scale;
        (self.context.numbered)(&mut |_, id, cell| {
            if *id == by.cell_id && !stays(cell) {
                cause = Ended::Evacuated;
            }
        });
        cause
    }
}

/// Whether a global process runs on a cell, if that fits.
const fn stays(cell: &Cell) -> bool {
    cell.present && !cell.evacuating && !cell.evacuation_wanted
}
