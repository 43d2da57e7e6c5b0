//! The only task that writes to the embedded journal. It combines queued appends into one synced transaction.

use std::collections::BTreeMap;

use schemas::Position;
use schemas::names::EntryId;
use sqlx::{Connection, QueryBuilder, Row, SqliteConnection};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::sqlite::{signed, unsigned};
use super::{Append, AppendError, ImportError, JournalError, StoredEntry};
use crate::limits::{CACHED_SUBJECTS, GROUP_APPENDS, GROUP_BYTES};
use runtime::folder::Folder;

/// A request to the writer.
#[derive(Debug)]
pub(super) enum WriteRequest {
    Append(PendingAppend),
    /// Entries of another journal, which are written unchanged.
    Import(Vec<StoredEntry>, oneshot::Sender<Result<(), ImportError>>),
}

/// A queued append.
#[derive(Debug)]
pub(super) struct PendingAppend {
    pub(super) append: Append,
    pub(super) answer: oneshot::Sender<Result<Position, AppendError>>,
}

pub(super) struct Writer {
    connection: SqliteConnection,
    queue: mpsc::Receiver<WriteRequest>,
    end: watch::Sender<Option<Position>>,
    tail: Tail,
    /// Keeps the folder owned by this process until the last transaction is done.
    folder: Folder,
}

/// Cached positions at the end of the journal.
#[derive(Default)]
struct Tail {
    /// Position of the last entry; `None` if it must be read from the database, for example after a failure.
    last: Option<Position>,
    /// Position of the last entry of each recently used subject.
    subjects: BTreeMap<String, Position>,
}

/// Result of an append, sent once its transaction is committed.
enum Verdict {
    /// The entry is stored at this position.
    At(Position),
    /// Another entry follows the expected position.
    Conflict,
}

/// Entries of another journal, and the channel for the result of their import.
type Imports = (Vec<StoredEntry>, oneshot::Sender<Result<(), ImportError>>);

impl Writer {
    pub(super) fn new(
        connection: SqliteConnection,
        queue: mpsc::Receiver<WriteRequest>,
        end: watch::Sender<Option<Position>>,
        folder: Folder,
    ) -> Self {
        Self { connection, queue, end, tail: Tail::default(), folder }
    }

    /// Writes until the journal is closed or all of its handles are dropped. Requests that were queued before
    /// the close are still processed.
    pub(super) async fn run(mut self, closing: CancellationToken) {
        loop {
            let next = tokio::select! {
                biased;
                () = closing.cancelled(), if !self.queue.is_closed() => {
                    self.queue.close();
                    continue;
                }
                next = self.queue.recv() => next,
            };
            match next {
                None => break,
                Some(WriteRequest::Append(first)) => {
                    let (group, behind) = self.group(first);
                    self.write(group).await;
                    if let Some((entries, answer)) = behind {
                        drop(answer.send(self.import(entries).await));
                    }
                }
                Some(WriteRequest::Import(entries, answer)) => drop(answer.send(self.import(entries).await)),
            }
        }
        if let Err(error) = self.connection.close().await {
            tracing::warn!(%error,
                "the embedded journal was not closed cleanly; acknowledged entries are not lost");
        }
        drop(self.folder);
        self.end.send_replace(None);
    }

    /// Collects the first append and the appends queued after it, up to the limits of one transaction. If an
    /// import follows them, returns the import too.
    fn group(&mut self, first: PendingAppend) -> (Vec<PendingAppend>, Option<Imports>) {
        let mut bytes = first.append.bytes.len();
        let mut group = vec![first];
        while group.len() < GROUP_APPENDS && bytes < GROUP_BYTES {
            match self.queue.try_recv() {
                Ok(WriteRequest::Append(next)) => {
                    bytes += next.append.bytes.len();
                    group.push(next);
                }
                Ok(WriteRequest::Import(entries, answer)) => return (group, Some((entries, answer))),
                Err(_) => break,
            }
        }
        (group, None)
    }

    /// Writes a group and sends the results. No result is sent before the transaction is committed. If the
    /// commit fails, no entry of the group is stored. Every append then returns the error of the commit,
    /// because no append can conflict with an entry that is not stored.
    async fn write(&mut self, group: Vec<PendingAppend>) {
        let (appends, answers): (Vec<_>, Vec<_>) =
            group.into_iter().map(|queued| (queued.append, queued.answer)).unzip();
        let verdicts = self.commit(appends).await;
        if verdicts.is_err() {
            self.tail = Tail::default();
        }
        for (n, answer) in answers.into_iter().enumerate() {
            let told = match &verdicts {
                Ok(verdicts) => match verdicts[n] {
                    Verdict::At(position) => Ok(position),
                    Verdict::Conflict => Err(AppendError::Conflict),
                },
                Err(error) => Err(append_error(error)),
            };
            // The caller may have stopped waiting. The entry stays stored.
            drop(answer.send(told));
        }
    }

    /// Writes entries unchanged, in one transaction.
    async fn import(&mut self, entries: Vec<StoredEntry>) -> Result<(), ImportError> {
        let failed = |error: sqlx::Error| {
            ImportError::Journal(JournalError::unavailable("writing the embedded journal", error))
        };
        let end = self.last().await.map_err(failed)?;
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Ok(()) };
        if first.position.0 != end.0 + 1 {
            return Err(ImportError::NotNext { end, first: first.position });
        }
        let last = last.position;
        // The cached positions are read again after the import.
        self.tail = Tail::default();
        let mut transaction = self.connection.begin().await.map_err(failed)?;
        for rows in entries.chunks(GROUP_APPENDS) {
            insert(&mut transaction, rows).await.map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)?;
        self.end.send_modify(|end| *end = end.map(|_| last));
        Ok(())
    }

    async fn commit(&mut self, appends: Vec<Append>) -> Result<Vec<Verdict>, sqlx::Error> {
        let mut last = self.last().await?;
        let (mut fresh, mut verdicts) = (Vec::new(), Vec::with_capacity(appends.len()));
        for append in appends {
            let subject = append.subject.to_string();
            if self.last_position_of(&subject).await? == append.expected {
                last = Position(last.0 + 1);
                self.tail.subjects.insert(subject.clone(), last);
                verdicts.push(Verdict::At(last));
                let (entry, bytes) = (Some(append.entry), append.bytes);
                fresh.push(StoredEntry { position: last, subject, entry, bytes });
            } else {
                verdicts.push(self.settle(&subject, &append, &fresh).await?);
            }
        }
        if !fresh.is_empty() {
            insert(&mut self.connection, &fresh).await?;
            self.tail.last = Some(last);
            self.end.send_modify(|end| *end = end.map(|_| last));
        }
        Ok(verdicts)
    }

    /// Returns the position of the journal's last entry.
    async fn last(&mut self) -> Result<Position, sqlx::Error> {
        if let Some(last) = self.tail.last {
            return Ok(last);
        }
        let read: Option<i64> =
            sqlx::query_scalar("SELECT max(position) FROM entry").fetch_one(&mut self.connection).await?;
        let last = Position(unsigned(read.unwrap_or(0)));
        self.tail.last = Some(last);
        Ok(last)
    }

    /// Returns the position of a subject's last entry; 0 if the subject is empty.
    async fn last_position_of(&mut self, subject: &str) -> Result<Position, sqlx::Error> {
        if let Some(last) = self.tail.subjects.get(subject) {
            return Ok(*last);
        }
        let read: Option<i64> = sqlx::query_scalar("SELECT max(position) FROM entry WHERE subject = ?")
            .bind(subject)
            .fetch_one(&mut self.connection)
            .await?;
        let last = Position(unsigned(read.unwrap_or(0)));
        if self.tail.subjects.len() >= CACHED_SUBJECTS {
            self.tail.subjects.pop_first();
        }
        self.tail.subjects.insert(subject.to_owned(), last);
        Ok(last)
    }

    /// Reads the entry after the expected position. This entry is either the appended entry, which was stored
    /// earlier, or another entry.
    async fn settle(
        &mut self,
        subject: &str,
        append: &Append,
        fresh: &[StoredEntry],
    ) -> Result<Verdict, sqlx::Error> {
        let sql =
            "SELECT position, id FROM entry WHERE subject = ? AND position > ? ORDER BY position LIMIT 1";
        let stored = sqlx::query(sql)
            .bind(subject)
            .bind(signed(append.expected.0))
            .fetch_optional(&mut self.connection)
            .await?;
        if let Some(row) = stored {
            let id: &[u8] = row.try_get("id")?;
            let at = Position(unsigned(row.try_get("position")?));
            return Ok(if id == append.entry.0.as_bytes() { Verdict::At(at) } else { Verdict::Conflict });
        }
        let follows = |row: &&StoredEntry| row.subject == subject && row.position > append.expected;
        Ok(match fresh.iter().find(follows) {
            Some(row) if row.entry == Some(append.entry) => Verdict::At(row.position),
            Some(_) | None => Verdict::Conflict,
        })
    }
}

/// Primary result codes of `SQLite` for which the transaction is rolled back and nothing is stored.
const ROLLED_BACK: [(u32, &str); 2] = [(8, "SQLITE_READONLY"), (13, "SQLITE_FULL")];

/// Converts an error of the transaction.
fn append_error(error: &sqlx::Error) -> AppendError {
    let what = format!("can't write the embedded journal: {error}");
    let code = error.as_database_error().and_then(|error| error.code()?.parse::<u32>().ok());
    // The low byte of an extended result code is the primary one.
    let is_rolled_back = |code: u32| ROLLED_BACK.iter().any(|(primary, _)| *primary == code & 0xff);
    if code.is_some_and(is_rolled_back) {
        return AppendError::NotStored(what);
    }
    AppendError::Unknown(JournalError::Unavailable { what, source: None })
}

/// Inserts rows with a single statement. Outside of an explicit transaction, the statement is atomic by
/// itself.
async fn insert(connection: &mut SqliteConnection, rows: &[StoredEntry]) -> Result<(), sqlx::Error> {
    let mut insert = QueryBuilder::new("INSERT INTO entry (position, subject, id, bytes) ");
    insert.push_values(rows, |mut values, row| {
        let id: &[u8] = row.entry.as_ref().map_or(&[], |EntryId(id)| id.as_bytes());
        values
            .push_bind(signed(row.position.0))
            .push_bind(row.subject.as_str())
            .push_bind(id)
            .push_bind(row.bytes.as_ref());
    });
    insert.build().persistent(rows.len() == 1).execute(connection).await?;
    Ok(())
}
