//! Inputs of the BBS state machine.

use bytes::Bytes;
use schemas::container::Epoch;
use schemas::message::{
    Attach, Envelope, Heartbeat, Lead, LeaderHeartbeat, Leave, Outcomes, Reports, ServiceStatus,
};
use schemas::names::{CellId, ClientName, Domain, EntryId, TaskGuid};
use schemas::query::{LogRow, Records};
use schemas::quota::LimitDomain;
use schemas::spec::ClientCommand;
use schemas::subject::{Position, Subject};
use schemas::task::CallbackResult;
use schemas::{Timestamp, cell, cluster};

/// An event that the BBS reacts to.
#[derive(Debug)]
pub enum Input {
    /// The follower delivered a message of the journal.
    Delivered {
        /// Position of the message.
        position: Position,
        /// Subject as text.
        subject: String,
        /// Entry id; `None` if the message carries none.
        entry: Option<EntryId>,
        /// The message as stored.
        bytes: Bytes,
    },
    /// The follower has reached the journal's end for the first time.
    CaughtUp,
    /// The journal did not store an entry, or its outcome is unknown.
    NotAppended {
        subject: Subject,
        /// Id of the entry.
        entry: EntryId,
        why: AppendFailure,
    },
    /// Result of a check of the stream that holds the log.
    LogChecked(Result<Option<LogRow>, LogCheckError>),
    /// The subject's last entry, as read from the journal's leader.
    LastEntry {
        subject: Subject,
        /// `Ok(None)` if the subject is empty; otherwise the position and id of the last entry, or the error
        /// of the read.
        last: Result<Option<(Position, Option<EntryId>)>, String>,
    },
    /// A request for a change.
    Request {
        /// Token that identifies the requester in the reply.
        requester: u64,
        /// Content of the request.
        ask: ChangeRequest,
    },
    /// A query.
    Query {
        /// Token that identifies the requester in the reply.
        requester: u64,
        /// Minimum position of the World (the state folded from the log) that the answer is read from.
        at_least: Option<Position>,
        /// Content of the query.
        query: Query,
    },
    /// A heartbeat of a rep.
    Heartbeat(Heartbeat),
    /// Result of a probe.
    ProbeResult {
        /// The probed cell.
        cell: CellId,
        /// The rep's response; `None` if it did not respond.
        answer: Option<Heartbeat>,
    },
    /// A heartbeat of a leading BBS.
    LeaderHeartbeat(LeaderHeartbeat),
    /// A sign of life of a BBS or an auctioneer, possibly of this BBS itself.
    Alive(ServiceStatus),
    /// Current time of the NATS server's clock, extrapolated from its last known value.
    ServerClock(Timestamp),
    /// The clock of this BBS was set forward (positive) or back (negative) by this many nanoseconds.
    ClockStepped(i64),
    /// Result of a completion callback.
    CallResult {
        task: TaskGuid,
        /// Epoch of the task.
        epoch: Epoch,
        /// Outcome of the call.
        called: CallbackResult,
    },
    /// The bus connection is lost. The BBS receives no heartbeats, so no cell counts as silent.
    Disconnected,
    /// The bus connection is restored.
    Reconnected,
    /// No other input is pending, so the BBS decides the queued commands.
    Turn,
    /// The time that [`crate::Bbs::alarm`] returned has come.
    Tick,
}

/// A failed check of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCheckError {
    /// Reason of the failure.
    pub why: String,
    /// `true` if the server reports that the stream does not exist.
    pub absent: bool,
}

/// Reason for which an entry was not appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendFailure {
    /// The subject has another entry after the expected position.
    Conflict,
    /// The outcome is unknown.
    Unknown {
        /// Reason of the failure.
        why: String,
        /// `true` if a server stated the reason; `false` if no server responded.
        stated: bool,
    },
    /// The journal stored nothing, for a transient reason.
    NotStored(String),
    /// The journal will never accept the entry.
    Refused(String),
}

/// A request for a change.
#[expect(clippy::large_enum_variant, reason = "most requests are commands of clients, the largest variant")]
#[derive(Clone, Debug)]
pub enum ChangeRequest {
    /// A command of a client in a domain.
    Client {
        /// Domain of the client, proved by the subject.
        domain: Domain,
        /// Name of the client, proved by the subject.
        client: ClientName,
        /// Metadata of the command.
        envelope: Envelope,
        command: ClientCommand,
        /// Digest of the sealed command. `None` if the command has no request id.
        digest: Option<String>,
    },
    /// Reports of a rep.
    Cell {
        /// Cell of the rep, proved by the subject.
        cell: CellId,
        reports: Reports,
    },
    /// Outcomes of an auctioneer.
    Outcomes(Outcomes),
    /// Candidacy for auctioneer.
    Lead(Lead),
    /// An operator's command that concerns the whole cluster.
    Cluster {
        /// Name of the operator, proved by the subject.
        client: ClientName,
        /// Metadata of the command.
        envelope: Envelope,
        command: cluster::Command,
    },
    /// A cluster operator's change of the quotas of a domain.
    Limit {
        /// Name of the operator, proved by the subject.
        client: ClientName,
        /// Metadata of the command.
        envelope: Envelope,
        /// The changes.
        order: LimitDomain,
    },
    /// Request of a starting rep to act for its cell.
    Attach {
        /// Cell of the rep, proved by the subject.
        cell: CellId,
        /// Identity of the rep.
        attach: Attach,
    },
    /// Notification of a rep that its evacuation is complete.
    Leave {
        /// Cell of the rep, proved by the subject.
        cell: CellId,
        /// Identity of the rep.
        leave: Leave,
    },
    /// A cluster operator's command for a cell.
    Operator {
        /// Name of the operator, proved by the subject.
        client: ClientName,
        /// Metadata of the command.
        envelope: Envelope,
        cell: CellId,
        command: cell::Command,
    },
}

impl ChangeRequest {
    /// Returns the request for a command whose secrets are sealed. Computes its digest, so that the thread that
    /// decides does not.
    #[must_use]
    pub fn client(domain: Domain, client: ClientName, envelope: Envelope, command: ClientCommand) -> Self {
        let digest = envelope.request_id.is_some().then(|| command.digest());
        Self::Client { domain, client, envelope, command, digest }
    }
}

/// A query, which changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// A query for rows.
    Rows(projections::Query),
    /// A rep's query for the records that it needs.
    Records(Records),
}
