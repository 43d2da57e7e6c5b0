//! Parameterised tasks.

use machines::parameterised;
use projections::Due;
use schemas::definition::DesiredTask;
use schemas::entry::{Aggregate, Event};
use schemas::names::{ParameterisedGuid, TaskGuid};
use schemas::parameterised::Command;
use schemas::quota::Usage;
use schemas::subject::Subject;
use schemas::{Decision, Origin, Refusal};

use super::{Order, State, Target, growth_if};
use crate::scratch::Scratch;

impl Target for Order<ParameterisedGuid, Command> {
    fn name(&self) -> String {
        format!("parameterised task {}", self.key)
    }

    fn subject(&self, shards: u16) -> Subject {
        Subject::of_parameterised(&self.key, shards)
    }

    fn state<'s>(&self, scratch: &'s Scratch<'_>) -> State<'s> {
        scratch.parameterised(&self.key).map_or_else(State::default, |known| State {
            version: known.version,
            epoch: Some(known.epoch),
            domain: (!known.is_removed()).then_some(&known.domain),
            requests: Some(&known.requests),
            last_decision: Some(known.last_decision),
            decided: scratch.changed.parameterised.contains_key(&self.key),
        })
    }

    fn decide(&self, scratch: &Scratch<'_>) -> Result<Vec<Event>, Refusal> {
        let context = parameterised::Context {
            has_fewer_live_tasks: &|guid, most| scratch.has_fewer_live(guid, most),
            task_exists: &|guid| scratch.task_exists(guid),
        };
        let events = parameterised::decide(scratch.parameterised(&self.key), &self.command, context)?;
        Ok(events.into_iter().map(Event::Parameterised).collect())
    }

    fn aggregate(&self, scratch: &Scratch<'_>, events: &[Event]) -> Aggregate {
        let desired =
            if let Command::Desire(desired) = &*self.command { Some(&desired.domain) } else { None };
        let known = scratch.parameterised(&self.key).map(|known| (&known.domain, known.epoch));
        let (domain, epoch) = scratch.epoch(desired, events, known);
        Aggregate::Parameterised { guid: self.key.clone(), domain, epoch }
    }

    fn origin(&self, scratch: &Scratch<'_>, _: &[Event]) -> Origin {
        parameterised::origin(scratch.parameterised(&self.key), &self.command)
    }

    fn growth(&self, _: &Scratch<'_>, event: &Event) -> Usage {
        use schemas::parameterised::Event::{Desired, Launched};
        growth_if(matches!(event, Event::Parameterised(Desired { .. } | Launched { .. })))
    }

    fn launched_tasks(&self, scratch: &Scratch<'_>, events: &[Event]) -> Vec<DesiredTask> {
        let events: Vec<_> = events.iter().filter_map(Event::as_parameterised).cloned().collect();
        scratch.parameterised(&self.key).map(|known| known.tasks(&events)).unwrap_or_default()
    }

    fn dispatched_version(&self, scratch: &Scratch<'_>) -> Result<Option<u64>, Refusal> {
        parameterised::repeated_dispatch(scratch.parameterised(&self.key), &self.command)
    }

    fn convergence(&self) -> Option<Due> {
        matches!(*self.command, Command::Converge).then(|| Due::Parameterised(self.key.clone()))
    }
}

impl Scratch<'_> {
    /// Returns `true` if fewer than `most` tasks of a parameterised task are PENDING or RUNNING.
    fn has_fewer_live(&self, guid: &ParameterisedGuid, most: u32) -> bool {
        let most = most as usize;
        let recorded =
            self.world.dispatched_by(guid).filter(|task| !self.changed.tasks.contains_key(&task.guid));
        let of = |task: &TaskGuid| task.dispatch_source().is_some_and(|(of, _)| of == *guid);
        let decided =
            self.changed.tasks.iter().filter(|(task, _)| of(task)).filter_map(|(_, task)| task.as_ref());
        recorded.chain(decided).filter(|task| task.is_live()).take(most).count() < most
    }

    pub(super) fn evolve_parameterised(&mut self, guid: &ParameterisedGuid, decision: &Decision) {
        let before = self.parameterised(guid).cloned();
        let events = decision.events.iter().filter_map(Event::as_parameterised);
        self.changed
            .parameterised
            .insert(guid.clone(), parameterised::evolve(before, events, &decision.stamp()));
    }
}
