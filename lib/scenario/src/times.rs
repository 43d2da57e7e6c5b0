//! Durations measured from the log: from CLAIMED to RUNNING, and from the start of a task to its end.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::container::{Recipe, WorkKey};
use schemas::entry::{Aggregate, Event};
use schemas::names::{InstanceGuid, ProcessGuid, TaskGuid};
use schemas::{Decision, Timestamp, actual, task};
use scripted::{Behaviour, Create};

/// Assumed duration from CLAIMED to RUNNING if the log has no successful start.
pub const USUAL_START: Duration = Duration::from_secs(1);
/// Maximum number of samples per process or kind of task. The newest are kept.
const KEPT: usize = 101;

/// Durations measured from a log.
#[derive(Clone, Debug, Default)]
pub struct Times {
    starts: BTreeMap<ProcessGuid, Spans>,
    runs: BTreeMap<Box<str>, Spans>,
    /// Start times of claimed instances and of started tasks whose next event is still missing.
    open: BTreeMap<InstanceGuid, Timestamp>,
    all_starts: Spans,
}

/// Sampled durations, newest last.
#[derive(Clone, Debug, Default)]
struct Spans(Vec<Duration>);

impl Spans {
    fn add(&mut self, span: Duration) {
        if self.0.len() >= KEPT {
            self.0.remove(0);
        }
        self.0.push(span);
    }

    /// Returns the median. For an even number of samples, returns the shorter of the two middle ones.
    fn median(&self) -> Option<Duration> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len().checked_sub(1)? / 2).copied()
    }
}

/// Start duration of a process, with its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Median of the starts of the process.
    Own(Duration),
    /// Median of the starts of all processes. Used if the process has no recorded start.
    Others(Duration),
    /// Default duration. Used if the log has no recorded start.
    Usual,
}

impl Start {
    /// Returns the duration.
    #[must_use]
    pub const fn time(self) -> Duration {
        match self {
            Self::Own(time) | Self::Others(time) => time,
            Self::Usual => USUAL_START,
        }
    }
}

impl Times {
    /// Records a decision. Decisions must arrive in log order.
    pub(super) fn note(&mut self, decision: &Decision) {
        for event in &decision.events {
            match (&decision.aggregate, event) {
                (Aggregate::Process { guid, .. }, Event::Actual(event)) => {
                    self.note_actual(guid, event, decision.at);
                }
                (Aggregate::Task { guid, .. }, Event::Task(event)) => {
                    self.note_task(guid, event, decision.at);
                }
                _ => {}
            }
        }
    }

    fn note_actual(&mut self, guid: &ProcessGuid, event: &actual::Event, at: Timestamp) {
        match event {
            actual::Event::Claimed { by, .. } => {
                self.open.insert(by.instance_guid, at);
            }
            actual::Event::Started { by, .. } => {
                if let Some(claimed) = self.open.remove(&by.instance_guid) {
                    let span = at.since(claimed);
                    self.starts.entry(guid.clone()).or_default().add(span);
                    self.all_starts.add(span);
                }
            }
            actual::Event::Crashed { by, .. } => {
                self.open.remove(&by.instance_guid);
            }
            actual::Event::Created { .. }
            | actual::Event::ExecStarted { .. }
            | actual::Event::PlacementFailed { .. }
            | actual::Event::Unclaimed { .. }
            | actual::Event::StopRequested { .. }
            | actual::Event::Removed { .. } => {}
        }
    }

    fn note_task(&mut self, guid: &TaskGuid, event: &task::Event, at: Timestamp) {
        match event {
            task::Event::Started { by, .. } => {
                self.open.insert(by.instance_guid, at);
            }
            task::Event::Completed { by: Some(by), outcome: task::Outcome::Succeeded { .. }, .. } => {
                if let Some(started) = self.open.remove(&by.instance_guid) {
                    self.runs.entry(guid.stem().into()).or_default().add(at.since(started));
                }
            }
            task::Event::Completed { by: Some(by), outcome: task::Outcome::Failed { .. }, .. } => {
                self.open.remove(&by.instance_guid);
            }
            task::Event::Completed { by: None, .. }
            | task::Event::Desired(_)
            | task::Event::PlacementFailed { .. }
            | task::Event::Resolving {}
            | task::Event::CallbackTried { .. }
            | task::Event::Demoted {}
            | task::Event::Deleted {} => {}
        }
    }

    /// Returns the duration from CLAIMED to RUNNING for an instance of a process.
    #[must_use]
    pub fn start(&self, process: &ProcessGuid) -> Start {
        let own = self.starts.get(process).and_then(Spans::median).map(Start::Own);
        own.or_else(|| self.all_starts.median().map(Start::Others)).unwrap_or(Start::Usual)
    }

    /// Returns the median duration of successful tasks of the same kind. `None` means that no such task
    /// succeeded; the simulation then assumes that the task never ends.
    #[must_use]
    pub fn run(&self, task: &TaskGuid) -> Option<Duration> {
        self.runs.get(task.stem()).and_then(Spans::median)
    }

    /// Returns the behaviour of a container that starts now. It never fails on its own.
    pub(super) fn behaviour(&self, recipe: &Recipe) -> Behaviour {
        self.behaviour_of(&recipe.work, Duration::ZERO)
    }

    /// Returns the behaviour of a container that has been in its state for `passed`. An instance that exceeds
    /// its usual start duration becomes RUNNING at once. A task that exceeds its usual duration is assumed
    /// never to end.
    pub(super) fn behaviour_of(&self, work: &WorkKey, passed: Duration) -> Behaviour {
        let (start, run) = match work {
            WorkKey::Lrp { key, .. } => (self.start(&key.process_guid).time().saturating_sub(passed), None),
            WorkKey::Task { task_guid, .. } => {
                (Duration::ZERO, self.run(task_guid).and_then(|run| run.checked_sub(passed)))
            }
        };
        Behaviour { create: Create::default(), start: Some(start), run, ..Behaviour::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_of_the_newest() {
        let mut spans = Spans::default();
        assert_eq!(spans.median(), None);
        for seconds in [9, 1, 2] {
            spans.add(Duration::from_secs(seconds));
        }
        assert_eq!(spans.median(), Some(Duration::from_secs(2)));
        spans.add(Duration::from_secs(1));
        assert_eq!(spans.median(), Some(Duration::from_secs(1)), "the shorter of the two in the middle");
        (0..KEPT).for_each(|_| spans.add(Duration::from_secs(7)));
        assert_eq!(spans.median(), Some(Duration::from_secs(7)));
    }
}
