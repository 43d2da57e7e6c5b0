//! Exports of the log, and files of checkpoints, from untrusted sources.

use audit::export::{ParsedLine, Reader};
use audit::verify::{Checkpoints, Trust, Verifier};
use schemas::Position;

/// Reads the bytes as an export, line by line, and as checkpoints of this export. Checks that a manifest
/// contains the number of messages before the manifest.
///
/// # Panics
/// Panics if the check fails.
pub fn check(bytes: &[u8]) {
    let checkpoints = Checkpoints::read(bytes, Trust { key: None, cluster: None });
    let mut verify = Verifier::new(checkpoints.trusted, Position(1));
    let (mut reader, mut messages) = (Reader::default(), 0);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match reader.take(line) {
            Ok(ParsedLine::Header(_)) => {}
            Ok(ParsedLine::Message(message)) => {
                messages += 1;
                drop(verify.add(&message));
            }
            Ok(ParsedLine::Manifest(manifest)) => assert_eq!(manifest.count, messages),
            Err(_) => return,
        }
    }
    drop(verify.finish());
    drop(reader.finish());
}
