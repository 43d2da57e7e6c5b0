//! Stored events of processes: the desired state, instances, and evacuating instances, in every version.
//!
//! A new version of an event is a separate variant (`CrashedV2`, `crashed.v2`) beside the old variant. The
//! `Mirror` into the current event then has an arm that upcasts the old version. The `Mirror` out of the
//! current event writes the new version.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mirror::{Mirror, mirror};
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

/// An event of the desired state of a process.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DesiredEvent")]
pub enum Desired {
    /// The process was desired: a new epoch starts.
    #[serde(rename = "desired.v1")]
    DesiredV1(Box<DesiredLrp>),
    /// The scale, priority, routes, annotation or policies changed.
    #[serde(rename = "updated.v1")]
    UpdatedV1(DesiredLrpUpdate),
    /// A definition was added.
    #[serde(rename = "definition_added.v1")]
    DefinitionAddedV1 {
        /// Id of the definition.
        definition_id: DefinitionId,
        /// Content of the definition.
        definition: Arc<Definition>,
    },
    /// A definition became active: every instance must run this definition.
    #[serde(rename = "activated.v1")]
    ActivatedV1 {
        /// Id of the definition.
        definition_id: DefinitionId,
    },
    /// A definition is known to work, and crashed instances restart with this definition.
    #[serde(rename = "healthy_changed.v1")]
    HealthyChangedV1 {
        /// Id of the definition.
        definition_id: DefinitionId,
    },
    /// Unused definitions were removed.
    #[serde(rename = "pruned.v1")]
    PrunedV1 {
        /// Ids of the definitions.
        definition_ids: Vec<DefinitionId>,
    },
    /// The cells of a global process changed.
    #[serde(rename = "cells_changed.v1")]
    CellsChangedV1 {
        /// Cells that were added or changed.
        cells: Vec<GlobalCell>,
        /// Ordinals of the cells that were removed.
        removed: Indices,
    },
    /// The process is no longer desired.
    #[serde(rename = "removed.v1")]
    RemovedV1 {},
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

impl Mirror<(u32, desired::GlobalCell)> for GlobalCell {
    fn mirror(self) -> (u32, desired::GlobalCell) {
        let Self { index, cell_id, cordoned } = self;
        (index, desired::GlobalCell { cell_id, cordoned })
    }
}

impl Mirror<GlobalCell> for (u32, desired::GlobalCell) {
    fn mirror(self) -> GlobalCell {
        let (index, desired::GlobalCell { cell_id, cordoned }) = self;
        GlobalCell { index, cell_id, cordoned }
    }
}

/// A `DesiredLRP` as desired by a client.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DesiredLrp {
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
mirror!(struct DesiredLrp = definition::DesiredLrp {
    process_guid, domain, mode, instances, priority, routes, annotation, policies, definition_id, definition,
});

/// The content and the requirements of an instance of a process.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StoredDefinition")]
pub struct Definition {
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
mirror!(struct Definition = definition::Definition {
    constraint, environment_variables, setup, action, monitor, start_timeout_ms, memory_mb, disk_mb, cpu_weight,
    ports, grace_period_ms, sandbox,
});

/// Changes to a process that restart no instances. Absent fields do not change.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DesiredLrpUpdate {
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
mirror!(struct DesiredLrpUpdate = definition::DesiredLrpUpdate { instances, priority, routes, annotation, policies });

impl Mirror<desired::Event> for Desired {
    fn mirror(self) -> desired::Event {
        match self {
            Self::DesiredV1(lrp) => desired::Event::Desired(lrp.mirror()),
            Self::UpdatedV1(update) => desired::Event::Updated(update.mirror()),
            Self::DefinitionAddedV1 { definition_id, definition } => {
                desired::Event::DefinitionAdded { definition_id, definition: definition.mirror() }
            }
            Self::ActivatedV1 { definition_id } => desired::Event::Activated { definition_id },
            Self::HealthyChangedV1 { definition_id } => desired::Event::HealthyChanged { definition_id },
            Self::PrunedV1 { definition_ids } => desired::Event::Pruned { definition_ids },
            Self::CellsChangedV1 { cells, removed } => {
                desired::Event::CellsChanged { cells: cells.mirror(), removed }
            }
            Self::RemovedV1 {} => desired::Event::Removed {},
        }
    }
}

impl Mirror<Desired> for desired::Event {
    fn mirror(self) -> Desired {
        match self {
            Self::Desired(lrp) => Desired::DesiredV1(lrp.mirror()),
            Self::Updated(update) => Desired::UpdatedV1(update.mirror()),
            Self::DefinitionAdded { definition_id, definition } => {
                Desired::DefinitionAddedV1 { definition_id, definition: definition.mirror() }
            }
            Self::Activated { definition_id } => Desired::ActivatedV1 { definition_id },
            Self::HealthyChanged { definition_id } => Desired::HealthyChangedV1 { definition_id },
            Self::Pruned { definition_ids } => Desired::PrunedV1 { definition_ids },
            Self::CellsChanged { cells, removed } => {
                Desired::CellsChangedV1 { cells: cells.mirror(), removed }
            }
            Self::Removed {} => Desired::RemovedV1 {},
        }
    }
}

/// An event of instances.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ActualEvent")]
pub enum Actual {
    /// UNCLAIMED records were created.
    #[serde(rename = "created.v1")]
    CreatedV1 {
        /// Indices of the records.
        indices: Indices,
        /// Definition that the instances must run.
        definition_id: DefinitionId,
    },
    /// A cell claimed an instance.
    #[serde(rename = "claimed.v1")]
    ClaimedV1 {
        /// Index of the instance.
        index: u32,
        /// Definition of the instance.
        definition_id: DefinitionId,
        /// Container of the instance.
        by: Instance,
        /// Explanation of the placement.
        placement: Option<Box<Explanation>>,
    },
    /// An instance is running.
    #[serde(rename = "started.v1")]
    StartedV1 {
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
    },
    /// An instance crashed.
    #[serde(rename = "crashed.v1")]
    CrashedV1 {
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
    },
    /// An auction could not place instances.
    #[serde(rename = "placement_failed.v1")]
    PlacementFailedV1 {
        /// Indices of the instances.
        indices: Indices,
        /// Definition of the instances.
        definition_id: DefinitionId,
        /// Placement error, as shown to users.
        error: String,
        /// Explanation of the failure by cell.
        explanation: Option<Box<Explanation>>,
    },
    /// Instances have to be placed again.
    #[serde(rename = "unclaimed.v1")]
    UnclaimedV1 {
        /// Indices of the instances.
        indices: Indices,
        /// Definition of the instances.
        definition_id: DefinitionId,
        /// Reason for the change.
        cause: UnclaimReason,
    },
    /// Instances were asked to stop. Their reps receive the order repeatedly until the instances are gone.
    #[serde(rename = "stop_requested.v1")]
    StopRequestedV1 {
        /// Indices of the instances.
        indices: Indices,
        /// Definition of the instances.
        definition_id: DefinitionId,
        /// Reason for the stop.
        cause: StopReason,
    },
    /// Instance records were removed.
    #[serde(rename = "removed.v1")]
    RemovedV1 {
        /// Indices of the instances.
        indices: Indices,
        /// Definition of the instances.
        definition_id: DefinitionId,
        /// Reason for the removal.
        cause: StopReason,
    },
    /// A client ran a program in the container of a running instance.
    #[serde(rename = "exec_started.v1")]
    ExecStartedV1 {
        /// Index of the instance.
        index: u32,
        /// Definition of the instance.
        definition_id: DefinitionId,
        /// Container of the instance.
        by: Instance,
        /// Program and its arguments.
        exec: Box<Exec>,
    },
}

/// The restart of a crashed instance.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Restart {
    /// A restart in the decision that records the crash.
    Immediate,
    /// A restart at the given time.
    At(Timestamp),
    /// No automatic restart.
    Never(NoRestartReason),
}
mirror!(enum Restart = crash::Restart { Immediate, At(due), Never(why) });

/// The number of restarts that a policy counts and allows.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Attempts {
    /// Number of counted restarts. A restart after this crash is included.
    pub counted: u32,
    /// Maximum number of restarts.
    pub allowed: u32,
}
mirror!(struct Attempts = crash::Attempts { counted, allowed });

impl Mirror<actual::Event> for Actual {
    fn mirror(self) -> actual::Event {
        use actual::Event;
        match self {
            Self::CreatedV1 { indices, definition_id } => {
                Event::Created { places: Places { indices, definition_id } }
            }
            Self::ClaimedV1 { index, definition_id, by, placement } => Event::Claimed {
                place: Place { index, definition_id },
                by: by.mirror(),
                placement: placement.mirror(),
            },
            Self::StartedV1 { index, definition_id, by, net, isolation } => {
                let place = Place { index, definition_id };
                Event::Started { place, by: by.mirror(), net: net.mirror(), isolation }
            }
            Self::CrashedV1 {
                index,
                definition_id,
                by,
                reason,
                exit_status,
                crash_count,
                restart,
                attempts,
            } => {
                let place = Place { index, definition_id };
                let (by, restart, attempts) = (by.mirror(), restart.mirror(), attempts.mirror());
                Event::Crashed { place, by, reason, exit_status, crash_count, restart, attempts }
            }
            Self::PlacementFailedV1 { indices, definition_id, error, explanation } => {
                let places = Places { indices, definition_id };
                Event::PlacementFailed { places, error, explanation: explanation.mirror() }
            }
            Self::UnclaimedV1 { indices, definition_id, cause } => {
                Event::Unclaimed { places: Places { indices, definition_id }, cause: cause.mirror() }
            }
            Self::StopRequestedV1 { indices, definition_id, cause } => {
                Event::StopRequested { places: Places { indices, definition_id }, cause: cause.mirror() }
            }
            Self::RemovedV1 { indices, definition_id, cause } => {
                Event::Removed { places: Places { indices, definition_id }, cause: cause.mirror() }
            }
            Self::ExecStartedV1 { index, definition_id, by, exec } => {
                Event::ExecStarted { place: Place { index, definition_id }, by: by.mirror(), exec }
            }
        }
    }
}

impl Mirror<Actual> for actual::Event {
    fn mirror(self) -> Actual {
        match self {
            Self::Created { places: Places { indices, definition_id } } => {
                Actual::CreatedV1 { indices, definition_id }
            }
            Self::Claimed { place: Place { index, definition_id }, by, placement } => {
                let (by, placement) = (by.mirror(), placement.mirror());
                Actual::ClaimedV1 { index, definition_id, by, placement }
            }
            Self::Started { place: Place { index, definition_id }, by, net, isolation } => {
                Actual::StartedV1 { index, definition_id, by: by.mirror(), net: net.mirror(), isolation }
            }
            Self::ExecStarted { place: Place { index, definition_id }, by, exec } => {
                Actual::ExecStartedV1 { index, definition_id, by: by.mirror(), exec }
            }
            Self::Crashed {
                place: Place { index, definition_id },
                by,
                reason,
                exit_status,
                crash_count,
                restart,
                attempts,
            } => {
                let (by, restart, attempts) = (by.mirror(), restart.mirror(), attempts.mirror());
                Actual::CrashedV1 {
                    index,
                    definition_id,
                    by,
                    reason,
                    exit_status,
                    crash_count,
                    restart,
                    attempts,
                }
            }
            Self::PlacementFailed { places: Places { indices, definition_id }, error, explanation } => {
                let explanation = explanation.mirror();
                Actual::PlacementFailedV1 { indices, definition_id, error, explanation }
            }
            Self::Unclaimed { places: Places { indices, definition_id }, cause } => {
                Actual::UnclaimedV1 { indices, definition_id, cause: cause.mirror() }
            }
            Self::StopRequested { places: Places { indices, definition_id }, cause } => {
                Actual::StopRequestedV1 { indices, definition_id, cause: cause.mirror() }
            }
            Self::Removed { places: Places { indices, definition_id }, cause } => {
                Actual::RemovedV1 { indices, definition_id, cause: cause.mirror() }
            }
        }
    }
}

/// An event of evacuating instances.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "EvacuatingEvent")]
pub enum Evacuating {
    /// An evacuating record was created, or a container took over the record.
    #[serde(rename = "set.v1")]
    SetV1 {
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
    },
    /// An evacuating record was removed.
    #[serde(rename = "removed.v1")]
    RemovedV1 {
        /// Index of the instance.
        index: u32,
        /// Definition of the instance.
        definition_id: DefinitionId,
        /// Reason for the removal.
        cause: RemovalReason,
    },
}

impl Mirror<evacuating::Event> for Evacuating {
    fn mirror(self) -> evacuating::Event {
        match self {
            Self::SetV1 { index, definition_id, by, net, expires_at } => {
                let place = Place { index, definition_id };
                evacuating::Event::Set { place, by: by.mirror(), net: net.mirror(), expires_at }
            }
            Self::RemovedV1 { index, definition_id, cause } => {
                evacuating::Event::Removed { place: Place { index, definition_id }, cause: cause.mirror() }
            }
        }
    }
}

impl Mirror<Evacuating> for evacuating::Event {
    fn mirror(self) -> Evacuating {
        match self {
            Self::Set { place: Place { index, definition_id }, by, net, expires_at } => {
                Evacuating::SetV1 { index, definition_id, by: by.mirror(), net: net.mirror(), expires_at }
            }
            Self::Removed { place: Place { index, definition_id }, cause } => {
                Evacuating::RemovedV1 { index, definition_id, cause: cause.mirror() }
            }
        }
    }
}

impl Desired {
    pub(super) const fn type_name(event: &desired::Event) -> &'static str {
        match event {
            desired::Event::Desired(_) => "desired.desired.v1",
            desired::Event::Updated(_) => "desired.updated.v1",
            desired::Event::DefinitionAdded { .. } => "desired.definition_added.v1",
            desired::Event::Activated { .. } => "desired.activated.v1",
            desired::Event::HealthyChanged { .. } => "desired.healthy_changed.v1",
            desired::Event::Pruned { .. } => "desired.pruned.v1",
            desired::Event::CellsChanged { .. } => "desired.cells_changed.v1",
            desired::Event::Removed {} => "desired.removed.v1",
        }
    }
}

impl Actual {
    pub(super) const fn type_name(event: &actual::Event) -> &'static str {
        match event {
            actual::Event::Created { .. } => "actual.created.v1",
            actual::Event::Claimed { .. } => "actual.claimed.v1",
            actual::Event::Started { .. } => "actual.started.v1",
            actual::Event::Crashed { .. } => "actual.crashed.v1",
            actual::Event::PlacementFailed { .. } => "actual.placement_failed.v1",
            actual::Event::Unclaimed { .. } => "actual.unclaimed.v1",
            actual::Event::StopRequested { .. } => "actual.stop_requested.v1",
            actual::Event::Removed { .. } => "actual.removed.v1",
            actual::Event::ExecStarted { .. } => "actual.exec_started.v1",
        }
    }
}

impl Evacuating {
    pub(super) const fn type_name(event: &evacuating::Event) -> &'static str {
        match event {
            evacuating::Event::Set { .. } => "evacuating.set.v1",
            evacuating::Event::Removed { .. } => "evacuating.removed.v1",
        }
    }
}
