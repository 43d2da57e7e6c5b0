//! Why a service ended that nobody told to.

use std::io;

use bus::BusError;
use journal::JournalError;

/// Why a service can't go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    /// The journal can't be followed any further.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The log holds what this program doesn't understand.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The bus can't be listened to.
    #[error("can't listen to the bus")]
    Bus(#[from] BusError),
    /// The tables can't be kept up to date.
    #[error(transparent)]
    Projector(#[from] projector::Error),
    /// The client of completion callbacks can't be made.
    #[error("can't make an HTTP client for completion callbacks")]
    Callbacks(#[source] reqwest::Error),
    /// A machine that reads the log again needs a new seed.
    #[error("the system gives no randomness")]
    Randomness(#[source] io::Error),
}

/// What stands in the log, where, and why it can't be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unreadable(pub(crate) String);
