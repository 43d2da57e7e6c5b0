//! The caller of a query, taken from the subject of the query. A NATS server with permissions lets each user
//! publish only below the user's own root. Quotas and read scopes can therefore rely on this caller.

use std::fmt;

use crate::names::{BadName, CellId, ClientName, Domain};
use crate::sight::ReadScope;

/// The caller of a query: `<root>` in `muster.query.<root>.<noun>.<verb>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Caller {
    Client(Domain, ClientName),
    Operator(ClientName),
    Auditor(ClientName),
    /// `gateway.<gateway>`: a program that serves the cluster over another protocol.
    Gateway(ClientName),
    Rep(CellId),
    Auctioneer,
    Bbs,
}

impl Caller {
    /// Parses the root at the start of `tokens` and returns the remaining tokens. `None` if the first token
    /// does not start a root.
    pub(crate) fn split<'a>(tokens: &'a [&'a str]) -> Option<(Result<Self, BadName>, &'a [&'a str])> {
        let named = |name: &str| ClientName::new(name);
        Some(match tokens {
            ["client", domain, client, rest @ ..] => {
                let of_domain = |domain| named(client).map(|client| Self::Client(domain, client));
                (Domain::new(domain).and_then(of_domain), rest)
            }
            ["operator", name, rest @ ..] => (named(name).map(Self::Operator), rest),
            ["auditor", name, rest @ ..] => (named(name).map(Self::Auditor), rest),
            ["gateway", name, rest @ ..] => (named(name).map(Self::Gateway), rest),
            ["rep", cell, rest @ ..] => (CellId::new(cell).map(Self::Rep), rest),
            ["auctioneer", rest @ ..] => (Ok(Self::Auctioneer), rest),
            ["bbs", rest @ ..] => (Ok(Self::Bbs), rest),
            _ => return None,
        })
    }

    /// Returns `true` for Muster's own services, whose queries have a budget of their own.
    #[must_use]
    pub const fn is_service(&self) -> bool {
        match self {
            Self::Rep(_) | Self::Auctioneer | Self::Bbs => true,
            Self::Client(..) | Self::Operator(_) | Self::Auditor(_) | Self::Gateway(_) => false,
        }
    }

    /// Returns the read scope of the caller: the data that the caller may read on a server that enforces
    /// permissions.
    #[must_use]
    pub fn read_scope(&self) -> ReadScope {
        match self {
            Self::Client(domain, _) => ReadScope::Domain(domain.clone()),
            Self::Operator(_) | Self::Auditor(_) | Self::Rep(_) | Self::Auctioneer | Self::Bbs => {
                ReadScope::Everything
            }
            Self::Gateway(_) => ReadScope::Nothing,
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(domain, client) => write!(f, "client.{domain}.{client}"),
            Self::Operator(name) => write!(f, "operator.{name}"),
            Self::Auditor(name) => write!(f, "auditor.{name}"),
            Self::Gateway(name) => write!(f, "gateway.{name}"),
            Self::Rep(cell) => write!(f, "rep.{cell}"),
            Self::Auctioneer => f.write_str("auctioneer"),
            Self::Bbs => f.write_str("bbs"),
        }
    }
}
