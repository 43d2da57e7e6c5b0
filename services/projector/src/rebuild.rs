//! Making the tables again beside those that readers see, and then showing them instead.

use std::time::Duration;

use journal::Journal;
use projections::cluster_log::Positions;
use projections::tables::Moment;
use schemas::Position;
use tokio_util::sync::CancellationToken;

use crate::connection::Connection;
use crate::database::{Database, Standing, Which, drop_others};
use crate::run::{Following, check_end};
use crate::verify::{self, Comparison};
use crate::{Error, Url};

/// The pause before the tables are switched again that somebody reads.
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
/// The database or the journal can't be read or written; somebody else rebuilds the tables.
pub async fn rebuild(
    journal: &Journal,
    set_aside: &Positions,
    url: &Url,
    restart: bool,
    stop: &CancellationToken,
    mut said: impl FnMut(Step),
) -> Result<Option<Rebuilt>, Error> {
    if restart {
        forget(url).await?;
    }
    loop {
        match attempt(journal, set_aside, url, stop, &mut said).await {
            Err(error @ Error::Rewound { .. }) => tracing::warn!("{error}: writing that again"),
            done => return done,
        }
    }
}

/// Drops what was begun.
async fn forget(url: &Url) -> Result<(), Error> {
    let mut connection = Connection::writing(url).await?;
    drop_others(&mut connection, url, None).await?;
    connection.close().await.map_err(Error::database("can't close the database"))
}

async fn attempt(
    journal: &Journal,
    set_aside: &Positions,
    url: &Url,
    stop: &CancellationToken,
    said: &mut impl FnMut(Step),
) -> Result<Option<Rebuilt>, Error> {
    let (mut database, standing) = match Database::open_one(url, Which::Next).await {
        // What another program began nobody carries on.
        Err(Error::OtherShape) => {
            forget(url).await?;
            Database::open_one(url, Which::Next).await?
        }
        opened => opened?,
    };
    check_end(journal, &standing).await?;
    let mut following = Following::new(journal, set_aside.clone());
    let mut compared = None;
    loop {
        let target = target(journal, url).await?;
        let written = &mut |moment: Moment| said(Step::Written(moment.position, target));
        let followed = following.write(journal, database, Some(target), stop, written).await?;
        database = match followed {
            Some(database) if !stop.is_cancelled() => database,
            Some(_) | None => return Ok(None),
        };
        if compared.is_none() {
            said(Step::Comparing);
            database.index().await?;
            let old = live(url).await?;
            compared = match old {
                Some(old) => Some(verify::generations(url, &old, database.standing()).await?),
                None => Some(None),
            };
        } else {
            said(Step::Switching);
            if switch(&mut database, stop).await? {
                if let Err(error) = database.drop_others().await {
                    tracing::warn!("{error}: the old ones are dropped by the next rebuild");
                }
                let standing = database.standing().clone();
                database.close().await?;
                return Ok(Some(Rebuilt { standing, compared: compared.flatten() }));
            }
        }
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
        tokio::select! {
            () = stop.cancelled() => return Ok(false),
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

/// Up to where the new tables have to come: the end of the log, as far as it is known, and of the old ones.
async fn target(journal: &Journal, url: &Url) -> Result<Position, Error> {
    let end = journal.end().await?;
    Ok(live(url).await?.map_or(end, |old| old.end.position.max(end)))
}

async fn live(url: &Url) -> Result<Option<Standing>, Error> {
    Ok(verify::list(url).await?.into_iter().find(|one| one.live))
}
