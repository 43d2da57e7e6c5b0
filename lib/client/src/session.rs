//! Requests that are repeated until they are answered. If a command is repeated with the same request id, the
//! cluster carries it out once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bus::{Bus, BusError, RequestError, Subscription};
use bytes::Bytes;
use parking_lot::Mutex;
use schemas::bus::Inbox;
use schemas::codec::{self, Form};
use schemas::limits::{COMMANDS_IN_FLIGHT, MESSAGE_BYTES};
use schemas::message::Answer;
use schemas::names::{IdGenerator, RequestId};
use schemas::{BadField, Position, Refusal};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use crate::error::{Error, request_error};
use crate::limits::{ATTEMPT_TIMEOUT, RETRY_DELAY, SILENCE_WARNING};
use crate::target::Target;

/// State that all clones of a client share.
#[derive(Debug)]
pub(crate) struct Session {
    bus: Mutex<Bus>,
    /// Target and inbox of a bus that this client connected. If the server of a socket has restarted, the
    /// client uses them to reconnect.
    origin: Option<(Target, Inbox)>,
    /// Highest position in any answer. Later answers never have a lower position.
    seen_position: AtomicU64,
    ids: Mutex<IdGenerator>,
    /// Permits for the commands that may wait for an answer at the same time.
    pub(crate) command_permits: Semaphore,
}

impl Session {
    pub(crate) fn new(bus: Bus, origin: Option<(Target, Inbox)>) -> Result<Arc<Self>, Error> {
        let seed = clock::seed().map_err(|error| Error::Setup {
            action: "cannot get random bytes for \
                request ids"
                .to_owned(),
            source: error.into(),
        })?;
        Ok(Arc::new(Self {
            bus: Mutex::new(bus),
            origin,
            seen_position: AtomicU64::new(0),
            ids: Mutex::new(IdGenerator::new(seed)),
            command_permits: Semaphore::new(COMMANDS_IN_FLIGHT),
        }))
    }

    /// Returns the highest position in any answer. `None` before the first answer.
    pub(crate) fn seen_position(&self) -> Option<Position> {
        let seen = self.seen_position.load(Ordering::Relaxed);
        (seen > 0).then_some(Position(seen))
    }

    pub(crate) fn record_position(&self, position: Position) {
        self.seen_position.fetch_max(position.0, Ordering::Relaxed);
    }

    pub(crate) fn request_id(&self) -> RequestId {
        let id = self.ids.lock().next(clock::now());
        RequestId::new(&id.to_string()).expect("a UUID is a name")
    }

    /// Repeats a request until it is answered or `patience` has elapsed.
    pub(crate) async fn request<A: DeserializeOwned>(
        &self,
        subject: &str,
        question: &impl Serialize,
        patience: Duration,
    ) -> Result<A, Error> {
        let payload = Bytes::from(codec::encode(Form::Json, question));
        self.request_with(subject, |_| payload.clone(), patience).await
    }

    /// Repeats a message until it is answered or `patience` has elapsed. For each attempt, `message` creates
    /// the message from the remaining time.
    pub(crate) async fn request_with<A: DeserializeOwned, P: Into<Bytes>>(
        &self,
        subject: &str,
        message: impl Fn(Duration) -> P,
        patience: Duration,
    ) -> Result<A, Error> {
        let asked = Instant::now();
        let (mut pause, mut warned, mut last) = (RETRY_DELAY.0, false, None);
        loop {
            let left = patience.saturating_sub(asked.elapsed());
            let error =
                match self.request_once(subject, message(left).into(), ATTEMPT_TIMEOUT.min(left)).await {
                    Ok(answer) => return Ok(answer),
                    Err(error) if error.is_transient() => prefer_refusal(error, last.take()),
                    Err(error) => return Err(error),
                };
            let waited = asked.elapsed();
            if waited + pause >= patience {
                return Err(with_total_wait(error, waited));
            }
            if waited >= SILENCE_WARNING && !warned {
                tracing::warn!("{error}; retrying for {:?}", patience.saturating_sub(waited));
                warned = true;
            }
            last = Some(error);
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_DELAY.1);
        }
    }

    /// Sends a request once.
    pub(crate) async fn request_once<A: DeserializeOwned>(
        &self,
        subject: &str,
        payload: Bytes,
        patience: Duration,
    ) -> Result<A, Error> {
        if payload.len() > MESSAGE_BYTES {
            let problem = format!("has {} bytes, more than {MESSAGE_BYTES}", payload.len());
            return Err(Refusal::invalid(vec![BadField { field: "message".into(), problem }]).into());
        }
        let bus = self.bus.lock().clone();
        let answer = match bus.request(subject, payload, patience).await {
            Ok(answer) => answer,
            Err(error) => {
                if matches!(error, RequestError::Disconnected(_)) {
                    self.reconnect().await?;
                }
                return Err(request_error(subject, error));
            }
        };
        let protocol =
            |refusal: Refusal| Error::Protocol { subject: subject.to_owned(), why: refusal.message };
        let (answer, _) = codec::decode::<Answer<A>>(&answer).map_err(protocol)?;
        Result::from(answer).map_err(Error::Refused)
    }

    /// Subscribes to a pattern. If the server of a socket has restarted, reconnects first.
    pub(crate) async fn subscribe(&self, pattern: &str) -> Result<Subscription, Error> {
        let bus = self.bus.lock().clone();
        match bus.subscribe(pattern, None).await {
            Err(BusError::Disconnected(_)) => {
                self.reconnect().await?;
                let bus = self.bus.lock().clone();
                Ok(bus.subscribe(pattern, None).await?)
            }
            subscribed => Ok(subscribed?),
        }
    }

    /// Reconnects to a socket, because the server of the socket may have restarted. A NATS connection
    /// reconnects automatically.
    async fn reconnect(&self) -> Result<(), Error> {
        let Some((target @ Target::Socket(_), inbox)) = &self.origin else { return Ok(()) };
        let bus = target.connect(inbox).await?;
        *self.bus.lock() = bus;
        Ok(())
    }
}

/// Returns the error of an attempt. If the attempt timed out and an earlier attempt was refused, returns the
/// refusal, because the refusal contains a reason.
fn prefer_refusal(error: Error, before: Option<Error>) -> Error {
    match (error, before) {
        (Error::TimedOut { .. }, Some(refused @ Error::Refused(_))) => refused,
        (
            error @ (Error::TimedOut { .. }
            | Error::Refused(_)
            | Error::Unreachable(_)
            | Error::Protocol { .. }
            | Error::Setup { .. }),
            _,
        ) => error,
    }
}

/// Returns the last error, with the total time of all attempts.
fn with_total_wait(error: Error, waited: Duration) -> Error {
    match error {
        Error::TimedOut { awaited, .. } => Error::TimedOut { awaited, elapsed: waited },
        other
        @ (Error::Refused(_) | Error::Unreachable(_) | Error::Protocol { .. } | Error::Setup { .. }) => other,
    }
}
