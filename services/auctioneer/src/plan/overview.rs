//! Index of the instances of a plan. The index contains the number of staying instances per cell, and the
//! unsettled instances: instances that are not RUNNING or will not stay. With this index, a step needs no
//! pass over all instances. Each event updates only the affected indices of its process.

use std::collections::{BTreeMap, BTreeSet};

use machines::actual::Actual;
use machines::process::Process;
use schemas::Place;
use schemas::entry::Event;
use schemas::names::{CellId, DefinitionId, ProcessGuid};

use crate::auction::Siblings;

/// Number of staying instances per cell, and the unsettled instances.
#[derive(Clone, Debug, Default)]
pub(super) struct Overview {
    /// Places (index and definition) of unsettled instances.
    unsettled: BTreeSet<(ProcessGuid, Place)>,
    /// Number of staying instances per process and cell.
    siblings: Siblings,
    /// Cells of the counted instances, by process and index.
    counted_cells: BTreeMap<(ProcessGuid, u32), Vec<CellId>>,
}

impl Overview {
    /// Returns the places of unsettled instances.
    pub(super) fn unsettled(&self) -> impl Iterator<Item = &(ProcessGuid, Place)> {
        self.unsettled.iter()
    }

    /// Returns the number of staying instances per process and cell.
    pub(super) const fn siblings(&self) -> &Siblings {
        &self.siblings
    }

    /// Adds or updates every index of a process.
    pub(super) fn update(&mut self, process: &Process) {
        indices(process).into_iter().for_each(|index| self.update_index(process, index));
    }

    /// Updates the indices that the events affect. The caller must have applied the events to the process.
    pub(super) fn update_for_events(&mut self, process: &Process, events: &[Event]) {
        let mut about = BTreeSet::new();
        for event in events {
            match event {
                Event::Actual(event) => about.extend(event.places().iter().map(|place| place.index)),
                Event::Rollout(event) => match event.indices() {
                    Some(some) => about.extend(some.iter()),
                    None => about.extend(indices(process)),
                },
                Event::Desired(_) => about.extend(indices(process)),
                Event::Evacuating(_)
                | Event::Evaluation(_)
                | Event::Task(_)
                | Event::Periodic(_)
                | Event::Parameterised(_)
                | Event::Domain(_)
                | Event::Cell(_)
                | Event::Cluster(_) => {}
            }
        }
        about.into_iter().for_each(|index| self.update_index(process, index));
    }

    fn update_index(&mut self, process: &Process, index: u32) {
        let guid = &process.guid;
        for cell in self.counted_cells.remove(&(guid.clone(), index)).unwrap_or_default() {
            self.uncount(guid, &cell);
        }
        let stay: Vec<CellId> = process.retained_containers_at(index).map(|by| by.cell_id.clone()).collect();
        stay.iter().for_each(|cell| self.count(guid, cell));
        self.counted_cells.insert((guid.clone(), index), stay);

        let key = |place: Place| (guid.clone(), place);
        let from = key(Place::new(index, DefinitionId::min_value()));
        let of_index = |(of, place): &&(ProcessGuid, Place)| of == guid && place.index == index;
        let known: Vec<_> = self.unsettled.range(from..).take_while(of_index).cloned().collect();
        for gone in known {
            self.unsettled.remove(&gone);
        }
        let is_moving = |lrp: &Actual| lrp.is_unclaimed() || lrp.holder().is_some() && !lrp.keeps_running();
        let moving = process.actuals_at(index).filter(|(_, lrp)| is_moving(lrp));
        self.unsettled.extend(moving.map(|(place, _)| key(place.clone())));
    }

    /// Counts one staying instance on a cell.
    pub(super) fn count(&mut self, guid: &ProcessGuid, cell: &CellId) {
        *self.siblings.entry(guid.clone()).or_default().entry(cell.clone()).or_default() += 1;
    }

    fn uncount(&mut self, guid: &ProcessGuid, cell: &CellId) {
        let Some(on) = self.siblings.get_mut(guid) else { return };
        match on.get_mut(cell) {
            Some(known) if *known > 1 => *known -= 1,
            Some(_) | None => {
                on.remove(cell);
            }
        }
    }
}

/// Returns the indices at which a process has records.
fn indices(process: &Process) -> BTreeSet<u32> {
    process.slots.iter().map(|slot| slot.place.index).collect()
}
