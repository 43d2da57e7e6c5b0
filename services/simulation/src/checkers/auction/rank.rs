//! How good a place is (docs/internals/model/auction.md, "Auction"): what the work would rather have, few siblings in the zone, few on the
//! cell, an even load.

use std::cmp::Ordering;

use machines::actual::{Actual, State};
use machines::process::{Process, Slot};
use projections::World;
use schemas::ActualLrpKey;
use schemas::container::WorkKey;
use schemas::names::{CellId, DefinitionId, ProcessGuid, Zone};
use schemas::resources::{Constraint, Resources};
use schemas::rollout::{Phase, Stage};

use super::known::{Bounds, Known, Seen, Times, count};
use super::wishes::{self, Fullness};
use crate::racks::Limit;

/// Loads that are closer than this may be the same when they are rounded.
const CLOSE: f64 = 1e-6;

/// How good a place is. Smaller is better; the fields stand in order of importance.
#[derive(Clone)]
pub(super) struct Merit {
    pub(super) spread: Fullness,
    /// Of this more is better.
    pub(super) affinity: i32,
    pub(super) in_zone: Bounds<u32>,
    pub(super) on_cell: Bounds<u32>,
    pub(super) load: Bounds<f64>,
}

/// Where the instances of all processes are, as an auctioneer may see it.
pub(super) struct Siblings<'a> {
    pub(super) world: &'a World,
    pub(super) known: &'a Known,
    pub(super) now: Times,
    /// What was placed so far in this auction.
    pub(super) placed: Vec<(ProcessGuid, CellId)>,
}

impl Merit {
    /// How good a cell is for work of this size, if these are all cells.
    pub(super) fn of(
        (key, size, constraint): (&WorkKey, Resources, &Constraint),
        on: &Seen<'_>,
        (cells, siblings): (&[Seen<'_>], &Siblings<'_>),
    ) -> Self {
        let total = on.log.presence.total;
        let load = (load(total, on.free.1.minus(size)), load(total, on.free.0.minus(size)));
        let affinity = wishes::affinity(constraint, on);
        let WorkKey::Lrp { key: ActualLrpKey { process_guid, .. }, .. } = key else {
            return Self { spread: Fullness::of_nothing(), affinity, in_zone: (0, 0), on_cell: (0, 0), load };
        };
        let spread = Fullness::of((process_guid, constraint), on, (cells, siblings));
        let in_zone = siblings.in_zone(process_guid, on);
        Self { spread, affinity, in_zone, on_cell: siblings.on_cell(process_guid, on.id), load }
    }

    /// Whether it is better than another, whatever of both is true. If they are equal, the `first` by id is.
    pub(super) fn is_better_than(&self, other: &Self, first: bool) -> bool {
        match self.spread.at_worst(&other.spread).then(other.affinity.cmp(&self.affinity)) {
            Ordering::Less => return true,
            Ordering::Equal => {}
            Ordering::Greater => return false,
        }
        for (mine, theirs) in [(self.in_zone, other.in_zone), (self.on_cell, other.on_cell)] {
            if mine.1 != theirs.0 {
                return mine.1 < theirs.0;
            }
            // It is at least as good: if not better in this, the next decides.
        }
        let known = |load: Bounds<f64>| load.0.to_bits() == load.1.to_bits();
        let equal = known(self.load) && known(other.load) && self.load.0.to_bits() == other.load.0.to_bits();
        other.load.0 - self.load.1 > CLOSE || equal && first
    }
}

impl Siblings<'_> {
    fn in_zone(&self, guid: &ProcessGuid, on: &Seen<'_>) -> Bounds<u32> {
        self.where_so(guid, |_, zone| *zone == on.log.presence.zone)
    }

    /// Instances of a process on the cells of which that is so.
    pub(super) fn where_so(&self, guid: &ProcessGuid, is_so: impl Fn(&CellId, &Zone) -> bool) -> Bounds<u32> {
        let there = self.world.cells().filter(|(id, log)| log.present && is_so(id, &log.presence.zone));
        let each = there.map(|(id, _)| self.on_cell(guid, id));
        each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Instances of a process on the cells of a limit.
    pub(super) fn within(&self, guid: &ProcessGuid, limit: &Limit) -> Bounds<u32> {
        let cells = self.world.cells().filter(|(id, _)| limit.has(id));
        cells.fold((0, 0), |sum, (id, log)| {
            let (least, most) = self.on_cell(guid, id);
            (sum.0 + if log.present { least } else { 0 }, sum.1 + most)
        })
    }

    /// Instances of a process that stay on a cell, or are on their way there.
    fn on_cell(&self, guid: &ProcessGuid, cell: &CellId) -> Bounds<u32> {
        let stay = self.world.process(guid).map_or(0, |process| stay_on(process, cell));
        let placed = count(self.placed.iter().filter(|(of, on)| of == guid && on == cell).count());
        let run = self.world.cell(cell).map(|log| log.presence.incarnation);
        let (least, most) = self.known.on_its_way(guid, (cell, run), self.now);
        (stay + placed + least, stay + placed + most)
    }
}

/// How many instances of a process are on a cell and stay there. Of the two of an index that a rollout replaces the new one
/// does, as soon as it is to be placed.
pub(in crate::checkers) fn stay_on(process: &Process, cell: &CellId) -> u32 {
    let begun = |index: u32| {
        let rollout = process.rollout.as_ref().filter(|rollout| rollout.phase != Phase::Completed)?;
        let step = rollout.steps.get(&index)?;
        matches!(step.stage, Stage::Starting | Stage::Leaving).then_some(&rollout.target)
    };
    let lives = |state: &State| match state {
        State::Unclaimed { .. } => true,
        State::Claimed { stopping, .. } | State::Running { stopping, .. } => !stopping,
        State::Crashed { .. } => false,
    };
    let is_new = |slot: &Slot, target: &DefinitionId| {
        slot.place.definition_id == *target && slot.actual.as_ref().is_some_and(|lrp| lives(&lrp.state))
    };
    let stays = |slot: &&Slot| {
        let there = slot.actual.as_ref().filter(|lrp| lives(&lrp.state)).and_then(Actual::holder);
        let replaced = begun(slot.place.index).is_some_and(|target| {
            slot.place.definition_id != *target
                && process.slots.iter().any(|new| new.place.index == slot.place.index && is_new(new, target))
        });
        there.is_some_and(|by| by.cell_id == *cell) && !replaced
    };
    count(process.slots.iter().filter(stays).count())
}

/// The mean of the used parts of memory, disk and containers.
fn load(total: Resources, free: Resources) -> f64 {
    let used = |total: u64, free: u64| total.saturating_sub(free) as f64 / total.max(1) as f64;
    let memory = used(total.memory_mb, free.memory_mb);
    let disk = used(total.disk_mb, free.disk_mb);
    let containers = used(total.containers.into(), free.containers.into());
    (memory + disk + containers) / 3.0
}
