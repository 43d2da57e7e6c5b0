//! Entries of the journal, as whoever may write there could write them.

use audit::Law;
use projections::World;
use projections::reader::{Read, Reader};
use schemas::entry::{DecodeError, Entry, aggregates};
use schemas::names::EntryId;
use schemas::{Position, Subject};
use uuid::Uuid;

/// Shards of the cluster that these entries are of.
const SHARDS: u16 = 4;

/// The bytes are read as an entry as they stand, and, line by line, as the decisions of entries whose checksums are right:
/// what is read is written as it was, and every reader of a log goes through all of it.
///
/// # Panics
/// Where that doesn't hold.
pub fn check(bytes: &[u8]) {
    written_as_read(bytes);
    let lines = bytes.split(|byte| *byte == b'\n');
    let entries: Vec<Vec<u8>> = (1..).zip(lines).map(|(id, line)| sealed(id, line)).collect();
    entries.iter().for_each(|entry| written_as_read(entry));
    read_through(&entries);
}

fn sealed(id: u128, decisions: &[u8]) -> Vec<u8> {
    Entry::encode_decisions(EntryId(Uuid::from_u128(id)), decisions)
}

fn written_as_read(bytes: &[u8]) {
    match Entry::decode(bytes) {
        Ok(entry) => {
            let written = entry.encode();
            assert_eq!(Entry::decode(&written).as_ref(), Ok(&entry), "an entry that was written is read");
            let about: Vec<_> = entry.decisions.iter().map(|one| one.aggregate.clone()).collect();
            assert_eq!(aggregates(bytes), about);
        }
        Err(
            DecodeError::Future { .. }
            | DecodeError::UnknownEvent(_)
            | DecodeError::Damaged { .. }
            | DecodeError::Malformed(_),
        ) => {}
    }
}

/// A log of these entries: the reader, the fold, the law of transitions, and the snapshot behind all.
fn read_through(entries: &[Vec<u8>]) {
    let (mut reader, mut world, mut law) = (Reader::default(), World::new(), Law::default());
    for (position, bytes) in (1..).map(Position).zip(entries) {
        let subject = subject_of(bytes);
        match reader.read(position, &subject, bytes) {
            Ok(Read::Entry(entry)) => {
                drop(law.judge(&world, position, &entry));
                drop(world.fold(position, &entry));
            }
            Ok(Read::SetAside(_)) => law.set_aside(&subject, bytes),
            Err(_) => return,
        }
    }
    let restored = World::restore(&world.snapshot(), None).expect("a snapshot that was taken is read");
    assert_eq!(restored.snapshot(), world.snapshot(), "a snapshot holds all of the World");
}

/// Where an entry belongs by what it is about first.
fn subject_of(bytes: &[u8]) -> String {
    let subject = aggregates(bytes).first().map_or(Subject::Cluster, |about| about.subject(SHARDS));
    subject.to_string()
}
