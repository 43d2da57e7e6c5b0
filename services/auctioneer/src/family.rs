//! Family of a process: its existing instances, and the cells that are best for one more instance.

use std::collections::{BTreeMap, BTreeSet};

use schemas::resources::Resources;

use crate::board::{Board, MAX_SPOT, MIN_SPOT, Spot, to_index};
use crate::score::Load;
use crate::view::{Counts, View};

/// Instances of one process in an auction.
#[derive(Debug, Default)]
pub(crate) struct Family {
    /// Number of instances by cell number.
    on_cell: Vec<(u32, u32)>,
    /// Number of instances by zone number.
    in_zone: Vec<(u32, u32)>,
    /// Additions in order. Each addition consists of the cell, the previous number of instances on the cell,
    /// and the number of added instances.
    added: Vec<(u32, u32, u32)>,
    /// One index for each combination of view and size with which the auction places this process. A view is
    /// the list of cells as one constraint evaluates them. Usually there is one combination.
    indexes: Vec<SiblingIndex>,
}

/// Cells that already have instances, in order of preference for one more instance.
#[derive(Debug, Default)]
pub(crate) struct SiblingIndex {
    view: usize,
    size: Resources,
    /// Number of entries of `Family::added` that this index includes.
    applied: usize,
    /// Instances of the process, counted for the view's constraints and spreads.
    counts: Counts,
    /// Cells with instances, grouped by bucket of the view. Each entry consists of the number of instances,
    /// the load with one more instance, and the cell number. An entry may be out of date. The number and the
    /// load only grow within an auction, so an outdated entry is never too large. The first entry that is up
    /// to date is therefore the best entry.
    occupied: BTreeMap<usize, BTreeSet<(u32, Load, u32)>>,
    /// For each group of cells, the first cell that has enough free resources and no instance. The cells
    /// before this cell cannot become such a cell within this auction: loads only grow, so cells only move
    /// towards the end of the order.
    frontiers: Vec<Frontier>,
}

/// Position of the first cell of a group that has no instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frontier {
    pub(crate) spot: Spot,
    /// Load of this cell with the new work.
    pub(crate) load: Load,
    /// Load of a cell that is minimally fuller than this cell. All later cells have at least this load.
    /// Because loads are rounded, some later cells may have exactly this load.
    pub(crate) fuller: Load,
}

impl Frontier {
    /// The group has not been searched.
    pub(crate) const UNKNOWN: Self = Self { spot: MIN_SPOT, load: Load::MIN, fuller: Load::MIN };
    /// No cell of the group has both enough free resources and no instance.
    pub(crate) const NONE: Self = Self { spot: MAX_SPOT, load: Load::MAX, fuller: Load::MAX };
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

    /// Returns the number of the [`SiblingIndex`] for work of this view and size. Before that, the function
    /// creates or updates the index, so that the index includes all cells with instances.
    pub(crate) fn index_for(&mut self, board: &Board, view: usize, size: Resources) -> usize {
        let known = self.indexes.iter().position(|lane| lane.view == view && lane.size == size);
        let seen = board.view(view);
        let place = known.unwrap_or_else(|| {
            self.indexes.push(SiblingIndex {
                view,
                size,
                counts: seen.empty_counts(),
                ..SiblingIndex::default()
            });
            self.indexes.len() - 1
        });
        let lane = &mut self.indexes[place];
        for &(home, before, more) in &self.added[lane.applied..] {
            seen.add_instances(&mut lane.counts, (home, before, more));
            if before == 0 && seen.is_candidate(home) {
                let entry = (find(&self.on_cell, home), load_with(board, home, size), home);
                lane.occupied.entry(seen.bucket_of(home)).or_default().insert(entry);
            }
        }
        lane.applied = self.added.len();
        place
    }

    /// Returns `true` if the constraints allow one more instance on a candidate. Free resources are not
    /// checked. `lane` is the number of the [`SiblingIndex`] that provides the counts.
    pub(crate) fn may_have_more(&self, view: &View, lane: Option<usize>, cell: u32) -> bool {
        let Some(lane) = lane.filter(|_| !view.distinct.is_empty()) else { return true };
        let bucket = &view.buckets[view.bucket_of(cell)];
        self.on_cell(cell) < view.max_per_cell() && !view.is_crowded(bucket, &self.indexes[lane].counts)
    }

    pub(crate) fn index(&self, lane: usize) -> &SiblingIndex {
        &self.indexes[lane]
    }

    pub(crate) fn index_mut(&mut self, lane: usize) -> &mut SiblingIndex {
        &mut self.indexes[lane]
    }

    /// Visits the cells of a bucket that have instances, the best cell first. Stops when `wanted` returns
    /// `false`.
    pub(crate) fn visit_occupied(
        &mut self,
        board: &Board,
        lane: usize,
        bucket: usize,
        mut wanted: impl FnMut(u32, Load, u32) -> bool,
    ) {
        let lane = &mut self.indexes[lane];
        let most = board.view(lane.view).max_per_cell();
        let Some(homes) = lane.occupied.get_mut(&bucket) else { return };
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

impl SiblingIndex {
    /// Returns the instance counts.
    pub(crate) const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the position in a group at which a search for cells without an instance starts.
    pub(crate) fn frontier(&self, group: u32) -> Frontier {
        self.frontiers.get(to_index(group)).copied().unwrap_or(Frontier::UNKNOWN)
    }

    /// Stores the position in a group at which the next search starts.
    pub(crate) fn set_frontier(&mut self, group: u32, first: Frontier) {
        if self.frontiers.len() <= to_index(group) {
            self.frontiers.resize(to_index(group) + 1, Frontier::UNKNOWN);
        }
        self.frontiers[to_index(group)] = first;
    }
}

/// Returns the load of an open cell after adding this work.
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
