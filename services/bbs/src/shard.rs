//! Group commit: for each subject of the journal a queue of commands and at most one entry in flight.
//!
//! Commands that arrive while an entry is in flight wait and go into the next one. What was decided is true when the
//! follower delivers it: that, and not the journal's answer to the append, settles the flight. An append of which the
//! outcome is unknown is settled by reading the subject's last entry, and repeated as it is: compare-and-set lets only
//! one of the two in.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use projections::Due;
use schemas::container::Epoch;
use schemas::names::{CellId, Incarnation, ProcessGuid, TaskGuid};
use schemas::subject::{Position, Subject};
use schemas::{Decision, Entry, Refusal, Timestamp, cell, cluster, process, task};

use schemas::entry::Actor;
use schemas::message::Envelope;

/// A command for one aggregate, with everything that its decision will say of it.
#[derive(Clone, Debug)]
pub struct Item {
    /// Who waits for the answer.
    pub origin: Origin,
    /// Who asked.
    pub actor: Actor,
    /// Request id, deadline, expected version, reason, trace.
    pub envelope: Envelope,
    /// What is asked, as a repeated request is known by; only where the request has an id.
    pub digest: Option<String>,
    /// The life of the guid that it speaks of, where the command doesn't say it itself.
    pub epoch: Option<Epoch>,
    /// What is asked.
    pub command: Command,
}

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Somebody who asked one thing.
    Asker(u64),
    /// Somebody who asked many things in one message, and this is one of them.
    Part {
        /// Names the message.
        asker: u64,
        /// Which of its parts.
        part: usize,
    },
    /// The BBS itself: nobody waits.
    Own,
}

/// A command for one aggregate.
#[derive(Clone, Debug)]
pub enum Command {
    /// For a process.
    Process(ProcessGuid, Box<process::Command>),
    /// For a task.
    Task(TaskGuid, Box<task::Command>),
    /// A domain is fresh for a time, or for ever.
    Refresh(schemas::names::Domain, Option<std::time::Duration>),
    /// A heartbeat told something new of a cell.
    Seen(CellId, Box<cell::Seen>),
    /// A cell is lost.
    Lost(CellId, String),
    /// A run of a cell's rep has left: its evacuation is over.
    Left(CellId, Incarnation),
    /// An operator asks something of a cell.
    Cell(CellId, cell::Command),
    /// Somebody wants to lead; a journal without a cluster is founded first.
    Lead {
        /// In which role.
        role: cluster::Role,
        /// Who.
        id: schemas::names::ServiceId,
        /// In which term.
        term: u64,
        /// The id that a new cluster gets, and its shards.
        found: Option<(schemas::names::ClusterId, u16)>,
    },
}

/// What became of a command: the aggregate's version, or no.
pub type Verdict = Result<u64, Refusal>;

/// An entry that was sent to the journal.
#[derive(Clone, Debug)]
pub struct Flight {
    /// The entry.
    pub entry: Arc<Entry>,
    /// As it was sent.
    pub bytes: Bytes,
    /// The position that the subject's last entry must have.
    pub expected: Position,
    /// What is decided again if somebody else was first.
    pub items: Vec<Item>,
    /// What each item is answered when the entry is in the journal.
    pub verdicts: Vec<Verdict>,
}

/// One subject: what waits and what is in flight.
#[derive(Clone, Debug, Default)]
pub struct Shard {
    /// What waits, the oldest first.
    pub queue: VecDeque<Item>,
    /// What was sent to the journal and is not settled.
    pub flight: Option<Flight>,
    /// The position of the subject's last entry, as the follower delivered it.
    pub last: Position,
    /// The time of its last decision.
    pub last_at: Timestamp,
    /// The version of its last decision, which counts where the subject holds one aggregate.
    pub version: u64,
}

/// What the follower's delivery of an entry means for a flight.
#[derive(Debug)]
pub enum Landing {
    /// Nothing was in flight.
    None,
    /// It is ours: the flight is settled.
    Ours(Flight),
    /// Somebody else was first: ours can never be stored, everything in it is decided again.
    Overtaken(Flight),
}

impl Shard {
    /// Takes notice of a delivered entry, which is the one in flight or isn't.
    pub fn delivered(&mut self, position: Position, ours: bool, last: Option<&Decision>) -> Landing {
        self.last = position;
        if let Some(last) = last {
            self.last_at = self.last_at.max(last.at);
            self.version = self.version.max(last.version);
        }
        match self.flight.take() {
            None => Landing::None,
            Some(flight) if ours => Landing::Ours(flight),
            Some(flight) => Landing::Overtaken(flight),
        }
    }

    /// Whether a batch can be decided now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.flight.is_none() && !self.queue.is_empty()
    }
}

impl Item {
    /// Whether the BBS looks by itself what is due at a process.
    #[must_use]
    pub fn looks_at_process(&self) -> bool {
        matches!(self.suspect(), Some(Due::Process(_)))
    }

    /// The process or task that the BBS looks at by itself, if that is what this is.
    #[must_use]
    pub fn suspect(&self) -> Option<Due> {
        if self.origin != Origin::Own {
            return None;
        }
        match &self.command {
            Command::Process(guid, command) if matches!(**command, process::Command::Converge) => {
                Some(Due::Process(guid.clone()))
            }
            Command::Task(guid, command) if matches!(**command, task::Command::Converge) => {
                Some(Due::Task(guid.clone()))
            }
            Command::Process(..)
            | Command::Task(..)
            | Command::Refresh(..)
            | Command::Seen(..)
            | Command::Lost(..)
            | Command::Left(..)
            | Command::Cell(..)
            | Command::Lead { .. } => None,
        }
    }
}

impl Command {
    /// The subject of its aggregate.
    #[must_use]
    pub fn subject(&self, shards: u16) -> Subject {
        match self {
            Self::Process(guid, _) => Subject::of_process(guid, shards),
            Self::Task(guid, _) => Subject::of_task(guid, shards),
            Self::Refresh(domain, _) => Subject::Domain(domain.clone()),
            Self::Seen(cell, _) | Self::Lost(cell, _) | Self::Left(cell, _) | Self::Cell(cell, _) => {
                Subject::Cell(cell.clone())
            }
            Self::Lead { .. } => Subject::Cluster,
        }
    }
}
