//! Errors that end a service.

use std::io;

use bus::BusError;
use journal::JournalError;

/// Error that ends a service.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The journal cannot be followed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The log contains an entry that this program does not understand.
    #[error(transparent)]
    Unreadable(#[from] UnreadableEntry),
    /// The bus cannot be subscribed to.
    #[error("can't subscribe to the bus")]
    Bus(#[from] BusError),
    /// The tables cannot be kept up to date.
    #[cfg(feature = "projector")]
    #[error(transparent)]
    Projector(#[from] projector::Error),
    /// The client for completion callbacks cannot be created.
    #[error("can't create the HTTP client for completion callbacks")]
    Callbacks(#[source] reqwest::Error),
    /// A machine that reads the log again needs a new seed, but the system provides no randomness.
    #[error("the system provides no randomness")]
    Randomness(#[source] io::Error),
}

/// Description of an entry that this program does not understand: its position and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnreadableEntry(pub(crate) String);
