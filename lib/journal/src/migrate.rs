//! Migration of a stream that an earlier version of Muster made.

use bus::nats::Connection;
use bytes::Bytes;
use serde_json::Value;

use super::JournalError;
use super::examine::{ExamineError, request};

/// Turns compression of the stream off; returns `false` if it is off already. Everything else about the stream stays as it
/// is. Blocks of entries that are compressed already stay so, and stay readable: no entry changes.
///
/// Needs the permission to update the stream, which no service of Muster has.
///
/// # Errors
/// There is no stream, this user may not update it, or the server did not answer.
pub async fn uncompress(connection: &Connection) -> Result<bool, ExamineError> {
    let mut config = config_in(&request(connection, "INFO", Bytes::from_static(b"{}")).await?.0)?;
    if is_uncompressed(&config) {
        return Ok(false);
    }
    // The server's own text, so that settings that this program does not know stay as they are.
    config["compression"] = "none".into();
    let updated = request(connection, "UPDATE", config.to_string().into()).await;
    let refused = |why| JournalError::Unavailable {
        what: format!("the server did not update it: {why}"),
        source: None,
    };
    let updated = updated.map_err(|error| match error {
        ExamineError::NoJetStream(why) => refused(why).into(),
        error @ (ExamineError::Forbidden(_) | ExamineError::Absent | ExamineError::Unavailable(_)) => error,
    });
    let updated = config_in(&updated?.0)?;
    if is_uncompressed(&updated) {
        return Ok(true);
    }
    let what = format!("the server did not change the compression, which is {}", updated["compression"]);
    Err(JournalError::Unavailable { what, source: None }.into())
}

/// Returns the configuration in the server's answer.
fn config_in(answer: &[u8]) -> Result<Value, ExamineError> {
    let unreadable = |error| JournalError::unavailable("reading the stream's configuration", error);
    let mut answer: Value = serde_json::from_slice(answer).map_err(unreadable)?;
    Ok(answer["config"].take())
}

fn is_uncompressed(config: &Value) -> bool {
    config["compression"].as_str().is_none_or(|compression| compression == "none")
}
