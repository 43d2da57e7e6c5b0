//! The instances of one process: where they are, and which of their cells is the best for one more.

use std::collections::{BTreeMap, BTreeSet};

use schemas::resources::Resources;

use crate::board::{Board, FIRST, Spot, at};
use crate::score::Load;

/// The instances of one process, as an auction sees them.
#[derive(Debug, Default)]
pub(crate) struct Family {
    /// How many are on a cell, by the cell's number.
    on_cell: Vec<(u32, u32)>,
    /// How many are in a zone.
    in_zone: Vec<(u32, u32)>,
    /// Cells that have one, in the order in which they got their first.
    homes: Vec<u32>,
    /// One for each way in which an auction places this process: mostly one.
    lanes: Vec<Lane>,
}

/// The cells that have instances already, in the order in which one more would go there.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    view: usize,
    size: Resources,
    /// How many of the family's homes it knows.
    seen: usize,
    /// For each zone its homes: instances there, load with one more, number. An entry may be out of date, but both
    /// only grow within an auction, so it is never too large: the first entry that is up to date is the best.
    homes: BTreeMap<u32, BTreeSet<(u32, Load, u32)>>,
    /// For each group where its first cell without an instance stood that had room. Before it there is none, and none
    /// comes: within an auction cells only get fuller, and so move on.
    lonely: BTreeMap<u32, Spot>,
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
        if before == 0 {
            self.homes.push(cell);
        }
        add(&mut self.on_cell, cell, more);
        add(&mut self.in_zone, zone, more);
    }

    /// The lane for work of this view and size, with every home that there is.
    pub(crate) fn lane(&mut self, board: &Board, view: usize, size: Resources) -> usize {
        let known = self.lanes.iter().position(|lane| lane.view == view && lane.size == size);
        let place = known.unwrap_or_else(|| {
            self.lanes.push(Lane { view, size, ..Lane::default() });
            self.lanes.len() - 1
        });
        let lane = &mut self.lanes[place];
        let takes = &board.view(view).takes;
        for &home in &self.homes[lane.seen..] {
            if takes[at(home)] {
                let entry = (find(&self.on_cell, home), load_with(board, home, size), home);
                lane.homes.entry(board.zone(home)).or_default().insert(entry);
            }
        }
        lane.seen = self.homes.len();
        place
    }

    /// A lane by its place.
    pub(crate) fn lane_mut(&mut self, lane: usize) -> &mut Lane {
        &mut self.lanes[lane]
    }

    /// Walks the homes of a zone from the best on, as long as `wanted` says so.
    pub(crate) fn walk(
        &mut self,
        board: &Board,
        lane: usize,
        zone: u32,
        mut wanted: impl FnMut(u32, Load, u32) -> bool,
    ) {
        let lane = &mut self.lanes[lane];
        let Some(homes) = lane.homes.get_mut(&zone) else { return };
        let mut visited = vec![];
        while let Some(entry) = homes.pop_first() {
            let (_, _, cell) = entry;
            if !board.free(cell).fits(lane.size) {
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
    /// Where to begin to look for cells of a group that have no instance.
    pub(crate) fn lonely_from(&self, group: u32) -> Spot {
        self.lonely.get(&group).copied().unwrap_or(FIRST)
    }

    /// Remembers where to begin the next time.
    pub(crate) fn set_lonely_from(&mut self, group: u32, spot: Spot) {
        self.lonely.insert(group, spot);
    }
}

/// The load of an open cell with this work on it.
pub(crate) fn load_with(board: &Board, cell: u32, size: Resources) -> Load {
    let weight = board.weight(cell);
    board.group_of(cell).map_or(Load::default(), |group| group.scale.load(weight + group.scale.weigh(size)))
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
