//! Order in which an auction places waiting work (Diego Dev Notes, "Auction Work Prioritization";
//! docs/internals/model/auction.md, "Auction").

use std::cmp::Reverse;

use crate::process::Process;
use crate::task::Task;
use schemas::container::WorkKey;
use schemas::definition::TaskDefinition;
use schemas::priority::Priority;
use schemas::{ActualLrpKey, Place, Timestamp};

/// Position of work in the order of an auction. The work with the smallest rank is placed first. The fields
/// are in order of importance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Higher priority first.
    pub priority: Reverse<Priority>,
    /// Index 0 comes first, then tasks, then index 1, index 2 and so on. So every process gets its first
    /// instance before any process gets its second instance.
    pub turn: u32,
    /// Work with more memory comes first. Small work fits into the resources that large work leaves free.
    /// Large work rarely fits into the resources that small work leaves free.
    pub memory_mb: Reverse<u64>,
    /// Work that has waited longest comes first.
    pub since: Timestamp,
    /// Tie-breaker: gives work with otherwise equal ranks a fixed order.
    pub key: WorkKey,
}

impl Rank {
    /// Returns the rank of work.
    #[must_use]
    pub fn new(priority: Priority, memory_mb: u64, since: Timestamp, key: WorkKey) -> Self {
        let turn = turn(&key);
        Self { priority: Reverse(priority), turn, memory_mb: Reverse(memory_mb), since, key }
    }

    /// Returns the rank of an instance that waits for a cell. `None` if the instance does not exist, is not
    /// waiting, or is not desired.
    #[must_use]
    pub fn for_instance(process: &Process, place: &Place) -> Option<Self> {
        let lrp = process.actual(place).filter(|lrp| lrp.is_unclaimed())?;
        let desired = process.desired.as_ref().filter(|_| process.is_desired(place))?;
        let memory_mb = desired.definition(&place.definition_id)?.memory_mb;
        let key = ActualLrpKey::new(process.guid.clone(), place.clone());
        let key = WorkKey::Lrp { key, epoch: process.epoch };
        Some(Self::new(desired.priority, memory_mb, lrp.since, key))
    }

    /// Returns the rank of a task that waits for a cell. `None` if the task is not waiting.
    #[must_use]
    pub fn for_task(task: &Task) -> Option<Self> {
        let key = WorkKey::Task { task_guid: task.guid.clone(), epoch: task.epoch };
        let TaskDefinition { priority, memory_mb, .. } = *task.definition;
        task.is_pending().then(|| Self::new(priority, memory_mb, task.epoch.0, key))
    }

    /// Returns `true` if both ranks belong to the same placement attempt of the same work. Ignores the
    /// priorities.
    #[must_use]
    pub fn is_same_attempt(&self, other: &Self) -> bool {
        (self.since, &self.key) == (other.since, &other.key)
    }
}

/// Returns 0 for index 0, 1 for a task, and n + 1 for index n.
#[must_use]
pub fn turn(key: &WorkKey) -> u32 {
    match key {
        WorkKey::Lrp { key, .. } if key.place.index == 0 => 0,
        WorkKey::Task { .. } => 1,
        WorkKey::Lrp { key, .. } => key.place.index.saturating_add(1),
    }
}
