//! Selection of the victims that stop to make room for waiting work (docs/model.md, "Preemption").
//!
//! The selection is a pure function: the same cells and the same work give the same result. It prefers, in
//! this order, the fewest victims, the lowest priorities, the smallest and the youngest victims, and the cell
//! with the least id. Tasks run at most once, so a task stops only if stopping instances does not suffice.

use std::cmp::Reverse;
use std::sync::Arc;

use schemas::Timestamp;
use schemas::container::{Instance, WorkKey};
use schemas::limits;
use schemas::names::{CellId, ProcessGuid};
use schemas::preemption::may_give_way;
use schemas::rank::Priority;
use schemas::resources::Resources;

/// Maximum number of search steps for one cell and one number of victims. After that the best result so far
/// is used.
const STEPS: u32 = 20_000;

/// Work that waits for room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub priority: Priority,
    pub size: Resources,
    /// Process of the instance. `None` if the work is a task.
    pub process: Option<ProcessGuid>,
}

/// Running work that may be stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Identity, including the epoch.
    pub key: WorkKey,
    /// Container that runs the work.
    pub by: Instance,
    pub priority: Priority,
    pub size: Resources,
    /// Time of the last change of its record.
    pub since: Timestamp,
}

/// Cell that would run the work if it had room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub cell: CellId,
    /// Resources that are free or about to be freed, excluding those reserved for other waiting work.
    pub free: Resources,
    /// Work on the cell that may be stopped.
    pub running: Arc<Vec<Running>>,
}

/// Chosen cell and victims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    pub cell: CellId,
    /// Work that must stop. Every victim is necessary.
    pub victims: Vec<Running>,
}

/// Cost of a set of victims. Smaller is better.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    /// Priorities of the victims, the highest first.
    priorities: Vec<Priority>,
    /// Indexes of the victims in stop order.
    places: Vec<usize>,
}

/// Returns `true` if running work may be stopped for the waiting work.
#[must_use]
pub fn gives_way(running: &Running, work: &Waiting) -> bool {
    let same = match &running.key {
        WorkKey::Lrp { key, .. } => Some(&key.process_guid) == work.process.as_ref(),
        WorkKey::Task { .. } => false,
    };
    !same && may_give_way(running.priority, work.priority)
}

/// Chooses a cell and the victims to stop there. `None` if no set of at most [`limits::VICTIMS`] victims on
/// one cell frees enough room.
#[must_use]
pub fn choose(work: &Waiting, offers: &[Offer]) -> Option<Chosen> {
    [false, true].into_iter().find_map(|with_tasks| {
        let searches: Vec<(&CellId, Search<'_>)> = offers
            .iter()
            .map(|offer| (&offer.cell, Search::new(work, offer, with_tasks)))
            .filter(|(_, search)| search.is_hopeful())
            .collect();
        (1..=limits::VICTIMS).find_map(|count| {
            let found =
                searches.iter().filter_map(|(cell, search)| Some((search.best_of(count)?, *cell, search)));
            let best = found.min_by(|a, b| (&a.0.priorities, a.1).cmp(&(&b.0.priorities, b.1)));
            best.map(|(cost, cell, search)| Chosen { cell: cell.clone(), victims: search.victims(&cost) })
        })
    })
}

/// Search for victims on one cell.
struct Search<'a> {
    size: Resources,
    free: Resources,
    /// Work that may be stopped, in stop order.
    running: Vec<&'a Running>,
}

/// State of a search in progress.
struct Tried<'s, 'a> {
    search: &'s Search<'a>,
    count: usize,
    steps: u32,
    places: Vec<usize>,
    best: Option<Cost>,
}

impl<'a> Search<'a> {
    fn new(work: &Waiting, offer: &'a Offer, with_tasks: bool) -> Self {
        let is_meant = |running: &&Running| match running.key {
            WorkKey::Lrp { .. } => gives_way(running, work),
            WorkKey::Task { .. } => with_tasks && gives_way(running, work),
        };
        let mut running: Vec<&Running> = offer.running.iter().filter(is_meant).collect();
        running.sort_by_key(|one| (one.priority, measure(one.size), Reverse(one.since), &one.key));
        Self { size: work.size, free: offer.free, running }
    }

    /// Returns `true` if stopping all of the work would free enough room.
    fn is_hopeful(&self) -> bool {
        let all = self.running.iter().fold(self.free, |sum, one| sum.plus(one.size));
        !self.running.is_empty() && all.fits(self.size)
    }

    /// Returns the lowest cost of `count` victims. `None` if no such set frees enough room.
    fn best_of(&self, count: usize) -> Option<Cost> {
        if count > self.running.len() {
            return None;
        }
        let mut tried = Tried { search: self, count, steps: 0, places: vec![], best: None };
        tried.go_on(0, self.free);
        tried.best
    }

    /// Returns the victims. A search that reached its step limit may have found too many, so unnecessary
    /// victims are removed.
    fn victims(&self, cost: &Cost) -> Vec<Running> {
        let mut victims: Vec<&Running> = cost.places.iter().map(|place| self.running[*place]).collect();
        for place in (0..victims.len()).rev() {
            let others = victims.iter().enumerate().filter(|(other, _)| *other != place);
            let rest = others.fold(self.free, |sum, (_, one)| sum.plus(one.size));
            if rest.fits(self.size) {
                victims.remove(place);
            }
        }
        victims.into_iter().cloned().collect()
    }
}

impl Tried<'_, '_> {
    /// Extends the set of victims in stop order, and records complete sets.
    fn go_on(&mut self, from: usize, free: Resources) {
        let running = &self.search.running;
        let left = self.count - self.places.len();
        if left == 0 {
            return self.note(free);
        }
        let mut last: Option<&Running> = None;
        let ends = running.len() - left + 1;
        for (place, one) in running.iter().enumerate().take(ends).skip(from) {
            self.steps += 1;
            let worse = self.best.as_ref().and_then(|best| best.priorities.first());
            if self.steps > STEPS || worse.is_some_and(|worst| one.priority > *worst) {
                return;
            }
            // Work that equals its predecessor in priority and size cannot improve the result.
            if last.is_some_and(|last| (last.priority, last.size) == (one.priority, one.size)) {
                continue;
            }
            last = Some(one);
            if !self.may_suffice(place, left, free) {
                continue;
            }
            self.places.push(place);
            self.go_on(place + 1, free.plus(one.size));
            self.places.pop();
        }
    }

    /// Returns `true` if `left` more victims could suffice, using the largest remaining amount of each
    /// resource as an upper bound.
    fn may_suffice(&self, from: usize, left: usize, free: Resources) -> bool {
        let one = self.search.running[from].size;
        let rest = &self.search.running[from + 1..];
        let most = rest.iter().fold(Resources::default(), |most, other| Resources {
            memory_mb: most.memory_mb.max(other.size.memory_mb),
            disk_mb: most.disk_mb.max(other.size.disk_mb),
            containers: most.containers.max(other.size.containers),
            ports: most.ports.max(other.size.ports),
        });
        let sum = (1..left).fold(free.plus(one), |sum, _| sum.plus(most));
        sum.fits(self.search.size)
    }

    fn note(&mut self, free: Resources) {
        if !free.fits(self.search.size) {
            return;
        }
        let mut priorities: Vec<Priority> =
            self.places.iter().map(|place| self.search.running[*place].priority).collect();
        priorities.sort_by_key(|priority| Reverse(*priority));
        let cost = Cost { priorities, places: self.places.clone() };
        if self.best.as_ref().is_none_or(|best| cost < *best) {
            self.best = Some(cost);
        }
    }
}

/// Returns a sort key for resources.
const fn measure(size: Resources) -> (u64, u64, u32, u32) {
    (size.memory_mb, size.disk_mb, size.containers, size.ports)
}
