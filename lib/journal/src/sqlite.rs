//! The journal as an embedded database: one file in a data folder that belongs to one process.
//!
//! ```text
//!   append ──▶ queue ──▶ writer: all that queued in one transaction, synced ──▶ answers, then the end moves on
//!                                                                                      │ wakes
//!   follower ◀── readers ◀─────────────────────────────────────────────────────────────┘
//! ```

use std::path::Path;

use schemas::names::EntryId;
use schemas::{Position, Subject};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteRow, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection, Row, SqliteConnection};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::sqlite_writer::{Queued, Writer};
use super::{Append, AppendError, JournalError, Page, Recorded};
use crate::limits::{QUEUED_APPENDS, READERS};
use runtime::folder::Folder;

/// The file in the data folder.
const FILE: &str = "journal.db";
/// The format of the file that this program reads and writes (`PRAGMA user_version`).
const FORMAT: i64 = 1;
/// Pages of the write-ahead log after which it is moved into the file: some 16 MiB.
const CHECKPOINT_PAGES: &str = "4000";

const CREATE: &str = "
    CREATE TABLE IF NOT EXISTS entry (
        position INTEGER PRIMARY KEY,
        subject  TEXT NOT NULL,
        id       BLOB NOT NULL,
        bytes    BLOB NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX IF NOT EXISTS entry_by_subject ON entry (subject, position);
    PRAGMA user_version = 1;";

/// A journal in a data folder. Clones are the same journal.
#[derive(Clone, Debug)]
pub struct Sqlite {
    queue: mpsc::Sender<Queued>,
    readers: SqlitePool,
    /// Where the journal ends; None once it is closed.
    end: watch::Receiver<Option<Position>>,
    closing: CancellationToken,
}

impl Sqlite {
    /// Opens the journal in a data folder, or makes it. The folder belongs to this process from then on.
    ///
    /// # Errors
    /// The folder isn't ours or another process has it, the file is of another format, or can't be opened or written.
    pub async fn open(folder: &Path) -> Result<Self, JournalError> {
        let folder = Folder::own(folder).map_err(|error| JournalError::Refused(with_causes(&error)))?;
        Self::open_in(folder).await
    }

    /// As [`Sqlite::open`], in a folder that this process owns already.
    ///
    /// # Errors
    /// The file is of another format, or can't be opened or written.
    pub async fn open_in(folder: Folder) -> Result<Self, JournalError> {
        // Its companions get the mode that it has.
        folder.private_file(FILE).map_err(|error| JournalError::Refused(with_causes(&error)))?;
        let path = folder.path().join(FILE);
        let what = format!("opening {}", path.display());
        let unavailable = |source| JournalError::unavailable(what.as_str(), source);
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
            .disable_statement_logging();
        let mut connection = SqliteConnection::connect_with(&options).await.map_err(unavailable)?;
        prepare(&mut connection, &what).await?;
        let last: Option<i64> = sqlx::query_scalar("SELECT max(position) FROM entry")
            .fetch_one(&mut connection)
            .await
            .map_err(unavailable)?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .connect_with(options.read_only(true))
            .await
            .map_err(unavailable)?;
        let (end, ends) = watch::channel(Some(Position(unsigned(last.unwrap_or(0)))));
        let (queue, queued) = mpsc::channel(QUEUED_APPENDS);
        let closing = CancellationToken::new();
        let writer = Writer::new(connection, queued, end, folder);
        tokio::spawn(writer.run(closing.clone()));
        Ok(Self { queue, readers, end: ends, closing })
    }

    pub(super) async fn append(&self, append: Append) -> Result<Position, AppendError> {
        let (answer, answered) = oneshot::channel();
        let closed = || AppendError::Unknown(JournalError::Closed);
        self.queue.send(Queued { append, answer }).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }

    pub(super) fn follow(&self, after: Position) -> Follower {
        Follower { journal: self.clone(), after }
    }

    pub(super) async fn last(&self, subject: &Subject) -> Result<Option<Recorded>, JournalError> {
        self.end()?;
        let sql =
            "SELECT position, subject, id, bytes FROM entry WHERE subject = ? ORDER BY position DESC LIMIT 1";
        let row = sqlx::query(sql).bind(subject.to_string()).fetch_optional(&self.readers).await;
        row.map_err(unreadable)?.as_ref().map(recorded).transpose()
    }

    pub(super) async fn read(
        &self,
        after: Position,
        subject: Option<&Subject>,
        limit: usize,
    ) -> Result<Vec<Recorded>, JournalError> {
        use futures::TryStreamExt;
        // A reader may see an entry before the writer has said that the journal ends there: not before is it read.
        let end = signed(self.end()?.0);
        let (after, most) = (signed(after.0), i64::try_from(limit).unwrap_or(i64::MAX));
        let query = match subject {
            None => sqlx::query(
                "SELECT position, subject, id, bytes FROM entry WHERE position > ? AND position <= ?
                 ORDER BY position LIMIT ?",
            )
            .bind(after),
            Some(subject) => sqlx::query(
                "SELECT position, subject, id, bytes FROM entry WHERE subject = ? AND position > ?
                 AND position <= ? ORDER BY position LIMIT ?",
            )
            .bind(subject.to_string())
            .bind(after),
        }
        .bind(end);
        let mut page = Page::new(limit);
        let mut rows = query.bind(most).fetch(&self.readers);
        while !page.is_full() {
            let Some(row) = rows.try_next().await.map_err(unreadable)? else { break };
            page.take(recorded(&row)?);
        }
        Ok(page.entries)
    }

    pub(super) fn end(&self) -> Result<Position, JournalError> {
        self.end.borrow().ok_or(JournalError::Closed)
    }

    pub(super) async fn close(&self) {
        self.closing.cancel();
        // The writer is done when it says that the journal is closed, or is gone.
        drop(self.end.clone().wait_for(Option::is_none).await.map(drop));
        self.readers.close().await;
    }
}

#[derive(Debug)]
pub(super) struct Follower {
    journal: Sqlite,
    pub(super) after: Position,
}

impl Follower {
    pub(super) async fn next_batch(&mut self, max: usize) -> Result<Vec<Recorded>, JournalError> {
        let after = self.after;
        super::check_not_beyond(after, self.journal.end()?)?;
        let reached = self.journal.end.wait_for(|end| end.is_none_or(|end| end > after)).await;
        drop(reached.map_err(|_| JournalError::Closed)?);
        let entries = self.journal.read(after, None, max).await?;
        self.after = super::check_unbroken(after, &entries)?;
        Ok(entries)
    }
}

/// Makes the tables if there are none, and refuses a file that isn't ours or isn't safe.
async fn prepare(connection: &mut SqliteConnection, what: &str) -> Result<(), JournalError> {
    let unavailable = |source| JournalError::unavailable(what, source);
    let mode: String =
        sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *connection).await.map_err(unavailable)?;
    if mode != "wal" {
        return Err(JournalError::Refused(format!(
            "{what}: this file system allows no write-ahead log ({mode})"
        )));
    }
    let format: i64 =
        sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut *connection).await.map_err(unavailable)?;
    match format {
        0 => sqlx::raw_sql(CREATE).execute(connection).await.map(drop).map_err(unavailable),
        FORMAT => Ok(()),
        other => Err(JournalError::Refused(format!(
            "{what}: the file has format {other}, this program reads format {FORMAT}"
        ))),
    }
}

fn recorded(row: &SqliteRow) -> Result<Recorded, JournalError> {
    let get = || -> Result<Recorded, sqlx::Error> {
        let entry =
            Uuid::from_slice(row.try_get("id")?).map_err(|error| sqlx::Error::Decode(error.into()))?;
        Ok(Recorded {
            position: Position(unsigned(row.try_get("position")?)),
            subject: row.try_get("subject")?,
            entry: Some(EntryId(entry)),
            bytes: row.try_get::<Vec<u8>, _>("bytes")?.into(),
        })
    };
    get().map_err(|error| JournalError::Damaged(with_causes(&error)))
}

/// An error with its causes, in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn unreadable(error: sqlx::Error) -> JournalError {
    if matches!(error, sqlx::Error::PoolClosed) {
        return JournalError::Closed;
    }
    JournalError::unavailable("reading the embedded journal", error)
}

/// A position as the database holds it. Positions count entries, so they stay far below `i64::MAX`.
pub(super) fn signed(position: u64) -> i64 {
    i64::try_from(position).unwrap_or(i64::MAX)
}

/// A position as the database held it. They are never negative.
pub(super) fn unsigned(position: i64) -> u64 {
    u64::try_from(position).unwrap_or(0)
}
