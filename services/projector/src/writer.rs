//! What writes batches while the next one is folded, and waits for a database that is gone for a while.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use projections::cluster_log::Positions;
use projections::tables::{Batch, Moment};
use schemas::Position;
use schemas::names::ClusterId;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::database::Database;
use crate::run::waits;
use crate::{Error, Url};

/// The first and the longest pause before a database that is gone is tried again.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(10)];
/// How long one batch may take. A server that went away without a word is noticed by this.
const LIMIT: Duration = Duration::from_secs(300);

/// What is to be done, one after the other.
#[derive(Debug)]
pub(crate) enum Job {
    /// To write what follows from here on.
    Write { begin: Position, batch: Box<Batch>, cluster_id: Option<ClusterId> },
    /// To make the indexes that readers want.
    Index,
}

/// Does jobs until no more come or it is told to stop, and gives the database back; none: it was gone when it was told
/// to stop.
pub(crate) async fn work(
    database: Database,
    mut jobs: mpsc::Receiver<Job>,
    told: mpsc::UnboundedSender<Moment>,
    stop: CancellationToken,
) -> Result<Option<Database>, Error> {
    let url = database.url().clone();
    let (generation, live) = (database.standing().generation, database.standing().live);
    let mut database = Some(database);
    while let Some(job) = jobs.recv().await {
        let mut pauses = pauses();
        loop {
            let done = tokio::select! {
                // A batch is written soon, but indexes take long, and nobody waits for those of tables that are not shown yet:
                // the end of the connection takes back what was begun.
                () = stop.cancelled(), if !live && matches!(job, Job::Index) => return Ok(None),
                done = attempt(&url, generation, &mut database, &job) => done,
            };
            let error = match done {
                Ok(()) => break,
                Err(error) if error.passes() => error,
                Err(error) => return Err(error),
            };
            // Whatever became of the transaction: what the database says counts.
            database = None;
            if !wait(&error, pauses.next().unwrap_or(PAUSES[1]), &stop).await {
                return Ok(None);
            }
        }
        if let Job::Write { batch, .. } = &job {
            // Nobody listens any more: the follower has ended.
            told.send(batch.end).ok();
        }
    }
    Ok(database)
}

/// Does a job, unless it is done: what was committed shows where the tables stand.
async fn attempt(
    url: &Url,
    generation: i64,
    connected: &mut Option<Database>,
    job: &Job,
) -> Result<(), Error> {
    let again = connected.is_none();
    let database = match connected {
        Some(database) => database,
        None => connected.insert(Database::open_again(url, generation).await?),
    };
    let found = database.standing().end.position;
    match job {
        Job::Index => database.index().await,
        Job::Write { batch, .. } if again && found == batch.end.position => Ok(()),
        // It commits without waiting for its disk, and has crashed.
        Job::Write { begin, .. } if again && found < *begin => Err(Error::Rewound { found, written: *begin }),
        Job::Write { begin, batch, cluster_id } => {
            let writing = database.write(*begin, batch, *cluster_id);
            let silent = |_| Err(Error::silent(format!("the database didn't answer within {LIMIT:?}")));
            tokio::time::timeout(LIMIT, writing).await.unwrap_or_else(silent)
        }
    }
}

/// Opens the live tables as soon as they can be had; none: it was told to stop first. In `PostgreSQL` this stands by while
/// another projector has them.
pub(crate) async fn open(
    url: &Url,
    set_aside: &Positions,
    stop: &CancellationToken,
) -> Result<Option<Database>, Error> {
    let mut pauses = pauses();
    let mut stands_by = false;
    loop {
        let (error, pause) = match open_knowing(url, set_aside).await {
            Ok(opened) => return Ok(Some(opened)),
            Err(error) if error.passes() => (error, pauses.next().unwrap_or(PAUSES[1])),
            Err(Error::Another) => {
                if !std::mem::replace(&mut stands_by, true) {
                    tracing::warn!("{}: standing by", Error::Another);
                }
                if waits(PAUSES[0] * 5, stop).await {
                    continue;
                }
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if !wait(&error, pause, stop).await {
            return Ok(None);
        }
    }
}

/// Opens the live tables, unless they hold as an entry what operators have set aside since.
async fn open_knowing(url: &Url, set_aside: &Positions) -> Result<Database, Error> {
    let (mut database, _) = Database::open(url).await?;
    database.check_set_aside(set_aside).await?;
    Ok(database)
}

fn pauses() -> impl Iterator<Item = Duration> {
    ExponentialBuilder::default()
        .with_min_delay(PAUSES[0])
        .with_max_delay(PAUSES[1])
        .without_max_times()
        .build()
}

/// Waits before the next attempt; false: it was told to stop.
async fn wait(error: &Error, pause: Duration, stop: &CancellationToken) -> bool {
    tracing::warn!("{}; nothing is lost, trying again in {pause:.1?}", error.in_full());
    waits(pause, stop).await
}
