//! The key of an ActualLRP (Updatable LRPs, "Corresponding changes to ActualLRPs"): a process, an index, and the
//! definition that runs there. What shares an index but not the definition is another ActualLRP.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::indices::Indices;
use crate::names::{DefinitionId, ProcessGuid};

/// Where an instance of a process has its place: an index, and the definition that it runs there. In order of the
/// indices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    /// The index.
    pub index: u32,
    /// The definition.
    pub definition_id: DefinitionId,
}

/// Names an ActualLRP.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ActualLrpKey {
    /// The process.
    pub process_guid: ProcessGuid,
    /// The place in it.
    pub place: Place,
}

/// Places of one definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The indices.
    pub indices: Indices,
    /// The definition.
    pub definition_id: DefinitionId,
}

impl Place {
    /// The place of a definition at an index.
    #[must_use]
    pub const fn new(index: u32, definition_id: DefinitionId) -> Self {
        Self { index, definition_id }
    }
}

impl ActualLrpKey {
    /// The key of a place of a process.
    #[must_use]
    pub const fn new(process_guid: ProcessGuid, place: Place) -> Self {
        Self { process_guid, place }
    }

    /// No key of the process is before this one in their order.
    #[must_use]
    pub fn least_of(process_guid: ProcessGuid) -> Self {
        Self::new(process_guid, Place::new(0, DefinitionId::least()))
    }

    /// With its definition, for where an index alone could be two instances: `web/0@v2`.
    #[must_use]
    pub fn in_full(&self) -> String {
        format!("{self}@{}", self.place.definition_id)
    }
}

impl fmt::Display for ActualLrpKey {
    /// As users write it: `web/0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.process_guid, self.place.index)
    }
}

impl Places {
    /// Each place, in order.
    pub fn iter(&self) -> impl Iterator<Item = Place> + '_ {
        self.indices.iter().map(|index| Place::new(index, self.definition_id.clone()))
    }

    /// Whether a place is one of them.
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
