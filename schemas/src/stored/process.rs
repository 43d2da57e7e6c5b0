//! What is stored of processes: the desired side, instances, evacuating twins. Every version of every event.
//!
//! A new version of an event is a variant of its own (`CrashedV2`, `crashed.v2`) beside the old one. The `Mirror` into
//! today's event then has an arm that upcasts the old version; the `Mirror` out of today's writes the new one.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mirror::{Mirror, mirror};
use super::parts::{Action, Constraint, Explanation, Instance, NetInfo, Sandbox, Variable};
use super::rollout::Policies;
use crate::definition::Ports;
use crate::exec::Exec;
use crate::isolation::Isolation;
use crate::names::{DefinitionId, Domain, ProcessGuid};
use crate::rank::Priority;
use crate::{Indices, Place, Places, Timestamp, actual, crash, definition, desired, evacuating};

/// Events of the desired side.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DesiredEvent")]
pub enum Desired {
    /// The process was desired: a new epoch begins.
    #[serde(rename = "desired.v1")]
    DesiredV1(Box<DesiredLrp>),
    /// Its scale, priority, routes, annotation or policies changed.
    #[serde(rename = "updated.v1")]
    UpdatedV1(DesiredLrpUpdate),
    /// A definition came to it.
    #[serde(rename = "definition_added.v1")]
    DefinitionAddedV1 {
        /// Its id.
        definition_id: DefinitionId,
        /// What each instance runs.
        definition: Arc<Definition>,
    },
    /// Every instance shall run this definition.
    #[serde(rename = "activated.v1")]
    ActivatedV1 {
        /// Which.
        definition_id: DefinitionId,
    },
    /// A definition is known to work, and instances restart with it.
    #[serde(rename = "healthy_changed.v1")]
    HealthyChangedV1 {
        /// Which.
        definition_id: DefinitionId,
    },
    /// Definitions that nothing uses any more are gone.
    #[serde(rename = "pruned.v1")]
    PrunedV1 {
        /// Which.
        definition_ids: Vec<DefinitionId>,
    },
    /// A global process runs on other cells.
    #[serde(rename = "cells_changed.v1")]
    CellsChangedV1 {
        /// The cells that came or changed.
        cells: Vec<GlobalCell>,
        /// The ordinals of those that left.
        left: Indices,
    },
    /// Nobody desires it.
    #[serde(rename = "removed.v1")]
    RemovedV1 {},
}

/// A cell on which a global process runs an instance.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct GlobalCell {
    /// Its ordinal, which is the index.
    pub index: u32,
    /// Which cell.
    pub cell_id: crate::names::CellId,
    /// Whether it takes no new work.
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

/// Where the instances of a process run.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// So many as are desired, wherever the auction finds the best places.
    Replicated,
    /// One on each cell that fits.
    Global,
}
mirror!(enum Mode = definition::Mode { Replicated, Global });

/// A `DesiredLRP` as a client desired it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DesiredLrp {
    /// Names the process.
    pub process_guid: ProcessGuid,
    /// Its domain.
    pub domain: Domain,
    /// Where its instances run.
    pub mode: Mode,
    /// How many instances; 0 where the cells say how many.
    pub instances: u32,
    /// How urgent it is, 1 to 100: whose priority is greater is placed first.
    pub priority: Priority,
    /// Routing data: for each router any JSON, kept as text.
    pub routes: BTreeMap<String, String>,
    /// The consumer's own text.
    pub annotation: String,
    /// How its instances are replaced.
    pub policies: Policies,
    /// The definition's id.
    pub definition_id: DefinitionId,
    /// What each instance runs.
    pub definition: Arc<Definition>,
}
mirror!(struct DesiredLrp = definition::DesiredLrp {
    process_guid, domain, mode, instances, priority, routes, annotation, policies, definition_id, definition,
});

/// What one instance of a process runs and needs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Definition {
    /// Which cells may take it.
    pub constraint: Arc<Constraint>,
    /// Environment of everything that runs in the container.
    pub environment_variables: Vec<Variable>,
    /// Runs before `action`, to its end.
    pub setup: Option<Arc<Action>>,
    /// What is kept running.
    pub action: Arc<Action>,
    /// Tells whether the instance is healthy.
    pub monitor: Option<Arc<Action>>,
    /// How long the monitor may fail before its first success, in milliseconds; 0: for ever.
    pub start_timeout_ms: u64,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Disk in MiB.
    pub disk_mb: u64,
    /// Share of the processor relative to others, 1 to 1024; 0: the cell's usual share.
    pub cpu_weight: u32,
    /// Ports that the instance listens on, as it sees them.
    pub ports: Ports,
    /// Time between TERM and KILL when it is stopped, in milliseconds.
    pub grace_period_ms: u64,
    /// What of its surroundings is not as usual; none: all is.
    pub sandbox: Option<Arc<Sandbox>>,
}
mirror!(struct Definition = definition::Definition {
    constraint, environment_variables, setup, action, monitor, start_timeout_ms, memory_mb, disk_mb, cpu_weight,
    ports, grace_period_ms, sandbox,
});

/// Changes to a process that restart nothing: what is absent stays.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DesiredLrpUpdate {
    /// How many instances.
    pub instances: Option<u32>,
    /// How urgent it is, 1 to 100.
    pub priority: Option<Priority>,
    /// Routing data.
    pub routes: Option<BTreeMap<String, String>>,
    /// The consumer's own text.
    pub annotation: Option<String>,
    /// How its instances are replaced, from the next rollout on.
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
            Self::CellsChangedV1 { cells, left } => {
                desired::Event::CellsChanged { cells: cells.mirror(), left }
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
            Self::CellsChanged { cells, left } => Desired::CellsChangedV1 { cells: cells.mirror(), left },
            Self::Removed {} => Desired::RemovedV1 {},
        }
    }
}

/// Events of instances.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ActualEvent")]
pub enum Actual {
    /// UNCLAIMED records were created.
    #[serde(rename = "created.v1")]
    CreatedV1 {
        /// Which.
        indices: Indices,
        /// The definition that they shall run.
        definition_id: DefinitionId,
    },
    /// A cell took one.
    #[serde(rename = "claimed.v1")]
    ClaimedV1 {
        /// Which.
        index: u32,
        /// The definition.
        definition_id: DefinitionId,
        /// The container.
        by: Instance,
        /// Why there.
        placement: Option<Box<Explanation>>,
    },
    /// One runs.
    #[serde(rename = "started.v1")]
    StartedV1 {
        /// Which.
        index: u32,
        /// The definition.
        definition_id: DefinitionId,
        /// The container.
        by: Instance,
        /// Where it is reached.
        net: NetInfo,
        /// How it is kept apart.
        #[serde(default)]
        isolation: Isolation,
    },
    /// One crashed, as an invented version had it: what proves that old versions are read.
    #[cfg(test)]
    #[serde(rename = "crashed.v0")]
    CrashedV0 {
        /// Which.
        index: u32,
        /// The name of the container, without its cell.
        instance_guid: crate::names::InstanceGuid,
        /// The cell, beside it.
        cell_id: crate::names::CellId,
        /// The exit status, where today a reason stands.
        status: u32,
        /// Crashes counted, with this one.
        crash_count: u32,
        /// The definition that it ran.
        definition_id: DefinitionId,
    },
    /// One crashed.
    #[serde(rename = "crashed.v1")]
    CrashedV1 {
        /// Which.
        index: u32,
        /// The definition.
        definition_id: DefinitionId,
        /// The container.
        by: Instance,
        /// Why.
        reason: String,
        /// The status that its action exited with, if that is why.
        exit_status: Option<i32>,
        /// Crashes counted, with this one.
        crash_count: u32,
        /// Whether and when it is restarted.
        restart: Restart,
        /// How many restarts its policy allows, and how many it counts; none: any number.
        attempts: Option<Attempts>,
    },
    /// An auction could not place some.
    #[serde(rename = "placement_failed.v1")]
    PlacementFailedV1 {
        /// Which.
        indices: Indices,
        /// The definition.
        definition_id: DefinitionId,
        /// Why, as users read it.
        error: String,
        /// Why, cell by cell.
        explanation: Option<Box<Explanation>>,
    },
    /// Some have to be placed anew.
    #[serde(rename = "unclaimed.v1")]
    UnclaimedV1 {
        /// Which.
        indices: Indices,
        /// The definition.
        definition_id: DefinitionId,
        /// Why.
        cause: Unclaimed,
    },
    /// Some were asked to stop: their reps are ordered again until they are gone.
    #[serde(rename = "stop_requested.v1")]
    StopRequestedV1 {
        /// Which.
        indices: Indices,
        /// The definition.
        definition_id: DefinitionId,
        /// Why.
        cause: Ended,
    },
    /// Some records are gone.
    #[serde(rename = "removed.v1")]
    RemovedV1 {
        /// Which.
        indices: Indices,
        /// The definition.
        definition_id: DefinitionId,
        /// Why.
        cause: Ended,
    },
    /// A client has a program run in the container of one that runs.
    #[serde(rename = "entered.v1")]
    EnteredV1 {
        /// Which.
        index: u32,
        /// The definition.
        definition_id: DefinitionId,
        /// The container.
        by: Instance,
        /// What is run.
        exec: Box<Exec>,
    },
}

/// Whether and when a crashed instance is restarted.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Restart {
    /// In the same decision.
    AtOnce,
    /// At this time.
    At(Timestamp),
    /// Not by itself.
    Never(Declined),
}
mirror!(enum Restart = crash::Restart { AtOnce, At(due), Never(why) });

/// Why a crashed instance is not restarted.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Declined {
    /// It exited with status 0, and the policy's condition is on-failure.
    Succeeded,
    /// The policy's condition is none.
    NoRestarts,
    /// The policy's restarts are used up.
    UsedUp,
    /// It crashed too often for the crash policy.
    GivenUp,
}
mirror!(enum Declined = crash::Declined { Succeeded, NoRestarts, UsedUp, GivenUp });

/// How many restarts a policy allows, and how many it counts.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Attempts {
    /// Those that it counts, with the one that follows from the crash, if one does.
    pub counted: u32,
    /// Those that it allows.
    pub allowed: u32,
}
mirror!(struct Attempts = crash::Attempts { counted, allowed });

/// Why an instance was unclaimed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unclaimed {
    /// It crashed and restarts at once.
    Crash,
    /// Its wait after a crash is over.
    Restart,
    /// Its cell disappeared.
    CellLost,
    /// Its cell evacuates.
    Evacuation,
}
mirror!(enum Unclaimed = actual::Unclaimed { Crash, Restart, CellLost, Evacuation });

/// Why an instance is asked to stop, or was removed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The process was removed.
    Removed,
    /// Fewer instances are desired.
    Scale,
    /// Its cell doesn't fit the definition any more.
    CellUnfit,
    /// Somebody stopped this instance.
    Retired,
    /// The process was desired anew; this belongs to its earlier life.
    Superseded,
    /// Nobody desires it, and the domain is fresh.
    Undesired,
    /// The rep stopped it, or has no container for it.
    Stopped,
    /// It crashed while it was being stopped.
    Crashed,
    /// Its cell disappeared while it was being stopped, nobody desires it, or another definition takes its place.
    CellLost,
    /// Its cell evacuated it while it was being stopped, or another definition takes its place.
    Evacuated,
    /// Another definition takes its place.
    Replaced,
    /// Its rollout gave it up: it failed or was too late, or everything goes back because others failed.
    RolloutFailed,
    /// Something more urgent gets its room.
    Preempted,
}
mirror!(enum Ended = actual::Ended {
    Removed, Scale, CellUnfit, Retired, Superseded, Undesired, Stopped, Crashed, CellLost, Evacuated, Replaced,
    RolloutFailed, Preempted,
});

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
            #[cfg(test)]
            Self::CrashedV0 { index, instance_guid, cell_id, status, crash_count, definition_id } => {
                let by = Instance { instance_guid, cell_id };
                let reason = format!("exited with status {status}");
                let (exit_status, restart, attempts) = (i32::try_from(status).ok(), Restart::AtOnce, None);
                Self::CrashedV1 {
                    index,
                    definition_id,
                    by,
                    reason,
                    exit_status,
                    crash_count,
                    restart,
                    attempts,
                }
                .mirror()
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
            Self::EnteredV1 { index, definition_id, by, exec } => {
                Event::Entered { place: Place { index, definition_id }, by: by.mirror(), exec }
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
            Self::Entered { place: Place { index, definition_id }, by, exec } => {
                Actual::EnteredV1 { index, definition_id, by: by.mirror(), exec }
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

/// Events of evacuating records.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "EvacuatingEvent")]
pub enum Evacuating {
    /// One was created or taken over.
    #[serde(rename = "set.v1")]
    SetV1 {
        /// The index.
        index: u32,
        /// The definition.
        definition_id: DefinitionId,
        /// The container.
        by: Instance,
        /// Where it is reached.
        net: NetInfo,
        /// When it ends.
        expires_at: Timestamp,
    },
    /// One is gone.
    #[serde(rename = "removed.v1")]
    RemovedV1 {
        /// The index.
        index: u32,
        /// The definition.
        definition_id: DefinitionId,
        /// Why.
        cause: Gone,
    },
}

/// Why an evacuating record went.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Gone {
    /// A replacement runs.
    Replaced,
    /// The rep removed it.
    Removed,
    /// Its time is over.
    Expired,
    /// Its cell disappeared.
    CellLost,
}
mirror!(enum Gone = evacuating::Gone { Replaced, Removed, Expired, CellLost });

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
            actual::Event::Entered { .. } => "actual.entered.v1",
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
