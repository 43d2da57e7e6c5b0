//! Errors of explanations.

use schemas::Refusal;
use schemas::names::{Domain, ProcessGuid, TaskGuid};
use text::chain;
use text::words::InvalidValue;

/// Error of an explanation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Client(#[from] client::Error),
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The request cannot be read.
    #[error("{0}")]
    Invalid(String),
    /// An object does not exist.
    #[error("{what} does not exist")]
    NotFound {
        /// Kind and name of the object, such as `process web`.
        what: String,
        missing: Missing,
    },
    /// The object exists in another domain than the requested one.
    #[error("{what} in domain {requested} does not exist")]
    OtherDomain { what: String, requested: Domain, actual: Domain },
    /// A fragment of an id matches several ids.
    #[error("ambiguous id {part}: it matches {count} ids: {}", ids.join(", "))]
    AmbiguousId {
        part: String,
        /// Number of matching ids.
        count: usize,
        /// First of the matching ids.
        ids: Vec<String>,
    },
    /// An id, or a fragment of one, belongs to several commands.
    #[error("ambiguous id {id}: it matches {commands} commands: {}{}", matches.join(", "), more_text(*more))]
    AmbiguousCommand {
        id: String,
        /// Number of commands.
        commands: usize,
        /// First of the matching ids, with their kinds.
        matches: Vec<String>,
        /// Number of other matching ids.
        more: usize,
    },
    /// An id names neither a task nor an instance.
    #[error("can't explain {id}: {}", chain(error))]
    NoWork { id: String, error: Box<Self> },
    /// A task exists with another definition.
    #[error("task {0} exists with another definition, and a task cannot change")]
    OtherTaskDefinition(TaskGuid),
    /// A rollout of the process is under way, so a rebalance is not possible.
    #[error("a rollout is under way, which places its instances again")]
    RolloutUnderWay(ProcessGuid),
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] journal::JournalError),
    /// The journal did not return all of its entries.
    #[error("{0}")]
    IncompleteJournal(String),
    /// A simulation cannot continue from the log.
    #[error(transparent)]
    Unusable(#[from] scenario::Unusable),
    /// The cluster would refuse a change of a simulation.
    #[error("{}{}", change_text(change.as_deref()), refusal.message)]
    RefusedChange {
        /// Number and text of the change, such as `change 1 (scale web=5)`. `None` if the refusal does not concern a
        /// single change.
        change: Option<String>,
        refusal: Refusal,
        /// Names that are similar to the missing name of the refusal.
        similar: Vec<String>,
    },
    /// An action failed.
    #[error("can't {action}: {}", chain(error))]
    While { action: String, error: Box<Self> },
}

/// Search that did not find an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// A process with this name.
    Process {
        /// Similar names of existing processes.
        similar: Vec<String>,
    },
    /// An instance of this process.
    InstanceOf(ProcessGuid),
    /// An object with a fragment of its id. The value is the kind of the object, such as `instance`.
    Fragment(String),
    /// An id in the log, or a fragment of one.
    Recorded {
        /// Minimum length of a fragment.
        min_fragment_len: usize,
    },
    /// Any other search.
    Other,
}

impl Error {
    /// Creates an error for an object that does not exist.
    pub fn not_found(what: impl Into<String>, missing: Missing) -> Self {
        Self::NotFound { what: what.into(), missing }
    }

    /// Adds the action that failed, such as `scale process web`.
    #[must_use]
    pub fn while_doing(self, action: impl Into<String>) -> Self {
        Self::While { action: action.into(), error: Box::new(self) }
    }

    /// Returns `true` if an object does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Client(error) => error.is_not_found(),
            Self::Refused(refusal) | Self::RefusedChange { refusal, .. } => {
                refusal.code.class() == schemas::Class::NotFound
            }
            Self::NotFound { .. } | Self::OtherDomain { .. } => true,
            Self::Invalid(_)
            | Self::AmbiguousId { .. }
            | Self::AmbiguousCommand { .. }
            | Self::Journal(_)
            | Self::IncompleteJournal(_)
            | Self::Unusable(_)
            | Self::OtherTaskDefinition(_)
            | Self::RolloutUnderWay(_) => false,
            Self::NoWork { error, .. } | Self::While { error, .. } => error.is_not_found(),
        }
    }
}

fn change_text(change: Option<&str>) -> String {
    change.map(|change| format!("can't apply {change}: ")).unwrap_or_default()
}

fn more_text(more: usize) -> String {
    if more == 0 { String::new() } else { format!(" and {more} more") }
}

impl From<InvalidValue> for Error {
    fn from(invalid: InvalidValue) -> Self {
        Self::Invalid(invalid.to_string())
    }
}
