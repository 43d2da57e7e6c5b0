//! Following the journal into a database.

use journal::{Follower, Journal, Recorded};
use projections::Reader;
use projections::cluster_log::Positions;
use projections::reader::{Read, nothing};
use projections::tables::{Batch, Moment, SetAside, Tables};
use schemas::names::ClusterId;
use schemas::{Entry, Position};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::database::{Database, Standing};
use crate::writer::{self, Job};
use crate::{Error, Url};

/// How many entries are read at once.
const ENTRIES: usize = 4_000;
/// Rows of a batch after which nothing more is read until it can be written. Three batches are there at a time: one that is
/// written, one that waits, and one that is folded.
const ROWS: usize = 40_000;

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
            self.batch.set_aside.push(SetAside { position: *position, subject, why });
        }
        let steps = self.tables.fold(*position, &entry);
        self.batch.take(steps);
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

/// Keeps the tables of a database up to date until it is told to stop. `said` is told how far they are: once
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
    mut said: impl FnMut(Moment),
) -> Result<(), Error> {
    while let Some((database, standing)) = writer::open(url, stop).await? {
        check_end(journal, &standing).await?;
        let mut following = Following::new(journal, set_aside.clone());
        match following.write(journal, database, None, stop, &mut said).await {
            Ok(Some(database)) => return database.close().await,
            Ok(None) => return Ok(()),
            Err(Error::Replaced) => tracing::warn!("{}: going over to them", Error::Replaced),
            Err(error @ Error::Rewound { .. }) => tracing::warn!("{error}: writing that again"),
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
    /// Why it reads no further.
    failed: Option<Error>,
}

impl Following {
    pub(crate) fn new(journal: &Journal, set_aside: Positions) -> Self {
        Self { projector: Projector::knowing(set_aside), follower: journal.follow(Position(0)) }
    }

    /// Writes what it folds into tables: up to a position, or until it is told to stop. Gives the database back unless
    /// that is gone.
    pub(crate) async fn write(
        &mut self,
        journal: &Journal,
        database: Database,
        until: Option<Position>,
        stop: &CancellationToken,
        said: &mut impl FnMut(Moment),
    ) -> Result<Option<Database>, Error> {
        let (standing, end) = (database.standing().clone(), journal.end().await?);
        let (given, indexed) = (standing.end.position, standing.indexed);
        let mut course = Course { standing, end, given, indexed, until, failed: None };
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
            let has_room = self.projector.batch.rows() < ROWS;
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                Some(moment) = written.recv() => said(moment),
                // The writer says why it ended.
                () = jobs.closed() => return Ok(()),
                Ok(permit) = jobs.reserve(), if job => permit.send(self.job(course)),
                recorded = self.follower.next_batch(ENTRIES), if reads && has_room => {
                    if let Err(error) = self.take(course, &recorded?, said) {
                        course.failed = Some(error);
                    }
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
        course: &Course,
        recorded: &[Recorded],
        said: &mut impl FnMut(Moment),
    ) -> Result<(), Error> {
        let standing = &course.standing;
        for one in recorded {
            if one.position > standing.end.position {
                self.projector.take(one)?;
                continue;
            }
            // What is there already is folded only for what follows from it.
            self.projector.pass(one)?;
            if one.position == standing.end.position {
                check_cluster(standing, self.projector.cluster_id())?;
                said(standing.end);
            }
        }
        Ok(())
    }
}

impl Course {
    /// Whether there is more to be read.
    fn reads(&self, position: Position) -> bool {
        self.failed.is_none() && self.until.is_none_or(|until| position < until)
    }
}

/// A database that stands where the journal doesn't reach is not of this journal.
pub(crate) async fn check_end(journal: &Journal, standing: &Standing) -> Result<(), Error> {
    let (found, end) = (standing.end.position, journal.end().await?);
    if found > end { Err(Error::Ahead { found, end }) } else { Ok(()) }
}

pub(crate) fn check_cluster(standing: &Standing, cluster: Option<ClusterId>) -> Result<(), Error> {
    match (&standing.cluster_id, cluster) {
        (Some(found), Some(expected)) if *found != expected.to_string() => {
            Err(Error::OtherCluster { found: found.clone(), expected })
        }
        (Some(_) | None, _) => Ok(()),
    }
}
