//! What stops, so that work which waits has room (docs/model.md, "Preemption").
//!
//! Pure. The same cells and the same work give the same answer: the fewest victims, of those the lowest priorities, of those
//! the smallest, of those the youngest, and of cells that are equal the one with the least id. Tasks stop only where no
//! instances would do, for a task runs at most once.

use std::cmp::Reverse;
use std::sync::Arc;

use schemas::Timestamp;
use schemas::container::{Instance, WorkKey};
use schemas::limits;
use schemas::names::{CellId, ProcessGuid};
use schemas::preemption::may_give_way;
use schemas::rank::Priority;
use schemas::resources::Resources;

/// So many steps a search takes on one cell for one number of victims, before it takes the best that it found.
const STEPS: u32 = 20_000;

/// Work that waits for room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// How urgent it is.
    pub priority: Priority,
    /// What it takes.
    pub size: Resources,
    /// The process that it is an instance of; none: it is a task.
    pub process: Option<ProcessGuid>,
}

/// What runs on a cell and may be stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// What it is, in which life.
    pub key: WorkKey,
    /// Its container.
    pub by: Instance,
    /// How urgent it is.
    pub priority: Priority,
    /// What it takes.
    pub size: Resources,
    /// Since when its record is as it is.
    pub since: Timestamp,
}

/// A cell that would take the work if it had room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Which.
    pub cell: CellId,
    /// What is free of it or will be, without what somebody else waits for.
    pub free: Resources,
    /// What runs there and may be stopped.
    pub running: Arc<Vec<Running>>,
}

/// What an offer makes of work that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Where the work will have room.
    pub cell: CellId,
    /// What has to stop for it. None of it is superfluous.
    pub victims: Vec<Running>,
}

/// How bad it is that so much stops: smaller is better.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    /// The greatest first.
    priorities: Vec<Priority>,
    /// By their places in the order in which they would stop.
    places: Vec<usize>,
}

/// Whether something that runs may stop for the work.
#[must_use]
pub fn gives_way(running: &Running, work: &Waiting) -> bool {
    let same = match &running.key {
        WorkKey::Lrp { key, .. } => Some(&key.process_guid) == work.process.as_ref(),
        WorkKey::Task { .. } => false,
    };
    !same && may_give_way(running.priority, work.priority)
}

/// Chooses a cell and what has to stop there. None: no [`limits::VICTIMS`] that may stop on any cell are enough.
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

/// The search of one cell.
struct Search<'a> {
    size: Resources,
    free: Resources,
    /// What may stop, in the order in which it would.
    running: Vec<&'a Running>,
}

/// A search under way.
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

    /// Whether all together would be enough.
    fn is_hopeful(&self) -> bool {
        let all = self.running.iter().fold(self.free, |sum, one| sum.plus(one.size));
        !self.running.is_empty() && all.fits(self.size)
    }

    /// The best that so many are, if so many are enough.
    fn best_of(&self, count: usize) -> Option<Cost> {
        if count > self.running.len() {
            return None;
        }
        let mut tried = Tried { search: self, count, steps: 0, places: vec![], best: None };
        tried.go_on(0, self.free);
        tried.best
    }

    /// What stops. A search that ended early may have found too much.
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
    /// Adds one victim after the other, each behind the one before it.
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
            // What is like the one before it makes nothing better.
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

    /// Whether so many more could be enough, were the largest in each respect among them.
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

/// Resources in an order.
const fn measure(size: Resources) -> (u64, u64, u32, u32) {
    (size.memory_mb, size.disk_mb, size.containers, size.ports)
}
