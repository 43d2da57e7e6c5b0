//! The World as bytes and back. A snapshot only saves time: it can be thrown away, and folding the log from its
//! beginning gives the same World.
//!
//! ```text
//! magic 8 | fingerprint 8 | cluster id 16 (0: none) | position 8 | length 8 | checksum 8 | body
//! ```
//! Numbers are little-endian. The checksum covers everything before and after it. The body is postcard: what is small,
//! then the processes, the tasks, the periodic and the parameterised tasks, one after the other, so that no more than one is ever there twice. Sets that can
//! be recomputed aren't stored.

use std::collections::BTreeMap;

use schemas::cell::Cell;
use schemas::checksum::crc64;
use schemas::cluster::Cluster;
use schemas::codec;
use schemas::domain::Freshness;
use schemas::names::{CellId, ClusterId, Domain};
use schemas::{Position, Subject, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::ended::{History, Stored};
use crate::index::Former;
use crate::world::World;

const MAGIC: [u8; 8] = *b"MUSWORLD";
/// Where the checksum stands, and how long the head is.
const SUM: usize = 48;
const HEAD: usize = 56;

/// The fingerprint of this crate, and the files that it is of, by their paths below `src`.
const OF_SOURCES: (u64, &[&str]) = include!(concat!(env!("OUT_DIR"), "/fingerprint.rs"));

/// Of every type and every rule that made the body: two programs with the same one mean the same by it. The build makes
/// it of all sources that it finds, so that nothing can be left out.
pub const FINGERPRINT: u64 = codec::FINGERPRINT.rotate_left(1) ^ OF_SOURCES.0;

/// Why bytes are not a snapshot that this program can start from. Whatever it is: fold the log from its beginning.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The bytes don't begin as a snapshot does.
    #[error("not a snapshot")]
    NotASnapshot,
    /// Another version of the program wrote it.
    #[error("the snapshot was written by another version of the program")]
    OtherSchema,
    /// It is of another cluster.
    #[error("the snapshot is of cluster {}, not of {expected}", name(.found.as_ref()))]
    OtherCluster {
        /// Of which; none: the cluster wasn't founded yet.
        found: Option<ClusterId>,
        /// Of which it should be.
        expected: ClusterId,
    },
    /// It is cut off, or something stands behind its end.
    #[error("the snapshot announces {announced} bytes and has {found}")]
    WrongLength {
        /// What its head says.
        announced: u64,
        /// What is there.
        found: u64,
    },
    /// Its checksum is wrong.
    #[error("the snapshot is damaged: its checksum is wrong")]
    Damaged,
    /// Its body isn't what its head promises.
    #[error("the snapshot can't be read: {0}")]
    Unreadable(String),
}

fn name(cluster: Option<&ClusterId>) -> String {
    cluster.map_or_else(|| "none".to_owned(), ToString::to_string)
}

/// What is small.
#[derive(Serialize, Deserialize)]
struct Small {
    cluster: Option<Cluster>,
    last: Vec<(String, Position, Timestamp)>,
    domains: BTreeMap<Domain, Freshness>,
    cells: BTreeMap<CellId, Cell>,
    former: Former,
    history: Stored,
    found_by_convergence: u64,
    forgotten: Position,
    processes: u64,
    tasks: u64,
    periodics: u64,
    parameterised: u64,
}

impl World {
    /// The World as bytes.
    ///
    /// # Panics
    /// Never: the World is plain data.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEAD];
        write(&mut bytes, &self.small());
        for process in self.processes.values() {
            write(&mut bytes, &**process);
        }
        for task in self.tasks.values() {
            write(&mut bytes, &**task);
        }
        for periodic in self.periodics.values() {
            write(&mut bytes, &**periodic);
        }
        for known in self.parameterised.values() {
            write(&mut bytes, &**known);
        }
        let length = bytes.len() - HEAD;
        let cluster = self.cluster.as_ref().map_or(0, |cluster| cluster.id.0.as_u128());
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&FINGERPRINT.to_le_bytes());
        bytes[16..32].copy_from_slice(&cluster.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.position.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&(length as u64).to_le_bytes());
        let sum = sum_of(&bytes);
        bytes[SUM..HEAD].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The World that bytes hold. With a `cluster_id` only one of that cluster will do.
    ///
    /// # Errors
    /// Whatever is wrong with the bytes.
    pub fn restore(bytes: &[u8], cluster_id: Option<ClusterId>) -> Result<Self, SnapshotError> {
        let position = check(bytes, cluster_id)?;
        let mut rest = &bytes[HEAD..];
        let ([processes, tasks, periodics, parameterised], mut world) =
            Self::of_small(read(&mut rest)?, position)?;
        for _ in 0..processes {
            world.take_process(read(&mut rest)?);
        }
        for _ in 0..tasks {
            world.take_task(read(&mut rest)?);
        }
        for _ in 0..periodics {
            world.take_periodic(read(&mut rest)?);
        }
        for _ in 0..parameterised {
            world.take_parameterised(read(&mut rest)?);
        }
        if !rest.is_empty() {
            return Err(SnapshotError::Unreadable(format!("{} bytes behind its end", rest.len())));
        }
        Ok(world)
    }

    /// The World without its processes, tasks, periodic and parameterised tasks, and how many of each follow.
    fn of_small(small: Small, position: Position) -> Result<([u64; 4], Self), SnapshotError> {
        let Small { cluster, last, domains, cells, former, history, found_by_convergence, forgotten, .. } =
            small;
        let counts = [small.processes, small.tasks, small.periodics, small.parameterised];
        let history = History::restored(history);
        let mut world =
            Self { position, cluster, former, history, found_by_convergence, forgotten, ..Self::new() };
        world.domains = domains.into_iter().collect();
        world.cells = cells.into_iter().collect();
        for (subject, position, at) in last {
            let subject = Subject::parse(&subject)
                .ok_or_else(|| SnapshotError::Unreadable(format!("{subject:?} is not a subject")))?;
            world.last.insert(subject, (position, at));
        }
        Ok((counts, world))
    }

    fn small(&self) -> Small {
        let last = self.last.iter();
        Small {
            cluster: self.cluster.clone(),
            last: last.map(|(subject, (position, at))| (subject.to_string(), *position, *at)).collect(),
            domains: self.domains.iter().map(|(name, of)| (name.clone(), of.clone())).collect(),
            cells: self.cells.iter().map(|(id, cell)| (id.clone(), cell.clone())).collect(),
            former: self.former.clone(),
            history: self.history.stored(),
            found_by_convergence: self.found_by_convergence,
            forgotten: self.forgotten,
            processes: self.processes.len() as u64,
            tasks: self.tasks.len() as u64,
            periodics: self.periodics.len() as u64,
            parameterised: self.parameterised.len() as u64,
        }
    }
}

fn write<T: Serialize>(bytes: &mut Vec<u8>, value: &T) {
    postcard::to_io(value, bytes).expect("the World is plain data, and memory takes all of it");
}

fn read<T: DeserializeOwned>(rest: &mut &[u8]) -> Result<T, SnapshotError> {
    let (value, behind) =
        postcard::take_from_bytes(rest).map_err(|error| SnapshotError::Unreadable(error.to_string()))?;
    *rest = behind;
    Ok(value)
}

/// Checks everything about a snapshot but the meaning of its body, and returns its position.
fn check(bytes: &[u8], cluster_id: Option<ClusterId>) -> Result<Position, SnapshotError> {
    if !bytes.starts_with(&MAGIC) {
        return Err(SnapshotError::NotASnapshot);
    }
    let found = bytes.len() as u64;
    let Some(head) = bytes.first_chunk::<HEAD>() else {
        return Err(SnapshotError::WrongLength { announced: HEAD as u64, found });
    };
    if number(head, 8) != FINGERPRINT {
        return Err(SnapshotError::OtherSchema);
    }
    let announced = number(head, 40).saturating_add(HEAD as u64);
    if announced != found {
        return Err(SnapshotError::WrongLength { announced, found });
    }
    if number(head, SUM) != sum_of(bytes) {
        return Err(SnapshotError::Damaged);
    }
    let cluster = u128::from(number(head, 16)) | u128::from(number(head, 24)) << 64;
    let cluster = (cluster != 0).then(|| ClusterId(uuid::Uuid::from_u128(cluster)));
    match cluster_id {
        Some(expected) if cluster != Some(expected) => {
            Err(SnapshotError::OtherCluster { found: cluster, expected })
        }
        Some(_) | None => Ok(Position(number(head, 32))),
    }
}

fn number(head: &[u8; HEAD], at: usize) -> u64 {
    let bytes = head[at..].first_chunk().expect("the head has eight bytes at each of its numbers");
    u64::from_le_bytes(*bytes)
}

fn sum_of(bytes: &[u8]) -> u64 {
    crc64(&[&bytes[..SUM], &bytes[HEAD..]])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn find(folder: &Path, root: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                find(&path, root, found);
            } else {
                found.insert(path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/"));
            }
        }
    }

    #[test]
    fn the_fingerprint_leaves_no_source_file_out() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut found = BTreeSet::new();
        find(&root, &root, &mut found);
        assert!(OF_SOURCES.1.contains(&"share.rs"), "what is restored is shared there");
        assert_eq!(OF_SOURCES.1.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>(), found);
    }
}
