//! State at a position: the World (the state folded from the log), and the state of the log reader.

use journal::StoredEntry;
use projections::cluster_log::QuarantinedPositions;
use projections::reader::{ReadMessage, empty_entry};
use projections::{Reader, World};
use schemas::query::QuarantinedEntries;
use schemas::{Entry, Position, Timestamp};

use crate::Error;

/// Position or time up to which the log is folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoldTarget {
    /// Up to this position.
    Position(Position),
    /// Up to the last entry before the first entry that was decided later than this time.
    Time(Timestamp),
}

/// World at a position, with the state of the log reader there. A reader that continues from this state
/// quarantines the same entries as a reader of the whole log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastState {
    pub(crate) world: World,
    pub(crate) reader: Reader,
    /// Latest time of a decision so far. Times never decrease on one subject, but an entry of another subject
    /// may have an earlier time.
    pub(crate) latest: Timestamp,
    /// Checksum of the message at the position, which distinguishes different histories.
    pub(crate) sum: u64,
}

impl PastState {
    /// Returns the state before the first entry.
    pub(crate) fn before_first_entry(quarantines: QuarantinedPositions) -> Self {
        Self { reader: Reader::with_quarantines(quarantines), ..Self::default() }
    }

    /// Returns the World.
    #[must_use]
    pub const fn world(&self) -> &World {
        &self.world
    }

    /// Returns the position of the World.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.world.position()
    }

    /// Returns the latest time of a decision up to the position.
    #[must_use]
    pub const fn latest(&self) -> Timestamp {
        self.latest
    }

    /// Returns the malformed entries up to the position.
    #[must_use]
    pub const fn quarantined_entries(&self) -> &QuarantinedEntries {
        self.reader.quarantined()
    }

    /// Returns the reader of the log up to the position, and the World.
    #[must_use]
    pub fn into_parts(self) -> (Reader, World) {
        (self.reader, self.world)
    }

    /// Folds the next entries. Returns `true` once the target is reached.
    pub(crate) fn fold(&mut self, recorded: &[StoredEntry], until: FoldTarget) -> Result<bool, Error> {
        let mut folded = None;
        let mut there = self.has_reached(until);
        for one in recorded {
            if there || !self.fold_entry(one, until)? {
                there = true;
                break;
            }
            folded = Some(one);
            there = self.has_reached(until);
        }
        if let Some(last) = folded {
            self.sum = last.checksum();
        }
        Ok(there)
    }

    fn has_reached(&self, until: FoldTarget) -> bool {
        match until {
            FoldTarget::Position(position) => self.position() >= position,
            FoldTarget::Time(_) => false,
        }
    }

    /// Folds one entry. Returns `false`, and changes nothing, if the entry was decided after the target time.
    fn fold_entry(&mut self, one: &StoredEntry, until: FoldTarget) -> Result<bool, Error> {
        let position = one.position;
        let read = self.reader.look(position, &one.subject, &one.bytes);
        let read = read.map_err(|why| Error::Unreadable { position, why })?;
        let at = match &read {
            ReadMessage::Entry(entry) => last_decision_time(entry),
            ReadMessage::Quarantined(_) => None,
        };
        if let FoldTarget::Time(time) = until
            && at.is_some_and(|at| at > time)
        {
            return Ok(false);
        }
        self.latest = self.latest.max(at.unwrap_or_default());
        match self.reader.take(position, &one.subject, read) {
            ReadMessage::Entry(entry) => drop(self.world.fold(position, &entry)),
            ReadMessage::Quarantined(_) => drop(self.world.fold(position, &empty_entry())),
        }
        Ok(true)
    }
}

fn last_decision_time(entry: &Entry) -> Option<Timestamp> {
    entry.decisions.iter().map(|decision| decision.at).max()
}
