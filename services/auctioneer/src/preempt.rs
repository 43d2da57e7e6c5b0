//! Selection of victims: work that stops so that waiting work has free resources
//! (docs/internals/model/preemption.md, "Preemption").
//!
//! The selection is a pure function: the same cells and the same work give the same result. The selection
//! prefers, in this order, the fewest victims, the lowest priorities, the smallest victims, the youngest
//! victims, and the cell with the smallest id. Because a task runs at most once, a task is stopped only if
//! stopping instances is not sufficient.

use std::cmp::Reverse;
use std::sync::Arc;

use machines::preemption::is_preemptible_by;
use schemas::container::{Instance, WorkKey};
use schemas::names::{CellId, ProcessGuid};
use schemas::priority::Priority;
use schemas::resources::Resources;
use schemas::{Timestamp, limits};

/// Maximum number of search steps for each combination of a cell and a number of victims. At this limit, the
/// search uses the best result found so far.
const MAX_STEPS: u32 = 20_000;

/// Work that waits for free resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingWork {
    pub priority: Priority,
    pub size: Resources,
    /// Process of the instance. `None` if the work is a task.
    pub process: Option<ProcessGuid>,
}

/// Running work that may be stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreemptibleWork {
    /// Identity of the work, including its epoch.
    pub key: WorkKey,
    /// Container that runs the work.
    pub by: Instance,
    pub priority: Priority,
    pub size: Resources,
    /// Time of the last change of the work's record.
    pub since: Timestamp,
}

/// Cell that would run the waiting work if it had enough free resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateCell {
    pub cell: CellId,
    /// Resources that are free or about to be freed. Resources that are reserved for other waiting work are
    /// not included.
    pub free: Resources,
    /// Work on the cell that may be stopped.
    pub running: Arc<Vec<PreemptibleWork>>,
}

/// Chosen cell and victims on this cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    pub cell: CellId,
    /// Work that must stop. Every one of these victims is necessary: without it, the free resources would not
    /// suffice.
    pub victims: Vec<PreemptibleWork>,
}

/// Cost of a set of victims. Smaller is better.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    /// Priorities of the victims, the highest first.
    priorities: Vec<Priority>,
    /// Positions of the victims in the stop order.
    places: Vec<usize>,
}

/// Returns `true` if the running work may be stopped for the waiting work.
#[must_use]
pub fn can_be_preempted(running: &PreemptibleWork, work: &PendingWork) -> bool {
    let same = match &running.key {
        WorkKey::Lrp { key, .. } => Some(&key.process_guid) == work.process.as_ref(),
        WorkKey::Task { .. } => false,
    };
    !same && is_preemptible_by(running.priority, work.priority)
}

/// Chooses a cell and the victims on this cell. `None` if no set of at most [`limits::VICTIMS`] victims on
/// one cell frees enough resources.
#[must_use]
pub fn choose(work: &PendingWork, offers: &[CandidateCell]) -> Option<Selection> {
    [false, true].into_iter().find_map(|with_tasks| {
        let searches: Vec<(&CellId, Search<'_>)> = offers
            .iter()
            .map(|offer| (&offer.cell, Search::new(work, offer, with_tasks)))
            .filter(|(_, search)| search.may_succeed())
            .collect();
        (1..=limits::VICTIMS).find_map(|count| {
            let found =
                searches.iter().filter_map(|(cell, search)| Some((search.best_with(count)?, *cell, search)));
            let best = found.min_by(|a, b| (&a.0.priorities, a.1).cmp(&(&b.0.priorities, b.1)));
            best.map(|(cost, cell, search)| Selection { cell: cell.clone(), victims: search.victims(&cost) })
        })
    })
}

/// Search for victims on one cell.
struct Search<'a> {
    size: Resources,
    free: Resources,
    /// Work that may be stopped, in stop order.
    running: Vec<&'a PreemptibleWork>,
}

/// State of a search in progress.
struct SearchState<'s, 'a> {
    search: &'s Search<'a>,
    count: usize,
    steps: u32,
    places: Vec<usize>,
    best: Option<Cost>,
}

impl<'a> Search<'a> {
    fn new(work: &PendingWork, offer: &'a CandidateCell, with_tasks: bool) -> Self {
        let is_meant = |running: &&PreemptibleWork| match running.key {
            WorkKey::Lrp { .. } => can_be_preempted(running, work),
            WorkKey::Task { .. } => with_tasks && can_be_preempted(running, work),
        };
        let mut running: Vec<&PreemptibleWork> = offer.running.iter().filter(is_meant).collect();
        running.sort_by_key(|one| (one.priority, size_key(one.size), Reverse(one.since), &one.key));
        Self { size: work.size, free: offer.free, running }
    }

    /// Returns `true` if stopping all work in `running` would free enough resources.
    fn may_succeed(&self) -> bool {
        let all = self.running.iter().fold(self.free, |sum, one| sum.plus(one.size));
        !self.running.is_empty() && all.fits(self.size)
    }

    /// Returns the lowest cost of a set of `count` victims. `None` if no set of this size frees enough
    /// resources.
    fn best_with(&self, count: usize) -> Option<Cost> {
        if count > self.running.len() {
            return None;
        }
        let mut tried = SearchState { search: self, count, steps: 0, places: vec![], best: None };
        tried.extend(0, self.free);
        tried.best
    }

    /// Returns the victims. A search that reached its step limit may have found more victims than necessary.
    /// The function removes unnecessary victims.
    fn victims(&self, cost: &Cost) -> Vec<PreemptibleWork> {
        let mut victims: Vec<&PreemptibleWork> =
            cost.places.iter().map(|place| self.running[*place]).collect();
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

impl SearchState<'_, '_> {
    /// Extends the set of victims in stop order. Each set of `count` victims is compared with the best set so
    /// far.
    fn extend(&mut self, from: usize, free: Resources) {
        let running = &self.search.running;
        let left = self.count - self.places.len();
        if left == 0 {
            return self.note(free);
        }
        let mut last: Option<&PreemptibleWork> = None;
        let ends = running.len() - left + 1;
        for (place, one) in running.iter().enumerate().take(ends).skip(from) {
            self.steps += 1;
            let worse = self.best.as_ref().and_then(|best| best.priorities.first());
            if self.steps > MAX_STEPS || worse.is_some_and(|worst| one.priority > *worst) {
                return;
            }
            // Work with the same priority and size as its predecessor cannot improve the result.
            if last.is_some_and(|last| (last.priority, last.size) == (one.priority, one.size)) {
                continue;
            }
            last = Some(one);
            if !self.may_suffice(place, left, free) {
                continue;
            }
            self.places.push(place);
            self.extend(place + 1, free.plus(one.size));
            self.places.pop();
        }
    }

    /// Returns `true` if the work at `from` and `left - 1` later items could free enough resources. The upper
    /// bound for each item is the largest remaining amount of each resource.
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
const fn size_key(size: Resources) -> (u64, u64, u32, u32) {
    (size.memory_mb, size.disk_mb, size.containers, size.ports)
}
