//! Reads a page of a stream with one request. The server answers the request with many messages (NATS ADR-31,
//! batched direct get).

use async_nats::{Client, HeaderMap, Message, StatusCode, Subscriber, header};
use futures::StreamExt;
use schemas::limits::PAGE_BYTES;
use schemas::{Position, Subject};
use serde::Serialize;
use tokio::time::timeout;

use super::jetstream::entry_id;
use super::stream::STREAM;
use super::{JournalError, Page, StoredEntry};
use crate::limits::API_TIMEOUT;
use bus::limits::SUBSCRIPTION_QUEUE;

/// Request for a page.
#[derive(Serialize)]
struct PageRequest {
    /// Lowest sequence to return.
    seq: u64,
    batch: usize,
    max_bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_by_subj: Option<String>,
}

/// Status of the message that reports an empty result. `END_OF_BATCH` is the status of the last message of a
/// result.
const NOTHING_FOUND: u16 = 404;
const END_OF_BATCH: u16 = 204;

/// Returns entries after `after`, of one subject or of all subjects. The result has at most `limit` entries
/// and at most the bytes of a page.
pub(super) async fn read(
    client: &Client,
    after: Position,
    subject: Option<&Subject>,
    limit: usize,
) -> Result<Vec<StoredEntry>, JournalError> {
    let batch = limit.min(SUBSCRIPTION_QUEUE / 2);
    if batch == 0 {
        return Ok(Vec::new());
    }
    let subject = subject.map(Subject::to_string);
    let question = PageRequest { seq: after.0 + 1, batch, max_bytes: PAGE_BYTES, next_by_subj: subject };
    match timeout(API_TIMEOUT, request_page(client, &question)).await {
        Ok(page) => page,
        Err(_) => Err(unavailable(format!("no page of entries within {API_TIMEOUT:?}"))),
    }
}

async fn request_page(client: &Client, question: &PageRequest) -> Result<Vec<StoredEntry>, JournalError> {
    let failed = |error: super::Source| JournalError::unavailable("requesting a page of entries", error);
    let inbox = client.new_inbox();
    let answers = client.subscribe(inbox.clone()).await.map_err(|error| failed(error.into()))?;
    let bytes = serde_json::to_vec(question).map_err(|error| failed(error.into()))?;
    let api = format!("$JS.API.DIRECT.GET.{STREAM}");
    client.publish_with_reply(api, inbox, bytes.into()).await.map_err(|error| failed(error.into()))?;
    collect(answers, Position(question.seq - 1), question.batch).await
}

async fn collect(
    mut answers: Subscriber,
    after: Position,
    limit: usize,
) -> Result<Vec<StoredEntry>, JournalError> {
    let mut page = Page::new(limit);
    let mut last = 0;
    while let Some(message) = answers.next().await {
        match message.status.map(|status| status.as_u16()) {
            None | Some(200) => {}
            Some(END_OF_BATCH | NOTHING_FOUND) => return Ok(page.entries),
            Some(other) => return Err(refusal_error(other, &message)),
        }
        let (entry, before) = decode_page_entry(message)?;
        // Each response names the position of the previous response, so a lost response is detected.
        if before != last || entry.position <= after {
            return Err(unavailable(format!("a response is missing before position {}", entry.position)));
        }
        last = entry.position.0;
        page.push(entry);
    }
    Err(unavailable("the connection was closed".to_owned()))
}

/// Decodes a message of the server's response to a page request. Returns the entry and the sequence of the
/// previous message.
///
/// # Errors
/// [`JournalError::Unavailable`] if a required header is missing or invalid.
pub fn decode_page_entry(message: Message) -> Result<(StoredEntry, u64), JournalError> {
    let headers = message.headers.unwrap_or_default();
    let entry = StoredEntry {
        position: Position(number(&headers, header::NATS_SEQUENCE.as_ref())?),
        subject: text(&headers, header::NATS_SUBJECT.as_ref())?.to_owned(),
        entry: entry_id(&headers),
        bytes: message.payload,
    };
    let before = number(&headers, header::NATS_LAST_SEQUENCE.as_ref())?;
    Ok((entry, before))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, JournalError> {
    let value = headers.get(name).ok_or_else(|| unavailable(format!("a response has no header {name}")))?;
    Ok(value.as_str())
}

fn number(headers: &HeaderMap, name: &str) -> Result<u64, JournalError> {
    let text = text(headers, name)?;
    text.parse().map_err(|error| JournalError::unavailable(format!("invalid header {name} {text:?}"), error))
}

fn refusal_error(status: u16, message: &Message) -> JournalError {
    let why = message.description.as_deref().unwrap_or_default();
    if status == StatusCode::NO_RESPONDERS.as_u16() {
        return unavailable("no response for the stream".to_owned());
    }
    unavailable(format!("the server refused a page of entries: {status} {why}"))
}

fn unavailable(what: String) -> JournalError {
    JournalError::Unavailable { what, source: None }
}
