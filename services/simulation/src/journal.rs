//! Journal with the measured behaviour of JetStream: one total order, and compare-and-set per subject. Faults
//! of its messages are in `records`.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use schemas::Timestamp;
use schemas::names::EntryId;
use schemas::subject::{Position, Subject};

/// Number of journal servers. One server answers a repeated append with a conflict. Three servers answer it
/// as a duplicate, while they remember the first append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicas {
    One,
    Three,
}

/// Stored message.
#[derive(Clone, Debug)]
pub struct Stored {
    pub subject: Subject,
    /// Id of the entry. `None` if the message is not an entry.
    pub entry: Option<EntryId>,
    pub bytes: Bytes,
}

/// Result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// The entry is stored.
    At(Position),
    /// The entry was stored before, and the journal remembers that.
    Duplicate(Position),
    /// The entry was stored before, and the journal answers with a conflict.
    RepeatedAsConflict,
    /// The entry was stored before, and the journal has forgotten that.
    RepeatedForgotten,
    /// The subject ends at another position.
    Conflict,
}

/// Journal of a run.
#[derive(Clone, Debug)]
pub struct SimJournal {
    replicas: Replicas,
    entries: Vec<Stored>,
    last: BTreeMap<Subject, Position>,
    /// Time at which each entry was stored.
    stored: BTreeMap<EntryId, Timestamp>,
    /// Time of the last restart. The journal has forgotten earlier entry ids.
    forgot_at: Timestamp,
}

/// Time for which the journal remembers entry ids.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

impl SimJournal {
    /// Creates an empty journal.
    #[must_use]
    pub fn new(replicas: Replicas) -> Self {
        let (last, stored) = (BTreeMap::new(), BTreeMap::new());
        Self { replicas, entries: vec![], last, stored, forgot_at: Timestamp(0) }
    }

    /// Appends a message if its subject ends at `expected`. The result of a repeated append depends on the
    /// number of servers, and on the time since the first append.
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

    /// Stores a message without a check.
    pub fn store(&mut self, now: Timestamp, stored: Stored) -> Position {
        let subject = stored.subject.clone();
        self.stored.extend(stored.entry.map(|entry| (entry, now)));
        self.entries.push(stored);
        let position = self.end();
        self.last.insert(subject, position);
        position
    }

    /// Restarts the machines, which forget entry ids.
    pub const fn forget(&mut self, now: Timestamp) {
        self.forgot_at = now;
    }

    /// Removes the last entries.
    pub fn lose(&mut self, entries: usize) {
        self.entries.truncate(self.entries.len().saturating_sub(entries));
        self.last.clear();
        self.stored.clear();
        for (at, stored) in self.entries.iter().enumerate() {
            self.last.insert(stored.subject.clone(), Position(at as u64 + 1));
        }
    }

    /// Returns the position of the last message.
    #[must_use]
    pub fn end(&self) -> Position {
        Position(self.entries.len() as u64)
    }

    /// Returns the message at a position.
    #[must_use]
    pub fn get(&self, position: Position) -> Option<&Stored> {
        self.entries.get(usize::try_from(position.0.checked_sub(1)?).ok()?)
    }

    /// Returns the last message of a subject.
    #[must_use]
    pub fn last(&self, subject: &Subject) -> Option<(Position, Option<EntryId>)> {
        let position = *self.last.get(subject)?;
        Some((position, self.get(position)?.entry))
    }
}
