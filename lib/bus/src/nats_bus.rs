//! Implementation of the bus over a NATS server.

use std::time::Duration;

use async_nats::{Message, PublishErrorKind, Request, RequestErrorKind};
use bytes::Bytes;
use tokio::time::{Instant, timeout};

use super::{Bus, BusError, Incoming, ReplyTo, RequestError, Source, Subscription};
use crate::limits::API_TIMEOUT;
use crate::nats::Connection;

/// Bus over a NATS server. Clones share the same connection.
#[derive(Clone, Debug)]
pub struct Nats {
    connection: Connection,
}

impl From<Connection> for Bus {
    /// Creates a bus over a connection. Do not use the connection that writes to the journal: messages from
    /// the bus must not reach the journal's connection.
    fn from(connection: Connection) -> Self {
        Self::Nats(Nats { connection })
    }
}

impl Nats {
    /// Returns the connection.
    #[must_use]
    pub const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Returns an error if the connection is lost. Otherwise the client would send the message after the next
    /// reconnect, when the message is outdated.
    fn check_connected(&self) -> Result<(), BusError> {
        if self.connection.is_connected() {
            return Ok(());
        }
        Err(BusError::Disconnected("no connection to the NATS server".to_owned()))
    }

    pub(super) async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), BusError> {
        self.check_connected()?;
        self.connection.client().publish(subject.to_owned(), payload).await.map_err(|error| {
            match error.kind() {
                PublishErrorKind::MaxPayloadExceeded => BusError::Refused(format!(
                    "{subject}: payload exceeds max_payload of the server: \
                        {error}"
                )),
                PublishErrorKind::InvalidSubject => BusError::Refused(format!("{subject}: {error}")),
                PublishErrorKind::Send => BusError::Disconnected(error.to_string()),
            }
        })
    }

    pub(super) async fn flush(&self) {
        if self.connection.is_connected() {
            // A missing response means that the server is unreachable.
            drop(timeout(API_TIMEOUT, self.connection.client().flush()).await.map(drop));
        }
    }

    pub(super) async fn request(
        &self,
        subject: &str,
        payload: Bytes,
        patience: Duration,
    ) -> Result<Bytes, RequestError> {
        self.check_connected()?;
        let asked = Instant::now();
        // The timeout of the request would start only after the connection has accepted the request.
        let request = Request::new().payload(payload).timeout(None);
        let answer = timeout(patience, self.connection.client().send_request(subject.to_owned(), request));
        let late = || RequestError::TimedOut(patience);
        let answer = tokio::select! {
            biased;
            answer = answer => answer,
            // The server reports a missing permission immediately, and sends no response to the request.
            () = self.connection.publish_denied(subject, asked) => {
                return Err(RequestError::Refused(format!("no permission to publish on {subject}")));
            }
        };
        match answer {
            Err(_) => Err(late()),
            Ok(Ok(message)) => Ok(message.payload),
            Ok(Err(error)) => Err(match error.kind() {
                RequestErrorKind::TimedOut => late(),
                RequestErrorKind::NoResponders => RequestError::NoResponder(subject.to_owned()),
                RequestErrorKind::InvalidSubject => RequestError::Refused(format!("{subject}: {error}")),
                RequestErrorKind::MaxPayloadExceeded => RequestError::Refused(format!(
                    "{subject}: payload exceeds max_payload of the server: \
                        {error}"
                )),
                RequestErrorKind::Other => RequestError::Disconnected(error.to_string()),
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
            // The subscription is sent before this method returns. If the connection is lost, it is sent
            // after the next reconnect.
            drop(timeout(API_TIMEOUT, client.flush()).await.map(drop));
        }
        Ok(Subscription(Source::Nats(Box::new(subscriber), pattern.to_owned())))
    }
}

pub(super) fn to_incoming(message: Message) -> Incoming {
    let reply = message.reply.map(|subject| ReplyTo { subject: subject.to_string() });
    Incoming { subject: message.subject.to_string(), payload: message.payload, reply }
}
