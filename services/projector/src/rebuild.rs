//! Rebuilds the tables. New tables are written beside the live tables, which readers see. The new tables then
//! become live.

use std::time::Duration;

use journal::Journal;
use projections::cluster_log::QuarantinedPositions;
use projections::tables::{Dialect, Moment};
use schemas::Position;
use tokio_util::sync::CancellationToken;

use crate::connection::Connection;
use crate::database::{Database, Generation, Target, read_generations};
use crate::run::{self, Pipeline, check_journal, sleep_unless_stopped};
use crate::verify::{self, Comparison};
use crate::{Error, Url};

/// Pause before a retry. A switch is retried while a reader blocks it. Opening tables is retried while a lost
/// session still locks them.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// Progress of a rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The new tables are being written: position reached, and the log's last position.
    Writing(Position, Position),
    /// The new tables get the indexes for readers and are compared with the live ones.
    Comparing,
    /// The new tables are being shown, and the old ones dropped.
    Switching,
}

/// Result of a rebuild.
#[derive(Clone, Debug)]
pub struct RebuildResult {
    /// State of the new tables, which are live now.
    pub standing: Generation,
    /// Comparison of the old tables (`found`) with the new ones (`expected`), as of a position that both had
    /// reached. `None` if there were no old tables, or if the old tables had another shape.
    pub comparison: Option<Vec<Comparison>>,
}

/// Rebuilds the tables from the log's beginning. Readers see the old tables until the new ones have reached
/// the end of the log. One transaction then switches to the new tables.
///
/// A stopped rebuild leaves the old tables live. The next rebuild continues the tables of the stopped one, or
/// starts over if `restart` is set. Returns `None` if `stop` is cancelled.
///
/// # Errors
/// The database or the journal cannot be read or written, they are of different clusters, the journal ends
/// before the tables, or another process rebuilds the tables.
pub async fn rebuild(
    journal: &Journal,
    quarantines: &QuarantinedPositions,
    url: &Url,
    restart: bool,
    stop: &CancellationToken,
    mut said: impl FnMut(Step),
) -> Result<Option<RebuildResult>, Error> {
    let mut which = if restart { Target::Restart } else { Target::Next };
    let mut begun = false;
    loop {
        // Check first, so that nothing is created, dropped or replaced beside live tables of another journal.
        if target_position(journal, url, stop).await?.is_none() {
            return Ok(None);
        }
        let done = match open(url, which, quarantines).await {
            Ok(database) => {
                (which, begun) = (Target::Next, true);
                attempt(journal, quarantines, url, database, stop, &mut said).await
            }
            Err(error) => Err(error),
        };
        match done {
            Err(error @ Error::Rewound { .. }) => tracing::warn!("{error}; writing them again"),
            // After a lost connection, the server may still have the session that wrote these tables.
            Err(error @ Error::LockedByOther) if begun && url.dialect() == Dialect::Postgres => {
                tracing::warn!("{error}; retrying");
                if !sleep_unless_stopped(RETRY_DELAY, stop).await {
                    return Ok(None);
                }
            }
            done => return done,
        }
    }
}

/// Opens the tables of a stopped rebuild, or new ones. A stopped rebuild cannot be continued if another
/// program version started it, or if it contains an entry that operators have quarantined since.
async fn open(url: &Url, which: Target, quarantines: &QuarantinedPositions) -> Result<Database, Error> {
    let mut database = match Database::open_target(url, which).await {
        Err(Error::OtherShape) => Database::open_target(url, Target::Restart).await?.0,
        opened => opened?.0,
    };
    match database.check_quarantined(quarantines).await {
        Err(Error::QuarantinedLater { .. }) => database.restart().await,
        checked => checked.map(|()| database),
    }
}

async fn attempt(
    journal: &Journal,
    quarantines: &QuarantinedPositions,
    url: &Url,
    mut database: Database,
    stop: &CancellationToken,
    said: &mut impl FnMut(Step),
) -> Result<Option<RebuildResult>, Error> {
    let mut following = Pipeline::new(journal, quarantines.clone());
    let mut compared = None;
    loop {
        let Some(target) = target_position(journal, url, stop).await? else { return Ok(None) };
        let written = &mut |moment: Moment| said(Step::Writing(moment.position, target));
        let followed = following.write(journal, database, Some(target), stop, written).await?;
        database = match followed {
            Some(database) if !stop.is_cancelled() => database,
            Some(_) | None => return Ok(None),
        };
        if compared.is_none() {
            said(Step::Comparing);
            // After a stop, closing the connection rolls back unfinished work.
            compared = tokio::select! {
                () = stop.cancelled() => return Ok(None),
                done = compare(url, &mut database) => Some(done?),
            };
        } else {
            said(Step::Switching);
            if switch(&mut database, stop).await? {
                if let Err(error) = database.drop_replaced().await {
                    tracing::warn!("{error}; the next rebuild drops the old tables");
                }
                let standing = database.standing().clone();
                database.close().await?;
                return Ok(Some(RebuildResult { standing, comparison: compared.flatten() }));
            }
        }
    }
}

/// Creates the indexes for readers and compares the tables with the live ones.
async fn compare(url: &Url, database: &mut Database) -> Result<Option<Vec<Comparison>>, Error> {
    database.create_indexes().await?;
    match live(url).await? {
        Some(old) => verify::compare_generations(url, &old, database.standing()).await,
        None => Ok(None),
    }
}

/// Switches to the new tables as soon as no reader blocks the switch. Returns `false` if the old tables are
/// at a later position, or `stop` is cancelled.
async fn switch(database: &mut Database, stop: &CancellationToken) -> Result<bool, Error> {
    loop {
        match database.switch().await {
            Err(error) if error.is_locked() => {
                tracing::warn!("{}: a reader blocks the switch; retrying", error.with_source());
            }
            done => return done,
        }
        if !sleep_unless_stopped(RETRY_DELAY, stop).await {
            return Ok(false);
        }
    }
}

/// Returns the position that the new tables have to reach: the end of the log, which is not before the
/// position of the old tables. Returns `None` if `stop` is cancelled first.
async fn target_position(
    journal: &Journal,
    url: &Url,
    stop: &CancellationToken,
) -> Result<Option<Position>, Error> {
    match live(url).await? {
        Some(old) => check_journal(journal, &old, stop).await,
        None => run::end(journal, stop).await,
    }
}

/// Returns the state of the live tables, or `None` if there are none.
async fn live(url: &Url) -> Result<Option<Generation>, Error> {
    let mut connection = Connection::open_for_writing(url).await?;
    let all = read_generations(&mut connection, url).await?.unwrap_or_default();
    connection.close().await.map_err(Error::database("can't close the database"))?;
    Ok(all.into_iter().find(|one| one.live))
}
