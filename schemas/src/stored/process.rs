//! Stored events of processes: the desired state, instances, and evacuating instances, in every version.
//!
//! A new version of an event is a separate variant (`CrashedV2`, `crashed.v2`) beside the old variant. The enum
//! then needs an implementation of `Stored` of its own, which upcasts the old version and writes the new version.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::conversion::{By, Stored, stored};
use super::parts::{Action, Constraint, Explanation, Instance, NetInfo, Sandbox, Variable};
use super::rollout::Policies;
use crate::actual::{StopReason, UnclaimReason};
use crate::crash::NoRestartReason;
use crate::definition::{Mode, Ports};
use crate::evacuating::RemovalReason;
use crate::exec::Exec;
use crate::isolation::Isolation;
use crate::names::{DefinitionId, Domain, ProcessGuid};
use crate::priority::Priority;
use crate::{Indices, Place, Places, Timestamp, actual, crash, definition, desired, evacuating};

stored! {
    /// An event of the desired state of a process.
    #[schemars(rename = "DesiredEvent")]
    pub enum Desired("desired") = desired::Event {
        /// The process was desired: a new epoch starts.
        "desired.v1": DesiredV1(lrp: Box<DesiredLrp>) = Desired,
        /// The scale, priority, routes, annotation or policies changed.
        "updated.v1": UpdatedV1(update: DesiredLrpUpdate) = Updated,
        /// A definition was added.
        "definition_added.v1": DefinitionAddedV1 {
            /// Id of the definition.
            definition_id: DefinitionId,
            /// Content of the definition.
            definition: Arc<Definition>,
        } = DefinitionAdded,
        /// A definition became active: every instance must run this definition.
        "activated.v1": ActivatedV1 {
            /// Id of the definition.
            definition_id: DefinitionId,
        } = Activated,
        /// A definition is known to work, and crashed instances restart with this definition.
        "healthy_changed.v1": HealthyChangedV1 {
            /// Id of the definition.
            definition_id: DefinitionId,
        } = HealthyChanged,
        /// Unused definitions were removed.
        "pruned.v1": PrunedV1 {
            /// Ids of the definitions.
            definition_ids: Vec<DefinitionId>,
        } = Pruned,
        /// The cells of a global process changed.
        "cells_changed.v1": CellsChangedV1 {
            /// Cells that were added or changed.
            cells: Vec<GlobalCell>,
            /// Ordinals of the cells that were removed.
            removed: Indices,
        } = CellsChanged,
        /// The process is no longer desired.
        "removed.v1": RemovedV1 {} = Removed,
    }
}

/// A cell that runs an instance of a global process.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct GlobalCell {
    /// Ordinal of the cell, which is the index of the instance.
    pub index: u32,
    /// Id of the cell.
    pub cell_id: crate::names::CellId,
    /// `true` if the cell accepts no new work.
    pub cordoned: bool,
}

impl Stored for GlobalCell {
    type Today = (u32, desired::GlobalCell);

    fn read(self) -> (u32, desired::GlobalCell) {
        let Self { index, cell_id, cordoned } = self;
        (index, desired::GlobalCell { cell_id, cordoned })
    }

    fn write<S: Serializer>(today: &(u32, desired::GlobalCell), to: S) -> Result<S::Ok, S::Error> {
        let (index, desired::GlobalCell { cell_id, cordoned }) = today.clone();
        Self { index, cell_id, cordoned }.serialize(to)
    }
}

stored! {
    /// A `DesiredLRP` as desired by a client.
    pub struct DesiredLrp = definition::DesiredLrp {
        /// GUID of the process.
        pub process_guid: ProcessGuid,
        /// Domain of the process.
        pub domain: Domain,
        /// Placement mode.
        pub mode: Mode,
        /// Number of instances. 0 for a global process, which has one instance on each suitable cell.
        pub instances: u32,
        /// Priority, 1 to 100. Higher priorities are placed first.
        pub priority: Priority,
        /// Routing data: JSON text by router.
        pub routes: BTreeMap<String, String>,
        /// Free text of the client.
        pub annotation: String,
        /// Update, rollback and restart policies.
        pub policies: Policies,
        /// Id of the definition.
        pub definition_id: DefinitionId,
        /// Content of the definition.
        pub definition: Arc<Definition>,
    }
}

stored! {
    /// The content and the requirements of an instance of a process.
    #[schemars(rename = "StoredDefinition")]
    pub struct Definition = definition::Definition {
        /// Constraint on the cells that may run an instance.
        pub constraint: Arc<Constraint>,
        /// Environment of every program in the container.
        pub environment_variables: Vec<Variable>,
        /// Action that runs to completion before `action`.
        pub setup: Option<Arc<Action>>,
        /// Action that is kept running.
        pub action: Arc<Action>,
        /// Action that checks the health of the instance.
        pub monitor: Option<Arc<Action>>,
        /// Time for which the monitor may fail before its first success, in milliseconds. 0 for no limit.
        pub start_timeout_ms: u64,
        /// Memory in MiB.
        pub memory_mb: u64,
        /// Disk in MiB.
        pub disk_mb: u64,
        /// Share of the processor relative to other containers, 1 to 1024. 0 for the default of the cell.
        pub cpu_weight: u32,
        /// Container ports of the instance. Each port is mapped to a host port.
        pub ports: Ports,
        /// Time between TERM and KILL when the instance is stopped, in milliseconds.
        pub grace_period_ms: u64,
        /// Settings of the container's environment. `None` for the defaults.
        pub sandbox: Option<Arc<Sandbox>>,
    }
}

stored! {
    /// Changes to a process that restart no instances. Absent fields do not change.
    pub struct DesiredLrpUpdate = definition::DesiredLrpUpdate {
        /// Number of instances.
        pub instances: Option<u32>,
        /// Priority, 1 to 100.
        pub priority: Option<Priority>,
        /// Routing data.
        pub routes: Option<BTreeMap<String, String>>,
        /// Free text of the client.
        pub annotation: Option<String>,
        /// Update, rollback and restart policies, effective from the next rollout.
        pub policies: Option<Policies>,
    }
}

stored! {
    /// An event of instances.
    #[schemars(rename = "ActualEvent")]
    pub enum Actual("actual") = actual::Event {
        /// UNCLAIMED records were created.
        "created.v1": CreatedV1 {
            /// Indices of the records.
            indices: Indices,
            /// Definition that the instances must run.
            definition_id: DefinitionId,
        } = Created { places: Places { indices, definition_id } },
        /// A cell claimed an instance.
        "claimed.v1": ClaimedV1 {
            /// Index of the instance.
            index: u32,
            /// Definition of the instance.
            definition_id: DefinitionId,
            /// Container of the instance.
            by: Instance,
            /// Explanation of the placement.
            placement: Option<Box<Explanation>>,
        } = Claimed { place: Place { index, definition_id }, by, placement },
        /// An instance is running.
        "started.v1": StartedV1 {
            /// Index of the instance.
            index: u32,
            /// Definition of the instance.
            definition_id: DefinitionId,
            /// Container of the instance.
            by: Instance,
            /// Address and ports of the instance.
            net: NetInfo,
            /// Isolation of the container.
            #[serde(default)]
            isolation: Isolation,
        } = Started { place: Place { index, definition_id }, by, net, isolation },
        /// An instance crashed.
        "crashed.v1": CrashedV1 {
            /// Index of the instance.
            index: u32,
            /// Definition of the instance.
            definition_id: DefinitionId,
            /// Container of the instance.
            by: Instance,
            /// Reason for the crash.
            reason: String,
            /// Exit status of the action, if it caused the crash.
            exit_status: Option<i32>,
            /// Number of counted crashes, including this one.
            crash_count: u32,
            /// Time of the restart, or the reason why there is no restart.
            restart: Restart,
            /// Restarts that the policy counts and allows. `None` if the policy sets no limit.
            attempts: Option<Attempts>,
        } = Crashed { place: Place { index, definition_id }, by, reason, exit_status, crash_count, restart, attempts },
        /// An auction could not place instances.
        "placement_failed.v1": PlacementFailedV1 {
            /// Indices of the instances.
            indices: Indices,
            /// Definition of the instances.
            definition_id: DefinitionId,
            /// Placement error, as shown to users.
            error: String,
            /// Explanation of the failure by cell.
            explanation: Option<Box<Explanation>>,
        } = PlacementFailed { places: Places { indices, definition_id }, error, explanation },
        /// Instances have to be placed again.
        "unclaimed.v1": UnclaimedV1 {
            /// Indices of the instances.
            indices: Indices,
            /// Definition of the instances.
            definition_id: DefinitionId,
            /// Reason for the change.
            cause: UnclaimReason,
        } = Unclaimed { places: Places { indices, definition_id }, cause },
        /// Instances were asked to stop. Their reps receive the order repeatedly until the instances are
        /// gone.
        "stop_requested.v1": StopRequestedV1 {
            /// Indices of the instances.
            indices: Indices,
            /// Definition of the instances.
            definition_id: DefinitionId,
            /// Reason for the stop.
            cause: StopReason,
        } = StopRequested { places: Places { indices, definition_id }, cause },
        /// Instance records were removed.
        "removed.v1": RemovedV1 {
            /// Indices of the instances.
            indices: Indices,
            /// Definition of the instances.
            definition_id: DefinitionId,
            /// Reason for the removal.
            cause: StopReason,
        } = Removed { places: Places { indices, definition_id }, cause },
        /// A client ran a program in the container of a running instance.
        "exec_started.v1": ExecStartedV1 {
            /// Index of the instance.
            index: u32,
            /// Definition of the instance.
            definition_id: DefinitionId,
            /// Container of the instance.
            by: Instance,
            /// Program and its arguments.
            exec: Box<Exec>,
        } = ExecStarted { place: Place { index, definition_id }, by, exec },
    }
}

stored! {
    /// The restart of a crashed instance.
    #[serde(rename_all = "snake_case")]
    pub enum Restart = crash::Restart {
        /// A restart in the decision that records the crash.
        Immediate = Immediate,
        /// A restart at the given time.
        At(due: Timestamp) = At,
        /// No automatic restart.
        Never(why: NoRestartReason) = Never,
    }
}

stored! {
    /// The number of restarts that a policy counts and allows.
    pub struct Attempts = crash::Attempts {
        /// Number of counted restarts. A restart after this crash is included.
        pub counted: u32,
        /// Maximum number of restarts.
        pub allowed: u32,
    }
}

stored! {
    /// An event of evacuating instances.
    #[schemars(rename = "EvacuatingEvent")]
    pub enum Evacuating("evacuating") = evacuating::Event {
        /// An evacuating record was created, or a container took over the record.
        "set.v1": SetV1 {
            /// Index of the instance.
            index: u32,
            /// Definition of the instance.
            definition_id: DefinitionId,
            /// Container of the instance.
            by: Instance,
            /// Address and ports of the instance.
            net: NetInfo,
            /// Time when the record expires.
            expires_at: Timestamp,
        } = Set { place: Place { index, definition_id }, by, net, expires_at },
        /// An evacuating record was removed.
        "removed.v1": RemovedV1 {
            /// Index of the instance.
            index: u32,
            /// Definition of the instance.
            definition_id: DefinitionId,
            /// Reason for the removal.
            cause: RemovalReason,
        } = Removed { place: Place { index, definition_id }, cause },
    }
}
