//! Reaches: all the subjects of one kind, as a permission names them. Who has the permission for one may say or hear whatever
//! is said there, now and in later versions.

use std::fmt;

use crate::bus::{INBOX_ROOT, Inbox, InboxKind, ROOT, RepVerb};
use crate::caller::Caller;
use crate::names::{CellId, ClientName, Domain};
use crate::subject::EVENT_ROOT;

/// All subjects of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// What one client commands.
    Client(Domain, ClientName),
    /// What one operator commands.
    Operator(ClientName),
    /// What the rep of one cell asks and reports.
    Reports(CellId),
    /// One kind of order, to every rep.
    Orders(RepVerb),
    /// What auctioneers report.
    Auctioneers,
    /// Every query of one caller.
    Queries(Caller),
    /// Every query that one BBS passes on to another.
    QueriesOf,
    /// The journal.
    Events,
    /// What is answered to somebody.
    Inbox(Inbox),
    /// What is answered to everybody of a role.
    Inboxes(InboxKind),
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(domain, client) => write!(f, "{ROOT}.client.{domain}.{client}.>"),
            Self::Operator(operator) => write!(f, "{ROOT}.operator.{operator}.>"),
            Self::Reports(cell) => write!(f, "{ROOT}.cell.{cell}.bbs.>"),
            Self::Orders(verb) => write!(f, "{ROOT}.cell.*.rep.{}", verb.as_str()),
            Self::Auctioneers => write!(f, "{ROOT}.auctioneer.bbs.>"),
            Self::Queries(caller) => write!(f, "{ROOT}.query.{caller}.>"),
            Self::QueriesOf => write!(f, "{ROOT}.query-of.>"),
            Self::Events => write!(f, "{EVENT_ROOT}>"),
            Self::Inbox(inbox) => write!(f, "{inbox}.>"),
            Self::Inboxes(kind) => write!(f, "{INBOX_ROOT}{}.>", kind.as_str()),
        }
    }
}
