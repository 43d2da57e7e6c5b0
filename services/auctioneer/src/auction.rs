//! One auction: a batch of work, the cells, and what goes where (Diego Dev Notes, "Distributing ActualLRPs:
//! Auctioneer").
//!
//! Pure. The same cells and the same batch give the same answer, and the answer says why.

use std::collections::{BTreeMap, BTreeSet};

use schemas::container::WorkKey;
use schemas::message::Order;
use schemas::names::{CellId, ProcessGuid};
use schemas::placement::Explanation;
use schemas::process::Process;
use schemas::rank::{Priority, Rank};
use schemas::resources::{Constraint, Resources};
use schemas::task::Task;
use schemas::{ActualLrpKey, Place, Timestamp};

use crate::board::{Board, count};
use crate::explain;
use crate::family::Family;
use crate::score::Score;
use crate::search::{Best, Wanted, scan, search};
use crate::tally::{Taken, Tally};

/// One piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// When it has its turn; names it.
    pub rank: Rank,
    /// What it runs.
    pub order: Order,
    /// Cells that refused it: any other that fits is better.
    pub refused_by: BTreeSet<CellId>,
    /// The only cell that may take it: it waits for room there, and nothing else is decided. None: any.
    pub only: Option<CellId>,
}

/// What an auction answers for one piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The work.
    pub item: Item,
    /// The cell that takes it, or why none does, as users read it.
    pub place: Result<CellId, String>,
    /// Why.
    pub explanation: Explanation,
}

/// Room that was made for work that waits, and that nothing behind it in the order gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The work.
    pub rank: Rank,
    /// Where its room is.
    pub cell: CellId,
    /// How much it takes.
    pub size: Resources,
}

/// Instances that are somewhere already: of each process how many on each cell.
pub type Siblings = BTreeMap<ProcessGuid, BTreeMap<CellId, u32>>;

impl Item {
    /// Work that nobody refused.
    #[must_use]
    pub fn new(priority: Priority, since: Timestamp, key: WorkKey, order: Order) -> Self {
        Self::ranked(Rank::new(priority, order.resources().memory_mb, since, key), order)
    }

    const fn ranked(rank: Rank, order: Order) -> Self {
        Self { rank, order, refused_by: BTreeSet::new(), only: None }
    }

    /// The process that it is an instance of; none: it is a task.
    pub(crate) const fn process(&self) -> Option<&ProcessGuid> {
        match &self.rank.key {
            WorkKey::Lrp { key, .. } => Some(&key.process_guid),
            WorkKey::Task { .. } => None,
        }
    }

    /// An instance that waits for a cell; none: there is none, or it is not desired.
    #[must_use]
    pub fn of_place(process: &Process, place: &Place) -> Option<Self> {
        let rank = Rank::of_place(process, place)?;
        let desired = process.desired.as_ref()?;
        let definition = desired.definition(&place.definition_id)?;
        let only = desired.only_cell(place.index).cloned();
        Some(Self { only, ..Self::ranked(rank, Order::Lrp(definition.clone())) })
    }

    /// A task that waits for a cell; none: it doesn't.
    #[must_use]
    pub fn of_task(task: &Task) -> Option<Self> {
        Some(Self::ranked(Rank::of_task(task)?, Order::Task(task.definition.clone())))
    }

    /// Which cells may take it.
    #[must_use]
    pub fn constraint(&self) -> &Constraint {
        match &self.order {
            Order::Lrp(definition) => &definition.constraint,
            Order::Task(definition) => &definition.constraint,
        }
    }
}

/// Runs one auction, and takes what it places from what is free on the board. One answer for each piece of work, in the
/// order in which they had their turn; of work that is twice in the batch the one with the earlier turn counts.
pub fn auction(board: &mut Board, batch: Vec<Item>, siblings: &Siblings) -> Vec<Verdict> {
    auction_with(board, batch, siblings, vec![])
}

/// The same, where some room is held for what waits: what is behind that in the order doesn't get it. Work that is in the
/// batch itself and finds a place needs no room to be held.
pub fn auction_with(
    board: &mut Board,
    batch: Vec<Item>,
    siblings: &Siblings,
    mut holds: Vec<Hold>,
) -> Vec<Verdict> {
    board.bound_views();
    let (batch, families) = sort(board, batch, siblings);
    // The first in the order is the last of the row.
    holds.sort_by(|a, b| b.rank.cmp(&a.rank));
    let mut round = Round { board, families, taken: vec![], tallies: BTreeMap::new(), last: None };
    let (mut verdicts, mut held) = (Vec::with_capacity(batch.len()), vec![]);
    for (item, family) in batch {
        while let Some(hold) = holds.pop_if(|hold| hold.rank < item.rank) {
            held.extend(round.hold(&hold));
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

/// Puts the batch in order, without doubles, each with the number of its family; number 0 is nobody's.
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

/// An auction under way.
struct Round<'a> {
    board: &'a mut Board,
    families: Vec<Family>,
    /// What was placed so far.
    taken: Vec<Taken>,
    tallies: BTreeMap<(usize, Resources), Tally>,
    /// The constraint of the last work and its view: neighbours in the order are often alike.
    last: Option<(Constraint, usize)>,
}

impl Round<'_> {
    fn judge(&mut self, item: Item, family: usize) -> Verdict {
        let size = item.order.resources();
        let view = self.view_of(&item);
        let tally = self.tally(view, size);
        let refused: Vec<u32> = item.refused_by.iter().filter_map(|id| self.board.number(id)).collect();
        let kin = &mut self.families[family];
        let lane = (!kin.is_empty()).then(|| kin.lane(self.board, view, size));
        let wanted = Wanted { view, size, lane };
        let best = match self.board.view(view).partition {
            _ if tally.fitting == 0 => Best::default(),
            Some(partition) if refused.is_empty() => search(self.board, wanted, partition, kin),
            Some(_) | None => scan(self.board, wanted, kin, &refused),
        };
        let places = best.places();
        let refused = self.passed_over(wanted, &self.families[family], &refused, places);
        let seen = self.board.view(view);
        let kin = &self.families[family];
        let crowded = lane.map_or(&[][..], |lane| &kin.lane_at(lane).counts().crowded);
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

    /// How many cells that could take the work were passed over because they had refused it.
    fn passed_over(&self, wanted: Wanted, kin: &Family, refused: &[u32], places: &[Score]) -> u32 {
        if places.first().is_none_or(|winner| winner.refused) {
            return 0;
        }
        let able = |cell: &&u32| {
            let view = self.board.view(wanted.view);
            view.takes(**cell)
                && self.board.free(**cell).fits(wanted.size)
                && kin.may_have_more(view, wanted.lane, **cell)
        };
        count(refused.iter().filter(able).count())
    }

    /// Keeps what there is of some room from all that follow. Answers where, and how much.
    fn hold(&mut self, hold: &Hold) -> Option<(u32, Resources)> {
        let cell = self.board.number(&hold.cell)?;
        let before = self.board.free(cell);
        self.take(cell, hold.size);
        Some((cell, before.minus(self.board.free(cell))))
    }

    fn take(&mut self, cell: u32, size: Resources) {
        let before = self.board.free(cell);
        let after = before.minus(size);
        self.board.set_free(cell, after);
        self.taken.push(Taken { cell, before, after });
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
