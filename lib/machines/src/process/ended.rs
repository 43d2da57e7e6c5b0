//! Ended containers of a process: the rows of the history that a decision adds.

use super::{Process, Slot};
use crate::actual::{Actual, State};
use crate::ended::EndedInstance;
use schemas::actual::{self, StopReason, UnclaimReason};
use schemas::container::{Epoch, Instance};
use schemas::ended::EndKind;
use schemas::evacuating::{self, RemovalReason};
use schemas::key::Place;
use schemas::names::Domain;
use schemas::{Timestamp, limits};

/// Domain and epoch of a process, and the time at which one of its containers ended.
pub(super) struct ProcessEpoch {
    domain: Domain,
    epoch: Epoch,
    at: Timestamp,
}

impl ProcessEpoch {
    pub(super) fn new(process: &Process, at: Timestamp) -> Self {
        Self { domain: process.domain.clone(), epoch: process.epoch, at }
    }
}

/// A container that a record names.
#[derive(Clone, Debug)]
pub(super) struct RecordedContainer {
    by: Instance,
    started_at: Option<Timestamp>,
    stop: Option<StopReason>,
}

/// Returns the containers that a slot (one index of a process) names: that of the instance and that of the
/// evacuating instance.
pub(super) fn recorded_containers(slot: &Slot) -> [Option<RecordedContainer>; 2] {
    let own = slot.actual.as_ref().and_then(|lrp| match &lrp.state {
        State::Claimed { by, .. } => {
            Some(RecordedContainer { by: by.clone(), started_at: None, stop: lrp.stop })
        }
        State::Running { by, .. } => {
            Some(RecordedContainer { by: by.clone(), started_at: Some(lrp.since), stop: lrp.stop })
        }
        State::Unclaimed { .. } | State::Crashed { .. } => None,
    });
    let twin = slot.evacuating.as_deref();
    let twin = twin.map(|twin| RecordedContainer {
        by: twin.by.clone(),
        started_at: Some(twin.started_at),
        stop: None,
    });
    [own, twin]
}

/// Returns the time since which container `by` has been running. `None` if neither of the two records names
/// the container.
pub(super) fn started_at(held: &[Option<RecordedContainer>; 2], by: &Instance) -> Option<Timestamp> {
    held.iter().flatten().filter(|held| held.by == *by).find_map(|held| held.started_at)
}

/// Returns the containers that ended at a slot by an event of its instance. Before the event, a record of the
/// slot named these containers. After the event, no record of the slot names them.
pub(super) fn ended_by_instance(
    held: [Option<RecordedContainer>; 2],
    slot: &Slot,
    event: &actual::Event,
    life: &ProcessEpoch,
) -> Vec<EndedInstance> {
    let mut gone: Vec<RecordedContainer> =
        held.into_iter().flatten().filter(|held| !slot_names(slot, &held.by)).collect();
    if let actual::Event::Crashed { by, .. } = event
        && !slot_names(slot, by)
        && !gone.iter().any(|held| held.by == *by)
    {
        // The crash is the only event of this container that the log contains.
        gone.push(RecordedContainer { by: by.clone(), started_at: None, stop: None });
    }
    let end = |held: RecordedContainer| {
        let how = instance_end(event, &held.by);
        let stop = match how {
            EndKind::Stopped => held.stop.or_else(|| removal_reason(event)),
            EndKind::CrashedStopping => held.stop,
            EndKind::Crashed
            | EndKind::CellLost
            | EndKind::Evacuated
            | EndKind::EvacuationExpired
            | EndKind::Displaced => None,
        };
        let ended = RecordedContainer { stop, ..held }.into_ended(&slot.place, how, life);
        match event {
            actual::Event::Crashed { reason, exit_status, crash_count, .. } if how == EndKind::Crashed => {
                let reason = limits::truncate(reason, limits::REASON_BYTES).into();
                EndedInstance { reason, exit_status: *exit_status, crash_count: *crash_count, ..ended }
            }
            actual::Event::Created { .. }
            | actual::Event::Claimed { .. }
            | actual::Event::Started { .. }
            | actual::Event::ExecStarted { .. }
            | actual::Event::Crashed { .. }
            | actual::Event::PlacementFailed { .. }
            | actual::Event::Unclaimed { .. }
            | actual::Event::StopRequested { .. }
            | actual::Event::Removed { .. } => ended,
        }
    };
    gone.into_iter().map(end).collect()
}

/// Returns the containers that ended at a slot by an event of its evacuating instance.
pub(super) fn ended_by_evacuating(
    held: [Option<RecordedContainer>; 2],
    slot: &Slot,
    event: &evacuating::Event,
    life: &ProcessEpoch,
) -> Vec<EndedInstance> {
    let gone = held.into_iter().flatten().filter(|held| !slot_names(slot, &held.by));
    gone.map(|held| held.into_ended(&slot.place, evacuating_end(event), life)).collect()
}

/// Returns the containers that ended with a decision. Each container is listed once, with its last end.
/// Containers that a record still names are not listed.
pub(super) fn finally_ended(process: &Process, ended: Vec<EndedInstance>) -> Vec<EndedInstance> {
    let mut settled: Vec<EndedInstance> = vec![];
    for one in ended {
        settled.retain(|known| known.by.instance_guid != one.by.instance_guid);
        settled.push(one);
    }
    let is_there =
        |one: &EndedInstance| process.slots_at(one.place.index).any(|slot| slot_names(slot, &one.by));
    settled.retain(|one| !is_there(one));
    settled
}

fn slot_names(slot: &Slot, by: &Instance) -> bool {
    let own = slot.actual.as_ref().and_then(Actual::holder) == Some(by);
    own || slot.evacuating.as_ref().is_some_and(|twin| twin.by == *by)
}

fn instance_end(event: &actual::Event, gone: &Instance) -> EndKind {
    match event {
        actual::Event::Crashed { by, .. } if by == gone => EndKind::Crashed,
        actual::Event::Removed { cause, .. } => match cause {
            StopReason::Crashed => EndKind::CrashedStopping,
            StopReason::CellLost => EndKind::CellLost,
            StopReason::Evacuated => EndKind::Evacuated,
            StopReason::Removed
            | StopReason::Scale
            | StopReason::CellUnfit
            | StopReason::Retired
            | StopReason::Superseded
            | StopReason::Undesired
            | StopReason::Stopped
            | StopReason::Replaced
            | StopReason::RolloutFailed
            | StopReason::Preempted => EndKind::Stopped,
        },
        actual::Event::Unclaimed { cause: UnclaimReason::CellLost, .. } => EndKind::CellLost,
        actual::Event::Unclaimed { cause: UnclaimReason::Evacuation, .. } => EndKind::Evacuated,
        actual::Event::Unclaimed { cause: UnclaimReason::Crash | UnclaimReason::Restart, .. }
        | actual::Event::Created { .. }
        | actual::Event::Claimed { .. }
        | actual::Event::Started { .. }
        | actual::Event::ExecStarted { .. }
        | actual::Event::Crashed { .. }
        | actual::Event::PlacementFailed { .. }
        | actual::Event::StopRequested { .. } => EndKind::Displaced,
    }
}

/// Returns the reason of a removal, if the event has one.
const fn removal_reason(event: &actual::Event) -> Option<StopReason> {
    match event {
        actual::Event::Removed { cause: StopReason::Stopped, .. }
        | actual::Event::Created { .. }
        | actual::Event::Claimed { .. }
        | actual::Event::Started { .. }
        | actual::Event::ExecStarted { .. }
        | actual::Event::Crashed { .. }
        | actual::Event::PlacementFailed { .. }
        | actual::Event::Unclaimed { .. }
        | actual::Event::StopRequested { .. } => None,
        actual::Event::Removed { cause, .. } => Some(*cause),
    }
}

const fn evacuating_end(event: &evacuating::Event) -> EndKind {
    match event {
        evacuating::Event::Set { .. } => EndKind::Displaced,
        evacuating::Event::Removed { cause, .. } => match cause {
            RemovalReason::Replaced | RemovalReason::Removed => EndKind::Evacuated,
            RemovalReason::Expired => EndKind::EvacuationExpired,
            RemovalReason::CellLost => EndKind::CellLost,
        },
    }
}

impl RecordedContainer {
    /// Converts the container to a row of the history.
    fn into_ended(self, place: &Place, end_kind: EndKind, life: &ProcessEpoch) -> EndedInstance {
        EndedInstance {
            place: place.clone(),
            by: self.by,
            domain: life.domain.clone(),
            epoch: life.epoch,
            started_at: self.started_at,
            ended_at: life.at,
            end_kind,
            stop_reason: self.stop,
            reason: "".into(),
            exit_status: None,
            crash_count: 0,
        }
    }
}
