//! Encoding of messages of the bus. Clients use JSON. Muster's own services exchange postcard if they were
//! built from the same schema. Otherwise they exchange the same types as JSON, so that different versions can
//! communicate during a rolling upgrade.
//!
//! A postcard message consists of `MUS1`, the schema number (8 bytes), the length of the body (4 bytes) and
//! the body; numbers are little-endian. Any other message is decoded as JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::action::depth_of_json;
use crate::fields::{Problems, read_json, use_integers};
use crate::limits::MESSAGE_BYTES;
use crate::refusal::{BadField, Code, Refusal};

const MAGIC: [u8; 4] = *b"MUS1";
const HEADER_BYTES: usize = 16;

/// Maximum nesting depth of JSON. An action tree of depth 16 needs three levels for each node.
pub const MAX_JSON_DEPTH: usize = 64;

/// Encoding of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Text for any client.
    Json,
    /// Binary encoding for services of the same schema.
    Postcard,
}

/// Number of the postcard schema. Programs with the same number can decode each other's messages.
///
/// The number is a checksum of the postcard bytes of one example of every message, so every change that alters
/// these bytes changes the number. Renaming alone does not alter the bytes. A change of a variant that no example
/// contains is not detected: add the variant to the examples.
pub const SCHEMA_VERSION: u64 = parse_number(include_str!("postcard.txt"));

/// Parses the decimal number at the start of a text.
const fn parse_number(text: &str) -> u64 {
    let (mut number, mut at) = (0, 0);
    while at < text.len() && text.as_bytes()[at].is_ascii_digit() {
        number = number * 10 + (text.as_bytes()[at] - b'0') as u64;
        at += 1;
    }
    number
}

/// Encodes a message.
///
/// # Panics
/// Never for the types of this crate: they are plain data.
#[must_use]
pub fn encode<T: Serialize>(form: Form, message: &T) -> Vec<u8> {
    match form {
        Form::Json => serde_json::to_vec(message).expect("a message is plain data"),
        Form::Postcard => {
            let mut bytes = Vec::with_capacity(256);
            bytes.extend_from_slice(&MAGIC);
            bytes.extend_from_slice(&SCHEMA_VERSION.to_le_bytes());
            bytes.extend_from_slice(&[0; 4]);
            let mut bytes = postcard::to_extend(message, bytes).expect("a message is plain data");
            let length = u32::try_from(bytes.len() - HEADER_BYTES).unwrap_or(u32::MAX);
            bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
            bytes
        }
    }
}

/// Decodes a message. Also returns the form of the message, so that the answer can use the same form.
///
/// # Errors
///
/// `Unreadable` for postcard of another schema: the sender must repeat the message as JSON. `InvalidRequest`
/// for a message that is malformed, truncated, too long or too deep, or that has bytes after its end.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, Form), Refusal> {
    if bytes.len() > MESSAGE_BYTES {
        return Err(invalid_message(format!("has {} bytes, more than {MESSAGE_BYTES}", bytes.len())));
    }
    if bytes.starts_with(&MAGIC) {
        return decode_postcard(bytes).map(|message| (message, Form::Postcard));
    }
    // serde would accept a list as the fields of a struct in their order.
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err(invalid_message("is not a JSON object".to_owned()));
    }
    if depth_of_json(bytes) > MAX_JSON_DEPTH {
        return Err(invalid_message(format!("is nested deeper than {MAX_JSON_DEPTH}")));
    }
    decode_json(bytes).map(|message| (message, Form::Json))
}

/// Decodes JSON. A number without a fraction, such as `5.0`, is an integer.
fn decode_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let refusal = match serde_json::from_slice(bytes) {
        Ok(message) => return Ok(message),
        Err(error) => invalid_message(error.to_string()),
    };
    let problems = Problems::default();
    let mut value = read_json(bytes, &problems)?;
    use_integers(&mut value);
    let value = problems.into_result(Some(value))?;
    serde_json::from_value(value).map_err(|_| refusal)
}

fn decode_postcard<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let Some((head, body)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Err(invalid_message("is truncated".into()));
    };
    let schema = head[4..12].try_into().map(u64::from_le_bytes).unwrap_or(0);
    if schema != SCHEMA_VERSION {
        return Err(Refusal::new(
            Code::Unreadable,
            "the message was encoded with another schema: send it \
            as JSON",
        ));
    }
    let length = head[12..].try_into().map(u32::from_le_bytes).unwrap_or(0);
    if usize::try_from(length) != Ok(body.len()) {
        return Err(invalid_message(format!(
            "has a body of {} bytes, but its header announces \
            {length}",
            body.len()
        )));
    }
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(invalid_message(format!("has {} trailing bytes", rest.len()))),
        Err(error) => Err(invalid_message(error.to_string())),
    }
}

fn invalid_message(problem: String) -> Refusal {
    Refusal::invalid(vec![BadField { field: "message".into(), problem }])
}
