//! Stored events of the cluster, in every version.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mirror::Mirror;
use crate::cluster::{self, Role};
use crate::names::{CellId, ClusterId, ServiceId};
use crate::subject::Position;

/// An event of the cluster.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ClusterEvent")]
pub enum Cluster {
    /// The cluster was founded. This is the first entry of every journal.
    #[serde(rename = "founded.v1")]
    FoundedV1 {
        /// Id of the cluster.
        id: ClusterId,
        /// Number of shards.
        shards: u16,
        /// Format level at which entries are written.
        format: u32,
    },
    /// A leader was elected.
    #[serde(rename = "elected.v1")]
    ElectedV1 {
        /// Role that it leads.
        role: Role,
        /// Id of the leader.
        id: ServiceId,
        /// Term of the leader.
        term: u64,
    },
    /// A cell got an ordinal.
    #[serde(rename = "ordinal_assigned.v1")]
    OrdinalAssignedV1 {
        /// Id of the cell.
        cell_id: CellId,
        /// Ordinal of the cell.
        ordinal: u32,
    },
    /// The ordinal of a cell became free because the cell was forgotten.
    #[serde(rename = "ordinal_freed.v1")]
    OrdinalFreedV1 {
        /// Id of the forgotten cell.
        cell_id: CellId,
        /// Ordinal that is free again.
        ordinal: u32,
    },
    /// The format level was raised, because every service supports the higher level.
    #[serde(rename = "format_raised.v1")]
    FormatRaisedV1 {
        /// New format level.
        format: u32,
    },
    /// An operator switched preemption on or off.
    #[serde(rename = "preemption_switched.v1")]
    PreemptionSwitchedV1 {
        /// `true` if less urgent work may be stopped to make room for waiting work.
        enabled: bool,
    },
    /// An operator changed the number of shards.
    #[serde(rename = "resharded.v1")]
    ReshardedV1 {
        /// New number of shards. This number determines the subjects of later entries of processes and tasks.
        shards: u16,
    },
    /// An operator quarantined the entry at a position.
    #[serde(rename = "entry_quarantined.v1")]
    EntryQuarantinedV1 {
        /// Position of the entry.
        position: Position,
        /// Reason given by the operator.
        reason: String,
    },
}

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
            Self::PreemptionSwitchedV1 { enabled } => cluster::Event::PreemptionSwitched { enabled },
            Self::ReshardedV1 { shards } => cluster::Event::Resharded { shards },
            Self::EntryQuarantinedV1 { position, reason } => {
                cluster::Event::EntryQuarantined { position, reason }
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
            Self::PreemptionSwitched { enabled } => Cluster::PreemptionSwitchedV1 { enabled },
            Self::Resharded { shards } => Cluster::ReshardedV1 { shards },
            Self::EntryQuarantined { position, reason } => Cluster::EntryQuarantinedV1 { position, reason },
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
            cluster::Event::EntryQuarantined { .. } => "cluster.entry_quarantined.v1",
        }
    }
}
