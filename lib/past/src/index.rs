//! Aggregate index. For each stretch (a fixed number of log positions), a file contains the positions of each
//! aggregate. The index only saves time. A file may contain too many positions of an aggregate but never too
//! few. The reader of an entry checks the aggregate again.
//!
//! ```text
//! magic 8 | cluster id 16 | stretch 8 | sum 8 | checksum 8 | for each position of each aggregate: hash 8, offset 2
//! ```
//! Numbers are little-endian, and the pairs are sorted. The sum is the checksum of the last message of the
//! stretch. The sum distinguishes different histories. Stretches are consecutive from position 1 on, with
//! [`crate::limits::STRETCH_POSITIONS`] positions each.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use journal::StoredEntry;
use schemas::Position;
use schemas::checksum::crc64;
use schemas::names::ClusterId;
use schemas::stored;
use schemas::subject::fnv_1a;

use crate::Error;
use crate::snapshot_file::read_number;
use crate::snapshot_index::{create_private_folder, folder_error, write_atomically};

const MAGIC: [u8; 8] = *b"MUSINDX1";
/// Offsets of the stretch, the sum and the checksum, and the length of the header.
const STRETCH_OFFSET: usize = 24;
const LAST_SUM_OFFSET: usize = 32;
const CHECKSUM_OFFSET: usize = 40;
const HEADER_BYTES: usize = 48;
/// Length of a pair.
const PAIR_BYTES: usize = 10;

/// Aggregate index of one cluster's log.
#[derive(Debug)]
pub(crate) struct AggregateIndex {
    folder: PathBuf,
    cluster: ClusterId,
    /// Positions per stretch: [`crate::limits::STRETCH_POSITIONS`], except in tests.
    stretch: u64,
    /// Number of stretches, from the first on, that have a file of this history.
    verified_stretches: AtomicU64,
}

/// Pairs of a stretch while it is read.
#[derive(Debug, Default)]
pub(crate) struct StretchPairs {
    pairs: Vec<(u64, u16)>,
    /// Checksum of the last message.
    sum: u64,
}

impl StretchPairs {
    /// Adds the next entries. The stretch starts after the position `begin`.
    pub(crate) fn add(&mut self, begin: Position, recorded: &[StoredEntry]) {
        for one in recorded {
            let offset = u16::try_from(one.position.0 - 1 - begin.0)
                .expect("an offset within a stretch has two bytes");
            let aggregates = stored::aggregates(&one.bytes);
            self.pairs.extend(aggregates.iter().map(|of| (fnv_1a(&of.to_string()), offset)));
            self.sum = one.checksum();
        }
    }

    /// Returns the content of the file of the stretch.
    fn into_bytes(mut self, cluster: ClusterId, stretch: u64) -> Vec<u8> {
        self.pairs.sort_unstable();
        self.pairs.dedup();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + PAIR_BYTES * self.pairs.len());
        bytes.extend(MAGIC);
        bytes.extend(cluster.0.as_u128().to_le_bytes());
        bytes.extend(stretch.to_le_bytes());
        bytes.extend(self.sum.to_le_bytes());
        bytes.extend([0; HEADER_BYTES - CHECKSUM_OFFSET]);
        for (hash, offset) in self.pairs {
            bytes.extend(hash.to_le_bytes());
            bytes.extend(offset.to_le_bytes());
        }
        let sum = file_checksum(&bytes);
        bytes[CHECKSUM_OFFSET..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
}

impl AggregateIndex {
    pub(crate) const fn new(folder: PathBuf, cluster: ClusterId, stretch: u64) -> Self {
        Self { folder, cluster, stretch, verified_stretches: AtomicU64::new(0) }
    }

    /// Returns the position up to which the index is complete.
    #[cfg(test)]
    fn end(&self) -> Position {
        self.start_of(self.verified_stretches.load(Ordering::Acquire))
    }

    /// Returns the position before the first position of a stretch.
    pub(crate) const fn start_of(&self, stretch: u64) -> Position {
        Position(stretch * self.stretch)
    }

    /// Returns the next stretch to index, if a log that ends at `end` contains the whole stretch.
    pub(crate) fn next_stretch(&self, end: Position) -> Option<u64> {
        let next = self.verified_stretches.load(Ordering::Acquire);
        (self.start_of(next + 1) <= end).then_some(next)
    }

    /// Returns the checksum of the last message of a stretch. `None` if the file is missing or invalid.
    pub(crate) fn stored_sum(&self, stretch: u64) -> Option<u64> {
        let bytes = fs::read(self.path(stretch)).ok()?;
        let head = bytes.first_chunk::<HEADER_BYTES>()?;
        let whole = (bytes.len() - HEADER_BYTES).is_multiple_of(PAIR_BYTES)
            && head.starts_with(&MAGIC)
            && head[8..STRETCH_OFFSET] == self.cluster.0.as_u128().to_le_bytes()
            && read_number(head, STRETCH_OFFSET) == stretch
            && read_number(head, CHECKSUM_OFFSET) == file_checksum(&bytes);
        whole.then(|| read_number(head, LAST_SUM_OFFSET))
    }

    /// Records that the stretch has a file of this history.
    pub(crate) fn mark_verified(&self, stretch: u64) {
        self.verified_stretches.store(stretch + 1, Ordering::Release);
    }

    /// Writes the file of a stretch.
    pub(crate) fn write(&self, stretch: u64, pairs: StretchPairs) -> Result<(), Error> {
        create_private_folder(&self.folder)?;
        write_atomically(&self.path(stretch), &pairs.into_bytes(self.cluster, stretch))
    }

    /// Returns at most `most` positions of an aggregate after a position, in order. Also returns the position
    /// up to which the result is complete.
    pub(crate) fn positions(
        &self,
        about: &str,
        after: Position,
        most: usize,
    ) -> Result<(Vec<Position>, Position), Error> {
        let (hash, mut found) = (fnv_1a(about), vec![]);
        // Other tasks may change this number at the same time.
        let believed = self.verified_stretches.load(Ordering::Acquire);
        for stretch in after.0 / self.stretch..believed {
            let path = self.path(stretch);
            let offsets = read_offsets(&path, hash).map_err(|error| {
                // The file is created again.
                self.verified_stretches.fetch_min(stretch, Ordering::AcqRel);
                folder_error(&path)(error)
            })?;
            let begin = self.start_of(stretch);
            let positions = offsets.iter().map(|offset| Position(begin.0 + u64::from(*offset) + 1));
            found.extend(positions.filter(|position| *position > after));
            if found.len() >= most {
                found.truncate(most);
                let whole = found.last().copied().unwrap_or(after);
                return Ok((found, whole));
            }
        }
        Ok((found, self.start_of(believed)))
    }

    fn path(&self, stretch: u64) -> PathBuf {
        self.folder.join(format!("{stretch:020}.index"))
    }
}

/// Returns the offsets of a hash in the file of a stretch.
fn read_offsets(path: &Path, hash: u64) -> io::Result<Vec<u16>> {
    let file = File::open(path)?;
    let pairs = (file.metadata()?.len().saturating_sub(HEADER_BYTES as u64)) / PAIR_BYTES as u64;
    let pair = |at: u64| -> io::Result<(u64, u16)> {
        let mut bytes = [0; PAIR_BYTES];
        file.read_exact_at(&mut bytes, HEADER_BYTES as u64 + at * PAIR_BYTES as u64)?;
        let [a, b, c, d, e, f, g, h, low, high] = bytes;
        Ok((u64::from_le_bytes([a, b, c, d, e, f, g, h]), u16::from_le_bytes([low, high])))
    };
    let (mut from, mut to) = (0, pairs);
    while from < to {
        let middle = from.midpoint(to);
        if pair(middle)?.0 < hash { from = middle + 1 } else { to = middle }
    }
    let mut offsets = vec![];
    for at in from..pairs {
        let (of, offset) = pair(at)?;
        if of != hash {
            break;
        }
        offsets.push(offset);
    }
    Ok(offsets)
}

/// Returns the checksum of a file, which is stored in its header.
fn file_checksum(bytes: &[u8]) -> u64 {
    crc64(&[&bytes[..CHECKSUM_OFFSET], &bytes[HEADER_BYTES..]])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use journal::{Append, Journal, Memory};
    use schemas::entry::{Aggregate, Event};
    use schemas::names::{EntryId, IdGenerator};
    use schemas::{Timestamp, cell, cluster};

    use super::*;
    use crate::Past;
    use crate::limits::MIN_SPACING;

    /// Returns a log with this many messages after the entry that founds the cluster. The messages are about
    /// three cells in turn, and some are damaged.
    async fn log(messages: u64, cluster: ClusterId, seed: u64) -> Journal {
        let (journal, mut ids) = (Journal::Memory(Memory::new()), IdGenerator::new(seed));
        let founded = cluster::Event::Founded { id: cluster, shards: 4, format: cluster::FORMAT };
        let mut all = vec![(Aggregate::Cluster, Event::Cluster(founded))];
        for number in 0..messages {
            let cell = fixtures::cell_id(&format!("c{}", number % 3));
            all.push((Aggregate::Cell(cell), Event::Cell(cell::Event::Cordoned {})));
        }
        for (at, (about, event)) in (1..).zip(all) {
            let subject = about.subject(4);
            let decision = fixtures::decision(ids.next(Timestamp(at)), Timestamp(at), about, vec![event]);
            let mut bytes = fixtures::entry(decision).encode();
            if at % 7 == 0 {
                bytes.truncate(20);
            }
            let expected = journal.last(&subject).await.unwrap().map_or(Position(0), |last| last.position);
            let entry = EntryId(ids.next(Timestamp(at)));
            journal.append(Append { subject, expected, entry, bytes: Bytes::from(bytes) }).await.unwrap();
        }
        journal
    }

    async fn index(past: &Past, journal: &Journal) -> Position {
        while past.index_next(journal.end().await.unwrap()).await.unwrap() {}
        past.0.index.end()
    }

    async fn open(cache: &Path, journal: &Journal) -> Past {
        Past::open_with(cache, journal.clone(), MIN_SPACING, 8).await.unwrap()
    }

    #[tokio::test]
    async fn index_has_every_position_of_every_aggregate() {
        let (folder, id) = (tempfile::tempdir().unwrap(), ClusterId(uuid::Uuid::from_u128(1)));
        let journal = log(60, id, 1).await;
        let past = open(folder.path(), &journal).await;
        assert_eq!(past.positions("cell:c1", Position(0), 100).await.unwrap(), (vec![], Position(0)));
        assert_eq!(index(&past, &journal).await, Position(56), "seven whole stretches");
        let mut of: BTreeMap<String, Vec<Position>> = BTreeMap::new();
        for one in journal.read(Position(0), None, 56).await.unwrap() {
            for about in stored::aggregates(&one.bytes) {
                of.entry(about.to_string()).or_default().push(one.position);
            }
        }
        assert_eq!(of.len(), 4);
        for (about, positions) in &of {
            let (found, whole) = past.positions(about, Position(0), 100).await.unwrap();
            assert_eq!((&found, whole), (positions, Position(56)), "{about}");
        }
        let of = &of["cell:c2"];
        let behind = past.positions("cell:c2", of[3], 2).await.unwrap();
        assert_eq!(behind, (of[4..6].to_vec(), of[5]), "a page");
        assert_eq!(past.positions("lrp:web", Position(0), 9).await.unwrap(), (vec![], Position(56)));
    }

    #[tokio::test]
    async fn invalid_or_missing_index_file_is_created_again() {
        let (folder, id) = (tempfile::tempdir().unwrap(), ClusterId(uuid::Uuid::from_u128(1)));
        let journal = log(40, id, 1).await;
        let past = open(folder.path(), &journal).await;
        index(&past, &journal).await;
        let path = |stretch| past.0.index.path(stretch);
        let good: Vec<_> = (0..5).map(|stretch| fs::read(path(stretch)).unwrap()).collect();
        let mut damaged = good[1].clone();
        *damaged.last_mut().unwrap() ^= 1;
        fs::write(path(1), damaged).unwrap();
        fs::remove_file(path(3)).unwrap();
        let again = open(folder.path(), &journal).await;
        assert_eq!(index(&again, &journal).await, Position(40));
        assert!((0..).zip(&good).all(|(stretch, good)| fs::read(path(stretch)).unwrap() == *good));
        // If a file vanishes while it is needed, the query fails and the file is created again.
        fs::remove_file(path(2)).unwrap();
        again.positions("cell:c1", Position(0), 100).await.unwrap_err();
        assert_eq!(again.positions("cell:c1", Position(0), 100).await.unwrap().1, Position(16));
        assert_eq!(index(&again, &journal).await, Position(40));
        let other = log(40, id, 2).await;
        let past = open(folder.path(), &other).await;
        assert_eq!(index(&past, &other).await, Position(40));
        assert!((0..).zip(&good).all(|(stretch, good)| fs::read(path(stretch)).unwrap() != *good));
    }
}
