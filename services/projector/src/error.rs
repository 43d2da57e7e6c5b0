//! Errors of the projector.

use std::path::PathBuf;

use schemas::Position;

use crate::Url;

/// Error of a projector or of a query.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be read or written.
    #[error("{doing}")]
    Database {
        /// Action that failed.
        doing: String,
        #[source]
        source: sqlx::Error,
    },
    /// The database role lacks a right.
    #[error(
        "{doing}: {message}; a projector needs a role that owns the schema, or has CREATE on the database; \
         allow other roles to read with muster projection grant ROLE"
    )]
    MissingRight {
        /// Action that failed.
        doing: String,
        /// Message of the database.
        message: String,
    },
    /// A query is invalid, or it would write to the database.
    #[error("query failed: {0}")]
    InvalidQuery(String),
    /// The database contains no tables of Muster.
    #[error("{0} is not a Muster database: the table projection is missing")]
    Empty(Url),
    /// The tables belong to another cluster.
    #[error("the database is of cluster {found}, but the journal is of cluster {expected}")]
    OtherCluster {
        /// Cluster that the tables belong to.
        found: String,
        /// Cluster that the journal belongs to.
        expected: String,
    },
    /// The tables have the shape of another program version.
    #[error(
        "the tables were created by another version of muster: run muster projection rebuild to create them \
         again from the log"
    )]
    OtherShape,
    /// The table that describes the generations has the shape of another program version.
    #[error(
        "the database was created by an incompatible version of muster: remove the file, or run DROP SCHEMA \
         {schema} CASCADE, to create the tables again from the log"
    )]
    OtherMetadata {
        /// Schema of the tables.
        schema: String,
    },
    /// The position of the tables is beyond the end of the journal.
    #[error(
        "the tables are at position {found}, but the journal ends at {end}: the tables are of another \
         journal, or the journal lost entries; to follow this journal, remove the file, or the schema and \
         its contents"
    )]
    AheadOfJournal {
        /// Position of the tables.
        found: Position,
        /// Last position of the journal.
        end: Position,
    },
    /// The tables follow another history of the log.
    #[error(
        "the journal has another entry at position {position}, the last position of the tables: an older log \
         was restored; to follow this journal, remove the file, or the schema and its contents"
    )]
    OtherHistory {
        /// Position of the tables.
        position: Position,
    },
    /// The tables no longer exist.
    #[error("the tables are missing in {0}: the database was replaced")]
    Lost(Url),
    /// The tables contain an entry that was quarantined after the tables had reached its position.
    #[error(
        "position {position} was quarantined after it was written to the tables: run muster projection \
         rebuild to create them again without it"
    )]
    QuarantinedLater {
        /// Quarantined position.
        position: Position,
    },
    /// Another projector writes to the tables.
    #[error("another projector writes to the database")]
    LockedByOther,
    /// Rebuilt tables have replaced the tables of this projector.
    #[error("the tables were replaced by rebuilt ones")]
    Replaced,
    /// The database lost its most recent transactions.
    #[error(
        "the database is at position {found}, but position {written} was written: it lost unsynced \
         transactions"
    )]
    Rewound {
        /// Current position of the tables.
        found: Position,
        /// Position that the projector had written before.
        written: Position,
    },
    /// The server is too old.
    #[error("unsupported PostgreSQL {0}: expected 15 or newer")]
    OldServer(String),
    /// The text of the database is not UTF-8.
    #[error("unsupported encoding {0}: create the database with ENCODING 'UTF8'")]
    OtherEncoding(String),
    /// The operation needs roles, which only `PostgreSQL` has.
    #[error("{0} is an SQLite file, which has no roles: the permissions of the file apply to its tables")]
    NoRoles(Url),
    /// A database file must be replaced, but the old file cannot be removed.
    #[error("can't remove {}", .file.display())]
    Remove {
        file: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The journal cannot be followed.
    #[error(transparent)]
    Journal(#[from] journal::JournalError),
    /// The log has an entry that this program cannot read.
    #[error("position {position}: {why}")]
    Unreadable {
        /// Position of the entry.
        position: Position,
        /// Reason why the entry cannot be read.
        why: String,
    },
}

/// `PostgreSQL` error code for a missing right.
const INSUFFICIENT_PRIVILEGE: &str = "42501";

/// Code prefixes of transient `PostgreSQL` errors. In the order of the list, the prefixes mean: lost
/// connections, servers that start or stop, conflicts between transactions, lock time-outs, exhausted
/// resources such as a full disk, and read-only servers.
const TRANSIENT_CODES: [&str; 6] = ["08", "57P", "40", "55P03", "53", "25006"];

/// `PostgreSQL` error codes for a lock time-out and a deadlock.
const LOCK_CODES: [&str; 2] = ["55P03", "40P01"];

/// `SQLite` codes of transient errors: busy, locked, I/O error, full.
const TRANSIENT_SQLITE_CODES: [i32; 4] = [5, 6, 10, 13];

impl Error {
    pub(crate) fn database(doing: impl Into<String>) -> impl FnOnce(sqlx::Error) -> Self {
        let doing = doing.into();
        move |source| match source.as_database_error() {
            Some(said) if said.code().as_deref() == Some(INSUFFICIENT_PRIVILEGE) => {
                Self::MissingRight { doing, message: said.message().to_owned() }
            }
            Some(_) | None => Self::Database { doing, source },
        }
    }

    /// Returns the error of a database that does not respond.
    pub(crate) fn no_response(doing: String) -> Self {
        let source = sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
        Self::Database { doing, source }
    }

    /// Converts the database's error about a query. Drops the context that the library adds.
    pub(crate) fn query(error: sqlx::Error) -> Self {
        let said = error.as_database_error().map(|said| said.message().to_owned());
        Self::InvalidQuery(said.unwrap_or_else(|| error.to_string()))
    }

    /// Formats the error with its source.
    pub(crate) fn with_source(&self) -> String {
        let source = std::error::Error::source(self).map(|source| format!(": {source}"));
        format!("{self}{}", source.unwrap_or_default())
    }

    /// Returns `true` if the error is a lock time-out or a deadlock.
    pub(crate) fn is_locked(&self) -> bool {
        let Self::Database { source, .. } = self else { return false };
        let code = source.as_database_error().and_then(|said| said.code());
        code.is_some_and(|code| LOCK_CODES.contains(&&*code))
    }

    /// Returns `true` if the error is transient. A retry can then succeed.
    pub(crate) fn is_transient(&self) -> bool {
        let Self::Database { source, .. } = self else { return false };
        let Some(said) = source.as_database_error() else {
            return matches!(
                source,
                sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed
            );
        };
        let code = said.code().unwrap_or_default();
        match code.parse::<i32>() {
            // An SQLite code is a number whose lowest byte is the primary code. A PostgreSQL code has five
            // characters.
            Ok(number) if code.len() < 5 => TRANSIENT_SQLITE_CODES.contains(&(number & 0xff)),
            Ok(_) | Err(_) => TRANSIENT_CODES.iter().any(|begin| code.starts_with(begin)),
        }
    }
}
