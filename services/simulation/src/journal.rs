//! A log as JetStream was measured to be: one total order, and compare-and-set for each subject. What gets lost on the
//! way to it and back is the cluster's concern.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use schemas::Timestamp;
use schemas::names::EntryId;
use schemas::subject::{Position, Subject};

use super::nodes::Replicas;

/// An entry as it is stored.
#[derive(Clone, Debug)]
pub struct Stored {
    /// On which subject.
    pub subject: Subject,
    /// Its id; a malformed entry has none.
    pub entry: Option<EntryId>,
    /// Its bytes.
    pub bytes: Bytes,
}

/// What became of an append, as it really was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// It is stored.
    At(Position),
    /// It was stored before, and the journal still knows: an append that was repeated.
    Duplicate(Position),
    /// It was stored before, and the journal answers as if something else were there.
    RepeatedAsConflict,
    /// The same, for it has forgotten that it stored it.
    RepeatedForgotten,
    /// Something else is there.
    Conflict,
}

/// The log.
#[derive(Clone, Debug)]
pub struct SimJournal {
    replicas: Replicas,
    entries: Vec<Stored>,
    last: BTreeMap<Subject, Position>,
    /// When each entry was stored.
    stored: BTreeMap<EntryId, Timestamp>,
    /// Before that, the journal remembers nothing.
    forgot_at: Timestamp,
}

/// So long the journal knows which entries it has stored.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

impl SimJournal {
    /// An empty log.
    #[must_use]
    pub fn new(replicas: Replicas) -> Self {
        let (last, stored) = (BTreeMap::new(), BTreeMap::new());
        Self { replicas, entries: vec![], last, stored, forgot_at: Timestamp(0) }
    }

    /// Appends if `expected` is the position of the subject's last entry. What is answered to an append that was
    /// stored before depends on how many machines keep the log, and on how long ago that was.
    pub fn append(&mut self, now: Timestamp, stored: Stored, expected: Position) -> Appended {
        let last = self.last.get(&stored.subject).copied().unwrap_or_default();
        let known = stored.entry.and_then(|entry| self.stored.get(&entry));
        if let Some(at) = known {
            let remembers = *at >= self.forgot_at && *at + DUPLICATE_WINDOW > now;
            return match self.replicas {
                Replicas::One => Appended::RepeatedAsConflict,
                Replicas::Three if remembers => Appended::Duplicate(last),
                Replicas::Three => Appended::RepeatedForgotten,
            };
        }
        if last != expected {
            return Appended::Conflict;
        }
        Appended::At(self.store(now, stored))
    }

    /// Stores something, whatever is there.
    pub fn store(&mut self, now: Timestamp, stored: Stored) -> Position {
        let subject = stored.subject.clone();
        self.stored.extend(stored.entry.map(|entry| (entry, now)));
        self.entries.push(stored);
        let position = self.end();
        self.last.insert(subject, position);
        position
    }

    /// Its machines start again, and don't remember what they stored.
    pub const fn forget(&mut self, now: Timestamp) {
        self.forgot_at = now;
    }

    /// The last entries are gone, as if they had never been.
    pub fn lose(&mut self, entries: usize) {
        self.entries.truncate(self.entries.len().saturating_sub(entries));
        self.last.clear();
        self.stored.clear();
        for (at, stored) in self.entries.iter().enumerate() {
            self.last.insert(stored.subject.clone(), Position(at as u64 + 1));
        }
    }

    /// The position of the last entry.
    #[must_use]
    pub fn end(&self) -> Position {
        Position(self.entries.len() as u64)
    }

    /// The entry at a position.
    #[must_use]
    pub fn get(&self, position: Position) -> Option<&Stored> {
        self.entries.get(usize::try_from(position.0.checked_sub(1)?).ok()?)
    }

    /// The last entry of a subject.
    #[must_use]
    pub fn last(&self, subject: &Subject) -> Option<(Position, Option<EntryId>)> {
        let position = *self.last.get(subject)?;
        Some((position, self.get(position)?.entry))
    }
}
