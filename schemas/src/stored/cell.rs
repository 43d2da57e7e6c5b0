//! Stored events of cells and of domains, in every version.

use std::collections::BTreeSet;

use super::conversion::{By, Stored, stored};
use crate::attributes::Attributes;
use crate::names::{FolderId, Incarnation, PlacementTag, Stack, Zone};
use crate::quota::Quotas;
use crate::{Timestamp, cell, domain, resources};

stored! {
    /// An event of a cell.
    #[schemars(rename = "CellEvent")]
    pub enum Cell("cell") = cell::Event {
        /// The cell or a new incarnation of the cell appeared.
        "appeared.v1": AppearedV1(presence: Presence) = Appeared,
        /// An operator requested the evacuation of the cell.
        "evacuation_requested.v1": EvacuationRequestedV1 {} = EvacuationRequested,
        /// An operator withdrew the request for evacuation.
        "evacuation_withdrawn.v1": EvacuationWithdrawnV1 {} = EvacuationWithdrawn,
        /// An operator cordoned the cell, so that it gets no new work.
        "cordoned.v1": CordonedV1 {} = Cordoned,
        /// An operator uncordoned the cell.
        "uncordoned.v1": UncordonedV1 {} = Uncordoned,
        /// The rep started to evacuate the cell: it accepts no new work and moves its work to other cells.
        "evacuating.v1": EvacuatingV1 {} = Evacuating,
        /// The rep stopped the evacuation and accepts work again.
        "resumed.v1": ResumedV1 {} = Resumed,
        /// The self-test of the cell passes again.
        "healthy.v1": HealthyV1 {} = Healthy,
        /// The self-test of the cell fails, so it accepts no new work.
        "unhealthy.v1": UnhealthyV1 {
            /// Reason for the failure.
            reason: String,
        } = Unhealthy,
        /// The evacuation of the cell is complete, and its rep has left.
        "left.v1": LeftV1 {} = Left,
        /// The cell is lost.
        "disappeared.v1": DisappearedV1 {
            /// Reason why the cell is considered lost.
            reason: String,
        } = Disappeared,
        /// An operator removed the cell from the tables.
        "forgotten.v1": ForgottenV1 {} = Forgotten,
    }
}

stored! {
    /// The properties of a cell.
    pub struct Presence = cell::Presence {
        /// Data folder of the rep.
        pub folder: FolderId,
        /// Incarnation: the run of the rep.
        pub incarnation: Incarnation,
        /// Zone of the cell.
        pub zone: Zone,
        /// Stack that the cell offers.
        pub stack: Stack,
        /// Placement tags of the cell. The cell accepts only work that requests all of these tags.
        pub placement_tags: BTreeSet<PlacementTag>,
        /// Further attributes of the cell by name, as reported by its rep.
        pub attributes: Attributes,
        /// Total resources of the cell.
        pub total: Resources,
    }
}

stored! {
    /// Memory, disk, containers and host ports.
    pub struct Resources = resources::Resources {
        /// Memory in MiB.
        pub memory_mb: u64,
        /// Disk in MiB.
        pub disk_mb: u64,
        /// Number of containers.
        pub containers: u32,
        /// Number of host ports.
        pub ports: u32,
    }
}

stored! {
    /// An event of a domain.
    #[schemars(rename = "DomainEvent")]
    pub enum Domain("domain") = domain::Event {
        /// A client marked the domain as fresh.
        "refreshed.v1": RefreshedV1 {
            /// Time when the domain stops being fresh. `None` if it stays fresh forever.
            expires_at: Option<Timestamp>,
        } = Refreshed,
        /// An operator set quotas of the domain.
        "limited.v1": LimitedV1 {
            /// Maximum number of desired instances of all processes.
            instances: u32,
            /// Maximum number of desired processes, tasks that are not deleted, periodic tasks and
            /// parameterised tasks, counted together.
            processes_and_tasks: u32,
            /// Maximum number of commands per second of all clients together, averaged over ten seconds.
            commands_per_second: u32,
            /// Maximum number of programs that `instance exec` runs at the same time on one cell.
            exec_sessions: u32,
        } = Limited { quotas: Quotas { instances, processes_and_tasks, commands_per_second, exec_sessions } },
    }
}
