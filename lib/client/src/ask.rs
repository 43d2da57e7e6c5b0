//! A connection that asks, and asks again: asking twice is asking once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bus::{AskError, Bus, BusError, Subscription};
use bytes::Bytes;
use schemas::bus::Inbox;
use schemas::codec::{self, Form};
use schemas::limits::{COMMANDS_IN_FLIGHT, MESSAGE_BYTES};
use schemas::message::Answer;
use schemas::names::{Ids, RequestId};
use schemas::{BadField, Position, Refusal};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use crate::error::{Error, unanswered};
use crate::limits::{PAUSE, SILENCE_WARNED, TRY};
use crate::target::Target;

/// What all clones of a client share.
#[derive(Debug)]
pub(crate) struct Line {
    bus: Mutex<Bus>,
    /// How the bus was made, if it was made here: a socket whose server started again is connected to again.
    made: Option<(Target, Inbox)>,
    /// The highest position that any answer gave: what we have seen once we never unsee.
    seen: AtomicU64,
    ids: Mutex<Ids>,
    /// Room for the commands that may wait for an answer at once.
    pub(crate) room: Semaphore,
}

impl Line {
    pub(crate) fn new(bus: Bus, made: Option<(Target, Inbox)>) -> Result<Arc<Self>, Error> {
        let seed = clock::seed()
            .map_err(|error| Error::Setup { what: "can't draw a seed".to_owned(), source: error.into() })?;
        Ok(Arc::new(Self {
            bus: Mutex::new(bus),
            made,
            seen: AtomicU64::new(0),
            ids: Mutex::new(Ids::new(seed)),
            room: Semaphore::new(COMMANDS_IN_FLIGHT),
        }))
    }

    /// The highest position that any answer gave; none before the first answer.
    pub(crate) fn seen(&self) -> Option<Position> {
        let seen = self.seen.load(Ordering::Relaxed);
        (seen > 0).then_some(Position(seen))
    }

    pub(crate) fn note(&self, position: Position) {
        self.seen.fetch_max(position.0, Ordering::Relaxed);
    }

    pub(crate) fn request_id(&self) -> RequestId {
        let id = lock(&self.ids).next(clock::now());
        RequestId::new(&id.to_string()).expect("a UUID is a name")
    }

    /// Asks until there is an answer, or `patience` is over.
    pub(crate) async fn ask<A: DeserializeOwned>(
        &self,
        subject: &str,
        question: &impl Serialize,
        patience: Duration,
    ) -> Result<A, Error> {
        let payload = Bytes::from(codec::encode(Form::Json, question));
        self.ask_with(subject, |_| payload.clone(), patience).await
    }

    /// Sends a message until there is an answer, or `patience` is over. `message` makes the message of each try from the patience
    /// that is left.
    pub(crate) async fn ask_with<A: DeserializeOwned, P: Into<Bytes>>(
        &self,
        subject: &str,
        message: impl Fn(Duration) -> P,
        patience: Duration,
    ) -> Result<A, Error> {
        let asked = Instant::now();
        let (mut pause, mut warned, mut last) = (PAUSE.0, false, None);
        loop {
            let left = patience.saturating_sub(asked.elapsed());
            let error = match self.ask_once(subject, message(left).into(), TRY.min(left)).await {
                Ok(answer) => return Ok(answer),
                Err(error) if error.is_passing() => more_telling(error, last.take()),
                Err(error) => return Err(error),
            };
            let waited = asked.elapsed();
            if waited + pause >= patience {
                return Err(given_up(error, waited));
            }
            if waited >= SILENCE_WARNED && !warned {
                tracing::warn!("{error}; asking again for {:?}", patience.saturating_sub(waited));
                warned = true;
            }
            last = Some(error);
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Asks once.
    pub(crate) async fn ask_once<A: DeserializeOwned>(
        &self,
        subject: &str,
        payload: Bytes,
        patience: Duration,
    ) -> Result<A, Error> {
        if payload.len() > MESSAGE_BYTES {
            let problem = format!("{} bytes are more than {MESSAGE_BYTES}", payload.len());
            return Err(Refusal::invalid(vec![BadField { field: "message".into(), problem }]).into());
        }
        let bus = lock(&self.bus).clone();
        let answer = match bus.ask(subject, payload, patience).await {
            Ok(answer) => answer,
            Err(error) => {
                if matches!(error, AskError::Disconnected(_)) {
                    self.connect_again().await?;
                }
                return Err(unanswered(subject, error));
            }
        };
        let protocol =
            |refusal: Refusal| Error::Protocol { subject: subject.to_owned(), why: refusal.message };
        let (answer, _) = codec::decode::<Answer<A>>(&answer).map_err(protocol)?;
        Result::from(answer).map_err(Error::Refused)
    }

    /// Listens to a pattern. A socket whose server has started again is connected to anew.
    pub(crate) async fn subscribe(&self, pattern: &str) -> Result<Subscription, Error> {
        let bus = lock(&self.bus).clone();
        match bus.subscribe(pattern, None).await {
            Err(BusError::Disconnected(_)) => {
                self.connect_again().await?;
                let bus = lock(&self.bus).clone();
                Ok(bus.subscribe(pattern, None).await?)
            }
            subscribed => Ok(subscribed?),
        }
    }

    /// Connects to a socket again, since its server may have started again. A NATS connection mends itself.
    async fn connect_again(&self) -> Result<(), Error> {
        let Some((target @ Target::Socket(_), inbox)) = &self.made else { return Ok(()) };
        let bus = target.connect(inbox).await?;
        *lock(&self.bus) = bus;
        Ok(())
    }
}

/// Nothing between lock and unlock panics half-way, so a poisoned state is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a try came to, unless it was silence after a refusal: the refusal says why.
fn more_telling(error: Error, before: Option<Error>) -> Error {
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

/// The last error, with the time that all tries took.
fn given_up(error: Error, waited: Duration) -> Error {
    match error {
        Error::TimedOut { what, .. } => Error::TimedOut { what, waited },
        other
        @ (Error::Refused(_) | Error::Unreachable(_) | Error::Protocol { .. } | Error::Setup { .. }) => other,
    }
}
