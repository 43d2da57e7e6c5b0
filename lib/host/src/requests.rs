//! Requests between services: in postcard if both sides were built from the same schema, otherwise in JSON.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bus::{Bus, LogLimit, ReplyTo, truncated};
use parking_lot::Mutex;
use schemas::codec::{self, Form};
use schemas::message::Answer;
use schemas::{Code, Refusal};
use serde::Serialize;
use serde::de::DeserializeOwned;

static UNREADABLE: LogLimit = LogLimit::new();

/// Timeout of a request between services.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Client for the other services. A request returns `None` if no reply arrived in time, or if no service
/// listens.
#[derive(Debug)]
pub(crate) struct ServiceClient {
    bus: Bus,
    /// `true` after a service has reported that it has another schema. After this report, all requests are
    /// sent in JSON.
    uses_json: AtomicBool,
}

impl ServiceClient {
    pub(crate) const fn new(bus: Bus) -> Self {
        Self { bus, uses_json: AtomicBool::new(false) }
    }

    pub(crate) const fn bus(&self) -> &Bus {
        &self.bus
    }

    /// Sends a request. Repeats the request in JSON if the other service has another schema.
    pub(crate) async fn request<Q: Serialize, A: DeserializeOwned>(
        &self,
        subject: &str,
        question: &Q,
        patience: Duration,
    ) -> Option<Result<A, Refusal>> {
        let form = if self.uses_json.load(Ordering::Relaxed) { Form::Json } else { Form::Postcard };
        let answer = self.request_as(form, subject, question, patience).await?;
        match answer {
            Err(refusal) if refusal.code == Code::Unreadable => {
                tracing::info!(subject, "the other service has a different schema: using JSON from now on");
                self.uses_json.store(true, Ordering::Relaxed);
                self.request_as(Form::Json, subject, question, patience).await
            }
            answer => Some(answer),
        }
    }

    async fn request_as<Q: Serialize, A: DeserializeOwned>(
        &self,
        form: Form,
        subject: &str,
        question: &Q,
        patience: Duration,
    ) -> Option<Result<A, Refusal>> {
        let bytes = codec::encode(form, question);
        match self.bus.request(subject, bytes.into(), patience).await {
            Ok(answer) => match codec::decode::<Answer<A>>(&answer) {
                Ok((answer, _)) => Some(answer.into()),
                Err(refusal) => {
                    UNREADABLE.log(|| {
                        let (subject, refusal) = (truncated(subject), truncated(&refusal.to_string()));
                        tracing::warn!(subject, %refusal, "can't decode an answer");
                    });
                    Some(Err(refusal))
                }
            },
            Err(error) => {
                tracing::debug!(subject, %error, "no answer");
                None
            }
        }
    }

    /// Publishes a message that may be lost, without a reply. The message is sent in JSON, because the
    /// receiver cannot report that it has another schema.
    pub(crate) async fn notify<M: Serialize>(&self, subject: &str, message: &M) {
        let bytes = codec::encode(Form::Json, message);
        if let Err(error) = self.bus.publish(subject, bytes.into()).await {
            tracing::debug!(subject, %error, "message not published");
        }
    }
}

/// Callers that wait for the reply of a machine. The key is the number under which the machine knows the
/// caller.
#[derive(Debug)]
pub(crate) struct PendingRequests<T> {
    next: AtomicU64,
    callers: Mutex<BTreeMap<u64, T>>,
}

impl<T> Default for PendingRequests<T> {
    fn default() -> Self {
        Self { next: AtomicU64::new(0), callers: Mutex::new(BTreeMap::new()) }
    }
}

impl<T> PendingRequests<T> {
    pub(crate) fn add(&self, requester: T) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.callers.lock().insert(number, requester);
        number
    }

    pub(crate) fn take(&self, number: u64) -> Option<T> {
        self.callers.lock().remove(&number)
    }

    pub(crate) fn take_all(&self) -> Vec<T> {
        std::mem::take(&mut *self.callers.lock()).into_values().collect()
    }
}

/// Sends a reply in the encoding of the request.
pub(crate) async fn send_reply<T: Serialize>(
    bus: &Bus,
    to: &ReplyTo,
    form: Form,
    result: Result<T, Refusal>,
) {
    let bytes = codec::encode(form, &Answer::from(result));
    if let Err(error) = bus.reply(to, bytes.into()).await {
        tracing::debug!(%error, "reply not sent");
    }
}
