//! History of ended containers and tasks, which queries show after the records are deleted (SwarmKit
//! orchestrators, "Task reaper"; docs/internals/model/history.md, "Ended containers and tasks").
//!
//! The history is folded from the log for display. No decision reads the history, so its size affects no
//! behaviour.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::actual::{self, Actual, State, StopReason, UnclaimReason};
use crate::container::{Epoch, Instance};
use crate::entry::{self, Stamp};
use crate::evacuating::{self, RemovalReason};
use crate::key::Place;
use crate::names::{Domain, TaskGuid};
use crate::process::{Process, Slot};
use crate::task::{self, Callback, Outcome, Task};
use crate::{Timestamp, limits};

/// Kind of end of an instance's container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndKind {
    /// Ended without a stop request.
    Crashed,
    /// The rep stopped the container, or the cell has no such container. Usually the instance was asked to
    /// stop, and the reason is in `stop`.
    Stopped,
    /// Crashed while it was being stopped.
    CrashedStopping,
    /// The cell disappeared.
    CellLost,
    /// Evacuated by its cell.
    Evacuated,
    /// Evacuated by its cell. The cell reached the evacuation time-out before a replacement was running.
    EvacuationExpired,
    /// Displaced by another container. The other container is running, and the record of the index now names
    /// it.
    Displaced,
}

/// An ended container of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedInstance {
    pub place: Place,
    /// Container and its cell.
    pub by: Instance,
    /// Domain of the process.
    pub domain: Domain,
    /// Epoch of the process.
    pub epoch: Epoch,
    /// Time at which the container became RUNNING. `None` if the container was never RUNNING.
    pub started_at: Option<Timestamp>,
    /// Time of the container's end, according to the log.
    pub ended_at: Timestamp,
    pub end_kind: EndKind,
    /// Reason of the stop request, or `None` if there was none.
    pub stop_reason: Option<StopReason>,
    /// Reason of the crash. Empty if the container did not crash, or if the reason is unknown.
    pub reason: Box<str>,
    /// Exit status of the action. `None` if the crash has a different reason.
    pub exit_status: Option<i32>,
    /// Crash count of the index including this crash; 0 if the container did not crash.
    pub crash_count: u32,
}

/// A task that was deleted after its completion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedTask {
    pub guid: TaskGuid,
    pub domain: Domain,
    /// Epoch of the task, which is also the time of its creation.
    pub epoch: Epoch,
    /// Container that ran the task. `None` if no container ran the task.
    pub by: Option<Instance>,
    /// Time at which the task became RUNNING. `None` if the task was never RUNNING.
    pub started_at: Option<Timestamp>,
    pub completed_at: Timestamp,
    /// Outcome. A long result is truncated.
    pub outcome: Outcome,
    /// State of the completion callback. `None` if no call was attempted.
    pub callback: Option<Callback>,
    pub deleted_at: Timestamp,
    /// `true` if the task was resolved, `false` if it expired.
    pub resolved: bool,
}

/// Domain and epoch of a process, and the time at which one of its containers ended.
pub(crate) struct ProcessEpoch {
    domain: Domain,
    epoch: Epoch,
    at: Timestamp,
}

impl ProcessEpoch {
    pub(crate) fn new(process: &Process, at: Timestamp) -> Self {
        Self { domain: process.domain.clone(), epoch: process.epoch, at }
    }
}

/// A container that a record names.
#[derive(Clone, Debug)]
pub(crate) struct RecordedContainer {
    by: Instance,
    started_at: Option<Timestamp>,
    stop: Option<StopReason>,
}

/// Returns the containers that a slot (one index of a process) names: that of the instance and that of the
/// evacuating instance.
pub(crate) fn recorded_containers(slot: &Slot) -> [Option<RecordedContainer>; 2] {
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
pub(crate) fn started_at(held: &[Option<RecordedContainer>; 2], by: &Instance) -> Option<Timestamp> {
    held.iter().flatten().filter(|held| held.by == *by).find_map(|held| held.started_at)
}

/// Returns the containers that ended at a slot by an event of its instance. Before the event, a record of the
/// slot named these containers. After the event, no record of the slot names them.
pub(crate) fn ended_by_instance(
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
pub(crate) fn ended_by_evacuating(
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
pub(crate) fn finally_ended(process: &Process, ended: Vec<EndedInstance>) -> Vec<EndedInstance> {
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

/// Returns the history row of a task that this decision deletes after the task's completion. `None` if the
/// decision deletes no completed task.
#[must_use]
pub fn ended_task(before: Option<&Task>, events: &[entry::Event], stamp: &Stamp) -> Option<EndedTask> {
    let is_end = |event: &entry::Event| matches!(event, entry::Event::Task(task::Event::Deleted {}));
    let end = events.iter().position(is_end)?;
    let last = task::evolve(before.cloned(), &events[..end], stamp)?;
    let done = last.completed()?;
    // A resolved task ends in RESOLVING, an expired one in COMPLETED.
    let resolved = matches!(last.state, Some(task::State::Resolving(_)));
    let outcome = match &done.outcome {
        Outcome::Succeeded { result } => {
            Outcome::Succeeded { result: limits::truncate(result, limits::ENDED_RESULT_BYTES) }
        }
        Outcome::Failed { reason } => Outcome::Failed { reason: reason.clone() },
    };
    Some(EndedTask {
        guid: last.guid.clone(),
        domain: last.domain.clone(),
        epoch: last.epoch,
        by: done.by.clone(),
        started_at: done.started_at,
        completed_at: done.first_completed_at,
        outcome,
        callback: done.callback.clone(),
        deleted_at: stamp.at,
        resolved,
    })
}
