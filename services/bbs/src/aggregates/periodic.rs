//! Periodic tasks.

use machines::periodic;
use machines::task::Task;
use projections::Due;
use schemas::definition::DesiredTask;
use schemas::entry::{Aggregate, Event};
use schemas::names::PeriodicGuid;
use schemas::periodic::Command;
use schemas::quota::Usage;
use schemas::subject::Subject;
use schemas::{Decision, Origin, Refusal};

use super::{Order, State, Target, growth_if};
use crate::scratch::Scratch;

impl Target for Order<PeriodicGuid, Command> {
    fn name(&self) -> String {
        format!("periodic task {}", self.key)
    }

    fn subject(&self, shards: u16) -> Subject {
        Subject::of_periodic(&self.key, shards)
    }

    fn state<'s>(&self, scratch: &'s Scratch<'_>) -> State<'s> {
        scratch.periodic(&self.key).map_or_else(State::default, |periodic| State {
            version: periodic.version,
            epoch: Some(periodic.epoch),
            domain: (!periodic.is_removed()).then_some(&periodic.domain),
            requests: Some(&periodic.requests),
            last_decision: Some(periodic.last_decision),
            decided: scratch.changed.periodics.contains_key(&self.key),
        })
    }

    fn decide(&self, scratch: &Scratch<'_>) -> Result<Vec<Event>, Refusal> {
        let context = periodic::Context {
            now: scratch.at,
            is_running: &|guid| scratch.has_live_task(guid),
            task_exists: &|guid| scratch.task_exists(guid),
        };
        let events = periodic::decide(scratch.periodic(&self.key), &self.command, context)?;
        Ok(events.into_iter().map(Event::Periodic).collect())
    }

    fn aggregate(&self, scratch: &Scratch<'_>, events: &[Event]) -> Aggregate {
        let desired =
            if let Command::Desire(desired) = &*self.command { Some(&desired.domain) } else { None };
        let known = scratch.periodic(&self.key).map(|known| (&known.domain, known.epoch));
        let (domain, epoch) = scratch.epoch(desired, events, known);
        Aggregate::Periodic { guid: self.key.clone(), domain, epoch }
    }

    fn origin(&self, scratch: &Scratch<'_>, _: &[Event]) -> Origin {
        periodic::origin(scratch.periodic(&self.key), &self.command)
    }

    fn growth(&self, _: &Scratch<'_>, event: &Event) -> Usage {
        use schemas::periodic::Event::{Desired, Launched};
        growth_if(matches!(event, Event::Periodic(Desired { .. } | Launched { .. })))
    }

    fn launched_tasks(&self, scratch: &Scratch<'_>, events: &[Event]) -> Vec<DesiredTask> {
        let Some(known) = scratch.periodic(&self.key) else { return vec![] };
        let launched = events.iter().filter_map(|event| {
            let schemas::periodic::Event::Launched { task_guid, .. } = event.as_periodic()? else {
                return None;
            };
            known.task(task_guid.clone())
        });
        launched.collect()
    }

    fn convergence(&self) -> Option<Due> {
        matches!(*self.command, Command::Converge).then(|| Due::Periodic(self.key.clone()))
    }
}

impl Scratch<'_> {
    /// Returns `true` if a task of a periodic task is PENDING or RUNNING.
    fn has_live_task(&self, guid: &PeriodicGuid) -> bool {
        let recorded =
            self.world.launched_by(guid).filter(|task| !self.changed.tasks.contains_key(&task.guid));
        let decided =
            self.changed.tasks.iter().filter(|(task, _)| task.launching_periodic().as_ref() == Some(guid));
        recorded.chain(decided.filter_map(|(_, task)| task.as_ref())).any(Task::is_live)
    }

    pub(super) fn evolve_periodic(&mut self, guid: &PeriodicGuid, decision: &Decision) {
        let before = self.periodic(guid).cloned();
        let events = decision.events.iter().filter_map(Event::as_periodic);
        self.changed.periodics.insert(guid.clone(), periodic::evolve(before, events, &decision.stamp()));
    }
}
