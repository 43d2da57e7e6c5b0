//! What is stored of cells and of domains: every version of every event.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mirror::{Mirror, mirror};
use crate::names::{Incarnation, PlacementTag, Stack, Zone};
use crate::{Timestamp, cell, domain, resources};

/// Events of cells.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "CellEvent")]
pub enum Cell {
    /// A cell, or a new incarnation of it, is there.
    #[serde(rename = "appeared.v1")]
    AppearedV1(Presence),
    /// It takes no new work and moves away what it has.
    #[serde(rename = "evacuating.v1")]
    EvacuatingV1 {},
    /// Its self-test passes again.
    #[serde(rename = "healthy.v1")]
    HealthyV1 {},
    /// Its self-test fails: it takes no new work.
    #[serde(rename = "unhealthy.v1")]
    UnhealthyV1 {
        /// Why.
        reason: String,
    },
    /// It is lost, or it left.
    #[serde(rename = "disappeared.v1")]
    DisappearedV1 {
        /// Why it is believed so.
        reason: String,
    },
}

/// What a cell is.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Presence {
    /// Which run of the rep this is.
    pub incarnation: Incarnation,
    /// Its zone.
    pub zone: Zone,
    /// What it offers.
    pub stack: Stack,
    /// Work must ask for all of these to be placed here.
    pub placement_tags: BTreeSet<PlacementTag>,
    /// What it has in all.
    pub total: Resources,
}
mirror!(struct Presence = cell::Presence { incarnation, zone, stack, placement_tags, total });

/// Memory, disk, containers and host ports.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Resources {
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Disk in MiB.
    pub disk_mb: u64,
    /// Containers.
    pub containers: u32,
    /// Ports of the host.
    pub ports: u32,
}
mirror!(struct Resources = resources::Resources { memory_mb, disk_mb, containers, ports });

impl Mirror<cell::Event> for Cell {
    fn mirror(self) -> cell::Event {
        match self {
            Self::AppearedV1(presence) => cell::Event::Appeared(presence.mirror()),
            Self::EvacuatingV1 {} => cell::Event::Evacuating {},
            Self::HealthyV1 {} => cell::Event::Healthy {},
            Self::UnhealthyV1 { reason } => cell::Event::Unhealthy { reason },
            Self::DisappearedV1 { reason } => cell::Event::Disappeared { reason },
        }
    }
}

impl Mirror<Cell> for cell::Event {
    fn mirror(self) -> Cell {
        match self {
            Self::Appeared(presence) => Cell::AppearedV1(presence.mirror()),
            Self::Evacuating {} => Cell::EvacuatingV1 {},
            Self::Healthy {} => Cell::HealthyV1 {},
            Self::Unhealthy { reason } => Cell::UnhealthyV1 { reason },
            Self::Disappeared { reason } => Cell::DisappearedV1 { reason },
        }
    }
}

impl Cell {
    pub(super) const fn type_name(event: &cell::Event) -> &'static str {
        match event {
            cell::Event::Appeared(_) => "cell.appeared.v1",
            cell::Event::Evacuating {} => "cell.evacuating.v1",
            cell::Event::Healthy {} => "cell.healthy.v1",
            cell::Event::Unhealthy { .. } => "cell.unhealthy.v1",
            cell::Event::Disappeared { .. } => "cell.disappeared.v1",
        }
    }
}

/// Events of domains.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DomainEvent")]
pub enum Domain {
    /// A client said that what is desired in the domain is up to date.
    #[serde(rename = "refreshed.v1")]
    RefreshedV1 {
        /// When that stops being true; none: never.
        expires_at: Option<Timestamp>,
    },
}

impl Mirror<domain::Event> for Domain {
    fn mirror(self) -> domain::Event {
        let Self::RefreshedV1 { expires_at } = self;
        domain::Event::Refreshed { expires_at }
    }
}

impl Mirror<Domain> for domain::Event {
    fn mirror(self) -> Domain {
        let Self::Refreshed { expires_at } = self;
        Domain::RefreshedV1 { expires_at }
    }
}

impl Domain {
    pub(super) const fn type_name(event: &domain::Event) -> &'static str {
        match event {
            domain::Event::Refreshed { .. } => "domain.refreshed.v1",
        }
    }
}
