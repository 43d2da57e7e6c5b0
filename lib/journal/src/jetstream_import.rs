//! Writing another journal's messages into a stream as they are: each names the sequence that must be the stream's last, so
//! that it gets exactly its position or is not stored at all.

use async_nats::{HeaderMap, Subscriber, header};
use futures::StreamExt;
use tokio::time::{Instant, sleep, timeout};

use super::jetstream::{JetStream, Outcome, outcome};
use super::{ImportError, JournalError, Recorded};
use crate::limits::{ACK, IMPORT_AGAIN, IMPORT_BYTES, IMPORT_ENTRIES, IMPORT_STALL};

/// Writes messages, each where it stood. What was not acknowledged is sent again from where the stream ends then.
pub(super) async fn import(stream: &JetStream, entries: Vec<Recorded>) -> Result<(), ImportError> {
    let Some(first) = entries.first().map(|entry| entry.position) else { return Ok(()) };
    let start = stream.end().await?;
    if start.0 + 1 != first.0 {
        return Err(ImportError::NotNext { end: start, first });
    }
    let (mut end, mut moved) = (start, Instant::now());
    loop {
        stream.open_still()?;
        let done = usize::try_from(end.0.saturating_sub(start.0)).unwrap_or(usize::MAX);
        let Some(rest) = entries.get(done..).filter(|rest| !rest.is_empty()) else { return Ok(()) };
        let rest = &rest[..at_once(rest)];
        let stopped = send(stream, rest).await?;
        let reached = stream.end().await?;
        if reached > end {
            (end, moved) = (reached, Instant::now());
        }
        let Some(why) = stopped else { continue };
        if moved.elapsed() > IMPORT_STALL {
            let what = format!("nothing was stored after position {end} for {IMPORT_STALL:?}: {why}");
            return Err(JournalError::Unavailable { what, source: None }.into());
        }
        sleep(IMPORT_AGAIN).await;
    }
}

/// How many of these go at once.
fn at_once(entries: &[Recorded]) -> usize {
    let mut bytes = 0;
    let fits = |entry: &&Recorded| {
        bytes += entry.bytes.len();
        bytes <= IMPORT_BYTES
    };
    entries.iter().take(IMPORT_ENTRIES).take_while(fits).count().max(1)
}

/// Sends messages and awaits their acknowledgements. Answers why some of them were not stored, if that is so.
async fn send(stream: &JetStream, entries: &[Recorded]) -> Result<Option<String>, ImportError> {
    let failed = |error: super::Source| JournalError::unavailable("sending entries to the stream", error);
    let client = stream.client();
    let inbox = client.new_inbox();
    let answers = client.subscribe(inbox.clone()).await.map_err(|error| failed(error.into()))?;
    for entry in entries {
        let mut headers = HeaderMap::new();
        let before = entry.position.0.saturating_sub(1).to_string();
        headers.insert(header::NATS_EXPECTED_LAST_SEQUENCE, before.as_str());
        if let Some(id) = entry.entry {
            headers.insert(header::NATS_MESSAGE_ID, id.to_string());
        }
        let (subject, bytes) = (entry.subject.clone(), entry.bytes.clone());
        client
            .publish_with_reply_and_headers(subject, inbox.clone(), headers, bytes)
            .await
            .map_err(|error| ImportError::Refused { position: entry.position, why: error.to_string() })?;
    }
    client.flush().await.map_err(|error| failed(error.into()))?;
    acknowledged(answers, entries).await
}

/// Acknowledgements come in the order of the messages, as one stream takes one connection's messages.
async fn acknowledged(mut answers: Subscriber, entries: &[Recorded]) -> Result<Option<String>, ImportError> {
    for entry in entries {
        let position = entry.position;
        let answer = match timeout(ACK, answers.next()).await {
            Ok(Some(answer)) => answer,
            Ok(None) => return Ok(Some("the connection ended".to_owned())),
            Err(_) => return Ok(Some(format!("no acknowledgement of position {position} within {ACK:?}"))),
        };
        if answer
            .status
            .is_some_and(|status| status.as_u16() == async_nats::StatusCode::NO_RESPONDERS.as_u16())
        {
            let why = format!("no stream takes {}", entry.subject);
            return Err(ImportError::Refused { position, why });
        }
        match outcome(&answer.payload) {
            Outcome::Stored(at) if at == position => {}
            Outcome::Stored(at) => {
                let what = format!("position {position} was stored at position {at}: somebody else writes");
                return Err(JournalError::Damaged(what).into());
            }
            Outcome::Refused(why) => return Err(ImportError::Refused { position, why }),
            Outcome::Settle(why) | Outcome::Busy(why) | Outcome::Unknown(why) => return Ok(Some(why)),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use schemas::Position;

    use super::*;

    #[test]
    fn what_goes_at_once_is_bounded_by_number_and_by_bytes() {
        let of = |count: u64, bytes: usize| -> Vec<Recorded> {
            let bytes = Bytes::from(vec![0; bytes]);
            let one = |at| Recorded {
                position: Position(at),
                subject: "s".into(),
                entry: None,
                bytes: bytes.clone(),
            };
            (1..=count).map(one).collect()
        };
        assert_eq!(at_once(&of(3, 10)), 3);
        assert_eq!(at_once(&of(1_000, 10)), IMPORT_ENTRIES);
        assert_eq!(at_once(&of(10, IMPORT_BYTES / 2)), 2);
        assert_eq!(at_once(&of(2, 2 * IMPORT_BYTES)), 1);
    }
}
