//! Why a projector can't go on.

use std::path::PathBuf;

use schemas::Position;

use crate::Url;

/// Why a projector can't go on, or a question isn't answered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database can't be read or written.
    #[error("{doing}")]
    Database {
        /// What was tried.
        doing: String,
        /// What went wrong.
        #[source]
        source: sqlx::Error,
    },
    /// The role may not do it.
    #[error(
        "{doing}: {said}. A projector's role needs the schema and what is in it, or CREATE on the database to make it; who only reads needs what muster projection grant ROLE gives"
    )]
    Rights {
        /// What was tried.
        doing: String,
        /// What the database says.
        said: String,
    },
    /// A question can't be answered, or would write.
    #[error("the question is refused: {0}")]
    Question(String),
    /// There is nothing yet.
    #[error("{0} is no database of muster: it has no table projection")]
    Empty(Url),
    /// It is of another cluster.
    #[error("the database is of cluster {found}, and the journal of cluster {expected}")]
    OtherCluster {
        /// Of which it is.
        found: String,
        /// Of which the journal is.
        expected: String,
    },
    /// Its tables have another shape.
    #[error(
        "the tables of the database were made by another version of muster: muster projection rebuild makes them again from the log, and then shows them in place of the old ones"
    )]
    OtherShape,
    /// Even what it says of its tables has another shape.
    #[error(
        "the database was made by a version of muster that keeps other books: delete the file, or DROP SCHEMA {schema} CASCADE, and it is made again from the log"
    )]
    OtherBooks {
        /// Where they are.
        schema: String,
    },
    /// It holds what the journal doesn't.
    #[error(
        "the database stands at position {found}, and the journal ends at {end}: it is of another journal, or the journal lost its end. If it is to follow this one: remove the file, or the schema with all that is in it, and the tables are made again from the log"
    )]
    Ahead {
        /// Where it stands.
        found: Position,
        /// Where the journal ends.
        end: Position,
    },
    /// It holds what another history of the log says.
    #[error(
        "another entry stands in the journal at position {position}, the last that is in the tables: an older log was restored. If they are to follow this one: remove the file, or the schema with all that is in it, and the tables are made again from the log"
    )]
    OtherHistory {
        /// Where the tables stand.
        position: Position,
    },
    /// Its tables are gone.
    #[error("the tables are gone from {0}: the database was replaced")]
    Lost(Url),
    /// It holds an entry that doesn't count any more.
    #[error(
        "operators have set position {position} aside after it was written to the tables: muster projection rebuild makes them again from the log, without it"
    )]
    SetAsideLater {
        /// Where.
        position: Position,
    },
    /// Somebody else writes to it.
    #[error("another projector writes to the database")]
    Another,
    /// Readers see other tables by now.
    #[error("the tables were rebuilt: readers see others now")]
    Replaced,
    /// It lost what was written last.
    #[error(
        "the database stands at position {found} again, and stood at {written}: it lost what it had not yet synced"
    )]
    Rewound {
        /// Where it stands.
        found: Position,
        /// Where it stood.
        written: Position,
    },
    /// A server that is too old.
    #[error("the server is PostgreSQL {0}: 15 or newer is needed")]
    OldServer(String),
    /// A database whose text isn't Unicode.
    #[error("the text of the database is in {0}: make it with ENCODING 'UTF8'")]
    Encoding(String),
    /// What only `PostgreSQL` has.
    #[error("{0} is a file of SQLite, which has no roles: who may read the file may read the tables")]
    NoRoles(Url),
    /// A database that is to be made again can't be removed.
    #[error("can't remove {}", .file.display())]
    Remove {
        /// The file.
        file: PathBuf,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
    /// The journal can't be followed.
    #[error(transparent)]
    Journal(#[from] journal::JournalError),
    /// The log holds what this program doesn't understand.
    #[error("position {position}: {why}")]
    Unreadable {
        /// Where.
        position: Position,
        /// Why.
        why: String,
    },
}

/// What `PostgreSQL` calls a right that is missing.
const INSUFFICIENT_PRIVILEGE: &str = "42501";

/// What passes of what `PostgreSQL` says: connections that end, servers that start or stop, conflicts between
/// transactions, locks that were not had in time, resources that are used up (a full disk among them), and servers that
/// only take reads for a while.
const PASSING: [&str; 6] = ["08", "57P", "40", "55P03", "53", "25006"];

/// What it calls a lock that was not had in time, and a deadlock.
const LOCKED: [&str; 2] = ["55P03", "40P01"];

/// What passes of what `SQLite` says: busy, locked, an error of the disk, full.
const PASSING_FILE: [i32; 4] = [5, 6, 10, 13];

impl Error {
    pub(crate) fn database(doing: impl Into<String>) -> impl FnOnce(sqlx::Error) -> Self {
        let doing = doing.into();
        move |source| match source.as_database_error() {
            Some(said) if said.code().as_deref() == Some(INSUFFICIENT_PRIVILEGE) => {
                Self::Rights { doing, said: said.message().to_owned() }
            }
            Some(_) | None => Self::Database { doing, source },
        }
    }

    /// A database that says nothing.
    pub(crate) fn silent(doing: String) -> Self {
        let source = sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
        Self::Database { doing, source }
    }

    /// What a database says of a question, without what a library says around it.
    pub(crate) fn refused(error: sqlx::Error) -> Self {
        let said = error.as_database_error().map(|said| said.message().to_owned());
        Self::Question(said.unwrap_or_else(|| error.to_string()))
    }

    /// With its source.
    pub(crate) fn in_full(&self) -> String {
        let source = std::error::Error::source(self).map(|source| format!(": {source}"));
        format!("{self}{}", source.unwrap_or_default())
    }

    /// Whether a lock was not had in time, or for those that others have and want.
    pub(crate) fn is_locked(&self) -> bool {
        let Self::Database { source, .. } = self else { return false };
        let code = source.as_database_error().and_then(|said| said.code());
        code.is_some_and(|code| LOCKED.contains(&&*code))
    }

    /// Whether trying again helps, sooner or later.
    pub(crate) fn passes(&self) -> bool {
        let Self::Database { source, .. } = self else { return false };
        let Some(said) = source.as_database_error() else {
            return matches!(
                source,
                sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed
            );
        };
        let code = said.code().unwrap_or_default();
        match code.parse::<i32>() {
            // Codes of SQLite are numbers, the lowest byte of which says what it is; those of PostgreSQL have five characters.
            Ok(number) if code.len() < 5 => PASSING_FILE.contains(&(number & 0xff)),
            Ok(_) | Err(_) => PASSING.iter().any(|begin| code.starts_with(begin)),
        }
    }
}
