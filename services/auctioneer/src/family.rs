//! The instances of one process: where they are, and which of their cells is the best for one more.

use std::collections::{BTreeMap, BTreeSet};

use schemas::resources::Resources;

use crate::board::{Board, FIRST, LAST, Spot, at};
use crate::score::Load;
use crate::view::{Counts, View};

/// The instances of one process, as an auction sees them.
#[derive(Debug, Default)]
pub(crate) struct Family {
    /// How many are on a cell, by the cell's number.
    on_cell: Vec<(u32, u32)>,
    /// How many are in a zone.
    in_zone: Vec<(u32, u32)>,
    /// Every cell that got more, how many it had before, and how many more: in this order.
    added: Vec<(u32, u32, u32)>,
    /// One for each way in which an auction places this process: mostly one.
    lanes: Vec<Lane>,
}

/// The cells that have instances already, in the order in which one more would go there.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    view: usize,
    size: Resources,
    /// How much of what was added it knows.
    seen: usize,
    /// How many instances are where, as the view counts them.
    counts: Counts,
    /// For each bucket of the view its homes: instances there, load with one more, number. An entry may be out of date, but both
    /// only grow within an auction, so it is never too large: the first entry that is up to date is the best.
    homes: BTreeMap<usize, BTreeSet<(u32, Load, u32)>>,
    /// For each group where its first cell without an instance stood that had room. Before it there is none, and none
    /// comes: within an auction cells only get fuller, and so move on.
    lonely: Vec<First>,
}

/// Where the first cell of a group without an instance stood.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First {
    pub(crate) spot: Spot,
    /// The load of that cell with the work on it.
    pub(crate) load: Load,
    /// The load of a cell that is the least bit fuller: none behind it has less, and some may have as much, for loads are
    /// rounded.
    pub(crate) fuller: Load,
}

impl First {
    /// Nobody has looked yet.
    pub(crate) const UNKNOWN: Self = Self { spot: FIRST, load: Load::LEAST, fuller: Load::LEAST };
    /// There is none.
    pub(crate) const NONE: Self = Self { spot: LAST, load: Load::MOST, fuller: Load::MOST };
}

impl Family {
    /// Whether there is no instance anywhere.
    pub(crate) const fn is_empty(&self) -> bool {
        self.on_cell.is_empty()
    }

    /// How many are on a cell.
    pub(crate) fn on_cell(&self, cell: u32) -> u32 {
        find(&self.on_cell, cell)
    }

    /// How many are in a zone.
    pub(crate) fn in_zone(&self, zone: u32) -> u32 {
        find(&self.in_zone, zone)
    }

    /// Puts more instances on a cell.
    pub(crate) fn add(&mut self, cell: u32, zone: u32, more: u32) {
        let before = self.on_cell(cell);
        self.added.push((cell, before, more));
        add(&mut self.on_cell, cell, more);
        add(&mut self.in_zone, zone, more);
    }

    /// The lane for work of this view and size, with every home that there is.
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

    /// Whether a candidate may have one more, whatever room it has: a lane knows how many are where.
    pub(crate) fn may_have_more(&self, view: &View, lane: Option<usize>, cell: u32) -> bool {
        let Some(lane) = lane.filter(|_| !view.distinct.is_empty()) else { return true };
        let bucket = &view.buckets[view.bucket_of(cell)];
        self.on_cell(cell) < view.most_on_cell() && !view.is_crowded(bucket, &self.lanes[lane].counts)
    }

    /// A lane by its place.
    pub(crate) fn lane_at(&self, lane: usize) -> &Lane {
        &self.lanes[lane]
    }

    /// The same, to be changed.
    pub(crate) fn lane_mut(&mut self, lane: usize) -> &mut Lane {
        &mut self.lanes[lane]
    }

    /// Walks the homes of a bucket from the best on, as long as `wanted` says so.
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
                continue; // and never will within this auction
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
    /// How many instances are where.
    pub(crate) const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Where to begin to look for cells of a group that have no instance.
    pub(crate) fn lonely_from(&self, group: u32) -> First {
        self.lonely.get(at(group)).copied().unwrap_or(First::UNKNOWN)
    }

    /// Remembers where to begin the next time.
    pub(crate) fn set_lonely_from(&mut self, group: u32, first: First) {
        if self.lonely.len() <= at(group) {
            self.lonely.resize(at(group) + 1, First::UNKNOWN);
        }
        self.lonely[at(group)] = first;
    }
}

/// The load of an open cell with this work on it.
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
