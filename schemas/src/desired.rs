//! The desired side of a process: a deployment that has one definition for now (docs/model.md, "Definitions and keys").

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::definition::{Definition, DesiredLrp, DesiredLrpUpdate, Routes};
use crate::names::DefinitionId;

/// What is desired of a process. Instances, routes and annotation change without restarting anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Desired {
    /// How many instances.
    pub instances: u32,
    /// Routing data.
    pub routes: Routes,
    /// The consumer's own text.
    pub annotation: String,
    /// The definitions that are in use.
    pub definitions: Vec<(DefinitionId, Arc<Definition>)>,
    /// The definition that new instances run.
    pub active_definition_id: DefinitionId,
    /// The newest definition of which an instance was ever RUNNING.
    pub healthy_definition_id: Option<DefinitionId>,
}

/// What happens to the desired side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The process was desired: a new epoch begins.
    Desired(Box<DesiredLrp>),
    /// Its scale, routes or annotation changed.
    Updated(DesiredLrpUpdate),
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
        }
    }
}

impl Desired {
    /// A definition by its id.
    #[must_use]
    pub fn definition(&self, id: &DefinitionId) -> Option<&Arc<Definition>> {
        self.definitions.iter().find(|(known, _)| known == id).map(|(_, definition)| definition)
    }

    /// The definition that instances start with outside a rollout: the one that is known to work (Updatable LRPs,
    /// "`UpdateLRPDeployment`"), or the active one while none is.
    #[must_use]
    pub fn restart_definition_id(&self) -> &DefinitionId {
        self.healthy_definition_id.as_ref().unwrap_or(&self.active_definition_id)
    }

    /// The part of an update that would change something; none: it is so already.
    #[must_use]
    pub fn difference(&self, update: &DesiredLrpUpdate) -> Option<DesiredLrpUpdate> {
        let difference = DesiredLrpUpdate {
            instances: update.instances.filter(|count| *count != self.instances),
            routes: update.routes.clone().filter(|routes| *routes != self.routes),
            annotation: update.annotation.clone().filter(|text| *text != self.annotation),
        };
        (difference != DesiredLrpUpdate::default()).then_some(difference)
    }
}

/// Folds what happened.
#[must_use]
pub fn evolve(desired: Option<Desired>, event: &Event) -> Option<Desired> {
    match event {
        Event::Desired(lrp) => Some(Desired {
            instances: lrp.instances,
            routes: lrp.routes.clone(),
            annotation: lrp.annotation.clone(),
            definitions: vec![(lrp.definition_id.clone(), Arc::clone(&lrp.definition))],
            active_definition_id: lrp.definition_id.clone(),
            healthy_definition_id: None,
        }),
        Event::Updated(update) => desired.map(|old| Desired {
            instances: update.instances.unwrap_or(old.instances),
            routes: update.routes.clone().unwrap_or(old.routes),
            annotation: update.annotation.clone().unwrap_or(old.annotation),
            ..old
        }),
        Event::Removed {} => None,
    }
}
