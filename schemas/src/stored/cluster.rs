//! Stored events of the cluster, in every version.

use super::conversion::{By, Stored, stored};
use crate::cluster::{self, Role};
use crate::names::{CellId, ClusterId, ServiceId};
use crate::subject::Position;

stored! {
    /// An event of the cluster.
    #[schemars(rename = "ClusterEvent")]
    pub enum Cluster("cluster") = cluster::Event {
        /// The cluster was founded. This is the first entry of every journal.
        "founded.v1": FoundedV1 {
            /// Id of the cluster.
            id: ClusterId,
            /// Number of shards.
            shards: u16,
            /// Format level at which entries are written.
            format: u32,
        } = Founded,
        /// A leader was elected.
        "elected.v1": ElectedV1 {
            /// Role that it leads.
            role: Role,
            /// Id of the leader.
            id: ServiceId,
            /// Term of the leader.
            term: u64,
        } = Elected,
        /// A cell got an ordinal.
        "ordinal_assigned.v1": OrdinalAssignedV1 {
            /// Id of the cell.
            cell_id: CellId,
            /// Ordinal of the cell.
            ordinal: u32,
        } = OrdinalAssigned,
        /// The ordinal of a cell became free because the cell was forgotten.
        "ordinal_freed.v1": OrdinalFreedV1 {
            /// Id of the forgotten cell.
            cell_id: CellId,
            /// Ordinal that is free again.
            ordinal: u32,
        } = OrdinalFreed,
        /// The format level was raised, because every service supports the higher level.
        "format_raised.v1": FormatRaisedV1 {
            /// New format level.
            format: u32,
        } = FormatRaised,
        /// An operator switched preemption on or off.
        "preemption_switched.v1": PreemptionSwitchedV1 {
            /// `true` if less urgent work may be stopped to make room for waiting work.
            enabled: bool,
        } = PreemptionSwitched,
        /// An operator changed the number of shards.
        "resharded.v1": ReshardedV1 {
            /// New number of shards. This number determines the subjects of later entries of processes and
            /// tasks.
            shards: u16,
        } = Resharded,
        /// An operator quarantined the entry at a position.
        "entry_quarantined.v1": EntryQuarantinedV1 {
            /// Position of the entry.
            position: Position,
            /// Reason given by the operator.
            reason: String,
        } = EntryQuarantined,
    }
}
