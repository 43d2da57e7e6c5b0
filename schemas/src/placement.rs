//! Why work is where it is, or why it is nowhere: what an auction says of its decision.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Position;
use crate::names::{CellId, Zone};
use crate::resources::CellClass;

/// The reason of a placement, or of its failure: counts by reason and the best candidates, at most 4 KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// Cells that the auctioneer knew.
    pub cells: u32,
    /// Cells that were passed over, by reason: `stack`, `tags`, `evacuating`, `unhealthy`, `memory`, `disk`,
    /// `containers`, `refused`. Of cells that ranked below the winner none is counted.
    pub passed_over: BTreeMap<String, u32>,
    /// The best candidates, the winner first.
    pub best: Vec<Candidate>,
    /// What was tried for what found no place; none: it found one.
    pub eligibility: Option<Box<Eligibility>>,
}

/// Which kinds of cells an auction tried for work that found no place, and so what would unblock it: room on a cell of an
/// eligible class, a cell of a class that was not tried, and for constraints that escape classes any change (Nomad, blocked
/// evaluations).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Eligibility {
    /// The position of the journal that the auctioneer had followed to.
    pub judged: Position,
    /// Classes of which a cell may take it once it has room, in order, at most 24.
    pub eligible: Vec<CellClass>,
    /// Classes of which none may, in order, at most 24.
    pub ineligible: Vec<CellClass>,
    /// How many classes there were beside those.
    pub others: u32,
    /// Those of its constraints for which cells of one class may differ, as users wrote them, at most 4.
    pub escaped: Vec<String>,
}

/// A cell that could take the work, and how well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Candidate {
    /// The cell.
    pub cell_id: CellId,
    /// Its zone.
    pub zone: Zone,
    /// For what is spread over attributes: how many instances the process would have if the share of every value were as full
    /// as this cell's would be; fewer is better. Else 0.
    pub spread: u32,
    /// The weights of the affinities that hold there, together; more is better.
    pub affinity: i32,
    /// Instances of the same process in that zone.
    pub siblings_in_zone: u32,
    /// Instances of the same process on that cell.
    pub siblings_on_cell: u32,
    /// Mean of the used parts of memory, disk and containers after placement, in thousandths.
    pub used_permille: u32,
}

/// Placement errors begin with this when no cell's stack or tags match (Diego Dev Notes, "Communicating Fullness").
pub const NO_COMPATIBLE_CELLS: &str = "found no compatible cells";
/// Placement errors begin with this when every compatible cell is full.
pub const INSUFFICIENT_RESOURCES: &str = "insufficient resources";
/// The placement error when compatible cells exist and none can be asked.
pub const UNREACHABLE_CELLS: &str = "unable to communicate to compatible cells";
/// What the placement error of work ends with that waits for room which is being made for it; the cell follows.
pub const AWAITS: &str = "; room is being made on ";

/// The cell on which room is being made for work with this placement error. None: it says nothing of that.
#[must_use]
pub fn awaited_cell(error: &str) -> Option<CellId> {
    CellId::new(error.split_once(AWAITS)?.1).ok()
}
