//! The bus: what is being asked right now. It may lose, delay, repeat or reorder anything, and nothing breaks.
//!
//! Subjects are words between dots. A pattern may have `*` for one word and, at its end, `>` for one or more.

pub mod attempt;
mod frame;
mod in_process;
pub mod limits;
mod log_limit;
pub mod nats;
mod over_nats;
mod socket;
mod socket_server;
mod subject;
mod trie;

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use tokio::sync::mpsc;

pub use in_process::InProcess;
pub use log_limit::{LogLimit, brief};
pub use over_nats::Nats;
pub use socket::Socket;
pub use socket_server::{SocketError, SocketServer};
pub(crate) use subject::check_inbox;

pub use schemas::bus::INBOX_ROOT;
/// What the subject of a reply to a NATS client starts with that chose none.
pub const PLAIN_INBOX_ROOT: &str = "_INBOX.";

/// The bus. Clones are the same bus.
#[derive(Clone, Debug)]
pub enum Bus {
    /// Between the services of one process.
    InProcess(InProcess),
    /// To another process's [`InProcess`], over its Unix socket.
    Socket(Socket),
    /// By a NATS server.
    Nats(Nats),
}

/// A message that came by a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Its subject.
    pub subject: String,
    /// What it says.
    pub payload: Bytes,
    /// Where an answer is awaited, if one is.
    pub reply: Option<ReplyTo>,
}

/// Where an answer is awaited. Whoever asked chose it: check that it is an inbox of the role that should be asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    subject: String,
}

impl ReplyTo {
    /// An answer goes to this subject.
    #[must_use]
    pub fn new(subject: &str) -> Self {
        Self { subject: subject.to_owned() }
    }

    /// The subject of the answer.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Whether the answer goes to an inbox of `role`: below `muster.inbox.<role>`.
    #[must_use]
    pub fn is_inbox_of(&self, role: &str) -> bool {
        let below = self.subject.strip_prefix(INBOX_ROOT).and_then(|rest| rest.strip_prefix(role));
        below.is_some_and(|rest| rest.len() > 1 && rest.starts_with('.'))
    }
}

/// Why a message wasn't sent, or a subscription not made.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// It will never be: a subject that is none, a payload that is too large.
    #[error("the bus refuses: {0}")]
    Refused(String),
    /// There is no connection.
    #[error("the bus is disconnected: {0}")]
    Disconnected(String),
}

/// Why a question wasn't answered.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody subscribes to the subject: the question was definitely not seen.
    #[error("nobody answers on {0}")]
    NoResponder(String),
    /// No answer came in time. The question may have been acted on.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The connection was lost. The question may have been acted on.
    #[error("the bus is disconnected: {0}")]
    Disconnected(String),
    /// It will never be sent: a subject that is none, a payload that is too large, no permission.
    #[error("the bus refuses: {0}")]
    Refused(String),
}

impl From<BusError> for AskError {
    fn from(error: BusError) -> Self {
        match error {
            BusError::Refused(why) => Self::Refused(why),
            BusError::Disconnected(why) => Self::Disconnected(why),
        }
    }
}

/// What comes by a subscription. It ends when it is dropped. Who doesn't read loses messages: more than
/// [`limits::SUBSCRIPTION_QUEUE`] never wait, and nobody waits for who doesn't read.
#[derive(Debug)]
pub struct Subscription(Source);

/// Where its messages wait.
#[derive(Debug)]
enum Source {
    /// In a queue, which is filled where the subscription was made.
    Queue(mpsc::Receiver<Incoming>, #[expect(dead_code, reason = "held for what its drop does")] Ends),
    /// In the queue of a NATS connection, with the pattern.
    Nats(Box<async_nats::Subscriber>, String),
}

/// What a subscription holds on to so that dropping it ends it.
#[derive(Debug)]
#[expect(dead_code, reason = "held for what happens when they are dropped")]
enum Ends {
    InProcess(in_process::Registration),
    Socket(socket::Registration),
}

/// Messages that a consumer of the stream delivered to a subject of the bus.
static ELSEWHERE: LogLimit = LogLimit::new();

impl Subscription {
    /// The next message; None once the bus is gone. Cancel-safe.
    pub async fn next(&mut self) -> Option<Incoming> {
        match &mut self.0 {
            Source::Queue(messages, _) => messages.recv().await,
            Source::Nats(messages, pattern) => loop {
                let message = messages.next().await?;
                // A server may be told to deliver elsewhere what was stored: what we are told is what was said here.
                if subject::matches(pattern, &message.subject) {
                    return Some(over_nats::incoming(message));
                }
                ELSEWHERE.log(|| {
                    let subject = brief(&message.subject);
                    tracing::warn!(pattern, subject, "a message is dropped: it was not published here");
                });
            },
        }
    }
}

/// The end of a subscription that messages are put into.
#[derive(Clone, Debug)]
struct Inlet(mpsc::Sender<Incoming>);

impl Inlet {
    fn new() -> (Self, mpsc::Receiver<Incoming>) {
        let (messages, receiver) = mpsc::channel(limits::SUBSCRIPTION_QUEUE);
        (Self(messages), receiver)
    }

    /// Puts a message in, or drops it if the queue is full. Never waits.
    fn put(&self, message: Incoming) {
        if let Err(mpsc::error::TrySendError::Full(message)) = self.0.try_send(message) {
            let subject = message.subject;
            tracing::debug!(subject, "a message is dropped: a subscription isn't read fast enough");
        }
    }

    fn has_room(&self) -> bool {
        self.0.capacity() > 0
    }
}

impl Bus {
    /// A new bus within this process, whose questions are answered to `inbox`, as `muster.inbox.bbs`.
    ///
    /// # Errors
    /// `inbox` is not a subject below [`INBOX_ROOT`].
    pub fn in_process(inbox: &str) -> Result<Self, BusError> {
        Ok(Self::InProcess(InProcess::new().with_inbox(inbox)?))
    }

    /// Sends a message to whoever subscribes to its subject, if anybody does. That it was sent doesn't mean that
    /// anybody got it.
    ///
    /// # Errors
    /// `subject` is none, is the journal's, or the payload is larger than [`schemas::limits::MESSAGE_BYTES`]; the
    /// connection is closed.
    pub async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), BusError> {
        subject::check_publish(subject, payload.len())?;
        match self {
            Self::InProcess(bus) => bus.publish(subject, payload),
            Self::Socket(bus) => bus.publish(subject, payload).await,
            Self::Nats(bus) => bus.publish(subject, payload).await,
        }
    }

    /// Waits until what was published has been sent, for a program that ends next.
    pub async fn flush(&self) {
        match self {
            // What is published there has arrived.
            Self::InProcess(_) | Self::Socket(_) => {}
            Self::Nats(bus) => bus.flush().await,
        }
    }

    /// Asks, and waits for the first answer, at most for `patience`.
    ///
    /// # Errors
    /// See [`AskError`]. Nobody subscribing is known at once.
    pub async fn ask(&self, subject: &str, payload: Bytes, patience: Duration) -> Result<Bytes, AskError> {
        subject::check_publish(subject, payload.len())?;
        match self {
            Self::InProcess(bus) => bus.ask(subject, payload, patience).await,
            Self::Socket(bus) => bus.ask(subject, payload, patience).await,
            Self::Nats(bus) => bus.ask(subject, payload, patience).await,
        }
    }

    /// Subscribes to a pattern. Of the subscriptions with the same `group` one gets each message. On NATS the server
    /// may still be learning of it when this returns.
    ///
    /// # Errors
    /// `pattern` or `group` is none; the connection is closed.
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

    /// Answers a question.
    ///
    /// # Errors
    /// The reply subject is below neither [`INBOX_ROOT`] nor [`PLAIN_INBOX_ROOT`]: a forged one can't make its receiver
    /// publish elsewhere. The payload is larger than [`schemas::limits::MESSAGE_BYTES`]; the connection is closed.
    pub async fn reply(&self, to: &ReplyTo, payload: Bytes) -> Result<(), BusError> {
        if ![INBOX_ROOT, PLAIN_INBOX_ROOT].iter().any(|root| to.subject.starts_with(root)) {
            return Err(BusError::Refused(format!("{:?} is not an inbox", to.subject)));
        }
        self.publish(&to.subject, payload).await
    }

    /// Whether there is a connection in this moment. Without one nobody is heard.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        match self {
            Self::InProcess(_) => true,
            Self::Socket(bus) => bus.is_connected(),
            Self::Nats(bus) => bus.connection().is_connected(),
        }
    }

    /// Whether where somebody is answered proves who it is: by a server that lets in only whom it knows.
    #[must_use]
    pub fn knows_who_asks(&self) -> bool {
        match self {
            Self::InProcess(_) | Self::Socket(_) => false,
            Self::Nats(bus) => bus.connection().client().server_info().auth_required,
        }
    }

    /// Serves this bus to other processes of the same user over a Unix socket at `path`, until the answer is dropped.
    ///
    /// # Errors
    /// This bus isn't in process, or the socket can't be made.
    pub fn serve_socket(&self, path: &std::path::Path) -> Result<SocketServer, SocketError> {
        match self {
            Self::InProcess(bus) => SocketServer::start(bus.clone(), path),
            Self::Socket(_) | Self::Nats(_) => Err(SocketError::NotInProcess),
        }
    }

    /// Connects to the bus of another process at its Unix socket; questions are answered to `inbox`.
    ///
    /// # Errors
    /// Nobody serves the socket, or `inbox` is not a subject below [`INBOX_ROOT`].
    pub async fn connect_socket(path: &std::path::Path, inbox: &str) -> Result<Self, BusError> {
        Ok(Self::Socket(Socket::connect(path, inbox).await?))
    }
}
