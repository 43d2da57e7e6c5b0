//! Commands and events of the cluster, its roles and its leaders.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::VariantArray;

use crate::Timestamp;
use crate::names::{CellId, ClusterId, ServiceId};
use crate::refusal::{BadField, Refusal};
use crate::request;
use crate::subject::{MAX_SHARDS, Position};
use crate::verb::OperatorVerb;

/// Format level that this program writes. Also the highest level that this program reads.
pub const FORMAT: u32 = 1;

/// The leader of a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Leader {
    /// Program that leads.
    pub id: ServiceId,
    /// Term of the leader, from 1. Messages with a lower term come from an earlier leader.
    pub term: u64,
    /// Time of its election.
    pub since: Timestamp,
}

/// Highest term of each role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    pub bbs: u64,
    pub auctioneer: u64,
}

/// A role with one leader.
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case", const_into_str)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The BBS, which decides commands.
    Bbs,
    /// The auctioneer, which places work.
    Auctioneer,
}

impl Role {
    /// Every role.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns the role as it appears in subjects.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}

/// Event of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The cluster was founded. This is the first entry of every journal.
    Founded {
        id: ClusterId,
        /// Number of shards.
        shards: u16,
        /// Format level of all programs.
        format: u32,
    },
    /// A leader was elected.
    Elected { role: Role, id: ServiceId, term: u64 },
    /// A cell got the lowest free ordinal. The cell keeps this ordinal until the cell is forgotten.
    OrdinalAssigned { cell_id: CellId, ordinal: u32 },
    /// An ordinal is free again, because its cell was forgotten.
    OrdinalFreed { cell_id: CellId, ordinal: u32 },
    /// The format level was raised, because every program can read and write it.
    FormatRaised { format: u32 },
    /// An operator switched preemption on or off.
    PreemptionSwitched { enabled: bool },
    /// An operator changed the number of shards.
    ///
    /// The new number determines the subjects of later entries of processes and tasks. If an entry of a
    /// process or task is appended to an old subject after this event, readers quarantine it.
    Resharded {
        /// New number of shards.
        shards: u16,
    },
    /// An operator quarantined the entry at a position. Every reader of the log must ignore it.
    EntryQuarantined {
        position: Position,
        /// Reason that the operator gave.
        reason: String,
    },
}

/// Command of an operator about the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Switches preemption on or off.
    SwitchPreemption(bool),
    /// Changes the number of shards.
    Reshard(u16),
}

impl Command {
    /// Returns the verb of its subject.
    #[must_use]
    pub const fn verb(self) -> OperatorVerb {
        match self {
            Self::SwitchPreemption(_) => OperatorVerb::ClusterPreemption,
            Self::Reshard(_) => OperatorVerb::ClusterShards,
        }
    }

    /// Returns the digest of the command. A repeated request has the same digest.
    #[must_use]
    pub fn digest(self) -> String {
        let verb = self.verb().noun_and_verb();
        match self {
            Self::SwitchPreemption(on) => request::digest(verb, &on),
            Self::Reshard(shards) => request::digest(verb, &shards),
        }
    }
}

/// Checks a number of shards.
///
/// # Errors
/// `InvalidRequest` with the valid numbers.
pub fn check_shards(shards: u16) -> Result<(), Refusal> {
    if (1..=MAX_SHARDS).contains(&shards) {
        return Ok(());
    }
    let problem = format!("invalid number {shards}: expected 1 to {MAX_SHARDS}");
    Err(Refusal::invalid(vec![BadField { field: "shards".into(), problem }]))
}
