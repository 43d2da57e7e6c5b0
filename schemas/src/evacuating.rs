//! Commands and events of evacuating instances.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::container::{Instance, NetInfo};
use crate::key::Place;

/// Command of a rep about an evacuating instance in one of the rep's containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Keep the running instance routable until a replacement runs. This command creates or updates the
    /// record, or takes the record over from another container.
    Set {
        /// Address and ports of the instance.
        net: NetInfo,
        /// End of the evacuation.
        expires_at: Timestamp,
    },
    /// The instance is gone.
    Remove,
}

/// Reason why an evacuating record was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RemovalReason {
    /// A replacement is running.
    Replaced,
    /// The rep removed it.
    Removed,
    /// The evacuation timed out.
    Expired,
    /// The cell disappeared.
    CellLost,
}

/// Event of an evacuating record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The record was created, updated, or taken over by another container.
    Set {
        place: Place,
        by: Instance,
        /// Address and ports of the instance.
        net: NetInfo,
        /// End of the evacuation.
        expires_at: Timestamp,
    },
    /// The record was removed.
    Removed { place: Place, cause: RemovalReason },
}
