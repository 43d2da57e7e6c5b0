//! Migration of a stream that an earlier version of Muster created.

use bus::nats::Connection;
use bytes::Bytes;
use serde_json::Value;

use super::JournalError;
use super::examine::{ExamineError, request};

/// Turns off compression of the stream. Returns `false` if compression is already off.
///
/// All other settings stay the same. Blocks that are already compressed remain compressed and readable; no
/// entry changes.
///
/// The user needs the permission to update the stream. No service of Muster has this permission.
///
/// # Errors
/// The stream does not exist, the user may not update it, or the server did not respond.
pub async fn uncompress(connection: &Connection) -> Result<bool, ExamineError> {
    let mut config = response_config(&request(connection, "INFO", Bytes::from_static(b"{}")).await?.0)?;
    if is_uncompressed(&config) {
        return Ok(false);
    }
    // Edit the server's own JSON, so that settings unknown to this program are kept.
    config["compression"] = "none".into();
    let updated = request(connection, "UPDATE", config.to_string().into()).await;
    let refused = |why| JournalError::Unavailable {
        what: format!("the server did not update the stream: {why}"),
        source: None,
    };
    let updated = updated.map_err(|error| match error {
        ExamineError::NoJetStream(why) => refused(why).into(),
        error @ (ExamineError::Forbidden(_) | ExamineError::Absent | ExamineError::Unavailable(_)) => error,
    });
    let updated = response_config(&updated?.0)?;
    if is_uncompressed(&updated) {
        return Ok(true);
    }
    let what = format!("the compression is still {} after the update", updated["compression"]);
    Err(JournalError::Unavailable { what, source: None }.into())
}

/// Returns the configuration in the server's response.
fn response_config(answer: &[u8]) -> Result<Value, ExamineError> {
    let unreadable = |error| JournalError::unavailable("reading the stream's configuration", error);
    let mut answer: Value = serde_json::from_slice(answer).map_err(unreadable)?;
    Ok(answer["config"].take())
}

fn is_uncompressed(config: &Value) -> bool {
    config["compression"].as_str().is_none_or(|compression| compression == "none")
}
