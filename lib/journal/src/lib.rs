//! The journal: what happened. Durable, ordered, never edited, the only truth.
//!
//! An entry is bytes on a subject at a position. Whoever appends says where the subject's last entry stands; if
//! something else stands there, nothing is written. Positions have no gap.
//!
//! | | durable | for |
//! |---|---|---|
//! | [`Memory`] | no | tests, simulation |
//! | [`Sqlite`] | every entry is synced before it is acknowledged | one machine without a server |
//! | [`JetStream`] | as the server is configured; what could lose history is refused | a cluster |

pub mod examine;
mod facts;
mod jetstream;
mod jetstream_follower;
mod jetstream_import;
mod jetstream_read;
pub mod limits;
mod memory;
pub mod migrate;
pub mod monitor;
mod sqlite;
mod sqlite_writer;
mod stream;

use std::fmt;

use bytes::Bytes;
use schemas::checksum::crc64;
use schemas::names::EntryId;
use schemas::{Position, Subject};

pub use facts::{Facts, Replica};
pub use jetstream::JetStream;
pub use jetstream_read::entry_of_answer;
pub use memory::Memory;
pub use sqlite::{FILE, Sqlite};
pub use stream::{STREAM, StreamSettings, durability, version_problem};

type Source = Box<dyn std::error::Error + Send + Sync>;

/// The journal. Clones are the same journal.
#[derive(Clone, Debug)]
pub enum Journal {
    /// In memory: forgets everything with the process.
    Memory(Memory),
    /// An embedded database in a data folder.
    Sqlite(Sqlite),
    /// A stream of a NATS server.
    JetStream(JetStream),
}

/// An entry to be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// The subject.
    pub subject: Subject,
    /// The position of the subject's last entry; 0 if it must have none.
    pub expected: Position,
    /// The entry's id. The same id is the same entry: appending it twice is appending it once.
    pub entry: EntryId,
    /// The entry, at most [`schemas::limits::ENTRY_BYTES`].
    pub bytes: Bytes,
}

/// An entry as the journal holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Where it stands.
    pub position: Position,
    /// Its subject as text. It is a [`Subject`] unless something else than Muster wrote it.
    pub subject: String,
    /// Its id. None if something else than Muster wrote it.
    pub entry: Option<EntryId>,
    /// The entry.
    pub bytes: Bytes,
}

impl Recorded {
    /// Returns a checksum of what stands at the position: it tells one history of a log from another, which a position alone
    /// doesn't.
    #[must_use]
    pub fn checksum(&self) -> u64 {
        crc64(&[&self.position.0.to_le_bytes(), self.subject.as_bytes(), &self.bytes])
    }
}

/// Why an entry was not, or may not have been, appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Something else follows the expected position. The entry is definitely not stored: decide again.
    #[error("another entry follows the expected position")]
    Conflict,
    /// The entry may or may not be stored. Read the subject's last entry, and if it isn't this one append the
    /// **same** entry again: that answers its position if it was stored after all.
    #[error("unknown whether the entry was stored")]
    Unknown(#[source] JournalError),
    /// The journal did not store it in this attempt, for a reason that may pass: its disk or a limit is full, for example.
    /// An earlier attempt with another outcome may still be stored: read the subject's last entry to be sure.
    #[error("the journal stored nothing: {0}")]
    NotStored(String),
    /// The journal will never take it: too large, no permission, a stream that is configured otherwise.
    #[error("the journal refuses the entry: {0}")]
    Refused(String),
}

/// Why the journal couldn't be read, split by what the caller does about it.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It can't be reached or didn't answer. Try again later.
    #[error("the journal is unavailable: {what}")]
    Unavailable {
        /// What was tried.
        what: String,
        /// What went wrong.
        #[source]
        source: Option<Source>,
    },
    /// The stream does not exist, and the caller may not create it.
    #[error("the stream {} does not exist", stream::STREAM)]
    Absent,
    /// It could lose or rewrite history, or isn't ours. A person has to look: stop.
    #[error("the journal is refused: {0}")]
    Refused(String),
    /// History is missing, or is another history. A person has to look: stop.
    #[error("the journal is damaged: {0}")]
    Damaged(String),
    /// [`Journal::close`] was called.
    #[error("the journal is closed")]
    Closed,
}

/// Why entries of another journal were not written, or not all of them: those before the one that failed are there.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// They don't follow what the journal holds.
    #[error("position {first} doesn't follow position {end}, where the journal ends")]
    NotNext {
        /// Where the journal ends, or the entry before it stands.
        end: Position,
        /// Where the entry was to stand.
        first: Position,
    },
    /// The journal will never take one of them.
    #[error("the journal refuses position {position}: {why}")]
    Refused {
        /// Which.
        position: Position,
        /// Why.
        why: String,
    },
    /// The journal can't be written, or doesn't answer.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl JournalError {
    fn unavailable(what: impl Into<String>, source: impl Into<Source>) -> Self {
        Self::Unavailable { what: what.into(), source: Some(source.into()) }
    }
}

/// What an acknowledgement is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Every entry is on disk before it is acknowledged: it survives a power cut.
    Synced,
    /// Nobody could be asked, or a power cut may cost the last entries; for the reason given.
    Unverified(String),
    /// Nothing survives the process.
    Volatile,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Synced => f.write_str("synced"),
            Self::Unverified(why) => write!(f, "unverified: {why}"),
            Self::Volatile => f.write_str("volatile"),
        }
    }
}

/// Reads the journal from a position on: see [`Journal::follow`].
#[derive(Debug)]
pub struct Follower(Kind);

#[derive(Debug)]
enum Kind {
    Memory(memory::Follower),
    Sqlite(sqlite::Follower),
    JetStream(Box<jetstream::Follower>),
}

impl Journal {
    /// Appends an entry, if its subject's last entry stands where it is expected, and answers its position.
    ///
    /// An entry that was stored before (the same id, after the same expected position) answers its position again, so
    /// an append whose outcome is unknown is simply repeated.
    ///
    /// # Errors
    /// See [`AppendError`]: conflict, unknown, refused.
    pub async fn append(&self, append: Append) -> Result<Position, AppendError> {
        if append.bytes.len() > schemas::limits::ENTRY_BYTES {
            return Err(AppendError::Refused(format!(
                "{} bytes are more than the {} of an entry",
                append.bytes.len(),
                schemas::limits::ENTRY_BYTES
            )));
        }
        match self {
            Self::Memory(memory) => memory.append(append),
            Self::Sqlite(sqlite) => sqlite.append(append).await,
            Self::JetStream(stream) => stream.append(append).await,
        }
    }

    /// Writes entries of another journal as they are, at exactly their positions, behind the end of this one. What is no
    /// entry, or has no id, is written like any other message. Whoever imports is alone: nobody else may append, and where
    /// somebody did, it ends.
    ///
    /// # Errors
    /// See [`ImportError`]; [`JournalError::Damaged`] names the position that somebody else has written.
    pub async fn import(&self, entries: Vec<Recorded>) -> Result<(), ImportError> {
        let Some(first) = entries.first() else { return Ok(()) };
        let mut end = Position(first.position.0.saturating_sub(1));
        for entry in &entries {
            if entry.position.0 != end.0 + 1 {
                return Err(ImportError::NotNext { end, first: entry.position });
            }
            end = entry.position;
        }
        match self {
            Self::Memory(memory) => memory.import(entries),
            Self::Sqlite(sqlite) => sqlite.import(entries).await,
            Self::JetStream(stream) => jetstream_import::import(stream, entries).await,
        }
    }

    /// Follows the journal: every entry after `after`, in order and without a gap, then every new one as it comes.
    #[must_use]
    pub fn follow(&self, after: Position) -> Follower {
        Follower(match self {
            Self::Memory(memory) => Kind::Memory(memory.follow(after)),
            Self::Sqlite(sqlite) => Kind::Sqlite(sqlite.follow(after)),
            Self::JetStream(stream) => Kind::JetStream(Box::new(stream.follow(after))),
        })
    }

    /// The last entry of a subject: whatever was acknowledged before this was called is seen.
    ///
    /// # Errors
    /// The journal can't be read.
    pub async fn last(&self, subject: &Subject) -> Result<Option<Recorded>, JournalError> {
        match self {
            Self::Memory(memory) => memory.last(subject),
            Self::Sqlite(sqlite) => sqlite.last(subject).await,
            Self::JetStream(stream) => stream.last(&subject.to_string()).await,
        }
    }

    /// Entries after `after`, of one subject or of all: at most `limit`, and no more once they hold
    /// [`schemas::limits::PAGE_BYTES`]. Nothing is skipped, but the newest entries may still be missing (a replica
    /// may answer): an empty answer says nothing about [`Journal::end`].
    ///
    /// # Errors
    /// The journal can't be read.
    pub async fn read(
        &self,
        after: Position,
        subject: Option<&Subject>,
        limit: usize,
    ) -> Result<Vec<Recorded>, JournalError> {
        match self {
            Self::Memory(memory) => memory.read(after, subject, limit),
            Self::Sqlite(sqlite) => sqlite.read(after, subject, limit).await,
            Self::JetStream(stream) => stream.read(after, subject, limit).await,
        }
    }

    /// The first of a subject's entries in which something is found, read page by page; none: nothing is. The newest may still be
    /// missing, as of [`Journal::read`].
    ///
    /// # Errors
    /// The journal can't be read.
    pub async fn find<T>(
        &self,
        subject: &Subject,
        mut found: impl FnMut(&Recorded) -> Option<T>,
    ) -> Result<Option<T>, JournalError> {
        let mut after = Position(0);
        loop {
            let page = self.read(after, Some(subject), limits::FIND_ENTRIES).await?;
            let Some(last) = page.last() else { return Ok(None) };
            after = last.position;
            if let Some(found) = page.iter().find_map(&mut found) {
                return Ok(Some(found));
            }
        }
    }

    /// Reads the first, the last and some entries in between, as the stream's leader has them: a server may hold entries that
    /// it cannot read, and answers then as if there were none.
    ///
    /// # Errors
    /// One of them can't be read: the error has the reason.
    pub async fn check_readable(&self) -> Result<(), JournalError> {
        let end = self.end().await?;
        for position in sampled(Position(1), end) {
            self.check_position(position).await?;
        }
        Ok(())
    }

    /// Reads the entry at a position. An entry that was deleted is no error.
    ///
    /// # Errors
    /// The journal holds it and it can't be read: the error has the reason.
    pub async fn check_position(&self, position: Position) -> Result<(), JournalError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Sqlite(sqlite) => {
                sqlite.read(Position(position.0.saturating_sub(1)), None, 1).await.map(drop)
            }
            Self::JetStream(stream) => match stream.why_unreadable(position).await? {
                None => Ok(()),
                Some(what) => Err(JournalError::Unavailable { what, source: None }),
            },
        }
    }

    /// Returns why followers cannot read the journal at present; `None` while they can.
    #[must_use]
    pub fn unreadable(&self) -> Option<String> {
        match self {
            // Their followers end with an error.
            Self::Memory(_) | Self::Sqlite(_) => None,
            Self::JetStream(stream) => stream.unreadable(),
        }
    }

    /// Where the journal's last entry stands; 0 if it has none.
    ///
    /// # Errors
    /// The journal can't be read.
    pub async fn end(&self) -> Result<Position, JournalError> {
        match self {
            Self::Memory(memory) => memory.end(),
            Self::Sqlite(sqlite) => sqlite.end(),
            Self::JetStream(stream) => stream.end().await,
        }
    }

    /// The time that the clock of the server shows, as it writes it (RFC 3339). `None` if the journal has no server, or the server
    /// does not send its time.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn server_time(&self) -> Result<Option<String>, JournalError> {
        match self {
            Self::Memory(_) | Self::Sqlite(_) => Ok(None),
            Self::JetStream(stream) => stream.server_time().await,
        }
    }

    /// Asks the journal's leader for the state of its storage. `None` for a journal that has no server.
    ///
    /// # Errors
    /// [`JournalError::Absent`] if the stream does not exist; [`JournalError::Unavailable`] if the server does not answer.
    pub async fn facts(&self) -> Result<Option<Facts>, JournalError> {
        match self {
            Self::Memory(_) | Self::Sqlite(_) => Ok(None),
            Self::JetStream(stream) => stream.facts().await.map(Some),
        }
    }

    /// Asks the monitoring addresses of the servers why the journal does not take entries. Returns the first write error that
    /// a server reports; `None` if no server reports one, or none has a monitoring address.
    pub async fn write_error(&self) -> Option<String> {
        match self {
            Self::Memory(_) | Self::Sqlite(_) => None,
            Self::JetStream(stream) => facts::write_error(stream.monitoring()).await,
        }
    }

    /// The same journal over another connection, so that what is read there stands in nobody's way. A journal without a
    /// connection is the same as it is.
    ///
    /// # Errors
    /// The stream can't be named.
    pub async fn over(&self, connection: bus::nats::Connection) -> Result<Self, JournalError> {
        match self {
            Self::Memory(_) | Self::Sqlite(_) => Ok(self.clone()),
            Self::JetStream(stream) => Ok(Self::JetStream(stream.over(connection).await?)),
        }
    }

    /// What an acknowledgement of this journal is worth.
    #[must_use]
    pub fn durability(&self) -> Durability {
        match self {
            Self::Memory(_) => Durability::Volatile,
            Self::Sqlite(_) => Durability::Synced,
            Self::JetStream(stream) => stream.durability(),
        }
    }

    /// Closes the journal for every clone of it: what was queued is finished, and followers end with
    /// [`JournalError::Closed`].
    pub async fn close(self) {
        match self {
            Self::Memory(memory) => memory.close(),
            Self::Sqlite(sqlite) => sqlite.close().await,
            Self::JetStream(stream) => stream.close(),
        }
    }
}

impl Follower {
    /// The next entries, at least one and at most `max`; waits for one if there is none yet. A lost connection is made
    /// again from the last entry that was delivered. Cancel-safe: an entry is delivered by the call that returns it.
    ///
    /// # Errors
    /// Only what waiting doesn't mend: [`JournalError::Closed`], [`JournalError::Damaged`],
    /// [`JournalError::Refused`]; an embedded journal whose file can't be read is [`JournalError::Unavailable`].
    pub async fn next_batch(&mut self, max: usize) -> Result<Vec<Recorded>, JournalError> {
        let max = max.max(1);
        match &mut self.0 {
            Kind::Memory(follower) => follower.next_batch(max).await,
            Kind::Sqlite(follower) => follower.next_batch(max).await,
            Kind::JetStream(follower) => follower.next_batch(max).await,
        }
    }

    /// The position of the last entry that was delivered, or where following started.
    #[must_use]
    pub const fn position(&self) -> Position {
        match &self.0 {
            Kind::Memory(follower) => follower.after,
            Kind::Sqlite(follower) => follower.after,
            Kind::JetStream(follower) => follower.after,
        }
    }
}

/// Takes entries until there are `limit`, or until they hold a page's bytes. At least one, if there is one.
struct Page {
    limit: usize,
    bytes: usize,
    entries: Vec<Recorded>,
}

impl Page {
    const fn new(limit: usize) -> Self {
        Self { limit, bytes: 0, entries: Vec::new() }
    }

    const fn is_full(&self) -> bool {
        self.entries.len() >= self.limit || self.bytes >= schemas::limits::PAGE_BYTES
    }

    fn take(&mut self, entry: Recorded) {
        self.bytes += entry.bytes.len();
        self.entries.push(entry);
    }
}

/// Returns the first, the last and at most [`limits::SAMPLES`] evenly spaced positions in between.
fn sampled(first: Position, last: Position) -> Vec<Position> {
    let span = last.0.saturating_sub(first.0);
    let steps = span.min(limits::SAMPLES + 1);
    let at = |step: u64| match steps {
        0 => first,
        // Without overflow, however large the positions are.
        steps => Position(first.0 + span / steps * step + span % steps * step / steps),
    };
    if last < first { Vec::new() } else { (0..=steps).map(at).collect() }
}

/// Refuses a position that the journal doesn't reach: it was taken of another journal, or this one lost entries.
fn check_not_beyond(after: Position, end: Position) -> Result<(), JournalError> {
    if after <= end {
        return Ok(());
    }
    Err(JournalError::Damaged(format!(
        "it ends at position {end} and position {after} was asked for: entries are lost, or this is another journal"
    )))
}

/// Refuses a gap: answers the position of the last entry, which each of the entries before it precedes by one.
fn check_unbroken(after: Position, entries: &[Recorded]) -> Result<Position, JournalError> {
    entries.iter().try_fold(after, |after, entry| {
        if entry.position.0 == after.0 + 1 {
            return Ok(entry.position);
        }
        Err(JournalError::Damaged(format!(
            "position {} follows position {after}: entries are lost",
            entry.position
        )))
    })
}

#[cfg(test)]
mod tests {
    use super::{Position, sampled};

    #[test]
    fn sampled_positions_include_the_first_and_the_last() {
        let of =
            |first, last| sampled(Position(first), Position(last)).iter().map(|at| at.0).collect::<Vec<_>>();
        assert_eq!(of(1, 0), [0_u64; 0]);
        assert_eq!(of(1, 1), [1]);
        assert_eq!(of(1, 3), [1, 2, 3]);
        assert_eq!(of(5, 95), [5, 15, 25, 35, 45, 55, 65, 75, 85, 95]);
        let wide = of(1, u64::MAX);
        assert_eq!((wide.len(), wide[0], wide[9]), (10, 1, u64::MAX));
    }
}
