//! Encoding of a snapshot in a file. A snapshot is a [`PastState`]: the reader of the log and the World (the
//! state folded from the log) at a position.
//!
//! ```text
//! magic 8 | version 8 | cluster id 16 | position 8 | latest 8 | sum 8 | reader's length 8 | reader's checksum 8 |
//! head's checksum 8 | reader | World
//! ```
//! Numbers are little-endian. The header contains all data that the snapshot index needs, so the index does
//! not read whole files. The World has a separate checksum.

use projections::cluster_log::QuarantinedPositions;
use projections::{Reader, World, snapshot};
use schemas::checksum::crc64;
use schemas::names::ClusterId;
use schemas::{Position, Timestamp};

use crate::past_state::PastState;

const MAGIC: [u8; 8] = *b"MUSRUNG1";
/// Offset of the header's checksum, and length of the header.
const CHECKSUM_OFFSET: usize = 72;
pub(crate) const HEADER_BYTES: usize = 80;

/// Header of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) position: Position,
    /// Latest time of a decision up to the position.
    pub(crate) latest: Timestamp,
    /// Checksum of the message at the position.
    pub(crate) sum: u64,
    reader_length: u64,
    reader_sum: u64,
}

/// Encodes a snapshot.
pub(crate) fn write(then: &PastState, cluster: ClusterId) -> Vec<u8> {
    let (reader, world) = (then.reader.to_bytes(), then.world.to_bytes());
    let mut bytes = Vec::with_capacity(HEADER_BYTES + reader.len() + world.len());
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

/// Decodes and checks the header of a snapshot.
///
/// # Errors
/// Returns the reason if the header is invalid or belongs to another cluster.
pub(crate) fn head(bytes: &[u8], cluster: ClusterId) -> Result<Header, String> {
    let Some(head) = bytes.first_chunk::<HEADER_BYTES>().filter(|head| head.starts_with(&MAGIC)) else {
        return Err("not a snapshot".to_owned());
    };
    if read_number(head, CHECKSUM_OFFSET) != crc64(&[&head[..CHECKSUM_OFFSET]]) {
        return Err("the header is damaged".to_owned());
    }
    if !snapshot::is_readable(read_number(head, 8)) {
        return Err("the snapshot has another version".to_owned());
    }
    let found = u128::from(read_number(head, 16)) | u128::from(read_number(head, 24)) << 64;
    if found != cluster.0.as_u128() {
        return Err(format!("the snapshot is of cluster {}", uuid::Uuid::from_u128(found)));
    }
    Ok(Header {
        position: Position(read_number(head, 32)),
        latest: Timestamp(read_number(head, 40)),
        sum: read_number(head, 48),
        reader_length: read_number(head, 56),
        reader_sum: read_number(head, 64),
    })
}

/// Decodes and checks a snapshot.
///
/// # Errors
/// Returns the reason if the snapshot is invalid, belongs to another cluster, or cannot be continued.
pub(crate) fn read(
    bytes: &[u8],
    cluster: ClusterId,
    quarantines: &QuarantinedPositions,
) -> Result<PastState, String> {
    let head = head(bytes, cluster)?;
    let length = usize::try_from(head.reader_length).unwrap_or(usize::MAX);
    let Some((reader, world)) = bytes[HEADER_BYTES..].split_at_checked(length) else {
        return Err("the snapshot is truncated".to_owned());
    };
    if crc64(&[reader]) != head.reader_sum {
        return Err("the state of the log reader is damaged".to_owned());
    }
    let reader = Reader::from_bytes(reader, head.position, quarantines.clone())?;
    let world = World::from_bytes(world, Some(cluster)).map_err(|error| error.to_string())?;
    if world.position() != head.position {
        return Err(format!("the World is at position {}", world.position()));
    }
    Ok(PastState { world, reader, latest: head.latest, sum: head.sum })
}

/// Returns the number at an offset of a header.
pub(crate) fn read_number(head: &[u8], at: usize) -> u64 {
    let bytes = head[at..].first_chunk().expect("the header has eight bytes at each offset");
    u64::from_le_bytes(*bytes)
}
