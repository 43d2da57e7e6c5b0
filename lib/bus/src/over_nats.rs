//! The bus by a NATS server.

use std::time::Duration;

use async_nats::{Message, PublishErrorKind, Request, RequestErrorKind};
use bytes::Bytes;
use tokio::time::{Instant, timeout};

use super::{AskError, Bus, BusError, Incoming, ReplyTo, Source, Subscription};
use crate::limits::API;
use crate::nats::Connection;

/// A bus by a NATS server. Clones use the same connection.
#[derive(Clone, Debug)]
pub struct Nats {
    connection: Connection,
}

impl From<Connection> for Bus {
    /// The bus over a connection. Don't use the connection that writes to the journal: what comes by the bus must not
    /// be able to reach it.
    fn from(connection: Connection) -> Self {
        Self::Nats(Nats { connection })
    }
}

impl Nats {
    /// The connection.
    #[must_use]
    pub const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// While there is no connection nothing is sent: it would be sent when there is one again, and be long out of
    /// date.
    fn connected(&self) -> Result<(), BusError> {
        if self.connection.is_connected() {
            return Ok(());
        }
        Err(BusError::Disconnected("no connection to the NATS server".to_owned()))
    }

    pub(super) async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), BusError> {
        self.connected()?;
        self.connection.client().publish(subject.to_owned(), payload).await.map_err(|error| {
            match error.kind() {
                PublishErrorKind::MaxPayloadExceeded => {
                    BusError::Refused(format!("{subject}: more than the server's max_payload: {error}"))
                }
                PublishErrorKind::InvalidSubject => BusError::Refused(format!("{subject}: {error}")),
                PublishErrorKind::Send => BusError::Disconnected(error.to_string()),
            }
        })
    }

    pub(super) async fn flush(&self) {
        if self.connection.is_connected() {
            // Without an answer in time there is nobody to wait for.
            drop(timeout(API, self.connection.client().flush()).await.map(drop));
        }
    }

    pub(super) async fn ask(
        &self,
        subject: &str,
        payload: Bytes,
        patience: Duration,
    ) -> Result<Bytes, AskError> {
        self.connected()?;
        let asked = Instant::now();
        // The request's own limit would start only once the connection has taken it.
        let request = Request::new().payload(payload).timeout(None);
        let answer = timeout(patience, self.connection.client().send_request(subject.to_owned(), request));
        let late = || AskError::TimedOut(patience);
        let answer = tokio::select! {
            biased;
            answer = answer => answer,
            // The server says so at once, and never answers.
            () = self.connection.refuses_to_publish(subject, asked) => {
                return Err(AskError::Refused(format!("no permission to publish on {subject}")));
            }
        };
        match answer {
            Err(_) => Err(late()),
            Ok(Ok(message)) => Ok(message.payload),
            Ok(Err(error)) => Err(match error.kind() {
                RequestErrorKind::TimedOut => late(),
                RequestErrorKind::NoResponders => AskError::NoResponder(subject.to_owned()),
                RequestErrorKind::InvalidSubject => AskError::Refused(format!("{subject}: {error}")),
                RequestErrorKind::MaxPayloadExceeded => {
                    AskError::Refused(format!("{subject}: more than the server's max_payload: {error}"))
                }
                RequestErrorKind::Other => AskError::Disconnected(error.to_string()),
            }),
        }
    }

    pub(super) async fn subscribe(
        &self,
        pattern: &str,
        group: Option<&str>,
    ) -> Result<Subscription, BusError> {
        let client = self.connection.client();
        let subscriber = match group {
            Some(group) => client.queue_subscribe(pattern.to_owned(), group.to_owned()).await,
            None => client.subscribe(pattern.to_owned()).await,
        };
        let subscriber = subscriber.map_err(|error| BusError::Disconnected(error.to_string()))?;
        if self.connection.is_connected() {
            // Sent to the server before this returns; otherwise it is when there is a connection again.
            drop(timeout(API, client.flush()).await.map(drop));
        }
        Ok(Subscription(Source::Nats(Box::new(subscriber), pattern.to_owned())))
    }
}

pub(super) fn incoming(message: Message) -> Incoming {
    let reply = message.reply.map(|subject| ReplyTo { subject: subject.to_string() });
    Incoming { subject: message.subject.to_string(), payload: message.payload, reply }
}
