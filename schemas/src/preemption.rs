//! Preemption: less urgent work is stopped so that waiting work has room (docs/model.md, "Preemption").

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::container::{Instance, WorkKey};
use crate::key::Place;
use crate::names::{ProcessGuid, TaskGuid};
use crate::process::Process;
use crate::rank::Priority;
use crate::refusal::{Code, Refusal};
use crate::rollout::Rollout;
use crate::task::{State, Task};

/// Minimum difference in priority between a victim and the work that it is stopped for.
pub const LOWER_BY: u8 = 10;
/// Prefix of the reason of a preemption, and so of the failure reason of a preempted task.
pub const PREEMPTED: &str = "preempted by ";

/// Request by an auctioneer to stop work so that other work has room. It is valid only while everything that
/// it names is unchanged since the auctioneer judged it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    /// Work to stop, with its epoch.
    pub victim: WorkKey,
    /// Container of the victim, on the cell where it makes room.
    pub by: Instance,
    /// Work that gets the room.
    pub preemptor: Preemptor,
}

/// Waiting work, as an auctioneer judged it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemptor {
    /// Waiting work, with its epoch.
    pub work: WorkKey,
    /// The `since` of the judged record, which identifies the attempt to place it.
    pub attempt: Timestamp,
    /// Priority of the work at that time.
    pub priority: Priority,
}

impl fmt::Display for Preemptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREEMPTED}{} (priority {})", self.work, self.priority)
    }
}

/// Returns `true` if work of one priority may be stopped for work of the other.
#[must_use]
pub fn may_give_way(priority: Priority, to: Priority) -> bool {
    u8::from(priority).saturating_add(LOWER_BY) <= u8::from(to)
}

/// Returns `true` if this is the failure reason of a preempted task.
#[must_use]
pub fn is_preempted(reason: &str) -> bool {
    reason.starts_with(PREEMPTED)
}

/// Work that a victim was stopped for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoppedFor {
    /// Instance of a process, with its index.
    Instance(ProcessGuid, u32),
    Task(TaskGuid),
}

/// Parses the work that a victim was stopped for from the reason of a decision, as [`Preemptor`] formats it.
/// `None` if the reason names none.
#[must_use]
pub fn stopped_for(reason: &str) -> Option<StoppedFor> {
    let (work, _) = reason.strip_prefix(PREEMPTED)?.rsplit_once(" (priority ")?;
    if let Some(guid) = work.strip_prefix("task ") {
        return TaskGuid::new(guid).ok().map(StoppedFor::Task);
    }
    let (guid, index) = work.rsplit_once('/')?;
    Some(StoppedFor::Instance(ProcessGuid::new(guid).ok()?, index.parse().ok()?))
}

impl Preemptor {
    /// Returns `true` if the preemptor is an instance of this process. A process never preempts its own
    /// instances.
    #[must_use]
    pub fn is_of(&self, guid: &ProcessGuid) -> bool {
        match &self.work {
            WorkKey::Lrp { key, .. } => key.process_guid == *guid,
            WorkKey::Task { .. } => false,
        }
    }

    /// Checks that work of this priority may be preempted.
    ///
    /// # Errors
    /// `ResourceConflict` if its priority is too high.
    pub(crate) fn check(&self, priority: Priority) -> Result<(), Refusal> {
        if may_give_way(priority, self.priority) {
            return Ok(());
        }
        let why = format!(
            "its priority is {priority}: only what is lower than {} by {LOWER_BY} or more is preempted",
            self.priority
        );
        Err(Refusal::new(Code::ResourceConflict, why))
    }
}

/// Returns the container at a slot if it may be preempted. The instance must be desired, must not be
/// stopping, evacuating or in replacement by a rollout, and must be the only one at its index.
#[must_use]
pub fn instance<'a>(process: &'a Process, place: &Place) -> Option<&'a Instance> {
    let by = process.actual(place).filter(|lrp| !lrp.is_stopping())?.holder()?;
    let alone = process.slots_at(place.index).count() == 1;
    let evacuates = process.slot(place).is_some_and(|slot| slot.evacuating.is_some());
    let rollout = process.rollout.as_deref().and_then(Rollout::under_way);
    let replaced = rollout.is_some_and(|rollout| rollout.in_replacement(place.index).is_some());
    (alone && !evacuates && !replaced && process.wants(place)).then_some(by)
}

/// Returns the container of a task if it may be preempted: the task must be RUNNING.
#[must_use]
pub const fn task(task: &Task) -> Option<&Instance> {
    match &task.state {
        Some(State::Running { by }) => Some(by),
        Some(State::Pending { .. } | State::Completed(_) | State::Resolving(_)) | None => None,
    }
}

/// Returns the refusal of an eviction that names work which has changed since the auctioneer judged it.
pub(crate) fn changed(what: impl fmt::Display) -> Refusal {
    Refusal::new(Code::StaleRecord, format!("{what} has changed since the auctioneer judged it"))
}

/// Returns the name of a task for a refusal.
pub(crate) fn named(guid: &TaskGuid) -> String {
    format!("task {guid}")
}
