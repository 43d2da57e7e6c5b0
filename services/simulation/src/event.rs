//! Messages, and events of nodes and of the cluster.

use bbs::AppendFailure;
use bytes::Bytes;
use projections::Query;
use schemas::codec::Form;
use schemas::container::{Container, Epoch};
use schemas::message::{Answer, PerformId, ServiceStatus};
use schemas::names::{CellId, Domain, EntryId, InstanceGuid, RequestId, TaskGuid};
use schemas::subject::{Position, Subject};
use schemas::{Refusal, Timestamp, cell, codec};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

use crate::act::Act;
use crate::requests::ClientRequest;
use crate::shape::{Life, Node};

/// Timeout of a question.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Message on the bus. The answer to a message with a token names the token.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) token: Option<u64>,
    pub(crate) bytes: Bytes,
}

/// Kind of a message, from its subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Command of a client: its domain, noun and verb.
    Client(Domain, &'static str, &'static str),
    /// Command of an operator about a cell.
    Operator(CellId, cell::Command),
    /// Command of an operator about the cluster.
    Cluster(schemas::cluster::Command),
    /// Request of a rep to act for its cell.
    Attach(CellId),
    /// Notification that the rep of a cell leaves.
    Leave(CellId),
    /// Query of a client.
    Query(Table),
    /// Report of a rep, under the name of a cell.
    Report(CellId),
    Records,
    Outcomes,
    Lead,
    Perform,
    Probe,
    Evacuate,
    Uncordon,
    Stop,
    Cancel,
    Heartbeat,
    Beat,
}

/// Question that waits for its answer.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// Node that asked. `None` for a client.
    pub(crate) from: Option<Life>,
    pub(crate) about: About,
}

/// Context of a question.
#[derive(Clone, Debug)]
pub(crate) enum About {
    Request(Box<ClientRequest>),
    Operator,
    Attach(usize),
    /// Forged report under the name of another cell.
    Forged(CellId),
    /// Reused request id.
    Reused(RequestId),
    /// Read of a write, with the position and the version that the answer must have at least.
    Show {
        at_least: Position,
        version: u64,
    },
    Read(Box<Read>),
    Report(u64),
    Records(u64),
    Outcomes(u64),
    Lead,
    Perform(CellId, PerformId),
    Probe(CellId),
}

/// Input of a node.
#[derive(Clone, Debug)]
pub(crate) enum NodeEvent {
    Follow,
    Alarm,
    Turn,
    NotAppended {
        subject: Subject,
        entry: EntryId,
        why: AppendFailure,
    },
    Last {
        subject: Subject,
        last: Last,
    },
    Message(Message),
    /// Answer to a question. `None` after the timeout.
    Answer {
        token: u64,
        bytes: Option<Bytes>,
    },
    Container(Container),
    Containers(Vec<Container>),
    SelfTested(Result<(), String>),
    Prepared(Vec<(InstanceGuid, Result<(), rep::Unprepared>)>),
    Called {
        task: TaskGuid,
        epoch: Epoch,
        called: bbs::callbacks::CallbackResult,
    },
    Clock(Clock),
    Disconnected,
    Reconnected,
}

/// Result of reading the last entry of a subject.
pub(crate) type Last = Result<Option<(Position, Option<EntryId>)>, String>;

/// Event around the nodes.
#[derive(Clone, Debug)]
pub(crate) enum ClusterEvent {
    Restart(Node),
    Replace(usize),
    Append(Box<Append>),
    Containers(usize),
    Request(Box<ClientRequest>),
    ClientAnswer {
        token: u64,
        bytes: Option<Bytes>,
    },
    /// An old copy of a message arrives.
    OldCopy(Node, Message),
    /// A node reaches the bus or the journal again.
    Heal,
    /// An act of the plan happens.
    Act(Box<Act>),
    /// Due work is checked.
    CheckDue,
    /// Clocks are compared.
    CompareClocks,
}

/// Append on its way.
#[derive(Clone, Debug)]
pub(crate) struct Append {
    pub(crate) from: Life,
    pub(crate) subject: Subject,
    pub(crate) expected: Position,
    pub(crate) entry: EntryId,
    pub(crate) bytes: Bytes,
    /// `true` if the sender gave up.
    pub(crate) given_up: bool,
}

/// Clock that a BBS compares with its own.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    Server(Timestamp),
    Alive(ServiceStatus),
}

/// List or single item of a query, from its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Lrps,
    Lrp,
    Instances,
    Instance,
    EndedInstances,
    Tasks,
    Task,
    EndedTasks,
    Periodics,
    Periodic,
    Parameterised,
    ParameterisedOne,
    Domains,
    DomainUse,
    Cells,
    Cell,
    Evaluations,
    Evaluation,
    Cluster,
    Status,
}

impl Table {
    pub(crate) const ALL: [Self; 20] = [
        Self::Lrps,
        Self::Lrp,
        Self::Instances,
        Self::Instance,
        Self::EndedInstances,
        Self::Tasks,
        Self::Task,
        Self::EndedTasks,
        Self::Periodics,
        Self::Periodic,
        Self::Parameterised,
        Self::ParameterisedOne,
        Self::Domains,
        Self::DomainUse,
        Self::Cells,
        Self::Cell,
        Self::Evaluations,
        Self::Evaluation,
        Self::Cluster,
        Self::Status,
    ];

    /// Decodes a query.
    pub(crate) fn query(self, bytes: &Bytes) -> Query {
        match self {
            Self::Lrps => Query::Lrps(must(bytes)),
            Self::Lrp => Query::Lrp(must(bytes)),
            Self::Instances => Query::Instances(must(bytes)),
            Self::Instance => Query::Instance(must(bytes)),
            Self::EndedInstances => Query::EndedInstances(must(bytes)),
            Self::EndedTasks => Query::EndedTasks(must(bytes)),
            Self::Tasks => Query::Tasks(must(bytes)),
            Self::Task => Query::Task(must(bytes)),
            Self::Periodics => Query::Periodics(must(bytes)),
            Self::Periodic => Query::Periodic(must(bytes)),
            Self::Parameterised => Query::Parameterised(must(bytes)),
            Self::ParameterisedOne => Query::ParameterisedOne(must(bytes)),
            Self::Domains => Query::Domains(must(bytes)),
            Self::DomainUse => Query::DomainUse(must(bytes)),
            Self::Cells => Query::Cells(must(bytes)),
            Self::Cell => Query::Cell(must(bytes)),
            Self::Evaluations => Query::Evaluations(must(bytes)),
            Self::Evaluation => Query::Evaluation(must(bytes)),
            Self::Cluster => Query::Cluster(must(bytes)),
            Self::Status => Query::Status(must(bytes)),
        }
    }
}

/// A query of a reader.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) table: Table,
    pub(crate) bytes: Bytes,
    pub(crate) query: Query,
    /// BBS that answers all pages of a list.
    pub(crate) bbs: Node,
    pub(crate) is_later_page: bool,
}

/// Encodes a message, every second one as JSON.
pub(crate) fn bytes_of<T: Serialize>(message: &T) -> Bytes {
    let postcard = codec::encode(Form::Postcard, message);
    if postcard.len().is_multiple_of(2) { postcard.into() } else { codec::encode(Form::Json, message).into() }
}

pub(crate) fn must<T: DeserializeOwned>(bytes: &Bytes) -> T {
    codec::decode(bytes).expect("what a service sent decodes").0
}

pub(crate) fn decoded<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, Refusal> {
    Result::from(must::<Answer<T>>(bytes))
}
