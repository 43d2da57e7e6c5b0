//! Errors of a client.

use std::time::Duration;

use bus::nats::ConnectError;
use bus::{BusError, RequestError};
use schemas::bus::BusSubject;
use schemas::{Code, Refusal};

/// Error of a client. The variants differ in how the caller can react.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request was refused. The same request is refused again, unless [`Error::is_transient`] returns
    /// `true`.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// No process answers the subject, or the connection is lost. Nothing was changed, unless the connection
    /// was lost after the request was sent.
    #[error("{0}")]
    Unreachable(String),
    /// No answer arrived in time. The request may have been carried out. To find out, repeat the request with
    /// the same request id.
    #[error("timed out after {:?} waiting for {awaited}; the outcome is unknown", whole_millis(*elapsed))]
    TimedOut {
        /// Subject or event that was awaited.
        awaited: String,
        /// Total time that the client waited.
        elapsed: Duration,
    },
    /// The answer cannot be parsed. The responder uses another protocol.
    #[error("unexpected answer to {subject}: {why}")]
    Protocol { subject: String, why: String },
    /// The request could not be sent: a file cannot be read or a setting is invalid.
    #[error("{action}")]
    Setup {
        /// Action that failed.
        action: String,
        source: Source,
    },
}

type Source = Box<dyn std::error::Error + Send + Sync>;

impl Error {
    /// Returns the code of a refusal. `None` for other errors.
    #[must_use]
    pub const fn code(&self) -> Option<Code> {
        match self {
            Self::Refused(refusal) => Some(refusal.code),
            Self::Unreachable(_) | Self::TimedOut { .. } | Self::Protocol { .. } | Self::Setup { .. } => None,
        }
    }

    /// Returns `true` if the requested object does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(Code::ResourceNotFound)
    }

    /// Returns `true` if the same request may succeed a little later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Refused(refusal) => matches!(refusal.code, Code::Unavailable | Code::Overloaded),
            Self::Unreachable(_) | Self::TimedOut { .. } => true,
            Self::Protocol { .. } | Self::Setup { .. } => false,
        }
    }
}

/// Returns a duration in whole milliseconds, at least 1.
fn whole_millis(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1))
}

/// Converts an error of the bus. `subject` is the subject of the request.
pub(crate) fn request_error(subject: &str, error: RequestError) -> Error {
    match error {
        RequestError::NoResponder(_) => {
            let query = matches!(BusSubject::parse(subject), Ok(BusSubject::Query(..)));
            let who = if query { "no BBS is running" } else { "no BBS is leading" };
            Error::Unreachable(format!("no responder on {subject}: {who}"))
        }
        RequestError::TimedOut(waited) => {
            Error::TimedOut { awaited: format!("an answer to {subject}"), elapsed: waited }
        }
        RequestError::Disconnected(why) => Error::Unreachable(format!("connection lost: {why}")),
        RequestError::Refused(why) => Error::Refused(Refusal::new(Code::Forbidden, why)),
    }
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Unreachable { .. } => Self::Unreachable(error.to_string()),
            ConnectError::Refused { .. } => Self::Refused(Refusal::new(Code::Forbidden, error.to_string())),
            ConnectError::File { path, source } => {
                Self::Setup { action: format!("cannot read {path}"), source: source.into() }
            }
            ConnectError::Settings(why) => {
                Self::Setup { action: "invalid connection settings".to_owned(), source: why.into() }
            }
        }
    }
}

impl From<BusError> for Error {
    fn from(error: BusError) -> Self {
        match error {
            BusError::Refused(why) => Self::Refused(Refusal::new(Code::Forbidden, why)),
            BusError::Disconnected(why) => Self::Unreachable(why),
        }
    }
}
