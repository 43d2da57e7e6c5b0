//! What a part of a log comes to, in figures: the same ones of what was recorded and of what would have been.

use std::collections::BTreeMap;

use projections::World;
use schemas::entry::{Aggregate, Event};
use schemas::names::{ProcessGuid, TaskGuid};
use schemas::{Decision, Timestamp, actual, task};
use serde::Serialize;

/// What a part of a log comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// By process.
    pub processes: BTreeMap<ProcessGuid, OfProcess>,
    /// By task.
    pub tasks: BTreeMap<TaskGuid, OfTask>,
}

/// What became of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OfProcess {
    /// How often instances crashed.
    pub crashes: u64,
    /// How often crashed instances were restarted.
    pub restarts: u64,
    /// How often something of it found no place.
    pub placement_failures: u64,
    /// How often something of it was stopped for something more urgent.
    pub preempted: u64,
    /// Time for which instances that were desired did not run, of all of them together, in milliseconds.
    pub not_running_ms: u64,
    /// Instances that are desired in the end.
    pub desired: u64,
    /// Instances that run in the end.
    pub running: u64,
}

/// What became of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OfTask {
    /// Whether it succeeded; none: it has not ended.
    pub succeeded: Option<bool>,
    /// Why it failed.
    pub failure_reason: Option<String>,
    /// How long it waited for a cell, in milliseconds; none: it never ran.
    pub waited_ms: Option<u64>,
    /// How often it found no place.
    pub placement_failures: u64,
}

/// Counts while a log is folded.
pub(super) struct Counting {
    figures: Figures,
    /// Of each process: instances that are missing, and since when that is so.
    missing: BTreeMap<ProcessGuid, (u64, Timestamp)>,
    created: BTreeMap<TaskGuid, Timestamp>,
}

impl Counting {
    /// Begins with what is there.
    pub(super) fn new(world: &World, now: Timestamp) -> Self {
        let mut counting =
            Self { figures: Figures::default(), missing: BTreeMap::new(), created: BTreeMap::new() };
        let all: Vec<ProcessGuid> = world.processes_from(None).map(|process| process.guid.clone()).collect();
        for guid in all {
            counting.look(world, &guid, now);
        }
        for task in world.tasks_from(None) {
            counting.created.insert(task.guid.clone(), task.epoch.0);
        }
        counting
    }

    /// Takes a decision, after it was folded.
    pub(super) fn note(&mut self, world: &World, decision: &Decision) {
        match &decision.aggregate {
            Aggregate::Process { guid, .. } => {
                for event in &decision.events {
                    if let Event::Actual(event) = event {
                        of_actual(self.figures.processes.entry(guid.clone()).or_default(), event);
                    }
                }
                self.look(world, guid, decision.at);
            }
            Aggregate::Task { guid, .. } => {
                for event in &decision.events {
                    if let Event::Task(event) = event {
                        self.of_task(guid, event, decision.at);
                    }
                }
            }
            Aggregate::Periodic { .. }
            | Aggregate::Parameterised { .. }
            | Aggregate::Domain(_)
            | Aggregate::Cell(_)
            | Aggregate::Cluster => {}
        }
    }

    /// Counts what was missing of a process until now, and looks how much is from now on.
    fn look(&mut self, world: &World, guid: &ProcessGuid, now: Timestamp) {
        let (desired, running) = counts(world, guid);
        let missing = desired.saturating_sub(running);
        let (before, since) = self.missing.insert(guid.clone(), (missing, now)).unwrap_or((0, now));
        let of = self.figures.processes.entry(guid.clone()).or_default();
        of.not_running_ms += before * millis(now.since(since));
        (of.desired, of.running) = (desired, running);
    }

    fn of_task(&mut self, guid: &TaskGuid, event: &task::Event, at: Timestamp) {
        let of = self.figures.tasks.entry(guid.clone()).or_default();
        match event {
            task::Event::Desired(_) => {
                *of = OfTask::default();
                self.created.insert(guid.clone(), at);
            }
            task::Event::Started { .. } => {
                of.waited_ms = self.created.get(guid).map(|created| millis(at.since(*created)));
            }
            task::Event::PlacementFailed { .. } => of.placement_failures += 1,
            task::Event::Completed { outcome, explanation, .. } => {
                of.placement_failures += u64::from(explanation.is_some());
                (of.succeeded, of.failure_reason) = match outcome {
                    task::Outcome::Succeeded { .. } => (Some(true), None),
                    task::Outcome::Failed { reason } => (Some(false), Some(reason.clone())),
                };
            }
            task::Event::Resolving {}
            | task::Event::CallbackTried { .. }
            | task::Event::Demoted {}
            | task::Event::Deleted {} => {}
        }
    }

    /// What it comes to so far.
    pub(super) fn so_far(&self) -> Figures {
        self.figures.clone()
    }

    /// What it comes to at a time.
    pub(super) fn end(mut self, world: &World, now: Timestamp) -> Figures {
        for guid in self.missing.keys().cloned().collect::<Vec<_>>() {
            self.look(world, &guid, now);
        }
        self.figures
    }
}

fn of_actual(of: &mut OfProcess, event: &actual::Event) {
    let number = |places: &schemas::key::Places| u64::try_from(places.iter().count()).unwrap_or(u64::MAX);
    match event {
        actual::Event::Crashed { .. } => of.crashes += 1,
        actual::Event::Unclaimed {
            places,
            cause: actual::UnclaimReason::Crash | actual::UnclaimReason::Restart,
        } => {
            of.restarts += number(places);
        }
        actual::Event::PlacementFailed { places, .. } => of.placement_failures += number(places),
        actual::Event::StopRequested { places, cause: actual::StopReason::Preempted } => {
            of.preempted += number(places);
        }
        actual::Event::Created { .. }
        | actual::Event::Claimed { .. }
        | actual::Event::Started { .. }
        | actual::Event::ExecStarted { .. }
        | actual::Event::Unclaimed { .. }
        | actual::Event::StopRequested { .. }
        | actual::Event::Removed { .. } => {}
    }
}

/// How many instances of a process are desired, and at how many indices one runs.
fn counts(world: &World, guid: &ProcessGuid) -> (u64, u64) {
    let Some(process) = world.process(guid) else { return (0, 0) };
    let Some(desired) = &process.desired else { return (0, 0) };
    let runs = |index: &u32| process.actuals_at(*index).any(|(_, actual)| actual.is_running());
    let number = |count| u64::try_from(count).unwrap_or(u64::MAX);
    (number(desired.indices().count()), number(desired.indices().filter(runs).count()))
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
