//! Queries about the past. For each query, the BBS folds the log up to the requested position into the World
//! (the state folded from the log). A snapshot index makes this fold fast. The index is built in the
//! background while the BBS keeps up with the journal.
//!
//! Queries about the past are answered one after the other, in a separate task, so that they do not delay
//! decisions. Clients take turns.

use std::path::PathBuf;
use std::time::Duration;

use bbs::Bbs;
use journal::Journal;
use past::{Error, Past, PastState};
use projections::cluster_log::QuarantinedPositions;
use projections::{Observed, Query, Reader, World};
use schemas::query::{AsOf, Cursor, Moment};
use schemas::sight::ReadScope;
use schemas::{Code, Position, Refusal};
use text::chain;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use super::reply_target::ReplyTarget;
use super::turn_queue::TurnQueue;

/// Maximum number of entries that are folded for one query. If consecutive snapshots are far apart, the
/// maximum is raised to twice the number of entries between them.
const MAX_FOLDED: u64 = 262_144;
/// Interval between checks of the age of the newest snapshot.
const NEWEST_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Cache for snapshots of past states.
#[derive(Clone, Debug)]
pub struct Cache {
    pub(crate) folder: PathBuf,
    /// Minimum number of entries between two snapshots.
    pub(crate) spacing: u64,
}

impl Cache {
    /// Returns a cache with the default spacing of snapshots.
    #[must_use]
    pub fn with_default_spacing(folder: PathBuf) -> Self {
        Self { folder, spacing: past::limits::MIN_SPACING }
    }
}

/// State of the log from which a starting service continues to fold entries.
#[derive(Debug, Default)]
pub(super) struct StartState {
    /// Access to the past states of the log. `None` if there is no cache, there is no cluster, or the cache
    /// cannot be used.
    pub(super) past: Option<Past>,
    /// Reader and World at the starting position.
    pub(super) from: (Reader, World),
}

impl StartState {
    /// Loads the newest snapshot in a cache, or starts at the beginning of the log. `known` contains the
    /// quarantined positions.
    pub(super) async fn load(journal: &Journal, cache: Option<&Cache>, known: &QuarantinedPositions) -> Self {
        let beginning = (Reader::with_quarantines(known.clone()), World::new());
        let Some(cache) = cache else { return Self { past: None, from: beginning } };
        let opened = async {
            let past = Past::open_with_spacing(&cache.folder, journal.clone(), cache.spacing).await?;
            let newest = past.newest_snapshot().await?;
            Ok((past, newest))
        };
        match opened.await {
            Ok((past, newest)) => {
                if let Some(then) = &newest {
                    tracing::info!(position = %then.position(), "starting from a snapshot");
                }
                Self { past: Some(past), from: newest.map_or(beginning, PastState::into_parts) }
            }
            Err(Error::NotFounded) => Self { past: None, from: beginning },
            Err(error) => {
                tracing::warn!("can't start from a snapshot: {}", chain(&error));
                Self { past: None, from: beginning }
            }
        }
    }
}

/// Keeps a snapshot near the end of the log for the next start, until the token is cancelled. Used by
/// services without queries about the past.
pub(crate) async fn keep_newest(journal: Journal, cache: Cache, ends: CancellationToken) {
    let build = async || {
        let end = journal.end().await?;
        if end.0 < 2 * cache.spacing {
            return Ok(());
        }
        // Another service on this machine may have written to the same folder.
        Past::open_with_spacing(&cache.folder, journal.clone(), cache.spacing).await?.build_newest(end).await
    };
    while ends.run_until_cancelled(tokio::time::sleep(NEWEST_CHECK_INTERVAL)).await.is_some() {
        match ends.run_until_cancelled(build()).await {
            Some(Ok(()) | Err(Error::NotFounded)) => {}
            Some(Err(error)) => tracing::warn!("can't create a snapshot: {}", chain(&error)),
            None => return,
        }
    }
}

/// Queue and state for queries about the past.
#[derive(Debug)]
pub(super) struct PastQueries {
    pub(super) journal: Journal,
    /// `None` if this BBS serves no queries about the past.
    cache: Option<Cache>,
    past: OnceCell<Past>,
    pub(super) asked: TurnQueue<PastQuery>,
}

/// A query about the past.
#[derive(Debug)]
pub(super) struct PastQuery {
    pub(super) waiter: ReplyTarget,
    pub(super) query: Query,
    pub(super) as_of: AsOf,
    pub(super) observed: Observed,
}

impl PastQueries {
    pub(super) fn new(journal: Journal, cache: Option<Cache>, begin: Option<Past>) -> Self {
        Self { journal, cache, past: OnceCell::new_with(begin), asked: TurnQueue::default() }
    }

    /// Queues a query under the name of the client.
    pub(super) fn enqueue(&self, waiter: ReplyTarget, query: Query, as_of: AsOf, observed: Observed) {
        let name = waiter.name().to_owned();
        self.asked.push(&name, PastQuery { waiter, query, as_of, observed });
    }

    /// Returns the access to past states, if it has been opened.
    pub(super) fn past(&self) -> Option<&Past> {
        self.past.get()
    }

    async fn open(&self) -> Result<&Past, Error> {
        self.past
            .get_or_try_init(|| async {
                let cache = self.cache.as_ref().ok_or(Error::NoCache)?;
                Past::open_with_spacing(&cache.folder, self.journal.clone(), cache.spacing).await
            })
            .await
    }

    /// Returns the answer as JSON text.
    pub(super) async fn answer(
        &self,
        sight: ReadScope,
        query: Query,
        as_of: AsOf,
        observed: &Observed,
    ) -> Result<String, Refusal> {
        let asked = as_of.moment(observed.now)?;
        let past = self.open().await.map_err(refusal)?;
        let page =
            query.filter().and_then(|filter| filter.cursor.as_deref()).map(Cursor::parse).transpose()?;
        // A further page is read at the position of the first page.
        let sought = page.map_or(asked, |cursor| Moment::Position(cursor.position));
        self.check_distance(past, sought).await?;
        let then = match sought {
            Moment::Position(position) => past.at(position).await,
            Moment::Time(time) => past.state_at_time(time).await,
        };
        let then = then.map_err(refusal)?;
        let now = match asked {
            Moment::Time(time) => time,
            Moment::Position(_) => then.latest(),
        };
        let observed = observed.for_past(now, then.quarantined_entries().clone());
        let answered =
            tokio::task::spawn_blocking(move || query.answer_to(&sight, then.world(), &observed)).await;
        answered.unwrap_or_else(|_| Err(refusal(Error::Stopping)))
    }

    /// Refuses a query that would take too long because the snapshot index does not cover the requested
    /// position yet.
    async fn check_distance(&self, past: &Past, sought: Moment) -> Result<(), Refusal> {
        let end = self.journal.end().await.map_err(|error| refusal(error.into()))?;
        let distance = match sought {
            Moment::Position(position) => past.entries_to_fold(position.min(end)),
            Moment::Time(time) => past.max_entries_to_fold(time, end),
        };
        let standing = past.standing();
        if distance <= MAX_FOLDED.max(2 * standing.spacing) {
            return Ok(());
        }
        let why = format!(
            "this BBS is still creating snapshots of the past (position {} of {end}): try again later",
            standing.highest
        );
        Err(Refusal::new(Code::Unavailable, why))
    }

    /// Returns `true` if a log that ends at `end` lacks a snapshot or a part of the event index. Does not
    /// query the journal if the log is short.
    pub(super) async fn is_due(&self, end: Position) -> Result<bool, Error> {
        let cache = self.cache.as_ref().ok_or(Error::NoCache)?;
        if end.0 < cache.spacing.min(past::limits::STRETCH_POSITIONS) {
            return Ok(false);
        }
        let past = self.open().await?;
        Ok(past.is_index_due(end) || (end.0 >= cache.spacing && past.is_snapshot_due(end).await?))
    }

    /// Builds a snapshot of the end of the log for the next start, if the log is long enough.
    pub(super) async fn build_last(&self, end: Position) -> Result<(), Error> {
        match (&self.cache, self.past.get()) {
            (Some(cache), Some(past)) if end.0 >= cache.spacing => past.build_final(end).await,
            (Some(_) | None, Some(_) | None) => Ok(()),
        }
    }

    /// Saves the World of a stopping BBS as a snapshot for the next start, if the log is long enough.
    pub(super) async fn keep_last(&self, machine: Box<Bbs>) -> Result<(), Error> {
        match (&self.cache, self.past.get()) {
            (Some(cache), Some(past)) if machine.world().position().0 >= cache.spacing => {
                let (reader, world) = machine.into_parts();
                past.store_final(reader, world).await
            }
            (Some(_) | None, Some(_) | None) => Ok(()),
        }
    }

    /// Builds the missing parts of the event index and the missing snapshots for a log that ends at `end`.
    pub(super) async fn build(&self, end: Position) -> Result<(), Error> {
        let past = self.open().await?;
        while past.index_next(end).await? {}
        while past.build_next(end).await? {}
        Ok(())
    }
}

/// Converts an error to the refusal of a query.
fn refusal(error: Error) -> Refusal {
    match error {
        Error::BeyondEnd { .. } | Error::PositionZero { .. } | Error::BeforeStart { .. } => {
            AsOf::refusal(error.to_string())
        }
        Error::NoCache
        | Error::CacheUnusable { .. }
        | Error::Journal(_)
        | Error::Unreadable { .. }
        | Error::NotFounded
        | Error::Stopping => Refusal::new(Code::Unavailable, chain(&error)),
    }
}
