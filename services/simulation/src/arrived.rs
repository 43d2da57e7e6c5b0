//! Inputs of nodes, decoded for their state machines.

use bbs::{AppendFailure, ChangeRequest, Query};
use bytes::Bytes;
use projections::Reader;
use projections::reader::{self, ReadMessage};
use schemas::Refusal;
use schemas::container::{Container, Epoch};
use schemas::message::{Envelope, Heartbeat, PerformReply, ReportsReply};
use schemas::names::{ClientName, Domain, EntryId, InstanceGuid, TaskGuid};
use schemas::query::{Records, RecordsAnswer};
use schemas::spec::ClientCommand;
use schemas::subject::{Position, Subject};

use crate::event::{About, Clock, Kind, Last, decoded, must};
use crate::journal::Stored;

/// Input of a node.
#[expect(clippy::large_enum_variant, reason = "there are few, and each is taken in at once")]
pub(crate) enum Arrived {
    Recorded(Position, Stored),
    CaughtUp,
    NotAppended {
        subject: Subject,
        entry: EntryId,
        why: AppendFailure,
    },
    Last {
        subject: Subject,
        last: Last,
    },
    Message {
        requester: u64,
        kind: Kind,
        bytes: Bytes,
    },
    /// Valid command of a client.
    Command {
        requester: u64,
        domain: Domain,
        envelope: Envelope,
        command: ClientCommand,
    },
    Answer {
        about: About,
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
    /// Clock of another service.
    Clock(Clock),
    Disconnected,
    Reconnected,
    Turn,
    Tick,
}

impl Arrived {
    pub(crate) fn for_bbs(self) -> Option<bbs::Input> {
        use bbs::Input as I;
        Some(match self {
            Self::Recorded(position, stored) => I::Delivered {
                position,
                subject: stored.subject.to_string(),
                entry: stored.entry,
                bytes: stored.bytes,
            },
            Self::CaughtUp => I::CaughtUp,
            Self::NotAppended { subject, entry, why } => I::NotAppended { subject, entry, why },
            Self::Last { subject, last } => I::LastEntry { subject, last },
            Self::Message { requester, kind, bytes } => return message_for_bbs(requester, kind, &bytes),
            Self::Command { requester, domain, envelope, command } => {
                let client = ClientName::new("tester").ok()?;
                I::Request { requester, ask: ChangeRequest::client(domain, client, envelope, command) }
            }
            Self::Answer { about: About::Probe(cell), bytes } => {
                let answer: Option<Result<Heartbeat, Refusal>> = bytes.map(|bytes| decoded(&bytes));
                I::ProbeResult { cell, answer: answer.and_then(Result::ok) }
            }
            Self::Called { task, epoch, called } => I::CallResult { task, epoch, called },
            Self::Clock(Clock::Server(time)) => I::ServerClock(time),
            Self::Clock(Clock::Alive(alive)) => I::Alive(alive),
            Self::Disconnected => I::Disconnected,
            Self::Reconnected => I::Reconnected,
            Self::Tick => I::Tick,
            Self::Answer { .. }
            | Self::Container(_)
            | Self::Containers(_)
            | Self::SelfTested(_)
            | Self::Prepared(_)
            | Self::Turn => {
                return None;
            }
        })
    }

    pub(crate) fn for_auctioneer(self, reader: &mut Reader) -> Option<auctioneer::Input> {
        use auctioneer::Input as I;
        Some(match self {
            Self::Recorded(position, stored) => {
                let read = reader.read(position, &stored.subject.to_string(), &stored.bytes);
                let entry = match read.expect("the log holds what this program knows") {
                    ReadMessage::Entry(entry) => entry,
                    ReadMessage::Quarantined(_) => reader::empty_entry(),
                };
                I::Recorded { position, entry: entry.into() }
            }
            Self::CaughtUp => I::CaughtUp,
            Self::Message { kind: Kind::Heartbeat, bytes, .. } => I::Heartbeat(must(&bytes)),
            Self::Message { kind: Kind::Beat, bytes, .. } => I::Beat(must(&bytes)),
            Self::Answer { about: About::Perform(cell, id), bytes } => {
                let answer: Option<Result<PerformReply, Refusal>> = bytes.map(|bytes| decoded(&bytes));
                I::Performed { cell, id, answer }
            }
            Self::Answer { about: About::Outcomes(id), bytes } => {
                I::OutcomesAnswered { id, answer: bytes.map(|bytes| decoded(&bytes)) }
            }
            Self::Answer { about: About::Lead, bytes } => I::LeadAnswered(bytes.map(|bytes| decoded(&bytes))),
            Self::Tick => I::Tick,
            Self::NotAppended { .. }
            | Self::Last { .. }
            | Self::Message { .. }
            | Self::Command { .. }
            | Self::Answer { .. }
            | Self::Container(_)
            | Self::Containers(_)
            | Self::SelfTested(_)
            | Self::Prepared(_)
            | Self::Called { .. }
            | Self::Clock(_)
            | Self::Disconnected
            | Self::Reconnected
            | Self::Turn => return None,
        })
    }

    pub(crate) fn for_rep(self) -> Option<rep::Input> {
        use rep::Input as I;
        Some(match self {
            Self::Message { requester, kind: Kind::Perform, bytes } => {
                I::Perform { requester, perform: must(&bytes) }
            }
            Self::Message { requester, kind: Kind::Probe, bytes } => {
                I::State { requester, order: must(&bytes) }
            }
            Self::Message { requester, kind: Kind::Evacuate, bytes } => {
                I::Evacuate { requester, order: must(&bytes) }
            }
            Self::Message { requester, kind: Kind::Uncordon, bytes } => {
                I::Uncordon { requester, order: must(&bytes) }
            }
            Self::Message { kind: Kind::Stop, bytes, .. } => I::Stop(must(&bytes)),
            Self::Message { kind: Kind::Cancel, bytes, .. } => I::Cancel(must(&bytes)),
            Self::Answer { about: About::Report(id), bytes } => {
                let answer: Option<Result<ReportsReply, Refusal>> = bytes.map(|bytes| decoded(&bytes));
                I::Reported { id, answer }
            }
            Self::Answer { about: About::Records(id), bytes } => {
                let answer: Option<Result<RecordsAnswer, Refusal>> = bytes.map(|bytes| decoded(&bytes));
                I::Records { id, answer }
            }
            Self::Container(container) => I::Container(container),
            Self::Containers(list) => I::Containers(list),
            Self::SelfTested(result) => I::SelfTested(result),
            Self::Prepared(results) => I::Prepared(results),
            Self::Tick => I::Tick,
            Self::Recorded(..)
            | Self::CaughtUp
            | Self::NotAppended { .. }
            | Self::Last { .. }
            | Self::Message { .. }
            | Self::Command { .. }
            | Self::Answer { .. }
            | Self::Called { .. }
            | Self::Clock(_)
            | Self::Disconnected
            | Self::Reconnected
            | Self::Turn => return None,
        })
    }
}

fn message_for_bbs(requester: u64, kind: Kind, bytes: &Bytes) -> Option<bbs::Input> {
    let ask = |ask| Some(bbs::Input::Request { requester, ask });
    match kind {
        Kind::Operator(cell, command) => {
            let (client, envelope) = (ClientName::new("operator").ok()?, Envelope::default());
            ask(ChangeRequest::Operator { client, envelope, cell, command })
        }
        Kind::Cluster(command) => {
            let (client, envelope) = (ClientName::new("operator").ok()?, Envelope::default());
            ask(ChangeRequest::Cluster { client, envelope, command })
        }
        Kind::Attach(cell) => ask(ChangeRequest::Attach { cell, attach: must(bytes) }),
        Kind::Leave(cell) => ask(ChangeRequest::Leave { cell, leave: must(bytes) }),
        Kind::Query(table) => {
            let query = table.query(bytes);
            let at_least = query.at_least();
            Some(bbs::Input::Query { requester, at_least, query: Query::Rows(query) })
        }
        Kind::Report(cell) => ask(ChangeRequest::Cell { cell, reports: must(bytes) }),
        Kind::Records => {
            let records: Records = must(bytes);
            let at_least = records.at_least;
            Some(bbs::Input::Query { requester, at_least, query: Query::Records(records) })
        }
        Kind::Outcomes => ask(ChangeRequest::Outcomes(must(bytes))),
        Kind::Lead => ask(ChangeRequest::Lead(must(bytes))),
        Kind::Heartbeat => Some(bbs::Input::Heartbeat(must(bytes))),
        Kind::Beat => Some(bbs::Input::LeaderHeartbeat(must(bytes))),
        // The driver parses commands before the machine receives them.
        Kind::Client(..)
        | Kind::Perform
        | Kind::Probe
        | Kind::Evacuate
        | Kind::Uncordon
        | Kind::Stop
        | Kind::Cancel => None,
    }
}
