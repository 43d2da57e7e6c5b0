//! The in-memory journal, for tests and the simulation.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use schemas::{Position, Subject};
use tokio::sync::watch;

use super::{Append, AppendError, ImportError, JournalError, Page, StoredEntry};

/// An in-memory journal. Clones share their entries.
#[derive(Clone, Debug)]
pub struct Memory {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    log: Mutex<Log>,
    /// End of the journal; `None` once the journal is closed.
    end: watch::Sender<Option<Position>>,
}

#[derive(Debug, Default)]
struct Log {
    /// The entry at position `p` is at index `p - 1`.
    entries: Vec<StoredEntry>,
    /// Positions of the entries of each subject.
    subjects: BTreeMap<String, Vec<Position>>,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// Returns a new, empty journal.
    #[must_use]
    pub fn new() -> Self {
        let end = watch::Sender::new(Some(Position(0)));
        Self { shared: Arc::new(Shared { log: Mutex::default(), end }) }
    }

    /// Locks the log. A poisoned lock is safe to use, because no change can panic before it is complete.
    fn log(&self) -> MutexGuard<'_, Log> {
        self.shared.log.lock()
    }

    pub(super) fn append(&self, append: Append) -> Result<Position, AppendError> {
        self.end().map_err(AppendError::Unknown)?;
        let mut log = self.log();
        let subject = append.subject.to_string();
        if let Some(after) = log.first_after(&subject, append.expected) {
            let same = log.entries[count(after) - 1].entry == Some(append.entry);
            return if same { Ok(after) } else { Err(AppendError::Conflict) };
        }
        if log.last_position(&subject) != append.expected {
            return Err(AppendError::Conflict);
        }
        let position = Position(log.entries.len() as u64 + 1);
        log.subjects.entry(subject.clone()).or_default().push(position);
        log.entries.push(StoredEntry { position, subject, entry: Some(append.entry), bytes: append.bytes });
        self.shared.end.send_modify(|end| *end = end.map(|_| position));
        Ok(position)
    }

    pub(super) fn import(&self, entries: Vec<StoredEntry>) -> Result<(), ImportError> {
        self.end()?;
        let mut log = self.log();
        for entry in entries {
            let end = Position(log.entries.len() as u64);
            if entry.position.0 != end.0 + 1 {
                return Err(ImportError::NotNext { end, first: entry.position });
            }
            let position = entry.position;
            log.subjects.entry(entry.subject.clone()).or_default().push(position);
            log.entries.push(entry);
            self.shared.end.send_modify(|end| *end = end.map(|_| position));
        }
        Ok(())
    }

    pub(super) fn follow(&self, after: Position) -> Follower {
        Follower { journal: self.clone(), end: self.shared.end.subscribe(), after }
    }

    pub(super) fn last(&self, subject: &Subject) -> Result<Option<StoredEntry>, JournalError> {
        self.end()?;
        let log = self.log();
        let last = log.last_position(&subject.to_string());
        Ok((last > Position(0)).then(|| log.entries[count(last) - 1].clone()))
    }

    pub(super) fn read(
        &self,
        after: Position,
        subject: Option<&Subject>,
        limit: usize,
    ) -> Result<Vec<StoredEntry>, JournalError> {
        self.end()?;
        let subject = subject.map(Subject::to_string);
        let mut page = Page::new(limit);
        let log = self.log();
        for entry in log.entries.iter().skip(count(after)) {
            if page.is_full() {
                break;
            }
            if subject.as_ref().is_none_or(|subject| *subject == entry.subject) {
                page.push(entry.clone());
            }
        }
        Ok(page.entries)
    }

    pub(super) fn end(&self) -> Result<Position, JournalError> {
        self.shared.end.borrow().ok_or(JournalError::Closed)
    }

    pub(super) fn close(&self) {
        self.shared.end.send_replace(None);
    }
}

impl Log {
    /// Returns the position of a subject's first entry after a given position.
    fn first_after(&self, subject: &str, after: Position) -> Option<Position> {
        let positions = self.subjects.get(subject)?;
        positions.get(positions.partition_point(|position| *position <= after)).copied()
    }

    /// Returns the position of a subject's last entry; 0 if the subject is empty.
    fn last_position(&self, subject: &str) -> Position {
        self.subjects.get(subject).and_then(|positions| positions.last()).copied().unwrap_or_default()
    }
}

/// Returns the number of entries up to a position.
fn count(position: Position) -> usize {
    usize::try_from(position.0).unwrap_or(usize::MAX)
}

#[derive(Debug)]
pub(super) struct Follower {
    journal: Memory,
    end: watch::Receiver<Option<Position>>,
    pub(super) after: Position,
}

impl Follower {
    pub(super) async fn next_batch(&mut self, max: usize) -> Result<Vec<StoredEntry>, JournalError> {
        let after = self.after;
        super::check_not_beyond(after, self.journal.end()?)?;
        let reached = self.end.wait_for(|end| end.is_none_or(|end| end > after)).await;
        if reached.is_err() {
            return Err(JournalError::Closed);
        }
        drop(reached);
        let entries = self.journal.read(after, None, max)?;
        self.after = entries.last().map_or(after, |entry| entry.position);
        Ok(entries)
    }
}
