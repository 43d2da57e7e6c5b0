//! Answers of a NATS server to requests for entries. An answer consists of headers and an entry.

use async_nats::header::{HeaderName, HeaderValue};
use async_nats::{HeaderMap, Message};
use journal::decode_page_entry;

/// Reads the bytes as headers, one `Name: value` per line, followed by an empty line and an entry. Checks
/// that a valid answer contains the unchanged bytes of the entry. Also checks that its position and subject
/// equal those in the headers.
///
/// # Panics
/// Panics if a check fails.
pub fn check(bytes: &[u8]) {
    let (head, payload) = split(bytes);
    let headers = headers(head);
    let message = Message {
        subject: "muster.inbox.anybody".into(),
        reply: None,
        payload: payload.to_vec().into(),
        headers: Some(headers.clone()),
        status: None,
        description: None,
        length: bytes.len(),
    };
    let Ok((entry, _)) = decode_page_entry(message) else { return };
    let said = |name: &str| headers.get(name).map(|value| value.as_str().to_owned());
    assert_eq!(entry.bytes, payload);
    assert_eq!(said("Nats-Subject"), Some(entry.subject));
    assert_eq!(said("Nats-Sequence").and_then(|text| text.parse().ok()), Some(entry.position.0));
}

fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.windows(2).position(|two| two == b"\n\n");
    end.map_or((bytes, &[]), |end| (&bytes[..end], &bytes[end + 2..]))
}

/// Returns the headers that the client library would pass on. The library drops invalid headers.
fn headers(head: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in String::from_utf8_lossy(head).lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let (name, value) = (name.parse::<HeaderName>(), value.trim().parse::<HeaderValue>());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    headers
}
