//! Cells of a board, and their numbers.

use std::collections::BTreeSet;

use schemas::attributes::{Attributes, Offer};
use schemas::names::{CellId, PlacementTag, Stack, Zone};
use schemas::resources::Resources;

/// Cell that the log records as present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardCell {
    pub id: CellId,
    pub zone: Zone,
    pub stack: Stack,
    /// Tags of the cell. Work must require exactly these tags.
    pub placement_tags: BTreeSet<PlacementTag>,
    pub attributes: Attributes,
    pub total: Resources,
    pub free: Resources,
    pub standing: Standing,
}

impl BoardCell {
    /// Returns the properties that constraints are matched against.
    #[must_use]
    pub const fn offer(&self) -> Offer<'_> {
        Offer {
            cell_id: &self.id,
            zone: &self.zone,
            stack: &self.stack,
            placement_tags: &self.placement_tags,
            attributes: &self.attributes,
        }
    }
}

/// Reason why a cell that evacuates accepts no work.
pub(crate) const EVACUATING: &str = "evacuating";
/// Reason why a cell that an operator cordoned accepts no work.
pub(crate) const CORDONED: &str = "cordoned";
/// Reason why a cell whose self-test fails accepts no work.
pub(crate) const UNHEALTHY: &str = "unhealthy";
/// Reason why a cell that does not report accepts no work.
pub(crate) const SILENT: &str = "silent";

/// Availability of a cell for new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// The cell accepts work.
    Open,
    Evacuating,
    /// An operator excluded the cell from new work.
    Cordoned,
    /// The self-test of the cell fails.
    Unhealthy,
    /// The cell does not report its free resources, or did not answer the last message.
    Silent,
}

impl Standing {
    /// Returns the reason why the cell accepts no work, as text for errors and explanations. `None` if the
    /// cell accepts work.
    #[must_use]
    pub const fn closed_reason(self) -> Option<&'static str> {
        match self {
            Self::Open => None,
            Self::Evacuating => Some(EVACUATING),
            Self::Cordoned => Some(CORDONED),
            Self::Unhealthy => Some(UNHEALTHY),
            Self::Silent => Some(SILENT),
        }
    }
}

/// Converts a number to an index.
pub(crate) const fn to_index(number: u32) -> usize {
    number as usize
}

/// Converts an index to a number. Boards and batches have fewer than 2^32 elements.
pub(crate) fn to_number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}
