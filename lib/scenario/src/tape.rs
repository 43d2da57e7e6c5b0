//! The log of a run: what was recorded, shared by all runs that go on from it, and what the run appends. Only memory holds
//! what is appended.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use schemas::Entry;
use schemas::names::EntryId;
use schemas::subject::{Position, Subject};

/// What a journal holds at a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its subject, as text.
    pub subject: String,
    /// Its id, if it carries one.
    pub entry: Option<EntryId>,
    /// As it is stored.
    pub bytes: Bytes,
}

/// A log that goes on.
#[derive(Clone, Debug)]
pub(super) struct Tape {
    recorded: Arc<[Message]>,
    /// So much of it counts.
    length: usize,
    appended: Vec<Message>,
    last: BTreeMap<Subject, Position>,
}

impl Tape {
    /// The log as it was when so much of it was recorded.
    pub(super) fn new(recorded: Arc<[Message]>, length: usize) -> Self {
        let length = length.min(recorded.len());
        let mut last = BTreeMap::new();
        for (at, message) in recorded[..length].iter().enumerate() {
            last.extend(Subject::parse(&message.subject).map(|subject| (subject, position(at))));
        }
        Self { recorded, length, appended: vec![], last }
    }

    /// The position of the last entry.
    pub(super) const fn end(&self) -> Position {
        Position((self.length + self.appended.len()) as u64)
    }

    /// Appends an entry if this is where its subject ends; none: it is not.
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

    /// Where a subject ends, and with which entry.
    pub(super) fn last(&self, subject: &Subject) -> Option<(Position, Option<EntryId>)> {
        let position = *self.last.get(subject)?;
        Some((position, self.get(position)?.entry))
    }

    /// What stands at a position.
    pub(super) fn get(&self, position: Position) -> Option<&Message> {
        let at = usize::try_from(position.0.checked_sub(1)?).ok()?;
        match at.checked_sub(self.length) {
            None => self.recorded.get(at),
            Some(at) => self.appended.get(at),
        }
    }

    /// What the run appended, decoded, each behind its position.
    pub(super) fn appended(&self) -> impl Iterator<Item = (Position, Entry)> {
        let entries = self.appended.iter().enumerate();
        entries.filter_map(|(at, message)| {
            Some((position(self.length + at), Entry::decode(&message.bytes).ok()?))
        })
    }

    /// All messages, recorded and appended.
    pub(super) fn messages(&self) -> impl Iterator<Item = &Message> {
        self.recorded[..self.length].iter().chain(&self.appended)
    }
}

const fn position(at: usize) -> Position {
    Position(at as u64 + 1)
}
