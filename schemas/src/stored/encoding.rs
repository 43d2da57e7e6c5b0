//! Encoding of entries as bytes of the journal.
//!
//! Every entry, of any format, starts with a checksum of the remaining bytes (`{"crc32c":"0a1b2c3d",..`). The
//! checksum distinguishes a damaged entry from an entry that a newer program wrote.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::checksum::crc32c;
use crate::entry::{Aggregate, Entry};
use crate::names::EntryId;
use crate::{cluster, limits};

/// Error of decoding an entry of the journal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The entry has a newer format. The entry is not damaged: this program can read it after an upgrade.
    #[error(
        "entry has format {format}, but this program reads formats up to {}: upgrade this \
             program",
        cluster::FORMAT
    )]
    NewerFormat {
        /// Format level of the entry.
        format: u32,
    },
    /// The entry has an event of an unknown type or version. The entry is not damaged: this program can read
    /// it after an upgrade.
    #[error("entry contains an unknown event ({0}): upgrade this program")]
    UnknownEvent(String),
    /// The bytes of the entry changed after it was written.
    #[error("entry is damaged: stored checksum {written:08x}, computed checksum {found:08x}")]
    Damaged {
        /// Checksum that the entry carries.
        written: u32,
        /// Checksum of the actual bytes.
        found: u32,
    },
    /// The bytes are not an entry.
    #[error("not an entry: {0}")]
    Malformed(String),
}

/// Header of an entry of every format: `{"crc32c":"`, eight hexadecimal digits, `",`. The checksum covers all
/// bytes after the header, so it can be verified without decoding the entry.
const HEADER: &[u8] = br#"{"crc32c":"00000000","#;
/// Range of the digits within the header.
const CHECKSUM_DIGITS: std::ops::Range<usize> = 11..19;

/// Writes the checksum of the body into the [`HEADER`] before it.
fn write_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = crc32c(&bytes[HEADER.len()..]);
    bytes[CHECKSUM_DIGITS].copy_from_slice(format!("{sum:08x}").as_bytes());
    bytes
}

/// Verifies the checksum of an entry.
fn verify_checksum(bytes: &[u8]) -> Result<(), DecodeError> {
    let body = |head: &[u8]| {
        let fixed = [0..CHECKSUM_DIGITS.start, CHECKSUM_DIGITS.end..HEADER.len()];
        let framed = fixed.into_iter().all(|part| head[part.clone()] == HEADER[part]);
        let digits = head[CHECKSUM_DIGITS].iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let digits = std::str::from_utf8(&head[CHECKSUM_DIGITS]).ok().filter(|_| framed && digits)?;
        u32::from_str_radix(digits, 16).ok()
    };
    let written = bytes.get(..HEADER.len()).and_then(body);
    let written =
        written.ok_or_else(|| DecodeError::Malformed("it does not begin with a checksum".into()))?;
    let found = crc32c(&bytes[HEADER.len()..]);
    if written == found { Ok(()) } else { Err(DecodeError::Damaged { written, found }) }
}

impl Entry {
    /// Encodes the entry for the journal.
    ///
    /// # Panics
    /// Never: every part of an entry is plain data with text keys.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = HEADER[..HEADER.len() - 1].to_vec();
        serde_json::to_writer(&mut bytes, self).expect("an entry is plain data");
        // The opening brace of the JSON becomes a comma, because the header already has the brace.
        bytes[HEADER.len() - 1] = b',';
        write_checksum(bytes)
    }

    /// Encodes an entry for the journal from decisions that are already JSON, separated by commas.
    #[must_use]
    pub fn encode_decisions(id: EntryId, decisions: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER.len() + 80 + decisions.len());
        bytes.extend_from_slice(HEADER);
        let head = format!(r#""id":"{id}","format":{},"decisions":["#, cluster::FORMAT);
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(decisions);
        bytes.extend_from_slice(b"]}");
        write_checksum(bytes)
    }

    /// Decodes an entry.
    ///
    /// # Errors
    /// `DecodeError` distinguishes a newer format, an unknown event, damage, and bytes that are not an entry.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > 2 * limits::ENTRY_BYTES {
            return Err(DecodeError::Malformed(format!("{} bytes are too many", bytes.len())));
        }
        verify_checksum(bytes)?;
        match serde_json::from_slice::<Self>(bytes) {
            Ok(entry) if entry.format <= cluster::FORMAT => Ok(entry),
            Ok(entry) => Err(DecodeError::NewerFormat { format: entry.format }),
            Err(failed) => Err(classify_error(bytes, &failed)),
        }
    }
}

/// Returns the aggregates of an entry's decisions without decoding their events. Empty if the bytes are not a
/// readable entry.
#[must_use]
pub fn aggregates(bytes: &[u8]) -> Vec<Aggregate> {
    #[derive(Deserialize)]
    struct Head {
        decisions: Vec<About>,
    }
    #[derive(Deserialize)]
    struct About {
        aggregate: super::Aggregate,
    }
    let head = serde_json::from_slice::<Head>(bytes);
    head.map_or_else(|_| vec![], |head| head.decisions.into_iter().map(|one| one.aggregate.into()).collect())
}

/// Returns the reason why an undamaged entry cannot be decoded. One possible reason is a newer format: this
/// program can read only the head of such an entry. Another is an event that only a newer program knows.
fn classify_error(bytes: &[u8], failed: &serde_json::Error) -> DecodeError {
    #[derive(Deserialize)]
    struct Head {
        format: u32,
    }
    #[derive(Deserialize)]
    struct Decisions {
        decisions: Vec<Events>,
    }
    #[derive(Deserialize)]
    struct Events {
        events: Vec<BTreeMap<String, BTreeMap<String, serde::de::IgnoredAny>>>,
    }
    match serde_json::from_slice::<Head>(bytes) {
        Ok(head) if head.format > cluster::FORMAT => return DecodeError::NewerFormat { format: head.format },
        Ok(_) => {}
        Err(error) => return DecodeError::Malformed(error.to_string()),
    }
    let names = serde_json::from_slice::<Decisions>(bytes).map(|entry| {
        let events = entry.decisions.into_iter().flat_map(|decision| decision.events);
        let types = events
            .flatten()
            .flat_map(|(machine, tags)| tags.into_keys().map(move |tag| format!("{machine}.{tag}")));
        types.collect::<Vec<String>>()
    });
    let unknown =
        names.unwrap_or_default().into_iter().find(|name| super::Event::types().all(|known| known != name));
    unknown.map_or_else(|| DecodeError::Malformed(failed.to_string()), DecodeError::UnknownEvent)
}
