//! What a periodic or parameterised task launches: a decision about the task that follows from the launch, in the same
//! entry.

use schemas::container::Epoch;
use schemas::definition::DesiredTask;
use schemas::entry::{Aggregate, Event};
use schemas::names::{DecisionId, ParameterisedGuid, PeriodicGuid, TaskGuid};
use schemas::parameterised::{self, Parameterised};
use schemas::periodic::{self, Periodic};
use schemas::task::{self, Task};
use schemas::{Cause, Decision, Refusal, Timestamp};

use super::{Batch, unknown_domain};
use crate::command::{AggregateCommand, QueuedCommand};

impl Batch<'_> {
    pub(super) fn periodic(&self, guid: &PeriodicGuid) -> Option<&Periodic> {
        match self.periodics.get(guid) {
            Some(decided) => decided.as_ref(),
            None => self.world.periodic(guid),
        }
    }

    /// A periodic task as a decision names it.
    pub(super) fn named_periodic(
        &self,
        guid: &PeriodicGuid,
        command: &periodic::Command,
        events: &[Event],
    ) -> Aggregate {
        let known = self.periodic(guid).map(|known| (known.domain.clone(), known.epoch));
        let (domain, epoch) = match command {
            periodic::Command::Desire(desired) if !events.is_empty() => {
                (desired.domain.clone(), Epoch(self.at))
            }
            periodic::Command::Desire(_)
            | periodic::Command::Update(_)
            | periodic::Command::Pause
            | periodic::Command::Resume
            | periodic::Command::Launch
            | periodic::Command::Remove
            | periodic::Command::Converge => known.unwrap_or_else(|| (unknown_domain(), Epoch(self.at))),
        };
        Aggregate::Periodic { guid: guid.clone(), domain, epoch }
    }

    pub(super) fn decide_periodic(
        &self,
        guid: &PeriodicGuid,
        command: &periodic::Command,
    ) -> Result<Vec<Event>, Refusal> {
        let exists = |guid: &TaskGuid| self.task(guid).is_some_and(|task| task.state.is_some());
        let context = periodic::Context { now: self.at, runs: &|guid| self.runs(guid), exists: &exists };
        let events = periodic::decide(self.periodic(guid), command, context)?;
        Ok(events.into_iter().map(Event::Periodic).collect())
    }

    pub(super) fn parameterised(&self, guid: &ParameterisedGuid) -> Option<&Parameterised> {
        match self.parameterised.get(guid) {
            Some(decided) => decided.as_ref(),
            None => self.world.parameterised(guid),
        }
    }

    /// A parameterised task as a decision names it.
    pub(super) fn named_parameterised(
        &self,
        guid: &ParameterisedGuid,
        command: &parameterised::Command,
        events: &[Event],
    ) -> Aggregate {
        let known = self.parameterised(guid).map(|known| (known.domain.clone(), known.epoch));
        let (domain, epoch) = match command {
            parameterised::Command::Desire(desired) if !events.is_empty() => {
                (desired.domain.clone(), Epoch(self.at))
            }
            parameterised::Command::Desire(_)
            | parameterised::Command::Update(_)
            | parameterised::Command::Dispatch(_)
            | parameterised::Command::Withdraw(_)
            | parameterised::Command::Remove
            | parameterised::Command::Converge => known.unwrap_or_else(|| (unknown_domain(), Epoch(self.at))),
        };
        Aggregate::Parameterised { guid: guid.clone(), domain, epoch }
    }

    pub(super) fn decide_parameterised(
        &self,
        guid: &ParameterisedGuid,
        command: &parameterised::Command,
    ) -> Result<Vec<Event>, Refusal> {
        let exists = |guid: &TaskGuid| self.task(guid).is_some_and(|task| task.state.is_some());
        let fewer = |guid: &ParameterisedGuid, most| self.run_fewer(guid, most);
        let context = parameterised::Context { fewer: &fewer, exists: &exists };
        let events = parameterised::decide(self.parameterised(guid), command, context)?;
        Ok(events.into_iter().map(Event::Parameterised).collect())
    }

    /// The version that the first dispatch of the same key made, if a command dispatches it again.
    pub(super) fn dispatched(&self, command: &AggregateCommand) -> Result<Option<u64>, Refusal> {
        let AggregateCommand::Parameterised(guid, command) = command else { return Ok(None) };
        parameterised::answered(self.parameterised(guid), command)
    }

    /// Whether fewer than so many tasks of a parameterised task are to run, or run, with what the batch decided.
    fn run_fewer(&self, guid: &ParameterisedGuid, most: u32) -> bool {
        let most = most as usize;
        let recorded = self.world.dispatched_of(guid).filter(|task| !self.tasks.contains_key(&task.guid));
        let of = |task: &TaskGuid| task.dispatched().is_some_and(|(of, _)| of == *guid);
        let decided = self.tasks.iter().filter(|(task, _)| of(task)).filter_map(|(_, task)| task.as_ref());
        recorded.chain(decided).filter(|task| task.is_live()).take(most).count() < most
    }

    /// Whether something that a periodic task launched is to run, or runs, with what the batch decided.
    fn runs(&self, guid: &PeriodicGuid) -> bool {
        let recorded = self.world.launched_by(guid).filter(|task| !self.tasks.contains_key(&task.guid));
        let decided = self.tasks.iter().filter(|(task, _)| task.periodic().as_ref() == Some(guid));
        recorded.chain(decided.filter_map(|(_, task)| task.as_ref())).any(Task::is_live)
    }

    /// The tasks that a decision launches, as they are desired when it is made: what else it changes counts from the next
    /// launch on.
    pub(super) fn launches(&self, command: &AggregateCommand, events: &[Event]) -> Vec<DesiredTask> {
        if let AggregateCommand::Parameterised(guid, _) = command {
            let events: Vec<_> = events.iter().filter_map(Event::as_parameterised).cloned().collect();
            return self.parameterised(guid).map(|known| known.tasks(&events)).unwrap_or_default();
        }
        let AggregateCommand::Periodic(guid, _) = command else { return vec![] };
        let Some(known) = self.periodic(guid) else { return vec![] };
        let launched = events.iter().filter_map(|event| match event.as_periodic()? {
            periodic::Event::Launched { task_guid, .. } => known.task(task_guid.clone()),
            periodic::Event::Desired { .. }
            | periodic::Event::Updated { .. }
            | periodic::Event::Skipped { .. }
            | periodic::Event::Queued { .. }
            | periodic::Event::Paused {}
            | periodic::Event::Resumed { .. }
            | periodic::Event::Removed {} => None,
        });
        launched.collect()
    }

    /// The decision about a task that a launch desires.
    pub(super) fn launched(
        &mut self,
        queued: &QueuedCommand,
        desired: DesiredTask,
        cause: Cause,
        at: Timestamp,
    ) -> Result<Decision, Refusal> {
        let (guid, domain) = (desired.task_guid.clone(), desired.domain.clone());
        let world = self.world;
        let context = task::Context { now: at, present: &|cell| world.is_present(cell) };
        // Who dispatched wanted the task; a launch by a schedule nobody did.
        let dispatched = guid.dispatched().is_some();
        let desired = Box::new(desired);
        let command =
            if dispatched { task::Command::Desire(desired) } else { task::Command::Launch(desired) };
        let events = task::decide(self.task(&guid), &command, context)?;
        Ok(Decision {
            id: DecisionId(self.ids.next(at)),
            version: self.task(&guid).map_or(0, |task| task.version) + 1,
            aggregate: Aggregate::Task { guid, domain, epoch: Epoch(at) },
            at,
            actor: queued.actor.clone(),
            // The request is the launch's: asked again it is answered by that.
            request_id: None,
            request_digest: None,
            cause: Some(cause.decision),
            correlation: cause.correlation,
            reason: queued.envelope.reason.clone(),
            traceparent: queued.envelope.traceparent.clone(),
            events,
        })
    }
}
