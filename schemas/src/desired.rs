//! Events of the desired state of a process.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::definition::{Definition, DesiredLrp, DesiredLrpUpdate};
use crate::indices::Indices;
use crate::names::{CellId, DefinitionId};

/// Cell on which a global process runs an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GlobalCell {
    pub cell_id: CellId,
    /// `true` if the cell takes no new work: running work stays, and rollouts skip the cell.
    pub cordoned: bool,
}

/// Event of the desired state of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The process was created, which starts a new epoch.
    Desired(Box<DesiredLrp>),
    /// The instance count, priority, routes, annotation or policies changed.
    Updated(DesiredLrpUpdate),
    /// A definition was added.
    DefinitionAdded { definition_id: DefinitionId, definition: Arc<Definition> },
    /// A definition became active. Every instance has to run it.
    Activated { definition_id: DefinitionId },
    /// A definition became healthy. Restarted instances use it.
    HealthyChanged { definition_id: DefinitionId },
    /// Unused definitions were removed.
    Pruned { definition_ids: Vec<DefinitionId> },
    /// The cells of a global process changed.
    CellsChanged {
        /// Cells that joined or changed, each with its ordinal.
        cells: Vec<(u32, GlobalCell)>,
        /// Ordinals of the cells that left.
        removed: Indices,
    },
    /// The process was removed.
    Removed {},
}

impl Event {
    /// Returns `true` if the event sets the number of instances.
    #[must_use]
    pub const fn sets_instance_count(&self) -> bool {
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
