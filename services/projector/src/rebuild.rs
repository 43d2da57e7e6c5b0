//! Making the tables again beside those that readers see, and then showing them instead.

use std::time::Duration;

use journal::Journal;
use projections::cluster_log::Positions;
use projections::tables::{Dialect, Moment};
use schemas::Position;
use tokio_util::sync::CancellationToken;

use crate::connection::Connection;
use crate::database::{Database, Standing, Which, standings};
use crate::run::{self, Following, check_journal, waits};
use crate::verify::{self, Comparison};
use crate::{Error, Url};

/// The pause before the tables are switched again that somebody reads, or opened again that a lost session still has.
const AGAIN: Duration = Duration::from_secs(2);

/// What rebuilding does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The new tables are being written: up to here, and where the log ends.
    Written(Position, Position),
    /// They get the indexes that readers want, and are compared with those that readers see.
    Comparing,
    /// They are shown, and the old ones dropped.
    Switching,
}

/// What came of rebuilding.
#[derive(Clone, Debug)]
pub struct Rebuilt {
    /// Where the new tables stand, which readers see from now on.
    pub standing: Standing,
    /// What the old ones came to (found) and the new ones (expected), as of the position that both had reached; none:
    /// there were none, or they had another shape.
    pub compared: Option<Vec<Comparison>>,
}

/// Makes the tables again from the log's beginning. Readers see the old ones until the new ones have reached the log's
/// end; then, in one transaction, the new ones. Who stops it leaves the old ones as they are, and what was begun is
/// carried on the next time, or started over (`restart`). None: it was told to stop.
///
/// # Errors
/// The database or the journal can't be read or written; they are of two clusters, or the journal ends before the tables;
/// somebody else rebuilds the tables.
pub async fn rebuild(
    journal: &Journal,
    set_aside: &Positions,
    url: &Url,
    restart: bool,
    stop: &CancellationToken,
    mut said: impl FnMut(Step),
) -> Result<Option<Rebuilt>, Error> {
    let mut which = if restart { Which::Anew } else { Which::Next };
    let mut begun = false;
    loop {
        // What readers see of another journal is not replaced, nor is anything begun or dropped beside it.
        if target(journal, url, stop).await?.is_none() {
            return Ok(None);
        }
        let done = match open(url, which, set_aside).await {
            Ok(database) => {
                (which, begun) = (Which::Next, true);
                attempt(journal, set_aside, url, database, stop, &mut said).await
            }
            Err(error) => Err(error),
        };
        match done {
            Err(error @ Error::Rewound { .. }) => tracing::warn!("{error}: writing that again"),
            // A server that was lost for a while may still have the session in which these tables were written.
            Err(error @ Error::Another) if begun && url.dialect() == Dialect::Postgres => {
                tracing::warn!("{error}: trying again");
                if !waits(AGAIN, stop).await {
                    return Ok(None);
                }
            }
            done => return done,
        }
    }
}

/// What was begun, unless nobody can carry that on: another program began it, or it holds as an entry what operators have
/// set aside since.
async fn open(url: &Url, which: Which, set_aside: &Positions) -> Result<Database, Error> {
    let mut database = match Database::open_one(url, which).await {
        Err(Error::OtherShape) => Database::open_one(url, Which::Anew).await?.0,
        opened => opened?.0,
    };
    match database.check_set_aside(set_aside).await {
        Err(Error::SetAsideLater { .. }) => database.begin_anew().await,
        checked => checked.map(|()| database),
    }
}

async fn attempt(
    journal: &Journal,
    set_aside: &Positions,
    url: &Url,
    mut database: Database,
    stop: &CancellationToken,
    said: &mut impl FnMut(Step),
) -> Result<Option<Rebuilt>, Error> {
    let mut following = Following::new(journal, set_aside.clone());
    let mut compared = None;
    loop {
        let Some(target) = target(journal, url, stop).await? else { return Ok(None) };
        let written = &mut |moment: Moment| said(Step::Written(moment.position, target));
        let followed = following.write(journal, database, Some(target), stop, written).await?;
        database = match followed {
            Some(database) if !stop.is_cancelled() => database,
            Some(_) | None => return Ok(None),
        };
        if compared.is_none() {
            said(Step::Comparing);
            // Who is stopped here leaves it to the end of the connection to take back what was begun.
            compared = tokio::select! {
                () = stop.cancelled() => return Ok(None),
                done = compare(url, &mut database) => Some(done?),
            };
        } else {
            said(Step::Switching);
            if switch(&mut database, stop).await? {
                if let Err(error) = database.drop_replaced().await {
                    tracing::warn!("{error}: the old ones are dropped by the next rebuild");
                }
                let standing = database.standing().clone();
                database.close().await?;
                return Ok(Some(Rebuilt { standing, compared: compared.flatten() }));
            }
        }
    }
}

/// Makes the indexes that readers want, and compares with what they see.
async fn compare(url: &Url, database: &mut Database) -> Result<Option<Vec<Comparison>>, Error> {
    database.index().await?;
    match live(url).await? {
        Some(old) => verify::generations(url, &old, database.standing()).await,
        None => Ok(None),
    }
}

/// Switches as soon as no reader holds it up; false: the old ones are further by now, or it was told to stop.
async fn switch(database: &mut Database, stop: &CancellationToken) -> Result<bool, Error> {
    loop {
        match database.switch().await {
            Err(error) if error.is_locked() => {
                tracing::warn!("{}: somebody reads the old ones; trying again", error.in_full());
            }
            done => return done,
        }
        if !waits(AGAIN, stop).await {
            return Ok(false);
        }
    }
}

/// Up to where the new tables have to come: the end of the log, which reaches where the old ones stand. None: it was told
/// to stop first.
async fn target(journal: &Journal, url: &Url, stop: &CancellationToken) -> Result<Option<Position>, Error> {
    match live(url).await? {
        Some(old) => check_journal(journal, &old, stop).await,
        None => run::end(journal, stop).await,
    }
}

/// Where the tables stand that readers see, if there are any yet.
async fn live(url: &Url) -> Result<Option<Standing>, Error> {
    let mut connection = Connection::writing(url).await?;
    let all = standings(&mut connection, url).await?.unwrap_or_default();
    connection.close().await.map_err(Error::database("can't close the database"))?;
    Ok(all.into_iter().find(|one| one.live))
}
