//! Reaches. A reach is the set of all subjects of one kind, in the form in which permissions name them. A
//! permission for a reach covers every message on these subjects, including the messages of later versions.

use std::fmt;

use crate::bus::{FORWARDED_QUERY, INBOX_ROOT, Inbox, InboxKind, ROOT};
use crate::caller::Caller;
use crate::names::{CellId, ClientName, Domain};
use crate::subject::EVENT_ROOT;
use crate::verb::RepVerb;

/// Set of all subjects of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Commands of one client.
    Client(Domain, ClientName),
    /// Commands of one operator.
    Operator(ClientName),
    /// Requests and reports of the rep of one cell.
    Reports(CellId),
    /// Orders of one kind to every rep.
    Orders(RepVerb),
    /// Reports of auctioneers.
    Auctioneers,
    /// Queries of one caller.
    Queries(Caller),
    /// Queries that one BBS forwards to another.
    ForwardedQueries,
    /// Entries of the journal.
    Events,
    /// Replies to one inbox.
    Inbox(Inbox),
    /// Replies to every inbox of one role.
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
            Self::ForwardedQueries => write!(f, "{ROOT}.{FORWARDED_QUERY}.>"),
            Self::Events => write!(f, "{EVENT_ROOT}>"),
            Self::Inbox(inbox) => write!(f, "{inbox}.>"),
            Self::Inboxes(kind) => write!(f, "{INBOX_ROOT}{}.>", kind.as_str()),
        }
    }
}
