//! The journal as a stream on a NATS server.
//!
//! An append is one request. Its message carries the id of the entry and the expected sequence: the sequence
//! that the subject's last message must have. A rejection of the expected sequence is not always a conflict.
//! With one replica, the server also rejects an entry that was stored earlier and whose acknowledgement was
//! lost. So after a rejection, the append reads the message after the expected sequence from the stream's
//! leader, and compares the ids.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::jetstream::context::{ContextBuilder, GetStreamError, GetStreamErrorKind};
use async_nats::jetstream::stream::{Info, RawMessageBuilder, RawMessageErrorKind, Stream};
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{HeaderMap, Request, RequestErrorKind, header};
use parking_lot::{Mutex, MutexGuard};
use schemas::names::EntryId;
use schemas::{Position, Subject};
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::examine;
use super::facts::{self, Facts};
pub(super) use super::jetstream_follower::Follower;
use super::stream::{self, STREAM, StreamSettings};
use super::{Append, AppendError, Durability, JournalError, StoredEntry};
use crate::limits::{ACK_TIMEOUT, API_TIMEOUT, RECONNECT_POLL_INTERVAL};
use bus::nats::Connection;

/// Delays before a message is sent again because the server is busy with another message of the same subject.
///
/// A cluster may report itself as busy for a moment even after it has acknowledged the other message. Sending
/// the message again is safe, because it carries the same entry.
const BUSY_RETRY_DELAYS: [Duration; 5] = [
    Duration::from_micros(100),
    Duration::from_millis(1),
    Duration::from_millis(5),
    Duration::from_millis(20),
    Duration::from_millis(100),
];

/// A journal on JetStream. Clones share the same journal and connection.
#[derive(Clone, Debug)]
pub struct JetStream {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    connection: Connection,
    stream: Stream<()>,
    durability: Durability,
    /// Number of servers that hold every entry.
    replicas: usize,
    /// Reason why followers cannot read the journal; `None` if they can.
    unreadable: Arc<Mutex<Option<String>>>,
    history: History,
    monitoring: Vec<String>,
    closing: CancellationToken,
}

/// State for detecting that a new connection reaches a different log, such as an older backup or a stream
/// that was created again.
#[derive(Debug)]
struct History {
    /// Creation time of the stream.
    created: String,
    /// The last entry that was delivered to a follower.
    delivered: Mutex<Option<Delivered>>,
    /// Number of the connection on which the log was last compared with the delivered entries.
    compared: AtomicU64,
}

/// Position and checksum of an entry that was delivered to a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delivered {
    pub(super) position: Position,
    pub(super) checksum: u64,
}

impl History {
    fn new(created: String, connection: &Connection) -> Self {
        let compared = AtomicU64::new(*connection.connect_count().borrow());
        Self { created, delivered: Mutex::default(), compared }
    }

    fn delivered(&self) -> MutexGuard<'_, Option<Delivered>> {
        self.delivered.lock()
    }
}

/// Response of the server to a message that is published to the stream.
#[derive(Debug, Deserialize)]
struct PublishResponse {
    #[serde(default)]
    stream: String,
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    duplicate: bool,
    error: Option<jetstream::Error>,
}

/// Result of a publish attempt.
#[derive(Debug)]
pub(super) enum Outcome {
    Stored(Position),
    /// Either this entry was stored earlier, or another entry was stored in its place. Only reading the
    /// stream shows which case applies.
    Settle(String),
    /// Another message of the subject is being replicated or has just arrived. The append must be retried.
    Busy(String),
    Unknown(String),
    /// The server stored nothing, for a temporary reason.
    NotStored(String),
    Refused(String),
}

/// Error codes of rejections that store nothing, for a temporary reason. The names are those in nats-server.
const NOT_STORED: [(ErrorCode, &str); 9] = [
    (ErrorCode::ACCOUNT_RESOURCES_EXCEEDED, "JSAccountResourcesExceededErr"),
    (ErrorCode::INSUFFICIENT_RESOURCES, "JSInsufficientResourcesErr"),
    (ErrorCode::MEMORY_RESOURCES_EXCEEDED, "JSMemoryResourcesExceededErr"),
    (ErrorCode::STORAGE_RESOURCES_EXCEEDED, "JSStorageResourcesExceededErr"),
    (ErrorCode::JETSTREAM_NOT_ENABLED, "JSNotEnabledErr"),
    (ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT, "JSNotEnabledForAccountErr"),
    (ErrorCode::STREAM_OFFLINE, "JSStreamOfflineErr"),
    (ErrorCode::STREAM_OFFLINE_REASON, "JSStreamOfflineReasonErrF"),
    (ErrorCode::STREAM_TOO_MANY_REQUESTS, "JSStreamTooManyRequests"),
];

/// Descriptions of the error `JSStreamStoreFailedF` when a limit of the stream is reached. The server checks
/// these limits before it writes. Any other description means that the write itself failed, and that the
/// outcome is unknown.
const LIMIT_REACHED: [&str; 2] = ["maximum bytes exceeded", "maximum messages exceeded"];

impl JetStream {
    /// Opens the stream, or creates it, and checks the stream and the server.
    ///
    /// # Errors
    /// [`JournalError::Refused`] lists everything that could lose or rewrite history. Other errors mean that
    /// the server did not respond.
    pub async fn open(connection: Connection, settings: &StreamSettings) -> Result<Self, JournalError> {
        let version = connection.server_version();
        let server = [stream::version_problem(&version), stream::payload_problem(connection.max_payload())];
        let mut problems: Vec<String> = server.into_iter().flatten().collect();
        let context = ContextBuilder::new().timeout(API_TIMEOUT).build(connection.client().clone());
        let info = find_or_create_stream(&connection, &context, settings).await?;
        problems.extend(stream::problems(&info.config, settings.replicas));
        problems.extend(stream::losses(&info.state));
        check_no_problems(&problems)?;
        if settings.imports.is_none()
            && let Some(what) = stream::unfinished_import(&info)
        {
            return Err(JournalError::Unavailable { what, source: None });
        }
        for hazard in stream::hazards(&info.config, &version) {
            tracing::error!("{hazard}");
        }
        let durability = stream::durability(&settings.monitoring).await;
        match &durability {
            Durability::Synced => {}
            worth @ (Durability::Unverified(_) | Durability::Volatile) if settings.create => {
                tracing::warn!("durability of acknowledged entries: {worth}");
            }
            // A process that may not create the stream is a reader. The durability of writes does not matter
            // to a reader.
            Durability::Unverified(_) | Durability::Volatile => {}
        }
        Self::from_info(connection, &info, durability, settings.monitoring.clone()).await
    }

    /// Opens the stream for inspection, regardless of its configuration and of lost entries. Services must
    /// not use this function, and callers must not write to the returned journal.
    ///
    /// # Errors
    /// The stream does not exist, it does not allow direct reads, or the server did not respond.
    pub async fn inspect(connection: Connection) -> Result<Self, JournalError> {
        let context = ContextBuilder::new().timeout(API_TIMEOUT).build(connection.client().clone());
        let settings = StreamSettings { create: false, ..StreamSettings::default() };
        let info = find_or_create_stream(&connection, &context, &settings).await?;
        let direct = "allow_direct isn't set, but reading requires it".to_owned();
        check_no_problems(&(!info.config.allow_direct).then_some(direct).into_iter().collect::<Vec<_>>())?;
        Self::from_info(connection, &info, Durability::Unverified("inspection only".to_owned()), vec![]).await
    }

    async fn from_info(
        connection: Connection,
        info: &Info,
        durability: Durability,
        monitoring: Vec<String>,
    ) -> Result<Self, JournalError> {
        let shared = Shared {
            stream: stream_handle(&connection).await?,
            durability,
            replicas: info.config.num_replicas,
            unreadable: Arc::default(),
            history: History::new(creation_time(info), &connection),
            monitoring,
            closing: CancellationToken::new(),
            connection,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the same journal over another connection.
    ///
    /// # Errors
    /// The stream cannot be opened over the connection.
    pub async fn with_connection(&self, connection: Connection) -> Result<Self, JournalError> {
        let Shared { durability, replicas, unreadable, history, monitoring, closing, .. } = &*self.shared;
        let shared = Shared {
            stream: stream_handle(&connection).await?,
            durability: durability.clone(),
            replicas: *replicas,
            unreadable: Arc::clone(unreadable),
            history: History::new(history.created.clone(), &connection),
            monitoring: monitoring.clone(),
            closing: closing.clone(),
            connection,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the time that the server sends with its responses.
    pub(super) async fn server_time(&self) -> Result<Option<String>, JournalError> {
        examine::server_time(&self.shared.connection).await
    }

    pub(super) async fn append(&self, append: Append) -> Result<Position, AppendError> {
        if self.shared.closing.is_cancelled() {
            return Err(AppendError::Unknown(JournalError::Closed));
        }
        self.verify_history_once().await.map_err(AppendError::Unknown)?;
        let subject = append.subject.to_string();
        let mut waits = BUSY_RETRY_DELAYS.into_iter();
        loop {
            let unknown = |what| AppendError::Unknown(JournalError::Unavailable { what, source: None });
            return match self.publish(&subject, &append).await {
                Outcome::Stored(position) => Ok(position),
                Outcome::Refused(why) => Err(AppendError::Refused(why)),
                Outcome::Unknown(what) => Err(unknown(what)),
                Outcome::NotStored(why) => Err(AppendError::NotStored(why)),
                Outcome::Settle(what) => self.settle(&subject, &append, what).await,
                Outcome::Busy(what) => match waits.next() {
                    Some(wait) => {
                        sleep(wait).await;
                        continue;
                    }
                    None => self.settle(&subject, &append, what).await,
                },
            };
        }
    }

    async fn publish(&self, subject: &str, append: &Append) -> Outcome {
        let mut headers = HeaderMap::new();
        headers.insert(header::NATS_MESSAGE_ID, append.entry.to_string());
        headers.insert(header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, append.expected.to_string());
        let request =
            Request::new().headers(headers).payload(append.bytes.clone()).timeout(Some(ACK_TIMEOUT));
        let sent = Instant::now();
        // The request's own timeout starts only after the connection has accepted it.
        let answer =
            timeout(ACK_TIMEOUT, self.shared.connection.client().send_request(subject.to_owned(), request))
                .await;
        let late = || {
            if self.shared.connection.publish_was_denied(subject, sent) {
                return Outcome::Refused(format!("no permission to publish on {subject}"));
            }
            Outcome::Unknown(format!("no acknowledgement for {subject} within {ACK_TIMEOUT:?}"))
        };
        match answer {
            Err(_) => late(),
            Ok(Ok(message)) => parse_outcome(&message.payload),
            Ok(Err(error)) => match error.kind() {
                RequestErrorKind::TimedOut => late(),
                RequestErrorKind::NoResponders => Outcome::Unknown(format!(
                    "no response for {subject}: the stream does not exist or has no leader"
                )),
                RequestErrorKind::InvalidSubject | RequestErrorKind::MaxPayloadExceeded => {
                    Outcome::Refused(error.to_string())
                }
                RequestErrorKind::Other => Outcome::Unknown(error.to_string()),
            },
        }
    }

    /// Reads the first message of the subject after the expected position. If the entry of this append is
    /// stored, this message contains the entry.
    async fn settle(&self, subject: &str, append: &Append, what: String) -> Result<Position, AppendError> {
        let next = self.message_request().next_by_subject(subject).sequence(append.expected.0 + 1);
        if let Some(next) = fetch_message(next).await.map_err(AppendError::Unknown)? {
            let same = next.entry == Some(append.entry);
            return if same { Ok(next.position) } else { Err(AppendError::Conflict) };
        }
        let last = self.last(subject).await.map_err(AppendError::Unknown)?;
        if last.map(|last| last.position).unwrap_or_default() != append.expected {
            return Err(AppendError::Conflict);
        }
        // The leader rejected the sequence because of a message that is not applied yet. That message may
        // contain this entry.
        Err(AppendError::Unknown(JournalError::Unavailable { what, source: None }))
    }

    /// Compares the log with the delivered entries, once per connection. A decision made on one log must not
    /// be appended to another log.
    ///
    /// Waits for a connection first. A message sent while disconnected would go to an unknown log: the log
    /// that the next connection reaches.
    async fn verify_history_once(&self) -> Result<(), JournalError> {
        let since = Instant::now();
        while !self.shared.connection.is_connected() {
            if since.elapsed() >= ACK_TIMEOUT {
                let what = format!("no connection to a NATS server within {ACK_TIMEOUT:?}");
                return Err(JournalError::Unavailable { what, source: None });
            }
            sleep(RECONNECT_POLL_INTERVAL).await;
        }
        let (history, made) = (&self.shared.history, *self.connection_count().borrow());
        if history.compared.load(Ordering::Relaxed) == made {
            return Ok(());
        }
        let end = self.verified_end().await?;
        let delivered = *history.delivered();
        if let Some(delivered) = delivered {
            super::check_not_beyond(delivered.position, end)?;
            self.verify_delivered(delivered).await?;
        }
        history.compared.store(made, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the end of the journal after checking that the stream is still the stream that was opened.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] if the stream was created again. Other errors mean that the server did not
    /// respond.
    pub(super) async fn verified_end(&self) -> Result<Position, JournalError> {
        self.ensure_open()?;
        let info = self.shared.stream.get_info().await;
        let info =
            info.map_err(|error| JournalError::unavailable("requesting the end of the journal", error))?;
        let now = creation_time(&info);
        if now != self.shared.history.created {
            return Err(JournalError::Damaged(format!(
                "the stream {STREAM} was created again at {now}: its log was restored or founded again"
            )));
        }
        Ok(Position(info.state.last_sequence))
    }

    /// Compares the entry at a position with the entry that was delivered for that position.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] if the entries differ. Other errors mean that the entry cannot be read.
    pub(super) async fn verify_delivered(&self, delivered: Delivered) -> Result<(), JournalError> {
        let Delivered { position, checksum } = delivered;
        let stands = self.entry_at(position).await?;
        if stands.is_some_and(|one| one.checksum() == checksum) {
            return Ok(());
        }
        Err(JournalError::Damaged(format!(
            "position {position} has a different entry than before: an older log was restored"
        )))
    }

    /// Records the last entry that was delivered to a follower.
    pub(super) fn record_delivered(&self, delivered: Delivered) {
        let mut last = self.shared.history.delivered();
        if last.is_none_or(|last| last.position < delivered.position) {
            *last = Some(delivered);
        }
    }

    pub(super) fn follow(&self, after: Position) -> Follower {
        Follower::new(self.clone(), after)
    }

    pub(super) async fn last(&self, subject: &str) -> Result<Option<StoredEntry>, JournalError> {
        self.ensure_open()?;
        fetch_message(self.message_request().last_by_subject(subject)).await
    }

    /// Returns the entry at a position, read from the stream's leader.
    pub(super) async fn entry_at(&self, position: Position) -> Result<Option<StoredEntry>, JournalError> {
        self.ensure_open()?;
        fetch_message(self.message_request().sequence(position.0)).await
    }

    /// Returns the reason why the entry at a position cannot be read. `None` if the entry can be read, or if
    /// the stream does not hold the entry.
    ///
    /// The stream's leader may fail to find an entry that the stream holds. The server does not send the
    /// cause to its clients; it writes the cause to its own log.
    ///
    /// # Errors
    /// The server did not respond.
    pub(super) async fn unreadable_reason_at(
        &self,
        position: Position,
    ) -> Result<Option<String>, JournalError> {
        if self.entry_at(position).await?.is_some() {
            return Ok(None);
        }
        let info = self.shared.stream.get_info().await;
        let state = info
            .map_err(|error| JournalError::unavailable("requesting the state of the stream", error))?
            .state;
        let (first, last) = (state.first_sequence, state.last_sequence);
        let is_deleted = state.deleted_count.is_some_and(|count| count > 0);
        if is_deleted || !(first..=last).contains(&position.0) {
            return Ok(None);
        }
        Ok(Some(format!(
            "the NATS server answers \"no message found\" for position {position}, though its stream \
             {STREAM} holds positions {first} to {last}: the log of that server names the cause"
        )))
    }

    /// Returns the reason why followers cannot read the journal; `None` if they can.
    pub(super) fn unreadable_reason(&self) -> Option<String> {
        self.lock_unreadable().clone()
    }

    /// Records whether followers can read the journal, and logs each change.
    pub(super) fn set_unreadable(&self, why: Option<String>) {
        let mut reading = self.lock_unreadable();
        match (&*reading, &why) {
            (None, Some(why)) => tracing::error!("the journal cannot be read: {why}"),
            (Some(_), None) => tracing::info!("the journal can be read again"),
            (Some(_), Some(_)) | (None, None) => {}
        }
        *reading = why;
    }

    fn lock_unreadable(&self) -> MutexGuard<'_, Option<String>> {
        self.shared.unreadable.lock()
    }

    pub(super) async fn read(
        &self,
        after: Position,
        subject: Option<&Subject>,
        limit: usize,
    ) -> Result<Vec<StoredEntry>, JournalError> {
        self.ensure_open()?;
        super::jetstream_read::read(self.shared.connection.client(), after, subject, limit).await
    }

    pub(super) async fn end(&self) -> Result<Position, JournalError> {
        self.ensure_open()?;
        let info = self.shared.stream.get_info().await;
        let info =
            info.map_err(|error| JournalError::unavailable("requesting the end of the journal", error))?;
        Ok(Position(info.state.last_sequence))
    }

    /// Returns the state of the stream as its leader reports it.
    pub(super) async fn facts(&self) -> Result<Facts, JournalError> {
        self.ensure_open()?;
        let info = self.shared.stream.get_info().await.map_err(facts::journal_error)?;
        Ok(Facts::from_info(&info, &self.shared.connection.server_version()))
    }

    /// Returns the monitoring addresses of the servers.
    pub(super) fn monitoring(&self) -> &[String] {
        &self.shared.monitoring
    }

    pub(super) fn durability(&self) -> Durability {
        self.shared.durability.clone()
    }

    /// Returns `true` if a single server holds the stream.
    pub(super) fn is_unreplicated(&self) -> bool {
        self.shared.replicas <= 1
    }

    /// Returns the stream's handle.
    pub(super) fn stream(&self) -> &Stream<()> {
        &self.shared.stream
    }

    /// Returns the client of the connection.
    pub(super) fn client(&self) -> &async_nats::Client {
        self.shared.connection.client()
    }

    /// Returns the number of connections made so far. The number increases with every reconnect.
    pub(super) fn connection_count(&self) -> tokio::sync::watch::Receiver<u64> {
        self.shared.connection.connect_count()
    }

    /// Returns the token that is cancelled when the journal is closed.
    pub(super) fn closing(&self) -> &CancellationToken {
        &self.shared.closing
    }

    pub(super) fn close(&self) {
        self.shared.closing.cancel();
    }

    pub(super) fn ensure_open(&self) -> Result<(), JournalError> {
        if self.shared.closing.is_cancelled() { Err(JournalError::Closed) } else { Ok(()) }
    }

    /// Returns a builder for a request for one message. The stream's leader answers the request.
    fn message_request(&self) -> RawMessageBuilder {
        self.shared.stream.raw_message_builder()
    }
}

/// Returns [`JournalError::Refused`] if there are problems.
fn check_no_problems(problems: &[String]) -> Result<(), JournalError> {
    if problems.is_empty() {
        return Ok(());
    }
    Err(JournalError::Refused(format!("the stream {STREAM}: {}", problems.join("; "))))
}

/// Returns a handle to the stream over a connection.
async fn stream_handle(connection: &Connection) -> Result<Stream<()>, JournalError> {
    let context = ContextBuilder::new().timeout(API_TIMEOUT).build(connection.client().clone());
    let unavailable = |error| JournalError::unavailable("opening the stream", error);
    context.get_stream_no_info(STREAM).await.map_err(unavailable)
}

/// Finds the stream, or creates it if the settings allow it.
async fn find_or_create_stream(
    connection: &Connection,
    context: &Context,
    settings: &StreamSettings,
) -> Result<Info, JournalError> {
    let asked = Instant::now();
    let error = match context.get_stream(STREAM).await {
        Ok(stream) => return Ok(stream.cached_info().clone()),
        Err(error) => error,
    };
    let question = format!("$JS.API.STREAM.INFO.{STREAM}");
    if connection.publish_was_denied(&question, asked) {
        return Err(JournalError::Refused(format!("no permission to publish on {question}")));
    }
    if !is_absent(&error) {
        return Err(JournalError::unavailable(format!("requesting the stream {STREAM}"), error));
    }
    if !settings.create {
        return Err(JournalError::Absent);
    }
    tracing::info!(replicas = settings.replicas, "creating the stream {STREAM}");
    let made = context.create_stream(stream::config_for(settings)).await;
    let made = made.map_err(|error| match stream::is_permanent(&error) {
        true => JournalError::Refused(format!("can't create the stream {STREAM}: {error}")),
        false => JournalError::unavailable(format!("creating the stream {STREAM}"), error),
    })?;
    Ok(made.cached_info().clone())
}

/// Returns the creation time of a stream as text. The text is only compared and displayed.
fn creation_time(info: &Info) -> String {
    info.created.to_string()
}

fn is_absent(error: &GetStreamError) -> bool {
    match error.kind() {
        GetStreamErrorKind::JetStream(error) => error.error_code() == ErrorCode::STREAM_NOT_FOUND,
        GetStreamErrorKind::EmptyName
        | GetStreamErrorKind::Request
        | GetStreamErrorKind::InvalidStreamName => false,
    }
}

/// Parses the server's response to a published message.
pub(super) fn parse_outcome(answer: &[u8]) -> Outcome {
    let answer: PublishResponse = match serde_json::from_slice(answer) {
        Ok(answer) => answer,
        Err(error) => return Outcome::Unknown(format!("the acknowledgement can't be read: {error}")),
    };
    let Some(error) = answer.error else {
        return match answer {
            PublishResponse { stream, .. } if stream != STREAM => {
                Outcome::Refused(format!("the stream {stream} already has the journal's subjects"))
            }
            PublishResponse { duplicate: true, .. } => {
                Outcome::Settle("the server reported a duplicate".to_owned())
            }
            PublishResponse { seq, .. } => Outcome::Stored(Position(seq)),
        };
    };
    let busy = [ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT, ErrorCode::STREAM_DUPLICATE_MESSAGE_CONFLICT];
    let text = error.to_string();
    let at_limit = error.error_code() == ErrorCode::STREAM_STORE_FAILED
        && LIMIT_REACHED.iter().any(|description| text.contains(description));
    let settled = [ErrorCode::STREAM_WRONG_LAST_SEQUENCE, ErrorCode::STREAM_WRONG_LAST_MESSAGE_ID];
    if settled.contains(&error.error_code()) {
        Outcome::Settle(error.to_string())
    } else if busy.contains(&error.error_code()) {
        Outcome::Busy(error.to_string())
    } else if at_limit || NOT_STORED.iter().any(|(code, _)| *code == error.error_code()) {
        Outcome::NotStored(text)
    } else if error.code() >= 500 {
        Outcome::Unknown(text)
    } else {
        Outcome::Refused(text)
    }
}

/// Requests one message; `None` if the stream does not hold it.
async fn fetch_message(question: RawMessageBuilder) -> Result<Option<StoredEntry>, JournalError> {
    let message = match question.send().await {
        Ok(message) => message,
        Err(error) if matches!(error.kind(), RawMessageErrorKind::NoMessageFound) => return Ok(None),
        Err(error) => {
            return Err(JournalError::unavailable("reading an entry from the stream's leader", error));
        }
    };
    Ok(Some(StoredEntry {
        position: Position(message.sequence),
        subject: message.subject.to_string(),
        entry: entry_id(&message.headers),
        bytes: message.payload,
    }))
}

/// Returns the id of the entry in a message; `None` if another program wrote the message.
pub(super) fn entry_id(headers: &HeaderMap) -> Option<EntryId> {
    headers.get(header::NATS_MESSAGE_ID)?.as_str().parse().ok()
}
