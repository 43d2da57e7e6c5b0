//! Probing of the permissions that a server grants to a connection, without side effects.

use std::time::Duration;

use async_nats::{HeaderMap, header};
use bytes::Bytes;
use tokio::time::sleep;

use crate::nats::Connection;
use crate::{Bus, BusError};

/// Name of a stream that does not exist. No stream stores a message that expects this stream.
const NO_STREAM: &str = "NONE-OF-THESE";
/// Timeout of the request that follows all attempts.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of the checks for new refusals. The wait ends after [`QUIET_POLLS`] checks without a new refusal.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const QUIET_POLLS: u32 = 3;

/// Operations that are attempted or refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// Subjects to publish on, without wildcards.
    pub publishes: Vec<String>,
    /// Patterns to subscribe to.
    pub subscribes: Vec<String>,
}

/// Attempts all operations and returns those that the server refuses.
///
/// The published messages are empty, are not stored by any stream and have no reply subject. Received
/// messages are dropped. `question` is a subject that requests may be sent to. A request on `question` ends
/// the attempts. The server processes messages in order, so the response to this request arrives after every
/// refusal.
///
/// # Errors
/// Returns an error if the connection is lost.
pub async fn probe_permissions(
    connection: &Connection,
    attempt: &Operations,
    question: &str,
) -> Result<Operations, BusError> {
    let lost = |error: &dyn std::fmt::Display| BusError::Disconnected(error.to_string());
    let client = connection.client();
    let mut headers = HeaderMap::new();
    headers.insert(header::NATS_EXPECTED_STREAM, NO_STREAM);
    for subject in &attempt.publishes {
        let published = client.publish_with_headers(subject.clone(), headers.clone(), Bytes::new());
        published.await.map_err(|error| lost(&error))?;
    }
    let mut heard = vec![];
    for pattern in &attempt.subscribes {
        heard.push(client.subscribe(pattern.clone()).await.map_err(|error| lost(&error))?);
    }
    // Every result, even an error, arrives after all refusals.
    drop(Bus::from(connection.clone()).request(question, Bytes::new(), PROBE_TIMEOUT).await);
    let complaints = wait_for_refusals(connection).await;
    let refused = |what: &str, subject: &String| {
        let said = format!("{what} to \"{subject}\"");
        complaints.iter().any(|complaint| complaint.contains(&said))
    };
    let publishes = attempt.publishes.iter().filter(|subject| refused("Publish", subject));
    let subscribes = attempt.subscribes.iter().filter(|pattern| refused("Subscription", pattern));
    Ok(Operations { publishes: publishes.cloned().collect(), subscribes: subscribes.cloned().collect() })
}

/// Returns the refusals of the server as soon as no new ones arrive.
async fn wait_for_refusals(connection: &Connection) -> std::collections::BTreeSet<String> {
    let (mut complaints, mut same) = (connection.violation_messages(), 0);
    while same < QUIET_POLLS {
        sleep(POLL_INTERVAL).await;
        let now = connection.violation_messages();
        same = if now.len() == complaints.len() { same + 1 } else { 0 };
        complaints = now;
    }
    complaints
}
