//! Following the journal into a database.

use std::time::Duration;

use journal::limits::{FOLLOW_BEHIND, FOLLOW_RETRY};
use journal::{Follower, Journal, JournalError, Recorded};
use projections::Reader;
use projections::cluster_log::Positions;
use projections::reader::{Read, founded, nothing};
use projections::tables::{Batch, Dialect, Moment, SetAside, Tables};
use schemas::names::ClusterId;
use schemas::{Entry, Position, Subject};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::database::{Database, Standing, check_there};
use crate::writer::{self, Job};
use crate::{Error, Url};

/// How many entries are read at once.
const ENTRIES: usize = 4_000;
/// Rows of a batch after which nothing more is read until it can be written. Three batches are there at a time: one that is
/// written, one that waits, and one that is folded.
const ROWS: usize = 40_000;
/// The same in bytes, as [`Batch::bytes`] counts them: an entry may be large, and so may what it does to tables.
const BYTES: usize = 64 << 20;

/// What folds the log into batches.
#[derive(Debug, Default)]
pub struct Projector {
    reader: Reader,
    tables: Tables,
    batch: Batch,
}

impl Projector {
    /// A projector that knows what operators set aside.
    #[must_use]
    pub fn knowing(set_aside: Positions) -> Self {
        Self { reader: Reader::knowing(set_aside), ..Self::default() }
    }

    /// Where it stands.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.tables.world().position()
    }

    /// The cluster whose log it folds, once that was founded.
    #[must_use]
    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.tables.world().cluster().map(|cluster| cluster.id)
    }

    /// The tables that it has folded.
    #[must_use]
    pub const fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Takes the next message of the journal.
    ///
    /// # Errors
    /// A later program wrote it.
    pub fn take(&mut self, recorded: &Recorded) -> Result<(), Error> {
        let (entry, why) = self.read(recorded)?;
        let Recorded { position, subject, .. } = recorded;
        if let Some(why) = why {
            tracing::warn!(%position, subject, why, "an entry is set aside");
            let subject = subject.clone();
            self.batch.put_aside(SetAside { position: *position, subject, why });
        }
        let steps = self.tables.fold(*position, &entry);
        self.batch.take(steps);
        self.batch.checksum = recorded.checksum();
        Ok(())
    }

    /// The same of one that the tables have: nothing is to be written of it.
    ///
    /// # Errors
    /// A later program wrote it.
    pub fn pass(&mut self, recorded: &Recorded) -> Result<(), Error> {
        let (entry, _) = self.read(recorded)?;
        self.batch.pass(recorded.position, &entry);
        self.tables.pass(recorded.position, &entry);
        Ok(())
    }

    /// What stands there, and why it is no entry.
    fn read(&mut self, recorded: &Recorded) -> Result<(Entry, Option<String>), Error> {
        let Recorded { position, subject, bytes, .. } = recorded;
        let read = self.reader.read(*position, subject, bytes);
        match read.map_err(|why| Error::Unreadable { position: *position, why })? {
            Read::Entry(entry) => Ok((entry, None)),
            Read::SetAside(why) => Ok((nothing(), Some(why))),
        }
    }

    /// What it folded since the last time.
    pub fn batch(&mut self) -> Batch {
        let end = self.batch.end;
        std::mem::replace(&mut self.batch, Batch::behind(end))
    }
}

/// Where nothing is to be written it is said again so often where the tables stand.
const IDLE: Duration = Duration::from_secs(2);

/// Of how many such times one looks whether the database is still the same.
const LOOKS: u32 = 5;

/// Keeps the tables of a database up to date until it is told to stop. `said` is told how far they are, and nothing while
/// it waits for the database: once
/// the log is folded that is in them already, and with each batch. A database that is gone is waited for; tables that
/// another program has built in place of these are gone over to.
///
/// # Errors
/// Why it can't go on: see [`Error`].
pub async fn run(
    journal: &Journal,
    set_aside: Positions,
    url: &Url,
    stop: &CancellationToken,
    mut said: impl FnMut(Option<Moment>),
) -> Result<(), Error> {
    while let Some(database) = writer::open(url, &set_aside, stop).await? {
        let mut following = Following::new(journal, set_aside.clone());
        let written = following.write(journal, database, None, stop, &mut |moment| said(Some(moment))).await;
        said(None);
        match written {
            Ok(Some(database)) => return database.close().await,
            Ok(None) => return Ok(()),
            Err(Error::Replaced) => tracing::warn!("{}: going over to them", Error::Replaced),
            Err(error @ Error::Rewound { .. }) => tracing::warn!("{error}: writing that again"),
            Err(error @ Error::Lost(_)) => tracing::warn!("{error}: making them again"),
            // A server that was lost for a while may still have the session in which these tables were written; or somebody
            // else was first.
            Err(error @ Error::Another) if url.dialect() == Dialect::Postgres => tracing::warn!("{error}"),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What reads the journal on, and folds it.
#[derive(Debug)]
pub(crate) struct Following {
    projector: Projector,
    follower: Follower,
}

/// How far a follower is with one database.
#[derive(Debug)]
struct Course {
    /// Where the tables stood.
    standing: Standing,
    /// Where the journal ended then: from here on the tables are up to date.
    end: Position,
    /// Up to where batches were given to the writer.
    given: Position,
    /// Whether the indexes for readers are there, or asked for.
    indexed: bool,
    /// Up to where it goes; none: on and on.
    until: Option<Position>,
    /// Where the tables stand, once that is known.
    written: Option<Moment>,
    /// The database.
    url: Url,
    /// How often nothing came for a while.
    idle: u32,
    /// Why it reads no further.
    failed: Option<Error>,
}

impl Following {
    pub(crate) fn new(journal: &Journal, set_aside: Positions) -> Self {
        Self { projector: Projector::knowing(set_aside), follower: journal.follow(Position(0)) }
    }

    /// Writes what it folds into tables: up to a position, or until it is told to stop. Gives the database back unless
    /// that is gone. What isn't of this journal is refused before anything is written.
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
            Course { standing, end, given, indexed, until, written: None, url, idle: 0, failed: None };
        let (jobs, taken) = mpsc::channel(1);
        // No more than batches that were given and not heard of.
        let (told, mut written) = mpsc::unbounded_channel();
        let writing = tokio::spawn(writer::work(database, taken, told, stop.clone()));
        let writing = AbortOnDropHandle::new(writing);
        self.fold(&mut course, jobs, &mut written, stop, said).await?;
        let database = match writing.await {
            Ok(ended) => ended?,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        while let Ok(moment) = written.try_recv() {
            said(moment);
        }
        course.failed.map_or(Ok(database), Err)
    }

    /// Reads and folds, and gives batches to the writer as it takes them.
    async fn fold(
        &mut self,
        course: &mut Course,
        jobs: mpsc::Sender<Job>,
        written: &mut mpsc::UnboundedReceiver<Moment>,
        stop: &CancellationToken,
        said: &mut impl FnMut(Moment),
    ) -> Result<(), Error> {
        loop {
            let job = self.has_job(course);
            let reads = course.reads(self.projector.position());
            if !job && !reads {
                return Ok(());
            }
            let has_room = has_room(&self.projector.batch);
            tokio::select! {
                // What ends this and what was written is heard before anything more is read.
                biased;
                () = stop.cancelled() => return Ok(()),
                Some(moment) = written.recv() => {
                    course.written = Some(moment);
                    said(moment);
                }
                // The writer says why it ended.
                () = jobs.closed() => return Ok(()),
                Ok(permit) = jobs.reserve(), if job => permit.send(self.job(course)),
                recorded = self.follower.next_batch(ENTRIES), if reads && has_room => {
                    if let Err(error) = self.take(course, &recorded?, said) {
                        course.failed = Some(error);
                    }
                }
                () = sleep(IDLE) => {
                    course.look().await?;
                    course.written.into_iter().for_each(&mut *said);
                }
            }
        }
    }

    fn has_job(&self, course: &Course) -> bool {
        let at = self.projector.position();
        at > course.given || (!course.indexed && at >= course.end && at == course.given)
    }

    fn job(&mut self, course: &mut Course) -> Job {
        let position = self.projector.position();
        if position == course.given {
            course.indexed = true;
            return Job::Index;
        }
        let begin = std::mem::replace(&mut course.given, position);
        Job::Write { begin, batch: Box::new(self.projector.batch()), cluster_id: self.projector.cluster_id() }
    }

    fn take(
        &mut self,
        course: &mut Course,
        recorded: &[Recorded],
        said: &mut impl FnMut(Moment),
    ) -> Result<(), Error> {
        let end = course.standing.end;
        for one in recorded {
            if one.position > end.position {
                self.projector.take(one)?;
                continue;
            }
            // What is there already is folded only for what follows from it.
            self.projector.pass(one)?;
            if one.position == end.position {
                course.standing.check_cluster(self.projector.cluster_id())?;
                course.written = Some(end);
                said(end);
            }
        }
        Ok(())
    }
}

impl Course {
    /// Looks now and then whether the tables are still in the database, where nothing is written that would tell.
    async fn look(&mut self) -> Result<(), Error> {
        self.idle += 1;
        let Some(written) = self.written.filter(|_| self.idle.is_multiple_of(LOOKS)) else { return Ok(()) };
        match check_there(&self.url, self.standing.generation, written.position).await {
            Err(error) if error.passes() => Ok(()),
            checked => checked,
        }
    }

    /// Whether there is more to be read.
    fn reads(&self, position: Position) -> bool {
        self.failed.is_none() && self.until.is_none_or(|until| position < until)
    }
}

/// Whether more may be read before a batch is written.
const fn has_room(batch: &Batch) -> bool {
    batch.rows() < ROWS && batch.bytes() < BYTES
}

/// Where a journal ends to which tables belong: it is of their cluster, reaches where they stand, and has the same entry
/// there. It is asked until it can be. None: it was told to stop first.
pub(crate) async fn check_journal(
    journal: &Journal,
    standing: &Standing,
    stop: &CancellationToken,
) -> Result<Option<Position>, Error> {
    if standing.cluster_id.is_some() {
        let Some(cluster) = insist(stop, || founding(journal)).await? else { return Ok(None) };
        standing.check_cluster(cluster)?;
    }
    let position = standing.end.position;
    let Some(end) = reach(position, patience(journal), stop, || journal.end()).await? else {
        return Ok(None);
    };
    if let Some(expected) = &standing.checksum {
        let Some(stands) = insist(stop, || entry_at(journal, position)).await? else { return Ok(None) };
        if checksum_text(stands.checksum()) != *expected {
            return Err(Error::OtherHistory { position });
        }
    }
    Ok(Some(end))
}

/// The entry at a position that the journal has reached. A replica that answers may not have it yet.
async fn entry_at(journal: &Journal, position: Position) -> Result<Recorded, JournalError> {
    let page = journal.read(Position(position.0.saturating_sub(1)), None, 1).await?;
    page.into_iter().find(|one| one.position == position).ok_or_else(|| JournalError::Unavailable {
        what: format!("position {position} can't be read yet"),
        source: None,
    })
}

/// A checksum, as it stands in a database.
pub(crate) fn checksum_text(checksum: u64) -> String {
    format!("{checksum:016x}")
}

/// Where a journal ends, as soon as it can be asked. None: it was told to stop first.
pub(crate) async fn end(journal: &Journal, stop: &CancellationToken) -> Result<Option<Position>, Error> {
    insist(stop, || journal.end()).await
}

/// The cluster whose journal this is; none: it was not founded yet.
async fn founding(journal: &Journal) -> Result<Option<ClusterId>, JournalError> {
    journal.find(&Subject::Cluster, |one| founded(&Entry::decode(&one.bytes).ok()?)).await
}

/// How long a journal may end before where tables of it stand: a stream may after a change of its leader, and then its
/// followers wait as long.
const fn patience(journal: &Journal) -> Duration {
    match journal {
        Journal::Memory(_) | Journal::Sqlite(_) => Duration::ZERO,
        Journal::JetStream(_) => FOLLOW_BEHIND,
    }
}

/// Where a journal ends, once it reaches a position. None: it was told to stop first.
async fn reach<F: Future<Output = Result<Position, JournalError>>>(
    found: Position,
    patience: Duration,
    stop: &CancellationToken,
    mut end: impl FnMut() -> F,
) -> Result<Option<Position>, Error> {
    let mut behind = None;
    loop {
        let Some(end) = insist(stop, &mut end).await? else { return Ok(None) };
        if found <= end {
            return Ok(Some(end));
        }
        if behind.get_or_insert_with(Instant::now).elapsed() >= patience {
            return Err(Error::Ahead { found, end });
        }
        tracing::warn!("the journal ends at {end}, and the tables stand at {found}: looking again");
        if !waits(FOLLOW_RETRY.1, stop).await {
            return Ok(None);
        }
    }
}

/// What a journal answers, as soon as it can be asked. None: it was told to stop first.
async fn insist<T, F: Future<Output = Result<T, JournalError>>>(
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
            Err(error @ JournalError::Unavailable { .. }) => tracing::warn!("{error}; asking it again"),
            Err(
                error @ (JournalError::Absent
                | JournalError::Refused(_)
                | JournalError::Damaged(_)
                | JournalError::Closed),
            ) => return Err(error.into()),
        }
        if !waits(pause, stop).await {
            return Ok(None);
        }
        pause = (pause * 2).min(FOLLOW_RETRY.1);
    }
}

/// Waits; false: it was told to stop first.
pub(crate) async fn waits(pause: Duration, stop: &CancellationToken) -> bool {
    tokio::select! {
        () = stop.cancelled() => false,
        () = sleep(pause) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unavailable() -> JournalError {
        JournalError::Unavailable { what: "it is away".to_owned(), source: None }
    }

    /// Where a journal ends for who stands at position 10, one answer after the other.
    async fn reached(
        patience: Duration,
        answers: Vec<Result<u64, JournalError>>,
    ) -> Result<Option<Position>, Error> {
        let mut answers = answers.into_iter();
        let ask = || {
            let answer = answers.next().expect("it is asked no more");
            async move { answer.map(Position) }
        };
        reach(Position(10), patience, &CancellationToken::new(), ask).await
    }

    #[tokio::test]
    async fn a_journal_that_is_away_or_behind_for_a_moment_is_waited_for() {
        let answers = vec![Err(unavailable()), Ok(9), Err(unavailable()), Ok(11)];
        let end = reached(Duration::from_secs(60), answers).await.expect("it is there again");
        assert_eq!(end, Some(Position(11)));
        let refused = reached(Duration::ZERO, vec![Err(unavailable()), Ok(9)]).await.unwrap_err();
        assert!(matches!(refused, Error::Ahead { found: Position(10), end: Position(9) }), "{refused}");
        let closed = reached(Duration::ZERO, vec![Err(JournalError::Closed)]).await.unwrap_err();
        assert!(matches!(closed, Error::Journal(JournalError::Closed)), "{closed}");
        let stop = CancellationToken::new();
        stop.cancel();
        let stopped = reach(Position(10), Duration::ZERO, &stop, || async { Err(unavailable()) }).await;
        assert_eq!(stopped.expect("it stops"), None);
    }

    #[test]
    fn a_batch_is_full_of_many_rows_or_of_many_bytes() {
        let aside =
            |bytes| SetAside { position: Position(1), subject: "x".repeat(bytes), why: String::new() };
        let mut batch = Batch::default();
        assert!(has_room(&batch));
        (0..ROWS).for_each(|_| batch.put_aside(aside(1)));
        assert!(!has_room(&batch));
        let mut batch = Batch::default();
        (0..64).for_each(|_| batch.put_aside(aside(1 << 20)));
        assert!(batch.rows() < ROWS && !has_room(&batch));
    }
}
