//! Preemption: what is less urgent stops, so that what waits has room (docs/model.md, "Preemption").

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

/// What is stopped for other work has a priority that is lower by so much, or by more.
pub const LOWER_BY: u8 = 10;
/// What the failure reason of a task that was stopped for other work begins with.
pub const PREEMPTED: &str = "preempted by ";

/// What an auctioneer wants stopped, so that something else has room. It counts only as long as everything that it names is
/// as it was judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    /// What is to stop, in which life.
    pub victim: WorkKey,
    /// The container that runs it, and where the room will be.
    pub by: Instance,
    /// What gets the room.
    pub preemptor: Preemptor,
}

/// Work that waits for room, as an auctioneer judged it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemptor {
    /// Which, in which life.
    pub work: WorkKey,
    /// The `since` of the record that was judged: the attempt to place it.
    pub attempt: Timestamp,
    /// How urgent it was.
    pub priority: Priority,
}

impl fmt::Display for Preemptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREEMPTED}{} (priority {})", self.work, self.priority)
    }
}

/// Whether something of one priority may be stopped for something of another.
#[must_use]
pub fn may_give_way(priority: Priority, to: Priority) -> bool {
    u8::from(priority).saturating_add(LOWER_BY) <= u8::from(to)
}

/// Whether a task failed because something else got its room.
#[must_use]
pub fn is_preempted(reason: &str) -> bool {
    reason.starts_with(PREEMPTED)
}

/// What something was stopped for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoppedFor {
    /// The instance with this index of a process.
    Instance(ProcessGuid, u32),
    /// A task.
    Task(TaskGuid),
}

/// What something was stopped for, as the reason of a decision says ([`Preemptor`] writes it). None: it says nothing of that.
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
    /// Whether it is an instance of this process: then it is stopped for none of them.
    #[must_use]
    pub fn is_of(&self, guid: &ProcessGuid) -> bool {
        match &self.work {
            WorkKey::Lrp { key, .. } => key.process_guid == *guid,
            WorkKey::Task { .. } => false,
        }
    }

    /// Whether something of this priority gives way to it.
    ///
    /// # Errors
    /// `ResourceConflict` if it doesn't.
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

/// The container that holds a place and may be stopped for something else: nobody asked it to stop, it is the only one of its
/// index, and no rollout is replacing it.
#[must_use]
pub fn instance<'a>(process: &'a Process, place: &Place) -> Option<&'a Instance> {
    let by = process.actual(place).filter(|lrp| !lrp.is_stopping())?.holder()?;
    let alone = process.slots_at(place.index).count() == 1;
    let evacuates = process.slot(place).is_some_and(|slot| slot.evacuating.is_some());
    let rollout = process.rollout.as_deref().and_then(Rollout::under_way);
    let replaced = rollout.is_some_and(|rollout| rollout.in_replacement(place.index).is_some());
    (alone && !evacuates && !replaced && process.wants(place)).then_some(by)
}

/// The container of a task that may be stopped for something else.
#[must_use]
pub const fn task(task: &Task) -> Option<&Instance> {
    match &task.state {
        Some(State::Running { by }) => Some(by),
        Some(State::Pending { .. } | State::Completed(_) | State::Resolving(_)) | None => None,
    }
}

/// What is to be stopped is not what was judged any more.
pub(crate) fn changed(what: impl fmt::Display) -> Refusal {
    Refusal::new(Code::StaleRecord, format!("{what} has changed since the auctioneer judged it"))
}

/// The name of a task in a refusal.
pub(crate) fn named(guid: &TaskGuid) -> String {
    format!("task {guid}")
}
