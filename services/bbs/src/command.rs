//! A command for one aggregate, on its way from whoever asked to the entry that records it.

use std::time::Duration;

use projections::Due;
use schemas::container::Epoch;
use schemas::entry::Actor;
use schemas::message::Envelope;
use schemas::names::{
    CellId, ClusterId, Domain, Incarnation, ParameterisedGuid, PeriodicGuid, ProcessGuid, ServiceId, TaskGuid,
};
use schemas::preemption::Eviction;
use schemas::quota::LimitDomain;
use schemas::subject::Subject;
use schemas::{Refusal, Timestamp, cell, cluster, parameterised, periodic, process, task};

/// What became of a command: the version of the aggregate after it, or why it is refused.
pub(crate) type Verdict = Result<u64, Refusal>;

/// A command that waits to be decided, with everything that its decision will say of it.
#[derive(Clone, Debug)]
pub(crate) struct QueuedCommand {
    pub(crate) requester: Requester,
    /// Who asked, as the decision will say.
    pub(crate) actor: Actor,
    /// Request id, patience, expected version, reason, trace.
    pub(crate) envelope: Envelope,
    /// When this BBS received it, by time that never goes back: its patience counts from there.
    pub(crate) received: Timestamp,
    /// A hash of what is asked, by which a repeated request is recognised; only where the request has an id.
    pub(crate) digest: Option<String>,
    /// The epoch of the guid that it speaks of, where the command doesn't say it itself.
    pub(crate) epoch: Option<Epoch>,
    /// The term in which an auctioneer said it; none: nobody who has to lead said it.
    pub(crate) term: Option<u64>,
    pub(crate) command: AggregateCommand,
}

/// Who waits for a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    /// Somebody who asked for one thing in a message.
    Single(u64),
    /// Somebody who asked for many things in one message.
    Part {
        /// The message's token.
        token: u64,
        /// Which of the message's parts this is, from 0 on.
        part: usize,
    },
    /// The BBS itself: nobody waits.
    Own,
}

/// What is asked of one aggregate.
#[derive(Clone, Debug)]
pub(crate) enum AggregateCommand {
    Process(ProcessGuid, Box<process::Command>),
    Task(TaskGuid, Box<task::Command>),
    Periodic(PeriodicGuid, Box<periodic::Command>),
    Parameterised(ParameterisedGuid, Box<parameterised::Command>),
    /// A domain is fresh for this long; none: without end.
    Refresh(Domain, Option<Duration>),
    /// A heartbeat told something new of a cell.
    Seen(CellId, Box<cell::Seen>),
    /// A cell is lost, for this reason.
    Lost(CellId, String),
    /// A rep asks whether it may speak for a cell: nothing is decided, and the answer is confirmed to stand at the end of
    /// what the log says of the cell.
    Attach(CellId),
    /// This run of a cell's rep has left: its evacuation is over.
    Left(CellId, Incarnation),
    /// An operator asks something of a cell.
    Cell(CellId, cell::Command),
    /// Command of an operator that concerns the whole cluster.
    Cluster(cluster::Command),
    /// An operator changes quotas of a domain.
    Limit(LimitDomain),
    /// Cells that came get an ordinal, and those of forgotten cells are free.
    Number,
    /// Somebody campaigns; a journal without a cluster is founded first.
    Lead {
        role: cluster::Role,
        id: ServiceId,
        term: u64,
        /// The id that a new cluster gets, and the number of its shards.
        found: Option<(ClusterId, u16)>,
    },
}

impl QueuedCommand {
    pub(crate) fn new(requester: Requester, actor: Actor, command: AggregateCommand) -> Self {
        Self {
            requester,
            actor,
            envelope: Envelope::default(),
            received: Timestamp(0),
            digest: None,
            epoch: None,
            term: None,
            command,
        }
    }

    /// Whether the BBS asks this of its own accord.
    pub(crate) fn is_own(&self) -> bool {
        self.requester == Requester::Own
    }

    /// What the BBS converges with this of its own accord, if that is what it is.
    pub(crate) fn converges(&self) -> Option<Due> {
        match (self.requester, &self.command) {
            (Requester::Own, AggregateCommand::Process(guid, command)) => {
                matches!(**command, process::Command::Converge).then(|| Due::Process(guid.clone()))
            }
            (Requester::Own, AggregateCommand::Task(guid, command)) => {
                matches!(**command, task::Command::Converge).then(|| Due::Task(guid.clone()))
            }
            (Requester::Own, AggregateCommand::Periodic(guid, command)) => {
                matches!(**command, periodic::Command::Converge).then(|| Due::Periodic(guid.clone()))
            }
            (Requester::Own, AggregateCommand::Parameterised(guid, command)) => {
                let converges = matches!(**command, parameterised::Command::Converge);
                converges.then(|| Due::Parameterised(guid.clone()))
            }
            (
                Requester::Own,
                AggregateCommand::Refresh(..)
                | AggregateCommand::Seen(..)
                | AggregateCommand::Lost(..)
                | AggregateCommand::Attach(_)
                | AggregateCommand::Left(..)
                | AggregateCommand::Cell(..)
                | AggregateCommand::Cluster(_)
                | AggregateCommand::Limit(_)
                | AggregateCommand::Number
                | AggregateCommand::Lead { .. },
            )
            | (Requester::Single(_) | Requester::Part { .. }, _) => None,
        }
    }

    /// Whether the BBS converges with this what may have several things due, each with a decision of its own: a process,
    /// or a parameterised task of which several dispatches may be launched.
    pub(crate) fn converges_several(&self) -> bool {
        matches!(self.converges(), Some(Due::Process(_) | Due::Parameterised(_)))
    }

    /// Returns `true` if this changes the number of shards.
    pub(crate) const fn reshards(&self) -> bool {
        matches!(self.command, AggregateCommand::Cluster(cluster::Command::Reshard(_)))
    }

    /// Whether this gives up a cell.
    pub(crate) const fn is_loss(&self) -> bool {
        self.command.lost_cell().is_some()
    }
}

impl AggregateCommand {
    /// What converges a process, task, periodic or parameterised task.
    pub(crate) fn converge(due: Due) -> Self {
        match due {
            Due::Process(guid) => Self::Process(guid, Box::new(process::Command::Converge)),
            Due::Task(guid) => Self::Task(guid, Box::new(task::Command::Converge)),
            Due::Periodic(guid) => Self::Periodic(guid, Box::new(periodic::Command::Converge)),
            Due::Parameterised(guid) => Self::Parameterised(guid, Box::new(parameterised::Command::Converge)),
        }
    }

    /// The subject of its aggregate, in a cluster of so many shards.
    pub(crate) fn subject(&self, shards: u16) -> Subject {
        match self {
            Self::Process(guid, _) => Subject::of_process(guid, shards),
            Self::Task(guid, _) => Subject::of_task(guid, shards),
            Self::Periodic(guid, _) => Subject::of_periodic(guid, shards),
            Self::Parameterised(guid, _) => Subject::of_parameterised(guid, shards),
            Self::Refresh(domain, _) | Self::Limit(LimitDomain { domain, .. }) => {
                Subject::Domain(domain.clone())
            }
            Self::Seen(cell, _)
            | Self::Lost(cell, _)
            | Self::Attach(cell)
            | Self::Left(cell, _)
            | Self::Cell(cell, _) => Subject::Cell(cell.clone()),
            Self::Cluster(_) | Self::Number | Self::Lead { .. } => Subject::Cluster,
        }
    }

    /// Whether it asks something of an evaluation.
    pub(crate) fn is_of_evaluation(&self) -> bool {
        match self {
            Self::Process(_, command) => matches!(
                **command,
                process::Command::Fail(_) | process::Command::Unanswered { .. } | process::Command::Retry(_)
            ),
            Self::Task(_, command) => matches!(
                **command,
                task::Command::Fail(_) | task::Command::Unanswered { .. } | task::Command::Retry(_)
            ),
            Self::Periodic(..)
            | Self::Parameterised(..)
            | Self::Refresh(..)
            | Self::Seen(..)
            | Self::Lost(..)
            | Self::Attach(_)
            | Self::Left(..)
            | Self::Cell(..)
            | Self::Cluster(_)
            | Self::Limit(_)
            | Self::Number
            | Self::Lead { .. } => false,
        }
    }

    /// What is to stop for something more urgent, if that is asked.
    pub(crate) fn eviction(&self) -> Option<&Eviction> {
        if let Self::Process(_, command) = self
            && let process::Command::Evict(eviction) = &**command
        {
            return Some(eviction);
        }
        if let Self::Task(_, command) = self
            && let task::Command::Evict(eviction) = &**command
        {
            return Some(eviction);
        }
        None
    }

    /// The cell that this gives up, if it does.
    pub(crate) const fn lost_cell(&self) -> Option<&CellId> {
        match self {
            Self::Lost(cell, _) => Some(cell),
            Self::Process(..)
            | Self::Task(..)
            | Self::Periodic(..)
            | Self::Parameterised(..)
            | Self::Refresh(..)
            | Self::Seen(..)
            | Self::Attach(_)
            | Self::Left(..)
            | Self::Cell(..)
            | Self::Cluster(_)
            | Self::Limit(_)
            | Self::Number
            | Self::Lead { .. } => None,
        }
    }
}
