//! The one task that writes to the embedded journal: all that queued goes into one synced transaction.

use std::collections::BTreeMap;

use schemas::Position;
use schemas::names::EntryId;
use sqlx::{Connection, QueryBuilder, Row, SqliteConnection};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::sqlite::{signed, unsigned};
use super::{Append, AppendError, JournalError};
use crate::limits::{GROUP_APPENDS, GROUP_BYTES, REMEMBERED_SUBJECTS};
use runtime::folder::Folder;

/// An append that waits for the writer.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) append: Append,
    pub(super) answer: oneshot::Sender<Result<Position, AppendError>>,
}

pub(super) struct Writer {
    connection: SqliteConnection,
    queue: mpsc::Receiver<Queued>,
    end: watch::Sender<Option<Position>>,
    tail: Tail,
    /// The folder stays ours until the last transaction is done.
    folder: Folder,
}

/// What the writer knows of the journal's end.
#[derive(Default)]
struct Tail {
    /// Where the last entry stands. None after a failure: then it is read again.
    last: Option<Position>,
    /// Where the last entry of a subject stands, for the subjects that were written to.
    subjects: BTreeMap<String, Position>,
}

/// An entry that has its position and waits for its transaction.
struct Fresh {
    position: Position,
    subject: String,
    append: Append,
}

/// What an append is answered once its transaction is done.
enum Verdict {
    /// It stands there.
    At(Position),
    /// Something else follows the expected position.
    Conflict,
}

impl Writer {
    pub(super) fn new(
        connection: SqliteConnection,
        queue: mpsc::Receiver<Queued>,
        end: watch::Sender<Option<Position>>,
        folder: Folder,
    ) -> Self {
        Self { connection, queue, end, tail: Tail::default(), folder }
    }

    /// Writes until the journal is closed or nobody holds it any more, and finishes what queued before.
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
            let Some(first) = next else { break };
            let group = self.group(first);
            self.write(group).await;
        }
        if let Err(error) = self.connection.close().await {
            tracing::warn!(%error, "the embedded journal didn't close cleanly; nothing acknowledged is lost");
        }
        drop(self.folder);
        self.end.send_replace(None);
    }

    /// The first append and whatever queued behind it, as much as one transaction takes.
    fn group(&mut self, first: Queued) -> Vec<Queued> {
        let mut bytes = first.append.bytes.len();
        let mut group = vec![first];
        while group.len() < GROUP_APPENDS && bytes < GROUP_BYTES {
            let Ok(next) = self.queue.try_recv() else { break };
            bytes += next.append.bytes.len();
            group.push(next);
        }
        group
    }

    /// Writes a group and answers it. No answer is given before the transaction is done: a conflict with an entry that
    /// is never stored would be none.
    async fn write(&mut self, group: Vec<Queued>) {
        let (appends, answers): (Vec<_>, Vec<_>) =
            group.into_iter().map(|queued| (queued.append, queued.answer)).unzip();
        let verdicts = self.commit(appends).await;
        if let Err(error) = &verdicts {
            tracing::error!(%error, "the embedded journal can't be written");
            self.tail = Tail::default();
        }
        for (n, answer) in answers.into_iter().enumerate() {
            let told = match &verdicts {
                Ok(verdicts) => match verdicts[n] {
                    Verdict::At(position) => Ok(position),
                    Verdict::Conflict => Err(AppendError::Conflict),
                },
                Err(error) => Err(AppendError::Unknown(JournalError::Unavailable {
                    what: format!("writing the embedded journal: {error}"),
                    source: None,
                })),
            };
            // Whoever appended may be gone; the entry stands all the same.
            drop(answer.send(told));
        }
    }

    async fn commit(&mut self, appends: Vec<Append>) -> Result<Vec<Verdict>, sqlx::Error> {
        let mut last = self.last().await?;
        let (mut fresh, mut verdicts) = (Vec::new(), Vec::with_capacity(appends.len()));
        for append in appends {
            let subject = append.subject.to_string();
            if self.last_of(&subject).await? == append.expected {
                last = Position(last.0 + 1);
                self.tail.subjects.insert(subject.clone(), last);
                verdicts.push(Verdict::At(last));
                fresh.push(Fresh { position: last, subject, append });
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

    /// Where the journal ends.
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

    /// Where a subject's last entry stands; 0 if it has none.
    async fn last_of(&mut self, subject: &str) -> Result<Position, sqlx::Error> {
        if let Some(last) = self.tail.subjects.get(subject) {
            return Ok(*last);
        }
        let read: Option<i64> = sqlx::query_scalar("SELECT max(position) FROM entry WHERE subject = ?")
            .bind(subject)
            .fetch_one(&mut self.connection)
            .await?;
        let last = Position(unsigned(read.unwrap_or(0)));
        if self.tail.subjects.len() >= REMEMBERED_SUBJECTS {
            self.tail.subjects.pop_first();
        }
        self.tail.subjects.insert(subject.to_owned(), last);
        Ok(last)
    }

    /// What follows the expected position: this very entry, stored before, or another.
    async fn settle(
        &mut self,
        subject: &str,
        append: &Append,
        fresh: &[Fresh],
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
        let follows = |row: &&Fresh| row.subject == subject && row.position > append.expected;
        Ok(match fresh.iter().find(follows) {
            Some(row) if row.append.entry == append.entry => Verdict::At(row.position),
            Some(_) | None => Verdict::Conflict,
        })
    }
}

/// One statement is one transaction.
async fn insert(connection: &mut SqliteConnection, rows: &[Fresh]) -> Result<(), sqlx::Error> {
    let mut insert = QueryBuilder::new("INSERT INTO entry (position, subject, id, bytes) ");
    insert.push_values(rows, |mut values, row| {
        let EntryId(id) = row.append.entry;
        values
            .push_bind(signed(row.position.0))
            .push_bind(row.subject.as_str())
            .push_bind(id.as_bytes().as_slice())
            .push_bind(row.append.bytes.as_ref());
    });
    insert.build().persistent(rows.len() == 1).execute(connection).await?;
    Ok(())
}
