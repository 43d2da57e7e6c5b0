//! What comes to a BBS.

use bytes::Bytes;
use schemas::container::Epoch;
use schemas::message::{Alive, Attach, Beat, Envelope, Heartbeat, Lead, Leave, Outcomes, Reports};
use schemas::names::{CellId, ClientName, Domain, EntryId, TaskGuid};
use schemas::query::{LogRow, Records};
use schemas::quota::LimitDomain;
use schemas::spec::ClientCommand;
use schemas::subject::{Position, Subject};
use schemas::task::Called;
use schemas::{Timestamp, cell, cluster};

/// What happens to a BBS.
#[derive(Debug)]
pub enum Input {
    /// The follower delivered an entry.
    Recorded {
        /// Where it stands.
        position: Position,
        /// On which subject.
        subject: String,
        /// Its id, if the message carries one.
        entry: Option<EntryId>,
        /// As it is stored.
        bytes: Bytes,
    },
    /// The follower has reached the journal's end for the first time.
    CaughtUp,
    /// The journal did not take an entry, or did not say.
    NotAppended {
        /// On which subject.
        subject: Subject,
        /// Which entry.
        entry: EntryId,
        /// Why.
        why: NotAppended,
    },
    /// A check of the stream that holds the log.
    Checked(Result<Option<LogRow>, LogUnread>),
    /// The subject's last entry, read from the journal's leader.
    Last {
        /// Which subject.
        subject: Subject,
        /// Where its last entry stands, and its id. An error: it could not be read.
        last: Result<Option<(Position, Option<EntryId>)>, String>,
    },
    /// Somebody asks for a change.
    Asked {
        /// Names the requester in the answer.
        requester: u64,
        /// What is asked.
        ask: Ask,
    },
    /// Somebody asks what is true.
    Queried {
        /// Names the requester in the answer.
        requester: u64,
        /// The position that the answer must stand at.
        at_least: Option<Position>,
        /// What is asked.
        query: Query,
    },
    /// A cell lives.
    Heartbeat(Heartbeat),
    /// What a probe found.
    Probed {
        /// Which cell.
        cell: CellId,
        /// Its answer; none: silence.
        answer: Option<Heartbeat>,
    },
    /// A BBS beats.
    Beat(Beat),
    /// A BBS or an auctioneer is there, maybe this BBS itself.
    Alive(Alive),
    /// The NATS server sent its time, which would be this now.
    ServerClock(Timestamp),
    /// The clock of this BBS was set by so many nanoseconds, forward or back.
    ClockStepped(i64),
    /// What came of a completion callback.
    Called {
        /// Of which task.
        task: TaskGuid,
        /// In which life.
        epoch: Epoch,
        /// What came of it.
        called: Called,
    },
    /// The bus is lost: nobody can be heard, so nobody is silent.
    Disconnected,
    /// The bus is back.
    Reconnected,
    /// Nothing else waits: decide what is gathered.
    Turn,
    /// The alarm went off.
    Tick,
}

/// A check of the stream that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogUnread {
    /// The reason.
    pub why: String,
    /// `true` if the server says that the stream does not exist.
    pub absent: bool,
}

/// Why an entry was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAppended {
    /// The subject moved on.
    Conflict,
    /// The outcome is unknown.
    Unknown {
        /// The reason.
        why: String,
        /// `true` if a server stated the reason; `false` if nobody answered.
        stated: bool,
    },
    /// The journal stored nothing, for a reason that may pass.
    NotStored(String),
    /// The journal will never take it.
    Refused(String),
}

/// What can be asked of a BBS that changes something.
#[derive(Clone, Debug)]
pub enum Ask {
    /// By a client of a domain.
    Client {
        /// Its domain, proved by the subject.
        domain: Domain,
        /// Its name, proved by the subject.
        client: ClientName,
        /// What is around the command.
        envelope: Envelope,
        /// The command.
        command: ClientCommand,
    },
    /// By a rep.
    Cell {
        /// Its cell, proved by the subject.
        cell: CellId,
        /// What it reports.
        reports: Reports,
    },
    /// By an auctioneer.
    Outcomes(Outcomes),
    /// By a candidate for auctioneer.
    Lead(Lead),
    /// By an operator: a command that concerns the whole cluster.
    Cluster {
        /// Its name, proved by the subject.
        client: ClientName,
        /// What is around the command.
        envelope: Envelope,
        /// The command.
        command: cluster::Command,
    },
    /// By an operator of the cluster: changes quotas of a domain.
    Limit {
        /// Its name, proved by the subject.
        client: ClientName,
        /// What is around the command.
        envelope: Envelope,
        /// The changes.
        order: LimitDomain,
    },
    /// By a rep that starts: whether it may speak for its cell.
    Attach {
        /// Its cell, proved by the subject.
        cell: CellId,
        /// Who it is.
        attach: Attach,
    },
    /// By a rep whose evacuation is over.
    Leave {
        /// Its cell, proved by the subject.
        cell: CellId,
        /// Who it is.
        leave: Leave,
    },
    /// By an operator of the cluster.
    Operator {
        /// Its name, proved by the subject.
        client: ClientName,
        /// What is around the command.
        envelope: Envelope,
        /// The cell.
        cell: CellId,
        /// The command.
        command: cell::Command,
    },
}

/// What can be asked of a BBS that changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Rows.
    Rows(projections::Query),
    /// The records that a rep needs.
    Records(Records),
}
