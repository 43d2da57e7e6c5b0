//! Scratch copy of the World (the state folded from the log) with the decisions of the current batch.

use std::collections::BTreeMap;

use machines::domain::{DomainQuotas, Freshness};
use machines::parameterised::Parameterised;
use machines::periodic::Periodic;
use machines::process::Process;
use machines::task::Task;
use machines::{cell, cluster};
use projections::World;
use schemas::Timestamp;
use schemas::container::Epoch;
use schemas::entry::Event;
use schemas::names::{CellId, Domain, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid};
use schemas::subject::Subject;

use crate::timelines::Times;

/// State that the next decision of a batch is based on. It never changes the World.
pub(crate) struct Scratch<'a> {
    pub(crate) world: &'a World,
    pub(crate) times: Times<'a>,
    /// Time of decisions on the subject of the batch.
    pub(crate) now: Timestamp,
    /// Time of the next decision.
    pub(crate) at: Timestamp,
    pub(crate) changed: Changes,
    /// Last version on a subject with a single aggregate: a domain, a cell, the cluster.
    pub(crate) single_version: u64,
}

/// Aggregates that the batch has decided about, as they are after these decisions.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) processes: BTreeMap<ProcessGuid, Process>,
    pub(crate) tasks: BTreeMap<TaskGuid, Option<Task>>,
    pub(crate) periodics: BTreeMap<PeriodicGuid, Option<Periodic>>,
    pub(crate) parameterised: BTreeMap<ParameterisedGuid, Option<Parameterised>>,
    pub(crate) cells: BTreeMap<CellId, Option<cell::Cell>>,
    pub(crate) domains: BTreeMap<Domain, Freshness>,
    pub(crate) limited: BTreeMap<Domain, DomainQuotas>,
    /// The cluster as changed by the batch; `None` if unchanged.
    pub(crate) cluster: Option<cluster::Cluster>,
}

impl Scratch<'_> {
    pub(crate) fn process(&self, guid: &ProcessGuid) -> Option<&Process> {
        self.changed.processes.get(guid).or_else(|| self.world.process(guid))
    }

    pub(crate) fn task(&self, guid: &TaskGuid) -> Option<&Task> {
        self.changed.tasks.get(guid).map_or_else(|| self.world.task(guid), Option::as_ref)
    }

    pub(crate) fn periodic(&self, guid: &PeriodicGuid) -> Option<&Periodic> {
        self.changed.periodics.get(guid).map_or_else(|| self.world.periodic(guid), Option::as_ref)
    }

    pub(crate) fn parameterised(&self, guid: &ParameterisedGuid) -> Option<&Parameterised> {
        self.changed.parameterised.get(guid).map_or_else(|| self.world.parameterised(guid), Option::as_ref)
    }

    pub(crate) fn cell(&self, id: &CellId) -> Option<&cell::Cell> {
        self.changed.cells.get(id).map_or_else(|| self.world.cell(id), Option::as_ref)
    }

    pub(crate) fn cluster(&self) -> Option<&cluster::Cluster> {
        self.changed.cluster.as_ref().or_else(|| self.world.cluster())
    }

    pub(crate) fn domain(&self, domain: &Domain) -> Option<&Freshness> {
        self.changed.domains.get(domain).or_else(|| self.world.domain(domain))
    }

    pub(crate) fn limited(&self, domain: &Domain) -> Option<&DomainQuotas> {
        self.changed.limited.get(domain).or_else(|| self.world.limited(domain))
    }

    /// Returns `true` if a domain is fresh. The timestamps of the log may be ahead of the clocks, both on the
    /// domain's subject and on the subject of the batch. The function corrects for both differences.
    pub(crate) fn is_fresh(&self, domain: &Domain) -> bool {
        let lead = self.now.since(self.times.clock_time());
        let now = self.at - lead + self.times.ahead(|| Subject::Domain(domain.clone()));
        self.world.is_fresh(domain, now)
    }

    /// Returns `true` if a task with this guid exists.
    pub(crate) fn task_exists(&self, guid: &TaskGuid) -> bool {
        self.task(guid).is_some_and(|task| task.state.is_some())
    }

    /// Returns the domain and epoch of a decision: a new epoch in the domain of `desired` if there are events,
    /// otherwise those of the existing aggregate. The state machines never make a decision about an unknown
    /// guid; the domain of such a decision would be a placeholder.
    pub(crate) fn epoch(
        &self,
        desired: Option<&Domain>,
        events: &[Event],
        known: Option<(&Domain, Epoch)>,
    ) -> (Domain, Epoch) {
        let new = desired.filter(|_| !events.is_empty()).map(|domain| (domain, Epoch(self.at)));
        match new.or(known) {
            Some((domain, epoch)) => (domain.clone(), epoch),
            None => (Domain::new("unknown").expect("the name is valid"), Epoch(self.at)),
        }
    }
}
