//! Serialization of the World (the state folded from the log). A snapshot only saves time: folding the log
//! from its beginning gives the same World, so a snapshot can always be deleted.
//!
//! ```text
//! head: magic 8 | version 8 | cluster id 16 (0: none) | position 8 | length 8 | checksum 8
//! part: kind 8 | length 8 | checksum 8 | items
//! ```
//!
//! Numbers are little-endian. Parts follow the head. The first part has the cluster, the cells, the domains
//! and other small state. The next parts have the processes, the tasks, the periodic and the parameterised
//! tasks, several items in each part. The length in the head counts the bytes after the head. The length in a
//! part counts the bytes of the items. A checksum covers its head or part, except for the checksum itself.
//! Items are encoded with postcard one by one, so that at most one item is in memory twice. All processors
//! read parts in parallel. Sets that can be recomputed are not stored.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Arc;
use std::thread;

use machines::cell::Cell;
use machines::cluster::Cluster;
use machines::domain::{DomainQuotas, Freshness};
use schemas::checksum::crc64;
use schemas::names::{CellId, ClusterId, Domain};
use schemas::{Position, Subject, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::ended::{History, StoredHistory};
use crate::index::FormerResources;
use crate::world::World;

const MAGIC: [u8; 8] = *b"MUSWORLD";
/// Offset of the checksum in the head, and length of the head, in bytes.
const CHECKSUM_OFFSET: usize = 48;
const HEAD_LEN: usize = 56;
/// Offset of the checksum in the head of a part, and length of that head, in bytes.
const PART_CHECKSUM_OFFSET: usize = 16;
const PART_HEAD_LEN: usize = 24;
/// Maximum number of items in a part.
const MAX_PART_ITEMS: usize = 1_024;
/// Minimum number of bytes that a thread reads.
const MIN_SHARE_BYTES: usize = 1 << 20;

/// Version of a snapshot's contents. Two programs with the same version interpret the bytes of a snapshot in
/// the same way. Indexed snapshots contain other state at a position, but use the same version.
///
/// The version is raised with every change that makes this program misread an existing snapshot, or fold the
/// same log to a different World:
///
/// - A stored type gains, loses or moves a field or a variant, at any depth.
/// - A rule of folding changes: the effect of an event on the World, or the extent and duration of remembered
///   state.
/// - The state of a [`crate::Reader`] changes, or the rules by which a reader quarantines messages.
///
/// Renaming alone does not require a new version. A test folds a history with every event, and pins the
/// resulting bytes together with this number.
pub const VERSION: u64 = 8;

/// Oldest version that this program reads. Version 8 only added changes of the number of shards. A log of
/// version 7 contains no such change.
const OLDEST_VERSION: u64 = 7;

/// Returns `true` if this program reads snapshots of a version.
#[must_use]
pub const fn is_readable(version: u64) -> bool {
    OLDEST_VERSION <= version && version <= VERSION
}

/// Reason why bytes are not a usable snapshot. The remedy is always to fold the log from its beginning.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The bytes do not start with the magic number.
    #[error("not a snapshot")]
    NotASnapshot,
    #[error("the snapshot has an unsupported version")]
    UnsupportedVersion,
    #[error("the snapshot is of cluster {}, not of {expected}", cluster_text(.found.as_ref()))]
    OtherCluster {
        /// Cluster of the snapshot. `None` if the cluster was not founded yet.
        found: Option<ClusterId>,
        /// Cluster that the caller requires.
        expected: ClusterId,
    },
    /// The snapshot is truncated, or more bytes follow its end.
    #[error("the snapshot has {found} bytes: expected {announced}")]
    WrongLength {
        /// Length according to the head, in bytes.
        announced: u64,
        /// Actual length, in bytes.
        found: u64,
    },
    /// A checksum does not match, or a part is truncated.
    #[error("the snapshot is damaged: checksum mismatch")]
    Damaged,
    /// The contents cannot be decoded.
    #[error("the snapshot can't be read: {0}")]
    Unreadable(String),
}

fn cluster_text(cluster: Option<&ClusterId>) -> String {
    cluster.map_or_else(|| "none".to_owned(), ToString::to_string)
}

/// The state without the processes, tasks, periodic and parameterised tasks.
#[derive(Serialize, Deserialize)]
struct BaseState {
    cluster: Option<Cluster>,
    last: Vec<(String, Position, Timestamp)>,
    domains: BTreeMap<Domain, Freshness>,
    limited: BTreeMap<Domain, DomainQuotas>,
    cells: BTreeMap<CellId, Cell>,
    former: FormerResources,
    history: StoredHistory,
    found_by_convergence: u64,
    forgotten: Position,
}

/// Type of the items of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartKind {
    Base,
    Processes,
    Tasks,
    Periodics,
    Parameterised,
}

/// One part of a snapshot, not yet checked.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    head: &'a [u8; PART_HEAD_LEN],
    items: &'a [u8],
}

impl World {
    /// Serializes the World.
    ///
    /// # Panics
    /// Never: the World is plain data.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEAD_LEN];
        write_parts(&mut bytes, PartKind::Base, [&self.base_state()].into_iter());
        write_parts(&mut bytes, PartKind::Processes, self.processes.values().map(|process| &**process));
        write_parts(&mut bytes, PartKind::Tasks, self.tasks.values().map(|task| &**task));
        write_parts(&mut bytes, PartKind::Periodics, self.periodics.values().map(|periodic| &**periodic));
        write_parts(&mut bytes, PartKind::Parameterised, self.parameterised.values().map(|known| &**known));
        let length = bytes.len() - HEAD_LEN;
        let cluster = self.cluster.as_ref().map_or(0, |cluster| cluster.id.0.as_u128());
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&cluster.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.position.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&(length as u64).to_le_bytes());
        let sum = crc64(&[&bytes[..CHECKSUM_OFFSET]]);
        bytes[CHECKSUM_OFFSET..HEAD_LEN].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Deserializes a World. If `cluster_id` is set, a snapshot of another cluster is rejected.
    ///
    /// # Errors
    /// See [`SnapshotError`].
    ///
    /// # Panics
    /// Panics if one of its threads panics.
    pub fn from_bytes(bytes: &[u8], cluster_id: Option<ClusterId>) -> Result<Self, SnapshotError> {
        let position = check_head(bytes, cluster_id)?;
        let parts = split_parts(&bytes[HEAD_LEN..])?;
        let Some((small, parts)) = parts.split_first() else {
            return Err(SnapshotError::Unreadable("no parts".to_owned()));
        };
        let mut world = Self::from_base(small, position)?;
        for share in world.read_shares(&split_shares(parts)) {
            world.merge(share?);
        }
        Ok(world)
    }

    /// Reads each share on its own thread.
    fn read_shares(&self, shares: &[&[Part<'_>]]) -> Vec<Result<Self, SnapshotError>> {
        let Some((here, elsewhere)) = shares.split_first() else { return vec![] };
        thread::scope(|scope| {
            let threads: Vec<_> =
                elsewhere.iter().map(|share| scope.spawn(|| self.read_share(share))).collect();
            let here = self.read_share(here);
            let there =
                threads.into_iter().map(|thread| thread.join().expect("a panic of the thread is passed on"));
            [here].into_iter().chain(there).collect()
        })
    }

    /// Reads some parts into a new World. Besides the items of these parts, the World contains only the state
    /// that its indexes depend on.
    fn read_share(&self, parts: &[Part<'_>]) -> Result<Self, SnapshotError> {
        let mut world = Self { cluster: self.cluster.clone(), former: self.former.clone(), ..Self::new() };
        for part in parts {
            match part.check()? {
                PartKind::Base => {
                    return Err(SnapshotError::Unreadable("two parts with the small state".to_owned()));
                }
                PartKind::Processes => part.read(|process| world.add_process(process))?,
                PartKind::Tasks => part.read(|task| world.add_task(task))?,
                PartKind::Periodics => part.read(|periodic| world.add_periodic(periodic))?,
                PartKind::Parameterised => part.read(|known| world.add_parameterised(known))?,
            }
        }
        Ok(world)
    }

    /// Returns the World without its processes, tasks, periodic and parameterised tasks.
    fn from_base(part: &Part<'_>, position: Position) -> Result<Self, SnapshotError> {
        if part.check()? != PartKind::Base {
            return Err(SnapshotError::Unreadable("the first part is not the small state".to_owned()));
        }
        let BaseState {
            cluster,
            last,
            domains,
            limited,
            cells,
            former,
            history,
            found_by_convergence,
            forgotten,
        } = read(&mut &*part.items)?;
        let (cluster, history) = (cluster.map(Arc::new), History::from_stored(history));
        let mut world =
            Self { position, cluster, former, history, found_by_convergence, forgotten, ..Self::new() };
        world.domains = domains.into_iter().collect();
        world.limited = limited.into_iter().collect();
        world.cells = cells.into_iter().collect();
        for (subject, position, at) in last {
            let subject = Subject::parse(&subject)
                .ok_or_else(|| SnapshotError::Unreadable(format!("{subject:?} is not a subject")))?;
            world.last.insert(subject, (position, at));
        }
        Ok(world)
    }

    fn base_state(&self) -> BaseState {
        let last = self.last.iter();
        BaseState {
            cluster: self.cluster().cloned(),
            last: last.map(|(subject, (position, at))| (subject.to_string(), *position, *at)).collect(),
            domains: self.domains.iter().map(|(name, of)| (name.clone(), of.clone())).collect(),
            limited: self.limited.iter().map(|(name, of)| (name.clone(), of.clone())).collect(),
            cells: self.cells.iter().map(|(id, cell)| (id.clone(), cell.clone())).collect(),
            former: self.former.clone(),
            history: self.history.stored(),
            found_by_convergence: self.found_by_convergence,
            forgotten: self.forgotten,
        }
    }
}

impl PartKind {
    const ALL: [Self; 5] = [Self::Base, Self::Processes, Self::Tasks, Self::Periodics, Self::Parameterised];
}

impl Part<'_> {
    /// Verifies the checksum and returns the type of the items.
    fn check(&self) -> Result<PartKind, SnapshotError> {
        if read_u64(self.head, PART_CHECKSUM_OFFSET)
            != crc64(&[&self.head[..PART_CHECKSUM_OFFSET], self.items])
        {
            return Err(SnapshotError::Damaged);
        }
        let number = read_u64(self.head, 0);
        let kind = PartKind::ALL.into_iter().find(|kind| *kind as u64 == number);
        kind.ok_or_else(|| SnapshotError::Unreadable(format!("unknown kind of part {number}")))
    }

    /// Decodes the items one after the other.
    fn read<T: DeserializeOwned>(&self, mut take: impl FnMut(T)) -> Result<(), SnapshotError> {
        let mut rest = self.items;
        while !rest.is_empty() {
            take(read(&mut rest)?);
        }
        Ok(())
    }
}

/// Writes items as parts of at most [`MAX_PART_ITEMS`] items.
fn write_parts<'a, T: Serialize + 'a>(
    bytes: &mut Vec<u8>,
    kind: PartKind,
    items: impl Iterator<Item = &'a T>,
) {
    let mut items = items.peekable();
    while items.peek().is_some() {
        let begin = bytes.len();
        bytes.extend([0; PART_HEAD_LEN]);
        for item in items.by_ref().take(MAX_PART_ITEMS) {
            write(bytes, item);
        }
        let (head, items) = bytes[begin..].split_at_mut(PART_HEAD_LEN);
        head[..8].copy_from_slice(&(kind as u64).to_le_bytes());
        head[8..PART_CHECKSUM_OFFSET].copy_from_slice(&(items.len() as u64).to_le_bytes());
        let sum = crc64(&[&head[..PART_CHECKSUM_OFFSET], items]);
        head[PART_CHECKSUM_OFFSET..].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Splits bytes into parts without decoding them.
fn split_parts(mut rest: &[u8]) -> Result<Vec<Part<'_>>, SnapshotError> {
    let mut parts = vec![];
    while !rest.is_empty() {
        let (head, behind) = rest.split_first_chunk().ok_or(SnapshotError::Damaged)?;
        let length = usize::try_from(read_u64(head, 8)).unwrap_or(usize::MAX);
        let (items, behind) = behind.split_at_checked(length).ok_or(SnapshotError::Damaged)?;
        parts.push(Part { head, items });
        rest = behind;
    }
    Ok(parts)
}

/// Splits parts, in order, into shares of similar size: one for each processor, or fewer if there are few
/// bytes.
fn split_shares<'p, 'b>(parts: &'p [Part<'b>]) -> Vec<&'p [Part<'b>]> {
    let bytes: usize = parts.iter().map(|part| part.items.len()).sum();
    let processors =
        if bytes < MIN_SHARE_BYTES { 1 } else { thread::available_parallelism().map_or(1, NonZero::get) };
    let share = (bytes / processors + 1).max(MIN_SHARE_BYTES);
    let mut end = 0;
    let in_one = |part: &Part<'_>, _: &Part<'_>| {
        let begin = end;
        end += part.items.len();
        begin / share == end / share
    };
    parts.chunk_by(in_one).collect()
}

fn write<T: Serialize>(bytes: &mut Vec<u8>, value: &T) {
    postcard::to_io(value, bytes).expect("serializing plain data to memory cannot fail");
}

fn read<T: DeserializeOwned>(rest: &mut &[u8]) -> Result<T, SnapshotError> {
    let (value, behind) =
        postcard::take_from_bytes(rest).map_err(|error| SnapshotError::Unreadable(error.to_string()))?;
    *rest = behind;
    Ok(value)
}

/// Checks the head of a snapshot and returns its position.
fn check_head(bytes: &[u8], cluster_id: Option<ClusterId>) -> Result<Position, SnapshotError> {
    if !bytes.starts_with(&MAGIC) {
        return Err(SnapshotError::NotASnapshot);
    }
    let found = bytes.len() as u64;
    let Some(head) = bytes.first_chunk::<HEAD_LEN>() else {
        return Err(SnapshotError::WrongLength { announced: HEAD_LEN as u64, found });
    };
    if !is_readable(read_u64(head, 8)) {
        return Err(SnapshotError::UnsupportedVersion);
    }
    let announced = read_u64(head, 40).saturating_add(HEAD_LEN as u64);
    if announced != found {
        return Err(SnapshotError::WrongLength { announced, found });
    }
    if read_u64(head, CHECKSUM_OFFSET) != crc64(&[&head[..CHECKSUM_OFFSET]]) {
        return Err(SnapshotError::Damaged);
    }
    let cluster = u128::from(read_u64(head, 16)) | u128::from(read_u64(head, 24)) << 64;
    let cluster = (cluster != 0).then(|| ClusterId(uuid::Uuid::from_u128(cluster)));
    match cluster_id {
        Some(expected) if cluster != Some(expected) => {
            Err(SnapshotError::OtherCluster { found: cluster, expected })
        }
        Some(_) | None => Ok(Position(read_u64(head, 32))),
    }
}

/// Returns the number at an offset of a head.
fn read_u64(head: &[u8], at: usize) -> u64 {
    let bytes = head[at..].first_chunk().expect("a head has eight bytes at each offset");
    u64::from_le_bytes(*bytes)
}
