//! Cells of a global process. A global process has one instance on each cell that fits its active definition.
//! The index of the instance is the ordinal of the cell (SwarmKit orchestrators, "Global orchestrator"). A
//! lost or evacuating cell leaves the set of cells, and its instance is not started on another cell.

use std::collections::{BTreeMap, BTreeSet};

use super::Process;
use super::draft::Draft;
use crate::actual::Actual;
use crate::cell::Cell;
use crate::desired::Desired;
use schemas::actual::{self, StopReason};
use schemas::attributes::AttributeName;
use schemas::definition::Definition;
use schemas::desired::{self, GlobalCell};
use schemas::evaluation::Trigger;
use schemas::indices::Indices;
use schemas::key::Place;
use schemas::names::CellId;
use schemas::process::Report;
use schemas::refusal::{Code, Refusal};
use schemas::rules::{Distinct, Rules};

/// Change of the cell at one index.
struct Change {
    index: u32,
    /// New cell of the index. `None` if the current cell leaves the index.
    cell: Option<GlobalCell>,
}

impl Draft<'_> {
    /// Applies every change of cells. `trigger` is recorded as the trigger of the resulting work.
    pub(super) fn follow_cells(&mut self, trigger: Trigger) {
        let changes = self.cell_changes();
        self.apply_cell_changes(changes, trigger);
    }

    /// Applies only the first change of a cell, so that the decision has a single cause. Returns `true` if a
    /// change was applied.
    pub(super) fn follow_one_cell(&mut self) -> bool {
        let first: Vec<Change> = self.cell_changes().into_iter().take(1).collect();
        let followed = !first.is_empty();
        self.apply_cell_changes(first, Trigger::CellsChanged);
        followed
    }

    /// Returns the differences between the current cells and the required cells of the process.
    fn cell_changes(&self) -> Vec<Change> {
        let Some((desired, known)) = self.desired().and_then(|known| Some((known, known.cells.as_ref()?)))
        else {
            return vec![];
        };
        let mut fitting = self.fitting_cells(desired);
        // A new cell takes an index only after the previous cell has left.
        let left = known
            .iter()
            .filter(|(index, cell)| fitting.get(index).is_none_or(|fitting| fitting.cell_id != cell.cell_id));
        let mut changes: Vec<Change> = left.map(|(index, _)| Change { index: *index, cell: None }).collect();
        fitting.retain(|index, cell| known.get(index) != Some(cell));
        let news = fitting.into_iter().map(|(index, cell)| Change { index, cell: Some(cell) });
        changes.extend(news);
        changes
    }

    /// Returns the available cells that fit the active definition, by ordinal.
    fn fitting_cells(&self, desired: &Desired) -> BTreeMap<u32, GlobalCell> {
        let mut fitting = BTreeMap::new();
        let Some(definition) = desired.definition(&desired.active_definition_id) else { return fitting };
        (self.context.for_each_cell)(&mut |ordinal, id, cell| {
            if fits(definition, id, cell) && is_available(cell) {
                let cell = GlobalCell { cell_id: id.clone(), cordoned: cell.cordoned };
                fitting.insert(ordinal, cell);
            }
        });
        fitting
    }

    fn apply_cell_changes(&mut self, changes: Vec<Change>, trigger: Trigger) {
        if changes.is_empty() {
            return;
        }
        let left: Vec<(u32, CellId)> = changes
            .iter()
            .filter(|change| change.cell.is_none())
            .filter_map(|change| Some((change.index, self.desired()?.only_cell(change.index)?.clone())))
            .collect();
        let indices: Vec<u32> = changes.iter().map(|change| change.index).collect();
        let cells = changes.into_iter().filter_map(|change| Some((change.index, change.cell?))).collect();
        let indices_left: Indices = left.iter().map(|(index, _)| *index).collect();
        self.record_desired(desired::Event::CellsChanged { cells, removed: indices_left });
        left.iter().for_each(|(index, cell)| self.end_departed(*index, cell));
        self.settle_each(&indices, trigger);
    }

    /// Ends the instances at an index after the cell of the index has left.
    fn end_departed(&mut self, index: u32, cell: &CellId) {
        let cause = self.departure_cause(index, cell);
        let is_lost = |lrp: &Actual| lrp.holder().is_some_and(|by| !(self.context.is_present)(&by.cell_id));
        let there: Vec<(Place, bool)> =
            self.actuals_at(index).map(|(place, lrp)| (place.clone(), is_lost(lrp))).collect();
        for (place, lost) in there {
            if lost {
                self.record(actual::Event::Removed { places: place.into(), cause: StopReason::CellLost });
            } else {
                self.end(vec![place], cause);
            }
        }
    }

    /// Returns an error if the report comes from a cell that does not own the index.
    pub(super) fn check_cell(&self, report: &Report, code: Code) -> Result<(), Refusal> {
        let index = report.place.index;
        let only = self.desired().and_then(|desired| desired.only_cell(index));
        match only.filter(|only| **only != report.by.cell_id) {
            None => Ok(()),
            Some(only) => Err(Refusal::new(code, format!("index {index} belongs to cell {only}"))),
        }
    }

    /// Returns an error if a claim exceeds a limit on instances per cell or attribute value. Auctions respect
    /// these limits, but a new auctioneer does not know the pending placements of its predecessor. The log
    /// contains the claims of these placements, so this check finds conflicts.
    pub(super) fn check_distinct(&self, report: &Report) -> Result<(), Refusal> {
        let definition = self.desired().and_then(|desired| desired.definition(&report.place.definition_id));
        let rules = definition.and_then(|definition| definition.constraint.rules.as_deref());
        for (at, distinct) in rules.into_iter().flat_map(Rules::distinct) {
            let (there, most) = match distinct {
                Distinct::Cell { max } => (self.count_retained(&|id| *id == report.by.cell_id), max),
                Distinct::Attribute { attribute, max: most } => {
                    let alike = self.cells_with_same_value(&report.by.cell_id, attribute);
                    (self.count_retained(&|id| alike.contains(id)), most)
                }
            };
            if there >= most as usize {
                let rule = rules.map(|rules| rules.constraints[at].to_string()).unwrap_or_default();
                let why = format!("constraint {rule}: instances of the process already there: {there}");
                return Err(Refusal::new(Code::ActualLrpCannotBeClaimed, why));
            }
        }
        Ok(())
    }

    fn count_retained(&self, there: &dyn Fn(&CellId) -> bool) -> usize {
        let staying = self.process.into_iter().flat_map(Process::retained_containers);
        staying.filter(|by| there(&by.cell_id)).count()
    }

    /// Returns the cells with the same value of an attribute as this cell.
    fn cells_with_same_value(&self, id: &CellId, attribute: &AttributeName) -> BTreeSet<CellId> {
        let mut values: BTreeMap<CellId, String> = BTreeMap::new();
        (self.context.for_each_cell)(&mut |_, id, cell| {
            let value = cell.presence.offer(id).attribute(attribute.as_str());
            values.extend(value.map(|value| (id.clone(), value.to_owned())));
        });
        let Some(is) = values.get(id).cloned() else { return BTreeSet::new() };
        values.into_iter().filter(|(_, value)| *value == is).map(|(id, _)| id).collect()
    }

    /// Returns the reason to stop an instance whose cell no longer owns the index. The cell evacuates, it no
    /// longer fits, or it was lost. A cell counts as lost even if it has returned after the loss, perhaps
    /// with another ordinal.
    pub(super) fn departure_cause(&self, index: u32, id: &CellId) -> StopReason {
        let active = self.desired().and_then(|desired| desired.definition(&desired.active_definition_id));
        let mut cause = StopReason::CellLost;
        (self.context.for_each_cell)(&mut |ordinal, numbered, cell| {
            if ordinal == index && numbered == id && cell.present {
                cause =
                    match (is_available(cell), active.is_some_and(|definition| fits(definition, id, cell))) {
                        (false, _) => StopReason::Evacuated,
                        (true, false) => StopReason::CellUnfit,
                        (true, true) => StopReason::CellLost,
                    };
            }
        });
        cause
    }
}

/// Returns `true` if a cell meets the constraints of a definition.
fn fits(definition: &Definition, id: &CellId, cell: &Cell) -> bool {
    definition.constraint.mismatch(&cell.presence.offer(id)).is_none()
}

/// Returns `true` if the state of the cell allows a global process. Does not check whether the cell fits.
const fn is_available(cell: &Cell) -> bool {
    cell.present && !cell.evacuating && !cell.evacuation_requested
}
