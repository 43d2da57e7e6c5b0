//! What ended: containers of instances, and tasks, as queries show them when their records are gone (SwarmKit
//! orchestrators, "Task reaper"; docs/model.md, "What ended").
//!
//! What is told here is folded of the log and shown. No decision reads it, so that what of it is kept changes nothing that
//! happens.

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

/// How a container of an instance ended, as the log tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// It ended without having been asked to.
    Crashed,
    /// Its rep stopped it, or has no container for it. Mostly it was asked to stop, and why stands beside it.
    Stopped,
    /// It crashed while it was being stopped.
    CrashedStopping,
    /// Its cell disappeared.
    CellLost,
    /// Its cell evacuated it.
    Evacuated,
    /// Its cell evacuated it, and its time was over before anything ran in its place.
    EvacuationExpired,
    /// The record of its place names another container, which runs.
    Displaced,
}

/// A container of an instance that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedInstance {
    /// Where it was.
    pub place: Place,
    /// The container.
    pub by: Instance,
    /// The domain of its process.
    pub domain: Domain,
    /// Which life of the process it belonged to.
    pub epoch: Epoch,
    /// Since when it was RUNNING; none: it never was.
    pub started_at: Option<Timestamp>,
    /// When it ended, as far as the log says.
    pub ended_at: Timestamp,
    /// How.
    pub how: How,
    /// Why it was asked to stop, if it was.
    pub stop: Option<Ended>,
    /// Why it crashed; empty: it didn't, or nobody said.
    pub reason: Box<str>,
    /// The status that its action exited with, if that is why it crashed.
    pub exit_status: Option<i32>,
    /// Crashes of its place that were counted, with this one; 0: it didn't crash.
    pub crash_count: u32,
}

/// A task that was deleted after it completed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedTask {
    /// Its name.
    pub guid: TaskGuid,
    /// Its domain.
    pub domain: Domain,
    /// Which life; also when it was created.
    pub epoch: Epoch,
    /// The container that ran it, if one did.
    pub by: Option<Instance>,
    /// Since when it ran; none: it never did.
    pub started_at: Option<Timestamp>,
    /// When it completed.
    pub completed_at: Timestamp,
    /// How; of a long result the beginning.
    pub outcome: Outcome,
    /// What came of calling its owner, if that was tried.
    pub callback: Option<Callback>,
    /// When it was deleted.
    pub deleted_at: Timestamp,
    /// Whether it was resolved; else nobody did in time.
    pub resolved: bool,
}

/// Of which life of a process something ended, and when.
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

/// A container that a record of a place names.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    by: Instance,
    started_at: Option<Timestamp>,
    stop: Option<Ended>,
}

/// The containers that a slot names, the instance's and its twin's.
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

/// Since when a container runs, if one of these records says so.
pub(crate) fn started_at(held: &[Option<Held>; 2], by: &Instance) -> Option<Timestamp> {
    held.iter().flatten().filter(|held| held.by == *by).find_map(|held| held.started_at)
}

/// What ended at a slot by an event of its instance: what its records named before, and name no more.
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
        // Nothing was known of it but that it crashed.
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

/// What ended at a slot by an event of its twin.
pub(crate) fn by_twin(
    held: [Option<Held>; 2],
    slot: &Slot,
    event: &evacuating::Event,
    life: &Life,
) -> Vec<EndedInstance> {
    let gone = held.into_iter().flatten().filter(|held| !names(slot, &held.by));
    gone.map(|held| held.ended(&slot.place, how_twin(event), life)).collect()
}

/// What ended with a decision: each container once, as it ended last, and none that a record names in the end.
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

/// Why a record was removed, where the removal says it.
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
    /// It, as it ended.
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

/// The task that a decision deletes after it completed, if it does.
#[must_use]
pub fn task(before: Option<&Task>, events: &[entry::Event], stamp: &Stamp) -> Option<EndedTask> {
    let is_end = |event: &entry::Event| matches!(event, entry::Event::Task(task::Event::Deleted {}));
    let end = events.iter().position(is_end)?;
    let last = task::evolve(before.cloned(), &events[..end], stamp)?;
    let done = last.completed()?;
    // What is resolved is RESOLVING at last, and what is too old is COMPLETED again or still.
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
