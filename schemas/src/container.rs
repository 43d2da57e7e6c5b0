//! Containers in the form that the rep and the executor exchange (Diego Dev Notes, "Container State").

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

/// Epoch: the period in which a guid names one process or one task. Each desire of a process and each
/// creation of a task starts a new epoch, whose value is the time of that decision. A later epoch has a
/// greater value.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Epoch(pub Timestamp);

/// A container and its cell, as recorded for the holder of an instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Instance {
    /// Id of the container. Each attempt to run the work has a new container id.
    pub instance_guid: InstanceGuid,
    /// Cell that the container runs on.
    pub cell_id: CellId,
}

/// A container port and the host port that forwards to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortMapping {
    /// Port in the container. The definition names this port.
    pub container_port: u16,
    /// Port of the host, for access from outside of the container.
    pub host_port: u16,
}

// An IPv4 address and a few ports are stored inline and need no allocation.
/// Network addresses of a running instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetInfo {
    /// Address of the host.
    #[schemars(with = "String")]
    pub address: EcoString,
    /// One mapping for each port of the definition, in the same order.
    pub ports: PortMappings,
}

/// Port mappings of an instance. Few instances have more mappings than fit inline.
pub type PortMappings = SmallVec<[PortMapping; 4]>;

/// The instance or task that a container runs (its work), with the epoch of the guid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkKey {
    /// An instance of a process.
    Lrp {
        /// Instance that the container runs.
        key: ActualLrpKey,
        /// Epoch of the process.
        epoch: Epoch,
    },
    /// A run of a task.
    Task {
        /// Task that the container runs.
        task_guid: TaskGuid,
        /// Epoch of the task.
        epoch: Epoch,
    },
}

impl WorkKey {
    /// Returns the epoch of the guid.
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

/// Everything that the executor needs to run a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    /// Id of the container.
    pub instance_guid: InstanceGuid,
    /// Work that the container runs. The executor stores it as the container's label.
    pub work: WorkKey,
    pub domain: Domain,
    /// Environment of every program in the container, as in the definition.
    pub environment_variables: Vec<Variable>,
    /// Action that runs to completion before `action`.
    pub setup: Option<Action>,
    pub action: Action,
    /// Health check. `None` if the container is RUNNING as soon as `action` starts.
    pub monitor: Option<Action>,
    /// Time within which the monitor must first succeed, in milliseconds; 0 sets no limit.
    pub start_timeout_ms: u64,
    /// Time between TERM and KILL, in milliseconds.
    pub grace_period_ms: u64,
    /// CPU share relative to other containers of the cell; 0 selects the default.
    pub cpu_weight: u32,
    /// Container ports. Each port is mapped to a host port.
    pub ports: Vec<u16>,
    /// Path of the file whose content becomes the result of a task, relative to the work directory. Empty if
    /// there is no result file.
    pub result_file: String,
    /// Resources that the container reserves on the cell.
    pub resources: Resources,
    /// Differences from the default environment of a container. `None` if there are no differences.
    pub sandbox: Option<Arc<Sandbox>>,
    /// Position of the log at which the container was admitted. Records from an earlier position do not apply
    /// to the container.
    pub admitted_at: Position,
}

/// State of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerState {
    /// Resources are reserved. Nothing has been created yet.
    Reserved,
    /// The container is being created.
    Initializing,
    /// The container exists; setup, action and monitor are starting.
    Created,
    /// The action runs. If there is a monitor, it has succeeded.
    Running(NetInfo),
    /// The programs of the container have ended.
    Completed(RunResult),
}

/// Result of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunResult {
    /// The container's actions ended without failure.
    Succeeded {
        /// Content of the result file, if the recipe names one.
        result: String,
    },
    /// The container's actions failed. For an instance of a process, every exit counts as a failure.
    Failed {
        reason: String,
        /// Exit status of the action. `None` if the failure has a different reason.
        exit_status: Option<i32>,
    },
    /// The container was asked to stop, and its whole process tree is gone.
    Stopped,
}

/// A container in the form that the executor reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Id of the container.
    pub instance_guid: InstanceGuid,
    /// Work that the container runs.
    pub work: WorkKey,
    pub domain: Domain,
    /// Resources that the container reserves on the cell.
    pub resources: Resources,
    /// Position of the log at which the container was admitted; 0 while the container is only a reservation.
    pub admitted_at: Position,
    /// Isolation layers of the container.
    pub isolation: Isolation,
    pub state: ContainerState,
}
