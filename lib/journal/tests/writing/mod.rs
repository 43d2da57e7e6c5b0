//! Writer for tests that kill servers during appends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use journal::{Append, AppendError, Journal};
use schemas::checksum::crc32c;
use schemas::names::{EntryId, IdGenerator};
use schemas::{Position, Subject, Timestamp};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Position, id and body checksum of a stored entry.
pub(crate) type Stored = (Position, EntryId, u32);

/// Appends entries with these bodies to one subject until `stop` is set, and returns the stored entries.
/// Repeats each append until the entry is known to be stored.
pub(crate) fn writer(
    journal: Journal,
    shard: u16,
    body: fn(u64) -> Bytes,
    stop: Arc<AtomicBool>,
) -> JoinHandle<Vec<Stored>> {
    tokio::spawn(async move {
        let (subject, mut ids, mut all) =
            (Subject::Lrp(shard), IdGenerator::new(u64::from(shard)), Vec::new());
        let mut expected = Position(0);
        while !stop.load(Ordering::Relaxed) {
            let (entry, bytes) = (EntryId(ids.next(Timestamp::from_millis(1))), body(all.len() as u64));
            expected = loop {
                let append = Append { subject: subject.clone(), expected, entry, bytes: bytes.clone() };
                match journal.append(append).await {
                    Ok(position) => break position,
                    Err(AppendError::Unknown(_)) => sleep(Duration::from_millis(20)).await,
                    Err(
                        error @ (AppendError::Conflict | AppendError::NotStored(_) | AppendError::Refused(_)),
                    ) => panic!("{error:?}"),
                }
            };
            all.push((expected, entry, crc32c(&bytes)));
        }
        all
    })
}
