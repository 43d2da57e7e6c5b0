//! Explanations of auction results: the reasons for a placement, or for a failed placement.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Position;
use crate::names::{CellId, Zone};
use crate::resources::CellClass;

/// Explanation of a placement, or of its failure: counts by reason and the best candidates, at most 4 KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// Number of cells that the auctioneer knew.
    pub cells: u32,
    /// Number of rejected cells by reason: `stack`, `tags`, `evacuating`, `unhealthy`, `memory`, `disk`,
    /// `containers`, `refused`. Cells that could run the work and ranked below the winner are not counted.
    pub rejected: BTreeMap<String, u32>,
    /// Best candidates, the winner first.
    pub best: Vec<Candidate>,
    /// Cell classes that were tried for work that could not be placed. `None` if the work was placed.
    pub eligibility: Option<Box<Eligibility>>,
}

/// Cell classes that an auction tried for work that it could not place. The work can be placed after one of
/// these changes: resources become free on a cell of an eligible class, a cell of an untried class joins, or
/// any change happens while constraints escape classes (Nomad, blocked evaluations).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Eligibility {
    /// Journal position up to which the auctioneer had read when it judged the work.
    pub observed_position: Position,
    /// Classes whose cells may run the work once they have room, sorted, at most 24.
    pub eligible: Vec<CellClass>,
    /// Classes whose cells can never run the work, sorted, at most 24.
    pub ineligible: Vec<CellClass>,
    /// Number of classes beyond those that are listed.
    pub unlisted: u32,
    /// Constraints whose result may differ between cells of one class, at most 4, in the form in which the
    /// user wrote them.
    pub escaped: Vec<String>,
}

/// A cell that could run the work, with its scores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Candidate {
    /// Cell id of the candidate.
    pub cell_id: CellId,
    /// Zone of the cell.
    pub zone: Zone,
    /// Spread score if the work is spread over attributes, otherwise 0; a lower score is better. Suppose that
    /// every attribute value had reached its share to the same degree as the value of this cell. The score is
    /// the number of instances that the process would then have.
    pub spread: u32,
    /// Sum of the weights of the affinities that the cell matches; higher is better.
    pub affinity: i32,
    /// Number of instances of the same process in the zone.
    pub siblings_in_zone: u32,
    /// Number of instances of the same process on the cell.
    pub siblings_on_cell: u32,
    /// Mean of the used fractions of memory, disk and containers after placement, in thousandths.
    pub used_permille: u32,
}

/// Prefix of the placement error if every cell differs in the stack or the tags (Diego Dev Notes,
/// "Communicating Fullness").
pub const NO_COMPATIBLE_CELLS: &str = "found no compatible cells";
/// Prefix of the placement error if every compatible cell is full.
pub const INSUFFICIENT_RESOURCES: &str = "insufficient resources";
/// Placement error if compatible cells exist but none of them is reachable.
pub const UNREACHABLE_CELLS: &str = "unable to communicate to compatible cells";
/// Suffix of the placement error of work that waits for a preemption, which frees resources for it. The cell
/// id follows the suffix.
pub const ROOM_PENDING_SUFFIX: &str = "; room is being made on ";

/// Returns the cell on which a preemption frees resources, as named by a placement error. `None` if the error
/// names no cell.
#[must_use]
pub fn awaited_cell(error: &str) -> Option<CellId> {
    CellId::new(error.split_once(ROOM_PENDING_SUFFIX)?.1).ok()
}
