//! Errors that prevent a service from starting, or that stop a service unexpectedly.

use std::io;

use bus::BusError;
use bus::nats::ConnectError;
use executor::process::OpenError;
use journal::JournalError;
use schemas::attributes::BadAttribute;
use schemas::names::BadName;
use tokio::task::JoinError;

use crate::home::HomeError;
use crate::run_error::RunError;

/// Error that prevents a service or a cluster in this process from starting, or that stops it unexpectedly.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// A cluster is required, but no server is named.
    #[error("no NATS server given: set --nats URL or MUSTER_NATS_URL")]
    NoServer,
    /// No connection to the NATS server could be made.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The in-process bus returned an error.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// The journal cannot be opened or read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The data folder belongs to another cluster or cannot be used.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The containers of the data folder cannot be opened.
    #[error(transparent)]
    Containers(#[from] OpenError),
    #[error(transparent)]
    Ended(#[from] RunError),
    #[error("a service panicked")]
    Panicked(#[source] JoinError),
    /// All services have exited.
    #[error("all services have exited")]
    AllEnded,
    /// The system provides no randomness for the seed of ids.
    #[error("the system provides no randomness")]
    Randomness(#[source] io::Error),
    /// The path of this program is unknown. The path is needed to start shims.
    #[error("can't determine the path of this program")]
    Program(#[source] io::Error),
    /// The key file for secrets cannot be used.
    #[error(transparent)]
    Keys(#[from] secrets::FileError),
    /// The attributes of the cell are not valid.
    #[error(transparent)]
    Attributes(#[from] BadAttribute),
    /// Metrics cannot be served.
    #[error(transparent)]
    Metrics(#[from] metrics::server::BindError),
    /// A name is not valid.
    #[error(transparent)]
    Name(#[from] BadName),
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use text::chain;

    use super::*;

    #[test]
    fn each_cause_is_told_once() {
        let denied = || io::Error::from(ErrorKind::PermissionDenied);
        let path = || "/data".into();
        let errors: [(ServiceError, &str); 6] = [
            (
                HomeError::Unusable { path: path(), source: denied() }.into(),
                "the data folder /data can't be used: permission denied",
            ),
            (
                OpenError::Unusable { path: path(), source: denied() }.into(),
                "cannot open the containers of /data: permission denied",
            ),
            (
                JournalError::Unavailable { what: "reading".into(), source: Some(denied().into()) }.into(),
                "the journal is unavailable: reading: permission denied",
            ),
            (RunError::Journal(JournalError::Closed).into(), "the journal is closed"),
            (
                RunError::from(BusError::Disconnected("gone".into())).into(),
                "can't subscribe to the bus: the bus is disconnected: gone",
            ),
            (ServiceError::Randomness(denied()), "the system provides no randomness: permission denied"),
        ];
        for (error, told) in errors {
            assert_eq!(chain(&error), told);
        }
    }
}
