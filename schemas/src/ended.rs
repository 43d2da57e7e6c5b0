//! History of ended containers and tasks, which queries show after the records are gone (SwarmKit
//! orchestrators, "Task reaper"; docs/model.md, "What ended").
//!
//! The history is a fold of the log for display. No decision reads it, so its size affects no behaviour.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::actual::{self, Actual, Ended, State, Unclaimed};
use crate::container::{Epoch, Instance};
use crate::entry::{self, Stamp};
use crate::evacuating::{self, Gone};
use crate::key::Place;
use crate::names::{Domain, TaskGuid};
use crate::process::{Process, Slot};
use crate::task::{self, Callback, Outcome, Task};
use crate::{Timestamp, limits};

/// Kind of end of an instance's container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Ended without a stop request.
    Crashed,
    /// Stopped by the rep, or without a container on its cell. Usually the instance was asked to stop, and
    /// the reason is in `stop`.
    Stopped,
    /// Crashed while it was being stopped.
    CrashedStopping,
    /// The cell disappeared.
    CellLost,
    /// Evacuated by its cell.
    Evacuated,
    /// Evacuated by its cell, which reached its time-out before a replacement ran.
    EvacuationExpired,
    /// Replaced in the record of the index by another container, which runs.
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
    /// Time at which it became RUNNING. `None` if it never did.
    pub started_at: Option<Timestamp>,
    /// Time of its end according to the log.
    pub ended_at: Timestamp,
    pub how: How,
    /// Reason of the stop request, or `None` if there was none.
    pub stop: Option<Ended>,
    /// Reason of the crash. Empty if it did not crash, or if the reason is unknown.
    pub reason: Box<str>,
    /// Exit status of the action, if that is the reason of the crash.
    pub exit_status: Option<i32>,
    /// Crash count of the index including this crash; 0 if it did not crash.
    pub crash_count: u32,
}

/// A task that was deleted after its completion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedTask {
    pub guid: TaskGuid,
    pub domain: Domain,
    /// Epoch of the task, which is also the time of its creation.
    pub epoch: Epoch,
    /// Container that ran the task. `None` if none did.
    pub by: Option<Instance>,
    /// Time at which it became RUNNING. `None` if it never did.
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

/// Process epoch and time of an end.
pub(crate) struct Life {
    domain: Domain,
    epoch: Epoch,
    at: Timestamp,
}

impl Life {
    pub(crate) fn of(process: &Process, at: Timestamp) -> Self {
        Self { domain: process.domain.clone(), epoch: process.epoch, at }
    }
}

/// A container that a record names.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    by: Instance,
    started_at: Option<Timestamp>,
    stop: Option<Ended>,
}

/// Returns the containers that a slot names: the instance's and the evacuating instance's.
pub(crate) fn held(slot: &Slot) -> [Option<Held>; 2] {
    let own = slot.actual.as_ref().and_then(|lrp| match &lrp.state {
        State::Claimed { by, .. } => Some(Held { by: by.clone(), started_at: None, stop: lrp.stop }),
        State::Running { by, .. } => {
            Some(Held { by: by.clone(), started_at: Some(lrp.since), stop: lrp.stop })
        }
        State::Unclaimed { .. } | State::Crashed { .. } => None,
    });
    let twin = slot.evacuating.as_deref();
    let twin = twin.map(|twin| Held { by: twin.by.clone(), started_at: Some(twin.started_at), stop: None });
    [own, twin]
}

/// Returns the time since which a container has been running, if one of these records has it.
pub(crate) fn started_at(held: &[Option<Held>; 2], by: &Instance) -> Option<Timestamp> {
    held.iter().flatten().filter(|held| held.by == *by).find_map(|held| held.started_at)
}

/// Returns the containers that ended at a slot by an event of its instance: its records named them before the
/// event, but not after it.
pub(crate) fn by_instance(
    held: [Option<Held>; 2],
    slot: &Slot,
    event: &actual::Event,
    life: &Life,
) -> Vec<EndedInstance> {
    let mut gone: Vec<Held> = held.into_iter().flatten().filter(|held| !names(slot, &held.by)).collect();
    if let actual::Event::Crashed { by, .. } = event
        && !names(slot, by)
        && !gone.iter().any(|held| held.by == *by)
    {
        // The log has nothing about it but the crash.
        gone.push(Held { by: by.clone(), started_at: None, stop: None });
    }
    let end = |held: Held| {
        let how = how_instance(event, &held.by);
        let stop = match how {
            How::Stopped => held.stop.or_else(|| removed_for(event)),
            How::CrashedStopping => held.stop,
            How::Crashed | How::CellLost | How::Evacuated | How::EvacuationExpired | How::Displaced => None,
        };
        let ended = Held { stop, ..held }.ended(&slot.place, how, life);
        match event {
            actual::Event::Crashed { reason, exit_status, crash_count, .. } if how == How::Crashed => {
                let reason = limits::cut(reason, limits::REASON_BYTES).into();
                EndedInstance { reason, exit_status: *exit_status, crash_count: *crash_count, ..ended }
            }
            actual::Event::Created { .. }
            | actual::Event::Claimed { .. }
            | actual::Event::Started { .. }
            | actual::Event::Entered { .. }
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
pub(crate) fn by_twin(
    held: [Option<Held>; 2],
    slot: &Slot,
    event: &evacuating::Event,
    life: &Life,
) -> Vec<EndedInstance> {
    let gone = held.into_iter().flatten().filter(|held| !names(slot, &held.by));
    gone.map(|held| held.ended(&slot.place, how_twin(event), life)).collect()
}

/// Returns the containers that ended with a decision. Each is listed once, with its last end. Containers that
/// a record still names are left out.
pub(crate) fn settled(process: &Process, ended: Vec<EndedInstance>) -> Vec<EndedInstance> {
    let mut settled: Vec<EndedInstance> = vec![];
    for one in ended {
        settled.retain(|known| known.by.instance_guid != one.by.instance_guid);
        settled.push(one);
    }
    let is_there = |one: &EndedInstance| process.slots_at(one.place.index).any(|slot| names(slot, &one.by));
    settled.retain(|one| !is_there(one));
    settled
}

fn names(slot: &Slot, by: &Instance) -> bool {
    let own = slot.actual.as_ref().and_then(Actual::holder) == Some(by);
    own || slot.evacuating.as_ref().is_some_and(|twin| twin.by == *by)
}

fn how_instance(event: &actual::Event, gone: &Instance) -> How {
    match event {
        actual::Event::Crashed { by, .. } if by == gone => How::Crashed,
        actual::Event::Removed { cause, .. } => match cause {
            Ended::Crashed => How::CrashedStopping,
            Ended::CellLost => How::CellLost,
            Ended::Evacuated => How::Evacuated,
            Ended::Removed
            | Ended::Scale
            | Ended::CellUnfit
            | Ended::Retired
            | Ended::Superseded
            | Ended::Undesired
            | Ended::Stopped
            | Ended::Replaced
            | Ended::RolloutFailed
            | Ended::Preempted => How::Stopped,
        },
        actual::Event::Unclaimed { cause: Unclaimed::CellLost, .. } => How::CellLost,
        actual::Event::Unclaimed { cause: Unclaimed::Evacuation, .. } => How::Evacuated,
        actual::Event::Unclaimed { cause: Unclaimed::Crash | Unclaimed::Restart, .. }
        | actual::Event::Created { .. }
        | actual::Event::Claimed { .. }
        | actual::Event::Started { .. }
        | actual::Event::Entered { .. }
        | actual::Event::Crashed { .. }
        | actual::Event::PlacementFailed { .. }
        | actual::Event::StopRequested { .. } => How::Displaced,
    }
}

/// Returns the reason of a removal, if the event has one.
const fn removed_for(event: &actual::Event) -> Option<Ended> {
    match event {
        actual::Event::Removed { cause: Ended::Stopped, .. }
        | actual::Event::Created { .. }
        | actual::Event::Claimed { .. }
        | actual::Event::Started { .. }
        | actual::Event::Entered { .. }
        | actual::Event::Crashed { .. }
        | actual::Event::PlacementFailed { .. }
        | actual::Event::Unclaimed { .. }
        | actual::Event::StopRequested { .. } => None,
        actual::Event::Removed { cause, .. } => Some(*cause),
    }
}

const fn how_twin(event: &evacuating::Event) -> How {
    match event {
        evacuating::Event::Set { .. } => How::Displaced,
        evacuating::Event::Removed { cause, .. } => match cause {
            Gone::Replaced | Gone::Removed => How::Evacuated,
            Gone::Expired => How::EvacuationExpired,
            Gone::CellLost => How::CellLost,
        },
    }
}

impl Held {
    /// Converts the container to its history row.
    fn ended(self, place: &Place, how: How, life: &Life) -> EndedInstance {
        EndedInstance {
            place: place.clone(),
            by: self.by,
            domain: life.domain.clone(),
            epoch: life.epoch,
            started_at: self.started_at,
            ended_at: life.at,
            how,
            stop: self.stop,
            reason: "".into(),
            exit_status: None,
            crash_count: 0,
        }
    }
}

/// Returns the history row of a task that this decision deletes after its completion. `None` if it does not.
#[must_use]
pub fn task(before: Option<&Task>, events: &[entry::Event], stamp: &Stamp) -> Option<EndedTask> {
    let is_end = |event: &entry::Event| matches!(event, entry::Event::Task(task::Event::Deleted {}));
    let end = events.iter().position(is_end)?;
    let last = task::evolve(before.cloned(), &events[..end], stamp)?;
    let done = last.completed()?;
    // A resolved task ends in RESOLVING, an expired one in COMPLETED.
    let resolved = matches!(last.state, Some(task::State::Resolving(_)));
    let outcome = match &done.outcome {
        Outcome::Succeeded { result } => {
            Outcome::Succeeded { result: limits::cut(result, limits::ENDED_RESULT_BYTES) }
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
