//! What is stored of the cluster: every version of every event.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mirror::{Mirror, mirror};
use crate::cluster;
use crate::names::{CellId, ClusterId, ServiceId};
use crate::subject::Position;

/// Events of the cluster.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ClusterEvent")]
pub enum Cluster {
    /// It was founded: the first entry of every journal.
    #[serde(rename = "founded.v1")]
    FoundedV1 {
        /// Its id.
        id: ClusterId,
        /// Its shards.
        shards: u16,
        /// The level at which everybody writes.
        format: u32,
    },
    /// Somebody leads.
    #[serde(rename = "elected.v1")]
    ElectedV1 {
        /// In which role.
        role: Role,
        /// Who.
        id: ServiceId,
        /// In which term.
        term: u64,
    },
    /// A cell got an ordinal.
    #[serde(rename = "ordinal_assigned.v1")]
    OrdinalAssignedV1 {
        /// Which cell.
        cell_id: CellId,
        /// Which ordinal.
        ordinal: u32,
    },
    /// The cell that had an ordinal is forgotten.
    #[serde(rename = "ordinal_freed.v1")]
    OrdinalFreedV1 {
        /// Which cell.
        cell_id: CellId,
        /// Which ordinal.
        ordinal: u32,
    },
    /// Everybody can read and write a higher level.
    #[serde(rename = "format_raised.v1")]
    FormatRaisedV1 {
        /// The level.
        format: u32,
    },
    /// An operator said whether what is less urgent may be stopped for what waits.
    #[serde(rename = "preemption_switched.v1")]
    PreemptionSwitchedV1 {
        /// Whether it may.
        on: bool,
    },
    /// An operator changed the number of shards.
    #[serde(rename = "resharded.v1")]
    ReshardedV1 {
        /// The new number: every later entry of a process or a task is on the subject that it gives.
        shards: u16,
    },
    /// An operator set aside what stands at a position.
    #[serde(rename = "position_set_aside.v1")]
    PositionSetAsideV1 {
        /// The position.
        position: Position,
        /// Why, in the operator's words.
        reason: String,
    },
}

/// A role with one leader.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Decides.
    Bbs,
    /// Places.
    Auctioneer,
}
mirror!(enum Role = cluster::Role { Bbs, Auctioneer });

impl Mirror<cluster::Event> for Cluster {
    fn mirror(self) -> cluster::Event {
        match self {
            Self::FoundedV1 { id, shards, format } => cluster::Event::Founded { id, shards, format },
            Self::ElectedV1 { role, id, term } => cluster::Event::Elected { role: role.mirror(), id, term },
            Self::OrdinalAssignedV1 { cell_id, ordinal } => {
                cluster::Event::OrdinalAssigned { cell_id, ordinal }
            }
            Self::OrdinalFreedV1 { cell_id, ordinal } => cluster::Event::OrdinalFreed { cell_id, ordinal },
            Self::FormatRaisedV1 { format } => cluster::Event::FormatRaised { format },
            Self::PreemptionSwitchedV1 { on } => cluster::Event::PreemptionSwitched { on },
            Self::ReshardedV1 { shards } => cluster::Event::Resharded { shards },
            Self::PositionSetAsideV1 { position, reason } => {
                cluster::Event::PositionSetAside { position, reason }
            }
        }
    }
}

impl Mirror<Cluster> for cluster::Event {
    fn mirror(self) -> Cluster {
        match self {
            Self::Founded { id, shards, format } => Cluster::FoundedV1 { id, shards, format },
            Self::Elected { role, id, term } => Cluster::ElectedV1 { role: role.mirror(), id, term },
            Self::OrdinalAssigned { cell_id, ordinal } => Cluster::OrdinalAssignedV1 { cell_id, ordinal },
            Self::OrdinalFreed { cell_id, ordinal } => Cluster::OrdinalFreedV1 { cell_id, ordinal },
            Self::FormatRaised { format } => Cluster::FormatRaisedV1 { format },
            Self::PreemptionSwitched { on } => Cluster::PreemptionSwitchedV1 { on },
            Self::Resharded { shards } => Cluster::ReshardedV1 { shards },
            Self::PositionSetAside { position, reason } => Cluster::PositionSetAsideV1 { position, reason },
        }
    }
}

impl Cluster {
    pub(super) const fn type_name(event: &cluster::Event) -> &'static str {
        match event {
            cluster::Event::Founded { .. } => "cluster.founded.v1",
            cluster::Event::Elected { .. } => "cluster.elected.v1",
            cluster::Event::OrdinalAssigned { .. } => "cluster.ordinal_assigned.v1",
            cluster::Event::OrdinalFreed { .. } => "cluster.ordinal_freed.v1",
            cluster::Event::FormatRaised { .. } => "cluster.format_raised.v1",
            cluster::Event::PreemptionSwitched { .. } => "cluster.preemption_switched.v1",
            cluster::Event::Resharded { .. } => "cluster.resharded.v1",
            cluster::Event::PositionSetAside { .. } => "cluster.position_set_aside.v1",
        }
    }
}
