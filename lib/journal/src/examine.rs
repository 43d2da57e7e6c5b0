//! Read-only examination of the journal's stream, for tools that diagnose the stream. The rules are those by
//! which [`JetStream::open`](crate::JetStream::open) refuses a stream.

use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::stream::{DirectGetErrorKind, Info, PeerInfo, Stream};
use async_nats::{Request, RequestErrorKind, jetstream};
use bus::nats::Connection;
use bytes::Bytes;
use schemas::{Entry, Position, Timestamp};
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use super::JournalError;
use super::stream::{self, STREAM};
use crate::limits::{API_TIMEOUT, SAMPLE_LAG};

/// Result of examining a stream.
#[derive(Clone, Debug)]
pub struct Examination {
    /// Reasons for which services refuse the stream.
    pub problems: Vec<String>,
    /// Descriptions of entries that are missing.
    pub losses: Vec<String>,
    /// Reasons for which servers may destroy the stream. Services accept the stream in spite of these
    /// reasons.
    pub hazards: Vec<String>,
    /// Harmless differences from the configuration that Muster creates.
    pub differences: Vec<String>,
    /// Number of servers that must hold every entry.
    pub replicas: usize,
    /// Server that leads the stream; `None` if unknown.
    pub leader: Option<String>,
    /// Servers other than the leader that hold the stream.
    pub peers: Vec<Peer>,
    /// First and last position; both are 0 if the stream is empty.
    pub positions: (Position, Position),
    /// Number of consumers: one for each process that follows the log.
    pub consumers: usize,
    /// Size in bytes.
    pub bytes: u64,
    /// Maximum size in bytes; `None` if the stream has no limit.
    pub max_bytes: Option<u64>,
    /// Server clock at the time of the response (RFC 3339); `None` if the server did not send it.
    pub server_time: Option<String>,
    /// Time from the request until the response arrived.
    pub latency: Duration,
    /// Last message; `None` if it cannot be read.
    pub last: Option<LastMessage>,
}

/// A server that holds the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub name: String,
    /// `true` if the server has all entries of the leader.
    pub current: bool,
    /// `true` if the leader has lost contact with the server.
    pub offline: bool,
    /// Number of messages by which the server is behind the leader.
    pub lag: u64,
}

/// The last message of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastMessage {
    pub position: Position,
    /// Time at which the server stored the message, by the server's clock.
    pub stored: Timestamp,
    /// Time at which the BBS decided the entry, by the BBS's clock; `None` if the message is not a Muster
    /// entry.
    pub decided: Option<Timestamp>,
}

/// Reason for which a stream could not be examined.
#[derive(Debug, thiserror::Error)]
pub enum ExamineError {
    /// The user may not publish on this subject.
    #[error("no permission to publish on {0}")]
    Forbidden(String),
    /// The stream does not exist.
    #[error("the stream {STREAM} does not exist")]
    Absent,
    /// The server has no JetStream, or this account may not use it.
    #[error("JetStream is not available: {0}")]
    NoJetStream(String),
    /// The server does not respond, or its response cannot be read.
    #[error(transparent)]
    Unavailable(#[from] JournalError),
}

/// Fields that every response of the stream API may have.
#[derive(Deserialize)]
struct ApiResponse {
    ts: Option<String>,
    error: Option<jetstream::Error>,
}

/// Returns the reasons for which services refuse a server. The server's stream does not matter.
#[must_use]
pub fn server_problems(connection: &Connection) -> Vec<String> {
    let version = stream::version_problem(&connection.server_version());
    version.into_iter().chain(stream::payload_problem(connection.max_payload())).collect()
}

/// Examines the stream. `replicas` is the number of replicas that services require.
///
/// # Errors
/// See [`ExamineError`].
pub async fn examine_stream(connection: &Connection, replicas: usize) -> Result<Examination, ExamineError> {
    let asked = Instant::now();
    let (info, server_time) = info(connection).await?;
    let took = asked.elapsed();
    let Info { config, state, cluster, .. } = &info;
    let position = state.last_sequence;
    let peers = cluster.iter().flat_map(|cluster| cluster.replicas.iter().map(Peer::from_info));
    Ok(Examination {
        problems: stream::problems(config, replicas),
        losses: stream::losses(state),
        hazards: stream::hazards(config, &connection.server_version()),
        differences: stream::differences(config),
        replicas: config.num_replicas,
        leader: cluster.as_ref().and_then(|cluster| cluster.leader.clone()),
        peers: peers.collect(),
        positions: (Position(state.first_sequence.min(position)), Position(position)),
        consumers: state.consumer_count,
        bytes: state.bytes,
        max_bytes: u64::try_from(config.max_bytes).ok().filter(|most| *most > 0),
        server_time,
        latency: took,
        last: last_message(connection, position).await,
    })
}

/// Returns the time that the server includes in its responses.
pub(super) async fn server_time(connection: &Connection) -> Result<Option<String>, JournalError> {
    match info(connection).await {
        Ok((_, time)) => Ok(time),
        Err(ExamineError::Unavailable(error)) => Err(error),
        Err(error @ (ExamineError::Forbidden(_) | ExamineError::Absent | ExamineError::NoJetStream(_))) => {
            Err(JournalError::Refused(error.to_string()))
        }
    }
}

async fn info(connection: &Connection) -> Result<(Info, Option<String>), ExamineError> {
    let (answer, ts) = request(connection, "INFO", Bytes::from_static(b"{}")).await?;
    let unreadable =
        |error| ExamineError::from(JournalError::unavailable("requesting the state of the stream", error));
    Ok((serde_json::from_slice(&answer).map_err(unreadable)?, ts))
}

/// Sends a request about the stream to the server. Returns the response and the time of the server's clock.
pub(super) async fn request(
    connection: &Connection,
    verb: &str,
    body: Bytes,
) -> Result<(Bytes, Option<String>), ExamineError> {
    let question = format!("$JS.API.STREAM.{verb}.{STREAM}");
    let asked = Instant::now();
    let request = Request::new().payload(body).timeout(Some(API_TIMEOUT));
    let answer = tokio::select! {
        answer = connection.client().send_request(question.clone(), request) => answer,
        () = connection.publish_denied(&question, asked) => return Err(ExamineError::Forbidden(question)),
    };
    let doing = format!("requesting {question}");
    let answer = answer.map_err(|error| match error.kind() {
        RequestErrorKind::NoResponders => ExamineError::NoJetStream("no response from its API".to_owned()),
        RequestErrorKind::TimedOut
        | RequestErrorKind::InvalidSubject
        | RequestErrorKind::MaxPayloadExceeded
        | RequestErrorKind::Other => JournalError::unavailable(doing.clone(), error).into(),
    })?;
    let unreadable = |error| ExamineError::from(JournalError::unavailable(doing, error));
    let ApiResponse { ts, error } = serde_json::from_slice(&answer.payload).map_err(unreadable)?;
    match error {
        None => Ok((answer.payload, ts)),
        Some(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => Err(ExamineError::Absent),
        Some(error) => Err(ExamineError::NoJetStream(error.to_string())),
    }
}

/// Reads the first entry, the last entry and some entries between them. Returns the number of entries read.
///
/// The server of the connection answers from its own replica. If this server has no current replica, another
/// server answers.
///
/// # Errors
/// Names the first position that cannot be read, and the reason.
pub async fn read_samples(
    connection: &Connection,
    (first, last): (Position, Position),
) -> Result<usize, JournalError> {
    let positions = if last == Position(0) { Vec::new() } else { super::sample_positions(first, last) };
    let stream = stream_handle(connection).await?;
    for position in &positions {
        let begin = Instant::now();
        // The leader reported the last position, and a replica may lag behind the leader.
        while let Err(error) = stream.direct_get(position.0).await {
            let is_absent = matches!(error.kind(), DirectGetErrorKind::NotFound);
            if !is_absent || begin.elapsed() > SAMPLE_LAG.0 {
                return Err(JournalError::unavailable(format!("position {position} can't be read"), error));
            }
            sleep(SAMPLE_LAG.1).await;
        }
    }
    Ok(positions.len())
}

async fn stream_handle(connection: &Connection) -> Result<Stream<()>, JournalError> {
    let context = ContextBuilder::new().timeout(API_TIMEOUT).build(connection.client().clone());
    let stream = context.get_stream_no_info(STREAM).await;
    stream.map_err(|error| JournalError::unavailable("opening the stream", error))
}

impl Peer {
    fn from_info(peer: &PeerInfo) -> Self {
        let PeerInfo { name, current, offline, lag, active: _ } = peer;
        Self { name: name.clone(), current: *current, offline: *offline, lag: lag.unwrap_or(0) }
    }
}

/// Returns the message at a position; `None` if it cannot be read.
async fn last_message(connection: &Connection, position: u64) -> Option<LastMessage> {
    if position == 0 {
        return None;
    }
    let message = stream_handle(connection).await.ok()?.get_raw_message(position).await.ok()?;
    let entry = Entry::decode(&message.payload).ok();
    let decided = entry.and_then(|entry| entry.decisions.iter().map(|decision| decision.at).max());
    let millis = u64::try_from(message.time.unix_timestamp_nanos() / 1_000_000).ok()?;
    Some(LastMessage { position: Position(position), stored: Timestamp::from_millis(millis), decided })
}
