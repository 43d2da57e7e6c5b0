//! The journal: a durable, ordered, append-only log of everything that happened. It is the single source of
//! truth.
//!
//! An entry is a sequence of bytes on a subject at a position. A writer passes the expected position of the
//! subject's last entry. If the last entry is at a different position, the append fails and nothing is
//! written. Positions have no gaps.
//!
//! | | durability | purpose |
//! |---|---|---|
//! | [`Memory`] | none | tests, simulation |
//! | [`Sqlite`] | every entry synced before it is acknowledged | a single machine without a NATS server |
//! | [`JetStream`] | as the server is configured; configurations that could lose history are refused | a cluster |

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
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "sqlite")]
mod sqlite_writer;
mod stream;

use std::fmt;

use bytes::Bytes;
use schemas::checksum::crc64;
use schemas::names::EntryId;
use schemas::{Position, Subject};

pub use facts::{Facts, Replica};
pub use jetstream::JetStream;
pub use jetstream_read::decode_page_entry;
pub use memory::Memory;
#[cfg(feature = "sqlite")]
pub use sqlite::{FILE, Sqlite};
pub use stream::{STREAM, StreamSettings, durability, version_problem};

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Handle to the journal. Clones share the same journal.
#[derive(Clone, Debug)]
pub enum Journal {
    /// In memory: all entries are lost when the process exits.
    Memory(Memory),
    /// An embedded database in a data folder.
    #[cfg(feature = "sqlite")]
    Sqlite(Sqlite),
    /// A stream on a NATS server.
    JetStream(JetStream),
}

/// An entry to append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    pub subject: Subject,
    /// Position of the subject's last entry; 0 if the subject must be empty.
    pub expected: Position,
    /// Id of the entry. Appending the same id twice stores one entry.
    pub entry: EntryId,
    /// Body of the entry, at most [`schemas::limits::ENTRY_BYTES`].
    pub bytes: Bytes,
}

/// An entry as stored in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    pub position: Position,
    /// Subject as text. It is a [`Subject`] unless another program wrote the message.
    pub subject: String,
    /// Id of the entry; `None` if another program wrote the message.
    pub entry: Option<EntryId>,
    /// Body of the entry.
    pub bytes: Bytes,
}

impl StoredEntry {
    /// Returns a checksum of position, subject and bytes.
    ///
    /// Different histories of a log may have different entries at the same position. The checksums of these
    /// entries differ.
    #[must_use]
    pub fn checksum(&self) -> u64 {
        crc64(&[&self.position.0.to_le_bytes(), self.subject.as_bytes(), &self.bytes])
    }
}

/// Error of an append. It tells the caller whether the entry may still be stored.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Another entry follows the expected position. The entry is definitely not stored: decide again.
    #[error("another entry follows the expected position")]
    Conflict,
    /// The entry may or may not be stored.
    ///
    /// Read the subject's last entry. If the last entry is a different one, append the **same** entry again.
    /// The call returns the position of the entry if it was stored after all.
    #[error("unknown whether the entry was stored")]
    Unknown(#[source] JournalError),
    /// The journal did not store the entry in this attempt. The reason may pass: for example, the disk of the
    /// server or a limit of the stream is full.
    ///
    /// An earlier attempt with an unknown outcome may still be stored. Read the subject's last entry to find
    /// out.
    #[error("the journal stored nothing: {0}")]
    NotStored(String),
    /// The journal will never accept the entry: the entry is too large, the permission is missing, or the
    /// stream is configured differently.
    #[error("the journal refuses the entry: {0}")]
    Refused(String),
}

/// Error of a read. Each variant needs a different reaction of the caller.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The journal cannot be reached or did not respond. Try again later.
    #[error("the journal is unavailable: {what}")]
    Unavailable {
        /// Operation that failed.
        what: String,
        /// Underlying error; `None` if `what` already describes it.
        #[source]
        source: Option<Source>,
    },
    /// The stream does not exist, and the caller may not create it.
    #[error("the stream {} does not exist", stream::STREAM)]
    Absent,
    /// The stream could lose or rewrite history, or does not belong to Muster. The caller must stop: an
    /// operator must act.
    #[error("the journal is refused: {0}")]
    Refused(String),
    /// A part of the history is missing, or the journal holds a different history. The caller must stop: an
    /// operator must act.
    #[error("the journal is damaged: {0}")]
    Damaged(String),
    /// [`Journal::close`] was called.
    #[error("the journal is closed")]
    Closed,
}

/// Error of an import. The entries before the failed entry may be stored.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The entries do not directly follow the end of the journal.
    #[error("position {first} does not follow the end of the journal, position {end}")]
    NotNext {
        /// End of the journal, or the position of the entry before `first`.
        end: Position,
        /// Position of the entry that leaves a gap or goes back.
        first: Position,
    },
    /// The journal will never accept one of the entries.
    #[error("the journal refuses position {position}: {why}")]
    Refused {
        /// Position of the refused entry.
        position: Position,
        why: String,
    },
    /// The journal cannot be written, or does not respond.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl JournalError {
    fn unavailable(what: impl Into<String>, source: impl Into<Source>) -> Self {
        Self::Unavailable { what: what.into(), source: Some(source.into()) }
    }
}

/// Durability of an acknowledged entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Every entry is on disk before it is acknowledged, so it survives a power cut.
    Synced,
    /// A power cut may lose the last entries, or the servers' configuration could not be checked. The text is
    /// the reason.
    Unverified(String),
    /// Entries are lost when the process exits.
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

/// Reader of the entries after a position, created by [`Journal::follow`].
#[derive(Debug)]
pub struct Follower(Kind);

#[derive(Debug)]
enum Kind {
    Memory(memory::Follower),
    #[cfg(feature = "sqlite")]
    Sqlite(sqlite::Follower),
    JetStream(Box<jetstream::Follower>),
}

impl Journal {
    /// Appends an entry if its subject's last entry is at the expected position, and returns the new
    /// position.
    ///
    /// The call is idempotent. If the same entry (same id, same expected position) is already stored, the
    /// call returns the position of the stored entry. Repeat an append whose outcome is unknown.
    ///
    /// # Errors
    /// See [`AppendError`].
    pub async fn append(&self, append: Append) -> Result<Position, AppendError> {
        if append.bytes.len() > schemas::limits::ENTRY_BYTES {
            return Err(AppendError::Refused(format!(
                "{} bytes are more than the maximum of {} for an entry",
                append.bytes.len(),
                schemas::limits::ENTRY_BYTES
            )));
        }
        match self {
            Self::Memory(memory) => memory.append(append),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(sqlite) => sqlite.append(append).await,
            Self::JetStream(stream) => stream.append(append).await,
        }
    }

    /// Writes entries of another journal unchanged, at exactly their positions, after the end of this
    /// journal. Messages that other programs wrote are also written unchanged, even without an id.
    ///
    /// The caller must be the only writer: if another writer appends, the import fails.
    ///
    /// # Errors
    /// See [`ImportError`]. [`JournalError::Damaged`] names the position that another writer has written.
    pub async fn import(&self, entries: Vec<StoredEntry>) -> Result<(), ImportError> {
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
            #[cfg(feature = "sqlite")]
            Self::Sqlite(sqlite) => sqlite.import(entries).await,
            Self::JetStream(stream) => jetstream_import::import(stream, entries).await,
        }
    }

    /// Follows the journal. The follower returns every entry after `after`, in order and without gaps, and
    /// waits for new entries at the end.
    #[must_use]
    pub fn follow(&self, after: Position) -> Follower {
        Follower(match self {
            Self::Memory(memory) => Kind::Memory(memory.follow(after)),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(sqlite) => Kind::Sqlite(sqlite.follow(after)),
            Self::JetStream(stream) => Kind::JetStream(Box::new(stream.follow(after))),
        })
    }

    /// Returns the last entry of a subject. The result includes every entry that was acknowledged before the
    /// call.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub async fn last(&self, subject: &Subject) -> Result<Option<StoredEntry>, JournalError> {
        match self {
            Self::Memory(memory) => memory.last(subject),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(sqlite) => sqlite.last(subject).await,
            Self::JetStream(stream) => stream.last(&subject.to_string()).await,
        }
    }

    /// Returns entries after `after`, of one subject or of all subjects. A page holds at most `limit`
    /// entries, and ends when it reaches [`schemas::limits::PAGE_BYTES`].
    ///
    /// The page has no gaps, but it may end before the newest entries, because the replica that answers may
    /// not have them yet. An empty page does not mean that `after` is [`Journal::end`].
    ///
    /// # Errors
    /// The journal cannot be read.
    pub async fn read(
        &self,
        after: Position,
        subject: Option<&Subject>,
        limit: usize,
    ) -> Result<Vec<StoredEntry>, JournalError> {
        match self {
            Self::Memory(memory) => memory.read(after, subject, limit),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(sqlite) => sqlite.read(after, subject, limit).await,
            Self::JetStream(stream) => stream.read(after, subject, limit).await,
        }
    }

    /// Applies `found` to a subject's entries, page by page, and returns its first result. `None` if there is
    /// no match.
    ///
    /// The newest entries may be missing, as in [`Journal::read`].
    ///
    /// # Errors
    /// The journal cannot be read.
    pub async fn find<T>(
        &self,
        subject: &Subject,
        mut found: impl FnMut(&StoredEntry) -> Option<T>,
    ) -> Result<Option<T>, JournalError> {
        let mut after = Position(0);
        loop {
            let page = self.read(after, Some(subject), limits::FIND_PAGE_ENTRIES).await?;
            let Some(last) = page.last() else { return Ok(None) };
            after = last.position;
            if let Some(found) = page.iter().find_map(&mut found) {
                return Ok(Some(found));
            }
        }
    }

    /// Checks that entries can be read: reads the first entry, the last one and some in between from the
    /// stream's leader. A server that holds an entry but cannot read it responds as if the entry did not
    /// exist.
    ///
    /// # Errors
    /// Returns the reason if one of these entries cannot be read.
    pub async fn check_readable(&self) -> Result<(), JournalError> {
        let end = self.end().await?;
        for position in sample_positions(Position(1), end) {
            self.check_position(position).await?;
        }
        Ok(())
    }

    /// Reads the entry at a position. A deleted entry is not an error.
    ///
    /// # Errors
    /// Returns the reason if the journal holds the entry but it cannot be read.
    pub async fn check_position(&self, position: Position) -> Result<(), JournalError> {
        match self {
            Self::Memory(_) => Ok(()),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(sqlite) => {
                sqlite.read(Position(position.0.saturating_sub(1)), None, 1).await.map(drop)
            }
            Self::JetStream(stream) => match stream.unreadable_reason_at(position).await? {
                None => Ok(()),
                Some(what) => Err(JournalError::Unavailable { what, source: None }),
            },
        }
    }

    /// Returns the reason that followers cannot read the journal at present; `None` while they can read it.
    #[must_use]
    pub fn unreadable_reason(&self) -> Option<String> {
        match self {
            // Followers of these journals return an error instead.
            Self::Memory(_) => None,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => None,
            Self::JetStream(stream) => stream.unreadable_reason(),
        }
    }

    /// Returns the position of the journal's last entry; 0 if the journal is empty.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub async fn end(&self) -> Result<Position, JournalError> {
        match self {
            Self::Memory(memory) => memory.end(),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(sqlite) => sqlite.end(),
            Self::JetStream(stream) => stream.end().await,
        }
    }

    /// Returns the time of the server's clock in the server's own format (RFC 3339). `None` if the journal
    /// has no server, or the server does not send its time.
    ///
    /// # Errors
    /// The server does not respond.
    pub async fn server_time(&self) -> Result<Option<String>, JournalError> {
        match self {
            Self::Memory(_) => Ok(None),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => Ok(None),
            Self::JetStream(stream) => stream.server_time().await,
        }
    }

    /// Requests the state of the journal's storage from the stream's leader. Returns `None` if the journal
    /// has no server.
    ///
    /// # Errors
    /// [`JournalError::Absent`] if the stream does not exist; [`JournalError::Unavailable`] if the server
    /// does not respond.
    pub async fn facts(&self) -> Result<Option<Facts>, JournalError> {
        match self {
            Self::Memory(_) => Ok(None),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => Ok(None),
            Self::JetStream(stream) => stream.facts().await.map(Some),
        }
    }

    /// Requests the write errors from the servers' monitoring addresses, to explain why the journal rejects
    /// entries.
    ///
    /// Returns the first write error that a server reports; `None` if no server reports one, or if no
    /// monitoring address is configured.
    pub async fn write_error(&self) -> Option<String> {
        match self {
            Self::Memory(_) => None,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => None,
            Self::JetStream(stream) => facts::write_error(stream.monitoring()).await,
        }
    }

    /// Returns the same journal over another connection, so that bulk reads do not delay other requests. A
    /// journal without a connection is returned unchanged.
    ///
    /// # Errors
    /// The stream cannot be opened over the connection.
    pub async fn with_connection(&self, connection: bus::nats::Connection) -> Result<Self, JournalError> {
        match self {
            Self::Memory(_) => Ok(self.clone()),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => Ok(self.clone()),
            Self::JetStream(stream) => Ok(Self::JetStream(stream.with_connection(connection).await?)),
        }
    }

    /// Returns the durability of an entry that this journal has acknowledged.
    #[must_use]
    pub fn durability(&self) -> Durability {
        match self {
            Self::Memory(_) => Durability::Volatile,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => Durability::Synced,
            Self::JetStream(stream) => stream.durability(),
        }
    }

    /// Closes the journal for all clones of this handle. Queued appends are finished, and followers end with
    /// [`JournalError::Closed`].
    pub async fn close(self) {
        match self {
            Self::Memory(memory) => memory.close(),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(sqlite) => sqlite.close().await,
            Self::JetStream(stream) => stream.close(),
        }
    }
}

impl Follower {
    /// Returns the next entries, at least one and at most `max`. Waits while no entry is available.
    ///
    /// After a lost connection the follower resumes after the last delivered entry. This method is cancel
    /// safe: an entry counts as delivered only when a call has returned it.
    ///
    /// # Errors
    /// Only errors that a retry does not fix: [`JournalError::Closed`], [`JournalError::Damaged`],
    /// [`JournalError::Refused`]. An embedded journal whose file cannot be read returns
    /// [`JournalError::Unavailable`].
    pub async fn next_batch(&mut self, max: usize) -> Result<Vec<StoredEntry>, JournalError> {
        let max = max.max(1);
        match &mut self.0 {
            Kind::Memory(follower) => follower.next_batch(max).await,
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(follower) => follower.next_batch(max).await,
            Kind::JetStream(follower) => follower.next_batch(max).await,
        }
    }

    /// Returns the position of the last delivered entry, or the start position if no entry was delivered.
    #[must_use]
    pub const fn position(&self) -> Position {
        match &self.0 {
            Kind::Memory(follower) => follower.after,
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(follower) => follower.after,
            Kind::JetStream(follower) => follower.after,
        }
    }
}

/// Collects entries until the page has `limit` entries or reaches the maximum size of a page. The first entry
/// is always accepted.
struct Page {
    limit: usize,
    bytes: usize,
    entries: Vec<StoredEntry>,
}

impl Page {
    const fn new(limit: usize) -> Self {
        Self { limit, bytes: 0, entries: Vec::new() }
    }

    const fn is_full(&self) -> bool {
        self.entries.len() >= self.limit || self.bytes >= schemas::limits::PAGE_BYTES
    }

    fn push(&mut self, entry: StoredEntry) {
        self.bytes += entry.bytes.len();
        self.entries.push(entry);
    }
}

/// Returns the first and the last position, and at most [`limits::SAMPLES`] evenly spaced positions in
/// between.
fn sample_positions(first: Position, last: Position) -> Vec<Position> {
    let span = last.0.saturating_sub(first.0);
    let steps = span.min(limits::SAMPLES + 1);
    let at = |step: u64| match steps {
        0 => first,
        // This form of the product does not overflow at large positions.
        steps => Position(first.0 + span / steps * step + span % steps * step / steps),
    };
    if last < first { Vec::new() } else { (0..=steps).map(at).collect() }
}

/// Rejects a position beyond the end of the journal. Such a position belongs to another journal, or this
/// journal lost entries.
fn check_not_beyond(after: Position, end: Position) -> Result<(), JournalError> {
    if after <= end {
        return Ok(());
    }
    Err(JournalError::Damaged(format!(
        "position {after} is beyond its end, position {end}: entries are lost, or this is another journal"
    )))
}

/// Rejects gaps: each entry must directly follow the previous entry. Returns the position of the last entry.
fn check_unbroken(after: Position, entries: &[StoredEntry]) -> Result<Position, JournalError> {
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

/// Formats an error and its causes in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::{Position, sample_positions};

    #[test]
    fn sample_positions_include_first_and_last() {
        let of = |first, last| {
            sample_positions(Position(first), Position(last)).iter().map(|at| at.0).collect::<Vec<_>>()
        };
        assert_eq!(of(1, 0), [0_u64; 0]);
        assert_eq!(of(1, 1), [1]);
        assert_eq!(of(1, 3), [1, 2, 3]);
        assert_eq!(of(5, 95), [5, 15, 25, 35, 45, 55, 65, 75, 85, 95]);
        let wide = of(1, u64::MAX);
        assert_eq!((wide.len(), wide[0], wide[9]), (10, 1, u64::MAX));
    }
}
