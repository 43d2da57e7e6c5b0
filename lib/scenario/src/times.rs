//! How long things took, as the log tells: from CLAIMED to RUNNING, and from a task's start to its end.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::container::{Recipe, WorkKey};
use schemas::entry::{Aggregate, Event};
use schemas::names::{InstanceGuid, ProcessGuid, TaskGuid};
use schemas::{Decision, Timestamp, actual, task};
use scripted::{Behaviour, Create};

/// How long an instance takes to be RUNNING where the log has none that ever was.
pub const USUAL_START: Duration = Duration::from_secs(1);
/// So many times are kept of each process or kind of task: the newest.
const KEPT: usize = 101;

/// How long things took.
#[derive(Clone, Debug, Default)]
pub struct Times {
    starts: BTreeMap<ProcessGuid, Spans>,
    runs: BTreeMap<Box<str>, Spans>,
    /// What was claimed, or started as a task, and is not seen to go on yet.
    open: BTreeMap<InstanceGuid, Timestamp>,
    all_starts: Spans,
}

/// Some lengths of time, the newest last.
#[derive(Clone, Debug, Default)]
struct Spans(Vec<Duration>);

impl Spans {
    fn add(&mut self, span: Duration) {
        if self.0.len() >= KEPT {
            self.0.remove(0);
        }
        self.0.push(span);
    }

    /// The middle one; of an even number, the shorter of the two.
    fn median(&self) -> Option<Duration> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len().checked_sub(1)? / 2).copied()
    }
}

/// How long a process takes to start, and where that is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The median of its own starts.
    Own(Duration),
    /// The median of all processes' starts: it has none of its own.
    Others(Duration),
    /// Nothing was ever seen to start.
    Usual,
}

impl Start {
    /// The time.
    #[must_use]
    pub const fn time(self) -> Duration {
        match self {
            Self::Own(time) | Self::Others(time) => time,
            Self::Usual => USUAL_START,
        }
    }
}

impl Times {
    /// Takes note of a decision, in the order of the log.
    pub(super) fn note(&mut self, decision: &Decision) {
        for event in &decision.events {
            match (&decision.aggregate, event) {
                (Aggregate::Process { guid, .. }, Event::Actual(event)) => {
                    self.note_actual(guid, event, decision.at);
                }
                (Aggregate::Task { guid, .. }, Event::Task(event)) => {
                    self.note_task(guid, event, decision.at);
                }
                (
                    Aggregate::Process { .. }
                    | Aggregate::Task { .. }
                    | Aggregate::Periodic { .. }
                    | Aggregate::Parameterised { .. }
                    | Aggregate::Domain(_)
                    | Aggregate::Cell(_)
                    | Aggregate::Cluster,
                    _,
                ) => {}
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

    /// How long an instance of a process takes from CLAIMED to RUNNING.
    #[must_use]
    pub fn start(&self, process: &ProcessGuid) -> Start {
        let own = self.starts.get(process).and_then(Spans::median).map(Start::Own);
        own.or_else(|| self.all_starts.median().map(Start::Others)).unwrap_or(Start::Usual)
    }

    /// How long a task runs that ends well: as those of its kind did. None: none of its kind ever ended so, and it is taken to run on.
    #[must_use]
    pub fn run(&self, task: &TaskGuid) -> Option<Duration> {
        self.runs.get(task.stem()).and_then(Spans::median)
    }

    /// How a container that is started now behaves: it never fails by itself.
    pub(super) fn behaviour(&self, recipe: &Recipe) -> Behaviour {
        self.behaviour_of(&recipe.work, Duration::ZERO)
    }

    /// How a container behaves that has been at it for so long. What takes longer than it usually does is just about to be
    /// RUNNING; but a task of which that is true may take for ever.
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
