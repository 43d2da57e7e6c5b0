//! Destinations of replies from the state machine of a BBS.

use bbs::Reply;
use bus::ReplyTo;
use projections::{Observed, WorldSnapshot};
use schemas::codec::Form;
use schemas::sight::ReadScope;
use tokio::sync::oneshot;

use super::budget::Ticket;
use super::monitoring::commands::ReceivedCommand;

/// Destination of a reply from the state machine.
#[derive(Debug)]
pub(super) enum ReplyTarget {
    /// A caller on the bus.
    Bus(BusCaller),
    /// This driver. The machine can answer only a part of the request.
    Driver(oneshot::Sender<Reply>),
    /// An observer. It receives a snapshot of the projected state (World) instead of a reply.
    Observer(oneshot::Sender<(WorldSnapshot, Box<Observed>)>),
}

impl ReplyTarget {
    /// Returns the client name of the caller. Requests are queued per client name.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Bus(asker) => asker.ticket.name(),
            Self::Driver(_) | Self::Observer(_) => "bbs",
        }
    }

    /// Returns the read scope of the caller.
    pub(super) fn read_scope(&self) -> ReadScope {
        match self {
            Self::Bus(asker) => asker.read_scope.clone(),
            Self::Driver(_) | Self::Observer(_) => ReadScope::Everything,
        }
    }
}

/// A caller on the bus.
#[derive(Debug)]
pub(super) struct BusCaller {
    pub(super) to: ReplyTo,
    /// Encoding of the request.
    pub(super) form: Form,
    /// Read scope of the caller.
    pub(super) read_scope: ReadScope,
    /// Slot in the budget of the caller. The slot is released when the reply is sent.
    pub(super) ticket: Ticket,
    /// The received command, for metrics. `None` for a query.
    pub(super) asked: Option<ReceivedCommand>,
}
