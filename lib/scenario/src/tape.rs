//! Log of a run: recorded entries, shared by all runs of a recording, and entries appended by the run.
//! Appended entries exist in memory only.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use schemas::Entry;
use schemas::names::EntryId;
use schemas::subject::{Position, Subject};

/// Message at a position of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Subject as text.
    pub subject: String,
    /// Id of the entry, if the message carries one.
    pub entry: Option<EntryId>,
    /// Body as stored.
    pub bytes: Bytes,
}

/// Recorded log with entries appended to it.
#[derive(Clone, Debug)]
pub(super) struct Tape {
    recorded: Arc<[Message]>,
    /// Number of recorded messages in use.
    length: usize,
    appended: Vec<Message>,
    last: BTreeMap<Subject, Position>,
}

impl Tape {
    /// Creates a log from the first `length` recorded messages.
    pub(super) fn new(recorded: Arc<[Message]>, length: usize) -> Self {
        let length = length.min(recorded.len());
        let mut last = BTreeMap::new();
        for (at, message) in recorded[..length].iter().enumerate() {
            last.extend(Subject::parse(&message.subject).map(|subject| (subject, position(at))));
        }
        Self { recorded, length, appended: vec![], last }
    }

    /// Returns the position of the last entry.
    pub(super) const fn end(&self) -> Position {
        Position((self.length + self.appended.len()) as u64)
    }

    /// Appends an entry if the last position of its subject is `expected`. Returns `None` otherwise.
    pub(super) fn append(
        &mut self,
        subject: &Subject,
        expected: Position,
        entry: EntryId,
        bytes: Bytes,
    ) -> Option<Position> {
        if self.last.get(subject).copied().unwrap_or_default() != expected {
            return None;
        }
        self.appended.push(Message { subject: subject.to_string(), entry: Some(entry), bytes });
        let position = self.end();
        self.last.insert(subject.clone(), position);
        Some(position)
    }

    /// Returns the last position of a subject and the id of the entry there.
    pub(super) fn last(&self, subject: &Subject) -> Option<(Position, Option<EntryId>)> {
        let position = *self.last.get(subject)?;
        Some((position, self.get(position)?.entry))
    }

    /// Returns the message at a position.
    pub(super) fn get(&self, position: Position) -> Option<&Message> {
        let at = usize::try_from(position.0.checked_sub(1)?).ok()?;
        match at.checked_sub(self.length) {
            None => self.recorded.get(at),
            Some(at) => self.appended.get(at),
        }
    }

    /// Returns the entries appended by the run, decoded, with their positions.
    pub(super) fn appended(&self) -> impl Iterator<Item = (Position, Entry)> {
        let entries = self.appended.iter().enumerate();
        entries.filter_map(|(at, message)| {
            Some((position(self.length + at), Entry::decode(&message.bytes).ok()?))
        })
    }

    /// Returns all messages, recorded and appended.
    pub(super) fn messages(&self) -> impl Iterator<Item = &Message> {
        self.recorded[..self.length].iter().chain(&self.appended)
    }
}

const fn position(at: usize) -> Position {
    Position(at as u64 + 1)
}
