//! What a BBS wants done.

use std::sync::Arc;

use bytes::Bytes;
use projections::{Observed, Picture};
use schemas::action::Secret;
use schemas::container::Epoch;
use schemas::message::{Beat, Dismiss, Done, Enter, RepOrder, Reported, Stop};
use schemas::names::{CellId, ClusterId, Domain, EntryId, TaskGuid};
use schemas::query::{MalformedEntry, RecordsAnswer};
use schemas::subject::{Position, Subject};
use schemas::{Entry, Refusal};

use crate::input::Query;

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Append this to the journal.
    Append {
        /// On which subject.
        subject: Subject,
        /// The position that its last entry must have.
        expected: Position,
        /// The entry's id.
        entry: EntryId,
        /// The entry.
        bytes: Bytes,
    },
    /// Read the subject's last entry from the journal's leader.
    ReadLast(Subject),
    /// Answer somebody.
    Answer {
        /// Whom.
        requester: u64,
        /// What.
        reply: Reply,
    },
    /// Answer a query from this picture, with [`crate::answer`].
    Show {
        /// Who asked.
        requester: u64,
        /// What.
        query: Query,
        /// The World as it is now.
        picture: Picture,
        /// What the log doesn't hold.
        observed: Box<Observed>,
    },
    /// Tell a rep to stop containers.
    Stop(CellId, Stop),
    /// Tell a rep to cancel tasks.
    Cancel(CellId, Stop),
    /// Tell a rep to run a program for a client in a container.
    Enter(CellId, Enter),
    /// Ask a rep whether it is there.
    Probe(CellId, RepOrder),
    /// Tell a rep to evacuate its cell. What it answers is a sign of life.
    Evacuate(CellId, RepOrder),
    /// Tell a rep that its cell is not to be evacuated after all. What it answers is a sign of life.
    Uncordon(CellId, RepOrder),
    /// Tell a rep that another one speaks for the cell.
    Dismiss(CellId, Dismiss),
    /// Beat.
    Beat(Beat),
    /// Post a completed task to its owner.
    Call {
        /// Which task.
        task: TaskGuid,
        /// In which life.
        epoch: Epoch,
        /// Of which domain.
        domain: Domain,
        /// Where to: who performs this opens it, if it is sealed.
        url: Secret,
        /// What, as JSON.
        body: String,
    },
    /// What this leader has just folded counts: tell it to whoever listens.
    Feed {
        /// The cluster.
        cluster: ClusterId,
        /// Where it stands.
        position: Position,
        /// What it says.
        entry: Arc<Entry>,
    },
    /// It leads from now on, or no longer.
    Leading(bool),
    /// Subscribe to commands, or don't: it leads, or would but for its appends, which fail, and refuses commands with the reason.
    Listening(bool),
    /// What the journal holds at a position does not count.
    SetAside(MalformedEntry),
    /// Something that people should know.
    Warn(String),
    /// It can't go on: the journal holds what this program doesn't understand. Nothing is lost. Once an operator has set
    /// that aside, a new machine that knows it reads the journal from its beginning.
    Halt(String),
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// To a client, an auctioneer or a candidate.
    Done(Result<Done, Refusal>),
    /// To a rep.
    Reported(Result<Reported, Refusal>),
    /// To a query, as JSON text of the answer.
    Rows(Result<String, Refusal>),
    /// To a rep's query.
    Records(RecordsAnswer),
}
