//! The order of work within one auction (Diego Dev Notes, "Auction Work Prioritization").

use std::cmp::Reverse;

use schemas::Timestamp;
use schemas::container::WorkKey;

/// The priority of work whose definition says nothing of it. Greater goes first.
pub const DEFAULT_PRIORITY: u8 = 50;

/// When work has its turn: smaller goes first; the fields stand in order of importance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Higher priority first.
    pub priority: Reverse<u8>,
    /// Index 0, then tasks, then index 1, index 2...: so every process gets one instance before any gets its second.
    pub turn: u32,
    /// Larger memory first: the small fits into what the large leaves, not the other way round.
    pub memory_mb: Reverse<u64>,
    /// The oldest first.
    pub since: Timestamp,
    /// The last word, so that the order is one.
    pub key: WorkKey,
}

impl Rank {
    /// The rank of work.
    #[must_use]
    pub fn new(priority: u8, memory_mb: u64, since: Timestamp, key: WorkKey) -> Self {
        let turn = turn(&key);
        Self { priority: Reverse(priority), turn, memory_mb: Reverse(memory_mb), since, key }
    }
}

/// Index 0 is 0, a task is 1, index n is n + 1.
#[must_use]
pub fn turn(key: &WorkKey) -> u32 {
    match key {
        WorkKey::Lrp { key, .. } if key.place.index == 0 => 0,
        WorkKey::Task { .. } => 1,
        WorkKey::Lrp { key, .. } => key.place.index.saturating_add(1),
    }
}

#[cfg(test)]
mod tests {
    use schemas::container::Epoch;
    use schemas::names::TaskGuid;

    use super::*;

    fn lrp(guid: &str, index: u32) -> WorkKey {
        WorkKey::Lrp { key: fixtures::lrp_key(guid, index), epoch: Epoch::default() }
    }

    fn task(guid: &str) -> WorkKey {
        WorkKey::Task { task_guid: TaskGuid::new(guid).unwrap(), epoch: Epoch::default() }
    }

    #[test]
    fn work_is_ordered_as_the_seed_says() {
        let rank = |priority, memory, since, key| Rank::new(priority, memory, Timestamp(since), key);
        let row = [
            rank(90, 1, 9, lrp("z", 7)),
            rank(50, 8, 9, lrp("z", 0)),
            rank(50, 4, 1, lrp("z", 0)),
            rank(50, 4, 2, lrp("a", 0)),
            rank(50, 4, 2, lrp("b", 0)),
            rank(50, 9, 1, task("t")),
            rank(50, 1, 1, task("t")),
            rank(50, 9, 1, lrp("a", 1)),
            rank(50, 99, 1, lrp("a", 2)),
            rank(10, 99, 0, lrp("a", 0)),
        ];
        assert!(row.is_sorted());
    }
}
