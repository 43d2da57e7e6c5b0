//! Stored events of cells and of domains, in every version.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mirror::{Mirror, mirror};
use crate::attributes::Attributes;
use crate::names::{FolderId, Incarnation, PlacementTag, Stack, Zone};
use crate::quota::Quotas;
use crate::{Timestamp, cell, domain, resources};

/// An event of a cell.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "CellEvent")]
pub enum Cell {
    /// The cell or a new incarnation of the cell appeared.
    #[serde(rename = "appeared.v1")]
    AppearedV1(Presence),
    /// An operator requested the evacuation of the cell.
    #[serde(rename = "evacuation_requested.v1")]
    EvacuationRequestedV1 {},
    /// An operator withdrew the request for evacuation.
    #[serde(rename = "evacuation_withdrawn.v1")]
    EvacuationWithdrawnV1 {},
    /// An operator cordoned the cell, so that it gets no new work.
    #[serde(rename = "cordoned.v1")]
    CordonedV1 {},
    /// An operator uncordoned the cell.
    #[serde(rename = "uncordoned.v1")]
    UncordonedV1 {},
    /// The rep started to evacuate the cell: it accepts no new work and moves its work to other cells.
    #[serde(rename = "evacuating.v1")]
    EvacuatingV1 {},
    /// The rep stopped the evacuation and accepts work again.
    #[serde(rename = "resumed.v1")]
    ResumedV1 {},
    /// The self-test of the cell passes again.
    #[serde(rename = "healthy.v1")]
    HealthyV1 {},
    /// The self-test of the cell fails, so it accepts no new work.
    #[serde(rename = "unhealthy.v1")]
    UnhealthyV1 {
        /// Reason for the failure.
        reason: String,
    },
    /// The evacuation of the cell is complete, and its rep has left.
    #[serde(rename = "left.v1")]
    LeftV1 {},
    /// The cell is lost.
    #[serde(rename = "disappeared.v1")]
    DisappearedV1 {
        /// Reason why the cell is considered lost.
        reason: String,
    },
    /// An operator removed the cell from the tables.
    #[serde(rename = "forgotten.v1")]
    ForgottenV1 {},
}

/// The properties of a cell.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Presence {
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
mirror!(struct Presence = cell::Presence { folder, incarnation, zone, stack, placement_tags, attributes, total });

/// Memory, disk, containers and host ports.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Resources {
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Disk in MiB.
    pub disk_mb: u64,
    /// Number of containers.
    pub containers: u32,
    /// Number of host ports.
    pub ports: u32,
}
mirror!(struct Resources = resources::Resources { memory_mb, disk_mb, containers, ports });

impl Mirror<cell::Event> for Cell {
    fn mirror(self) -> cell::Event {
        match self {
            Self::AppearedV1(presence) => cell::Event::Appeared(presence.mirror()),
            Self::EvacuationRequestedV1 {} => cell::Event::EvacuationRequested {},
            Self::EvacuationWithdrawnV1 {} => cell::Event::EvacuationWithdrawn {},
            Self::CordonedV1 {} => cell::Event::Cordoned {},
            Self::UncordonedV1 {} => cell::Event::Uncordoned {},
            Self::EvacuatingV1 {} => cell::Event::Evacuating {},
            Self::ResumedV1 {} => cell::Event::Resumed {},
            Self::HealthyV1 {} => cell::Event::Healthy {},
            Self::UnhealthyV1 { reason } => cell::Event::Unhealthy { reason },
            Self::LeftV1 {} => cell::Event::Left {},
            Self::DisappearedV1 { reason } => cell::Event::Disappeared { reason },
            Self::ForgottenV1 {} => cell::Event::Forgotten {},
        }
    }
}

impl Mirror<Cell> for cell::Event {
    fn mirror(self) -> Cell {
        match self {
            Self::Appeared(presence) => Cell::AppearedV1(presence.mirror()),
            Self::EvacuationRequested {} => Cell::EvacuationRequestedV1 {},
            Self::EvacuationWithdrawn {} => Cell::EvacuationWithdrawnV1 {},
            Self::Cordoned {} => Cell::CordonedV1 {},
            Self::Uncordoned {} => Cell::UncordonedV1 {},
            Self::Evacuating {} => Cell::EvacuatingV1 {},
            Self::Resumed {} => Cell::ResumedV1 {},
            Self::Healthy {} => Cell::HealthyV1 {},
            Self::Unhealthy { reason } => Cell::UnhealthyV1 { reason },
            Self::Left {} => Cell::LeftV1 {},
            Self::Disappeared { reason } => Cell::DisappearedV1 { reason },
            Self::Forgotten {} => Cell::ForgottenV1 {},
        }
    }
}

impl Cell {
    pub(super) const fn type_name(event: &cell::Event) -> &'static str {
        match event {
            cell::Event::Appeared(_) => "cell.appeared.v1",
            cell::Event::EvacuationRequested {} => "cell.evacuation_requested.v1",
            cell::Event::EvacuationWithdrawn {} => "cell.evacuation_withdrawn.v1",
            cell::Event::Cordoned {} => "cell.cordoned.v1",
            cell::Event::Uncordoned {} => "cell.uncordoned.v1",
            cell::Event::Evacuating {} => "cell.evacuating.v1",
            cell::Event::Resumed {} => "cell.resumed.v1",
            cell::Event::Healthy {} => "cell.healthy.v1",
            cell::Event::Unhealthy { .. } => "cell.unhealthy.v1",
            cell::Event::Left {} => "cell.left.v1",
            cell::Event::Disappeared { .. } => "cell.disappeared.v1",
            cell::Event::Forgotten {} => "cell.forgotten.v1",
        }
    }
}

/// An event of a domain.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DomainEvent")]
pub enum Domain {
    /// A client marked the domain as fresh.
    #[serde(rename = "refreshed.v1")]
    RefreshedV1 {
        /// Time when the domain stops being fresh. `None` if it stays fresh forever.
        expires_at: Option<Timestamp>,
    },
    /// An operator set quotas of the domain.
    #[serde(rename = "limited.v1")]
    LimitedV1 {
        /// Maximum number of desired instances of all processes.
        instances: u32,
        /// Maximum number of desired processes, tasks that are not deleted, periodic tasks and parameterised
        /// tasks, counted together.
        processes_and_tasks: u32,
        /// Maximum number of commands per second of all clients together, averaged over ten seconds.
        commands_per_second: u32,
        /// Maximum number of programs that `instance exec` runs at the same time on one cell.
        exec_sessions: u32,
    },
}

impl Mirror<domain::Event> for Domain {
    fn mirror(self) -> domain::Event {
        match self {
            Self::RefreshedV1 { expires_at } => domain::Event::Refreshed { expires_at },
            Self::LimitedV1 { instances, processes_and_tasks, commands_per_second, exec_sessions } => {
                let quotas = Quotas { instances, processes_and_tasks, commands_per_second, exec_sessions };
                domain::Event::Limited { quotas }
            }
        }
    }
}

impl Mirror<Domain> for domain::Event {
    fn mirror(self) -> Domain {
        match self {
            Self::Refreshed { expires_at } => Domain::RefreshedV1 { expires_at },
            Self::Limited { quotas } => {
                let Quotas { instances, processes_and_tasks, commands_per_second, exec_sessions } = quotas;
                Domain::LimitedV1 { instances, processes_and_tasks, commands_per_second, exec_sessions }
            }
        }
    }
}

impl Domain {
    pub(super) const fn type_name(event: &domain::Event) -> &'static str {
        match event {
            domain::Event::Refreshed { .. } => "domain.refreshed.v1",
            domain::Event::Limited { .. } => "domain.limited.v1",
        }
    }
}
