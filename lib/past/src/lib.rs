//! Past Worlds. The World is the state folded from the log. This crate returns the World at any position
//! within a second, on a log of a million entries.
//!
//! ```text
//!   folder:   snapshot 16384   snapshot 32768   snapshot 49152 ...   the snapshot index, built in slices
//!                                    │
//!   journal:                         └─▶ the tail up to 40000 ─▶ fold ─▶ the World at 40000
//! ```
//! The snapshot index is a cache that only saves time, and it can be deleted at any moment. A snapshot is
//! never used if it is damaged, or if it belongs to another cluster, another history or another snapshot
//! version. Such a snapshot is deleted and counted. A snapshot also contains the state of the log reader.
//! Reading that continues from the snapshot therefore quarantines the same entries as reading from the
//! beginning.

mod cache;
mod index;
pub mod limits;
mod past_state;
mod snapshot_file;
mod snapshot_index;
mod verify;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use journal::{Journal, JournalError, StoredEntry};
use projections::cluster_log::{ClusterLog, QuarantinedPositions};
use projections::{Reader, World};
use schemas::names::ClusterId;
use schemas::{Position, Subject, Timestamp};
use tokio::time::{Instant, sleep};

use crate::cache::StateCache;
use crate::index::{AggregateIndex, StretchPairs};
use crate::limits::{
    BATCH_ENTRIES, MAX_FOUNDING_POSITION, MIN_SPACING, REPLICA_LAG_TIMEOUT, REPLICA_RETRY_INTERVAL,
    STRETCH_POSITIONS,
};
use crate::past_state::FoldTarget;
use crate::snapshot_index::{SnapshotIndex, cluster_folder};

pub use crate::past_state::PastState;
pub use crate::snapshot_index::SnapshotIndexStatus;
pub use crate::verify::Verification;

/// Error while reading the past.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the cache {} can't be used", path.display())]
    CacheUnusable {
        /// Folder or file of the cache.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The log has an entry that this program cannot read.
    #[error("position {position}: {why}")]
    Unreadable { position: Position, why: String },
    /// The log has no entries yet.
    #[error("the log is empty: its cluster is not founded")]
    NotFounded,
    /// The position is beyond the end of the log.
    #[error("position {position} is beyond the end of the log: use 1 to {end}")]
    BeyondEnd {
        position: Position,
        /// Last position of the log.
        end: Position,
    },
    /// The position is 0, but positions start at 1.
    #[error("position 0 is before the first entry of the log: use 1 to {end}")]
    PositionZero {
        /// Last position of the log.
        end: Position,
    },
    /// The time is before the first entry.
    #[error("{time} is before the first entry of the log: use {first_entry_time} or later")]
    BeforeStart {
        time: Timestamp,
        /// Time of the first entry.
        first_entry_time: Timestamp,
    },
    /// The BBS has no cache folder for snapshots.
    #[error("no cache for snapshots of the past: start the BBS with --cache DIR")]
    NoCache,
    #[error("the program is stopping")]
    Stopping,
}

/// Past Worlds of one cluster. Clones share the same state.
#[derive(Clone, Debug)]
pub struct Past(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    journal: Journal,
    /// Positions that operators quarantined.
    quarantines: QuarantinedPositions,
    /// Time of the first valid entry.
    first_entry_time: Timestamp,
    snapshots: SnapshotIndex,
    index: AggregateIndex,
    kept: StateCache,
}

/// Pace of a build. After each batch, `Throttled` pauses for as long as the batch took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    Unthrottled,
    Throttled,
}

impl Past {
    /// Opens the past of the cluster whose log is in a journal. The snapshot index is in a separate folder
    /// below `cache`.
    ///
    /// # Errors
    /// Returns an error if the cluster is not founded, or if the folder or the journal cannot be used.
    pub async fn open(cache: &Path, journal: Journal) -> Result<Self, Error> {
        Self::open_with_spacing(cache, journal, MIN_SPACING).await
    }

    /// Like [`Past::open`], but with a snapshot after every `spacing` entries. A long log has a larger
    /// spacing.
    ///
    /// # Errors
    /// See [`Past::open`].
    pub async fn open_with_spacing(cache: &Path, journal: Journal, spacing: u64) -> Result<Self, Error> {
        Self::open_with(cache, journal, spacing, STRETCH_POSITIONS).await
    }

    async fn open_with(cache: &Path, journal: Journal, spacing: u64, stretch: u64) -> Result<Self, Error> {
        let quarantines = quarantined_positions(&journal).await?;
        let (cluster, first_entry_time) = read_founding(&journal, &quarantines).await?;
        let end = journal.end().await?;
        let cache = cache.to_owned();
        let index = AggregateIndex::new(cluster_folder(&cache, cluster), cluster, stretch);
        let ladder = run_blocking(move || SnapshotIndex::open(&cache, cluster, end, spacing)).await??;
        Ok(Self(Arc::new(Inner {
            journal,
            quarantines,
            first_entry_time,
            snapshots: ladder,
            index,
            kept: StateCache::default(),
        })))
    }

    /// Returns the World at a position.
    ///
    /// # Errors
    /// Returns an error if the log does not have this position, or if the journal cannot be read.
    pub async fn world_at(&self, position: Position) -> Result<World, Error> {
        Ok(self.at(position).await?.world().clone())
    }

    /// Returns the World and the state of the log reader at a position.
    ///
    /// # Errors
    /// See [`Past::world_at`].
    pub async fn at(&self, position: Position) -> Result<Arc<PastState>, Error> {
        self.check(position).await?;
        let inner = &self.0;
        if let Some(then) = inner.kept.at(position) {
            return Ok(then);
        }
        let base =
            self.base_state(inner.snapshots.highest_below(position), inner.kept.below(position)).await?;
        let then = self.fold_until(base, FoldTarget::Position(position), position, Pace::Unthrottled).await?;
        Ok(inner.kept.insert(then))
    }

    /// Returns the state at a time. This is the state before the first entry that was decided after the time.
    ///
    /// # Errors
    /// Returns an error if the time is before the first entry of the log, or if the journal cannot be read.
    pub async fn state_at_time(&self, time: Timestamp) -> Result<Arc<PastState>, Error> {
        let inner = &self.0;
        if time < inner.first_entry_time {
            return Err(Error::BeforeStart { time, first_entry_time: inner.first_entry_time });
        }
        let end = inner.journal.end().await?;
        let base = self.base_state(inner.snapshots.highest_before(time), inner.kept.before(time)).await?;
        let then = self.fold_until(base, FoldTarget::Time(time), end, Pace::Unthrottled).await?;
        Ok(inner.kept.insert(then))
    }

    /// Returns the position of the log at a time. This is the position before the first entry that was
    /// decided after the time.
    ///
    /// # Errors
    /// See [`Past::state_at_time`].
    pub async fn position_at_time(&self, time: Timestamp) -> Result<Position, Error> {
        Ok(self.state_at_time(time).await?.position())
    }

    /// Returns the number of entries that must be folded to reach a position, without cached states.
    #[must_use]
    pub fn entries_to_fold(&self, position: Position) -> u64 {
        position.0 - self.0.snapshots.highest_below(position).unwrap_or_default().0
    }

    /// Returns the maximum number of entries that must be folded to reach the state at a time. `end` is the
    /// end of the log.
    #[must_use]
    pub fn max_entries_to_fold(&self, time: Timestamp, end: Position) -> u64 {
        let below = self.0.snapshots.highest_before(time).unwrap_or_default();
        let above = self.0.snapshots.positions().into_iter().find(|position| *position > below);
        above.unwrap_or(end).max(below).0 - below.0
    }

    /// Returns the state of the newest snapshot. A starting service continues from this state. `None` if
    /// there is no snapshot.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be read.
    pub async fn newest_snapshot(&self) -> Result<Option<PastState>, Error> {
        let end = self.0.journal.end().await?;
        let then = self.base_state(self.0.snapshots.highest_below(end), None).await?;
        Ok(Some(then).filter(|then| then.position() > Position(0)))
    }

    /// Builds a snapshot at or shortly before the position `end`. Builds none if a snapshot exists within
    /// twice the spacing of `end`. After each batch, the build pauses for as long as the batch took.
    ///
    /// # Errors
    /// Returns an error if the folder or the journal cannot be used.
    pub async fn build_newest(&self, end: Position) -> Result<(), Error> {
        let inner = Arc::clone(&self.0);
        let due = run_blocking(move || inner.snapshots.newest_due(end)).await?;
        match due {
            Some(position) => self.build(position).await,
            None => Ok(()),
        }
    }

    /// Returns `true` if a snapshot is missing for a log that ends at `end`.
    ///
    /// # Errors
    /// Returns an error if the program is stopping.
    pub async fn is_snapshot_due(&self, end: Position) -> Result<bool, Error> {
        let inner = Arc::clone(&self.0);
        Ok(run_blocking(move || inner.snapshots.next_missing(end)).await?.is_some())
    }

    /// Builds the next missing snapshot for a log that ends at `end`. Returns `false` if no snapshot is
    /// missing. After each batch, the build pauses for as long as the batch took.
    ///
    /// # Errors
    /// Returns an error if the folder or the journal cannot be used.
    pub async fn build_next(&self, end: Position) -> Result<bool, Error> {
        self.0.kept.evict_idle();
        let inner = Arc::clone(&self.0);
        let Some(next) = run_blocking(move || inner.snapshots.next_missing(end)).await? else {
            return Ok(false);
        };
        self.build(next).await?;
        Ok(true)
    }

    /// Builds a snapshot at `end`, the end of the log, for the next start of the service. Builds none if a
    /// snapshot near `end` exists. The snapshot of an earlier call is removed later.
    ///
    /// # Errors
    /// Returns an error if the folder or the journal cannot be used.
    pub async fn build_final(&self, end: Position) -> Result<(), Error> {
        if self.0.snapshots.has_long_tail(end) {
            self.build(end).await?;
        }
        Ok(())
    }

    /// Stores the state of a service that stops, as a snapshot for the next start. The state must be that at
    /// the end of the log. Stores nothing if a snapshot near the end exists. `reader` must have read all
    /// entries of the World.
    ///
    /// # Errors
    /// See [`Past::build_final`].
    pub async fn store_final(&self, reader: Reader, world: World) -> Result<(), Error> {
        let end = world.position();
        if !self.0.snapshots.has_long_tail(end) {
            return Ok(());
        }
        let last = self.page(Position(end.0 - 1), 1).await?;
        let then = PastState {
            latest: world.latest(),
            sum: last.first().map_or(0, StoredEntry::checksum),
            reader,
            world,
        };
        let inner = Arc::clone(&self.0);
        run_blocking(move || inner.snapshots.write(&then)).await?
    }

    async fn build(&self, position: Position) -> Result<(), Error> {
        let base = self.base_state(self.0.snapshots.highest_below(position), None).await?;
        let then = self.fold_until(base, FoldTarget::Position(position), position, Pace::Throttled).await?;
        let inner = Arc::clone(&self.0);
        run_blocking(move || inner.snapshots.write(&then)).await?
    }

    /// Returns the positions of an aggregate after a position, in ascending order and at most `most`. Also
    /// returns the position up to which this list is complete. `about` is the name of the aggregate, such as
    /// `lrp:GUID`. A few of the positions may belong to other aggregates.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be read.
    pub async fn positions(
        &self,
        about: &str,
        after: Position,
        most: usize,
    ) -> Result<(Vec<Position>, Position), Error> {
        let (inner, about) = (Arc::clone(&self.0), about.to_owned());
        run_blocking(move || inner.index.positions(&about, after, most)).await?
    }

    /// Returns `true` if a stretch of the aggregate index is missing for a log that ends at `end`.
    #[must_use]
    pub fn is_index_due(&self, end: Position) -> bool {
        self.0.index.next_stretch(end).is_some()
    }

    /// Builds the next missing stretch of the aggregate index for a log that ends at `end`. A stretch is not
    /// missing if the folder has a file of this history for it. Returns `false` if no stretch is missing.
    /// After each batch, the build pauses for as long as the batch took.
    ///
    /// # Errors
    /// Returns an error if the folder or the journal cannot be used.
    pub async fn index_next(&self, end: Position) -> Result<bool, Error> {
        let Some(stretch) = self.0.index.next_stretch(end) else { return Ok(false) };
        let (begin, upto) = (self.0.index.start_of(stretch), self.0.index.start_of(stretch + 1));
        let inner = Arc::clone(&self.0);
        let known = run_blocking(move || inner.index.stored_sum(stretch)).await?;
        if let Some(sum) = known
            && self.page(Position(upto.0 - 1), 1).await?.first().is_some_and(|last| last.checksum() == sum)
        {
            self.0.index.mark_verified(stretch);
            return Ok(true);
        }
        let (mut pairs, mut read) = (StretchPairs::default(), begin);
        while read < upto {
            let page = self.page(read, page_len(read, upto)).await?;
            read = page.last().map_or(upto, |last| last.position);
            let began = Instant::now();
            pairs = run_blocking(move || {
                pairs.add(begin, &page);
                pairs
            })
            .await?;
            sleep(began.elapsed()).await;
        }
        let inner = Arc::clone(&self.0);
        run_blocking(move || inner.index.write(stretch, pairs)).await??;
        self.0.index.mark_verified(stretch);
        Ok(true)
    }

    /// Evicts cached states that have not been requested for [`limits::CACHE_TTL`].
    pub fn evict_idle(&self) {
        self.0.kept.evict_idle();
    }

    /// Returns the status of the snapshot index.
    #[must_use]
    pub fn standing(&self) -> SnapshotIndexStatus {
        self.0.snapshots.standing()
    }

    async fn check(&self, position: Position) -> Result<(), Error> {
        let end = self.0.journal.end().await?;
        match position {
            Position(0) => Err(Error::PositionZero { end }),
            asked if asked > end => Err(Error::BeyondEnd { position: asked, end }),
            Position(_) => Ok(()),
        }
    }

    /// Returns the state to continue from: the cached state or the state of the snapshot. The state nearer to
    /// the requested position is used. Without a cached state and a snapshot, returns the state before the
    /// first entry.
    async fn base_state(
        &self,
        mut rung: Option<Position>,
        kept: Option<Arc<PastState>>,
    ) -> Result<PastState, Error> {
        loop {
            let kept = kept.as_ref().filter(|kept| rung.is_none_or(|rung| rung <= kept.position()));
            if let Some(kept) = kept {
                let kept = Arc::clone(kept);
                return run_blocking(move || (*kept).clone()).await;
            }
            let Some(position) = rung else {
                return Ok(PastState::before_first_entry(self.0.quarantines.clone()));
            };
            if let Some(then) = self.read_snapshot(position).await? {
                return Ok(then);
            }
            rung = self.0.snapshots.highest_below(Position(position.0 - 1));
        }
    }

    /// Reads a snapshot. `None` if the snapshot is invalid. For example, the snapshot belongs to another
    /// history because the log was restored from a backup.
    async fn read_snapshot(&self, position: Position) -> Result<Option<PastState>, Error> {
        let inner = Arc::clone(&self.0);
        let read = run_blocking(move || inner.snapshots.read(position, &inner.quarantines)).await?;
        let Some(then) = read else { return Ok(None) };
        let stands = self.page(Position(position.0 - 1), 1).await?;
        if stands.first().is_some_and(|one| one.checksum() == then.sum) {
            return Ok(Some(then));
        }
        let inner = Arc::clone(&self.0);
        run_blocking(move || inner.snapshots.discard(position, "the log has another entry at its position"))
            .await?;
        Ok(None)
    }

    /// Folds the entries after a state. The next page is read while the current page is folded.
    async fn fold_until(
        &self,
        then: PastState,
        until: FoldTarget,
        end: Position,
        pace: Pace,
    ) -> Result<PastState, Error> {
        if then.position() >= end {
            return Ok(then);
        }
        let (mut then, mut page) = {
            let page = self.page(then.position(), page_len(then.position(), end)).await?;
            (then, page)
        };
        loop {
            let read = page.last().map_or(end, |last| last.position);
            let began = Instant::now();
            let folding = run_blocking(move || {
                let folded = then.fold(&page, until);
                folded.map(|there| (then, there))
            });
            let reading =
                async { if read < end { self.page(read, page_len(read, end)).await } else { Ok(vec![]) } };
            let (folded, next) = tokio::join!(folding, reading);
            let there;
            (then, there) = folded??;
            if there || read >= end {
                return Ok(then);
            }
            page = next?;
            if pace == Pace::Throttled {
                sleep(began.elapsed()).await;
            }
        }
    }

    /// Reads the entries after a position. The entries are known to exist, so the read is repeated if a
    /// replica lacks them.
    async fn page(&self, after: Position, limit: usize) -> Result<Vec<StoredEntry>, Error> {
        page(&self.0.journal, after, limit).await
    }
}

/// Returns the number of entries on the page after a position, up to the position `end`.
fn page_len(after: Position, end: Position) -> usize {
    usize::try_from(end.0.saturating_sub(after.0)).unwrap_or(usize::MAX).min(BATCH_ENTRIES)
}

async fn page(journal: &Journal, after: Position, limit: usize) -> Result<Vec<StoredEntry>, Error> {
    let until = Instant::now() + REPLICA_LAG_TIMEOUT;
    loop {
        let page = journal.read(after, None, limit).await?;
        match page.first().map(|first| first.position) {
            Some(first) if first.0 == after.0 + 1 => return Ok(page),
            Some(first) => {
                let why = format!("position {first} follows position {after}: entries are lost");
                return Err(JournalError::Damaged(why).into());
            }
            None if Instant::now() < until => sleep(REPLICA_RETRY_INTERVAL).await,
            None => {
                let what = format!("the replica that responds has no entries after position {after}");
                return Err(JournalError::Unavailable { what, source: None }.into());
            }
        }
    }
}

/// Returns the positions that operators quarantined. The subject of the cluster contains them.
async fn quarantined_positions(journal: &Journal) -> Result<QuarantinedPositions, Error> {
    let (mut known, mut after) = (ClusterLog::default(), Position(0));
    let end = journal.last(&Subject::Cluster).await?.map_or(Position(0), |last| last.position);
    let mut until = Instant::now() + REPLICA_LAG_TIMEOUT;
    while after < end {
        let page = journal.read(after, Some(&Subject::Cluster), BATCH_ENTRIES).await?;
        if page.is_empty() {
            if Instant::now() >= until {
                let what = format!("the replica that responds has no entries after position {after}");
                return Err(JournalError::Unavailable { what, source: None }.into());
            }
            sleep(REPLICA_RETRY_INTERVAL).await;
            continue;
        }
        until = Instant::now() + REPLICA_LAG_TIMEOUT;
        for one in page {
            known.read(one.position, &one.bytes);
            after = one.position;
        }
    }
    Ok(known.quarantined().clone())
}

/// Returns the id of the cluster and the time when it was founded.
async fn read_founding(
    journal: &Journal,
    quarantines: &QuarantinedPositions,
) -> Result<(ClusterId, Timestamp), Error> {
    let end = Position(journal.end().await?.0.min(MAX_FOUNDING_POSITION));
    let mut then =
        PastState { reader: Reader::with_quarantines(quarantines.clone()), ..PastState::default() };
    while then.position() < end {
        let page = page(journal, then.position(), page_len(then.position(), end)).await?;
        for one in &page {
            then.fold(std::slice::from_ref(one), FoldTarget::Position(end))?;
            if let Some(cluster) = then.world().cluster() {
                return Ok((cluster.id, then.latest));
            }
        }
    }
    Err(Error::NotFounded)
}

/// Runs a blocking function on a separate thread.
async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Error::Stopping)
}
