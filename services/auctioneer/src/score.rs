//! Sortable rating of a cell for one item of work: an instance or a task.

use std::cmp::Reverse;

use schemas::limits;
use schemas::resources::Resources;

/// Load of a cell: the mean of the used fractions of memory, disk and containers. It is rounded down to a
/// multiple of 2^-32. Loads are integers, so that every process and every run sorts cells in the same order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Load(u64);

impl Load {
    /// Minimum load.
    pub(crate) const MIN: Self = Self(0);
    /// Load that is greater than the load of any cell.
    pub(crate) const MAX: Self = Self(u64::MAX);

    /// Returns the load in thousandths, rounded to the nearest integer, for explanations.
    #[must_use]
    pub fn permille(self) -> u32 {
        let rounded = self.0.saturating_mul(1000).saturating_add(1 << 31);
        u32::try_from(rounded >> 32).unwrap_or(u32::MAX)
    }
}

/// Rating of a cell for one item of work. Smaller is better. The fields are in order of importance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score {
    /// `true` if the cell refused this work. Every other cell that fits the work is better.
    pub refused: bool,
    /// Weighted sum of the fill levels of the cell's spread shares, with the instance added. Lower is better.
    /// 0 for work without a spread.
    pub spread: u64,
    /// Sum of the weights of the affinities that the cell matches. Higher is better.
    pub affinity: Reverse<i32>,
    /// Number of instances of the same process in the zone of the cell. 0 for tasks.
    pub siblings_in_zone: u32,
    /// Number of instances of the same process on the cell.
    pub siblings_on_cell: u32,
    /// Load of the cell with the work on it.
    pub load: Load,
    /// Number of the cell in the order of cell ids. The number decides between otherwise equal cells.
    pub cell: u32,
}

/// Weights of the resources of a cell in its load. The weights depend on the totals of the cell.
///
/// The mean of three fractions is represented by one numerator over `3 · memory · disk · containers`. For any
/// added work, cells with the same totals have the same order by numerator and by load.
#[derive(Clone, Debug)]
pub struct Scale {
    total: Resources,
    memory: u128,
    disk: u128,
    containers: u128,
    denominator: u128,
}

impl Scale {
    /// Creates the scale of cells with these totals. The totals must come from [`bounded`], which rules out
    /// overflow.
    #[must_use]
    pub fn new(total: Resources) -> Self {
        // A cell without disk cannot use any disk, so the used fraction is 0 of 1.
        let memory = u128::from(total.memory_mb.max(1));
        let disk = u128::from(total.disk_mb.max(1));
        let containers = u128::from(total.containers.max(1));
        Self {
            total,
            memory: disk * containers,
            disk: memory * containers,
            containers: memory * disk,
            denominator: 3 * memory * disk * containers,
        }
    }

    /// Returns the totals.
    #[must_use]
    pub const fn total(&self) -> Resources {
        self.total
    }

    /// Returns the weight of used resources: the numerator of the load. Weights are additive.
    #[must_use]
    pub fn weigh(&self, used: Resources) -> u128 {
        u128::from(used.memory_mb) * self.memory
            + u128::from(used.disk_mb) * self.disk
            + u128::from(used.containers) * self.containers
    }

    /// Returns the load of a cell from the weight of its used resources.
    #[must_use]
    pub fn load(&self, weight: u128) -> Load {
        Load(u64::try_from((weight << 32) / self.denominator).unwrap_or(u64::MAX))
    }
}

/// Limits the totals to the maximum that the schema allows, and limits the free resources to the totals.
#[must_use]
pub fn bounded(total: Resources, free: Resources) -> (Resources, Resources) {
    let total = Resources {
        memory_mb: total.memory_mb.min(limits::RESOURCE_MB),
        disk_mb: total.disk_mb.min(limits::RESOURCE_MB),
        containers: total.containers,
        ports: total.ports,
    };
    let free = Resources {
        memory_mb: free.memory_mb.min(total.memory_mb),
        disk_mb: free.disk_mb.min(total.disk_mb),
        containers: free.containers.min(total.containers),
        ports: free.ports.min(total.ports),
    };
    (total, free)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn resources(memory_mb: u64, disk_mb: u64, containers: u32) -> Resources {
        Resources { memory_mb, disk_mb, containers, ports: containers }
    }

    #[test]
    fn load_is_the_mean_of_three_fractions() {
        let scale = Scale::new(resources(1000, 2000, 10));
        let load = |used| scale.load(scale.weigh(used)).permille();
        assert_eq!(load(resources(0, 0, 0)), 0);
        assert_eq!(load(resources(300, 0, 0)), 100);
        assert_eq!(load(resources(500, 1000, 5)), 500);
        assert_eq!(load(resources(1000, 2000, 10)), 1000);
    }

    #[test]
    fn load_of_largest_cell_does_not_overflow() {
        let all = resources(u64::MAX, u64::MAX, u32::MAX);
        let (total, free) = bounded(all, all);
        assert_eq!(total, free);
        let scale = Scale::new(total);
        assert_eq!(scale.load(scale.weigh(total)).permille(), 1000);
    }

    #[test]
    fn load_of_cell_without_disk_counts_disk_as_unused() {
        let scale = Scale::new(resources(100, 0, 10));
        assert_eq!(scale.load(scale.weigh(resources(100, 0, 10))).permille(), 667);
    }

    #[test]
    fn score_orders_by_spread_affinity_zone_cell_and_load() {
        let score = |refused, (spread, affinity), (siblings_in_zone, siblings_on_cell), load, cell| Score {
            refused,
            spread,
            affinity: Reverse(affinity),
            siblings_in_zone,
            siblings_on_cell,
            load: Load(load),
            cell,
        };
        let row = [
            score(false, (0, 50), (9, 9), 9, 9),
            score(false, (0, 0), (0, 0), 9, 9),
            score(false, (0, 0), (1, 0), 8, 8),
            score(false, (0, 0), (1, 1), 6, 7),
            score(false, (0, 0), (1, 1), 7, 5),
            score(false, (0, 0), (1, 1), 7, 6),
            score(false, (0, -1), (0, 0), 0, 0),
            score(false, (1, 100), (0, 0), 0, 0),
            score(true, (0, 0), (0, 0), 0, 0),
        ];
        assert!(row.is_sorted());
    }
}
