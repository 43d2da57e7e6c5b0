//! Instances of one process, and the best of their cells for one more instance.

use std::collections::{BTreeMap, BTreeSet};

use schemas::resources::Resources;

use crate::board::{Board, FIRST, LAST, Spot, at};
use crate::score::Load;
use crate::view::{Counts, View};

/// Instances of one process in an auction.
#[derive(Debug, Default)]
pub(crate) struct Family {
    /// Number of instances by cell number.
    on_cell: Vec<(u32, u32)>,
    /// Number of instances by zone number.
    in_zone: Vec<(u32, u32)>,
    /// Additions in order: the cell, its previous number of instances, and the number added.
    added: Vec<(u32, u32, u32)>,
    /// One index for each view and size with which the auction places this process. Usually there is one.
    lanes: Vec<Lane>,
}

/// Cells that already have instances, in the order of preference for one more.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    view: usize,
    size: Resources,
    /// Number of entries of `added` that the lane includes.
    seen: usize,
    /// Instances counted as the view's constraints require.
    counts: Counts,
    /// Cells with instances, by bucket of the view: number of instances, load with one more, cell number. An
    /// entry may be out of date. Both figures only grow within an auction, so an entry is never too large.
    /// The first entry that is up to date is therefore the best.
    homes: BTreeMap<usize, BTreeSet<(u32, Load, u32)>>,
    /// For each group, the first cell with room and without an instance. No earlier cell qualifies, and none
    /// will within this auction: loads only grow, so cells only move towards the end of the order.
    lonely: Vec<First>,
}

/// Position of the first cell of a group that has no instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First {
    pub(crate) spot: Spot,
    /// Load of that cell with the work on it.
    pub(crate) load: Load,
    /// Load of a cell that is minimally fuller. Later cells have at least this load. Loads are rounded, so
    /// some may have exactly this load.
    pub(crate) fuller: Load,
}

impl First {
    /// The group has not been searched.
    pub(crate) const UNKNOWN: Self = Self { spot: FIRST, load: Load::LEAST, fuller: Load::LEAST };
    /// The group has no such cell.
    pub(crate) const NONE: Self = Self { spot: LAST, load: Load::MOST, fuller: Load::MOST };
}

impl Family {
    /// Returns `true` if the process has no instances.
    pub(crate) const fn is_empty(&self) -> bool {
        self.on_cell.is_empty()
    }

    /// Returns the number of instances on a cell.
    pub(crate) fn on_cell(&self, cell: u32) -> u32 {
        find(&self.on_cell, cell)
    }

    /// Returns the number of instances in a zone.
    pub(crate) fn in_zone(&self, zone: u32) -> u32 {
        find(&self.in_zone, zone)
    }

    /// Adds instances on a cell.
    pub(crate) fn add(&mut self, cell: u32, zone: u32, more: u32) {
        let before = self.on_cell(cell);
        self.added.push((cell, before, more));
        add(&mut self.on_cell, cell, more);
        add(&mut self.in_zone, zone, more);
    }

    /// Returns the lane for work of this view and size, after adding all cells that have instances.
    pub(crate) fn lane(&mut self, board: &Board, view: usize, size: Resources) -> usize {
        let known = self.lanes.iter().position(|lane| lane.view == view && lane.size == size);
        let seen = board.view(view);
        let place = known.unwrap_or_else(|| {
            self.lanes.push(Lane { view, size, counts: seen.no_counts(), ..Lane::default() });
            self.lanes.len() - 1
        });
        let lane = &mut self.lanes[place];
        for &(home, before, more) in &self.added[lane.seen..] {
            seen.count(&mut lane.counts, (home, before, more));
            if before == 0 && seen.takes(home) {
                let entry = (find(&self.on_cell, home), load_with(board, home, size), home);
                lane.homes.entry(seen.bucket_of(home)).or_default().insert(entry);
            }
        }
        lane.seen = self.added.len();
        place
    }

    /// Returns `true` if the constraints allow one more instance on a candidate, regardless of its room. The
    /// lane provides the counts.
    pub(crate) fn may_have_more(&self, view: &View, lane: Option<usize>, cell: u32) -> bool {
        let Some(lane) = lane.filter(|_| !view.distinct.is_empty()) else { return true };
        let bucket = &view.buckets[view.bucket_of(cell)];
        self.on_cell(cell) < view.most_on_cell() && !view.is_crowded(bucket, &self.lanes[lane].counts)
    }

    pub(crate) fn lane_at(&self, lane: usize) -> &Lane {
        &self.lanes[lane]
    }

    pub(crate) fn lane_mut(&mut self, lane: usize) -> &mut Lane {
        &mut self.lanes[lane]
    }

    /// Visits the cells of a bucket that have instances, the best first, until `wanted` returns `false`.
    pub(crate) fn walk(
        &mut self,
        board: &Board,
        lane: usize,
        bucket: usize,
        mut wanted: impl FnMut(u32, Load, u32) -> bool,
    ) {
        let lane = &mut self.lanes[lane];
        let most = board.view(lane.view).most_on_cell();
        let Some(homes) = lane.homes.get_mut(&bucket) else { return };
        let mut visited = vec![];
        while let Some(entry) = homes.pop_first() {
            let (_, _, cell) = entry;
            if !board.free(cell).fits(lane.size) || find(&self.on_cell, cell) >= most {
                continue; // The cell will not qualify again within this auction.
            }
            let truth = (find(&self.on_cell, cell), load_with(board, cell, lane.size), cell);
            if entry != truth {
                homes.insert(truth);
                continue;
            }
            visited.push(entry);
            if !wanted(truth.0, truth.1, cell) {
                break;
            }
        }
        homes.extend(visited);
    }
}

impl Lane {
    /// Returns the instance counts.
    pub(crate) const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the position at which to start a search for cells of a group that have no instance.
    pub(crate) fn lonely_from(&self, group: u32) -> First {
        self.lonely.get(at(group)).copied().unwrap_or(First::UNKNOWN)
    }

    /// Stores the position at which the next search starts.
    pub(crate) fn set_lonely_from(&mut self, group: u32, first: First) {
        if self.lonely.len() <= at(group) {
            self.lonely.resize(at(group) + 1, First::UNKNOWN);
        }
        self.lonely[at(group)] = first;
    }
}

/// Returns the load of an open cell with this work on it.
pub(crate) fn load_with(board: &Board, cell: u32, size: Resources) -> Load {
    let weight = board.weight(cell);
    board.scale(cell).map_or(Load::default(), |scale| scale.load(weight + scale.weigh(size)))
}

fn find(row: &[(u32, u32)], key: u32) -> u32 {
    row.binary_search_by_key(&key, |(known, _)| *known).map_or(0, |at| row[at].1)
}

fn add(row: &mut Vec<(u32, u32)>, key: u32, more: u32) {
    match row.binary_search_by_key(&key, |(known, _)| *known) {
        Ok(at) => row[at].1 = row[at].1.saturating_add(more),
        Err(at) => row.insert(at, (key, more)),
    }
}
