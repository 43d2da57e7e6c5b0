//! Import of another journal's messages into a stream. Each message carries the expected last sequence of the
//! stream. The server therefore stores the message at exactly its position or not at all.
//!
//! Many messages are in flight (sent, but not acknowledged) at once, so the sequence alone is not enough. If
//! a foreign message took one of the positions, the next message would still find the sequence that it
//! expects. In a stream with one replica, each message therefore also carries the id of the previous message.
//! The server then rejects all messages after the foreign one. With more replicas, this id cannot be used:
//! each replica checks the id separately, and a replica that has just caught up does not know it. With any
//! number of replicas, unacknowledged messages are read back before more messages are sent.

use async_nats::{HeaderMap, Subscriber, header};
use futures::StreamExt;
use schemas::Position;
use schemas::names::EntryId;
use tokio::time::{Instant, sleep, timeout};

use super::jetstream::{JetStream, Outcome, parse_outcome};
use super::{ImportError, JournalError, StoredEntry};
use crate::limits::{ACK_TIMEOUT, IMPORT_BYTES, IMPORT_ENTRIES, IMPORT_RETRY_DELAY, IMPORT_STALL_TIMEOUT};

/// Writes messages at their original positions. Messages without an acknowledgement are sent again, starting
/// at the current end of the stream.
pub(super) async fn import(stream: &JetStream, entries: Vec<StoredEntry>) -> Result<(), ImportError> {
    let Some(first) = entries.first().map(|entry| entry.position) else { return Ok(()) };
    let start = stream.end().await?;
    if start.0 + 1 != first.0 {
        return Err(ImportError::NotNext { end: start, first });
    }
    let (mut rest, mut moved) = (&entries[..], Instant::now());
    while !rest.is_empty() {
        stream.ensure_open()?;
        let (sent, later) = rest.split_at(batch_len(rest, stream.is_unreplicated()));
        let Some(why) = send(stream, sent).await? else {
            (rest, moved) = (later, Instant::now());
            continue;
        };
        let stored = count_stored(stream, rest).await?;
        if stored > 0 {
            (rest, moved) = (&rest[stored..], Instant::now());
        }
        if moved.elapsed() > IMPORT_STALL_TIMEOUT {
            let next = rest.first().map(|next| next.position).unwrap_or_default();
            let what = format!("position {next} was not stored within {IMPORT_STALL_TIMEOUT:?}: {why}");
            return Err(JournalError::Unavailable { what, source: None }.into());
        }
        sleep(IMPORT_RETRY_DELAY).await;
    }
    Ok(())
}

/// Returns the number of messages to send in one batch. If `chained` is set, each message carries the id of
/// the previous message. A message without an id therefore ends the batch.
fn batch_len(entries: &[StoredEntry], chained: bool) -> usize {
    let (mut bytes, mut follows) = (0, true);
    let fits = |entry: &&StoredEntry| {
        bytes += entry.bytes.len();
        let fits = bytes <= IMPORT_BYTES && follows;
        follows = !chained || entry.entry.is_some();
        fits
    };
    entries.iter().take(IMPORT_ENTRIES).take_while(fits).count().max(1)
}

/// Returns the number of these entries that the stream contains.
///
/// # Errors
/// The stream contains a different entry at one of the positions, or entries after the last position.
async fn count_stored(stream: &JetStream, entries: &[StoredEntry]) -> Result<usize, ImportError> {
    let end = stream.end().await?;
    let damaged = |position: Position| {
        let what = format!(
            "position {position} has another message than the import: another program writes to the stream"
        );
        ImportError::from(JournalError::Damaged(what))
    };
    let last = entries.last().map(|last| last.position).unwrap_or_default();
    if end > last {
        return Err(damaged(Position(last.0 + 1)));
    }
    let there = entries.iter().take_while(|entry| entry.position <= end);
    let mut count = 0;
    for entry in there {
        if stream.entry_at(entry.position).await?.as_ref() != Some(entry) {
            return Err(damaged(entry.position));
        }
        count += 1;
    }
    Ok(count)
}

/// Sends messages and waits for their acknowledgements. If some messages were not stored, returns the reason.
async fn send(stream: &JetStream, entries: &[StoredEntry]) -> Result<Option<String>, ImportError> {
    let failed = |error: super::Source| JournalError::unavailable("sending entries to the stream", error);
    let client = stream.client();
    let inbox = client.new_inbox();
    let answers = client.subscribe(inbox.clone()).await.map_err(|error| failed(error.into()))?;
    // All messages before the first one were acknowledged or read back, so the first message does not need to
    // name an id.
    let mut before = None;
    for entry in entries {
        let (subject, bytes) = (entry.subject.clone(), entry.bytes.clone());
        client
            .publish_with_reply_and_headers(subject, inbox.clone(), headers(entry, before), bytes)
            .await
            .map_err(|error| ImportError::Refused { position: entry.position, why: error.to_string() })?;
        before = entry.entry.filter(|_| stream.is_unreplicated());
    }
    client.flush().await.map_err(|error| failed(error.into()))?;
    await_acknowledgements(answers, entries).await
}

/// Returns headers with the expected last sequence. If `before` is set, the headers also contain the expected
/// last id.
fn headers(entry: &StoredEntry, before: Option<EntryId>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let sequence = entry.position.0.saturating_sub(1).to_string();
    headers.insert(header::NATS_EXPECTED_LAST_SEQUENCE, sequence.as_str());
    if let Some(before) = before {
        headers.insert(header::NATS_EXPECTED_LAST_MESSAGE_ID, before.to_string());
    }
    if let Some(id) = entry.entry {
        headers.insert(header::NATS_MESSAGE_ID, id.to_string());
    }
    headers
}

/// Waits for the acknowledgements. The acknowledgements arrive in the order of the messages, because one
/// stream handles the messages of one connection in order.
async fn await_acknowledgements(
    mut answers: Subscriber,
    entries: &[StoredEntry],
) -> Result<Option<String>, ImportError> {
    for entry in entries {
        let position = entry.position;
        let answer = match timeout(ACK_TIMEOUT, answers.next()).await {
            Ok(Some(answer)) => answer,
            Ok(None) => return Ok(Some("the connection was closed".to_owned())),
            Err(_) => {
                return Ok(Some(format!("no acknowledgement of position {position} within {ACK_TIMEOUT:?}")));
            }
        };
        if answer
            .status
            .is_some_and(|status| status.as_u16() == async_nats::StatusCode::NO_RESPONDERS.as_u16())
        {
            let why = format!("no stream has the subject {}", entry.subject);
            return Err(ImportError::Refused { position, why });
        }
        match parse_outcome(&answer.payload) {
            Outcome::Stored(at) if at == position => {}
            Outcome::Stored(at) => {
                let what = format!(
                    "position {position} was stored at position {at}: another program writes to the stream"
                );
                return Err(JournalError::Damaged(what).into());
            }
            Outcome::Refused(why) => return Err(ImportError::Refused { position, why }),
            Outcome::Settle(why) | Outcome::Busy(why) | Outcome::Unknown(why) | Outcome::NotStored(why) => {
                return Ok(Some(why));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn import_batch_is_bounded_by_count_and_bytes() {
        let of = |count: u64, bytes: usize| -> Vec<StoredEntry> {
            let bytes = Bytes::from(vec![0; bytes]);
            let one = |at| StoredEntry {
                position: Position(at),
                subject: "s".into(),
                entry: Some(EntryId(Uuid::from_u128(at.into()))),
                bytes: bytes.clone(),
            };
            (1..=count).map(one).collect()
        };
        for chained in [false, true] {
            assert_eq!(batch_len(&of(3, 10), chained), 3);
            assert_eq!(batch_len(&of(1_000, 10), chained), IMPORT_ENTRIES);
            assert_eq!(batch_len(&of(10, IMPORT_BYTES / 2), chained), 2);
            assert_eq!(batch_len(&of(2, 2 * IMPORT_BYTES), chained), 1);
        }
        let mut foreign = of(5, 10);
        foreign[1].entry = None;
        assert_eq!((batch_len(&foreign, false), batch_len(&foreign, true)), (5, 2));
    }
}
