//! The past: the World as it was at any position of the log, within a second on a log of a million entries.
//!
//! ```text
//!   folder:   rung 16384   rung 32768   rung 49152 ...       a ladder of snapshots, built in slices
//!                              │
//!   journal:                   └─▶ the tail up to 40000 ─▶ fold ─▶ the World at 40000
//! ```
//! The ladder only saves time: it is a cache that can be deleted at any moment. A rung that is damaged, of another
//! cluster, of another history or of another version of snapshots is deleted and counted, and never believed. A rung
//! also keeps what a reader of the log knew there, so that what is set aside behind it is what everybody sets aside.

mod index;
mod kept;
mod ladder;
pub mod limits;
mod rung;
mod then;
mod verify;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use journal::{Journal, JournalError, Recorded};
use projections::cluster_log::{ClusterLog, Positions};
use projections::{Reader, World};
use schemas::names::ClusterId;
use schemas::{Position, Subject, Timestamp};
use tokio::time::{Instant, sleep};

use crate::index::{Index, Pairs};
use crate::kept::Kept;
use crate::ladder::{Ladder, folder_of};
use crate::limits::{AGAIN, BATCH, FOUNDING, LAG, SPACING, STRETCH};
use crate::then::Until;

pub use crate::ladder::Standing;
pub use crate::then::Then;
pub use crate::verify::Verified;

/// Why the past can't be told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cache can't be used.
    #[error("the cache {} can't be used", path.display())]
    Folder {
        /// The folder or the file.
        path: PathBuf,
        /// What went wrong.
        #[source]
        source: io::Error,
    },
    /// The journal can't be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The log holds what this program doesn't understand.
    #[error("position {position}: {why}")]
    Unreadable {
        /// Where.
        position: Position,
        /// Why.
        why: String,
    },
    /// Nothing happened yet.
    #[error("the log holds nothing yet: its cluster is not founded")]
    NotFounded,
    /// Nobody wrote there yet.
    #[error("position {asked} is beyond the end of the log: use 1 to {end}")]
    Beyond {
        /// What was asked for.
        asked: Position,
        /// Where the log ends.
        end: Position,
    },
    /// Positions begin with 1.
    #[error("position 0 is before the first entry of the log: use 1 to {end}")]
    Zero {
        /// Where the log ends.
        end: Position,
    },
    /// Nothing had happened yet.
    #[error("{asked} is before the first entry of the log, which was decided at {first}")]
    Before {
        /// What was asked for.
        asked: Timestamp,
        /// When the first entry was decided.
        first: Timestamp,
    },
    /// Snapshots have no place.
    #[error("there is no cache for snapshots of the past: start the BBS with --cache DIR")]
    NoCache,
    /// The program ends.
    #[error("the program is stopping")]
    Stopping,
}

/// The past of one cluster. Clones are the same.
#[derive(Clone, Debug)]
pub struct Past(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    journal: Journal,
    /// What operators set aside.
    set_aside: Positions,
    /// When the first entry was decided that counts.
    first: Timestamp,
    ladder: Ladder,
    index: Index,
    kept: Kept,
}

/// Whether who folds leaves half of the time to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    Quick,
    Leisurely,
}

impl Past {
    /// Opens the past of the cluster whose log a journal holds. The ladder is in a folder of its own below `cache`.
    ///
    /// # Errors
    /// The cluster isn't founded, or the folder or the journal can't be used.
    pub async fn open(cache: &Path, journal: Journal) -> Result<Self, Error> {
        Self::open_spaced(cache, journal, SPACING).await
    }

    /// The same, with a rung after every so many entries, unless the log has too many for that.
    ///
    /// # Errors
    /// See [`Past::open`].
    pub async fn open_spaced(cache: &Path, journal: Journal, spacing: u64) -> Result<Self, Error> {
        Self::open_as(cache, journal, spacing, STRETCH).await
    }

    async fn open_as(cache: &Path, journal: Journal, spacing: u64, stretch: u64) -> Result<Self, Error> {
        let set_aside = set_aside(&journal).await?;
        let (cluster, first) = founded(&journal, &set_aside).await?;
        let end = journal.end().await?;
        let cache = cache.to_owned();
        let index = Index::new(folder_of(&cache, cluster), cluster, stretch);
        let ladder = blocking(move || Ladder::open(&cache, cluster, end, spacing)).await??;
        Ok(Self(Arc::new(Inner { journal, set_aside, first, ladder, index, kept: Kept::default() })))
    }

    /// The World as it was at a position.
    ///
    /// # Errors
    /// There is no such position, or the journal can't be read.
    pub async fn world_at(&self, position: Position) -> Result<World, Error> {
        Ok(self.at(position).await?.world().clone())
    }

    /// What was true at a position, and what a reader of the log knew there.
    ///
    /// # Errors
    /// See [`Past::world_at`].
    pub async fn at(&self, position: Position) -> Result<Arc<Then>, Error> {
        self.check(position).await?;
        let inner = &self.0;
        if let Some(then) = inner.kept.at(position) {
            return Ok(then);
        }
        let base = self.base(inner.ladder.below(position), inner.kept.below(position)).await?;
        let then = self.climb(base, Until::Position(position), position, Pace::Quick).await?;
        Ok(inner.kept.keep(then))
    }

    /// What was true at a time: at the position before the first entry that was decided later.
    ///
    /// # Errors
    /// The time is before the first entry of the log, or the journal can't be read.
    pub async fn at_time(&self, time: Timestamp) -> Result<Arc<Then>, Error> {
        let inner = &self.0;
        if time < inner.first {
            return Err(Error::Before { asked: time, first: inner.first });
        }
        let end = inner.journal.end().await?;
        let base = self.base(inner.ladder.before(time), inner.kept.before(time)).await?;
        let then = self.climb(base, Until::Time(time), end, Pace::Quick).await?;
        Ok(inner.kept.keep(then))
    }

    /// The position at which the log stood at a time: the one before the first entry that was decided later.
    ///
    /// # Errors
    /// See [`Past::at_time`].
    pub async fn position_of(&self, time: Timestamp) -> Result<Position, Error> {
        Ok(self.at_time(time).await?.position())
    }

    /// How many entries are folded for a position that nobody asked for lately.
    #[must_use]
    pub fn distance(&self, position: Position) -> u64 {
        position.0 - self.0.ladder.below(position).unwrap_or_default().0
    }

    /// How many entries are folded for a time, at the most, in a log that ends at `end`.
    #[must_use]
    pub fn distance_to(&self, time: Timestamp, end: Position) -> u64 {
        let below = self.0.ladder.before(time).unwrap_or_default();
        let above = self.0.ladder.all().into_iter().find(|position| *position > below);
        above.unwrap_or(end).max(below).0 - below.0
    }

    /// What was true at the newest position of which there is a snapshot: whoever starts goes on from there.
    ///
    /// # Errors
    /// The journal can't be read.
    pub async fn newest(&self) -> Result<Option<Then>, Error> {
        let end = self.0.journal.end().await?;
        let then = self.base(self.0.ladder.below(end), None).await?;
        Ok(Some(then).filter(|then| then.position() > Position(0)))
    }

    /// Makes a snapshot of the position `end` or of one shortly before it, if there is none nearer to it than twice what
    /// lies between two rungs, in half of the time at most.
    ///
    /// # Errors
    /// The folder or the journal can't be used.
    pub async fn build_newest(&self, end: Position) -> Result<(), Error> {
        let inner = Arc::clone(&self.0);
        let due = blocking(move || inner.ladder.newest(end)).await?;
        match due {
            Some(position) => self.build(position).await,
            None => Ok(()),
        }
    }

    /// Whether a log that ends at `end` should have a rung that isn't there.
    ///
    /// # Errors
    /// The program is stopping.
    pub async fn is_due(&self, end: Position) -> Result<bool, Error> {
        let inner = Arc::clone(&self.0);
        Ok(blocking(move || inner.ladder.next(end)).await?.is_some())
    }

    /// Builds the next rung that a log that ends at `end` should have, in half of the time at most; false: all are there.
    ///
    /// # Errors
    /// The folder or the journal can't be used.
    pub async fn build_next(&self, end: Position) -> Result<bool, Error> {
        self.0.kept.drop_idle();
        let inner = Arc::clone(&self.0);
        let Some(next) = blocking(move || inner.ladder.next(end)).await? else { return Ok(false) };
        self.build(next).await?;
        Ok(true)
    }

    /// Builds a rung at the end of a log that ends at `end`, for the next start, unless there is one near it. The one that
    /// was built so before goes.
    ///
    /// # Errors
    /// The folder or the journal can't be used.
    pub async fn build_last(&self, end: Position) -> Result<(), Error> {
        if self.0.ladder.has_tail(end) {
            self.build(end).await?;
        }
        Ok(())
    }

    /// Makes a rung of what a service knows that stops at the end of the log, for the next start, unless there is one near it:
    /// `reader` has read all that the World is folded of.
    ///
    /// # Errors
    /// See [`Past::build_last`].
    pub async fn keep_last(&self, reader: Reader, world: World) -> Result<(), Error> {
        let end = world.position();
        if !self.0.ladder.has_tail(end) {
            return Ok(());
        }
        let last = self.page(Position(end.0 - 1), 1).await?;
        let then =
            Then { latest: world.latest(), sum: last.first().map_or(0, Recorded::checksum), reader, world };
        let inner = Arc::clone(&self.0);
        blocking(move || inner.ladder.write(&then)).await?
    }

    async fn build(&self, position: Position) -> Result<(), Error> {
        let base = self.base(self.0.ladder.below(position), None).await?;
        let then = self.climb(base, Until::Position(position), position, Pace::Leisurely).await?;
        let inner = Arc::clone(&self.0);
        blocking(move || inner.ladder.write(&then)).await?
    }

    /// Where the log speaks of something behind a position, `lrp:GUID` and so on as an aggregate is called: at most so many
    /// positions, in order, perhaps some at which it speaks of something else, and up to where that is all.
    ///
    /// # Errors
    /// The folder can't be read.
    pub async fn positions(
        &self,
        about: &str,
        after: Position,
        most: usize,
    ) -> Result<(Vec<Position>, Position), Error> {
        let (inner, about) = (Arc::clone(&self.0), about.to_owned());
        blocking(move || inner.index.positions(&about, after, most)).await?
    }

    /// Whether a log that ends at `end` should have a stretch of the index that isn't there.
    #[must_use]
    pub fn is_index_due(&self, end: Position) -> bool {
        self.0.index.next(end).is_some()
    }

    /// Makes the next stretch of the index that a log that ends at `end` should have, in half of the time at most, unless
    /// there is one that is of this history; false: all are there.
    ///
    /// # Errors
    /// The folder or the journal can't be used.
    pub async fn index_next(&self, end: Position) -> Result<bool, Error> {
        let Some(stretch) = self.0.index.next(end) else { return Ok(false) };
        let (begin, upto) = (self.0.index.begin_of(stretch), self.0.index.begin_of(stretch + 1));
        let inner = Arc::clone(&self.0);
        let known = blocking(move || inner.index.found(stretch)).await?;
        if let Some(sum) = known
            && self.page(Position(upto.0 - 1), 1).await?.first().is_some_and(|last| last.checksum() == sum)
        {
            self.0.index.believe(stretch);
            return Ok(true);
        }
        let (mut pairs, mut read) = (Pairs::default(), begin);
        while read < upto {
            let page = self.page(read, room(read, upto)).await?;
            read = page.last().map_or(upto, |last| last.position);
            let began = Instant::now();
            pairs = blocking(move || {
                pairs.take(begin, &page);
                pairs
            })
            .await?;
            sleep(began.elapsed()).await;
        }
        let inner = Arc::clone(&self.0);
        blocking(move || inner.index.write(stretch, pairs)).await??;
        self.0.index.believe(stretch);
        Ok(true)
    }

    /// Drops Worlds for which nobody asked for a while.
    pub fn drop_idle(&self) {
        self.0.kept.drop_idle();
    }

    /// How the ladder is.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.0.ladder.standing()
    }

    async fn check(&self, position: Position) -> Result<(), Error> {
        let end = self.0.journal.end().await?;
        match position {
            Position(0) => Err(Error::Zero { end }),
            asked if asked > end => Err(Error::Beyond { asked, end }),
            Position(_) => Ok(()),
        }
    }

    /// What is gone on from: a World that is kept, if none of the rungs is nearer; the beginning, if there is nothing.
    async fn base(&self, mut rung: Option<Position>, kept: Option<Arc<Then>>) -> Result<Then, Error> {
        loop {
            let kept = kept.as_ref().filter(|kept| rung.is_none_or(|rung| rung <= kept.position()));
            if let Some(kept) = kept {
                let kept = Arc::clone(kept);
                return blocking(move || (*kept).clone()).await;
            }
            let Some(position) = rung else { return Ok(Then::beginning(self.0.set_aside.clone())) };
            if let Some(then) = self.rung(position).await? {
                return Ok(then);
            }
            rung = self.0.ladder.below(Position(position.0 - 1));
        }
    }

    /// A rung, if it can be believed: it is of this history, and not of one that went another way behind a backup.
    async fn rung(&self, position: Position) -> Result<Option<Then>, Error> {
        let inner = Arc::clone(&self.0);
        let read = blocking(move || inner.ladder.read(position, &inner.set_aside)).await?;
        let Some(then) = read else { return Ok(None) };
        let stands = self.page(Position(position.0 - 1), 1).await?;
        if stands.first().is_some_and(|one| one.checksum() == then.sum) {
            return Ok(Some(then));
        }
        let inner = Arc::clone(&self.0);
        blocking(move || inner.ladder.spoil(position, "another entry stands at its position")).await?;
        Ok(None)
    }

    /// Folds the tail. While a page is folded the next one is read.
    async fn climb(&self, then: Then, until: Until, end: Position, pace: Pace) -> Result<Then, Error> {
        if then.position() >= end {
            return Ok(then);
        }
        let (mut then, mut page) = {
            let page = self.page(then.position(), room(then.position(), end)).await?;
            (then, page)
        };
        loop {
            let read = page.last().map_or(end, |last| last.position);
            let began = Instant::now();
            let folding = blocking(move || {
                let folded = then.fold(&page, until);
                folded.map(|there| (then, there))
            });
            let reading =
                async { if read < end { self.page(read, room(read, end)).await } else { Ok(vec![]) } };
            let (folded, next) = tokio::join!(folding, reading);
            let there;
            (then, there) = folded??;
            if there || read >= end {
                return Ok(then);
            }
            page = next?;
            if pace == Pace::Leisurely {
                sleep(began.elapsed()).await;
            }
        }
    }

    /// The entries behind a position, which are there: a replica that lacks them is asked again.
    async fn page(&self, after: Position, limit: usize) -> Result<Vec<Recorded>, Error> {
        page(&self.0.journal, after, limit).await
    }
}

/// How many entries are read at once behind a position, up to an end.
fn room(after: Position, end: Position) -> usize {
    usize::try_from(end.0.saturating_sub(after.0)).unwrap_or(usize::MAX).min(BATCH)
}

async fn page(journal: &Journal, after: Position, limit: usize) -> Result<Vec<Recorded>, Error> {
    let until = Instant::now() + LAG;
    loop {
        let page = journal.read(after, None, limit).await?;
        match page.first().map(|first| first.position) {
            Some(first) if first.0 == after.0 + 1 => return Ok(page),
            Some(first) => {
                let why = format!("position {first} follows position {after}: entries are lost");
                return Err(JournalError::Damaged(why).into());
            }
            None if Instant::now() < until => sleep(AGAIN).await,
            None => {
                let what = format!("whoever answers for it lacks what follows position {after}");
                return Err(JournalError::Unavailable { what, source: None }.into());
            }
        }
    }
}

/// What operators set aside, as the cluster's subject has it.
async fn set_aside(journal: &Journal) -> Result<Positions, Error> {
    let (mut known, mut after) = (ClusterLog::default(), Position(0));
    let end = journal.last(&Subject::Cluster).await?.map_or(Position(0), |last| last.position);
    let mut until = Instant::now() + LAG;
    while after < end {
        let page = journal.read(after, Some(&Subject::Cluster), BATCH).await?;
        if page.is_empty() {
            if Instant::now() >= until {
                let what = format!("whoever answers for it lacks what follows position {after}");
                return Err(JournalError::Unavailable { what, source: None }.into());
            }
            sleep(AGAIN).await;
            continue;
        }
        until = Instant::now() + LAG;
        for one in page {
            known.read(one.position, &one.bytes);
            after = one.position;
        }
    }
    Ok(known.positions().clone())
}

/// The cluster, and when it was founded.
async fn founded(journal: &Journal, set_aside: &Positions) -> Result<(ClusterId, Timestamp), Error> {
    let end = Position(journal.end().await?.0.min(FOUNDING));
    let mut then = Then { reader: Reader::knowing(set_aside.clone()), ..Then::default() };
    while then.position() < end {
        let page = page(journal, then.position(), room(then.position(), end)).await?;
        for one in &page {
            then.fold(std::slice::from_ref(one), Until::Position(end))?;
            if let Some(cluster) = then.world().cluster() {
                return Ok((cluster.id, then.latest));
            }
        }
    }
    Err(Error::NotFounded)
}

/// Does what takes long where it disturbs nobody.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Error::Stopping)
}
