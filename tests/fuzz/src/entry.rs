//! Entries of the journal that any program with write access could write.

use audit::Law;
use projections::reader::{ReadMessage, Reader};
use projections::{Violation, World};
use schemas::entry::Entry;
use schemas::names::EntryId;
use schemas::stored::{DecodeError, aggregates};
use schemas::{Position, Subject};
use uuid::Uuid;

/// Shard count of the cluster that these entries belong to.
const SHARDS: u16 = 4;

/// Decodes the bytes as an entry, and each line as the decisions of an entry with a correct checksum. Checks
/// that the encoding of a decoded entry equals its input, and that every reader of a log processes all
/// entries.
///
/// # Panics
/// Panics if a check fails.
pub fn check(bytes: &[u8]) {
    check_round_trip(bytes);
    let lines = bytes.split(|byte| *byte == b'\n');
    let entries: Vec<Vec<u8>> = (1..).zip(lines).map(|(id, line)| with_checksum(id, line)).collect();
    entries.iter().for_each(|entry| check_round_trip(entry));
    check_readers(&entries);
}

fn with_checksum(id: u128, decisions: &[u8]) -> Vec<u8> {
    Entry::encode_decisions(EntryId(Uuid::from_u128(id)), decisions)
}

fn check_round_trip(bytes: &[u8]) {
    match Entry::decode(bytes) {
        Ok(entry) => {
            let written = entry.encode();
            assert_eq!(Entry::decode(&written).as_ref(), Ok(&entry), "an encoded entry is decoded unchanged");
            let about: Vec<_> = entry.decisions.iter().map(|one| one.aggregate.clone()).collect();
            assert_eq!(aggregates(bytes), about);
        }
        Err(
            DecodeError::NewerFormat { .. }
            | DecodeError::UnknownEvent(_)
            | DecodeError::Damaged { .. }
            | DecodeError::Malformed(_),
        ) => {}
    }
}

/// Processes a log of these entries with the reader, with the fold and with the law of transitions. Restores
/// a snapshot of the result.
fn check_readers(entries: &[Vec<u8>]) {
    let (mut reader, mut world, mut law) = (Reader::default(), World::new(), Law::default());
    for (position, bytes) in (1..).map(Position).zip(entries) {
        let subject = subject_of(bytes);
        match reader.read(position, &subject, bytes) {
            Ok(ReadMessage::Entry(entry)) => {
                drop(law.judge(&world, position, &entry));
                drop(world.fold(position, &entry));
            }
            Ok(ReadMessage::Quarantined(_)) => law.quarantine(&subject, bytes),
            Err(_) => return,
        }
    }
    let is_index = |violation: &Violation| matches!(violation, Violation::Index(_));
    assert!(!world.check().iter().any(is_index), "the indexes follow the records");
    let restored = World::from_bytes(&world.to_bytes(), None).expect("a snapshot can be restored");
    assert_eq!(restored.to_bytes(), world.to_bytes(), "a snapshot contains the whole World");
}

/// Returns the subject of an entry, which follows from its first aggregate.
fn subject_of(bytes: &[u8]) -> String {
    let subject = aggregates(bytes).first().map_or(Subject::Cluster, |about| about.subject(SHARDS));
    subject.to_string()
}
