//! The bus: carries requests and notifications between services. The services tolerate messages that the bus
//! loses, delays, repeats or reorders.
//!
//! A subject consists of tokens separated by dots. In a pattern, `*` matches one token, and `>` at the end
//! matches one or more tokens.

mod frame;
mod in_process;
pub mod limits;
mod log_limit;
pub mod nats;
mod nats_bus;
pub mod permissions;
mod socket;
mod socket_server;
mod subject;
mod trie;

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use tokio::sync::mpsc;

pub use in_process::InProcess;
pub use log_limit::{LogLimit, truncated};
pub use nats_bus::Nats;
pub use socket::Socket;
pub use socket_server::{SocketError, SocketServer};
pub(crate) use subject::check_inbox;

pub use schemas::bus::INBOX_ROOT;
/// Prefix of the reply subjects of NATS clients that use the default inbox.
pub const DEFAULT_INBOX_ROOT: &str = "_INBOX.";

/// Connection to the bus. Clones share the same bus.
#[derive(Clone, Debug)]
pub enum Bus {
    /// Bus between the services of one process.
    InProcess(InProcess),
    /// Bus of another process. The other process serves its [`InProcess`] bus over a Unix socket.
    Socket(Socket),
    /// Bus over a NATS server.
    Nats(Nats),
}

/// Message that a subscription received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    pub subject: String,
    pub payload: Bytes,
    /// `None` if no reply is expected.
    pub reply: Option<ReplyTo>,
}

/// Reply subject of a request. The requester chooses the reply subject. The receiver must check that the
/// subject is an inbox of a role that may send the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    subject: String,
}

impl ReplyTo {
    /// Creates a destination for a reply.
    #[must_use]
    pub fn new(subject: &str) -> Self {
        Self { subject: subject.to_owned() }
    }

    /// Returns the subject of the reply.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Returns `true` if the reply goes to an inbox of `role`: below `muster.inbox.<role>`.
    #[must_use]
    pub fn is_inbox_of(&self, role: &str) -> bool {
        let below = self.subject.strip_prefix(INBOX_ROOT).and_then(|rest| rest.strip_prefix(role));
        below.is_some_and(|rest| rest.len() > 1 && rest.starts_with('.'))
    }
}

/// Error while publishing or subscribing.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// Permanent error: the subject is invalid or the payload is too large.
    #[error("refused by the bus: {0}")]
    Refused(String),
    #[error("the bus is disconnected: {0}")]
    Disconnected(String),
}

/// Error of a request.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The subject has no subscriber. No service received the request.
    #[error("no responder on {0}")]
    NoResponder(String),
    /// No response arrived in time. The request may have been carried out.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The connection was lost. The request may have been carried out.
    #[error("the bus is disconnected: {0}")]
    Disconnected(String),
    /// Permanent error: the subject is invalid, the payload is too large, or the permission is missing.
    #[error("refused by the bus: {0}")]
    Refused(String),
}

impl From<BusError> for RequestError {
    fn from(error: BusError) -> Self {
        match error {
            BusError::Refused(why) => Self::Refused(why),
            BusError::Disconnected(why) => Self::Disconnected(why),
        }
    }
}

/// Receiver of the messages of a subscription. Dropping the receiver ends the subscription.
///
/// At most [`limits::SUBSCRIPTION_QUEUE`] messages are queued. While the queue is full, further messages are
/// dropped. A slow receiver never delays other receivers.
#[derive(Debug)]
pub struct Subscription(Source);

/// Queue of a subscription.
#[derive(Debug)]
enum Source {
    /// Queue that the bus fills.
    Queue(mpsc::Receiver<Incoming>, #[expect(dead_code, reason = "dropping it ends the subscription")] Guard),
    /// Queue of a NATS connection, with the pattern of the subscription.
    Nats(Box<async_nats::Subscriber>, String),
}

/// Registration whose drop ends the subscription.
#[derive(Debug)]
#[expect(dead_code, reason = "dropping it ends the subscription")]
enum Guard {
    InProcess(in_process::Registration),
    Socket(socket::Registration),
}

/// Rate limit for warnings about messages that a stream consumer delivered to a bus subject.
static MISROUTED_MESSAGES: LogLimit = LogLimit::new();

impl Subscription {
    /// Returns the next message, or `None` if the bus is closed. This method is cancel safe.
    pub async fn next(&mut self) -> Option<Incoming> {
        match &mut self.0 {
            Source::Queue(messages, _) => messages.recv().await,
            Source::Nats(messages, pattern) => loop {
                let message = messages.next().await?;
                // A server can be configured to deliver stored messages to other subjects. Accept only
                // messages that were published on a matching subject.
                if subject::matches(pattern, &message.subject) {
                    return Some(nats_bus::to_incoming(message));
                }
                MISROUTED_MESSAGES.log(|| {
                    let subject = truncated(&message.subject);
                    tracing::warn!(
                        pattern,
                        subject,
                        "dropped a message that was published on another \
                        subject"
                    );
                });
            },
        }
    }
}

/// Sending end of the queue of a subscription.
#[derive(Clone, Debug)]
struct Inlet(mpsc::Sender<Incoming>);

impl Inlet {
    fn new() -> (Self, mpsc::Receiver<Incoming>) {
        let (messages, receiver) = mpsc::channel(limits::SUBSCRIPTION_QUEUE);
        (Self(messages), receiver)
    }

    /// Queues a message, or drops it if the queue is full. Never waits.
    fn push(&self, message: Incoming) {
        if let Err(mpsc::error::TrySendError::Full(message)) = self.0.try_send(message) {
            let subject = message.subject;
            tracing::debug!(subject, "dropped a message: the subscriber is too slow");
        }
    }

    fn has_room(&self) -> bool {
        self.0.capacity() > 0
    }
}

impl Bus {
    /// Creates a bus within this process. Replies to its requests go to `inbox`, such as `muster.inbox.bbs`.
    ///
    /// # Errors
    /// Returns an error if `inbox` is not a subject below [`INBOX_ROOT`].
    pub fn in_process(inbox: &str) -> Result<Self, BusError> {
        Ok(Self::InProcess(InProcess::new().with_inbox(inbox)?))
    }

    /// Publishes a message to the subscribers of the subject. Success does not mean that a subscriber has
    /// received the message.
    ///
    /// # Errors
    /// Returns an error if `subject` is invalid or belongs to the journal, if the payload is larger than
    /// [`schemas::limits::MESSAGE_BYTES`], or if the connection is closed.
    pub async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), BusError> {
        subject::check_publish(subject, payload.len())?;
        match self {
            Self::InProcess(bus) => bus.publish(subject, payload),
            Self::Socket(bus) => bus.publish(subject, payload).await,
            Self::Nats(bus) => bus.publish(subject, payload).await,
        }
    }

    /// Waits until published messages have been sent. Must be called before the program exits.
    pub async fn flush(&self) {
        match self {
            // In-process messages have been delivered already. A socket sends no acknowledgements.
            Self::InProcess(_) | Self::Socket(_) => {}
            Self::Nats(bus) => bus.flush().await,
        }
    }

    /// Sends a request and returns the first response. Waits at most `patience` for the response.
    ///
    /// # Errors
    /// See [`RequestError`]. A missing subscriber is reported immediately.
    pub async fn request(
        &self,
        subject: &str,
        payload: Bytes,
        patience: Duration,
    ) -> Result<Bytes, RequestError> {
        subject::check_publish(subject, payload.len())?;
        match self {
            Self::InProcess(bus) => bus.request(subject, payload, patience).await,
            Self::Socket(bus) => bus.request(subject, payload, patience).await,
            Self::Nats(bus) => bus.request(subject, payload, patience).await,
        }
    }

    /// Subscribes to a pattern. Among the subscriptions with the same `group`, each message is delivered to
    /// one. On NATS, the server may still be processing the subscription when this method returns.
    ///
    /// # Errors
    /// Returns an error if `pattern` or `group` is invalid or the connection is closed.
    pub async fn subscribe(&self, pattern: &str, group: Option<&str>) -> Result<Subscription, BusError> {
        subject::check_pattern(pattern)?;
        if let Some(group) = group {
            subject::check_group(group)?;
        }
        match self {
            Self::InProcess(bus) => Ok(bus.subscribe(pattern, group)),
            Self::Socket(bus) => bus.subscribe(pattern, group).await,
            Self::Nats(bus) => bus.subscribe(pattern, group).await,
        }
    }

    /// Sends the reply to a request.
    ///
    /// # Errors
    /// Returns an error if the reply subject is neither below [`INBOX_ROOT`] nor below
    /// [`DEFAULT_INBOX_ROOT`]. So a forged reply subject cannot make the receiver publish to another subject.
    /// Also returns an error if the payload is larger than [`schemas::limits::MESSAGE_BYTES`] or the
    /// connection is closed.
    pub async fn reply(&self, to: &ReplyTo, payload: Bytes) -> Result<(), BusError> {
        if ![INBOX_ROOT, DEFAULT_INBOX_ROOT].iter().any(|root| to.subject.starts_with(root)) {
            return Err(BusError::Refused(format!("{:?} is not an inbox", to.subject)));
        }
        self.publish(&to.subject, payload).await
    }

    /// Returns `true` if the bus is connected. Without a connection no messages arrive.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        match self {
            Self::InProcess(_) => true,
            Self::Socket(bus) => bus.is_connected(),
            Self::Nats(bus) => bus.connection().is_connected(),
        }
    }

    /// Returns `true` if the reply subject of a request proves the identity of the requester. This is the
    /// case on servers that require authentication.
    #[must_use]
    pub fn proves_identity(&self) -> bool {
        match self {
            Self::InProcess(_) | Self::Socket(_) => false,
            Self::Nats(bus) => bus.connection().client().server_info().auth_required,
        }
    }

    /// Serves this bus to other processes of the same user over a Unix socket at `path`. Dropping the
    /// returned server ends the service.
    ///
    /// # Errors
    /// Returns an error if this bus is not in process or the socket cannot be created.
    pub fn serve_socket(&self, path: &std::path::Path) -> Result<SocketServer, SocketError> {
        match self {
            Self::InProcess(bus) => SocketServer::start(bus.clone(), path),
            Self::Socket(_) | Self::Nats(_) => Err(SocketError::NotInProcess),
        }
    }

    /// Connects to the bus of another process over its Unix socket. Replies to requests go to `inbox`.
    ///
    /// # Errors
    /// Returns an error if no process serves the socket or `inbox` is not a subject below [`INBOX_ROOT`].
    pub async fn connect_socket(path: &std::path::Path, inbox: &str) -> Result<Self, BusError> {
        Ok(Self::Socket(Socket::connect(path, inbox).await?))
    }
}
