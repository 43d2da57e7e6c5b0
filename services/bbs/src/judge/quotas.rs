//! Quota checks. A client's command must not grow the usage of its domain beyond the quotas of the domain.

use std::collections::BTreeMap;

use schemas::definition::Mode;
use schemas::entry::Event;
use schemas::names::Domain;
use schemas::quota::Usage;
use schemas::stamp::Actor;
use schemas::{Refusal, desired, parameterised, periodic, task};

use super::Batch;
use crate::command::{AggregateCommand, QueuedCommand};

/// Growth of each domain: the usage that is added by commands whose entries are not folded into the World
/// (the state from the log) yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Growth(BTreeMap<Domain, Usage>);

impl Growth {
    fn get(&self, domain: &Domain) -> Usage {
        self.0.get(domain).copied().unwrap_or_default()
    }

    fn add(&mut self, domain: &Domain, more: Usage) {
        let known = self.0.entry(domain.clone()).or_default();
        *known = known.plus(more);
    }

    /// Adds the growth caused by another batch.
    pub(crate) fn add_all(&mut self, other: &Self) {
        other.0.iter().for_each(|(domain, more)| self.add(domain, *more));
    }

    /// Subtracts the growth caused by a batch that was added before.
    pub(crate) fn subtract_all(&mut self, other: &Self) {
        for (domain, less) in &other.0 {
            let left = self.get(domain).minus(*less);
            if left.is_empty() {
                self.0.remove(domain);
            } else {
                self.0.insert(domain.clone(), left);
            }
        }
    }
}

impl Batch<'_> {
    /// Checks that the growth caused by a client's command fits the quotas of its domain. Returns the growth;
    /// the caller passes it to [`Self::grow`].
    ///
    /// The check never refuses decisions of Muster itself, such as a scheduled launch or the replacement of
    /// an instance.
    pub(super) fn check_quota(&self, queued: &QueuedCommand, events: &[Event]) -> Result<Usage, Refusal> {
        let Actor::Client { domain, .. } = &queued.actor else { return Ok(Usage::default()) };
        let added = |sum: Usage, event| sum.plus(self.added(&queued.command, event));
        let more = events.iter().fold(Usage::default(), added);
        if !more.is_empty() {
            let used =
                self.world.usage(domain).plus(self.in_flight.get(domain)).plus(self.growth.get(domain));
            self.world.quotas(domain).admit(domain, used, more)?;
        }
        Ok(more)
    }

    /// Adds the growth caused by a recorded client command.
    pub(super) fn grow(&mut self, queued: &QueuedCommand, more: Usage) {
        if let Actor::Client { domain, .. } = &queued.actor
            && !more.is_empty()
        {
            self.growth.add(domain, more);
        }
    }

    /// Returns the growth caused by one event of a command.
    fn added(&self, command: &AggregateCommand, event: &Event) -> Usage {
        let one = Usage { instances: 0, processes_and_tasks: 1 };
        if let Event::Desired(desired::Event::Desired(lrp)) = event {
            let instances = if lrp.mode == Mode::Global { 0 } else { u64::from(lrp.instances) };
            return Usage { instances, ..one };
        }
        if let (Event::Desired(desired::Event::Updated(update)), AggregateCommand::Process(guid, _)) =
            (event, command)
        {
            let desired = self.process(guid).and_then(|process| process.desired.as_ref());
            let now = desired.map_or(0, |desired| desired.instances);
            let more = update.instances.unwrap_or(now).saturating_sub(now);
            return Usage { instances: u64::from(more), processes_and_tasks: 0 };
        }
        let is_new = matches!(
            event,
            Event::Task(task::Event::Desired(_))
                | Event::Periodic(periodic::Event::Desired { .. } | periodic::Event::Launched { .. })
                | Event::Parameterised(
                    parameterised::Event::Desired { .. } | parameterised::Event::Launched { .. }
                )
        );
        if is_new { one } else { Usage::default() }
    }
}
