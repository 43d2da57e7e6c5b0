//! What can go wrong when a client asks.

use std::time::Duration;

use bus::nats::ConnectError;
use bus::{AskError, BusError};
use schemas::bus::BusSubject;
use schemas::{Code, Refusal};

/// Why a client didn't get what it asked for. Split by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No, because. Asking again in the same way gives the same answer.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Nobody answers there. Nothing was changed.
    #[error("{0}")]
    Unreachable(String),
    /// No answer came in time. It may have happened: ask again with the same request id to know.
    #[error("no answer to {what} within {:?}; it may have happened", whole_millis(*waited))]
    TimedOut {
        /// What was asked.
        what: String,
        /// How long an answer was awaited, in all.
        waited: Duration,
    },
    /// The answer makes no sense: who answers speaks another language.
    #[error("{subject} was answered with something else: {why}")]
    Protocol {
        /// What was asked.
        subject: String,
        /// What is wrong with the answer.
        why: String,
    },
    /// This program could not even ask: a file can't be read, a setting can't be.
    #[error("{what}")]
    Setup {
        /// What could not be done.
        what: String,
        /// Why.
        source: Source,
    },
}

type Source = Box<dyn std::error::Error + Send + Sync>;

impl Error {
    /// The code of the refusal, if it is one.
    #[must_use]
    pub const fn code(&self) -> Option<Code> {
        match self {
            Self::Refused(refusal) => Some(refusal.code),
            Self::Unreachable(_) | Self::TimedOut { .. } | Self::Protocol { .. } | Self::Setup { .. } => None,
        }
    }

    /// Whether the thing asked for doesn't exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(Code::ResourceNotFound)
    }

    /// Whether asking again, a little later, may help.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Refused(refusal) => matches!(refusal.code, Code::Unavailable | Code::Overloaded),
            Self::Unreachable(_) | Self::TimedOut { .. } => true,
            Self::Protocol { .. } | Self::Setup { .. } => false,
        }
    }
}

/// A time as people count it.
fn whole_millis(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1))
}

/// What the bus says of a question that wasn't answered.
pub(crate) fn unanswered(subject: &str, error: AskError) -> Error {
    match error {
        AskError::NoResponder(_) => {
            let query = matches!(BusSubject::parse(subject), Ok(BusSubject::Query(..)));
            let who = if query { "no BBS runs" } else { "no BBS leads" };
            Error::Unreachable(format!("nobody answers on {subject}: {who} there at present"))
        }
        AskError::TimedOut(waited) => Error::TimedOut { what: subject.to_owned(), waited },
        AskError::Disconnected(why) => Error::Unreachable(format!("the connection is lost: {why}")),
        AskError::Refused(why) => Error::Refused(Refusal::new(Code::Forbidden, why)),
    }
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Unreachable { .. } => Self::Unreachable(error.to_string()),
            ConnectError::Refused { .. } => Self::Refused(Refusal::new(Code::Forbidden, error.to_string())),
            ConnectError::File { path, source } => {
                Self::Setup { what: format!("can't read {path}"), source: source.into() }
            }
            ConnectError::Settings(why) => {
                Self::Setup { what: "invalid connection settings".to_owned(), source: why.into() }
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
