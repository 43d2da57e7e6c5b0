//! Entries of the journal. An entry is one message with a list of decisions, stored completely or not at all.
//!
//! This module has the entries that the state machines work with. They are stored as JSON, because the log
//! outlives every program and any NATS client must be able to read it. [`crate::stored`] defines the format
//! of that JSON. The tag of an event holds its type and version: `{"actual": {"claimed.v1": {..}}}` is
//! `actual.claimed.v1`.
//!
//! Stored events are never edited. If the format of an event changes, it gets a new version. Events of the
//! old version stay in the log and are converted when they are decoded. The folder `golden/` keeps one file
//! for every version.

use std::fmt;

use crate::container::Epoch;
use crate::names::{
    CellId, DecisionId, Domain, EntryId, EvaluationId, ParameterisedGuid, PeriodicGuid, ProcessGuid,
    RequestId, TaskGuid,
};
use crate::stamp::{Actor, Identity, Stamp};
use crate::subject::Subject;
use crate::{
    Timestamp, actual, cell, cluster, desired, domain, evacuating, evaluation, parameterised, periodic,
    rollout, task,
};

/// Message of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Id of the entry; also the `Nats-Msg-Id` of the message.
    pub id: EntryId,
    /// Format level at which the entry was written.
    pub format: u32,
    /// Decisions of the entry, in order.
    pub decisions: Vec<Decision>,
}

/// Effect of one command on one aggregate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub id: DecisionId,
    /// Aggregate that the decision changes.
    pub aggregate: Aggregate,
    /// Version of the aggregate after the decision.
    pub version: u64,
    /// Time of the decision. It is never earlier than the time of the previous decision of the shard.
    pub at: Timestamp,
    /// Source of the command.
    pub actor: Actor,
    /// Request id that the client chose.
    pub request_id: Option<RequestId>,
    /// Digest of the request: its verb and a hash of its body.
    pub request_digest: Option<String>,
    /// Decision that caused this one. `None` if this decision starts a chain.
    pub cause: Option<DecisionId>,
    /// First decision of the chain, usually a command of a client or an operator.
    pub correlation: DecisionId,
    /// Reason that the client gave.
    pub reason: Option<String>,
    /// W3C trace of the decision.
    pub traceparent: Option<String>,
    /// Events of the decision. Empty if nothing changed and the decision only records the request.
    pub events: Vec<Event>,
}

/// Target of a decision, and the unit of versioning.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aggregate {
    /// A process, in one epoch.
    Process {
        guid: ProcessGuid,
        domain: Domain,
        epoch: Epoch,
    },
    /// A task, in one epoch.
    Task {
        guid: TaskGuid,
        domain: Domain,
        epoch: Epoch,
    },
    /// A periodic task, in one epoch.
    Periodic {
        guid: PeriodicGuid,
        domain: Domain,
        epoch: Epoch,
    },
    /// A parameterised task, in one epoch.
    Parameterised {
        guid: ParameterisedGuid,
        domain: Domain,
        epoch: Epoch,
    },
    Domain(Domain),
    Cell(CellId),
    Cluster,
}

/// Event of a state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Event of the desired state of a process.
    Desired(desired::Event),
    /// Event of instances.
    Actual(actual::Event),
    /// Event of an evacuating instance.
    Evacuating(evacuating::Event),
    Rollout(rollout::Event),
    Evaluation(evaluation::Event),
    Task(task::Event),
    Periodic(periodic::Event),
    Parameterised(parameterised::Event),
    Domain(domain::Event),
    Cell(cell::Event),
    Cluster(cluster::Event),
}

impl Event {
    /// Returns the body of the event as JSON, without the two tags that name its type.
    ///
    /// # Panics
    /// Never: an event is plain data with text keys.
    #[must_use]
    pub fn body(&self) -> String {
        let json = serde_json::to_string(self).expect("an event is plain data");
        let tags = self.type_name().split_once('.');
        let within = tags.and_then(|(machine, tag)| {
            json.strip_prefix(&format!("{{\"{machine}\":{{\"{tag}\":"))?.strip_suffix("}}")
        });
        within.map_or_else(|| json.clone(), str::to_owned)
    }

    /// Returns the event if it belongs to a periodic task.
    #[must_use]
    pub const fn as_periodic(&self) -> Option<&periodic::Event> {
        if let Self::Periodic(event) = self { Some(event) } else { None }
    }

    /// Returns the event if it belongs to a parameterised task.
    #[must_use]
    pub const fn as_parameterised(&self) -> Option<&parameterised::Event> {
        if let Self::Parameterised(event) = self { Some(event) } else { None }
    }

    /// Returns the event if it belongs to a domain.
    #[must_use]
    pub const fn as_domain(&self) -> Option<&domain::Event> {
        if let Self::Domain(event) = self { Some(event) } else { None }
    }

    /// Returns the event if it belongs to an evaluation.
    #[must_use]
    pub const fn as_evaluation(&self) -> Option<&evaluation::Event> {
        if let Self::Evaluation(event) = self { Some(event) } else { None }
    }

    /// Returns the event if it belongs to a cell.
    #[must_use]
    pub const fn as_cell(&self) -> Option<&cell::Event> {
        if let Self::Cell(event) = self { Some(event) } else { None }
    }

    /// Returns the event if it belongs to the cluster.
    #[must_use]
    pub const fn as_cluster(&self) -> Option<&cluster::Event> {
        if let Self::Cluster(event) = self { Some(event) } else { None }
    }
}

impl Decision {
    /// Returns the stamp of the decision.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        Stamp {
            decision: self.id,
            correlation: self.correlation,
            cause: self.cause,
            at: self.at,
            request: self.request_id.clone().map(|id| Identity {
                actor: self.actor.clone(),
                id,
                digest: self.request_digest.clone(),
            }),
        }
    }

    /// Returns the evaluations that the decision created.
    pub fn created_evaluations(&self) -> impl Iterator<Item = EvaluationId> {
        let is_created = |event: &&evaluation::Event| matches!(event, evaluation::Event::Created { .. });
        let created = self.events.iter().filter_map(Event::as_evaluation).filter(is_created);
        created.map(|event| event.evaluation(self.id))
    }

    /// Returns the evaluations that the decision joined. An earlier decision created each evaluation to place
    /// other work.
    pub fn joined_evaluations(&self) -> impl Iterator<Item = EvaluationId> {
        self.events.iter().filter_map(Event::as_evaluation).filter_map(|event| {
            if let evaluation::Event::Joined { evaluation, .. } = event { Some(*evaluation) } else { None }
        })
    }
}

impl Aggregate {
    /// Returns the subject of the aggregate's entries, in a cluster with `shards` shards.
    #[must_use]
    pub fn subject(&self, shards: u16) -> Subject {
        match self {
            Self::Process { guid, .. } => Subject::of_process(guid, shards),
            Self::Task { guid, .. } => Subject::of_task(guid, shards),
            Self::Periodic { guid, .. } => Subject::of_periodic(guid, shards),
            Self::Parameterised { guid, .. } => Subject::of_parameterised(guid, shards),
            Self::Domain(domain) => Subject::Domain(domain.clone()),
            Self::Cell(cell) => Subject::Cell(cell.clone()),
            Self::Cluster => Subject::Cluster,
        }
    }

    /// Returns the domain of the aggregate. `None` for a cell and for the cluster.
    #[must_use]
    pub const fn domain(&self) -> Option<&Domain> {
        match self {
            Self::Process { domain, .. }
            | Self::Task { domain, .. }
            | Self::Periodic { domain, .. }
            | Self::Parameterised { domain, .. }
            | Self::Domain(domain) => Some(domain),
            Self::Cell(_) | Self::Cluster => None,
        }
    }

    /// Returns the epoch of the aggregate. `None` if the aggregate has no epochs.
    #[must_use]
    pub const fn epoch(&self) -> Option<Epoch> {
        match self {
            Self::Process { epoch, .. }
            | Self::Task { epoch, .. }
            | Self::Periodic { epoch, .. }
            | Self::Parameterised { epoch, .. } => Some(*epoch),
            Self::Domain(_) | Self::Cell(_) | Self::Cluster => None,
        }
    }
}

/// Writes the aggregate in the form that readers of events see: `lrp:GUID`, `task:GUID`, `periodic:GUID`,
/// `parameterised:GUID`, `domain:NAME`, `cell:ID` or `cluster`.
impl fmt::Display for Aggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { guid, .. } => write!(f, "lrp:{guid}"),
            Self::Task { guid, .. } => write!(f, "task:{guid}"),
            Self::Periodic { guid, .. } => write!(f, "periodic:{guid}"),
            Self::Parameterised { guid, .. } => write!(f, "parameterised:{guid}"),
            Self::Domain(domain) => write!(f, "domain:{domain}"),
            Self::Cell(cell) => write!(f, "cell:{cell}"),
            Self::Cluster => f.write_str("cluster"),
        }
    }
}
