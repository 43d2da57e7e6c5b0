//! Evictions: the stop of work that makes room for more urgent work.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::container::{Instance, WorkKey};
use crate::names::{ProcessGuid, TaskGuid};
use crate::priority::Priority;

/// Prefix of the reason of a preemption. The failure reason of a preempted task has the same prefix.
pub const PREEMPTED_PREFIX: &str = "preempted by ";

/// Request of an auctioneer to stop work so that other work has free resources. The auctioneer judged the
/// work from certain records. The request is valid only while these records are unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    /// Work to stop, with its epoch.
    pub victim: WorkKey,
    /// Container of the victim. The resources of this container's cell become free.
    pub by: Instance,
    /// Work that gets the resources.
    pub preemptor: Preemptor,
}

/// Waiting work, as the auctioneer judged it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemptor {
    /// Waiting work, with its epoch.
    pub work: WorkKey,
    /// Value of `since` in the record that the auctioneer judged. This value identifies the attempt to place
    /// the work.
    pub attempt: Timestamp,
    /// Priority of the work when the auctioneer judged it.
    pub priority: Priority,
}

impl fmt::Display for Preemptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREEMPTED_PREFIX}{} (priority {})", self.work, self.priority)
    }
}

/// Returns `true` if this is the failure reason of a preempted task.
#[must_use]
pub fn is_preempted(reason: &str) -> bool {
    reason.starts_with(PREEMPTED_PREFIX)
}

/// Work for which a victim was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreemptedBy {
    /// Instance of a process, with its index.
    Instance(ProcessGuid, u32),
    Task(TaskGuid),
}

/// Parses the reason of a decision. Returns the work for which a victim was stopped, if the reason has the
/// form in which [`Preemptor`] is formatted. `None` for other reasons.
#[must_use]
pub fn parse_preemptor(reason: &str) -> Option<PreemptedBy> {
    let (work, _) = reason.strip_prefix(PREEMPTED_PREFIX)?.rsplit_once(" (priority ")?;
    if let Some(guid) = work.strip_prefix("task ") {
        return TaskGuid::new(guid).ok().map(PreemptedBy::Task);
    }
    let (guid, index) = work.rsplit_once('/')?;
    Some(PreemptedBy::Instance(ProcessGuid::new(guid).ok()?, index.parse().ok()?))
}

impl Preemptor {
    /// Returns `true` if the preemptor is an instance of this process. A process never preempts its own
    /// instances.
    #[must_use]
    pub fn belongs_to(&self, guid: &ProcessGuid) -> bool {
        match &self.work {
            WorkKey::Lrp { key, .. } => key.process_guid == *guid,
            WorkKey::Task { .. } => false,
        }
    }
}
