//! Finding out what a server lets this connection do, without doing it.

use std::time::Duration;

use async_nats::{HeaderMap, header};
use bytes::Bytes;
use tokio::time::sleep;

use crate::nats::Connection;
use crate::{Bus, BusError};

/// No stream is called so: a message that asks for it is taken by none.
const NO_STREAM: &str = "NONE-OF-THESE";
/// How long the last answer to all of it may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often is looked whether another complaint came since, and how often there must be none.
const LOOK: Duration = Duration::from_millis(10);
const LOOKS: u32 = 3;

/// What is tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// Subjects, without wildcards.
    pub publishes: Vec<String>,
    /// Patterns.
    pub subscribes: Vec<String>,
}

/// Tries all of it, and answers what of it the server refuses. What is published is an empty message that no stream takes, has
/// nobody to answer, and means nothing to whoever hears it; what is heard meanwhile is dropped. `question` is a subject on
/// which something may be asked: the server answers in order, so that its answer comes after every refusal.
///
/// # Errors
/// There is no connection.
pub async fn attempt(
    connection: &Connection,
    attempt: &Attempt,
    question: &str,
) -> Result<Attempt, BusError> {
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
    // Whatever the answer is: it is behind every refusal.
    drop(Bus::from(connection.clone()).ask(question, Bytes::new(), PATIENCE).await);
    let complaints = settled(connection).await;
    let refused = |what: &str, subject: &String| {
        let said = format!("{what} to \"{subject}\"");
        complaints.iter().any(|complaint| complaint.contains(&said))
    };
    let publishes = attempt.publishes.iter().filter(|subject| refused("Publish", subject));
    let subscribes = attempt.subscribes.iter().filter(|pattern| refused("Subscription", pattern));
    Ok(Attempt { publishes: publishes.cloned().collect(), subscribes: subscribes.cloned().collect() })
}

/// What the server has complained of, once what it said has been taken note of.
async fn settled(connection: &Connection) -> std::collections::BTreeSet<String> {
    let (mut complaints, mut same) = (connection.complaints(), 0);
    while same < LOOKS {
        sleep(LOOK).await;
        let now = connection.complaints();
        same = if now.len() == complaints.len() { same + 1 } else { 0 };
        complaints = now;
    }
    complaints
}
