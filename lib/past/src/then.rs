//! What was true behind a position, and what a reader of the log knew there.

use journal::Recorded;
use projections::cluster_log::Positions;
use projections::reader::{Read, nothing};
use projections::{Reader, World};
use schemas::query::MalformedEntries;
use schemas::{Entry, Position, Timestamp};

use crate::Error;

/// Up to where the log is folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Up to this position.
    Position(Position),
    /// Up to the last entry before the first that was decided later than this.
    Time(Timestamp),
}

/// The World behind a position, with what a reader of the log knew there: whoever goes on from it sets the same aside as
/// who reads the log from its beginning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Then {
    pub(crate) world: World,
    pub(crate) reader: Reader,
    /// The greatest time of a decision so far. Times never go back on one subject, but they may from one to the next.
    pub(crate) latest: Timestamp,
    /// A checksum of what stands at the position: it tells one history from another.
    pub(crate) sum: u64,
}

impl Then {
    /// Before the first entry.
    pub(crate) fn beginning(set_aside: Positions) -> Self {
        Self { reader: Reader::knowing(set_aside), ..Self::default() }
    }

    /// The World.
    #[must_use]
    pub const fn world(&self) -> &World {
        &self.world
    }

    /// Where it stands.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.world.position()
    }

    /// The greatest time of a decision up to there.
    #[must_use]
    pub const fn latest(&self) -> Timestamp {
        self.latest
    }

    /// What the log held up to there that is no entry.
    #[must_use]
    pub const fn set_aside(&self) -> &MalformedEntries {
        self.reader.set_aside()
    }

    /// What read the log up to there, and the World.
    #[must_use]
    pub fn into_parts(self) -> (Reader, World) {
        (self.reader, self.world)
    }

    /// Folds what follows, and says whether it went as far as it should.
    pub(crate) fn fold(&mut self, recorded: &[Recorded], until: Until) -> Result<bool, Error> {
        let mut folded = None;
        let mut there = self.is_at(until);
        for one in recorded {
            if there || !self.fold_one(one, until)? {
                there = true;
                break;
            }
            folded = Some(one);
            there = self.is_at(until);
        }
        if let Some(last) = folded {
            self.sum = last.checksum();
        }
        Ok(there)
    }

    fn is_at(&self, until: Until) -> bool {
        match until {
            Until::Position(position) => self.position() >= position,
            Until::Time(_) => false,
        }
    }

    /// False: it was decided later than it should be, and nothing is changed.
    fn fold_one(&mut self, one: &Recorded, until: Until) -> Result<bool, Error> {
        let position = one.position;
        let read = self.reader.look(position, &one.subject, &one.bytes);
        let read = read.map_err(|why| Error::Unreadable { position, why })?;
        let at = match &read {
            Read::Entry(entry) => latest_of(entry),
            Read::SetAside(_) => None,
        };
        if let Until::Time(time) = until
            && at.is_some_and(|at| at > time)
        {
            return Ok(false);
        }
        self.latest = self.latest.max(at.unwrap_or_default());
        match self.reader.take(position, &one.subject, read) {
            Read::Entry(entry) => drop(self.world.fold(position, &entry)),
            Read::SetAside(_) => drop(self.world.fold(position, &nothing())),
        }
        Ok(true)
    }
}

fn latest_of(entry: &Entry) -> Option<Timestamp> {
    entry.decisions.iter().map(|decision| decision.at).max()
}
