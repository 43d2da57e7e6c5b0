//! Definitions: what to run, for a process and for a task (docs/model.md, "Definitions and keys").

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::action::{Action, Download, Variable};
use crate::names::{DefinitionId, Domain, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid};
use crate::policy::Policies;
use crate::rank::Priority;
use crate::resources::{Constraint, Resources};
use crate::schedule::Schedule;

/// How long a container that is asked to stop may take before it is killed, unless its definition says otherwise:
/// 10 s (docs/model.md, "The rep's tables").
pub const DEFAULT_GRACE_MS: u64 = 10_000;

/// The ports of a definition: hardly any has more than fit in.
pub type Ports = SmallVec<[u16; 8]>;

// Its larger parts can be shared: of a million definitions hardly two are equal, but most run one of a few programs, and
// differ by what is in their environment.
/// What one instance of a process runs and needs. Never changes: another definition is another id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Definition {
    /// Which cells may take it.
    pub constraint: Arc<Constraint>,
    /// Environment of everything that runs in the container.
    pub environment_variables: Vec<Variable>,
    /// Runs before `action`, to its end.
    pub setup: Option<Arc<Action>>,
    /// What is kept running.
    pub action: Arc<Action>,
    /// Tells whether the instance is healthy: polled every 0.5 s until it first succeeds, then every 30 s.
    pub monitor: Option<Arc<Action>>,
    /// How long the monitor may fail before its first success, in milliseconds; 0: for ever.
    pub start_timeout_ms: u64,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Disk in MiB.
    pub disk_mb: u64,
    /// Share of the processor relative to others, 1 to 1024; 0: the cell's usual share.
    pub cpu_weight: u32,
    /// Ports that the instance listens on, as it sees them; each gets a port of the host.
    pub ports: Ports,
    /// Time between TERM and KILL when it is stopped, in milliseconds.
    pub grace_period_ms: u64,
    /// What of its surroundings is not as usual; none: all is.
    pub sandbox: Option<Arc<Sandbox>>,
}

/// What of a container's surroundings is not as usual (docs/model.md, "Isolation" and "Containers").
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sandbox {
    /// The file system that it gets: `preloaded:NAME`, `oci:FOLDER` or `oci:FOLDER:TAG`, or the path of a folder of the cell's;
    /// empty: what programs need of the host's.
    pub root_fs: String,
    /// The network that it is in.
    pub network: Network,
    /// Archives that are fetched and unpacked before anything runs, all at once.
    #[serde(default)]
    pub cached_dependencies: Vec<Download>,
    /// Whose log its lines are part of: a label, empty if there is none.
    #[serde(default)]
    pub log_guid: String,
    /// What its lines in the log are told as; empty: they say of no source.
    #[serde(default)]
    pub log_source: String,
    /// Whose metrics its metrics are: a label, empty if there is none.
    #[serde(default)]
    pub metrics_guid: String,
}

impl Sandbox {
    /// What a `root_fs` begins with that is the one which cells of a stack have for containers.
    pub const PRELOADED: &str = "preloaded:";
    /// What a `root_fs` begins with that is an image in a folder.
    pub const OCI: &str = "oci:";
}

/// The network that a container is in.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// The host's.
    #[default]
    Host,
    /// One of its own, which leads nowhere.
    None,
}

impl Definition {
    /// What one instance takes of a cell.
    #[must_use]
    pub fn resources(&self) -> Resources {
        let ports = u32::try_from(self.ports.len()).unwrap_or(u32::MAX);
        Resources::of_container(self.memory_mb, self.disk_mb, ports)
    }
}

/// What a task runs and needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDefinition {
    /// Which cells may take it.
    pub constraint: Constraint,
    /// Environment of everything that runs in the container.
    pub environment_variables: Vec<Variable>,
    /// What is run, once.
    pub action: Action,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Disk in MiB.
    pub disk_mb: u64,
    /// Share of the processor relative to others, 1 to 1024; 0: the cell's usual share.
    pub cpu_weight: u32,
    /// The file whose content is the task's result, relative to the work directory; empty: no result.
    pub result_file: String,
    /// Where the completed task is posted to; none: it waits to be resolved.
    pub completion_callback_url: Option<crate::action::Secret>,
    /// The consumer's own text.
    pub annotation: String,
    /// How urgent it is: whose priority is greater is placed first.
    pub priority: Priority,
    /// What becomes of the task while no cell can take it.
    pub placement: Placement,
    /// Time between TERM and KILL when it is cancelled, in milliseconds.
    pub grace_period_ms: u64,
    /// What of its surroundings is not as usual; none: all is.
    pub sandbox: Option<Arc<Sandbox>>,
}

impl TaskDefinition {
    /// What the task takes of a cell.
    #[must_use]
    pub const fn resources(&self) -> Resources {
        Resources::of_container(self.memory_mb, self.disk_mb, 0)
    }
}

/// What becomes of a task that can't be placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// It fails at once with the reason.
    #[default]
    Fail,
    /// It waits this many milliseconds from its creation for room, and only then fails.
    Queue {
        /// How long it waits, in milliseconds.
        deadline_ms: u64,
    },
}

/// Routing data, opaque to Muster: for each router any JSON, kept as text.
pub type Routes = BTreeMap<String, String>;

/// Where the instances of a process run. Never changes while it is desired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// So many instances as are desired, wherever the auction finds the best places.
    #[default]
    Replicated,
    /// One instance on each cell that fits the active definition (SwarmKit orchestrators, "Global orchestrator").
    Global,
}

/// A DesiredLRP as a client desires it: a deployment with one definition (Updatable LRPs, "Promotion of existing
/// DesiredLRP entities to `LRPDeployment` entities").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DesiredLrp {
    /// Names the process.
    pub process_guid: ProcessGuid,
    /// Its domain.
    pub domain: Domain,
    /// Where its instances run.
    pub mode: Mode,
    /// How many instances; 0 where the cells say how many.
    pub instances: u32,
    /// How urgent it is: whose priority is greater is placed first.
    pub priority: Priority,
    /// Routing data.
    pub routes: Routes,
    /// The consumer's own text.
    pub annotation: String,
    /// How its instances are replaced.
    pub policies: Policies,
    /// The definition's id; the process guid unless the client says otherwise.
    pub definition_id: DefinitionId,
    /// What each instance runs.
    pub definition: Arc<Definition>,
}

impl DesiredLrp {
    /// What makes a process this, but for its definition. A global one has as many instances as there are cells that fit.
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

/// Changes to a process that restart nothing: what is absent stays (docs/model.md, "Definitions and keys").
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DesiredLrpUpdate {
    /// How many instances.
    pub instances: Option<u32>,
    /// How urgent it is, from the next time that something of it is placed.
    pub priority: Option<Priority>,
    /// Routing data.
    pub routes: Option<Routes>,
    /// The consumer's own text.
    pub annotation: Option<String>,
    /// How its instances are replaced, from the next rollout on.
    pub policies: Option<Policies>,
}

/// A task as a client desires it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DesiredTask {
    /// Names the task.
    pub task_guid: TaskGuid,
    /// Its domain.
    pub domain: Domain,
    /// What it runs.
    pub definition: Arc<TaskDefinition>,
}

/// What becomes of a launch that is due while a task of an earlier one is still PENDING or RUNNING.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It is launched beside it.
    Allowed,
    /// It is skipped.
    #[default]
    Skipped,
    /// It waits until nothing of it runs any more. One at most waits; what is due meanwhile is skipped.
    Queued,
}

/// A periodic task as a client desires it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredPeriodic {
    /// Names it.
    pub periodic_guid: PeriodicGuid,
    /// Its domain, and that of everything that it launches.
    pub domain: Domain,
    /// When it is due.
    pub schedule: Schedule,
    /// What becomes of a launch while an earlier one runs.
    pub overlap: Overlap,
    /// What each task that it launches runs.
    pub definition: Arc<TaskDefinition>,
}

/// Whether a dispatch has a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PayloadRule {
    /// It must have one.
    Required,
    /// It may have one.
    #[default]
    Optional,
    /// It must have none.
    Forbidden,
}

/// What becomes of a dispatch while as many tasks are PENDING or RUNNING as may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// It waits for its turn.
    #[default]
    Queued,
    /// It is refused.
    Refused,
}

/// A parameterised task as a client desires it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredParameterised {
    /// Names it.
    pub parameterised_guid: ParameterisedGuid,
    /// Its domain, and that of every task of it.
    pub domain: Domain,
    /// Whether a dispatch has a payload.
    pub payload: PayloadRule,
    /// The parameters that a dispatch must give.
    pub required_parameters: BTreeSet<String>,
    /// The parameters that it may give.
    pub optional_parameters: BTreeSet<String>,
    /// How many of its tasks may be PENDING or RUNNING at once; none: any number.
    pub concurrency: Option<u32>,
    /// What becomes of a dispatch beyond that.
    pub overflow: Overflow,
    /// What each task of it runs, without what is dispatched.
    pub definition: Arc<TaskDefinition>,
}
