//! The key of an ActualLRP (Updatable LRPs, "Corresponding changes to ActualLRPs"): a process, an index, and
//! the definition that runs there. Two definitions at the same index are two ActualLRPs.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::indices::Indices;
use crate::names::{DefinitionId, ProcessGuid};

/// Slot of a process: an instance index and the definition that runs there. Ordered by index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    /// Instance index.
    pub index: u32,
    /// Definition that runs at the index.
    pub definition_id: DefinitionId,
}

/// Key of an ActualLRP.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ActualLrpKey {
    /// Process of the instance.
    pub process_guid: ProcessGuid,
    /// Slot of the instance.
    pub place: Place,
}

/// Slots of one definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    pub indices: Indices,
    pub definition_id: DefinitionId,
}

impl Place {
    /// Returns the slot of a definition at an index.
    #[must_use]
    pub const fn new(index: u32, definition_id: DefinitionId) -> Self {
        Self { index, definition_id }
    }
}

impl ActualLrpKey {
    /// Returns the key of a slot of a process.
    #[must_use]
    pub const fn new(process_guid: ProcessGuid, place: Place) -> Self {
        Self { process_guid, place }
    }

    /// Returns a lower bound for the keys of a process: no key of the process sorts before it.
    #[must_use]
    pub fn lower_bound(process_guid: ProcessGuid) -> Self {
        Self::new(process_guid, Place::new(0, DefinitionId::min_value()))
    }

    /// Returns the key with its definition, such as `web/0@v2`. Used where two instances may share an index.
    #[must_use]
    pub fn with_definition(&self) -> String {
        format!("{self}@{}", self.place.definition_id)
    }
}

impl fmt::Display for ActualLrpKey {
    /// Writes the short form, such as `web/0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.process_guid, self.place.index)
    }
}

impl Places {
    /// Returns an iterator over the slots, in order.
    pub fn iter(&self) -> impl Iterator<Item = Place> + '_ {
        self.indices.iter().map(|index| Place::new(index, self.definition_id.clone()))
    }

    /// Returns `true` if `place` is one of these slots.
    #[must_use]
    pub fn contains(&self, place: &Place) -> bool {
        self.definition_id == place.definition_id && self.indices.contains(place.index)
    }
}

impl From<Place> for Places {
    fn from(place: Place) -> Self {
        Self { indices: place.index.into(), definition_id: place.definition_id }
    }
}
