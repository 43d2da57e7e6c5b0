//! An export of the log, and a file of checkpoints, as anybody may hand them in.

use audit::export::{Reader, Taken};
use audit::verify::{Checkpoints, Trust, Verify};
use schemas::Position;

/// The bytes are read as an export, line by line, and as checkpoints of what the export holds; what holds a manifest held
/// as many messages as it says.
///
/// # Panics
/// Where that doesn't hold.
pub fn check(bytes: &[u8]) {
    let checkpoints = Checkpoints::read(bytes, Trust { key: None, cluster: None });
    let mut verify = Verify::new(checkpoints.trusted, Position(1));
    let (mut reader, mut messages) = (Reader::default(), 0);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match reader.take(line) {
            Ok(Taken::Head(_)) => {}
            Ok(Taken::Message(message)) => {
                messages += 1;
                drop(verify.add(&message));
            }
            Ok(Taken::Manifest(manifest)) => assert_eq!(manifest.count, messages),
            Err(_) => return,
        }
    }
    drop(verify.finish());
    drop(reader.finish());
}
