//! Why a benchmark did not come to its end.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bus::AskError;
use journal::{AppendError, JournalError};
use schemas::Refusal;
use schemas::entry::DecodeError;
use schemas::names::BadName;
use tokio::task::JoinError;

/// Why a benchmark did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// Replicas of an embedded journal.
    #[error("an embedded journal has no replicas: name {0} servers with --nats")]
    NoServers(usize),
    /// Something did not happen in time.
    #[error("{what}: not within {limit:?}")]
    Late {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
    },
    /// The log can't be followed.
    #[error("the benchmark can't follow the log")]
    Follow(#[source] JournalError),
    /// The log holds what this program didn't write.
    #[error("the benchmark can't read the log")]
    Read(#[source] DecodeError),
    /// The journal alone can't be measured.
    #[error("the benchmark can't append to the log")]
    Append(#[from] AppendError),
    /// There is no randomness for ids.
    #[error("no randomness for ids")]
    Randomness(#[source] io::Error),
    /// A task of the benchmark failed.
    #[error("a task failed: {0}")]
    TaskFailed(String),
    /// The log doesn't say where an instance runs that was said to.
    #[error("nothing is known of where {0} runs")]
    NoHolder(String),
    /// Nobody answered.
    #[error("{subject} got no answer")]
    Unanswered {
        /// What was asked.
        subject: String,
        /// Why.
        source: AskError,
    },
    /// Something else than an answer came.
    #[error("{subject} got an answer that can't be read")]
    Unreadable {
        /// What was asked.
        subject: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The cluster refused.
    #[error("{subject} was refused")]
    Refused {
        /// What was asked.
        subject: String,
        /// Why.
        source: Refusal,
    },
    /// The loud client of a flood was refused for another reason than too much at once.
    #[error("the loud client was refused: {0}")]
    LoudRefused(String),
    /// The loud client of a flood got no answer.
    #[error("the loud client got no answer")]
    LoudUnanswered(#[source] AskError),
    /// A part of the benchmark panicked.
    #[error("a part of the benchmark panicked")]
    Panicked(#[source] JoinError),
    /// A part of the benchmark ended too early.
    #[error("the quiet client has ended")]
    QuietEnded,
    /// A client can't be run.
    #[error("a client of the benchmark can't be started")]
    Client(#[source] io::Error),
    /// A service can't be run.
    #[error("{name} can't be started")]
    Start {
        /// Which service.
        name: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A service ended.
    #[error("{0}")]
    ServiceEnded(String),
    /// The folder of the benchmark can't be made.
    #[error("the folder {} can't be made", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A flood needs a server.
    #[error("a flood needs a NATS server of its own: give --nats URL")]
    NeedsServer,
    /// A rolling update is measured on journals of its own.
    #[error("--rolling brings its own cluster: leave out --nats")]
    NeedsNoServer,
    /// The cluster gave an answer that makes no sense to a client, or none.
    #[error(transparent)]
    Asked(#[from] client::Error),
    /// Requests failed that ought not to.
    #[error("{failed} of {sent} requests failed")]
    RequestsFailed {
        /// How many failed.
        failed: u64,
        /// Of how many.
        sent: u64,
    },
    /// The server's journal isn't empty.
    #[error("this NATS server holds a cluster already: give the benchmark one of its own")]
    NotEmpty,
    /// A name is none.
    #[error(transparent)]
    Name(#[from] BadName),
    /// The user stopped it.
    #[error("stopped")]
    Stopped,
}
