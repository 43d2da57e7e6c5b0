//! Where the log speaks of what: of every stretch of the log a file with the positions of each aggregate in it. It only
//! saves time. It may name too many positions, and never too few: whoever reads what stands there sees what it is about.
//!
//! ```text
//! magic 8 | cluster id 16 | stretch 8 | sum 8 | checksum 8 | for each position of each aggregate: hash 8, offset 2
//! ```
//! Numbers are little-endian, and the pairs are sorted. The sum is of the last message of the stretch: it tells one history
//! from another. Stretches follow each other from position 1, each of [`crate::limits::STRETCH`] positions.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use journal::Recorded;
use schemas::Position;
use schemas::checksum::crc64;
use schemas::entry;
use schemas::names::ClusterId;
use schemas::subject::fnv_1a;

use crate::Error;
use crate::ladder::{make, unusable, write_whole};
use crate::rung::number;

const MAGIC: [u8; 8] = *b"MUSINDX1";
/// Where the stretch, the sum and the checksum stand, and how long the head is.
const NUMBER: usize = 24;
const LAST: usize = 32;
const SUM: usize = 40;
const HEAD: usize = 48;
/// How long a pair is.
const PAIR: usize = 10;

/// The index of one cluster's log.
#[derive(Debug)]
pub(crate) struct Index {
    folder: PathBuf,
    cluster: ClusterId,
    /// Positions of a stretch: [`crate::limits::STRETCH`], but for tests.
    stretch: u64,
    /// How many stretches, from the first on, are there and of this history.
    believed: AtomicU64,
}

/// The pairs of a stretch while it is read.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    pairs: Vec<(u64, u16)>,
    /// The sum of the last message.
    sum: u64,
}

impl Pairs {
    /// Takes in what stands at the next positions behind `begin`, where the stretch begins.
    pub(crate) fn take(&mut self, begin: Position, recorded: &[Recorded]) {
        for one in recorded {
            let offset = u16::try_from(one.position.0 - 1 - begin.0).expect("a stretch is that short");
            let aggregates = entry::aggregates(&one.bytes);
            self.pairs.extend(aggregates.iter().map(|of| (fnv_1a(&of.to_string()), offset)));
            self.sum = one.checksum();
        }
    }

    /// The file of the stretch.
    fn bytes(mut self, cluster: ClusterId, stretch: u64) -> Vec<u8> {
        self.pairs.sort_unstable();
        self.pairs.dedup();
        let mut bytes = Vec::with_capacity(HEAD + PAIR * self.pairs.len());
        bytes.extend(MAGIC);
        bytes.extend(cluster.0.as_u128().to_le_bytes());
        bytes.extend(stretch.to_le_bytes());
        bytes.extend(self.sum.to_le_bytes());
        bytes.extend([0; HEAD - SUM]);
        for (hash, offset) in self.pairs {
            bytes.extend(hash.to_le_bytes());
            bytes.extend(offset.to_le_bytes());
        }
        let sum = sum_of_file(&bytes);
        bytes[SUM..HEAD].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
}

impl Index {
    pub(crate) const fn new(folder: PathBuf, cluster: ClusterId, stretch: u64) -> Self {
        Self { folder, cluster, stretch, believed: AtomicU64::new(0) }
    }

    /// Up to where it goes.
    #[cfg(test)]
    fn end(&self) -> Position {
        self.begin_of(self.believed.load(Ordering::Acquire))
    }

    /// The position behind which a stretch begins.
    pub(crate) const fn begin_of(&self, stretch: u64) -> Position {
        Position(stretch * self.stretch)
    }

    /// The stretch that comes next, if a log that ends at `end` has all of it.
    pub(crate) fn next(&self, end: Position) -> Option<u64> {
        let next = self.believed.load(Ordering::Acquire);
        (self.begin_of(next + 1) <= end).then_some(next)
    }

    /// The sum of the last message of a stretch of which there is a file that can be read.
    pub(crate) fn found(&self, stretch: u64) -> Option<u64> {
        let bytes = fs::read(self.path(stretch)).ok()?;
        let head = bytes.first_chunk::<HEAD>()?;
        let whole = (bytes.len() - HEAD).is_multiple_of(PAIR)
            && head.starts_with(&MAGIC)
            && head[8..NUMBER] == self.cluster.0.as_u128().to_le_bytes()
            && number(head, NUMBER) == stretch
            && number(head, SUM) == sum_of_file(&bytes);
        whole.then(|| number(head, LAST))
    }

    /// The next stretch is there, and of this history.
    pub(crate) fn believe(&self, stretch: u64) {
        self.believed.store(stretch + 1, Ordering::Release);
    }

    /// Writes the file of a stretch.
    pub(crate) fn write(&self, stretch: u64, pairs: Pairs) -> Result<(), Error> {
        make(&self.folder)?;
        write_whole(&self.path(stretch), &pairs.bytes(self.cluster, stretch))
    }

    /// Where the log speaks of something behind a position, in order: at most so many positions, and up to where that is all.
    pub(crate) fn positions(
        &self,
        about: &str,
        after: Position,
        most: usize,
    ) -> Result<(Vec<Position>, Position), Error> {
        let (hash, mut found) = (fnv_1a(about), vec![]);
        // Others may make more of it meanwhile, or less.
        let believed = self.believed.load(Ordering::Acquire);
        for stretch in after.0 / self.stretch..believed {
            let path = self.path(stretch);
            let offsets = offsets(&path, hash).map_err(|error| {
                // It is made again.
                self.believed.fetch_min(stretch, Ordering::AcqRel);
                unusable(&path)(error)
            })?;
            let begin = self.begin_of(stretch);
            let positions = offsets.iter().map(|offset| Position(begin.0 + u64::from(*offset) + 1));
            found.extend(positions.filter(|position| *position > after));
            if found.len() >= most {
                found.truncate(most);
                let whole = found.last().copied().unwrap_or(after);
                return Ok((found, whole));
            }
        }
        Ok((found, self.begin_of(believed)))
    }

    fn path(&self, stretch: u64) -> PathBuf {
        self.folder.join(format!("{stretch:020}.index"))
    }
}

/// The offsets that stand with a hash in the file of a stretch.
fn offsets(path: &Path, hash: u64) -> io::Result<Vec<u16>> {
    let file = File::open(path)?;
    let pairs = (file.metadata()?.len().saturating_sub(HEAD as u64)) / PAIR as u64;
    let pair = |at: u64| -> io::Result<(u64, u16)> {
        let mut bytes = [0; PAIR];
        file.read_exact_at(&mut bytes, HEAD as u64 + at * PAIR as u64)?;
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

/// The checksum of a file, which stands in its head.
fn sum_of_file(bytes: &[u8]) -> u64 {
    crc64(&[&bytes[..SUM], &bytes[HEAD..]])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use journal::{Append, Journal, Memory};
    use schemas::entry::{Aggregate, Event};
    use schemas::names::{EntryId, Ids};
    use schemas::{Timestamp, cell, cluster};

    use super::*;
    use crate::Past;
    use crate::limits::SPACING;

    /// A log of so many messages behind the one that founds the cluster: of three cells in turn, some damaged.
    async fn log(messages: u64, cluster: ClusterId, seed: u64) -> Journal {
        let (journal, mut ids) = (Journal::Memory(Memory::new()), Ids::new(seed));
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
        Past::open_as(cache, journal.clone(), SPACING, 8).await.unwrap()
    }

    #[tokio::test]
    async fn every_position_of_everything_is_named() {
        let (folder, id) = (tempfile::tempdir().unwrap(), ClusterId(uuid::Uuid::from_u128(1)));
        let journal = log(60, id, 1).await;
        let past = open(folder.path(), &journal).await;
        assert_eq!(past.positions("cell:c1", Position(0), 100).await.unwrap(), (vec![], Position(0)));
        assert_eq!(index(&past, &journal).await, Position(56), "seven whole stretches");
        let mut of: BTreeMap<String, Vec<Position>> = BTreeMap::new();
        for one in journal.read(Position(0), None, 56).await.unwrap() {
            for about in entry::aggregates(&one.bytes) {
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
    async fn a_file_that_is_damaged_gone_or_of_another_history_is_made_again() {
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
        // One that vanishes while it is needed is missed, and made again.
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
