//! Launches of periodic and parameterised tasks. A launch adds the decision about the launched task to the
//! entry with the decision about the periodic or parameterised task.

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

    /// Returns the aggregate of a decision about a periodic task.
    pub(super) fn periodic_aggregate(
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
        let context = periodic::Context {
            now: self.at,
            is_running: &|guid| self.has_live_task(guid),
            task_exists: &exists,
        };
        let events = periodic::decide(self.periodic(guid), command, context)?;
        Ok(events.into_iter().map(Event::Periodic).collect())
    }

    pub(super) fn parameterised(&self, guid: &ParameterisedGuid) -> Option<&Parameterised> {
        match self.parameterised.get(guid) {
            Some(decided) => decided.as_ref(),
            None => self.world.parameterised(guid),
        }
    }

    /// Returns the aggregate of a decision about a parameterised task.
    pub(super) fn parameterised_aggregate(
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
        let fewer = |guid: &ParameterisedGuid, most| self.has_fewer_live(guid, most);
        let context = parameterised::Context { has_fewer_live_tasks: &fewer, task_exists: &exists };
        let events = parameterised::decide(self.parameterised(guid), command, context)?;
        Ok(events.into_iter().map(Event::Parameterised).collect())
    }

    /// Returns the version that the first dispatch with the same key produced. `None` if the command is not a
    /// repeated dispatch.
    pub(super) fn dispatched_version(&self, command: &AggregateCommand) -> Result<Option<u64>, Refusal> {
        let AggregateCommand::Parameterised(guid, command) = command else { return Ok(None) };
        parameterised::repeated_dispatch(self.parameterised(guid), command)
    }

    /// Returns `true` if fewer than `most` tasks of a parameterised task are PENDING or RUNNING. Takes the
    /// decisions of the current batch into account.
    fn has_fewer_live(&self, guid: &ParameterisedGuid, most: u32) -> bool {
        let most = most as usize;
        let recorded = self.world.dispatched_by(guid).filter(|task| !self.tasks.contains_key(&task.guid));
        let of = |task: &TaskGuid| task.dispatch_source().is_some_and(|(of, _)| of == *guid);
        let decided = self.tasks.iter().filter(|(task, _)| of(task)).filter_map(|(_, task)| task.as_ref());
        recorded.chain(decided).filter(|task| task.is_live()).take(most).count() < most
    }

    /// Returns `true` if a task of a periodic task is PENDING or RUNNING. Takes the decisions of the current
    /// batch into account.
    fn has_live_task(&self, guid: &PeriodicGuid) -> bool {
        let recorded = self.world.launched_by(guid).filter(|task| !self.tasks.contains_key(&task.guid));
        let decided = self.tasks.iter().filter(|(task, _)| task.launching_periodic().as_ref() == Some(guid));
        recorded.chain(decided.filter_map(|(_, task)| task.as_ref())).any(Task::is_live)
    }

    /// Returns the tasks that a decision launches. These tasks use the definition from before the decision.
    /// If the decision also changes the definition, the new definition applies only to later launches.
    pub(super) fn launched_tasks(&self, command: &AggregateCommand, events: &[Event]) -> Vec<DesiredTask> {
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

    /// Returns the decision about a launched task.
    pub(super) fn launch_decision(
        &mut self,
        queued: &QueuedCommand,
        desired: DesiredTask,
        cause: Cause,
        at: Timestamp,
    ) -> Result<Decision, Refusal> {
        let (guid, domain) = (desired.task_guid.clone(), desired.domain.clone());
        let world = self.world;
        let context = task::Context { now: at, is_present: &|cell| world.is_present(cell) };
        // An actor requested a dispatched task. No actor requested a scheduled launch.
        let dispatched = guid.dispatch_source().is_some();
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
            // The request id is stored with the decision about the launch. The answer to a repeated request
            // comes from that decision.
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
