//! Follows the journal and projects it into a database.

use std::time::Duration;

use journal::limits::{FOLLOW_BEHIND_TIMEOUT, FOLLOW_RETRY};
use journal::{Follower, Journal, JournalError, StoredEntry};
use projections::Reader;
use projections::cluster_log::QuarantinedPositions;
use projections::reader::{ReadMessage, empty_entry, founded_cluster};
use projections::tables::{Batch, Dialect, Moment, QuarantinedMessage, Tables};
use schemas::names::ClusterId;
use schemas::{Entry, Position, Subject};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::database::{Database, Generation, check_exists};
use crate::writer::{self, Job};
use crate::{Error, Url};

/// Maximum number of entries per read.
const READ_ENTRIES: usize = 4_000;
/// Number of rows at which a batch is full. Reading pauses until the full batch can be written. Memory holds
/// up to three batches: one being written, one waiting, and one being folded.
const MAX_BATCH_ROWS: usize = 40_000;
/// Number of bytes at which a batch is full, as counted by [`Batch::bytes`]. Single entries and their changes
/// to the tables may be large.
const MAX_BATCH_BYTES: usize = 64 << 20;

/// State of a projection that folds the log into batches.
#[derive(Debug, Default)]
pub struct Projector {
    reader: Reader,
    tables: Tables,
    batch: Batch,
}

impl Projector {
    /// Creates a projector that knows the positions that operators quarantined.
    #[must_use]
    pub fn with_quarantines(quarantines: QuarantinedPositions) -> Self {
        Self { reader: Reader::with_quarantines(quarantines), ..Self::default() }
    }

    /// Returns the position of the last folded message.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.tables.world().position()
    }

    /// Returns the cluster of the log, or `None` if the cluster is not founded yet.
    #[must_use]
    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.tables.world().cluster().map(|cluster| cluster.id)
    }

    /// Returns the folded tables.
    #[must_use]
    pub const fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Folds the next message of the journal and adds its changes to the batch.
    ///
    /// # Errors
    /// A newer program wrote the message.
    pub fn fold(&mut self, recorded: &StoredEntry) -> Result<(), Error> {
        let (entry, why) = self.read(recorded)?;
        let StoredEntry { position, subject, .. } = recorded;
        if let Some(reason) = why {
            tracing::warn!(%position, subject, reason, "entry quarantined");
            let subject = subject.clone();
            self.batch.add_quarantined(QuarantinedMessage { position: *position, subject, reason });
        }
        let steps = self.tables.fold(*position, &entry);
        self.batch.add(steps);
        self.batch.checksum = recorded.checksum();
        Ok(())
    }

    /// Folds a message that the tables already contain, without adding changes to the batch.
    ///
    /// # Errors
    /// A newer program wrote the message.
    pub fn skip(&mut self, recorded: &StoredEntry) -> Result<(), Error> {
        let (entry, _) = self.read(recorded)?;
        self.batch.skip(recorded.position, &entry);
        self.tables.fold_only(recorded.position, &entry);
        Ok(())
    }

    /// Returns the entry of a message. For a quarantined message, returns an empty entry and the reason.
    fn read(&mut self, recorded: &StoredEntry) -> Result<(Entry, Option<String>), Error> {
        let StoredEntry { position, subject, bytes, .. } = recorded;
        let read = self.reader.read(*position, subject, bytes);
        match read.map_err(|why| Error::Unreadable { position: *position, why })? {
            ReadMessage::Entry(entry) => Ok((entry, None)),
            ReadMessage::Quarantined(why) => Ok((empty_entry(), Some(why))),
        }
    }

    /// Takes the batch of all changes since the last call.
    pub fn take_batch(&mut self) -> Batch {
        let end = self.batch.end;
        std::mem::replace(&mut self.batch, Batch::after(end))
    }
}

/// Interval at which the position is reported again if nothing is written.
const REPORT_INTERVAL: Duration = Duration::from_secs(2);

/// Number of idle intervals between two checks of the tables in the database.
const CHECK_EVERY_REPORTS: u32 = 5;

/// Keeps the tables of a database up to date until `stop` is cancelled.
///
/// `said` receives the position of the tables: first when the log is folded up to that position, and again
/// after each batch. It receives `None` when writing to the tables ends, before a database is opened again.
/// The projector waits for an unavailable database. If another program has rebuilt the tables, the projector
/// continues with the new tables.
///
/// # Errors
/// Returns the reason why the projector cannot continue, see [`Error`].
pub async fn run(
    journal: &Journal,
    quarantines: QuarantinedPositions,
    url: &Url,
    stop: &CancellationToken,
    mut said: impl FnMut(Option<Moment>),
) -> Result<(), Error> {
    while let Some(database) = writer::open(url, &quarantines, stop).await? {
        let mut following = Pipeline::new(journal, quarantines.clone());
        let written = following.write(journal, database, None, stop, &mut |moment| said(Some(moment))).await;
        said(None);
        match written {
            Ok(Some(database)) => return database.close().await,
            Ok(None) => return Ok(()),
            Err(Error::Replaced) => tracing::warn!("{}; switching to them", Error::Replaced),
            Err(error @ Error::Rewound { .. }) => tracing::warn!("{error}; writing them again"),
            Err(error @ Error::Lost(_)) => tracing::warn!("{error}; creating them again"),
            // After a lost connection, the server may still hold the session that wrote these tables, and the
            // session's lock. Another projector may also have locked the tables first.
            Err(error @ Error::LockedByOther) if url.dialect() == Dialect::Postgres => {
                tracing::warn!("{error}");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reader and folder of the journal.
#[derive(Debug)]
pub(crate) struct Pipeline {
    projector: Projector,
    follower: Follower,
}

/// Progress of a follower with one database.
#[derive(Debug)]
struct Progress {
    /// State of the tables when the projector starts.
    standing: Generation,
    /// End of the journal when the projector starts. The tables are up to date once they reach this position.
    end: Position,
    /// Position up to which batches were sent to the writer.
    sent: Position,
    /// `true` if the indexes for readers exist or were requested.
    indexed: bool,
    /// Position to stop at. `None` to follow without an end.
    until: Option<Position>,
    /// Position of the tables. `None` until it is known.
    written: Option<Moment>,
    url: Url,
    /// Number of idle intervals so far.
    idle: u32,
    /// Error that stopped the reading.
    error: Option<Error>,
}

impl Pipeline {
    pub(crate) fn new(journal: &Journal, quarantines: QuarantinedPositions) -> Self {
        Self { projector: Projector::with_quarantines(quarantines), follower: journal.follow(Position(0)) }
    }

    /// Writes the log into tables, up to a position or until `stop` is cancelled. Returns the database.
    /// Returns `None` if the database was unavailable when `stop` was cancelled. Tables of another journal
    /// are refused before anything is written.
    pub(crate) async fn write(
        &mut self,
        journal: &Journal,
        database: Database,
        until: Option<Position>,
        stop: &CancellationToken,
        said: &mut impl FnMut(Moment),
    ) -> Result<Option<Database>, Error> {
        let standing = database.standing().clone();
        let Some(end) = check_journal(journal, &standing, stop).await? else { return Ok(Some(database)) };
        let (given, indexed) = (standing.end.position, standing.indexed);
        let url = database.url().clone();
        let mut course =
            Progress { standing, end, sent: given, indexed, until, written: None, url, idle: 0, error: None };
        let (jobs, taken) = mpsc::channel(1);
        // An unbounded channel is safe, because each sent batch causes at most one message.
        let (told, mut written) = mpsc::unbounded_channel();
        let writing = tokio::spawn(writer::run_jobs(database, taken, told, stop.clone()));
        let writing = AbortOnDropHandle::new(writing);
        self.fold(&mut course, jobs, &mut written, stop, said).await?;
        let database = match writing.await {
            Ok(ended) => ended?,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        while let Ok(moment) = written.try_recv() {
            said(moment);
        }
        course.error.map_or(Ok(database), Err)
    }

    /// Reads and folds the log, and sends batches to the writer whenever it is ready.
    async fn fold(
        &mut self,
        course: &mut Progress,
        jobs: mpsc::Sender<Job>,
        written: &mut mpsc::UnboundedReceiver<Moment>,
        stop: &CancellationToken,
        said: &mut impl FnMut(Moment),
    ) -> Result<(), Error> {
        loop {
            let job = self.has_job(course);
            let reads = course.has_more(self.projector.position());
            if !job && !reads {
                return Ok(());
            }
            let has_room = has_room(&self.projector.batch);
            tokio::select! {
                // Stops and progress take precedence over further reads.
                biased;
                () = stop.cancelled() => return Ok(()),
                Some(moment) = written.recv() => {
                    course.written = Some(moment);
                    said(moment);
                }
                // The writer reports its own error.
                () = jobs.closed() => return Ok(()),
                Ok(permit) = jobs.reserve(), if job => permit.send(self.job(course)),
                recorded = self.follower.next_batch(READ_ENTRIES), if reads && has_room => {
                    if let Err(error) = self.fold_page(course, &recorded?, said) {
                        course.error = Some(error);
                    }
                }
                () = sleep(REPORT_INTERVAL) => {
                    course.check_tables().await?;
                    course.written.into_iter().for_each(&mut *said);
                }
            }
        }
    }

    fn has_job(&self, course: &Progress) -> bool {
        let at = self.projector.position();
        at > course.sent || (!course.indexed && at >= course.end && at == course.sent)
    }

    fn job(&mut self, course: &mut Progress) -> Job {
        let position = self.projector.position();
        if position == course.sent {
            course.indexed = true;
            return Job::Index;
        }
        let begin = std::mem::replace(&mut course.sent, position);
        Job::Write {
            begin,
            batch: Box::new(self.projector.take_batch()),
            cluster_id: self.projector.cluster_id(),
        }
    }

    fn fold_page(
        &mut self,
        course: &mut Progress,
        recorded: &[StoredEntry],
        said: &mut impl FnMut(Moment),
    ) -> Result<(), Error> {
        let end = course.standing.end;
        for one in recorded {
            if one.position > end.position {
                self.projector.fold(one)?;
                continue;
            }
            // Messages that are already in the tables are folded only to compute the state that later
            // messages are based on.
            self.projector.skip(one)?;
            if one.position == end.position {
                course.standing.check_cluster(self.projector.cluster_id())?;
                course.written = Some(end);
                said(end);
            }
        }
        Ok(())
    }
}

impl Progress {
    /// Checks at intervals that the tables still exist. If nothing is written, no other step detects lost
    /// tables.
    async fn check_tables(&mut self) -> Result<(), Error> {
        self.idle += 1;
        let Some(written) = self.written.filter(|_| self.idle.is_multiple_of(CHECK_EVERY_REPORTS)) else {
            return Ok(());
        };
        match check_exists(&self.url, self.standing.number, written.position).await {
            Err(error) if error.is_transient() => Ok(()),
            checked => checked,
        }
    }

    /// Returns `true` if there is more to read.
    fn has_more(&self, position: Position) -> bool {
        self.error.is_none() && self.until.is_none_or(|until| position < until)
    }
}

/// Returns `true` if more may be read before a batch is written.
const fn has_room(batch: &Batch) -> bool {
    batch.rows() < MAX_BATCH_ROWS && batch.bytes() < MAX_BATCH_BYTES
}

/// Checks that a journal belongs to tables, and returns the end of the journal. The journal must have the
/// same cluster, must reach the position of the tables, and must have the same entry at that position.
/// Retries until the journal is available. Returns `None` if `stop` is cancelled first.
pub(crate) async fn check_journal(
    journal: &Journal,
    standing: &Generation,
    stop: &CancellationToken,
) -> Result<Option<Position>, Error> {
    if standing.cluster_id.is_some() {
        let Some(cluster) = retry(stop, || find_cluster(journal)).await? else { return Ok(None) };
        standing.check_cluster(cluster)?;
    }
    let position = standing.end.position;
    let Some(end) = wait_for_end(position, reach_timeout(journal), stop, || journal.end()).await? else {
        return Ok(None);
    };
    if let Some(expected) = &standing.checksum {
        let Some(stands) = retry(stop, || read_entry(journal, position)).await? else { return Ok(None) };
        if checksum_text(stands.checksum()) != *expected {
            return Err(Error::OtherHistory { position });
        }
    }
    Ok(Some(end))
}

/// Returns the entry at a position that the journal has reached. The answering replica may not have the entry
/// yet.
async fn read_entry(journal: &Journal, position: Position) -> Result<StoredEntry, JournalError> {
    let page = journal.read(Position(position.0.saturating_sub(1)), None, 1).await?;
    page.into_iter().find(|one| one.position == position).ok_or_else(|| JournalError::Unavailable {
        what: format!("position {position} cannot be read yet"),
        source: None,
    })
}

/// Returns a checksum in its database format.
pub(crate) fn checksum_text(checksum: u64) -> String {
    format!("{checksum:016x}")
}

/// Returns the end of a journal as soon as it is available. Returns `None` if `stop` is cancelled first.
pub(crate) async fn end(journal: &Journal, stop: &CancellationToken) -> Result<Option<Position>, Error> {
    retry(stop, || journal.end()).await
}

/// Returns the cluster of a journal, or `None` if the cluster is not founded yet.
async fn find_cluster(journal: &Journal) -> Result<Option<ClusterId>, JournalError> {
    journal.find(&Subject::Cluster, |one| founded_cluster(&Entry::decode(&one.bytes).ok()?)).await
}

/// Returns the time for which a journal may end before the position of its tables. A stream can end early
/// after a change of its leader. The followers of a stream wait for the same time.
const fn reach_timeout(journal: &Journal) -> Duration {
    if matches!(journal, Journal::JetStream(_)) { FOLLOW_BEHIND_TIMEOUT } else { Duration::ZERO }
}

/// Returns the end of a journal once it reaches a position. Returns `None` if `stop` is cancelled first.
async fn wait_for_end<F: Future<Output = Result<Position, JournalError>>>(
    found: Position,
    patience: Duration,
    stop: &CancellationToken,
    mut end: impl FnMut() -> F,
) -> Result<Option<Position>, Error> {
    let mut behind = None;
    loop {
        let Some(end) = retry(stop, &mut end).await? else { return Ok(None) };
        if found <= end {
            return Ok(Some(end));
        }
        if behind.get_or_insert_with(Instant::now).elapsed() >= patience {
            return Err(Error::AheadOfJournal { found, end });
        }
        tracing::warn!("the journal ends at {end}, but the tables are at {found}; checking again");
        if !sleep_unless_stopped(FOLLOW_RETRY.1, stop).await {
            return Ok(None);
        }
    }
}

/// Repeats a request until the journal is available. Returns `None` if `stop` is cancelled first.
async fn retry<T, F: Future<Output = Result<T, JournalError>>>(
    stop: &CancellationToken,
    mut ask: impl FnMut() -> F,
) -> Result<Option<T>, Error> {
    let mut pause = FOLLOW_RETRY.0;
    loop {
        let answer = tokio::select! {
            () = stop.cancelled() => return Ok(None),
            answer = ask() => answer,
        };
        match answer {
            Ok(answer) => return Ok(Some(answer)),
            Err(error @ JournalError::Unavailable { .. }) => tracing::warn!("{error}; retrying"),
            Err(
                error @ (JournalError::Absent
                | JournalError::Refused(_)
                | JournalError::Damaged(_)
                | JournalError::Closed),
            ) => return Err(error.into()),
        }
        if !sleep_unless_stopped(pause, stop).await {
            return Ok(None);
        }
        pause = (pause * 2).min(FOLLOW_RETRY.1);
    }
}

/// Waits for a time. Returns `false` if `stop` is cancelled first.
pub(crate) async fn sleep_unless_stopped(pause: Duration, stop: &CancellationToken) -> bool {
    tokio::select! {
        () = stop.cancelled() => false,
        () = sleep(pause) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unavailable() -> JournalError {
        JournalError::Unavailable { what: "no connection".to_owned(), source: None }
    }

    /// Returns the result of [`reach`] for position 10, if the journal gives these answers.
    async fn end_with_answers(
        patience: Duration,
        answers: Vec<Result<u64, JournalError>>,
    ) -> Result<Option<Position>, Error> {
        let mut answers = answers.into_iter();
        let ask = || {
            let answer = answers.next().expect("no further request");
            async move { answer.map(Position) }
        };
        wait_for_end(Position(10), patience, &CancellationToken::new(), ask).await
    }

    #[tokio::test]
    async fn temporarily_unavailable_or_lagging_journal_is_retried() {
        let answers = vec![Err(unavailable()), Ok(9), Err(unavailable()), Ok(11)];
        let end =
            end_with_answers(Duration::from_secs(60), answers).await.expect("the journal is available again");
        assert_eq!(end, Some(Position(11)));
        let refused = end_with_answers(Duration::ZERO, vec![Err(unavailable()), Ok(9)]).await.unwrap_err();
        assert!(
            matches!(refused, Error::AheadOfJournal { found: Position(10), end: Position(9) }),
            "{refused}"
        );
        let closed = end_with_answers(Duration::ZERO, vec![Err(JournalError::Closed)]).await.unwrap_err();
        assert!(matches!(closed, Error::Journal(JournalError::Closed)), "{closed}");
        let stop = CancellationToken::new();
        stop.cancel();
        let stopped =
            wait_for_end(Position(10), Duration::ZERO, &stop, || async { Err(unavailable()) }).await;
        assert_eq!(stopped.expect("the stop is not an error"), None);
    }

    #[test]
    fn batch_is_full_at_row_or_byte_limit() {
        let aside = |bytes| QuarantinedMessage {
            position: Position(1),
            subject: "x".repeat(bytes),
            reason: String::new(),
        };
        let mut batch = Batch::default();
        assert!(has_room(&batch));
        (0..MAX_BATCH_ROWS).for_each(|_| batch.add_quarantined(aside(1)));
        assert!(!has_room(&batch));
        let mut batch = Batch::default();
        (0..64).for_each(|_| batch.add_quarantined(aside(1 << 20)));
        assert!(batch.rows() < MAX_BATCH_ROWS && !has_room(&batch));
    }
}
