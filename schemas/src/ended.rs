//! Kinds of ends of containers and tasks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kind of end of an instance's container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndKind {
    /// Ended without a stop request.
    Crashed,
    /// The rep stopped the container, or the cell has no such container. Usually the instance was asked to
    /// stop, and the reason is in `stop`.
    Stopped,
    /// Crashed while it was being stopped.
    CrashedStopping,
    /// The cell disappeared.
    CellLost,
    /// Evacuated by its cell.
    Evacuated,
    /// Evacuated by its cell. The cell reached the evacuation time-out before a replacement was running.
    EvacuationExpired,
    /// Displaced by another container. The other container is running, and the record of the index now names
    /// it.
    Displaced,
}
