//! Convergence: actions that are due without a client's request (docs/internals/model/timers-and-clocks.md,
//! "Convergence").
//!
//! Due actions become commands. These commands pass through `decide` like all other commands, so there is a
//! single path to a transition. The rules are in `schemas::process`, `schemas::task`, `schemas::periodic` and
//! `schemas::parameterised`. This module selects the aggregates to inspect, and the times of the inspections.

use std::collections::BTreeSet;
use std::time::Duration;

use machines::parameterised::{self, Parameterised};
use machines::periodic::{self, Periodic};
use machines::process::{self, Process};
use machines::task::{self, Task};
use projections::{Due, WorkRef, World};
use schemas::Timestamp;
use schemas::names::{CellId, ParameterisedGuid, PeriodicGuid, TaskGuid};
use schemas::subject::Subject;

use crate::timelines::Times;

/// Interval between the starts of two full convergence passes.
const INTERVAL: Duration = Duration::from_secs(30);

/// Aggregates to converge, and the progress of full convergence passes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Convergence {
    /// Targets whose command waits for its decision.
    queued: BTreeSet<Due>,
    /// Targets whose decision is not in the log yet.
    in_flight: BTreeSet<Due>,
    /// Time at which the next full pass starts.
    sweep_at: Timestamp,
    /// Target after which the current full pass continues; `None` if no pass is in progress.
    sweep: Option<Due>,
    stops_at: Timestamp,
    /// Number of completed full convergence passes.
    full_passes: u64,
}

impl Convergence {
    /// Queues a target after an event. Returns `true` if the target was not queued already.
    ///
    /// An event is a reason to converge the target again, even while an earlier decision is in flight (sent,
    /// but not yet in the log).
    pub(crate) fn queue(&mut self, due: &Due) -> bool {
        self.queued.insert(due.clone())
    }

    /// Queues a target whose timer is due. Returns `true` if the target was not queued already. Does nothing
    /// while a decision about the target is in flight.
    pub(crate) fn queue_unless_in_flight(&mut self, due: &Due) -> bool {
        !self.in_flight.contains(due) && self.queue(due)
    }

    /// Moves a target from queued to in flight.
    pub(crate) fn decided(&mut self, due: Due) {
        self.queued.remove(&due);
        self.in_flight.insert(due);
    }

    /// Removes a target from the targets in flight, because its decision is in the log or was dropped.
    pub(crate) fn settled(&mut self, due: &Due) {
        self.in_flight.remove(due);
    }

    /// Moves a target from in flight back to queued.
    pub(crate) fn requeue(&mut self, due: Due) {
        self.in_flight.remove(&due);
        self.queued.insert(due);
    }

    /// Starts a full pass and repeats all stop orders, because this BBS has become the leader.
    pub(crate) fn start_leading(&mut self, now: Timestamp) {
        self.sweep = None;
        self.sweep_at = now;
        self.stops_at = now;
    }

    /// Clears the queue, because this BBS no longer leads.
    pub(crate) fn stop_leading(&mut self) {
        self.queued.clear();
    }

    /// Schedules a full pass at a time, unless an earlier pass is scheduled.
    pub(crate) fn schedule_pass(&mut self, at: Timestamp) {
        self.sweep_at = self.sweep_at.min(at);
    }

    /// Returns `Some` if a slice of a full pass should run now. The inner value is the target after which the
    /// pass continues; it is `None` at the start of a pass. Each pass starts an [`INTERVAL`] after the start
    /// of the previous pass.
    pub(crate) fn next_slice(&mut self, now: Timestamp) -> Option<Option<Due>> {
        if let Some(behind) = self.sweep.take() {
            return Some(Some(behind));
        }
        (self.sweep_at <= now).then(|| {
            self.sweep_at = now + INTERVAL;
            None
        })
    }

    /// Records a finished slice. `next` is the target after which the pass continues; `None` if the pass is
    /// complete.
    pub(crate) fn finish_slice(&mut self, next: Option<Due>) {
        self.full_passes += u64::from(next.is_none());
        self.sweep = next;
    }

    /// Returns the number of completed full convergence passes.
    pub(crate) const fn full_passes(&self) -> u64 {
        self.full_passes
    }

    /// Returns `true` if stop orders should be repeated now. Schedules the next repetition after `interval`.
    pub(crate) fn are_stops_due(&mut self, now: Timestamp, interval: Duration) -> bool {
        let due = self.stops_at <= now;
        if due {
            self.stops_at = now + interval;
        }
        due
    }

    /// Returns `true` if no target is queued or in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.queued.is_empty() && self.in_flight.is_empty()
    }

    /// Returns `true` if a full pass is in progress.
    pub(crate) const fn is_pass_running(&self) -> bool {
        self.sweep.is_some()
    }

    /// Returns the time of the next slice of a full pass.
    pub(crate) fn next_slice_at(&self, now: Timestamp) -> Timestamp {
        if self.sweep.is_some() { now } else { self.sweep_at }
    }

    /// Returns the time at which stop orders are repeated next.
    pub(crate) const fn next_stops(&self) -> Timestamp {
        self.stops_at
    }

    /// Returns the number of queued targets.
    pub(crate) fn queued(&self) -> usize {
        self.queued.len()
    }

    /// Returns the number of targets in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
}

/// Returns the targets with an expired timer.
pub(crate) fn expired_timers(world: &World, times: Times<'_>) -> Vec<Due> {
    let all = world.due_times(times.latest()).into_iter();
    all.filter(|(at, due)| *at <= times.time_on(|| subject_of(world, due))).map(|(_, due)| due).collect()
}

fn subject_of(world: &World, due: &Due) -> Subject {
    match due {
        Due::Process(guid) => Subject::of_process(guid, world.shards()),
        Due::Task(guid) => Subject::of_task(guid, world.shards()),
        Due::Periodic(guid) => Subject::of_periodic(guid, world.shards()),
        Due::Parameterised(guid) => Subject::of_parameterised(guid, world.shards()),
    }
}

/// Returns the targets that refer to a cell.
pub(crate) fn targets_on_cell(world: &World, cell: &CellId) -> Vec<Due> {
    let named: BTreeSet<Due> = world.on_cell(cell).map(target_of).collect();
    named.into_iter().collect()
}

fn target_of(work: &WorkRef) -> Due {
    match work {
        WorkRef::Lrp(key) => Due::Process(key.process_guid.clone()),
        WorkRef::Task(guid) => Due::Task(guid.clone()),
    }
}

/// An aggregate that convergence inspects.
#[derive(Clone, Copy, Debug)]
enum Inspected<'a> {
    Process(&'a Process),
    Task(&'a Task),
    Periodic(&'a Periodic),
    Parameterised(&'a Parameterised),
}

impl Inspected<'_> {
    fn is_due(self, world: &World, times: Times<'_>) -> bool {
        let now = times.time_on(|| subject_of(world, &self.due()));
        match self {
            Self::Process(known) => {
                let of_domain = times.time_on(|| Subject::Domain(known.domain.clone()));
                is_process_due(world, known, now, world.is_fresh(&known.domain, of_domain))
            }
            Self::Task(known) => is_task_due(world, known, now),
            Self::Periodic(known) => is_due(world, known, now),
            Self::Parameterised(known) => is_parameterised_due(world, known),
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

/// Iterates over all aggregates in a fixed order. Starts after a given target.
fn all_after<'a>(world: &'a World, behind: Option<&'a Due>) -> impl Iterator<Item = Inspected<'a>> {
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
        .map(Inspected::Process)
        .chain(tasks.map(Inspected::Task))
        .chain(periodics.map(Inspected::Periodic))
        .chain(parameterised.map(Inspected::Parameterised))
}

/// Inspects at most `most` aggregates of a full pass. Full passes are a safety net for missed events.
///
/// Returns the due targets, and the target after which the pass continues. The latter is `None` if the pass
/// is complete.
pub(crate) fn slice(
    world: &World,
    times: Times<'_>,
    behind: Option<&Due>,
    most: usize,
) -> (Vec<Due>, Option<Due>) {
    let mut all = all_after(world, behind);
    let (mut due, mut last) = (vec![], None);
    for one in all.by_ref().take(most) {
        due.extend(one.is_due(world, times).then(|| one.due()));
        last = Some(one);
    }
    let goes_on = all.next().is_some();
    (due, last.filter(|_| goes_on).map(Inspected::due))
}

fn is_process_due(world: &World, known: &Process, now: Timestamp, fresh: bool) -> bool {
    let present = |cell: &CellId| world.is_present(cell);
    let known_cell = |cell: &CellId| world.cell(cell).is_some();
    let numbered = |visit: process::CellVisitor<'_>| world.visit_numbered(visit);
    let context = process::Context {
        now,
        is_fresh: fresh,
        is_present: &present,
        is_known: &known_cell,
        for_each_cell: &numbered,
    };
    process::decide(Some(known), &schemas::process::Command::Converge, context)
        .is_ok_and(|events| !events.is_empty())
}

fn is_task_due(world: &World, known: &Task, now: Timestamp) -> bool {
    let present = |cell: &CellId| world.is_present(cell);
    let context = task::Context { now, is_present: &present };
    task::decide(Some(known), &schemas::task::Command::Converge, context)
        .is_ok_and(|events| !events.is_empty())
}

/// Returns `true` if a waiting dispatch of a parameterised task can be launched.
fn is_parameterised_due(world: &World, known: &Parameterised) -> bool {
    let fewer = |guid: &ParameterisedGuid, most: u32| {
        let live = world.dispatched_by(guid).filter(|task| Task::is_live(task));
        live.take(most as usize).count() < most as usize
    };
    let exists = |guid: &TaskGuid| world.task(guid).is_some_and(|task| task.state.is_some());
    let context = parameterised::Context { has_fewer_live_tasks: &fewer, task_exists: &exists };
    parameterised::decide(Some(known), &schemas::parameterised::Command::Converge, context)
        .is_ok_and(|events| !events.is_empty())
}

/// Returns `true` if a launch of a periodic task is due.
fn is_due(world: &World, known: &Periodic, now: Timestamp) -> bool {
    let runs = |guid: &PeriodicGuid| world.launched_by(guid).any(Task::is_live);
    let exists = |guid: &TaskGuid| world.task(guid).is_some_and(|task| task.state.is_some());
    let context = periodic::Context { now, is_running: &runs, task_exists: &exists };
    periodic::decide(Some(known), &schemas::periodic::Command::Converge, context)
        .is_ok_and(|events| !events.is_empty())
}

#[cfg(test)]
mod tests {
    use schemas::names::ProcessGuid;

    use super::*;

    #[test]
    fn due_target_is_queued_once_and_not_while_in_flight() {
        let due = Due::Process(ProcessGuid::new("web").unwrap());
        let mut convergence = Convergence::default();
        assert!(convergence.queue_unless_in_flight(&due));
        assert!(!convergence.queue(&due), "the target is already queued");
        convergence.decided(due.clone());
        assert!(!convergence.queue_unless_in_flight(&due), "a decision about the target is in flight");
        assert!(convergence.queue(&due), "a new event queues it again");
        assert_eq!((convergence.queued(), convergence.in_flight()), (1, 1));
        convergence.settled(&due);
        convergence.decided(due.clone());
        convergence.requeue(due.clone());
        assert_eq!((convergence.queued(), convergence.in_flight()), (1, 0));
        convergence.decided(due.clone());
        convergence.settled(&due);
        assert!(convergence.is_idle());
    }

    #[test]
    fn full_pass_starts_at_interval_or_when_scheduled() {
        let (mut convergence, now) = (Convergence::default(), Timestamp::from_millis(100_000));
        convergence.start_leading(now);
        assert_eq!((convergence.next_slice(now), convergence.next_slice(now)), (Some(None), None));
        assert_eq!(convergence.next_slice_at(now), now + INTERVAL);
        convergence.schedule_pass(now + Duration::from_secs(1));
        convergence.schedule_pass(now + Duration::from_secs(9));
        let now = now + Duration::from_secs(1);
        assert!(convergence.next_slice(now) == Some(None) && convergence.are_stops_due(now, INTERVAL));
        assert!(convergence.next_slice(now).is_none() && !convergence.are_stops_due(now, INTERVAL));
        // A pass that has started continues at once, and is not restarted before it is complete.
        let behind = Due::Process(ProcessGuid::new("web").unwrap());
        convergence.finish_slice(Some(behind.clone()));
        convergence.schedule_pass(now);
        assert_eq!(convergence.next_slice_at(now), now);
        assert_eq!(
            (convergence.next_slice(now), convergence.next_slice(now)),
            (Some(Some(behind.clone())), Some(None))
        );
        convergence.finish_slice(Some(behind));
        convergence.start_leading(now);
        assert!(
            convergence.next_slice(now) == Some(None) && convergence.are_stops_due(now, INTERVAL),
            "a new leader starts a full pass at once"
        );
    }
}
