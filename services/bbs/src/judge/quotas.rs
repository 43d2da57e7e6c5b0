//! Quota checks. A client's command must not grow the usage of its domain beyond the quotas of the domain.

use std::collections::BTreeMap;

use schemas::Refusal;
use schemas::entry::Event;
use schemas::names::Domain;
use schemas::quota::Usage;
use schemas::stamp::Actor;

use super::Batch;
use crate::command::QueuedCommand;

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
        let target = queued.command.target();
        let added = |sum: Usage, event| sum.plus(target.growth(&self.scratch, event));
        let more = events.iter().fold(Usage::default(), added);
        if !more.is_empty() {
            let used = self
                .scratch
                .world
                .usage(domain)
                .plus(self.in_flight.get(domain))
                .plus(self.growth.get(domain));
            self.scratch.world.quotas(domain).admit(domain, used, more)?;
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
}
