//! Aggregates: one file for each kind, with everything that judging needs to know about its commands.

mod cell;
mod cluster;
mod domain;
mod parameterised;
mod periodic;
mod process;
mod task;

use machines::request::Requests;
use projections::Due;
use schemas::container::Epoch;
use schemas::definition::DesiredTask;
use schemas::entry::{Aggregate, Event};
use schemas::names::Domain;
use schemas::preemption::Eviction;
use schemas::quota::Usage;
use schemas::subject::{Position, Subject};
use schemas::{Decision, Origin, Refusal};

use crate::scratch::Scratch;
pub(crate) use cell::Command as CellCommand;
pub(crate) use cluster::Command as ClusterCommand;
pub(crate) use domain::Command as DomainCommand;

/// Returns the growth by one process or task without instances if an event adds one.
fn growth_if(is_added: bool) -> Usage {
    Usage { instances: 0, processes_and_tasks: u64::from(is_added) }
}

/// Command for the aggregate with this key.
#[derive(Clone, Debug)]
pub(crate) struct Order<K, C> {
    pub(crate) key: K,
    pub(crate) command: Box<C>,
}

impl<K, C> Order<K, C> {
    pub(crate) fn new(key: K, command: C) -> Self {
        Self { key, command: Box::new(command) }
    }
}

/// State of an aggregate that commands are checked against.
#[derive(Default)]
pub(crate) struct State<'a> {
    pub(crate) version: u64,
    /// `None` if the aggregate has no epochs, or does not exist.
    pub(crate) epoch: Option<Epoch>,
    /// Domain of a guid in use; `None` for other aggregates.
    pub(crate) domain: Option<&'a Domain>,
    /// Remembered requests.
    pub(crate) requests: Option<&'a Requests>,
    /// Position of the last decision about a guid; `None` for an unknown guid and for other aggregates.
    pub(crate) last_decision: Option<Position>,
    /// `true` if the entry that is being created has a decision about the aggregate.
    pub(crate) decided: bool,
}

/// A command together with its aggregate.
pub(crate) trait Target {
    /// Returns a description of the aggregate for messages, such as `process web`.
    fn name(&self) -> String;

    /// Returns the subject of the aggregate in a cluster with this many shards.
    fn subject(&self, shards: u16) -> Subject;

    /// Returns the state of the aggregate, as the earlier decisions of the batch left it.
    fn state<'s>(&self, scratch: &'s Scratch<'_>) -> State<'s>;

    /// Returns the events of the command, without changing the scratch copy.
    fn decide(&self, scratch: &Scratch<'_>) -> Result<Vec<Event>, Refusal>;

    /// Returns the aggregate of the decision. If a command that desires or launches something produces
    /// events, the aggregate has a new epoch.
    fn aggregate(&self, scratch: &Scratch<'_>, events: &[Event]) -> Aggregate;

    fn origin(&self, _scratch: &Scratch<'_>, _events: &[Event]) -> Origin {
        Origin::Root
    }

    /// Returns the usage that an event of the command adds to its domain.
    fn growth(&self, _scratch: &Scratch<'_>, _event: &Event) -> Usage {
        Usage::default()
    }

    /// Returns the tasks that a decision launches. These tasks use the definition from before the decision.
    /// If the decision also changes the definition, the new definition applies only to later launches.
    fn launched_tasks(&self, _scratch: &Scratch<'_>, _events: &[Event]) -> Vec<DesiredTask> {
        vec![]
    }

    /// Returns the version that the first dispatch with the same key produced. `None` if the command is not a
    /// repeated dispatch.
    fn dispatched_version(&self, _scratch: &Scratch<'_>) -> Result<Option<u64>, Refusal> {
        Ok(None)
    }

    /// Returns the target of a convergence command.
    fn convergence(&self) -> Option<Due> {
        None
    }

    /// Returns the eviction if the command stops an instance or task for higher-priority work.
    fn eviction(&self) -> Option<&Eviction> {
        None
    }

    /// Returns `true` if the command is a request about an evaluation.
    fn targets_evaluation(&self) -> bool {
        false
    }
}

impl Scratch<'_> {
    /// Returns the state of an aggregate that does not share its subject.
    fn single<'s>(&self, requests: Option<&'s Requests>, decided: bool) -> State<'s> {
        State { version: self.single_version, requests, decided, ..State::default() }
    }

    /// Applies a decision for the rest of the batch.
    pub(crate) fn evolve(&mut self, decision: &Decision) {
        match &decision.aggregate {
            Aggregate::Process { guid, domain, epoch } => self.evolve_process(guid, domain, *epoch, decision),
            Aggregate::Task { guid, .. } => self.evolve_task(guid, decision),
            Aggregate::Periodic { guid, .. } => self.evolve_periodic(guid, decision),
            Aggregate::Parameterised { guid, .. } => self.evolve_parameterised(guid, decision),
            Aggregate::Cell(id) => self.evolve_cell(id, decision),
            Aggregate::Cluster => self.evolve_cluster(decision),
            Aggregate::Domain(domain) => self.evolve_domain(domain, decision),
        }
    }
}
