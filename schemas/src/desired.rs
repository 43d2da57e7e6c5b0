//! The desired side of a process: a deployment with its definitions (Updatable LRPs, "`LRPDeployment`"; docs/model.md,
//! "Definitions and keys").

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

use crate::definition::{Definition, DesiredLrp, DesiredLrpUpdate, Mode, Routes};
use crate::indices::Indices;
use crate::names::{CellId, DefinitionId, Domain, ProcessGuid};
use crate::policy::Policies;
use crate::rank::Priority;

/// What is desired of a process. Instances, priority, routes and annotation change without restarting anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Desired {
    /// How many instances.
    pub instances: u32,
    /// How urgent it is.
    pub priority: Priority,
    /// The cells of a global process by their ordinals, which are its indices; none: it is replicated.
    #[expect(
        clippy::box_collection,
        reason = "hardly any process has some, and each would take the room of a map"
    )]
    pub cells: Option<Box<BTreeMap<u32, GlobalCell>>>,
    /// Routing data.
    pub routes: Routes,
    /// The consumer's own text.
    pub annotation: Box<str>,
    /// How its instances are replaced.
    pub policies: Arc<Policies>,
    /// The definitions that are in use, in the order in which they came: one, but for rollouts.
    pub definitions: SmallVec<[(DefinitionId, Arc<Definition>); 1]>,
    /// The definition that every instance shall run.
    pub active_definition_id: DefinitionId,
    /// The newest definition of which an instance was RUNNING and survived its monitor: instances that restart outside a
    /// rollout run it. None: no definition ever did.
    pub healthy_definition_id: Option<DefinitionId>,
}

/// A cell on which a global process runs an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GlobalCell {
    /// Which cell.
    pub cell_id: CellId,
    /// Whether it takes no new work: what is there stays as it is, and rollouts pass it over.
    pub cordoned: bool,
}

/// What happens to the desired side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The process was desired: a new epoch begins.
    Desired(Box<DesiredLrp>),
    /// Its scale, priority, routes, annotation or policies changed.
    Updated(DesiredLrpUpdate),
    /// A definition came to it.
    DefinitionAdded {
        /// Its id.
        definition_id: DefinitionId,
        /// What each instance runs.
        definition: Arc<Definition>,
    },
    /// Every instance shall run this definition.
    Activated {
        /// Which.
        definition_id: DefinitionId,
    },
    /// A definition is known to work, and instances restart with it.
    HealthyChanged {
        /// Which.
        definition_id: DefinitionId,
    },
    /// Definitions that nothing uses any more are gone.
    Pruned {
        /// Which.
        definition_ids: Vec<DefinitionId>,
    },
    /// A global process runs on other cells: some came or changed, some left.
    CellsChanged {
        /// The cells that came or changed, each with its ordinal.
        cells: Vec<(u32, GlobalCell)>,
        /// The ordinals of those that left.
        left: Indices,
    },
    /// Nobody desires it.
    Removed {},
}

impl Event {
    /// Whether it says how many instances shall run.
    #[must_use]
    pub const fn says_how_many(&self) -> bool {
        match self {
            Self::Desired(_) | Self::Removed {} => true,
            Self::Updated(update) => update.instances.is_some(),
            Self::DefinitionAdded { .. }
            | Self::Activated { .. }
            | Self::HealthyChanged { .. }
            | Self::Pruned { .. }
            | Self::CellsChanged { .. } => false,
        }
    }
}

impl Desired {
    /// A definition by its id.
    #[must_use]
    pub fn definition(&self, id: &DefinitionId) -> Option<&Arc<Definition>> {
        self.definitions.iter().find(|(known, _)| known == id).map(|(_, definition)| definition)
    }

    /// Where its instances run.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        match self.cells {
            None => Mode::Replicated,
            Some(_) => Mode::Global,
        }
    }

    /// Whether it runs on each cell that fits.
    #[must_use]
    pub const fn is_global(&self) -> bool {
        self.cells.is_some()
    }

    /// Whether an instance is desired at an index.
    #[must_use]
    pub fn has(&self, index: u32) -> bool {
        self.cells.as_ref().map_or(index < self.instances, |cells| cells.contains_key(&index))
    }

    /// The indices at which an instance is desired, in order.
    pub fn indices(&self) -> impl Iterator<Item = u32> + Clone + use<'_> {
        let of_cells = self.cells.iter().flat_map(|cells| cells.keys()).copied();
        let dense = if self.is_global() { 0 } else { self.instances };
        (0..dense).chain(of_cells)
    }

    /// The indices at which a rollout replaces what is there, in order.
    pub fn rolling_indices(&self) -> impl Iterator<Item = u32> + Clone + use<'_> {
        self.indices().filter(|index| self.rolls(*index))
    }

    /// Whether a rollout replaces what is at an index: not on a cell that takes no new work.
    #[must_use]
    pub fn rolls(&self, index: u32) -> bool {
        self.has(index) && !self.is_cordoned(index)
    }

    /// Whether the index of a global process is that of a cell that takes no new work.
    #[must_use]
    pub fn is_cordoned(&self, index: u32) -> bool {
        self.cells.as_ref().and_then(|cells| cells.get(&index)).is_some_and(|cell| cell.cordoned)
    }

    /// The only cell on which an index may run; none: any.
    #[must_use]
    pub fn only_cell(&self, index: u32) -> Option<&CellId> {
        self.cells.as_ref()?.get(&index).map(|cell| &cell.cell_id)
    }

    /// The part of an update that would change something; none: it is so already.
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

    /// It as a DesiredLRP of one definition, the active one (Updatable LRPs, "Projection of an `LRPDeployment` entity down
    /// to a DesiredLRP entity"). None: that definition isn't there, which no valid log says.
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

/// Folds what happened.
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
        Event::CellsChanged { cells, left } => desired.map(|mut old| {
            let known = old.cells.get_or_insert_default();
            known.retain(|index, _| !left.contains(*index));
            known.extend(cells.iter().cloned());
            old.instances = u32::try_from(known.len()).unwrap_or(u32::MAX);
            old
        }),
        Event::Removed {} => None,
    }
}
