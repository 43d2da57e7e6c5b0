//! Writer task: writes one batch while the follower folds the next one. Reconnects to an unavailable
//! database.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use projections::cluster_log::QuarantinedPositions;
use projections::tables::{Batch, Moment};
use schemas::Position;
use schemas::names::ClusterId;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::database::Database;
use crate::run::sleep_unless_stopped;
use crate::{Error, Url};

/// Initial and maximum pause before the next attempt to use the database.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(10)];
/// Time limit for one batch. Detects a server that disappeared without closing the connection.
const BATCH_TIMEOUT: Duration = Duration::from_secs(300);

/// Job of the writer. Jobs run one after the other.
#[derive(Debug)]
pub(crate) enum Job {
    /// Write a batch that starts after `begin`.
    Write { begin: Position, batch: Box<Batch>, cluster_id: Option<ClusterId> },
    /// Create the indexes for readers.
    Index,
}

/// Runs jobs until the channel is closed or `stop` is cancelled, and returns the database. Returns `None` if
/// the database was unavailable at that time.
pub(crate) async fn run_jobs(
    database: Database,
    mut jobs: mpsc::Receiver<Job>,
    told: mpsc::UnboundedSender<Moment>,
    stop: CancellationToken,
) -> Result<Option<Database>, Error> {
    let url = database.url().clone();
    let (generation, live) = (database.standing().number, database.standing().live);
    let mut database = Some(database);
    while let Some(job) = jobs.recv().await {
        let mut pauses = retry_delays();
        loop {
            let done = tokio::select! {
                // A batch takes little time, but the creation of indexes takes long. If the tables are not
                // live, the creation can be abandoned: the end of the connection rolls it back.
                () = stop.cancelled(), if !live && matches!(job, Job::Index) => return Ok(None),
                done = run_job(&url, generation, &mut database, &job) => done,
            };
            let error = match done {
                Ok(()) => break,
                Err(error) if error.is_transient() => error,
                Err(error) => return Err(error),
            };
            // The outcome of the transaction is unknown. After a reconnect, the position in the database
            // shows the outcome.
            database = None;
            if !wait_for_retry(&error, pauses.next().unwrap_or(RETRY_DELAYS[1]), &stop).await {
                return Ok(None);
            }
        }
        if let Job::Write { batch, .. } = &job {
            // A send fails only if the follower has ended.
            told.send(batch.end).ok();
        }
    }
    Ok(database)
}

/// Runs a job unless it is already done. After a reconnect, the position in the database shows whether the
/// job is done.
async fn run_job(
    url: &Url,
    generation: i64,
    connected: &mut Option<Database>,
    job: &Job,
) -> Result<(), Error> {
    let again = connected.is_none();
    let database = match connected {
        Some(database) => database,
        None => connected.insert(Database::reopen(url, generation).await?),
    };
    let found = database.standing().end.position;
    match job {
        Job::Index => database.create_indexes().await,
        Job::Write { batch, .. } if again && found == batch.end.position => Ok(()),
        // The server commits without waiting for its disk. The server has crashed after the commit, so the
        // commit is lost.
        Job::Write { begin, .. } if again && found < *begin => Err(Error::Rewound { found, written: *begin }),
        Job::Write { begin, batch, cluster_id } => {
            let writing = database.write(*begin, batch, *cluster_id);
            let silent = |_| {
                Err(Error::no_response(format!("no response from the database within {BATCH_TIMEOUT:?}")))
            };
            tokio::time::timeout(BATCH_TIMEOUT, writing).await.unwrap_or_else(silent)
        }
    }
}

/// Opens the live tables as soon as they are available. Returns `None` if `stop` is cancelled first. In
/// `PostgreSQL`, the projector waits here while another projector has locked the tables.
pub(crate) async fn open(
    url: &Url,
    quarantines: &QuarantinedPositions,
    stop: &CancellationToken,
) -> Result<Option<Database>, Error> {
    let mut pauses = retry_delays();
    let mut stands_by = false;
    loop {
        let (error, pause) = match open_checked(url, quarantines).await {
            Ok(opened) => return Ok(Some(opened)),
            Err(error) if error.is_transient() => (error, pauses.next().unwrap_or(RETRY_DELAYS[1])),
            Err(Error::LockedByOther) => {
                if !std::mem::replace(&mut stands_by, true) {
                    tracing::warn!("{}: standing by", Error::LockedByOther);
                }
                if sleep_unless_stopped(RETRY_DELAYS[0] * 5, stop).await {
                    continue;
                }
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if !wait_for_retry(&error, pause, stop).await {
            return Ok(None);
        }
    }
}

/// Opens the live tables. Fails if they contain an entry that operators have quarantined in the meantime.
async fn open_checked(url: &Url, quarantines: &QuarantinedPositions) -> Result<Database, Error> {
    let (mut database, _) = Database::open(url).await?;
    database.check_quarantined(quarantines).await?;
    Ok(database)
}

fn retry_delays() -> impl Iterator<Item = Duration> {
    ExponentialBuilder::default()
        .with_min_delay(RETRY_DELAYS[0])
        .with_max_delay(RETRY_DELAYS[1])
        .without_max_times()
        .build()
}

/// Waits before the next attempt. Returns `false` if `stop` is cancelled.
async fn wait_for_retry(error: &Error, pause: Duration, stop: &CancellationToken) -> bool {
    tracing::warn!("{}; retrying in {pause:.1?}, no data is lost", error.with_source());
    sleep_unless_stopped(pause, stop).await
}
