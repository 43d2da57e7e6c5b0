//! Commands and events of instances (ActualLRPs).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::container::{Instance, NetInfo};
use crate::crash::{Attempts, Restart};
use crate::exec::Exec;
use crate::isolation::Isolation;
use crate::key::{Place, Places};
use crate::placement::Explanation;

/// Command of a rep about the record of one of the rep's containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// The container has a reservation and requests to run.
    Claim {
        /// Explanation of the auction for this placement.
        placement: Option<Box<Explanation>>,
    },
    /// The container is running.
    Start {
        /// Address and ports of the instance.
        net: NetInfo,
        /// Isolation layers of the container.
        #[serde(default)]
        isolation: Isolation,
    },
    /// The container ended without a stop request.
    Crash {
        reason: String,
        /// Exit status of the action. `None` if the instance crashed for another reason.
        exit_status: Option<i32>,
    },
    /// The container was stopped or does not exist.
    Remove,
    /// The cell of the container evacuates: the instance must run elsewhere.
    Unclaim,
}

/// Reason why an instance became UNCLAIMED.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnclaimReason {
    /// The instance crashed and restarts immediately.
    Crash,
    /// The delay after its crash is over.
    Restart,
    /// The cell disappeared.
    CellLost,
    /// The cell evacuates.
    Evacuation,
}

impl UnclaimReason {
    /// Returns `true` if a restart policy counts this cause as a restart attempt.
    #[must_use]
    pub const fn is_attempt(self) -> bool {
        match self {
            Self::Crash | Self::Restart => true,
            Self::CellLost | Self::Evacuation => false,
        }
    }
}

/// Reason why an instance was asked to stop or was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The process was removed.
    Removed,
    /// Fewer instances are desired.
    Scale,
    /// The cell no longer fits the definition.
    CellUnfit,
    /// A client stopped this instance.
    Retired,
    /// The process was desired again, and the instance belongs to its previous epoch.
    Superseded,
    /// The instance is not desired, and its domain is fresh.
    Undesired,
    /// The rep stopped the instance, or has no container for the instance.
    Stopped,
    /// The instance crashed while it was being stopped.
    Crashed,
    /// The cell disappeared. Before that, the instance was stopping, was not desired, or was being replaced
    /// by another definition.
    CellLost,
    /// The cell evacuated the instance. Before that, the instance was stopping or was being replaced by
    /// another definition.
    Evacuated,
    /// Another definition replaces the instance.
    Replaced,
    /// The rollout gave up the instance. Either the instance failed or exceeded its deadline, or failures of
    /// other instances cause a rollback.
    RolloutFailed,
    /// More urgent work gets the resources of the instance.
    Preempted,
}

/// Event of ActualLRPs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// UNCLAIMED records were created.
    Created { places: Places },
    /// A cell claimed an instance.
    Claimed {
        place: Place,
        by: Instance,
        /// Explanation of the placement.
        placement: Option<Box<Explanation>>,
    },
    /// An instance became RUNNING.
    Started { place: Place, by: Instance, net: NetInfo, isolation: Isolation },
    /// A client runs a program in the container of a running instance. The event does not change the record.
    ExecStarted { place: Place, by: Instance, exec: Box<Exec> },
    /// An instance crashed.
    Crashed {
        place: Place,
        by: Instance,
        reason: String,
        /// Exit status of the action. `None` if the instance crashed for another reason.
        exit_status: Option<i32>,
        /// Crash count including this crash.
        crash_count: u32,
        restart: Restart,
        /// Restart attempts counted and allowed. `None` if the policy does not limit them.
        attempts: Option<Attempts>,
    },
    /// An auction could not place the instances.
    PlacementFailed {
        places: Places,
        /// Reason, as shown to users.
        error: String,
        /// Explanation per cell.
        explanation: Option<Box<Explanation>>,
    },
    /// The instances must be placed again.
    Unclaimed { places: Places, cause: UnclaimReason },
    /// The instances were asked to stop. The BBS repeats the stop orders to the reps until the instances are
    /// gone.
    StopRequested { places: Places, cause: StopReason },
    /// The records were removed.
    Removed { places: Places, cause: StopReason },
}

impl Event {
    /// Returns `true` if the event creates work for the auctioneer, either immediately or after a restart
    /// delay.
    #[must_use]
    pub const fn creates_work(&self) -> bool {
        match self {
            Self::Created { .. } | Self::Unclaimed { .. } | Self::Crashed { .. } => true,
            Self::Claimed { .. }
            | Self::Started { .. }
            | Self::ExecStarted { .. }
            | Self::PlacementFailed { .. }
            | Self::StopRequested { .. }
            | Self::Removed { .. } => false,
        }
    }

    /// Returns `true` if the event makes instances leave their cells, or requests their stop. After such an
    /// event, placement may count fewer instances of the process on these cells.
    #[must_use]
    pub const fn vacates_cells(&self) -> bool {
        match self {
            Self::Crashed { .. }
            | Self::Unclaimed { .. }
            | Self::StopRequested { .. }
            | Self::Removed { .. } => true,
            Self::Created { .. }
            | Self::Claimed { .. }
            | Self::Started { .. }
            | Self::ExecStarted { .. }
            | Self::PlacementFailed { .. } => false,
        }
    }

    /// Returns the slots that the event names.
    #[must_use]
    pub fn places(&self) -> Places {
        match self {
            Self::Created { places, .. }
            | Self::PlacementFailed { places, .. }
            | Self::Unclaimed { places, .. }
            | Self::StopRequested { places, .. }
            | Self::Removed { places, .. } => places.clone(),
            Self::Claimed { place, .. }
            | Self::Started { place, .. }
            | Self::ExecStarted { place, .. }
            | Self::Crashed { place, .. } => place.clone().into(),
        }
    }
}
