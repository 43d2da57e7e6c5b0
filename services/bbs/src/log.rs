//! What the follower delivered: the World, and where the journal holds no entry.

use std::sync::Arc;

use bytes::Bytes;
use projections::reader::{self, End, Read};
use projections::{Change, Picture, Reader, World};
use schemas::Entry;
use schemas::query::{MalformedEntries, MalformedEntry};
use schemas::{Position, Subject};

/// The log as far as this BBS has folded it.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    reader: Reader,
    world: World,
    caught_up: bool,
    /// The last picture that was taken: of one position there is one.
    picture: Option<Picture>,
}

/// What the journal holds at a position.
#[derive(Debug)]
pub(crate) enum Found {
    /// An entry.
    Entry(Arc<Entry>),
    /// No entry: it counts as one in which nothing is decided.
    SetAside(MalformedEntry),
    /// What this program doesn't understand, and why: it must not go on.
    Unknown(String),
}

impl Log {
    /// The log as far as a reader has read it and a World was folded of it.
    pub(crate) const fn starting(reader: Reader, world: World) -> Self {
        Self { reader, world, caught_up: false, picture: None }
    }

    /// What read it, and what is true, for who goes on without it.
    pub(crate) fn into_parts(self) -> (Reader, World) {
        (self.reader, self.world)
    }

    /// What reads it.
    pub(crate) const fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Where a subject ends.
    pub(crate) fn end(&self, subject: &Subject) -> End {
        self.reader.end(subject)
    }

    /// Of how many subjects it is known where they end.
    pub(crate) fn ends(&self) -> usize {
        self.reader.ends().len()
    }

    /// What is true, as far as the follower told.
    pub(crate) const fn world(&self) -> &World {
        &self.world
    }

    /// Whether the follower has reached the journal's end once.
    pub(crate) const fn is_caught_up(&self) -> bool {
        self.caught_up
    }

    /// The follower has reached the journal's end.
    pub(crate) const fn catch_up(&mut self) {
        self.caught_up = true;
    }

    /// Where the journal holds no entry.
    pub(crate) const fn set_aside(&self) -> &MalformedEntries {
        self.reader.set_aside()
    }

    /// Reads what the journal holds at a position. `own`: the entry that this BBS wrote with these bytes, which need not
    /// be decoded.
    pub(crate) fn read(
        &mut self,
        position: Position,
        subject: &str,
        bytes: &Bytes,
        own: Option<Arc<Entry>>,
    ) -> Found {
        if let Some(entry) = own {
            self.reader.note(position, &entry);
            return Found::Entry(entry);
        }
        match self.reader.read(position, subject, bytes) {
            Ok(Read::Entry(entry)) => Found::Entry(Arc::new(entry)),
            Ok(Read::SetAside(why)) => {
                Found::SetAside(MalformedEntry { position, subject: subject.to_owned(), why })
            }
            Err(why) => Found::Unknown(format!("position {position}: {why}")),
        }
    }

    /// Folds an entry; none: the journal holds no entry there. Answers what it changed.
    pub(crate) fn fold(&mut self, position: Position, entry: Option<&Entry>) -> Vec<Change> {
        match entry {
            Some(entry) => self.world.fold(position, entry),
            None => self.world.fold(position, &reader::nothing()),
        }
    }

    /// The World as it is now, for whoever answers queries.
    pub(crate) fn picture(&mut self) -> Picture {
        let here = self.world.position();
        let known = self.picture.take().filter(|picture| picture.position() == here);
        let picture = known.unwrap_or_else(|| self.world.picture());
        self.picture = Some(picture.clone());
        picture
    }
}
