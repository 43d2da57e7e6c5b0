//! Errors that end a service.

use std::io;

use bus::BusError;
use journal::JournalError;

/// Error that ends a service.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    /// The journal cannot be followed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The log holds an entry that this program does not understand.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The bus cannot be subscribed to.
    #[error("can't listen to the bus")]
    Bus(#[from] BusError),
    /// The tables cannot be kept up to date.
    #[error(transparent)]
    Projector(#[from] projector::Error),
    /// The client for completion callbacks cannot be created.
    #[error("can't make an HTTP client for completion callbacks")]
    Callbacks(#[source] reqwest::Error),
    /// A machine that reads the log again needs a new seed, and the system provides no randomness.
    #[error("the system gives no randomness")]
    Randomness(#[source] io::Error),
}

/// Description of an entry that this program does not understand: its position and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unreadable(pub(crate) String);
