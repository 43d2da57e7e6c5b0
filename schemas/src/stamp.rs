//! Metadata of decisions that state machines need: the source, the request, the cause and the time of a
//! decision.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::cause::Cause;
use crate::names::{CellId, ClientName, DecisionId, Domain, RequestId, ServiceId};

/// Source of a command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Actor {
    /// A client of a domain.
    Client {
        domain: Domain,
        name: ClientName,
    },
    Operator(ClientName),
    /// The rep of a cell.
    Cell(CellId),
    Auctioneer(ServiceId),
    /// A BBS on its own initiative: convergence, a timer, or a lost cell.
    Bbs(ServiceId),
}

/// Writes the actor as one word: `client:DOMAIN/NAME`, `operator:NAME`, `cell:ID`, `auctioneer:ID` or
/// `bbs:ID`.
impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client { domain, name } => write!(f, "client:{domain}/{name}"),
            Self::Operator(name) => write!(f, "operator:{name}"),
            Self::Cell(cell) => write!(f, "cell:{cell}"),
            Self::Auctioneer(id) => write!(f, "auctioneer:{id}"),
            Self::Bbs(id) => write!(f, "bbs:{id}"),
        }
    }
}

/// Identity of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Sender of the request.
    pub actor: Actor,
    /// Request id that the sender chose.
    pub id: RequestId,
    /// Digest of the command (see [`crate::request::digest`]).
    pub digest: Option<String>,
}

/// Metadata of a decision that folds need in addition to its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Id of the decision.
    pub decision: DecisionId,
    /// First decision of the chain.
    pub correlation: DecisionId,
    /// Decision that caused this one. `None` if this decision starts a chain.
    pub cause: Option<DecisionId>,
    /// Time of the decision.
    pub at: Timestamp,
    /// Request that the decision carries out. `None` if the request had no id.
    pub request: Option<Identity>,
}

impl Stamp {
    /// Returns the stamp of a decision that starts a chain and has no request id.
    #[must_use]
    pub const fn root(decision: DecisionId, at: Timestamp) -> Self {
        Self { decision, correlation: decision, cause: None, at, request: None }
    }

    /// Returns the reference by which later decisions name this decision as their cause.
    #[must_use]
    pub const fn cause(&self) -> Cause {
        Cause { decision: self.decision, correlation: self.correlation }
    }
}
