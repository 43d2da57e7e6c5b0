//! A rung as bytes and back: a [`Then`] in a file.
//!
//! ```text
//! magic 8 | version 8 | cluster id 16 | position 8 | latest 8 | sum 8 | reader's length 8 | reader's checksum 8 |
//! head's checksum 8 | reader | World
//! ```
//! Numbers are little-endian. The head says what the ladder has to know of a rung without reading all of it. The World
//! has a checksum of its own.

use projections::cluster_log::Positions;
use projections::{Reader, World, snapshot};
use schemas::checksum::crc64;
use schemas::names::ClusterId;
use schemas::{Position, Timestamp};

use crate::then::Then;

const MAGIC: [u8; 8] = *b"MUSRUNG1";
/// Where the head's checksum stands, and how long the head is.
const SUM: usize = 72;
pub(crate) const HEAD: usize = 80;

/// What a rung says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) position: Position,
    /// The greatest time of a decision up to there.
    pub(crate) latest: Timestamp,
    /// A checksum of what stands at the position.
    pub(crate) sum: u64,
    reader_length: u64,
    reader_sum: u64,
}

/// The bytes of a rung.
pub(crate) fn write(then: &Then, cluster: ClusterId) -> Vec<u8> {
    let (reader, world) = (then.reader.stored(), then.world.snapshot());
    let mut bytes = Vec::with_capacity(HEAD + reader.len() + world.len());
    bytes.extend(MAGIC);
    bytes.extend(snapshot::VERSION.to_le_bytes());
    bytes.extend(cluster.0.as_u128().to_le_bytes());
    let numbers =
        [then.position().0, then.latest.0, then.sum, reader.len() as u64, crc64(&[reader.as_slice()])];
    numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    bytes.extend(crc64(&[bytes.as_slice()]).to_le_bytes());
    bytes.extend(reader);
    bytes.extend(world);
    bytes
}

/// Reads the head of a rung of a cluster.
///
/// # Errors
/// Why it is none.
pub(crate) fn head(bytes: &[u8], cluster: ClusterId) -> Result<Head, String> {
    let Some(head) = bytes.first_chunk::<HEAD>().filter(|head| head.starts_with(&MAGIC)) else {
        return Err("it does not begin as a rung does".to_owned());
    };
    if number(head, SUM) != crc64(&[&head[..SUM]]) {
        return Err("its head is damaged".to_owned());
    }
    if !snapshot::is_readable(number(head, 8)) {
        return Err("it is of another version of snapshots".to_owned());
    }
    let found = u128::from(number(head, 16)) | u128::from(number(head, 24)) << 64;
    if found != cluster.0.as_u128() {
        return Err(format!("it is of cluster {}", uuid::Uuid::from_u128(found)));
    }
    Ok(Head {
        position: Position(number(head, 32)),
        latest: Timestamp(number(head, 40)),
        sum: number(head, 48),
        reader_length: number(head, 56),
        reader_sum: number(head, 64),
    })
}

/// Reads a rung of a cluster.
///
/// # Errors
/// Why it is none, or none that can be gone on from.
pub(crate) fn read(bytes: &[u8], cluster: ClusterId, set_aside: &Positions) -> Result<Then, String> {
    let head = head(bytes, cluster)?;
    let length = usize::try_from(head.reader_length).unwrap_or(usize::MAX);
    let Some((reader, world)) = bytes[HEAD..].split_at_checked(length) else {
        return Err("it is cut off".to_owned());
    };
    if crc64(&[reader]) != head.reader_sum {
        return Err("what its reader knew is damaged".to_owned());
    }
    let reader = Reader::restored(reader, head.position, set_aside.clone())?;
    let world = World::restore(world, Some(cluster)).map_err(|error| error.to_string())?;
    if world.position() != head.position {
        return Err(format!("its World stands at position {}", world.position()));
    }
    Ok(Then { world, reader, latest: head.latest, sum: head.sum })
}

/// The number that stands at a place of a head.
pub(crate) fn number(head: &[u8], at: usize) -> u64 {
    let bytes = head[at..].first_chunk().expect("the head has eight bytes at each of its numbers");
    u64::from_le_bytes(*bytes)
}
