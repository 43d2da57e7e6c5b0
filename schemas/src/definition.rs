//! Definitions: the programs, resources and constraints of processes and tasks (docs/internals/model/definitions-and-rollouts.md, "Definitions and keys").

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::action::{Action, Download, Variable};
use crate::names::{DefinitionId, Domain, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid};
use crate::policy::Policies;
use crate::priority::Priority;
use crate::resources::{Constraint, Resources};
use crate::schedule::Schedule;

/// Default time between the stop of a container and its kill: 10 s (docs/internals/model/rep.md, "Rep tables").
pub const DEFAULT_GRACE_MS: u64 = 10_000;

/// Ports of a definition. Few definitions have more ports than fit inline.
pub type Ports = SmallVec<[u16; 8]>;

// Definitions share their larger parts. Among a million definitions, hardly two are equal, but most run one
// of a few programs. Such definitions differ only in their environment.
/// Programs, resources and constraints of one instance of a process. A definition is immutable: a change
/// creates a new definition with a new id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Definition {
    /// Constraint that a cell must meet.
    pub constraint: Arc<Constraint>,
    /// Environment of every program in the container.
    pub environment_variables: Vec<Variable>,
    /// Action that runs to completion before `action`.
    pub setup: Option<Arc<Action>>,
    /// Action to keep running.
    pub action: Arc<Action>,
    /// Health check. Runs with pauses that grow from 10 ms to 0.5 s until it first succeeds, then every 30 s.
    /// Without it, an instance is healthy as soon as it runs.
    pub monitor: Option<Arc<Action>>,
    /// Time within which the monitor must first succeed, in milliseconds; 0 sets no limit.
    pub start_timeout_ms: u64,
    /// Memory in MiB that placement reserves.
    pub memory_mb: u64,
    /// Disk in MiB that placement reserves.
    pub disk_mb: u64,
    /// CPU share relative to other containers, 1 to 1024; 0 selects the default of 1024.
    pub cpu_weight: u32,
    /// Container ports that the instance listens on. Each is mapped to a host port.
    pub ports: Ports,
    /// Time between TERM and KILL when the instance is stopped, in milliseconds, 10,000 by default.
    pub grace_period_ms: u64,
    /// Deviations from the default environment of a container. Absent if there are none.
    pub sandbox: Option<Arc<Sandbox>>,
}

/// Deviations from the default environment of a container (docs/internals/model/containers.md, "Isolation" and "Containers").
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sandbox {
    /// File system of the container: `preloaded:NAME`, `oci:FOLDER` or `oci:FOLDER:TAG`, or the path of a
    /// folder on the cell. An empty value selects the default of the cell.
    pub root_fs: String,
    /// Network of the container, `host` by default.
    pub network: Network,
    /// Archives to fetch and unpack concurrently before any program runs.
    #[serde(default)]
    pub cached_dependencies: Vec<Download>,
    /// Label of the log that the container's output lines belong to. Empty if there is none.
    #[serde(default)]
    pub log_guid: String,
    /// Source label of the container's lines in the log. If empty, the lines have no source.
    #[serde(default)]
    pub log_source: String,
    /// Label that the container's metrics carry. Empty if there is none.
    #[serde(default)]
    pub metrics_guid: String,
}

impl Sandbox {
    /// Prefix of a `root_fs` that names a file system which the cells of a stack provide.
    pub const PRELOADED: &str = "preloaded:";
    /// Prefix of a `root_fs` that names an image in a folder.
    pub const OCI: &str = "oci:";
}

/// Network of a container.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// The network of the host.
    #[default]
    Host,
    /// A network of its own, without any connection.
    None,
}

impl Definition {
    /// Returns a definition that keeps an action running, with default values.
    #[must_use]
    pub fn new(action: Action) -> Self {
        Self {
            constraint: Arc::default(),
            environment_variables: vec![],
            setup: None,
            action: action.into(),
            monitor: None,
            start_timeout_ms: 0,
            memory_mb: 0,
            disk_mb: 0,
            cpu_weight: 0,
            ports: Ports::new(),
            grace_period_ms: DEFAULT_GRACE_MS,
            sandbox: None,
        }
    }

    /// Returns the resources that one instance reserves on a cell.
    #[must_use]
    pub fn resources(&self) -> Resources {
        let ports = u32::try_from(self.ports.len()).unwrap_or(u32::MAX);
        Resources::for_container(self.memory_mb, self.disk_mb, ports)
    }
}

/// Program, resources and constraints of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDefinition {
    /// Constraint that a cell must meet.
    pub constraint: Constraint,
    /// Environment of every program in the container.
    pub environment_variables: Vec<Variable>,
    /// Action to run once.
    pub action: Action,
    /// Memory in MiB that placement reserves.
    pub memory_mb: u64,
    /// Disk in MiB that placement reserves.
    pub disk_mb: u64,
    /// CPU share relative to other containers, 1 to 1024; 0 selects the default of 1024.
    pub cpu_weight: u32,
    /// File whose content becomes the result of the task, relative to the work directory. If empty, the task
    /// has no result.
    pub result_file: String,
    /// URL that the completed task is posted to. If absent, a client must resolve the task.
    pub completion_callback_url: Option<crate::action::Secret>,
    /// Free text of the client.
    pub annotation: String,
    /// Priority, 1 to 100, 50 by default: work with a greater priority is placed first.
    pub priority: Priority,
    /// Behaviour while no cell can take the task, `fail` by default.
    pub placement: Placement,
    /// Time between TERM and KILL when the task is cancelled, in milliseconds, 10,000 by default.
    pub grace_period_ms: u64,
    /// Deviations from the default environment of a container. Absent if there are none.
    pub sandbox: Option<Arc<Sandbox>>,
}

impl TaskDefinition {
    /// Returns the resources that the task reserves on a cell.
    #[must_use]
    pub const fn resources(&self) -> Resources {
        Resources::for_container(self.memory_mb, self.disk_mb, 0)
    }
}

/// Behaviour of a task that cannot be placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Fail immediately with the reason.
    #[default]
    Fail,
    /// Wait for free resources, and fail at the deadline.
    Queue {
        /// Time from the creation of the task to the deadline, in milliseconds.
        deadline_ms: u64,
    },
}

/// Routing data, opaque to Muster: any JSON for each router, stored as text.
pub type Routes = BTreeMap<String, String>;

/// Placement mode of a process. Cannot change while the process is desired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A desired number of instances, placed by the auction.
    #[default]
    Replicated,
    /// One instance on each cell that fits the active definition (SwarmKit orchestrators, "Global
    /// orchestrator").
    Global,
}

/// A DesiredLRP in the form in which a client creates it: a deployment with one definition (Updatable LRPs,
/// "Promotion of existing DesiredLRP entities to `LRPDeployment` entities").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DesiredLrp {
    /// GUID of the process.
    pub process_guid: ProcessGuid,
    /// Domain of the process.
    pub domain: Domain,
    /// Placement mode of the process, `replicated` by default.
    pub mode: Mode,
    /// Desired number of instances, 1 by default. The cells determine the number of a global process, for which
    /// this is 0.
    pub instances: u32,
    /// Priority, 1 to 100, 50 by default: work with a greater priority is placed first.
    pub priority: Priority,
    /// Routing data: any JSON for each router.
    pub routes: Routes,
    /// Free text of the client.
    pub annotation: String,
    /// Policies for rollouts, rollbacks, restarts and history.
    pub policies: Policies,
    /// Id of the definition. By default the process guid.
    pub definition_id: DefinitionId,
    /// Definition of each instance.
    pub definition: Arc<Definition>,
}

impl DesiredLrp {
    /// Returns an update that sets all properties of a process, except for the definition, to the properties
    /// of this DesiredLRP. For a global process, the update does not set the number of instances.
    #[must_use]
    pub fn to_update(&self) -> DesiredLrpUpdate {
        DesiredLrpUpdate {
            instances: match self.mode {
                Mode::Replicated => Some(self.instances),
                Mode::Global => None,
            },
            priority: Some(self.priority),
            routes: Some(self.routes.clone()),
            annotation: Some(self.annotation.clone()),
            policies: Some(self.policies.clone()),
        }
    }
}

/// Changes to a process that restart no instance. Absent fields keep their value (docs/internals/model/definitions-and-rollouts.md, "Definitions and keys").
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DesiredLrpUpdate {
    /// Desired number of instances.
    pub instances: Option<u32>,
    /// Priority, effective from the next placement.
    pub priority: Option<Priority>,
    /// Routing data: any JSON for each router.
    pub routes: Option<Routes>,
    /// Free text of the client.
    pub annotation: Option<String>,
    /// Policies for rollouts, rollbacks, restarts and history. A change takes effect with the next rollout or
    /// crash.
    pub policies: Option<Policies>,
}

/// A task in the form in which a client creates it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DesiredTask {
    /// GUID of the task.
    pub task_guid: TaskGuid,
    /// Domain of the task.
    pub domain: Domain,
    /// Definition of the task.
    pub definition: Arc<TaskDefinition>,
}

/// Behaviour of a launch that is due while an earlier task of the schedule is PENDING or RUNNING.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// Launch the task concurrently.
    Allowed,
    /// Skip the launch.
    #[default]
    Skipped,
    /// Launch the task when no earlier task is left. At most one launch waits. Launches that become due
    /// during this wait are skipped.
    Queued,
}

/// A periodic task in the form in which a client creates it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DesiredPeriodic {
    /// GUID of the periodic task: at most 96 of the characters of names, without `--` and without `-` at the
    /// end.
    pub periodic_guid: PeriodicGuid,
    /// Domain of the periodic task and of every task that it launches.
    pub domain: Domain,
    #[schemars(skip)]
    pub schedule: Schedule,
    /// Behaviour of a launch while an earlier task is PENDING or RUNNING, `skipped` by default.
    pub overlap: Overlap,
    /// Definition of each launched task.
    pub definition: Arc<TaskDefinition>,
}

/// Rule for the payload of a dispatch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PayloadRule {
    /// A dispatch must have a payload.
    Required,
    /// A dispatch may have a payload.
    #[default]
    Optional,
    /// A dispatch must not have a payload.
    Forbidden,
}

/// Behaviour of a dispatch at the concurrency limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// Queue the dispatch.
    #[default]
    Queued,
    /// Refuse the dispatch.
    Refused,
}

/// A parameterised task in the form in which a client creates it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DesiredParameterised {
    /// GUID of the parameterised task: at most 96 of the characters of names, without `--` and without `-` at
    /// the end.
    pub parameterised_guid: ParameterisedGuid,
    /// Domain of the parameterised task and of every task that it launches.
    pub domain: Domain,
    /// Rule for the payload of a dispatch, `optional` by default.
    pub payload: PayloadRule,
    /// Parameters that every dispatch must set, at most 64: each 1 to 64 of `A-Z a-z 0-9 _`, without a leading
    /// digit.
    pub required_parameters: BTreeSet<String>,
    /// Parameters that a dispatch may set.
    pub optional_parameters: BTreeSet<String>,
    /// Maximum number of launched tasks that are PENDING or RUNNING at the same time, 1 to 10,000. Unlimited by
    /// default.
    pub concurrency: Option<u32>,
    /// Behaviour of a dispatch at that limit, `queued` by default.
    pub overflow: Overflow,
    /// Definition of each launched task, without payload and parameters.
    pub definition: Arc<TaskDefinition>,
}
