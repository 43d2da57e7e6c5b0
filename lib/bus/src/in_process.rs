//! Implementation of the bus within one process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::trie::Trie;
use super::{
    BusError, Guard, INBOX_ROOT, Incoming, Inlet, ReplyTo, RequestError, Source, Subscription, subject,
};

/// Bus within one process. Clones share the same bus.
#[derive(Clone, Debug)]
pub struct InProcess {
    shared: Arc<Mutex<Shared>>,
    /// Prefix of the reply subjects of this clone.
    inbox: Arc<str>,
}

#[derive(Debug, Default)]
struct Shared {
    subscribers: Trie<Subscriber>,
    /// Pending requests by reply subject.
    pending: BTreeMap<String, oneshot::Sender<Bytes>>,
    /// Last number assigned to a subscriber or a request.
    last_number: u64,
    /// Counter that selects the next member of every group.
    group_turn: usize,
}

#[derive(Debug)]
struct Subscriber {
    number: u64,
    group: Option<Box<str>>,
    inlet: Inlet,
}

impl Default for InProcess {
    fn default() -> Self {
        Self::new()
    }
}

impl InProcess {
    /// Creates a bus. Replies to requests from this handle go to `muster.inbox.local`.
    #[must_use]
    pub fn new() -> Self {
        Self { shared: Arc::default(), inbox: format!("{INBOX_ROOT}local").into() }
    }

    /// Returns a handle to the same bus. Replies to requests from this handle go to `inbox`, such as
    /// `muster.inbox.bbs`.
    ///
    /// # Errors
    /// Returns an error if `inbox` is not a subject below [`INBOX_ROOT`].
    pub fn with_inbox(&self, inbox: &str) -> Result<Self, BusError> {
        subject::check_inbox(inbox)?;
        Ok(Self { shared: Arc::clone(&self.shared), inbox: inbox.into() })
    }

    /// Locks the state. No change can panic half-way, so the state is consistent even if the lock is
    /// poisoned.
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock()
    }

    pub(super) fn publish(&self, subject: &str, payload: Bytes) -> Result<(), BusError> {
        let mut shared = self.shared();
        if let Some(asked) = shared.pending.remove(subject) {
            // If the request has just timed out, the reply is dropped.
            drop(asked.send(payload));
            return Ok(());
        }
        shared.deliver(&Incoming { subject: subject.to_owned(), payload, reply: None });
        Ok(())
    }

    pub(super) async fn request(
        &self,
        subject: &str,
        payload: Bytes,
        patience: Duration,
    ) -> Result<Bytes, RequestError> {
        let (sender, answer) = oneshot::channel();
        let question = {
            let mut shared = self.shared();
            shared.last_number += 1;
            let question =
                PendingRequest { bus: self, reply: format!("{}.{}", self.inbox, shared.last_number) };
            shared.pending.insert(question.reply.clone(), sender);
            let reply = Some(ReplyTo { subject: question.reply.clone() });
            if !shared.deliver(&Incoming { subject: subject.to_owned(), payload, reply }) {
                drop(shared);
                return Err(RequestError::NoResponder(subject.to_owned()));
            }
            question
        };
        let answer = timeout(patience, answer).await.map_err(|_| RequestError::TimedOut(patience))?;
        drop(question);
        answer.map_err(|_| RequestError::Disconnected("the in-process bus is closed".to_owned()))
    }

    pub(super) fn subscribe(&self, pattern: &str, group: Option<&str>) -> Subscription {
        let (inlet, messages) = Inlet::new();
        let mut shared = self.shared();
        shared.last_number += 1;
        let number = shared.last_number;
        shared.subscribers.insert(pattern, Subscriber { number, group: group.map(Into::into), inlet });
        let registration = Registration { bus: self.clone(), pattern: pattern.to_owned(), number };
        Subscription(Source::Queue(messages, Guard::InProcess(registration)))
    }
}

impl Shared {
    /// Delivers a message to every subscriber without a group and to one member of each group. Returns `true`
    /// if there is a subscriber.
    fn deliver(&mut self, message: &Incoming) -> bool {
        self.group_turn = self.group_turn.wrapping_add(1);
        let (turn, mut any) = (self.group_turn, false);
        let mut groups: BTreeMap<&str, Vec<&Inlet>> = BTreeMap::new();
        self.subscribers.matching(&message.subject, &mut |subscriber| {
            any = true;
            match &subscriber.group {
                Some(group) => groups.entry(group).or_default().push(&subscriber.inlet),
                None => subscriber.inlet.push(message.clone()),
            }
        });
        for members in groups.values() {
            let mut by_turn = (0..members.len()).map(|n| members[turn.wrapping_add(n) % members.len()]);
            let next = by_turn.clone().find(|member| member.has_room()).or_else(|| by_turn.next());
            next.into_iter().for_each(|member| member.push(message.clone()));
        }
        any
    }
}

/// Pending request. Dropping it cancels the request.
struct PendingRequest<'a> {
    bus: &'a InProcess,
    reply: String,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        self.bus.shared().pending.remove(&self.reply);
    }
}

/// Registration of a subscription. Dropping it ends the subscription.
#[derive(Debug)]
pub(super) struct Registration {
    bus: InProcess,
    pattern: String,
    number: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.bus.shared().subscribers.remove(&self.pattern, |subscriber| subscriber.number == self.number);
    }
}
