//! Errors of a benchmark.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bus::{BusError, RequestError};
use cli_base::failure::Failure;
use host::error::ServiceError;
use journal::{AppendError, JournalError};
use runtime::exit::Exit;
use schemas::Refusal;
use schemas::names::BadName;
use schemas::stored::DecodeError;
use text::chain;
use tokio::task::JoinError;

/// Error of a benchmark.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error("--replicas {0} requires {0} NATS servers: set --nats")]
    NoServers(usize),
    /// An expected event did not occur in time.
    #[error("timed out after {limit:?}, waiting for {what}")]
    Timeout {
        /// Expected event.
        what: String,
        limit: Duration,
    },
    #[error("the benchmark can't follow the log")]
    Follow(#[source] JournalError),
    /// The log contains an entry that the benchmark can't decode.
    #[error("the benchmark can't read the log")]
    Read(#[source] DecodeError),
    #[error("the benchmark can't append to the log")]
    Append(#[from] AppendError),
    #[error("the system provides no randomness for ids")]
    Randomness(#[source] io::Error),
    #[error("a task failed: {0}")]
    TaskFailed(String),
    /// The log does not show the cell of an instance that should run.
    #[error("the location of {0} is unknown")]
    NoHolder(String),
    #[error("no answer to {subject}")]
    Unanswered { subject: String, source: RequestError },
    #[error("can't decode the answer to {subject}")]
    Unreadable { subject: String, source: serde_json::Error },
    #[error("{subject} was refused")]
    Refused { subject: String, source: Refusal },
    /// The loud client of a flood was refused for another reason than too many requests at once.
    #[error("the loud client was refused: {0}")]
    LoudRefused(String),
    #[error("no answer to the loud client")]
    LoudUnanswered(#[source] RequestError),
    #[error("a part of the benchmark panicked")]
    Panicked(#[source] JoinError),
    /// The thread of the quiet client ended too early.
    #[error("the quiet client exited too early")]
    QuietEnded,
    #[error("can't start a client of the benchmark")]
    Client(#[source] io::Error),
    #[error("can't start {name}")]
    Start { name: &'static str, source: io::Error },
    /// A service of the cluster exited during the benchmark.
    #[error("{0}")]
    ServiceEnded(String),
    #[error("can't create the folder {}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("--flood starts the program {}, which does not exist: cargo build --release -p muster", .0.display())]
    NoProgram(PathBuf),
    #[error("--flood requires a NATS server: set --nats URL")]
    NeedsServer,
    /// A rolling update is measured on journals that the benchmark creates.
    #[error("--rolling starts its own cluster: remove --nats")]
    NeedsNoServer,
    /// A request of the client library got no answer, or an invalid one.
    #[error(transparent)]
    Asked(#[from] client::Error),
    #[error("{failed} of {sent} requests failed")]
    RequestsFailed { failed: u64, sent: u64 },
    #[error("this NATS server already holds a cluster: use an empty server for the benchmark")]
    NotEmpty,
    #[error(transparent)]
    Name(#[from] BadName),
    /// A service of the measured cluster failed.
    #[error(transparent)]
    Service(#[from] ServiceError),
    #[error("stopped")]
    Stopped,
}

impl From<JournalError> for BenchError {
    fn from(error: JournalError) -> Self {
        ServiceError::from(error).into()
    }
}

impl From<BusError> for BenchError {
    fn from(error: BusError) -> Self {
        ServiceError::from(error).into()
    }
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        let why = chain(&error);
        if let BenchError::Service(error) = error {
            error.into()
        } else {
            Self::new(Exit::Failed, "Failed", why)
        }
    }
}
