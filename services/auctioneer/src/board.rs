//! Index of the cells, ordered by the preferences of an auction.
//!
//! Cells that are equivalent for all work (same stack, tags, zone and totals) form a group. A group orders
//! its cells by load. An auction inspects the emptiest cell of each group first, and usually only this cell.
//! For work whose constraint names attributes, cells are also grouped by the values of these attributes. Each
//! set of attributes that constraints name has its own `Partition` of the cells.

mod cell;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use schemas::Position;
use schemas::attributes::{AttributeName, STACK, ZONE};
use schemas::names::CellId;
use schemas::placement::Eligibility;
use schemas::resources::{CellClass, Constraint, Resources};
use schemas::rules::{Distinct, Rules};

use crate::eligibility::eligibility;
use crate::score::{Scale, bounded};
use crate::view::{Cells, Column, View};

pub use cell::{BoardCell, Standing};
pub(crate) use cell::{CORDONED, EVACUATING, SILENT, UNHEALTHY, to_index, to_number};

/// Maximum number of constraints whose matching cells a board caches.
pub const MAX_VIEWS: usize = 1_024;
/// Maximum number of work sizes that a group stores as too large for all of its cells.
const MAX_TOO_LARGE: usize = 16;
/// Maximum number of attribute sets by which a board groups its cells. Work whose constraint names a further
/// set is placed by a scan of every cell.
pub const MAX_PARTITIONS: usize = 32;

/// Cells of a cluster, prepared for auctions. Cells are numbered in the order of their ids.
#[derive(Clone, Debug, Default)]
pub struct Board {
    cells: Vec<BoardCell>,
    /// Free resources per cell. They are stored outside of `cells`, so that a pass over the resources of all
    /// cells is fast.
    free: Vec<Resources>,
    zone_of: Vec<u32>,
    /// Groupings of the cells. The first partition groups by no attribute.
    partitions: Vec<Partition>,
    columns: BTreeMap<AttributeName, Arc<Column>>,
    views: Vec<View>,
    view_of: BTreeMap<Constraint, usize>,
    /// Views of work that only one cell may run.
    view_of_cell: BTreeMap<(CellId, Constraint), usize>,
    /// Class of each cell, computed on first use.
    classes: OnceLock<Vec<CellClass>>,
    /// Cell classes that may run the work of a view, computed on first use.
    eligibility: BTreeMap<usize, Eligibility>,
    /// Journal position that the board reflects.
    position: Position,
}

/// Position of a cell in the order of its group: the used resources of the cell, weighed by the group's
/// scale, and the number of the cell.
pub(crate) type Spot = (u128, u32);
/// Lower bound of all positions in a group's order.
pub(crate) const MIN_SPOT: Spot = (0, 0);
/// Upper bound of all positions in a group's order.
pub(crate) const MAX_SPOT: Spot = (u128::MAX, u32::MAX);

/// Open cells that are equivalent for all work.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) scale: Scale,
    /// Cells with at least one free container, the emptiest first.
    pub(crate) order: BTreeSet<Spot>,
    too_large: Vec<Resources>,
}

/// Open cells in groups. The cells of a group are equivalent for all work whose constraint names no
/// attributes except `attributes`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partition {
    attributes: BTreeSet<AttributeName>,
    group_of: Vec<Option<u32>>,
    groups: Vec<Group>,
}

impl Group {
    /// Returns `true` if the group is known to have no cell with room for this size.
    pub(crate) fn lacks_room(&self, size: Resources) -> bool {
        // If a size did not fit, no size that is at least as large fits either.
        !self.scale.total().fits(size) || self.too_large.iter().any(|known| size.fits(*known))
    }

    /// Records that no cell of the group has room for this size. The record is valid until room is freed on
    /// one of the cells.
    pub(crate) fn note_too_large(&mut self, size: Resources) {
        self.too_large.retain(|known| !known.fits(size));
        if self.too_large.len() < MAX_TOO_LARGE {
            self.too_large.push(size);
        }
    }
}

impl Board {
    /// Creates a board. If several cells have the same id, only the first one is used.
    #[must_use]
    pub fn new(cells: impl IntoIterator<Item = BoardCell>) -> Self {
        let mut board = Self { cells: cells.into_iter().collect(), ..Self::default() };
        board.cells.sort_by(|a, b| a.id.cmp(&b.id));
        board.cells.dedup_by(|later, first| later.id == first.id);
        let mut zones = BTreeMap::new();
        for cell in &mut board.cells {
            (cell.total, cell.free) = bounded(cell.total, cell.free);
            let next = to_number(zones.len());
            board.zone_of.push(*zones.entry(cell.zone.clone()).or_insert(next));
            board.free.push(cell.free);
        }
        board.group_by(BTreeSet::new());
        board
    }

    /// Groups the cells by these attributes. Returns the index of the new partition.
    fn group_by(&mut self, attributes: BTreeSet<AttributeName>) -> usize {
        let mut group_of = match self.partitions.first() {
            Some(by_none) => by_none.group_of.clone(),
            None => self.groups_without_attributes(),
        };
        for name in &attributes {
            let column = self.column(name);
            let mut known: BTreeMap<(u32, u32), u32> = BTreeMap::new();
            for (group, value) in group_of.iter_mut().zip(&column.value_of) {
                let next = to_number(known.len());
                *group = group.map(|group| *known.entry((group, *value)).or_insert(next));
            }
        }
        let mut groups: Vec<(Scale, Vec<Spot>)> = vec![];
        for (number, cell) in self.cells.iter().enumerate() {
            let Some(group) = group_of[number] else { continue };
            // Groups are numbered in the order of their first cells.
            if to_index(group) == groups.len() {
                groups.push((Scale::new(cell.total), vec![]));
            }
            let (scale, order) = &mut groups[to_index(group)];
            if self.free[number].containers > 0 {
                order.push((scale.weigh(cell.total.minus(self.free[number])), to_number(number)));
            }
        }
        let group = |(scale, order): (Scale, Vec<Spot>)| Group {
            scale,
            order: order.into_iter().collect(),
            too_large: vec![],
        };
        let groups = groups.into_iter().map(group).collect();
        self.partitions.push(Partition { attributes, group_of, groups });
        self.partitions.len() - 1
    }

    /// Returns a group number for each open cell. Cells with the same number are equivalent, but their
    /// attributes may differ.
    fn groups_without_attributes(&self) -> Vec<Option<u32>> {
        let mut known = BTreeMap::new();
        let number = |(cell, zone): (&'_ BoardCell, &u32)| {
            let next = to_number(known.len());
            let alike = (cell.stack.clone(), cell.placement_tags.clone(), *zone, cell.total);
            (cell.standing == Standing::Open).then(|| *known.entry(alike).or_insert(next))
        };
        self.cells.iter().zip(&self.zone_of).map(number).collect()
    }

    /// Returns the partition for these attributes. `None` if the limit is reached, or if one of the
    /// attributes is unique to each cell. Such an attribute would make one group per cell.
    fn partition_by(&mut self, attributes: BTreeSet<AttributeName>) -> Option<usize> {
        let known = self.partitions.iter().position(|one| one.attributes == attributes);
        let may = self.partitions.len() < MAX_PARTITIONS && !attributes.iter().any(AttributeName::is_unique);
        known.or_else(|| may.then(|| self.group_by(attributes)))
    }

    /// Returns the values of an attribute, by cell.
    fn column(&mut self, name: &AttributeName) -> Arc<Column> {
        if let Some(column) = self.columns.get(name) {
            return Arc::clone(column);
        }
        let column = Arc::new(Column::new(&self.cells, name));
        self.columns.insert(name.clone(), Arc::clone(&column));
        column
    }

    /// Sets the journal position that the board reflects.
    pub const fn set_position(&mut self, position: Position) {
        self.position = position;
    }

    /// Returns the cell classes that may run the work of a view.
    pub(crate) fn eligibility(
        &mut self,
        view: usize,
        constraint: &Constraint,
        only: Option<&CellId>,
    ) -> Eligibility {
        let classes = self
            .classes
            .get_or_init(|| self.cells.iter().map(|cell| CellClass::from_offer(&cell.offer())).collect());
        let cells = self.cells.iter().zip(classes.iter().copied());
        let cells = cells.filter(|(cell, _)| only.is_none_or(|only| cell.id == *only));
        let judge = || eligibility(cells, constraint, self.position);
        let known = self.eligibility.entry(view).or_insert_with(judge);
        Eligibility { observed_position: self.position, ..known.clone() }
    }

    /// Returns the number of cells.
    #[must_use]
    pub fn len(&self) -> u32 {
        to_number(self.cells.len())
    }

    /// Returns `true` if the board has no cells.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Returns the cells in the order of their ids, as they were when the board was created. See
    /// [`Board::free`] for the current free resources.
    #[must_use]
    pub fn cells(&self) -> &[BoardCell] {
        &self.cells
    }

    /// Returns a cell by its number.
    #[must_use]
    pub fn cell(&self, number: u32) -> &BoardCell {
        &self.cells[to_index(number)]
    }

    /// Returns the number of a cell.
    #[must_use]
    pub fn number(&self, id: &CellId) -> Option<u32> {
        self.cells.binary_search_by(|cell| cell.id.cmp(id)).ok().map(to_number)
    }

    /// Returns the free resources of a cell.
    #[must_use]
    pub fn free(&self, number: u32) -> Resources {
        self.free[to_index(number)]
    }

    /// Sets the free resources of a cell.
    pub fn set_free(&mut self, number: u32, free: Resources) {
        let (_, free) = bounded(self.cell(number).total, free);
        let before = self.free(number);
        if free == before {
            return;
        }
        self.remove_from_orders(number);
        self.free[to_index(number)] = free;
        self.insert_into_orders(number);
        if !before.fits(free) {
            for partition in &mut self.partitions {
                if let Some(group) = partition.group_of[to_index(number)] {
                    partition.groups[to_index(group)].too_large.clear();
                }
            }
        }
    }

    pub(crate) fn zone(&self, number: u32) -> u32 {
        self.zone_of[to_index(number)]
    }

    pub(crate) fn scale(&self, number: u32) -> Option<&Scale> {
        let partition = self.partitions.first()?;
        partition.group_of[to_index(number)].map(|group| &partition.groups[to_index(group)].scale)
    }

    /// Returns a group of a partition, and the free resources of every cell.
    pub(crate) fn group(&mut self, partition: usize, group: u32) -> (&mut Group, &[Resources]) {
        (&mut self.partitions[partition].groups[to_index(group)], &self.free)
    }

    /// Returns the used resources of an open cell, weighed by the scale of its group.
    pub(crate) fn weight(&self, number: u32) -> u128 {
        let used = self.cell(number).total.minus(self.free(number));
        self.scale(number).map_or(0, |scale| scale.weigh(used))
    }

    pub(crate) fn view(&self, view: usize) -> &View {
        &self.views[view]
    }

    /// Clears the cached views, with their partitions and columns, if the cache has reached its limits.
    pub(crate) fn bound_views(&mut self) {
        if self.views.len() > MAX_VIEWS || self.partitions.len() >= MAX_PARTITIONS {
            self.views.clear();
            self.view_of.clear();
            self.view_of_cell.clear();
            self.eligibility.clear();
            self.partitions.truncate(1);
            self.columns.clear();
        }
    }

    /// Returns the index of the view of a constraint.
    pub(crate) fn view_of(&mut self, constraint: &Constraint) -> usize {
        if let Some(view) = self.view_of.get(constraint) {
            return *view;
        }
        let view = self.build_view(constraint, None);
        self.views.push(view);
        self.view_of.insert(constraint.clone(), self.views.len() - 1);
        self.views.len() - 1
    }

    /// Returns the index of the view of a constraint for work that only one cell may run.
    pub(crate) fn view_of_cell(&mut self, constraint: &Constraint, only: &CellId) -> usize {
        let key = (only.clone(), constraint.clone());
        if let Some(view) = self.view_of_cell.get(&key) {
            return *view;
        }
        let view = self.build_view(constraint, Some(only));
        self.views.push(view);
        self.view_of_cell.insert(key, self.views.len() - 1);
        self.views.len() - 1
    }

    fn build_view(&mut self, constraint: &Constraint, only: Option<&CellId>) -> View {
        let rules = constraint.rules.as_deref();
        // Cells of one group have the same zone and stack already.
        let named = rules.into_iter().flat_map(Rules::attributes);
        let mut named: BTreeSet<AttributeName> =
            named.filter(|name| !matches!(name.as_str(), ZONE | STACK)).cloned().collect();
        if !constraint.isolation.is_empty() {
            named.insert(AttributeName::isolation());
        }
        // Work that only one cell may run needs no partition.
        let partition = if only.is_some() { None } else { self.partition_by(named) };
        let spreads = rules.map_or(&[][..], |rules| &rules.spread);
        let spreads: Vec<_> = spreads.iter().map(|spread| (spread, self.column(&spread.attribute))).collect();
        let distinct: Vec<_> = rules.into_iter().flat_map(Rules::distinct).collect();
        let distinct: Vec<_> = distinct
            .into_iter()
            .map(|(at, distinct)| match distinct {
                Distinct::Cell { max } => (at, None, max),
                Distinct::Attribute { attribute, max: most } => (at, Some(self.column(attribute)), most),
            })
            .collect();
        let group_of = partition.map(|partition| self.partitions[partition].group_of.as_slice());
        let cells = Cells { all: &self.cells, zone_of: &self.zone_of, group_of };
        View::new(cells, (constraint, only), partition, spreads, distinct)
    }

    /// Adds a cell to the orders of its groups. A cell without a free container is left out, because all work
    /// needs a container.
    fn insert_into_orders(&mut self, number: u32) {
        if self.free(number).containers > 0 {
            let weight = self.weight(number);
            for partition in &mut self.partitions {
                if let Some(group) = partition.group_of[to_index(number)] {
                    partition.groups[to_index(group)].order.insert((weight, number));
                }
            }
        }
    }

    fn remove_from_orders(&mut self, number: u32) {
        let weight = self.weight(number);
        for partition in &mut self.partitions {
            if let Some(group) = partition.group_of[to_index(number)] {
                partition.groups[to_index(group)].order.remove(&(weight, number));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use schemas::attributes::Attributes;
    use schemas::names::{PlacementTag, Stack, Zone};

    use super::*;

    #[test]
    fn view_cache_is_cleared_when_full_and_rebuilt() {
        let zone = Zone::new("z").expect("a name");
        let stack = Stack::new("linux").expect("a name");
        let cell = BoardCell {
            id: CellId::new("c").expect("a name"),
            zone,
            stack: stack.clone(),
            placement_tags: BTreeSet::new(),
            attributes: Attributes::default(),
            total: Resources::for_container(10, 10, 1),
            free: Resources::for_container(10, 10, 1),
            standing: Standing::Open,
        };
        let constraint = |number: usize| Constraint {
            stack: Some(stack.clone()),
            placement_tags: [PlacementTag::new(&number.to_string()).expect("a name")].into(),
            ..Constraint::default()
        };
        let any = Constraint { stack: Some(stack.clone()), ..Constraint::default() };
        let mut board = Board::new([cell]);
        for number in 1..MAX_VIEWS {
            board.view_of(&constraint(number));
        }
        board.view_of(&any);
        board.bound_views();
        assert_eq!(board.views.len(), MAX_VIEWS, "the cache is full");
        board.view_of(&constraint(0));
        board.bound_views();
        assert!(board.views.is_empty());
        for _ in 0..2 {
            let view = board.view_of(&any);
            assert_eq!((board.view(view).candidates.as_slice(), board.views.len()), (&[0][..], 1));
        }
    }
}
