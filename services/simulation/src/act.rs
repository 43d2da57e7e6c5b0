//! Acts of a run: commands of clients and operators, and faults.

use schemas::evaluation::Trigger;
use schemas::names::{Domain, ProcessGuid};
use schemas::refusal::Code;
use std::time::Duration;

use crate::shape::Node;
use crate::work::Ask;

/// Expected answer to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    Refused(Code),
}

/// Act of a client, an operator or a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// A client sends a command, and repeats it until it is answered or too old.
    Ask {
        domain: Domain,
        ask: Ask,
        /// Time after which the command must not be carried out.
        patience: Duration,
        /// Expected answer, if a story sets one.
        answer: Option<Answer>,
    },
    /// An operator evacuates a cell.
    Evacuate(usize),
    /// An operator cordons a cell.
    Cordon(usize),
    /// An operator uncordons a cell.
    Uncordon(usize),
    /// An operator lets the cluster forget a lost cell.
    Forget(usize),
    /// An operator switches preemption on or off.
    Preemption(bool),
    /// An operator changes the number of shards.
    Reshard(u16),
    /// A client retries the newest evaluation of a process or task with this trigger.
    Retry(ProcessGuid, Trigger),
    /// A service is killed and starts again later. Containers keep running.
    Kill { node: Node, away: Duration },
    /// The machine of a cell dies with all containers. An empty machine replaces it later.
    Lose {
        cell: usize,
        /// Time until the replacement. `None` if the cell never comes back.
        away: Option<Duration>,
    },
    /// A node is cut off from the bus.
    CutOff {
        node: Node,
        time: Duration,
        /// `true` if the node is also cut off from the journal.
        journal_too: bool,
        /// `true` if the node notices.
        notices: bool,
    },
    /// Messages between two groups of nodes are lost.
    Part {
        /// Senders.
        from: Vec<Node>,
        /// Receivers.
        to: Vec<Node>,
        /// `true` if messages in the other direction are lost too.
        both_ways: bool,
        time: Duration,
    },
    /// A node is paused, and handles all its inputs afterwards.
    Pause { node: Node, time: Duration },
    /// The log reader of a node stops.
    Lag { node: Node, time: Duration },
    /// The journal does not answer.
    Dark(Duration),
    /// Every heartbeat is lost.
    NoHeartbeats(Duration),
    /// The heartbeats of a cell and the probes to it are lost.
    Unheard { cell: usize, time: Duration },
    /// The clock of a node is set.
    Clock {
        node: Node,
        /// Step of the clock, negative for back.
        millis: i64,
    },
    /// The rep of a cell receives container events seconds late.
    Slow { cell: usize, time: Duration },
    /// A cell cannot create containers, and its self-test fails.
    Sick { cell: usize, time: Duration },
    /// A cell cannot prepare containers, so its rep refuses work, and its self-test fails.
    Full { cell: usize, time: Duration },
    /// Another program writes a message that is not an entry.
    Malformed,
    /// The machines of the journal lose power at once. Without sync the last entries are lost.
    PowerCut {
        /// Number of entries that were not synced.
        unsynced: usize,
    },
}

impl Act {
    /// Returns the kind of the act as text.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Ask { .. } => "requests of clients",
            Self::Evacuate(_) => "evacuations",
            Self::Cordon(_) => "cells cordoned",
            Self::Uncordon(_) => "evacuations taken back",
            Self::Forget(_) => "cells to be forgotten",
            Self::Preemption(_) => "switches of preemption",
            Self::Reshard(_) => "changes of the number of shards",
            Self::Retry(..) => "evaluations to be tried again",
            Self::Kill { .. } => "kills",
            Self::Lose { away: Some(_), .. } => "machines lost for a while",
            Self::Lose { away: None, .. } => "machines lost for ever",
            Self::CutOff { journal_too: false, .. } => "nodes cut off from the bus",
            Self::CutOff { journal_too: true, .. } => "nodes cut off from bus and journal",
            Self::Part { both_ways: true, .. } => "partitions",
            Self::Part { both_ways: false, .. } => "one-way partitions",
            Self::Pause { .. } => "pauses",
            Self::Lag { .. } => "followers that stand still",
            Self::Dark(_) => "blackouts of the journal",
            Self::NoHeartbeats(_) => "times without any heartbeat",
            Self::Unheard { .. } => "times without one cell's heartbeats",
            Self::Clock { .. } => "steps of a clock",
            Self::Slow { .. } => "slow cells",
            Self::Sick { .. } => "cells that can't make containers",
            Self::Full { .. } => "cells that can't prepare containers",
            Self::Malformed => "corrupt entries",
            Self::PowerCut { .. } => "power cuts",
        }
    }
}
