//! Convergence: what is due although nobody asked (docs/model.md, "Convergence").
//!
//! It becomes commands, which pass through `decide` like anybody's: there is no second road to a transition. What is due
//! is said in `schemas::process`, `schemas::task`, `schemas::periodic` and `schemas::parameterised`; here is only who has to be looked at, and when.

use std::collections::BTreeSet;
use std::time::Duration;

use projections::{Due, WorkRef, World};
use schemas::names::{CellId, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid};
use schemas::{Timestamp, parameterised, periodic, process, task};

/// How often everything is looked through.
const INTERVAL: Duration = Duration::from_secs(30);

/// What is to be converged, and when the next look at everything is due.
#[derive(Clone, Debug, Default)]
pub(crate) struct Convergence {
    /// What waits to be decided.
    queued: BTreeSet<Due>,
    /// What was decided, and is not in the log yet.
    in_flight: BTreeSet<Due>,
    sweep_at: Timestamp,
    stops_at: Timestamp,
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
    pub(crate) const fn begin(&mut self, now: Timestamp) {
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

    /// Whether everything is to be looked through now. The next time is an [`INTERVAL`] later.
    pub(crate) fn sweeps(&mut self, now: Timestamp) -> bool {
        let due = self.sweep_at <= now;
        if due {
            self.sweep_at = now + INTERVAL;
        }
        due
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

    /// When everything is looked through next.
    pub(crate) const fn next_sweep(&self) -> Timestamp {
        self.sweep_at
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
pub(crate) fn timers(world: &World, now: Timestamp) -> Vec<Due> {
    world.due(now)
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

/// Everything that has something due: the safety net, a look at the whole world.
pub(crate) fn everything(world: &World, now: Timestamp) -> Vec<Due> {
    let present = |cell: &CellId| world.is_present(cell);
    let numbered = |visit: process::Visit<'_>| world.numbered(visit);
    let due_process = |guid: &ProcessGuid| {
        let known = world.process(guid);
        let fresh = known.is_some_and(|known| world.is_fresh(&known.domain, now));
        let context = process::Context { now, fresh, present: &present, numbered: &numbered };
        process::decide(known, &process::Command::Converge, context).is_ok_and(|events| !events.is_empty())
    };
    let due_task = |guid: &TaskGuid| {
        let context = task::Context { now, present: &present };
        task::decide(world.task(guid), &task::Command::Converge, context)
            .is_ok_and(|events| !events.is_empty())
    };
    let processes = world.processes_from(None).map(|process| &process.guid).filter(|guid| due_process(guid));
    let tasks = world.tasks_from(None).map(|task| &task.guid).filter(|guid| due_task(guid));
    let periodics = world.periodics_from(None).filter(|known| is_due(world, known, now));
    let periodics = periodics.map(|known| Due::Periodic(known.guid.clone()));
    let waiting = world.parameterised_from(None).filter(|known| is_freed(world, known));
    let waiting = waiting.map(|known| Due::Parameterised(known.guid.clone()));
    let tasks = tasks.cloned().map(Due::Task);
    processes.cloned().map(Due::Process).chain(tasks).chain(periodics).chain(waiting).collect()
}

/// Whether a dispatch of a parameterised task waits that need not wait any longer.
fn is_freed(world: &World, known: &parameterised::Parameterised) -> bool {
    let fewer = |guid: &ParameterisedGuid, most: u32| {
        let live = world.dispatched_of(guid).filter(|task| task::Task::is_live(task));
        live.take(most as usize).count() < most as usize
    };
    let exists = |guid: &TaskGuid| world.task(guid).is_some_and(|task| task.state.is_some());
    let context = parameterised::Context { fewer: &fewer, exists: &exists };
    parameterised::decide(Some(known), &parameterised::Command::Converge, context)
        .is_ok_and(|events| !events.is_empty())
}

/// Whether a periodic task has something to launch.
fn is_due(world: &World, known: &periodic::Periodic, now: Timestamp) -> bool {
    let runs = |guid: &PeriodicGuid| world.launched_by(guid).any(task::Task::is_live);
    let exists = |guid: &TaskGuid| world.task(guid).is_some_and(|task| task.state.is_some());
    let context = periodic::Context { now, runs: &runs, exists: &exists };
    periodic::decide(Some(known), &periodic::Command::Converge, context)
        .is_ok_and(|events| !events.is_empty())
}

#[cfg(test)]
mod tests {
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
        assert!(convergence.sweeps(now) && !convergence.sweeps(now));
        assert_eq!(convergence.next_sweep(), now + INTERVAL);
        convergence.sweep_by(now + Duration::from_secs(1));
        convergence.sweep_by(now + Duration::from_secs(9));
        let now = now + Duration::from_secs(1);
        assert!(convergence.sweeps(now) && convergence.repeats_stops(now, INTERVAL));
        assert!(!convergence.sweeps(now) && !convergence.repeats_stops(now, INTERVAL));
        convergence.begin(now);
        assert!(
            convergence.sweeps(now) && convergence.repeats_stops(now, INTERVAL),
            "who leads begins at once"
        );
    }
}
