//! The cells as an auction sees them, in the order in which it wants them.
//!
//! Cells that are alike for every piece of work (stack, tags, zone, totals) form a group, and a group keeps its cells in
//! order of how full they are. The emptiest cell of each group is looked at first, and mostly only that one.

use std::collections::{BTreeMap, BTreeSet};

use schemas::names::{CellId, PlacementTag, Stack, Zone};
use schemas::resources::{Constraint, Mismatch, Resources};

use crate::score::{Scale, bounded};

/// Most constraints for which a board remembers the cells that satisfy them.
pub const VIEWS: usize = 1_024;
/// Most sizes that a group remembers as too large for all of its cells.
const TOO_LARGE: usize = 16;

/// A cell that the log calls present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardCell {
    /// Its id.
    pub id: CellId,
    /// Its zone.
    pub zone: Zone,
    /// What it offers.
    pub stack: Stack,
    /// Work must ask for all of these to be placed here.
    pub placement_tags: BTreeSet<PlacementTag>,
    /// What it has in all.
    pub total: Resources,
    /// What is free of it.
    pub free: Resources,
    /// Whether it takes work.
    pub standing: Standing,
}

/// Whether a cell takes work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It does.
    Open,
    /// It evacuates.
    Evacuating,
    /// An operator wants no new work on it.
    Cordoned,
    /// Its self-test fails.
    Unhealthy,
    /// It doesn't say what is free of it, or didn't answer.
    Silent,
}

/// The cells, ready for auctions. Cells are numbered in the order of their ids.
#[derive(Clone, Debug, Default)]
pub struct Board {
    cells: Vec<BoardCell>,
    /// What is free of each cell, beside the cells so that a count over all of them is quick.
    free: Vec<Resources>,
    zone_of: Vec<u32>,
    group_of: Vec<Option<u32>>,
    groups: Vec<Group>,
    views: Vec<View>,
    view_of: BTreeMap<Constraint, usize>,
    /// The views of work that only one cell may take.
    view_of_cell: BTreeMap<(CellId, Constraint), usize>,
}

/// A place in a group's order: what is used of the cell as the group's scale weighs it, and the cell's number.
pub(crate) type Spot = (u128, u32);
/// The beginning of every order.
pub(crate) const FIRST: Spot = (0, 0);
/// The end of every order.
pub(crate) const LAST: Spot = (u128::MAX, u32::MAX);

/// Open cells that are alike for every piece of work.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) scale: Scale,
    /// The cells that have a container free, the emptiest first.
    pub(crate) order: BTreeSet<Spot>,
    too_large: Vec<Resources>,
}

/// The cells as one constraint sees them.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// Cells that were looked at: all, or the only one that may take the work.
    pub(crate) cells: u32,
    /// Cells that offer another stack.
    pub(crate) stack: u32,
    /// Cells with other tags.
    pub(crate) tags: u32,
    /// Compatible cells that evacuate.
    pub(crate) evacuating: u32,
    /// Compatible cells that an operator cordoned.
    pub(crate) cordoned: u32,
    /// Compatible cells whose self-test fails.
    pub(crate) unhealthy: u32,
    /// Compatible cells that say nothing.
    pub(crate) silent: u32,
    /// The cells that are left, in order.
    pub(crate) candidates: Vec<u32>,
    /// For every cell, whether it is a candidate.
    pub(crate) takes: Vec<bool>,
    /// The groups of the candidates, zone by zone.
    pub(crate) zones: Vec<(u32, Vec<u32>)>,
}

impl Group {
    /// Whether it is known that no cell here has room for this.
    pub(crate) fn lacks_room(&self, size: Resources) -> bool {
        // What is at least as large as something that didn't fit doesn't fit either.
        !self.scale.total().fits(size) || self.too_large.iter().any(|known| size.fits(*known))
    }

    /// Remembers that no cell here has room for this: it stays so until somebody frees something.
    pub(crate) fn note_too_large(&mut self, size: Resources) {
        self.too_large.retain(|known| !known.fits(size));
        if self.too_large.len() < TOO_LARGE {
            self.too_large.push(size);
        }
    }
}

impl Board {
    /// Sets up a board. Of cells with the same id the first counts.
    #[must_use]
    pub fn new(cells: impl IntoIterator<Item = BoardCell>) -> Self {
        let mut board = Self { cells: cells.into_iter().collect(), ..Self::default() };
        board.cells.sort_by(|a, b| a.id.cmp(&b.id));
        board.cells.dedup_by(|later, first| later.id == first.id);
        let mut zones = BTreeMap::new();
        let mut groups = BTreeMap::new();
        for number in 0..board.len() {
            let cell = &mut board.cells[at(number)];
            (cell.total, cell.free) = bounded(cell.total, cell.free);
            let next = count(zones.len());
            let zone = *zones.entry(cell.zone.clone()).or_insert(next);
            let group = (cell.standing == Standing::Open).then(|| {
                let alike = (cell.stack.clone(), cell.placement_tags.clone(), zone, cell.total);
                *groups.entry(alike).or_insert_with(|| {
                    board.groups.push(Group {
                        scale: Scale::new(cell.total),
                        order: BTreeSet::new(),
                        too_large: vec![],
                    });
                    count(board.groups.len() - 1)
                })
            });
            board.free.push(cell.free);
            board.zone_of.push(zone);
            board.group_of.push(group);
            board.enter(number);
        }
        board
    }

    /// How many cells there are.
    #[must_use]
    pub fn len(&self) -> u32 {
        count(self.cells.len())
    }

    /// Whether there is no cell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The cells in order, as they were when the board was set up: see [`Board::free`] for what is free.
    #[must_use]
    pub fn cells(&self) -> &[BoardCell] {
        &self.cells
    }

    /// A cell by its number.
    #[must_use]
    pub fn cell(&self, number: u32) -> &BoardCell {
        &self.cells[at(number)]
    }

    /// The number of a cell.
    #[must_use]
    pub fn number(&self, id: &CellId) -> Option<u32> {
        self.cells.binary_search_by(|cell| cell.id.cmp(id)).ok().map(count)
    }

    /// What is free of a cell.
    #[must_use]
    pub fn free(&self, number: u32) -> Resources {
        self.free[at(number)]
    }

    /// Says what is free of a cell.
    pub fn set_free(&mut self, number: u32, free: Resources) {
        let (_, free) = bounded(self.cell(number).total, free);
        let before = self.free(number);
        if free == before {
            return;
        }
        self.leave(number);
        self.free[at(number)] = free;
        self.enter(number);
        if !before.fits(free)
            && let Some(group) = self.group_of[at(number)]
        {
            self.groups[at(group)].too_large.clear();
        }
    }

    /// The zone of a cell, as a number.
    pub(crate) fn zone(&self, number: u32) -> u32 {
        self.zone_of[at(number)]
    }

    /// The group of an open cell.
    pub(crate) fn group_of(&self, number: u32) -> Option<&Group> {
        self.group_of[at(number)].map(|group| &self.groups[at(group)])
    }

    /// A group, and what is free of every cell.
    pub(crate) fn group(&mut self, group: u32) -> (&mut Group, &[Resources]) {
        (&mut self.groups[at(group)], &self.free)
    }

    /// What is used of an open cell, as its group's scale weighs it.
    pub(crate) fn weight(&self, number: u32) -> u128 {
        let used = self.cell(number).total.minus(self.free(number));
        self.group_of(number).map_or(0, |group| group.scale.weigh(used))
    }

    /// A view by its number.
    pub(crate) fn view(&self, view: usize) -> &View {
        &self.views[view]
    }

    /// Forgets the views if they are many.
    pub(crate) fn bound_views(&mut self) {
        if self.views.len() > VIEWS {
            self.views.clear();
            self.view_of.clear();
            self.view_of_cell.clear();
        }
    }

    /// The number of the view of a constraint.
    pub(crate) fn view_of(&mut self, constraint: &Constraint) -> usize {
        if let Some(view) = self.view_of.get(constraint) {
            return *view;
        }
        let view = self.look(constraint, |_| true);
        self.views.push(view);
        self.view_of.insert(constraint.clone(), self.views.len() - 1);
        self.views.len() - 1
    }

    /// The number of the view of a constraint, where only one cell may take the work.
    pub(crate) fn view_of_cell(&mut self, constraint: &Constraint, only: &CellId) -> usize {
        let key = (only.clone(), constraint.clone());
        if let Some(view) = self.view_of_cell.get(&key) {
            return *view;
        }
        let view = self.look(constraint, |cell| cell.id == *only);
        self.views.push(view);
        self.view_of_cell.insert(key, self.views.len() - 1);
        self.views.len() - 1
    }

    fn look(&self, constraint: &Constraint, may_take: impl Fn(&BoardCell) -> bool) -> View {
        let mut view = View { takes: vec![false; self.cells.len()], ..View::default() };
        let mut zones: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for (number, cell) in self.cells.iter().enumerate().filter(|(_, cell)| may_take(cell)) {
            view.cells += 1;
            match (constraint.mismatch(&cell.stack, &cell.placement_tags), cell.standing) {
                (Some(Mismatch::Stack), _) => view.stack += 1,
                (Some(Mismatch::Tags), _) => view.tags += 1,
                (None, Standing::Evacuating) => view.evacuating += 1,
                (None, Standing::Cordoned) => view.cordoned += 1,
                (None, Standing::Unhealthy) => view.unhealthy += 1,
                (None, Standing::Silent) => view.silent += 1,
                (None, Standing::Open) => {
                    view.candidates.push(count(number));
                    view.takes[number] = true;
                    zones.entry(self.zone_of[number]).or_default().extend(self.group_of[number]);
                }
            }
        }
        view.zones = zones.into_iter().map(|(zone, groups)| (zone, groups.into_iter().collect())).collect();
        view
    }

    /// Puts a cell into its group's order. Every work takes a container: a cell that has none free isn't looked at.
    fn enter(&mut self, number: u32) {
        let weight = self.weight(number);
        if self.free(number).containers > 0
            && let Some(group) = self.group_of[at(number)]
        {
            self.groups[at(group)].order.insert((weight, number));
        }
    }

    fn leave(&mut self, number: u32) {
        let weight = self.weight(number);
        if let Some(group) = self.group_of[at(number)] {
            self.groups[at(group)].order.remove(&(weight, number));
        }
    }
}

/// A number as a place in a row.
pub(crate) const fn at(number: u32) -> usize {
    number as usize
}

/// A place in a row as a number: a row of cells or of work is shorter than 2^32.
pub(crate) fn count(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_forgotten_when_they_are_too_many_and_made_anew() {
        let zone = Zone::new("z").expect("a name");
        let stack = Stack::new("linux").expect("a name");
        let cell = BoardCell {
            id: CellId::new("c").expect("a name"),
            zone,
            stack: stack.clone(),
            placement_tags: BTreeSet::new(),
            total: Resources::of_container(10, 10, 1),
            free: Resources::of_container(10, 10, 1),
            standing: Standing::Open,
        };
        let constraint = |number: usize| Constraint {
            stack: Some(stack.clone()),
            placement_tags: [PlacementTag::new(&number.to_string()).expect("a name")].into(),
        };
        let any = Constraint { stack: Some(stack.clone()), placement_tags: BTreeSet::new() };
        let mut board = Board::new([cell]);
        for number in 1..VIEWS {
            board.view_of(&constraint(number));
        }
        board.view_of(&any);
        board.bound_views();
        assert_eq!(board.views.len(), VIEWS, "so many are kept");
        board.view_of(&constraint(0));
        board.bound_views();
        assert!(board.views.is_empty());
        for _ in 0..2 {
            let view = board.view_of(&any);
            assert_eq!((board.view(view).candidates.as_slice(), board.views.len()), (&[0][..], 1));
        }
    }
}
