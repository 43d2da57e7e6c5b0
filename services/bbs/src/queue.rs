//! Fair queues: an actor with many commands does not delay other actors.

use std::collections::{BTreeMap, VecDeque};

use schemas::stamp::Actor;

use crate::command::QueuedCommand;

/// A fair queue. Names take turns. Each turn removes the oldest item of one name.
#[derive(Clone, Debug)]
pub struct FairQueue<K, T> {
    queues: BTreeMap<K, VecDeque<T>>,
    /// Names with queued items, in the order of their turns.
    turns: VecDeque<K>,
    len: usize,
}

impl<K, T> Default for FairQueue<K, T> {
    fn default() -> Self {
        Self { queues: BTreeMap::new(), turns: VecDeque::new(), len: 0 }
    }
}

impl<K: Ord + Clone, T> FairQueue<K, T> {
    /// Appends an item to the queue of a name.
    pub fn push(&mut self, name: K, what: T) {
        let queue = self.queues.entry(name.clone()).or_default();
        if queue.is_empty() {
            self.turns.push_back(name);
        }
        queue.push_back(what);
        self.len += 1;
    }

    /// Removes and returns the oldest item of the next name.
    pub fn pop(&mut self) -> Option<T> {
        let name = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&name)?;
        let what = queue.pop_front()?;
        self.len -= 1;
        if queue.is_empty() {
            self.queues.remove(&name);
        } else {
            self.turns.push_back(name);
        }
        Some(what)
    }

    /// Returns the number of queued items.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if no item is queued.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.queues.retain(|_, queue| {
            queue.retain(&mut keep);
            !queue.is_empty()
        });
        self.turns.retain(|name| self.queues.contains_key(name));
        self.len = self.queues.values().map(VecDeque::len).sum();
    }
}

/// Commands that wait in one shard. The commands of an actor keep their order, and actors take turns.
///
/// The group of clients and the group of internal actors also take turns. So reports of a thousand cells do
/// not delay a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    /// Commands that must be decided again. They precede all other commands.
    retries: VecDeque<QueuedCommand>,
    /// Commands of clients and operators.
    clients: FairQueue<Actor, QueuedCommand>,
    /// Commands of cells, auctioneers and BBSs.
    internal: FairQueue<Actor, QueuedCommand>,
    /// `true` if the next turn goes to an internal actor.
    is_internal_next: bool,
}

impl Queue {
    /// Queues a command after the other commands of its actor.
    pub(crate) fn push_back(&mut self, command: QueuedCommand) {
        let turns = if is_client(&command.actor) { &mut self.clients } else { &mut self.internal };
        turns.push(command.actor.clone(), command);
    }

    /// Puts a command back to the front.
    pub(crate) fn push_front(&mut self, command: QueuedCommand) {
        self.retries.push_front(command);
    }

    /// Removes and returns the next command.
    pub(crate) fn pop_front(&mut self) -> Option<QueuedCommand> {
        if let Some(again) = self.retries.pop_front() {
            return Some(again);
        }
        self.is_internal_next = !self.is_internal_next;
        let (first, second) = if self.is_internal_next {
            (&mut self.clients, &mut self.internal)
        } else {
            (&mut self.internal, &mut self.clients)
        };
        first.pop().or_else(|| second.pop())
    }

    /// Removes and returns the next command of a client or an operator. Commands that must be decided again
    /// come first.
    pub(crate) fn pop_client(&mut self) -> Option<QueuedCommand> {
        self.retries.pop_front().or_else(|| self.clients.pop())
    }

    /// Returns the number of queued commands.
    pub(crate) fn len(&self) -> usize {
        self.retries.len() + self.clients.len() + self.internal.len()
    }

    /// Returns `true` if no command is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.retries.is_empty() && self.clients.is_empty() && self.internal.is_empty()
    }

    /// Keeps only the commands for which `keep` returns `true`.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&QueuedCommand) -> bool) {
        self.retries.retain(&mut keep);
        self.clients.retain(&mut keep);
        self.internal.retain(keep);
    }

    /// Returns the clients of the commands that must be decided again, followed by the other clients in the
    /// order of their turns.
    pub(crate) fn next_clients(&self) -> impl Iterator<Item = &Actor> {
        let again = self.retries.iter().map(|command| &command.actor).filter(|actor| is_client(actor));
        again.chain(&self.clients.turns)
    }

    /// Returns `true` if a command of an internal actor is queued.
    pub(crate) fn has_internal(&self) -> bool {
        !self.internal.is_empty() || self.retries.iter().any(|command| !is_client(&command.actor))
    }

    /// Iterates over all commands in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &QueuedCommand> {
        let rest = self.clients.queues.values().chain(self.internal.queues.values());
        self.retries.iter().chain(rest.flatten())
    }
}

/// Returns `true` if the actor is a client or an operator.
pub(crate) const fn is_client(actor: &Actor) -> bool {
    match actor {
        Actor::Client { .. } | Actor::Operator(_) => true,
        Actor::Cell(_) | Actor::Auctioneer(_) | Actor::Bbs(_) => false,
    }
}

impl Iterator for Queue {
    type Item = QueuedCommand;

    fn next(&mut self) -> Option<QueuedCommand> {
        self.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use schemas::names::{CellId, ClientName, Domain};

    use super::*;
    use crate::aggregates::{DomainCommand, Order};
    use crate::command::{AggregateCommand, Requester};

    fn all<T>(turns: &mut FairQueue<&'static str, T>) -> Vec<T> {
        std::iter::from_fn(|| turns.pop()).collect()
    }

    #[test]
    fn name_with_few_items_overtakes_name_with_many() {
        let mut turns = FairQueue::default();
        (0..20_000).for_each(|number| turns.push("loud", number));
        assert_eq!(turns.pop(), Some(0));
        turns.push("quiet", 100_000);
        turns.push("quiet", 100_001);
        turns.push("third", 200_000);
        let next: Vec<u32> = (0..6).filter_map(|_| turns.pop()).collect();
        assert_eq!(next, [1, 100_000, 200_000, 2, 100_001, 3]);
        assert_eq!(turns.len(), 20_000 - 4);
        assert_eq!(all(&mut turns), (4..20_000).collect::<Vec<_>>(), "the items of a name keep their order");
        assert!(turns.is_empty() && turns.queues.is_empty() && turns.turns.is_empty());
    }

    fn command(client: &str, token: u64) -> QueuedCommand {
        let domain = Domain::new("apps").unwrap();
        let actor = Actor::Client { domain: domain.clone(), name: ClientName::new(client).unwrap() };
        QueuedCommand::new(
            Requester::Single(token),
            actor,
            AggregateCommand::Domain(Order::new(domain, DomainCommand::Refresh(None))),
        )
    }

    fn tokens<'a>(commands: impl IntoIterator<Item = &'a QueuedCommand>) -> Vec<Requester> {
        commands.into_iter().map(|command| command.requester).collect()
    }

    #[test]
    fn client_command_does_not_wait_for_all_cells() {
        let mut queue = Queue::default();
        for number in 0..1_000 {
            let told = Actor::Cell(CellId::new(&format!("c{number}")).unwrap());
            queue.push_back(QueuedCommand { actor: told, ..command("any", number) });
        }
        (2_000..2_003).for_each(|token| queue.push_back(command("quiet", token)));
        let first: Vec<QueuedCommand> = queue.by_ref().take(8).collect();
        assert_eq!(tokens(&first), [2_000, 0, 2_001, 1, 2_002, 2, 3, 4].map(Requester::Single));
        assert_eq!(queue.by_ref().count(), 1_000 - 5);
    }

    #[test]
    fn client_commands_can_be_popped_separately() {
        let mut queue = Queue::default();
        let told =
            |token| QueuedCommand { actor: Actor::Cell(CellId::new("c1").unwrap()), ..command("any", token) };
        (1..3).for_each(|token| queue.push_back(told(token)));
        assert_eq!((queue.pop_client().is_none(), queue.has_internal()), (true, true));
        (3..5).for_each(|token| queue.push_back(command("quiet", token)));
        queue.push_front(told(0));
        let asked: Vec<QueuedCommand> = std::iter::from_fn(|| queue.pop_client()).collect();
        assert_eq!(
            tokens(&asked),
            [0, 3, 4].map(Requester::Single),
            "commands that are decided again go first"
        );
        assert_eq!((queue.len(), queue.next_clients().count()), (2, 0));
    }

    #[test]
    fn returned_commands_go_before_all_turns() {
        let mut queue = Queue::default();
        (1..=4).for_each(|token| queue.push_back(command("loud", token)));
        queue.push_back(command("quiet", 9));
        let taken = [queue.pop_front().unwrap(), queue.pop_front().unwrap()];
        assert_eq!(tokens(&taken), [1, 9].map(Requester::Single));
        taken.into_iter().rev().for_each(|command| queue.push_front(command));
        assert_eq!((queue.len(), queue.iter().count()), (5, 5));
        queue.retain(|command| command.requester != Requester::Single(2));
        let rest: Vec<QueuedCommand> = queue.by_ref().collect();
        assert_eq!(tokens(&rest), [1, 9, 3, 4].map(Requester::Single));
        assert!(queue.is_empty());
    }
}
