//! A command for one aggregate, from its receipt to the log entry that records it.

use std::time::Duration;

use projections::Due;
use schemas::container::Epoch;
use schemas::message::Envelope;
use schemas::names::{
    CellId, ClusterId, Domain, Incarnation, ParameterisedGuid, PeriodicGuid, ProcessGuid, ServiceId, TaskGuid,
};
use schemas::preemption::Eviction;
use schemas::quota::LimitDomain;
use schemas::stamp::Actor;
use schemas::subject::Subject;
use schemas::{Refusal, Timestamp, cell, cluster, parameterised, periodic, process, task};

/// Result of a command: the version of the aggregate after the command, or the refusal.
pub(crate) type Verdict = Result<u64, Refusal>;

/// A command in the queue, with the metadata that its decision records.
#[derive(Clone, Debug)]
pub(crate) struct QueuedCommand {
    pub(crate) requester: Requester,
    /// Actor that the decision records.
    pub(crate) actor: Actor,
    /// Request id, timeout, expected version, reason and trace.
    pub(crate) envelope: Envelope,
    /// Time at which this BBS received the command, on the steady clock. The command's timeout starts at this
    /// time.
    pub(crate) received: Timestamp,
    /// Hash of the command's content, which identifies a repeated request; `None` if the request has no id.
    pub(crate) digest: Option<String>,
    /// Expected epoch of the target guid; `None` if the command is not checked against an epoch.
    pub(crate) epoch: Option<Epoch>,
    /// Term of the auctioneer that sent the command; `None` for commands that do not require a leader.
    pub(crate) term: Option<u64>,
    pub(crate) command: AggregateCommand,
}

/// Destination of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    /// The sender of a message with a single command.
    Single(u64),
    /// The sender of a message with many commands.
    Part {
        /// Token of the message.
        token: u64,
        /// Index of the command in the message, from 0.
        part: usize,
    },
    /// The BBS itself; no reply is sent.
    Own,
}

/// Content of a command for one aggregate.
#[derive(Clone, Debug)]
pub(crate) enum AggregateCommand {
    Process(ProcessGuid, Box<process::Command>),
    Task(TaskGuid, Box<task::Command>),
    Periodic(PeriodicGuid, Box<periodic::Command>),
    Parameterised(ParameterisedGuid, Box<parameterised::Command>),
    /// Marks a domain as fresh for this duration, or without a limit if `None`.
    Refresh(Domain, Option<Duration>),
    /// Records the changes that a heartbeat of a cell reports.
    RecordPresence(CellId, Box<cell::HeartbeatState>),
    /// Declares a cell lost, with the reason.
    DeclareLost(CellId, String),
    /// Checks whether a rep may act for a cell. No decision is made. The answer is confirmed against the
    /// cell's last entry in the journal.
    Attach(CellId),
    /// Records that this incarnation of a cell's rep, one run of its program, has left after an evacuation.
    RecordLeave(CellId, Incarnation),
    /// Command of an operator for a cell.
    Cell(CellId, cell::Command),
    /// Command of an operator that concerns the whole cluster.
    Cluster(cluster::Command),
    /// Changes quotas of a domain, on behalf of an operator.
    Limit(LimitDomain),
    /// Assigns ordinals to new cells and frees the ordinals of forgotten cells.
    AssignOrdinals,
    /// Elects a leader. If the journal has no cluster yet, `found` creates it first.
    Lead {
        role: cluster::Role,
        id: ServiceId,
        term: u64,
        /// Id and shard count of a new cluster; `None` if the candidate must not found one.
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

    /// Returns `true` if the BBS issued this command itself.
    pub(crate) fn is_own(&self) -> bool {
        self.requester == Requester::Own
    }

    /// Returns the target if this is a convergence command of the BBS itself.
    pub(crate) fn convergence_target(&self) -> Option<Due> {
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
                | AggregateCommand::RecordPresence(..)
                | AggregateCommand::DeclareLost(..)
                | AggregateCommand::Attach(_)
                | AggregateCommand::RecordLeave(..)
                | AggregateCommand::Cell(..)
                | AggregateCommand::Cluster(_)
                | AggregateCommand::Limit(_)
                | AggregateCommand::AssignOrdinals
                | AggregateCommand::Lead { .. },
            )
            | (Requester::Single(_) | Requester::Part { .. }, _) => None,
        }
    }

    /// Returns `true` if this command converges a target for which several decisions may be due. The target
    /// is a process, or a parameterised task with several dispatches to launch.
    pub(crate) fn converges_several(&self) -> bool {
        matches!(self.convergence_target(), Some(Due::Process(_) | Due::Parameterised(_)))
    }

    /// Returns `true` if the command changes the number of shards.
    pub(crate) const fn is_reshard(&self) -> bool {
        matches!(self.command, AggregateCommand::Cluster(cluster::Command::Reshard(_)))
    }

    /// Returns `true` if the command declares a cell lost.
    pub(crate) const fn is_loss(&self) -> bool {
        self.command.lost_cell().is_some()
    }
}

impl AggregateCommand {
    /// Returns the command that converges a process, task, periodic task or parameterised task.
    pub(crate) fn converge(due: Due) -> Self {
        match due {
            Due::Process(guid) => Self::Process(guid, Box::new(process::Command::Converge)),
            Due::Task(guid) => Self::Task(guid, Box::new(task::Command::Converge)),
            Due::Periodic(guid) => Self::Periodic(guid, Box::new(periodic::Command::Converge)),
            Due::Parameterised(guid) => Self::Parameterised(guid, Box::new(parameterised::Command::Converge)),
        }
    }

    /// Returns the subject of the command's aggregate in a cluster with this many shards.
    pub(crate) fn subject(&self, shards: u16) -> Subject {
        match self {
            Self::Process(guid, _) => Subject::of_process(guid, shards),
            Self::Task(guid, _) => Subject::of_task(guid, shards),
            Self::Periodic(guid, _) => Subject::of_periodic(guid, shards),
            Self::Parameterised(guid, _) => Subject::of_parameterised(guid, shards),
            Self::Refresh(domain, _) | Self::Limit(LimitDomain { domain, .. }) => {
                Subject::Domain(domain.clone())
            }
            Self::RecordPresence(cell, _)
            | Self::DeclareLost(cell, _)
            | Self::Attach(cell)
            | Self::RecordLeave(cell, _)
            | Self::Cell(cell, _) => Subject::Cell(cell.clone()),
            Self::Cluster(_) | Self::AssignOrdinals | Self::Lead { .. } => Subject::Cluster,
        }
    }

    /// Returns `true` if the command is a request about an evaluation.
    pub(crate) fn targets_evaluation(&self) -> bool {
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
            | Self::RecordPresence(..)
            | Self::DeclareLost(..)
            | Self::Attach(_)
            | Self::RecordLeave(..)
            | Self::Cell(..)
            | Self::Cluster(_)
            | Self::Limit(_)
            | Self::AssignOrdinals
            | Self::Lead { .. } => false,
        }
    }

    /// Returns the eviction if the command stops an instance or task for higher-priority work.
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

    /// Returns the cell that the command declares lost.
    pub(crate) const fn lost_cell(&self) -> Option<&CellId> {
        match self {
            Self::DeclareLost(cell, _) => Some(cell),
            Self::Process(..)
            | Self::Task(..)
            | Self::Periodic(..)
            | Self::Parameterised(..)
            | Self::Refresh(..)
            | Self::RecordPresence(..)
            | Self::Attach(_)
            | Self::RecordLeave(..)
            | Self::Cell(..)
            | Self::Cluster(_)
            | Self::Limit(_)
            | Self::AssignOrdinals
            | Self::Lead { .. } => None,
        }
    }
}
