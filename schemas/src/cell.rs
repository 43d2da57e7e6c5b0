//! Commands and events of cells, and the properties that a rep reports.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::attributes::{Attributes, Offer};
use crate::names::{CellId, FolderId, Incarnation, PlacementTag, Stack, Zone};
use crate::request;
use crate::resources::Resources;
use crate::verb::OperatorVerb;

/// Properties of a cell as its rep reports them. Recorded when the cell appears or the properties change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Presence {
    /// Data folder of the rep. While this rep is alive, a rep with a different folder must not represent the
    /// cell.
    pub folder: FolderId,
    /// Incarnation of the rep: a new id for each run of its program.
    pub incarnation: Incarnation,
    /// Zone of the cell.
    pub zone: Zone,
    /// Stack that the cell offers.
    pub stack: Stack,
    /// Tags of the cell. Only work that names all these tags is placed here.
    pub placement_tags: BTreeSet<PlacementTag>,
    /// Other attributes that the rep reports.
    pub attributes: Attributes,
    /// Total resources of the cell.
    pub total: Resources,
}

impl Presence {
    /// Returns the properties that placement constraints are matched against, for the cell with this id.
    #[must_use]
    pub const fn offer<'a>(&'a self, cell_id: &'a CellId) -> Offer<'a> {
        let Self { folder: _, incarnation: _, zone, stack, placement_tags, attributes, total: _ } = self;
        Offer { cell_id, zone, stack, placement_tags, attributes }
    }
}

/// State of a cell's evacuation that a rep needs before it takes work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Evacuation {
    /// No evacuation is requested.
    #[default]
    None,
    /// An operator requested an evacuation, and no rep has started it.
    Requested,
    /// A rep started the evacuation at this time. A restart of the rep does not reset the time-out.
    Started(Timestamp),
}

/// Command of an operator about a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Move all work away from the cell; the rep leaves afterwards.
    Evacuate,
    /// Place no new work on the cell; running work stays.
    Cordon,
    /// Withdraw an evacuation and a cordon. The cell takes work again if it is present.
    Uncordon,
    /// Remove an absent cell from the tables.
    Forget,
}

impl Command {
    /// Returns the verb of its subject.
    #[must_use]
    pub const fn verb(self) -> OperatorVerb {
        match self {
            Self::Evacuate => OperatorVerb::CellEvacuate,
            Self::Cordon => OperatorVerb::CellCordon,
            Self::Uncordon => OperatorVerb::CellUncordon,
            Self::Forget => OperatorVerb::CellForget,
        }
    }

    /// Returns the digest of the command for this cell. A repeated request has the same digest.
    #[must_use]
    pub fn digest(self, id: &CellId) -> String {
        request::digest(self.verb().noun_and_verb(), id)
    }
}

/// Event of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The cell appeared, or its rep started again with a new incarnation.
    Appeared(Presence),
    /// An operator requested that the cell be evacuated.
    EvacuationRequested {},
    /// An operator withdrew the evacuation.
    EvacuationWithdrawn {},
    /// An operator cordoned the cell: the cell takes no new work.
    Cordoned {},
    /// An operator ended the cordon.
    Uncordoned {},
    /// The rep reports that the cell evacuates: the cell takes no new work, and its work moves to other
    /// cells.
    Evacuating {},
    /// The rep reports that the cell takes work again.
    Resumed {},
    /// The self-test passes again.
    Healthy {},
    /// The self-test fails: the cell takes no new work.
    Unhealthy { reason: String },
    /// The evacuation is complete and the rep has left.
    Left {},
    /// The cell is lost.
    Disappeared {
        /// Reason why the cell is considered lost.
        reason: String,
    },
    /// An operator removed the cell from the tables.
    Forgotten {},
}
