//! Tasks.

use machines::task;
use projections::Due;
use schemas::container::Epoch;
use schemas::definition::DesiredTask;
use schemas::entry::{Aggregate, Event};
use schemas::names::TaskGuid;
use schemas::preemption::Eviction;
use schemas::quota::Usage;
use schemas::subject::Subject;
use schemas::task::Command;
use schemas::{Decision, Origin, Refusal, Timestamp};

use super::{Order, State, Target, growth_if};
use crate::scratch::Scratch;

impl Target for Order<TaskGuid, Command> {
    fn name(&self) -> String {
        format!("task {}", self.key)
    }

    fn subject(&self, shards: u16) -> Subject {
        Subject::of_task(&self.key, shards)
    }

    fn state<'s>(&self, scratch: &'s Scratch<'_>) -> State<'s> {
        scratch.task(&self.key).map_or_else(State::default, |task| State {
            version: task.version,
            epoch: Some(task.epoch),
            domain: task.state.is_some().then_some(&task.domain),
            requests: Some(&task.requests),
            last_decision: Some(task.last_decision),
            decided: scratch.changed.tasks.contains_key(&self.key),
        })
    }

    fn decide(&self, scratch: &Scratch<'_>) -> Result<Vec<Event>, Refusal> {
        let context = task::Context { now: scratch.at, is_present: &|cell| scratch.world.is_present(cell) };
        task::decide(scratch.task(&self.key), &self.command, context)
    }

    fn aggregate(&self, scratch: &Scratch<'_>, events: &[Event]) -> Aggregate {
        let desired = if let Command::Desire(desired) | Command::Launch(desired) = &*self.command {
            Some(&desired.domain)
        } else {
            None
        };
        let known = scratch.task(&self.key).map(|known| (&known.domain, known.epoch));
        let (domain, epoch) = scratch.epoch(desired, events, known);
        Aggregate::Task { guid: self.key.clone(), domain, epoch }
    }

    fn origin(&self, scratch: &Scratch<'_>, events: &[Event]) -> Origin {
        task::origin(scratch.task(&self.key), &self.command, events)
    }

    fn growth(&self, _: &Scratch<'_>, event: &Event) -> Usage {
        growth_if(matches!(event, Event::Task(schemas::task::Event::Desired(_))))
    }

    fn convergence(&self) -> Option<Due> {
        matches!(*self.command, Command::Converge).then(|| Due::Task(self.key.clone()))
    }

    fn eviction(&self) -> Option<&Eviction> {
        if let Command::Evict(eviction) = &*self.command { Some(eviction) } else { None }
    }

    fn targets_evaluation(&self) -> bool {
        matches!(*self.command, Command::Fail(_) | Command::Unanswered { .. } | Command::Retry(_))
    }
}

impl Scratch<'_> {
    /// Returns the events that launch a task at `at`, the version and the aggregate of the launch.
    pub(crate) fn launch(
        &self,
        desired: DesiredTask,
        at: Timestamp,
    ) -> Result<(Vec<Event>, u64, Aggregate), Refusal> {
        let (guid, domain) = (desired.task_guid.clone(), desired.domain.clone());
        let context = task::Context { now: at, is_present: &|cell| self.world.is_present(cell) };
        // An actor requested a dispatched task. No actor requested a scheduled launch.
        let dispatched = guid.dispatch_source().is_some();
        let desired = Box::new(desired);
        let command = if dispatched { Command::Desire(desired) } else { Command::Launch(desired) };
        let known = self.task(&guid);
        let events = task::decide(known, &command, context)?;
        let version = known.map_or(0, |task| task.version) + 1;
        Ok((events, version, Aggregate::Task { guid, domain, epoch: Epoch(at) }))
    }

    pub(super) fn evolve_task(&mut self, guid: &TaskGuid, decision: &Decision) {
        let before = self.task(guid).cloned();
        self.changed.tasks.insert(guid.clone(), task::evolve(before, &decision.events, &decision.stamp()));
    }
}
