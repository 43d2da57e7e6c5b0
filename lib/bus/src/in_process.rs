//! The bus within one process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::trie::Trie;
use super::{AskError, BusError, Ends, INBOX_ROOT, Incoming, Inlet, ReplyTo, Source, Subscription, subject};

/// A bus within one process. Clones are the same bus.
#[derive(Clone, Debug)]
pub struct InProcess {
    shared: Arc<Mutex<Shared>>,
    /// What stands before the subjects of this clone's replies.
    inbox: Arc<str>,
}

#[derive(Debug, Default)]
struct Shared {
    subscribers: Trie<Subscriber>,
    /// Questions that wait, by the subject of their answer.
    asked: BTreeMap<String, oneshot::Sender<Bytes>>,
    /// The last number that was given to a subscriber or a question.
    last: u64,
    /// Whose turn it is in every group.
    turn: usize,
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
    /// A new bus. Its questions are answered to `muster.inbox.local`.
    #[must_use]
    pub fn new() -> Self {
        Self { shared: Arc::default(), inbox: format!("{INBOX_ROOT}local").into() }
    }

    /// The same bus for somebody whose questions are answered to `inbox`, as `muster.inbox.bbs`.
    ///
    /// # Errors
    /// `inbox` is not a subject below [`INBOX_ROOT`].
    pub fn with_inbox(&self, inbox: &str) -> Result<Self, BusError> {
        subject::check_inbox(inbox)?;
        Ok(Self { shared: Arc::clone(&self.shared), inbox: inbox.into() })
    }

    /// The state. Nothing between lock and unlock panics half-way, so a poisoned state is whole.
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn publish(&self, subject: &str, payload: Bytes) -> Result<(), BusError> {
        let mut shared = self.shared();
        if let Some(asked) = shared.asked.remove(subject) {
            // Whoever asked may have lost patience in this moment; then nobody wants the answer.
            drop(asked.send(payload));
            return Ok(());
        }
        shared.deliver(&Incoming { subject: subject.to_owned(), payload, reply: None });
        Ok(())
    }

    pub(super) async fn ask(
        &self,
        subject: &str,
        payload: Bytes,
        patience: Duration,
    ) -> Result<Bytes, AskError> {
        let (sender, answer) = oneshot::channel();
        let question = {
            let mut shared = self.shared();
            shared.last += 1;
            let question = Question { bus: self, reply: format!("{}.{}", self.inbox, shared.last) };
            shared.asked.insert(question.reply.clone(), sender);
            let reply = Some(ReplyTo { subject: question.reply.clone() });
            if !shared.deliver(&Incoming { subject: subject.to_owned(), payload, reply }) {
                drop(shared);
                return Err(AskError::NoResponder(subject.to_owned()));
            }
            question
        };
        let answer = timeout(patience, answer).await.map_err(|_| AskError::TimedOut(patience))?;
        drop(question);
        answer.map_err(|_| AskError::Disconnected("the bus within the process is gone".to_owned()))
    }

    pub(super) fn subscribe(&self, pattern: &str, group: Option<&str>) -> Subscription {
        let (inlet, messages) = Inlet::new();
        let mut shared = self.shared();
        shared.last += 1;
        let number = shared.last;
        shared.subscribers.insert(pattern, Subscriber { number, group: group.map(Into::into), inlet });
        let registration = Registration { bus: self.clone(), pattern: pattern.to_owned(), number };
        Subscription(Source::Queue(messages, Ends::InProcess(registration)))
    }
}

impl Shared {
    /// Gives a message to every subscriber without a group and to one of each group, and says whether anybody
    /// subscribes.
    fn deliver(&mut self, message: &Incoming) -> bool {
        self.turn = self.turn.wrapping_add(1);
        let (turn, mut any) = (self.turn, false);
        let mut groups: BTreeMap<&str, Vec<&Inlet>> = BTreeMap::new();
        self.subscribers.matching(&message.subject, &mut |subscriber| {
            any = true;
            match &subscriber.group {
                Some(group) => groups.entry(group).or_default().push(&subscriber.inlet),
                None => subscriber.inlet.put(message.clone()),
            }
        });
        for members in groups.values() {
            let mut by_turn = (0..members.len()).map(|n| members[turn.wrapping_add(n) % members.len()]);
            let next = by_turn.clone().find(|member| member.has_room()).or_else(|| by_turn.next());
            next.into_iter().for_each(|member| member.put(message.clone()));
        }
        any
    }
}

/// A question that waits. Dropped, it waits no more.
struct Question<'a> {
    bus: &'a InProcess,
    reply: String,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.bus.shared().asked.remove(&self.reply);
    }
}

/// A subscription's place on the bus. Dropped, the subscription has ended.
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
