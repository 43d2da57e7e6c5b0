//! What a NATS server answers when it is asked for entries: headers, and the entry behind them.

use async_nats::header::{HeaderName, HeaderValue};
use async_nats::{HeaderMap, Message};
use journal::entry_of_answer;

/// The bytes are headers, `Name: value` line by line, then after an empty line the entry. What is read as an answer has
/// the entry's bytes as they came, and the position and the subject that the headers say.
///
/// # Panics
/// Where that doesn't hold.
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
    let Ok((entry, _)) = entry_of_answer(message) else { return };
    let said = |name: &str| headers.get(name).map(|value| value.as_str().to_owned());
    assert_eq!(entry.bytes, payload);
    assert_eq!(said("Nats-Subject"), Some(entry.subject));
    assert_eq!(said("Nats-Sequence").and_then(|text| text.parse().ok()), Some(entry.position.0));
}

fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.windows(2).position(|two| two == b"\n\n");
    end.map_or((bytes, &[]), |end| (&bytes[..end], &bytes[end + 2..]))
}

/// The headers that the client library would hand on: it takes none that is not one.
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
