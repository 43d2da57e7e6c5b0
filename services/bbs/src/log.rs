//! The log as delivered by the follower: the projected state (World), and quarantined entries.

use std::sync::Arc;

use bytes::Bytes;
use projections::reader::{self, End, ReadMessage};
use projections::{Change, Reader, World, WorldSnapshot};
use schemas::Entry;
use schemas::query::{QuarantinedEntries, QuarantinedEntry};
use schemas::{Position, Subject};

/// The log up to the position that this BBS has folded.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    reader: Reader,
    world: World,
    caught_up: bool,
    /// Cached snapshot, which is reused while the position of the World stays the same.
    snapshot: Option<WorldSnapshot>,
}

/// Content of the journal at a position.
#[derive(Debug)]
pub(crate) enum Content {
    Entry(Arc<Entry>),
    /// A quarantined entry. It is folded as an entry without decisions.
    Quarantined(QuarantinedEntry),
    /// An entry that this program cannot interpret, with the reason. The BBS must stop.
    NotUnderstood(String),
}

impl Log {
    /// Returns a log from a reader and from the World at the reader's position.
    pub(crate) const fn new(reader: Reader, world: World) -> Self {
        Self { reader, world, caught_up: false, snapshot: None }
    }

    /// Returns the reader and the World.
    pub(crate) fn into_parts(self) -> (Reader, World) {
        (self.reader, self.world)
    }

    /// Returns the reader of the log.
    pub(crate) const fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Returns the position of a subject's last entry.
    pub(crate) fn end(&self, subject: &Subject) -> End {
        self.reader.end(subject)
    }

    /// Returns the number of subjects with a known end.
    pub(crate) fn ends(&self) -> usize {
        self.reader.ends().len()
    }

    /// Returns the World up to the last delivered entry.
    pub(crate) const fn world(&self) -> &World {
        &self.world
    }

    /// Returns `true` if the follower has reached the end of the journal at least once.
    pub(crate) const fn is_caught_up(&self) -> bool {
        self.caught_up
    }

    /// Records that the follower has reached the journal's end.
    pub(crate) const fn catch_up(&mut self) {
        self.caught_up = true;
    }

    /// Returns the quarantined entries.
    pub(crate) const fn quarantined(&self) -> &QuarantinedEntries {
        self.reader.quarantined()
    }

    /// Decodes the message at a position. `own` is the entry that this BBS wrote with these bytes, if it
    /// wrote the message. This entry need not be decoded again.
    pub(crate) fn read(
        &mut self,
        position: Position,
        subject: &str,
        bytes: &Bytes,
        own: Option<Arc<Entry>>,
    ) -> Content {
        if let Some(entry) = own {
            self.reader.record_entry(position, &entry);
            return Content::Entry(entry);
        }
        match self.reader.read(position, subject, bytes) {
            Ok(ReadMessage::Entry(entry)) => Content::Entry(Arc::new(entry)),
            Ok(ReadMessage::Quarantined(reason)) => {
                Content::Quarantined(QuarantinedEntry { position, subject: subject.to_owned(), reason })
            }
            Err(why) => Content::NotUnderstood(format!("position {position}: {why}")),
        }
    }

    /// Applies an entry to the World and returns the changes. A quarantined entry (`None`) is applied as an
    /// entry without decisions.
    pub(crate) fn fold(&mut self, position: Position, entry: Option<&Entry>) -> Vec<Change> {
        match entry {
            Some(entry) => self.world.fold(position, entry),
            None => self.world.fold(position, &reader::empty_entry()),
        }
    }

    /// Returns a snapshot of the current World.
    pub(crate) fn snapshot(&mut self) -> WorldSnapshot {
        let here = self.world.position();
        let known = self.snapshot.take().filter(|picture| picture.position() == here);
        let picture = known.unwrap_or_else(|| self.world.freeze());
        self.snapshot = Some(picture.clone());
        picture
    }
}
