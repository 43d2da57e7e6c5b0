//! The journal as an embedded database: one file in a data folder that one process owns.
//!
//! ```text
//!   append ──▶ queue ──▶ writer: one synced transaction for all queued appends ──▶ replies, then the end advances
//!                                                                                      │ wakes
//!   follower ◀── readers ◀─────────────────────────────────────────────────────────────┘
//! ```

use std::path::Path;
use std::time::Duration;

use schemas::names::EntryId;
use schemas::{Position, Subject};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteRow, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection, Executor, Row, Sqlite as Db, SqliteConnection};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::sqlite_writer::{PendingAppend, WriteRequest, Writer};
use super::{Append, AppendError, ImportError, JournalError, Page, StoredEntry, with_causes};
use crate::limits::{QUEUED_APPENDS, READERS};
use runtime::folder::Folder;

/// Name of the database file in the data folder.
pub const FILE: &str = "journal.db";
/// File format that this program reads and writes (`PRAGMA user_version`).
const FORMAT: i64 = 1;
/// Pages of the write-ahead log after which a checkpoint moves them into the file: about 16 MiB.
const CHECKPOINT_PAGES: &str = "4000";
/// Error text for writing to a journal that was opened read-only.
const READ_ONLY: &str = "the journal is open read-only";
/// Interval at which a read-only journal polls for entries of another process.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

const CREATE: &str = "
    CREATE TABLE IF NOT EXISTS entry (
        position INTEGER PRIMARY KEY,
        subject  TEXT NOT NULL,
        id       BLOB NOT NULL, -- 16 bytes; empty if another program wrote the message
        bytes    BLOB NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX IF NOT EXISTS entry_by_subject ON entry (subject, position);
    PRAGMA user_version = 1;";

/// A journal in a data folder. Clones are the same journal.
#[derive(Clone, Debug)]
pub struct Sqlite {
    /// Queue of the writer. `None` if the journal is open read-only, because another process may be the
    /// writer.
    queue: Option<mpsc::Sender<WriteRequest>>,
    readers: SqlitePool,
    /// End of the journal; `None` once the journal is closed.
    end: watch::Receiver<Option<Position>>,
    closing: CancellationToken,
    /// `true` if reads return damaged rows, decoded as far as possible, for inspection. `false` if a damaged
    /// row is an error.
    shows_damage: bool,
}

impl Sqlite {
    /// Opens the journal in a data folder, or creates it. Afterwards this process owns the folder.
    ///
    /// # Errors
    /// The folder does not belong to Muster or another process uses it. The file has another format, or
    /// cannot be opened or written.
    pub async fn open(folder: &Path) -> Result<Self, JournalError> {
        let folder = Folder::own(folder).map_err(|error| JournalError::Refused(with_causes(&error)))?;
        Self::open_in(folder).await
    }

    /// Opens the journal like [`Sqlite::open`], in a folder that this process already owns.
    ///
    /// # Errors
    /// The file has another format, or cannot be opened or written.
    pub async fn open_in(folder: Folder) -> Result<Self, JournalError> {
        // SQLite creates its companion files with the mode of this file.
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
        let last = last_position(&mut connection).await.map_err(unavailable)?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .connect_with(options.read_only(true))
            .await
            .map_err(unavailable)?;
        let (end, ends) = watch::channel(Some(last));
        let (queue, queued) = mpsc::channel(QUEUED_APPENDS);
        let closing = CancellationToken::new();
        let writer = Writer::new(connection, queued, end, folder);
        tokio::spawn(writer.run(closing.clone()));
        Ok(Self { queue: Some(queue), readers, end: ends, closing, shows_damage: false })
    }

    /// Opens the journal in a data folder read-only. Another process may own the folder and write to it; new
    /// entries become visible after a short delay. Appends are refused.
    ///
    /// # Errors
    /// The journal does not exist, has another format, or cannot be read.
    pub async fn open_read_only(folder: &Path) -> Result<Self, JournalError> {
        let path = folder.join(FILE);
        let what = format!("reading {}", path.display());
        let unavailable = |source| JournalError::unavailable(what.as_str(), source);
        if !path.is_file() {
            return Err(JournalError::Refused(format!("the journal {} does not exist", path.display())));
        }
        let options = SqliteConnectOptions::new().filename(&path).read_only(true).disable_statement_logging();
        let readers = SqlitePoolOptions::new().max_connections(READERS).connect_with(options);
        let readers = readers.await.map_err(unavailable)?;
        let format: i64 =
            sqlx::query_scalar("PRAGMA user_version").fetch_one(&readers).await.map_err(unavailable)?;
        check_format(format, &what)?;
        let first = last_position(&readers).await.map_err(unavailable)?;
        let (end, ends) = watch::channel(Some(first));
        let closing = CancellationToken::new();
        tokio::spawn(poll_end(readers.clone(), end, closing.clone()));
        Ok(Self { queue: None, readers, end: ends, closing, shows_damage: false })
    }

    /// Opens the journal like [`Sqlite::open_read_only`], but returns damaged rows instead of
    /// [`JournalError::Damaged`].
    ///
    /// An invalid id becomes `None`. In a subject that is not UTF-8, invalid bytes become U+FFFD.
    ///
    /// # Errors
    /// See [`Sqlite::open_read_only`].
    pub async fn inspect(folder: &Path) -> Result<Self, JournalError> {
        Ok(Self { shows_damage: true, ..Self::open_read_only(folder).await? })
    }

    pub(super) async fn append(&self, append: Append) -> Result<Position, AppendError> {
        let (answer, answered) = oneshot::channel();
        let closed = || AppendError::Unknown(JournalError::Closed);
        let Some(queue) = &self.queue else {
            return Err(AppendError::Refused(READ_ONLY.into()));
        };
        queue.send(WriteRequest::Append(PendingAppend { append, answer })).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }

    pub(super) async fn import(&self, entries: Vec<StoredEntry>) -> Result<(), ImportError> {
        let (answer, answered) = oneshot::channel();
        let closed = || ImportError::Journal(JournalError::Closed);
        let Some(queue) = &self.queue else {
            return Err(JournalError::Refused(READ_ONLY.into()).into());
        };
        queue.send(WriteRequest::Import(entries, answer)).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }

    pub(super) fn follow(&self, after: Position) -> Follower {
        Follower { journal: self.clone(), after }
    }

    pub(super) async fn last(&self, subject: &Subject) -> Result<Option<StoredEntry>, JournalError> {
        self.end()?;
        let sql =
            "SELECT position, subject, id, bytes FROM entry WHERE subject = ? ORDER BY position DESC LIMIT 1";
        let row = sqlx::query(sql).bind(subject.to_string()).fetch_optional(&self.readers).await;
        row.map_err(read_error)?.as_ref().map(|row| self.decode(row)).transpose()
    }

    pub(super) async fn read(
        &self,
        after: Position,
        subject: Option<&Subject>,
        limit: usize,
    ) -> Result<Vec<StoredEntry>, JournalError> {
        use futures::TryStreamExt;
        // A reader may see an entry before the writer has published the new end. Such an entry is not
        // returned yet.
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
            let Some(row) = rows.try_next().await.map_err(read_error)? else { break };
            page.push(self.decode(&row)?);
        }
        Ok(page.entries)
    }

    fn decode(&self, row: &SqliteRow) -> Result<StoredEntry, JournalError> {
        let read = if self.shows_damage { decode_damaged_row(row) } else { decode_row(row) };
        read.map_err(|error| JournalError::Damaged(with_causes(&error)))
    }

    pub(super) fn end(&self) -> Result<Position, JournalError> {
        self.end.borrow().ok_or(JournalError::Closed)
    }

    pub(super) async fn close(&self) {
        self.closing.cancel();
        // The writer or the polling task has finished when it has published `None` or dropped the sender.
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
    pub(super) async fn next_batch(&mut self, max: usize) -> Result<Vec<StoredEntry>, JournalError> {
        let after = self.after;
        super::check_not_beyond(after, self.journal.end()?)?;
        let reached = self.journal.end.wait_for(|end| end.is_none_or(|end| end > after)).await;
        drop(reached.map_err(|_| JournalError::Closed)?);
        let entries = self.journal.read(after, None, max).await?;
        self.after = super::check_unbroken(after, &entries)?;
        Ok(entries)
    }
}

/// Creates the tables if there are none. Refuses a file of another format, and a file system without
/// write-ahead logging.
async fn prepare(connection: &mut SqliteConnection, what: &str) -> Result<(), JournalError> {
    let unavailable = |source| JournalError::unavailable(what, source);
    let mode: String =
        sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *connection).await.map_err(unavailable)?;
    if mode != "wal" {
        return Err(JournalError::Refused(format!(
            "{what}: the file system does not support a write-ahead log (journal mode {mode})"
        )));
    }
    let format: i64 =
        sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut *connection).await.map_err(unavailable)?;
    if format == 0 {
        return sqlx::raw_sql(CREATE).execute(connection).await.map(drop).map_err(unavailable);
    }
    check_format(format, what)
}

fn check_format(format: i64, what: &str) -> Result<(), JournalError> {
    if format == FORMAT {
        return Ok(());
    }
    Err(JournalError::Refused(format!("{what}: unsupported format {format}: expected format {FORMAT}")))
}

async fn last_position<'c>(connection: impl Executor<'c, Database = Db>) -> Result<Position, sqlx::Error> {
    let last: Option<i64> =
        sqlx::query_scalar("SELECT max(position) FROM entry").fetch_one(connection).await?;
    Ok(Position(unsigned(last.unwrap_or(0))))
}

/// Polls the end of a journal that another process may write to, until the journal is closed.
async fn poll_end(readers: SqlitePool, end: watch::Sender<Option<Position>>, closing: CancellationToken) {
    while !end.is_closed() {
        tokio::select! {
            () = closing.cancelled() => break,
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
        match last_position(&readers).await {
            Ok(last) => drop(end.send_if_modified(|known| known.replace(last) != Some(last))),
            // The next read returns the error to its caller.
            Err(error) => tracing::warn!(%error, "can't read the embedded journal"),
        }
    }
    end.send_replace(None);
}

fn decode_row(row: &SqliteRow) -> Result<StoredEntry, sqlx::Error> {
    // An imported message that another program wrote has no id.
    let id: &[u8] = row.try_get("id")?;
    let id = if id.is_empty() { None } else { Some(Uuid::from_slice(id)) };
    Ok(StoredEntry {
        position: Position(unsigned(row.try_get("position")?)),
        subject: row.try_get("subject")?,
        entry: id.transpose().map_err(|error| sqlx::Error::Decode(error.into()))?.map(EntryId),
        bytes: row.try_get::<Vec<u8>, _>("bytes")?.into(),
    })
}

/// Decodes as much of a damaged row as possible.
fn decode_damaged_row(row: &SqliteRow) -> Result<StoredEntry, sqlx::Error> {
    let (id, subject): (&[u8], &[u8]) = (row.try_get("id")?, row.try_get_unchecked("subject")?);
    Ok(StoredEntry {
        position: Position(unsigned(row.try_get("position")?)),
        subject: String::from_utf8_lossy(subject).into_owned(),
        entry: Uuid::from_slice(id).ok().map(EntryId),
        bytes: row.try_get::<Vec<u8>, _>("bytes")?.into(),
    })
}

fn read_error(error: sqlx::Error) -> JournalError {
    if matches!(error, sqlx::Error::PoolClosed) {
        return JournalError::Closed;
    }
    JournalError::unavailable("reading the embedded journal", error)
}

/// Converts a position to the database's integer type. Positions count entries, so they stay far below
/// `i64::MAX`.
pub(super) fn signed(position: u64) -> i64 {
    i64::try_from(position).unwrap_or(i64::MAX)
}

/// Converts a stored position back. Stored positions are never negative.
pub(super) fn unsigned(position: i64) -> u64 {
    u64::try_from(position).unwrap_or(0)
}
