//! Containers: what a cell runs, as rep and executor speak of them (Diego Dev Notes, "Container State").

use std::sync::Arc;

use ecow::EcoString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::Timestamp;
use crate::action::{Action, Variable};
use crate::definition::Sandbox;
use crate::isolation::Isolation;
use crate::key::ActualLrpKey;
use crate::names::{CellId, Domain, InstanceGuid, TaskGuid};
use crate::resources::Resources;
use crate::subject::Position;

/// One life of a guid: every desire of a process and every creation of a task makes a new epoch, which is the time of
/// its decision. A later life has a greater epoch.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Epoch(pub Timestamp);

/// A container and the cell it is on: what a record names as its holder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Instance {
    /// Names the attempt.
    pub instance_guid: InstanceGuid,
    /// The cell.
    pub cell_id: CellId,
}

/// A port that an instance asked for, and the port of the host that leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortMapping {
    /// As the definition names it.
    pub container_port: u16,
    /// As others reach it.
    pub host_port: u16,
}

// An IPv4 address and a few ports take no memory beside it.
/// Where a running instance is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetInfo {
    /// The address of the host.
    #[schemars(with = "String")]
    pub address: EcoString,
    /// One mapping for each port of the definition, in its order.
    pub ports: PortMappings,
}

/// The mappings of an instance: hardly any has more than fit in.
pub type PortMappings = SmallVec<[PortMapping; 4]>;

/// What a container is for, down to the life of its guid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkKey {
    /// An instance of a process.
    Lrp {
        /// Which.
        key: ActualLrpKey,
        /// Which life.
        epoch: Epoch,
    },
    /// A task.
    Task {
        /// The task.
        task_guid: TaskGuid,
        /// Which life.
        epoch: Epoch,
    },
}

impl WorkKey {
    /// Which life of its guid.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        match self {
            Self::Lrp { epoch, .. } | Self::Task { epoch, .. } => *epoch,
        }
    }
}

impl std::fmt::Display for WorkKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lrp { key, .. } => key.fmt(f),
            Self::Task { task_guid, .. } => write!(f, "task {task_guid}"),
        }
    }
}

/// What a container runs: everything the executor needs, so that it needs nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    /// Names the container.
    pub instance_guid: InstanceGuid,
    /// What it is for: kept as its label.
    pub work: WorkKey,
    /// The domain of the work.
    pub domain: Domain,
    /// Environment of everything that runs in it, as the definition has it.
    pub environment_variables: Vec<Variable>,
    /// Runs first, to its end.
    pub setup: Option<Action>,
    /// What is run.
    pub action: Action,
    /// Tells whether it is healthy; none: it is RUNNING as soon as `action` begins.
    pub monitor: Option<Action>,
    /// How long the monitor may fail before its first success, in milliseconds; 0: for ever.
    pub start_timeout_ms: u64,
    /// Time between TERM and KILL, in milliseconds.
    pub grace_period_ms: u64,
    /// Its share of the processor, relative to other containers of the cell; 0: the usual one.
    pub cpu_weight: u32,
    /// Ports that need a port of the host each.
    pub ports: Vec<u16>,
    /// The file whose content is a task's result, relative to the work directory; empty: none.
    pub result_file: String,
    /// What it takes of the cell.
    pub resources: Resources,
    /// What of its surroundings is not as usual; none: all is.
    pub sandbox: Option<Arc<Sandbox>>,
    /// Where the log stood when it let the container in: an older record says nothing of it.
    pub let_in_at: Position,
}

/// The state of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerState {
    /// Room is kept for it; nothing is created.
    Reserved,
    /// It is being created.
    Initializing,
    /// It is created; setup, action and monitor are starting.
    Created,
    /// Its action runs and, if it has a monitor, it is healthy.
    Running(NetInfo),
    /// Nothing of it runs.
    Completed(RunResult),
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunResult {
    /// Its recipe ended without failure. `result` is the content of the result file, if one was asked for.
    Succeeded {
        /// The content.
        result: String,
    },
    /// Its recipe failed; for an instance of a process, which has no good end, it ended at all.
    Failed {
        /// Why.
        reason: String,
        /// The status that its action exited with, if that is why.
        exit_status: Option<i32>,
    },
    /// It was asked to stop, and the whole tree is gone.
    Stopped,
}

/// What the executor says of one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Names it.
    pub instance_guid: InstanceGuid,
    /// What it is for.
    pub work: WorkKey,
    /// The domain of the work.
    pub domain: Domain,
    /// What it takes of the cell.
    pub resources: Resources,
    /// Where the log stood when it let the container in; 0 while it is only a reservation.
    pub let_in_at: Position,
    /// How it is kept apart.
    pub isolation: Isolation,
    /// Its state.
    pub state: ContainerState,
}
