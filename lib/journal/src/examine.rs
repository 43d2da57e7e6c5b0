//! What the journal's stream is, for whoever looks at it and doesn't work with it: by the same rules by which
//! [`JetStream::open`](crate::JetStream::open) refuses one.

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
use crate::limits::{API, SAMPLE_LAG};

/// What a stream is.
#[derive(Clone, Debug)]
pub struct Examination {
    /// Everything for which services refuse to work with it.
    pub problems: Vec<String>,
    /// What of its entries is gone.
    pub losses: Vec<String>,
    /// Why it may be destroyed, although services accept it.
    pub hazards: Vec<String>,
    /// How it is made otherwise than Muster makes it, though nothing is lost by that.
    pub differences: Vec<String>,
    /// How many servers hold every entry.
    pub replicas: usize,
    /// The server that leads them, if it is known.
    pub leader: Option<String>,
    /// The other servers that hold it.
    pub peers: Vec<Peer>,
    /// Its first and its last position; both 0 of an empty one.
    pub positions: (Position, Position),
    /// Consumers of the stream: one for each program that follows the log.
    pub consumers: usize,
    /// The bytes that it takes.
    pub bytes: u64,
    /// The bytes that it may take, if there is a limit.
    pub most_bytes: Option<u64>,
    /// What the server's clock showed when it answered, as RFC 3339 has it; none: it didn't say.
    pub server_time: Option<String>,
    /// How long it took until that answer was here.
    pub took: Duration,
    /// Its last message, if it can be read.
    pub last: Option<Last>,
}

/// A server that holds the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Whether it has everything that the leader has.
    pub current: bool,
    /// Whether the others have lost it.
    pub offline: bool,
    /// How many messages it is behind.
    pub lag: u64,
}

/// The last message of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Last {
    /// Where it stands.
    pub position: Position,
    /// When the server stored it, by its clock.
    pub stored: Timestamp,
    /// When the BBS that wrote it decided it, by its clock; none: it is no entry of Muster.
    pub decided: Option<Timestamp>,
}

/// Why a stream wasn't seen.
#[derive(Debug, thiserror::Error)]
pub enum ExamineError {
    /// The server doesn't let this user ask.
    #[error("no permission to publish on {0}")]
    Forbidden(String),
    /// Nobody has made it yet.
    #[error("there is no stream {STREAM}")]
    Absent,
    /// The server has no JetStream, or this account may not use it.
    #[error("the server offers no JetStream: {0}")]
    NoJetStream(String),
    /// It doesn't answer, or with something else.
    #[error(transparent)]
    Unavailable(#[from] JournalError),
}

/// What the server answers to the question what the stream is.
#[derive(Deserialize)]
struct Answer {
    ts: Option<String>,
    error: Option<jetstream::Error>,
}

/// Why services would refuse a server, whatever its stream is.
#[must_use]
pub fn of_server(connection: &Connection) -> Vec<String> {
    let version = stream::version_problem(&connection.server_version());
    version.into_iter().chain(stream::payload_problem(connection.max_payload())).collect()
}

/// Asks what the stream is, of which services want so many replicas.
///
/// # Errors
/// It can't be seen.
pub async fn of_stream(connection: &Connection, replicas: usize) -> Result<Examination, ExamineError> {
    let asked = Instant::now();
    let (info, server_time) = info(connection).await?;
    let took = asked.elapsed();
    let Info { config, state, cluster, .. } = &info;
    let position = state.last_sequence;
    let peers = cluster.iter().flat_map(|cluster| cluster.replicas.iter().map(Peer::of));
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
        most_bytes: u64::try_from(config.max_bytes).ok().filter(|most| *most > 0),
        server_time,
        took,
        last: last(connection, position).await,
    })
}

/// The time that the server sends with its answers.
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
        |error| ExamineError::from(JournalError::unavailable("asking what the stream is", error));
    Ok((serde_json::from_slice(&answer).map_err(unreadable)?, ts))
}

/// Sends a request about the stream to the server, and returns its answer and the time of the server's clock.
pub(super) async fn request(
    connection: &Connection,
    verb: &str,
    body: Bytes,
) -> Result<(Bytes, Option<String>), ExamineError> {
    let question = format!("$JS.API.STREAM.{verb}.{STREAM}");
    let asked = Instant::now();
    let request = Request::new().payload(body).timeout(Some(API));
    let answer = tokio::select! {
        answer = connection.client().send_request(question.clone(), request) => answer,
        () = connection.refuses_to_publish(&question, asked) => return Err(ExamineError::Forbidden(question)),
    };
    let doing = format!("asking {question}");
    let answer = answer.map_err(|error| match error.kind() {
        RequestErrorKind::NoResponders => ExamineError::NoJetStream("nobody answers for it".to_owned()),
        RequestErrorKind::TimedOut
        | RequestErrorKind::InvalidSubject
        | RequestErrorKind::MaxPayloadExceeded
        | RequestErrorKind::Other => JournalError::unavailable(doing.clone(), error).into(),
    })?;
    let unreadable = |error| ExamineError::from(JournalError::unavailable(doing, error));
    let Answer { ts, error } = serde_json::from_slice(&answer.payload).map_err(unreadable)?;
    match error {
        None => Ok((answer.payload, ts)),
        Some(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => Err(ExamineError::Absent),
        Some(error) => Err(ExamineError::NoJetStream(error.to_string())),
    }
}

/// Reads the first, the last and some positions in between from the replica of the server that the connection leads to;
/// where that server has no replica that is up to date, another one answers. Returns how many were read.
///
/// # Errors
/// The first position that can't be read, and why.
pub async fn read_sampled(
    connection: &Connection,
    (first, last): (Position, Position),
) -> Result<usize, JournalError> {
    let positions = if last == Position(0) { Vec::new() } else { super::sampled(first, last) };
    let stream = stream_of(connection).await?;
    for position in &positions {
        let begin = Instant::now();
        // A replica may lag behind the leader, which named the last position.
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

async fn stream_of(connection: &Connection) -> Result<Stream<()>, JournalError> {
    let context = ContextBuilder::new().timeout(API).build(connection.client().clone());
    let stream = context.get_stream_no_info(STREAM).await;
    stream.map_err(|error| JournalError::unavailable("opening the stream", error))
}

impl Peer {
    fn of(peer: &PeerInfo) -> Self {
        let PeerInfo { name, current, offline, lag, active: _ } = peer;
        Self { name: name.clone(), current: *current, offline: *offline, lag: lag.unwrap_or(0) }
    }
}

/// The message at a position, as far as it can be read.
async fn last(connection: &Connection, position: u64) -> Option<Last> {
    if position == 0 {
        return None;
    }
    let message = stream_of(connection).await.ok()?.get_raw_message(position).await.ok()?;
    let entry = Entry::decode(&message.payload).ok();
    let decided = entry.and_then(|entry| entry.decisions.iter().map(|decision| decision.at).max());
    let millis = u64::try_from(message.time.unix_timestamp_nanos() / 1_000_000).ok()?;
    Some(Last { position: Position(position), stored: Timestamp::from_millis(millis), decided })
}
