//! The desired state of a process: a deployment with its definitions (Updatable LRPs, "`LRPDeployment`";
//! docs/internals/model/definitions-and-rollouts.md, "Definitions and keys").

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

use schemas::definition::{Definition, DesiredLrp, DesiredLrpUpdate, Mode, Routes};
use schemas::desired::{Event, GlobalCell};
use schemas::names::{CellId, DefinitionId, Domain, ProcessGuid};
use schemas::policy::Policies;
use schemas::priority::Priority;

/// Desired state of a process. A change of the instance count, priority, routes or annotation restarts no
/// instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Desired {
    /// Desired number of instances.
    pub instances: u32,
    pub priority: Priority,
    /// Cells of a global process, keyed by their ordinals, which are the process's instance indices. `None`
    /// for a replicated process.
    #[expect(
        clippy::box_collection,
        reason = "hardly any process has some, and each would take the room of a map"
    )]
    pub cells: Option<Box<BTreeMap<u32, GlobalCell>>>,
    pub routes: Routes,
    /// Free text of the client.
    pub annotation: Box<str>,
    /// Policies for rollouts, rollbacks and restarts.
    pub policies: Arc<Policies>,
    /// Definitions in use, oldest first. Outside a rollout there is only one definition.
    pub definitions: SmallVec<[(DefinitionId, Arc<Definition>); 1]>,
    /// Active definition, which every instance has to run.
    pub active_definition_id: DefinitionId,
    /// Newest definition that proved healthy: one of its instances stayed RUNNING for the monitoring time of
    /// the rollout policy. Instances that restart outside a rollout use this definition. `None` if no
    /// definition has been healthy.
    pub healthy_definition_id: Option<DefinitionId>,
}

impl Desired {
    /// Returns a definition by its id.
    #[must_use]
    pub fn definition(&self, id: &DefinitionId) -> Option<&Arc<Definition>> {
        self.definitions.iter().find(|(known, _)| known == id).map(|(_, definition)| definition)
    }

    /// Returns the placement mode.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        match self.cells {
            None => Mode::Replicated,
            Some(_) => Mode::Global,
        }
    }

    /// Returns `true` if the process is global: one instance on each cell that fits.
    #[must_use]
    pub const fn is_global(&self) -> bool {
        self.cells.is_some()
    }

    /// Returns `true` if the process should have an instance at this index.
    #[must_use]
    pub fn desires_index(&self, index: u32) -> bool {
        self.cells.as_ref().map_or(index < self.instances, |cells| cells.contains_key(&index))
    }

    /// Returns the indices at which the process should have an instance, in order.
    pub fn indices(&self) -> impl Iterator<Item = u32> + Clone + use<'_> {
        let of_cells = self.cells.iter().flat_map(|cells| cells.keys()).copied();
        let dense = if self.is_global() { 0 } else { self.instances };
        (0..dense).chain(of_cells)
    }

    /// Returns the indices that take part in rollouts, in order.
    pub fn rolling_indices(&self) -> impl Iterator<Item = u32> + Clone + use<'_> {
        self.indices().filter(|index| self.is_rolling_index(*index))
    }

    /// Returns `true` if the index takes part in rollouts. Indices of cordoned cells take no part.
    #[must_use]
    pub fn is_rolling_index(&self, index: u32) -> bool {
        self.desires_index(index) && !self.is_cordoned(index)
    }

    /// Returns `true` if the index belongs to a cordoned cell of a global process.
    #[must_use]
    pub fn is_cordoned(&self, index: u32) -> bool {
        self.cells.as_ref().and_then(|cells| cells.get(&index)).is_some_and(|cell| cell.cordoned)
    }

    /// Returns the only cell that may run this index, or `None` if any cell may run it.
    #[must_use]
    pub fn only_cell(&self, index: u32) -> Option<&CellId> {
        self.cells.as_ref()?.get(&index).map(|cell| &cell.cell_id)
    }

    /// Returns the part of an update that differs from the current state, or `None` if nothing changes.
    #[must_use]
    pub fn difference(&self, update: &DesiredLrpUpdate) -> Option<DesiredLrpUpdate> {
        let difference = DesiredLrpUpdate {
            instances: update.instances.filter(|count| *count != self.instances),
            priority: update.priority.filter(|priority| *priority != self.priority),
            routes: update.routes.clone().filter(|routes| *routes != self.routes),
            annotation: update.annotation.clone().filter(|text| **text != *self.annotation),
            policies: update.policies.clone().filter(|policies| *policies != *self.policies),
        };
        (difference != DesiredLrpUpdate::default()).then_some(difference)
    }

    /// Returns the DesiredLRP with the active definition (Updatable LRPs, "Projection of an `LRPDeployment`
    /// entity down to a DesiredLRP entity"). `None` if the active definition is missing, which cannot happen
    /// with a valid log.
    #[must_use]
    pub fn project(&self, process_guid: &ProcessGuid, domain: &Domain) -> Option<DesiredLrp> {
        let definition = self.definition(&self.active_definition_id)?;
        Some(DesiredLrp {
            process_guid: process_guid.clone(),
            domain: domain.clone(),
            mode: self.mode(),
            instances: if self.is_global() { 0 } else { self.instances },
            priority: self.priority,
            routes: self.routes.clone(),
            annotation: self.annotation.to_string(),
            policies: Policies::clone(&self.policies),
            definition_id: self.active_definition_id.clone(),
            definition: Arc::clone(definition),
        })
    }
}

/// Applies an event.
#[must_use]
pub fn evolve(desired: Option<Desired>, event: &Event) -> Option<Desired> {
    match event {
        Event::Desired(lrp) => Some(Desired {
            instances: lrp.instances,
            priority: lrp.priority,
            cells: (lrp.mode == Mode::Global).then(Box::default),
            routes: lrp.routes.clone(),
            annotation: lrp.annotation.as_str().into(),
            policies: Arc::new(lrp.policies.clone()),
            definitions: smallvec![(lrp.definition_id.clone(), Arc::clone(&lrp.definition))],
            active_definition_id: lrp.definition_id.clone(),
            healthy_definition_id: None,
        }),
        Event::Updated(update) => desired.map(|old| Desired {
            instances: update.instances.unwrap_or(old.instances),
            priority: update.priority.unwrap_or(old.priority),
            routes: update.routes.clone().unwrap_or(old.routes),
            annotation: update.annotation.as_deref().map_or(old.annotation, Into::into),
            policies: update.policies.clone().map_or(old.policies, Arc::new),
            ..old
        }),
        Event::DefinitionAdded { definition_id, definition } => desired.map(|mut old| {
            old.definitions.retain(|(known, _)| known != definition_id);
            old.definitions.push((definition_id.clone(), Arc::clone(definition)));
            old
        }),
        Event::Activated { definition_id } => {
            desired.map(|old| Desired { active_definition_id: definition_id.clone(), ..old })
        }
        Event::HealthyChanged { definition_id } => {
            desired.map(|old| Desired { healthy_definition_id: Some(definition_id.clone()), ..old })
        }
        Event::Pruned { definition_ids } => desired.map(|mut old| {
            old.definitions.retain(|(known, _)| !definition_ids.contains(known));
            old
        }),
        Event::CellsChanged { cells, removed } => desired.map(|mut old| {
            let known = old.cells.get_or_insert_default();
            known.retain(|index, _| !removed.contains(*index));
            known.extend(cells.iter().cloned());
            old.instances = u32::try_from(known.len()).unwrap_or(u32::MAX);
            old
        }),
        Event::Removed {} => None,
    }
}
