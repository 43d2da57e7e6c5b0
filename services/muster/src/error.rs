//! Why a service can't start, or ended that should not have.

use std::io;

use bus::BusError;
use bus::nats::ConnectError;
use executor::process::OpenError;
use journal::JournalError;
use schemas::attributes::BadAttribute;
use schemas::names::BadName;
use tokio::task::JoinError;

use crate::bench::BenchError;
use crate::home::HomeError;
use crate::wire::ended::Ended;

/// Why a service, or a whole cluster in this process, can't start or ended that should not have.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServiceError {
    /// A cluster is needed, and nobody said where.
    #[error("no NATS server is named: give --nats URL or set MUSTER_NATS_URL")]
    NoServer,
    /// There is no connection to the NATS server.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The bus in this process refuses.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// The journal can't be opened or read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The data folder is not this rep's.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The containers of the data folder can't be had.
    #[error(transparent)]
    Containers(#[from] OpenError),
    /// The service ended.
    #[error(transparent)]
    Ended(#[from] Ended),
    /// The service panicked.
    #[error("a service panicked")]
    Panicked(#[source] JoinError),
    /// No service is left.
    #[error("every service has ended")]
    AllEnded,
    /// There is no seed for ids.
    #[error("the system gives no randomness")]
    Randomness(#[source] io::Error),
    /// Where this program is, which starts shims, can't be found out.
    #[error("can't find out where this program is")]
    Program(#[source] io::Error),
    /// The keys for secrets can't be had.
    #[error(transparent)]
    Keys(#[from] secrets::FileError),
    /// What is said of the cell can't be said.
    #[error(transparent)]
    Attributes(#[from] BadAttribute),
    /// Metrics can't be served.
    #[error(transparent)]
    Metrics(#[from] metrics::server::BindError),
    /// A name is none.
    #[error(transparent)]
    Name(#[from] BadName),
    /// The benchmark can't be run to its end.
    #[error(transparent)]
    Bench(#[from] BenchError),
}

/// An error with its causes, in one line. A cause that its error quotes already is left out.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let why = error.to_string();
        if !text.ends_with(&why) {
            text = format!("{text}: {why}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

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
            (Ended::Journal(JournalError::Closed).into(), "the journal is closed"),
            (
                Ended::from(BusError::Disconnected("gone".into())).into(),
                "can't listen to the bus: the bus is disconnected: gone",
            ),
            (ServiceError::Randomness(denied()), "the system gives no randomness: permission denied"),
        ];
        for (error, told) in errors {
            assert_eq!(chain(&error), told);
        }
    }
}
