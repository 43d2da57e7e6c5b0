//! A command for one aggregate, from its receipt to the log entry that records it.

use projections::Due;
use schemas::container::Epoch;
use schemas::message::Envelope;
use schemas::names::{CellId, Domain, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid};
use schemas::stamp::Actor;
use schemas::{Refusal, Timestamp, cluster, parameterised, periodic, process, task};

use crate::aggregates::{CellCommand, ClusterCommand, DomainCommand, Order, Target};

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
    Process(Order<ProcessGuid, process::Command>),
    Task(Order<TaskGuid, task::Command>),
    Periodic(Order<PeriodicGuid, periodic::Command>),
    Parameterised(Order<ParameterisedGuid, parameterised::Command>),
    Domain(Order<Domain, DomainCommand>),
    Cell(Order<CellId, CellCommand>),
    Cluster(ClusterCommand),
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
        self.command.target().convergence().filter(|_| self.is_own())
    }

    /// Returns `true` if this command converges a target for which several decisions may be due. The target
    /// is a process, or a parameterised task with several dispatches to launch.
    pub(crate) fn converges_several(&self) -> bool {
        matches!(self.convergence_target(), Some(Due::Process(_) | Due::Parameterised(_)))
    }

    /// Returns `true` if the command changes the number of shards.
    pub(crate) fn is_reshard(&self) -> bool {
        matches!(
            self.command,
            AggregateCommand::Cluster(ClusterCommand::Operator(cluster::Command::Reshard(_)))
        )
    }

    /// Returns `true` if the command declares a cell lost.
    pub(crate) fn is_loss(&self) -> bool {
        self.command.lost_cell().is_some()
    }
}

impl AggregateCommand {
    /// Returns the command that converges a process, task, periodic task or parameterised task.
    pub(crate) fn converge(due: Due) -> Self {
        match due {
            Due::Process(guid) => Self::Process(Order::new(guid, process::Command::Converge)),
            Due::Task(guid) => Self::Task(Order::new(guid, task::Command::Converge)),
            Due::Periodic(guid) => Self::Periodic(Order::new(guid, periodic::Command::Converge)),
            Due::Parameterised(guid) => {
                Self::Parameterised(Order::new(guid, parameterised::Command::Converge))
            }
        }
    }

    /// Returns the implementation for the kind of aggregate.
    pub(crate) fn target(&self) -> &dyn Target {
        match self {
            Self::Process(order) => order,
            Self::Task(order) => order,
            Self::Periodic(order) => order,
            Self::Parameterised(order) => order,
            Self::Domain(order) => order,
            Self::Cell(order) => order,
            Self::Cluster(command) => command,
        }
    }

    /// Returns the cell that the command declares lost.
    pub(crate) fn lost_cell(&self) -> Option<&CellId> {
        let Self::Cell(Order { key, command }) = self else { return None };
        matches!(**command, CellCommand::DeclareLost(_)).then_some(key)
    }
}
