//! Outputs of the BBS state machine.

use std::sync::Arc;

use bytes::Bytes;
use projections::{Observed, WorldSnapshot};
use schemas::action::Secret;
use schemas::container::Epoch;
use schemas::message::{Ack, Dismiss, LeaderHeartbeat, RepOrder, ReportsReply, StartExec, Stop};
use schemas::names::{CellId, ClusterId, Domain, EntryId, TaskGuid};
use schemas::query::{QuarantinedEntry, RecordsAnswer};
use schemas::subject::{Position, Subject};
use schemas::{Entry, Refusal};

use crate::input::Query;

/// An action that the caller of [`crate::Bbs::step`] must perform.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Append an entry to the journal.
    Append {
        subject: Subject,
        /// Position that the subject's last entry must have.
        expected: Position,
        entry: EntryId,
        /// The encoded entry.
        bytes: Bytes,
    },
    /// Read the subject's last entry from the journal's leader.
    ReadLast(Subject),
    /// Reply to a client.
    Reply {
        /// Token of the request.
        requester: u64,
        reply: Reply,
    },
    /// Answer a query from this snapshot of the World (the state folded from the log), with
    /// [`crate::answer`].
    AnswerQuery {
        /// Token of the request.
        requester: u64,
        query: Query,
        /// Snapshot of the current World.
        picture: WorldSnapshot,
        /// Facts that are not in the log.
        observed: Box<Observed>,
    },
    /// Order a rep to stop containers.
    Stop(CellId, Stop),
    /// Order a rep to cancel tasks.
    Cancel(CellId, Stop),
    /// Order a rep to run a program for a client in a container.
    Enter(CellId, StartExec),
    /// Probe a rep: request a sign of life.
    Probe(CellId, RepOrder),
    /// Order a rep to evacuate its cell. The response counts as a sign of life.
    Evacuate(CellId, RepOrder),
    /// Order a rep to end the evacuation of its cell. The response counts as a sign of life.
    Uncordon(CellId, RepOrder),
    /// Notify a rep that another rep acts for the cell.
    Dismiss(CellId, Dismiss),
    /// Publish a leader heartbeat.
    LeaderHeartbeat(LeaderHeartbeat),
    /// Post a completed task to its owner.
    Call {
        task: TaskGuid,
        /// Epoch of the task.
        epoch: Epoch,
        /// Domain of the task.
        domain: Domain,
        /// Callback URL. The receiver of this effect decrypts it if it is sealed.
        url: Secret,
        /// Request body as JSON.
        body: String,
    },
    /// Publish to subscribers an entry that this leader has just folded.
    Publish {
        cluster: ClusterId,
        /// Position of the entry.
        position: Position,
        entry: Arc<Entry>,
    },
    /// This BBS has started (`true`) or stopped leading.
    Leading(bool),
    /// Subscribe to commands, or unsubscribe. A BBS is subscribed if it leads. An elected BBS whose appends
    /// fail is subscribed, too, and refuses commands with the reason.
    Subscribed(bool),
    /// The message at a position is quarantined.
    Quarantined(QuarantinedEntry),
    /// Log a warning for operators.
    Warn(String),
    /// Stop: the journal contains an entry that this program does not understand. No entry is lost. An
    /// operator must quarantine the entry. Afterwards, a new state machine that knows about the quarantine
    /// must read the journal from the start.
    Halt(String),
}

/// A reply to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Reply to a client, an auctioneer or a candidate.
    Done(Result<Ack, Refusal>),
    /// Reply to a rep's reports.
    Reported(Result<ReportsReply, Refusal>),
    /// Reply to a query, as JSON text.
    Rows(Result<String, Refusal>),
    /// Reply to a rep's query for records.
    Records(RecordsAnswer),
}
