//! A single auction: places a batch of work on cells (Diego Dev Notes, "Distributing ActualLRPs:
//! Auctioneer").
//!
//! The auction is a pure function: the same cells and the same batch give the same result. Each result
//! includes an explanation.

use std::collections::{BTreeMap, BTreeSet};

use machines::process::Process;
use machines::rank::Rank;
use machines::task::Task;
use schemas::container::WorkKey;
use schemas::message::WorkDefinition;
use schemas::names::{CellId, ProcessGuid};
use schemas::placement::Explanation;
use schemas::priority::Priority;
use schemas::resources::{Constraint, Resources};
use schemas::{ActualLrpKey, Place, Timestamp};

use crate::board::{Board, to_number};
use crate::explain;
use crate::family::Family;
use crate::score::Score;
use crate::search::{BestScores, Demand, scan, search};
use crate::tally::{Allocation, Tally};

/// Unit of work to place: an instance or a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Rank of the item, which determines the item's position in the batch. The key of the rank identifies
    /// the work.
    pub rank: Rank,
    pub order: WorkDefinition,
    /// Cells that refused the work. Every other suitable cell is preferred.
    pub refused_by: BTreeSet<CellId>,
    /// The only cell that may run the work. The work waits until this cell has enough free resources. `None`
    /// allows every cell.
    pub only: Option<CellId>,
}

/// Result of an auction for one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub item: Item,
    /// The chosen cell, or the placement error shown to users.
    pub place: Result<CellId, String>,
    pub explanation: Explanation,
}

/// Free resources that are reserved for waiting work. Items that rank after the waiting work cannot use these
/// resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Rank of the waiting work.
    pub rank: Rank,
    pub cell: CellId,
    pub size: Resources,
}

/// Number of existing instances per process and cell.
pub type Siblings = BTreeMap<ProcessGuid, BTreeMap<CellId, u32>>;

impl Item {
    /// Creates an item that no cell has refused.
    #[must_use]
    pub fn new(priority: Priority, since: Timestamp, key: WorkKey, order: WorkDefinition) -> Self {
        Self::ranked(Rank::new(priority, order.resources().memory_mb, since, key), order)
    }

    const fn ranked(rank: Rank, order: WorkDefinition) -> Self {
        Self { rank, order, refused_by: BTreeSet::new(), only: None }
    }

    /// Returns the process of the instance. `None` if the item is a task.
    pub(crate) const fn process(&self) -> Option<&ProcessGuid> {
        match &self.rank.key {
            WorkKey::Lrp { key, .. } => Some(&key.process_guid),
            WorkKey::Task { .. } => None,
        }
    }

    /// Returns the item for the instance at this slot (one index of a process). `None` if the instance does
    /// not wait for a cell, or if the process or this definition is not desired.
    #[must_use]
    pub fn of_place(process: &Process, place: &Place) -> Option<Self> {
        let rank = Rank::for_instance(process, place)?;
        let desired = process.desired.as_ref()?;
        let definition = desired.definition(&place.definition_id)?;
        let only = desired.only_cell(place.index).cloned();
        Some(Self { only, ..Self::ranked(rank, WorkDefinition::Lrp(definition.clone())) })
    }

    /// Returns the item of a task that waits for a cell. `None` if the task does not wait.
    #[must_use]
    pub fn of_task(task: &Task) -> Option<Self> {
        Some(Self::ranked(Rank::for_task(task)?, WorkDefinition::Task(task.definition.clone())))
    }

    /// Returns the constraint that cells must meet.
    #[must_use]
    pub fn constraint(&self) -> &Constraint {
        match &self.order {
            WorkDefinition::Lrp(definition) => &definition.constraint,
            WorkDefinition::Task(definition) => &definition.constraint,
        }
    }
}

/// Runs one auction. Subtracts the placed work from the free resources on the board. Returns one verdict per
/// item, in rank order. If the batch contains the same work twice, only the item that ranks first is used.
pub fn auction(board: &mut Board, batch: Vec<Item>, siblings: &Siblings) -> Vec<Verdict> {
    auction_with_reservations(board, batch, siblings, vec![])
}

/// Runs one auction like [`auction`], but reserves resources for waiting work. Items that rank after the
/// waiting work cannot use the reserved resources. If the batch contains the waiting work and the auction
/// places this work, its reservation is dropped.
pub fn auction_with_reservations(
    board: &mut Board,
    batch: Vec<Item>,
    siblings: &Siblings,
    mut holds: Vec<Reservation>,
) -> Vec<Verdict> {
    board.bound_views();
    let (batch, families) = sort(board, batch, siblings);
    // After this sort, `pop` returns the work that ranks first.
    holds.sort_by(|a, b| b.rank.cmp(&a.rank));
    let mut round = Round { board, families, taken: vec![], tallies: BTreeMap::new(), last: None };
    let (mut verdicts, mut held) = (Vec::with_capacity(batch.len()), vec![]);
    for (item, family) in batch {
        while let Some(hold) = holds.pop_if(|hold| hold.rank < item.rank) {
            held.extend(round.reserve(&hold));
        }
        let verdict = round.judge(item, family);
        if verdict.place.is_ok() {
            holds.retain(|hold| hold.rank.key != verdict.item.rank.key);
        }
        verdicts.push(verdict);
    }
    for (cell, room) in held {
        board.set_free(cell, board.free(cell).plus(room));
    }
    verdicts
}

/// Sorts the batch by rank and removes duplicates. Pairs each item with the index of its [`Family`], which
/// contains the existing instances of the same process. Index 0 is an empty family for tasks.
fn sort(board: &Board, mut batch: Vec<Item>, siblings: &Siblings) -> (Vec<(Item, usize)>, Vec<Family>) {
    batch.sort_by(|a, b| (&a.rank.key, &a.rank).cmp(&(&b.rank.key, &b.rank)));
    batch.dedup_by(|later, first| later.rank.key == first.rank.key);
    let mut families = vec![Family::default()];
    let mut last: Option<ProcessGuid> = None;
    let mut numbered: Vec<(Item, usize)> = Vec::with_capacity(batch.len());
    for item in batch {
        let family = match &item.rank.key {
            WorkKey::Task { .. } => 0,
            WorkKey::Lrp { key: ActualLrpKey { process_guid, .. }, .. } => {
                if last.as_ref() != Some(process_guid) {
                    families.push(family(board, siblings.get(process_guid)));
                    last = Some(process_guid.clone());
                }
                families.len() - 1
            }
        };
        numbered.push((item, family));
    }
    numbered.sort_unstable_by(|(a, _), (b, _)| a.rank.cmp(&b.rank));
    (numbered, families)
}

fn family(board: &Board, siblings: Option<&BTreeMap<CellId, u32>>) -> Family {
    let mut family = Family::default();
    for (id, instances) in siblings.into_iter().flatten().filter(|(_, instances)| **instances > 0) {
        if let Some(cell) = board.number(id) {
            family.add(cell, board.zone(cell), *instances);
        }
    }
    family
}

/// State of an auction in progress.
struct Round<'a> {
    board: &'a mut Board,
    families: Vec<Family>,
    /// Placements so far.
    taken: Vec<Allocation>,
    tallies: BTreeMap<(usize, Resources), Tally>,
    /// Constraint of the previous item, and the index of its view (the cells as this constraint evaluates
    /// them). Items that are adjacent in rank order often have the same constraint.
    last: Option<(Constraint, usize)>,
}

impl Round<'_> {
    fn judge(&mut self, item: Item, family: usize) -> Verdict {
        let size = item.order.resources();
        let view = self.view_of(&item);
        let tally = self.tally(view, size);
        let refused: Vec<u32> = item.refused_by.iter().filter_map(|id| self.board.number(id)).collect();
        let kin = &mut self.families[family];
        let lane = (!kin.is_empty()).then(|| kin.index_for(self.board, view, size));
        let wanted = Demand { view, size, sibling_index: lane };
        let best = match self.board.view(view).partition {
            _ if tally.fitting == 0 => BestScores::default(),
            Some(partition) if refused.is_empty() => search(self.board, wanted, partition, kin),
            Some(_) | None => scan(self.board, wanted, kin, &refused),
        };
        let places = best.places();
        let refused = self.count_refused(wanted, &self.families[family], &refused, places);
        let seen = self.board.view(view);
        let kin = &self.families[family];
        let crowded = lane.map_or(&[][..], |lane| &kin.index(lane).counts().crowded);
        let mut explanation = explain::explain(self.board, seen, (&tally, crowded, refused), places);
        let place = match places.first() {
            Some(winner) => Ok(self.place(winner.cell, size, family)),
            None => {
                let tried = self.board.eligibility(view, item.constraint(), item.only.as_ref());
                explanation.eligibility = Some(Box::new(tried));
                Err(explain::error(self.board, wanted, &tally, kin))
            }
        };
        Verdict { item, place, explanation }
    }

    fn view_of(&mut self, item: &Item) -> usize {
        let constraint = item.constraint();
        if let Some(only) = &item.only {
            return self.board.view_of_cell(constraint, only);
        }
        if let Some((known, view)) = &self.last
            && known == constraint
        {
            return *view;
        }
        let view = self.board.view_of(constraint);
        self.last = Some((constraint.clone(), view));
        view
    }

    fn tally(&mut self, view: usize, size: Resources) -> Tally {
        let (board, seen, taken) = (&*self.board, self.board.view(view), &self.taken);
        let fresh = || Tally::new(board, seen, size, taken);
        let tally = self.tallies.entry((view, size)).or_insert_with(fresh);
        tally.refresh(board, seen, size, taken);
        *tally
    }

    /// Returns the number of cells that could run the work, but were not chosen because they had refused the
    /// work.
    fn count_refused(&self, wanted: Demand, kin: &Family, refused: &[u32], places: &[Score]) -> u32 {
        if places.first().is_none_or(|winner| winner.refused) {
            return 0;
        }
        let able = |cell: &&u32| {
            let view = self.board.view(wanted.view);
            view.is_candidate(**cell)
                && self.board.free(**cell).fits(wanted.size)
                && kin.may_have_more(view, wanted.sibling_index, **cell)
        };
        to_number(refused.iter().filter(able).count())
    }

    /// Reserves resources on a cell for the rest of the auction. Returns the cell and the reserved amount. If
    /// the cell has less than the requested size free, only the free amount is reserved.
    fn reserve(&mut self, hold: &Reservation) -> Option<(u32, Resources)> {
        let cell = self.board.number(&hold.cell)?;
        let before = self.board.free(cell);
        self.take(cell, hold.size);
        Some((cell, before.minus(self.board.free(cell))))
    }

    fn take(&mut self, cell: u32, size: Resources) {
        let before = self.board.free(cell);
        let after = before.minus(size);
        self.board.set_free(cell, after);
        self.taken.push(Allocation { cell, before, after });
    }

    fn place(&mut self, cell: u32, size: Resources, family: usize) -> CellId {
        self.take(cell, size);
        if family > 0 {
            let zone = self.board.zone(cell);
            self.families[family].add(cell, zone, 1);
        }
        self.board.cell(cell).id.clone()
    }
}
