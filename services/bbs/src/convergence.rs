//! Convergence: what is due although nobody asked (docs/model.md, "Convergence").
//!
//! It becomes commands, which pass through `decide` like anybody's: there is no second road to a transition. What is due
//! is said in `schemas::process`, `schemas::task`, `schemas::periodic` and `schemas::parameterised`; here is only who has to be looked at, and when.

use std::collections::BTreeSet;
use std::time::Duration;

use projections::{Due, WorkRef, World};
use schemas::Timestamp;
use schemas::names::{CellId, ParameterisedGuid, PeriodicGuid, TaskGuid};
use schemas::parameterised::{self, Parameterised};
use schemas::periodic::{self, Periodic};
use schemas::process::{self, Process};
use schemas::subject::Subject;
use schemas::task::{self, Task};

use crate::timelines::Times;

/// How often everything is looked through.
const INTERVAL: Duration = Duration::from_secs(30);

/// What is to be converged, and when the next look at everything is due.
#[derive(Clone, Debug, Default)]
pub(crate) struct Convergence {
    /// What waits to be decided.
    queued: BTreeSet<Due>,
    /// What was decided, and is not in the log yet.
    in_flight: BTreeSet<Due>,
    /// When the next look at everything begins.
    sweep_at: Timestamp,
    /// The look at everything that has begun: behind what it goes on.
    sweep: Option<Due>,
    stops_at: Timestamp,
    /// How often everything was looked through.
    looks: u64,
}

impl Convergence {
    /// Something happened to a process or task. Answers whether it has to be queued: it is, once, until it is decided.
    /// What happens after that is a reason to look again, even while what was decided is on its way to the log.
    pub(crate) fn queue(&mut self, due: &Due) -> bool {
        self.queued.insert(due.clone())
    }

    /// The time of a process or task has come. Answers whether it has to be queued: not while the answer to that is on
    /// its way to the log.
    pub(crate) fn queue_unless_in_flight(&mut self, due: &Due) -> bool {
        !self.in_flight.contains(due) && self.queue(due)
    }

    /// What was queued is decided.
    pub(crate) fn decided(&mut self, due: Due) {
        self.queued.remove(&due);
        self.in_flight.insert(due);
    }

    /// What was decided is in the log, or never will be.
    pub(crate) fn settled(&mut self, due: &Due) {
        self.in_flight.remove(due);
    }

    /// What was decided has to be decided again.
    pub(crate) fn again(&mut self, due: Due) {
        self.in_flight.remove(&due);
        self.queued.insert(due);
    }

    /// This BBS leads from now on: everything is looked through, and every stop said again.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        self.sweep = None;
        self.sweep_at = now;
        self.stops_at = now;
    }

    /// This BBS leads no longer: nothing waits to be decided.
    pub(crate) fn end(&mut self) {
        self.queued.clear();
    }

    /// Everything is to be looked through at a time, or before.
    pub(crate) fn sweep_by(&mut self, at: Timestamp) {
        self.sweep_at = self.sweep_at.min(at);
    }

    /// Whether some of everything is to be looked through now, and behind what: a look that has begun goes on, and the next
    /// one begins an [`INTERVAL`] after the last.
    pub(crate) fn sweeps(&mut self, now: Timestamp) -> Option<Option<Due>> {
        if let Some(behind) = self.sweep.take() {
            return Some(Some(behind));
        }
        (self.sweep_at <= now).then(|| {
            self.sweep_at = now + INTERVAL;
            None
        })
    }

    /// Some of everything was looked through, and it goes on behind this; none: that was all.
    pub(crate) fn swept(&mut self, next: Option<Due>) {
        self.looks += u64::from(next.is_none());
        self.sweep = next;
    }

    /// How often everything was looked through.
    pub(crate) const fn looks(&self) -> u64 {
        self.looks
    }

    /// Whether the stops of what is still there are to be said again now. The next time is `interval` later.
    pub(crate) fn repeats_stops(&mut self, now: Timestamp, interval: Duration) -> bool {
        let due = self.stops_at <= now;
        if due {
            self.stops_at = now + interval;
        }
        due
    }

    /// Whether nothing waits to be decided, and nothing is on its way to the log.
    pub(crate) fn is_idle(&self) -> bool {
        self.queued.is_empty() && self.in_flight.is_empty()
    }

    /// Whether a look at everything goes on.
    pub(crate) const fn is_sweeping(&self) -> bool {
        self.sweep.is_some()
    }

    /// When some of everything is looked through next.
    pub(crate) fn next_sweep(&self, now: Timestamp) -> Timestamp {
        if self.sweep.is_some() { now } else { self.sweep_at }
    }

    /// When stops are said again next.
    pub(crate) const fn next_stops(&self) -> Timestamp {
        self.stops_at
    }

    /// How much waits to be decided.
    pub(crate) fn queued(&self) -> usize {
        self.queued.len()
    }

    /// How much is on its way to the log.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
}

/// What has a timer that ran out.
pub(crate) fn timers(world: &World, times: Times<'_>) -> Vec<Due> {
    let all = world.due_times(times.latest()).into_iter();
    all.filter(|(at, due)| *at <= times.on(|| subject_of(world, due))).map(|(_, due)| due).collect()
}

fn subject_of(world: &World, due: &Due) -> Subject {
    match due {
        Due::Process(guid) => Subject::of_process(guid, world.shards()),
        Due::Task(guid) => Subject::of_task(guid, world.shards()),
        Due::Periodic(guid) => Subject::of_periodic(guid, world.shards()),
        Due::Parameterised(guid) => Subject::of_parameterised(guid, world.shards()),
    }
}

/// What names a cell.
pub(crate) fn of_cell(world: &World, cell: &CellId) -> Vec<Due> {
    let named: BTreeSet<Due> = world.on_cell(cell).map(due_of).collect();
    named.into_iter().collect()
}

fn due_of(work: &WorkRef) -> Due {
    match work {
        WorkRef::Lrp(key) => Due::Process(key.process_guid.clone()),
        WorkRef::Task(guid) => Due::Task(guid.clone()),
    }
}

/// What may have something due.
#[derive(Clone, Copy, Debug)]
enum One<'a> {
    Process(&'a Process),
    Task(&'a Task),
    Periodic(&'a Periodic),
    Parameterised(&'a Parameterised),
}

impl One<'_> {
    fn is_due(self, world: &World, times: Times<'_>) -> bool {
        let now = times.on(|| subject_of(world, &self.due()));
        match self {
            Self::Process(known) => {
                let of_domain = times.on(|| Subject::Domain(known.domain.clone()));
                is_process_due(world, known, now, world.is_fresh(&known.domain, of_domain))
            }
            Self::Task(known) => is_task_due(world, known, now),
            Self::Periodic(known) => is_due(world, known, now),
            Self::Parameterised(known) => is_freed(world, known),
        }
    }

    fn due(self) -> Due {
        match self {
            Self::Process(known) => Due::Process(known.guid.clone()),
            Self::Task(known) => Due::Task(known.guid.clone()),
            Self::Periodic(known) => Due::Periodic(known.guid.clone()),
            Self::Parameterised(known) => Due::Parameterised(known.guid.clone()),
        }
    }
}

/// Everything, in one order, behind one of it.
fn all_behind<'a>(world: &'a World, behind: Option<&'a Due>) -> impl Iterator<Item = One<'a>> {
    let (processes, tasks, periodics, parameterised) = match behind {
        None => (Some(None), Some(None), Some(None), Some(None)),
        Some(Due::Process(guid)) => (Some(Some(guid)), Some(None), Some(None), Some(None)),
        Some(Due::Task(guid)) => (None, Some(Some(guid)), Some(None), Some(None)),
        Some(Due::Periodic(guid)) => (None, None, Some(Some(guid)), Some(None)),
        Some(Due::Parameterised(guid)) => (None, None, None, Some(Some(guid))),
    };
    let processes = processes.into_iter().flat_map(|behind| world.processes_from(behind));
    let tasks = tasks.into_iter().flat_map(|behind| world.tasks_from(behind));
    let periodics = periodics.into_iter().flat_map(|behind| world.periodics_from(behind));
    let parameterised = parameterised.into_iter().flat_map(|behind| world.parameterised_from(behind));
    processes
        .map(One::Process)
        .chain(tasks.map(One::Task))
        .chain(periodics.map(One::Periodic))
        .chain(parameterised.map(One::Parameterised))
}

/// A part of the look at everything that is the safety net: what has something due of at most so many, and behind which of
/// them it goes on; none: that was everything.
pub(crate) fn slice(
    world: &World,
    times: Times<'_>,
    behind: Option<&Due>,
    most: usize,
) -> (Vec<Due>, Option<Due>) {
    let mut all = all_behind(world, behind);
    let (mut due, mut last) = (vec![], None);
    for one in all.by_ref().take(most) {
        due.extend(one.is_due(world, times).then(|| one.due()));
        last = Some(one);
    }
    let goes_on = all.next().is_some();
    (due, last.filter(|_| goes_on).map(One::due))
}

fn is_process_due(world: &World, known: &Process, now: Timestamp, fresh: bool) -> bool {
    let present = |cell: &CellId| world.is_present(cell);
    let known_cell = |cell: &CellId| world.cell(cell).is_some();
    let numbered = |visit: process::Visit<'_>| world.numbered(visit);
    let context = process::Context { now, fresh, present: &present, known: &known_cell, numbered: &numbered };
    process::decide(Some(known), &process::Command::Converge, context).is_ok_and(|events| !events.is_empty())
}

fn is_task_due(world: &World, known: &Task, now: Timestamp) -> bool {
    let present = |cell: &CellId| world.is_present(cell);
    let context = task::Context { now, present: &present };
    task::decide(Some(known), &task::Command::Converge, context).is_ok_and(|events| !events.is_empty())
}

/// Whether a dispatch of a parameterised task waits that need not wait any longer.
fn is_freed(world: &World, known: &Parameterised) -> bool {
    let fewer = |guid: &ParameterisedGuid, most: u32| {
        let live = world.dispatched_of(guid).filter(|task| Task::is_live(task));
        live.take(most as usize).count() < most as usize
    };
    let exists = |guid: &TaskGuid| world.task(guid).is_some_and(|task| task.state.is_some());
    let context = parameterised::Context { fewer: &fewer, exists: &exists };
    parameterised::decide(Some(known), &parameterised::Command::Converge, context)
        .is_ok_and(|events| !events.is_empty())
}

/// Whether a periodic task has something to launch.
fn is_due(world: &World, known: &Periodic, now: Timestamp) -> bool {
    let runs = |guid: &PeriodicGuid| world.launched_by(guid).any(Task::is_live);
    let exists = |guid: &TaskGuid| world.task(guid).is_some_and(|task| task.state.is_some());
    let context = periodic::Context { now, runs: &runs, exists: &exists };
    periodic::decide(Some(known), &periodic::Command::Converge, context)
        .is_ok_and(|events| !events.is_empty())
}

#[cfg(test)]
mod tests {
    use schemas::names::ProcessGuid;

    use super::*;

    #[test]
    fn what_is_due_is_queued_once_and_not_while_the_answer_is_on_its_way() {
        let due = Due::Process(ProcessGuid::new("web").unwrap());
        let mut convergence = Convergence::default();
        assert!(convergence.queue_unless_in_flight(&due));
        assert!(!convergence.queue(&due), "it waits already");
        convergence.decided(due.clone());
        assert!(!convergence.queue_unless_in_flight(&due), "its time is known to have come");
        assert!(convergence.queue(&due), "something else happened");
        assert_eq!((convergence.queued(), convergence.in_flight()), (1, 1));
        convergence.settled(&due);
        convergence.decided(due.clone());
        convergence.again(due.clone());
        assert_eq!((convergence.queued(), convergence.in_flight()), (1, 0));
        convergence.decided(due.clone());
        convergence.settled(&due);
        assert!(convergence.is_idle());
    }

    #[test]
    fn everything_is_looked_through_at_intervals_or_sooner() {
        let (mut convergence, now) = (Convergence::default(), Timestamp::from_millis(100_000));
        convergence.begin(now);
        assert_eq!((convergence.sweeps(now), convergence.sweeps(now)), (Some(None), None));
        assert_eq!(convergence.next_sweep(now), now + INTERVAL);
        convergence.sweep_by(now + Duration::from_secs(1));
        convergence.sweep_by(now + Duration::from_secs(9));
        let now = now + Duration::from_secs(1);
        assert!(convergence.sweeps(now) == Some(None) && convergence.repeats_stops(now, INTERVAL));
        assert!(convergence.sweeps(now).is_none() && !convergence.repeats_stops(now, INTERVAL));
        // What was begun goes on at once, and isn't begun again meanwhile.
        let behind = Due::Process(ProcessGuid::new("web").unwrap());
        convergence.swept(Some(behind.clone()));
        convergence.sweep_by(now);
        assert_eq!(convergence.next_sweep(now), now);
        assert_eq!(
            (convergence.sweeps(now), convergence.sweeps(now)),
            (Some(Some(behind.clone())), Some(None))
        );
        convergence.swept(Some(behind));
        convergence.begin(now);
        assert!(
            convergence.sweeps(now) == Some(None) && convergence.repeats_stops(now, INTERVAL),
            "who leads begins at once, and at the beginning"
        );
    }
}
