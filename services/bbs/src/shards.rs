//! Group commit: a queue of commands and at most one entry in flight for each subject of the journal. An
//! entry in flight (a [`Flight`]) was sent to the journal and is not settled yet. The commands of a flight
//! are decided: the BBS has turned each of them into events.
//!
//! Commands that arrive while an entry of their subject is in flight wait for the next entry. A follower
//! delivers the journal's entries to this BBS. A flight is settled when the follower delivers an entry of the
//! same subject, not when the journal responds to the append. If the outcome of an append is unknown, the BBS
//! reads the subject's last entry and repeats the append unchanged. Compare-and-set accepts only one of the
//! two appends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use schemas::limits::CLIENT_ENTRIES_IN_FLIGHT;
use schemas::names::EntryId;
use schemas::stamp::Actor;
use schemas::subject::{Position, Subject};
use schemas::{Entry, Timestamp};

use crate::command::{QueuedCommand, Requester, Verdict};
use crate::judge::Growth;
use crate::queue::{Queue, is_client};

/// Number of clients at the head of a queue from which admission chooses the next command.
const MAX_NEXT_CLIENTS: usize = 16;

/// Selection of the commands that may go into the next entry of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Commands of all actors.
    All,
    /// Only commands of clients. Commands of internal actors wait until fewer bytes are in flight.
    ClientsOnly,
}

/// An entry that was sent to the journal and is not settled yet.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) entry: Arc<Entry>,
    /// The entry as it was sent.
    pub(crate) bytes: Bytes,
    /// Position that the subject's last entry must have. Otherwise the journal rejects the append.
    pub(crate) expected: Position,
    /// Decided commands in order, each with its verdict (the reply to the client). The verdicts are sent when
    /// the entry is in the journal. If another entry was stored first, the commands are decided again.
    pub(crate) decided: Vec<(QueuedCommand, Verdict)>,
    /// Time of the first append.
    pub(crate) sent: Timestamp,
    /// State of the attempts to store the entry.
    pub(crate) attempts: Attempts,
    /// Resources and objects that the entry adds to each domain, for quota checks.
    pub(crate) growth: Growth,
}

/// State of the attempts to store an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Attempts {
    /// No attempt has failed.
    #[default]
    Open,
    /// Every attempt was rejected, and nothing was stored. Contains the reason of the last rejection.
    Rejected(String),
    /// The outcome of an attempt is unknown.
    Unknown,
}

/// Effect of a delivery on the flight of its subject.
#[derive(Debug)]
pub(crate) enum Delivered {
    /// No entry was in flight.
    NoFlight,
    /// The entry in flight was delivered and is settled.
    Own(Flight),
    /// Another entry was stored first. The entry in flight can never be stored, and its commands must be
    /// decided again.
    Overtaken(Flight),
}

/// Queues and flights of all subjects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shards {
    /// Queued commands; no empty queues.
    queues: BTreeMap<Subject, Queue>,
    flights: BTreeMap<Subject, Flight>,
    /// Clients and operators with commands in each flight; no empty sets.
    clients_in_flight: BTreeMap<Subject, BTreeSet<Actor>>,
    /// Total bytes of the entries in flight.
    bytes: usize,
    /// Sum of [`Flight::growth`] over all entries in flight.
    growth: Growth,
    /// Subjects with commands to decide in the next turn (one pass of the machine over its ready subjects).
    ready: BTreeSet<Subject>,
    /// Subjects whose commands wait until fewer entries or bytes are in flight. The subject that has waited
    /// longest is first.
    deferred: VecDeque<Subject>,
    /// Scheduled reads of the last entry of subjects, because the outcome of their flight is unknown.
    reads: BTreeMap<Subject, Timestamp>,
}

impl Shards {
    /// Queues a command behind its actor's other commands on the subject.
    pub(crate) fn push(&mut self, subject: Subject, command: QueuedCommand) {
        self.queues.entry(subject.clone()).or_default().push_back(command);
        self.mark_ready(subject);
    }

    /// Puts commands back to the front of a subject's queue, in order.
    pub(crate) fn put_back(
        &mut self,
        subject: &Subject,
        commands: impl IntoIterator<Item = QueuedCommand, IntoIter: DoubleEndedIterator>,
    ) {
        for command in commands.into_iter().rev() {
            self.queues.entry(subject.clone()).or_default().push_front(command);
        }
    }

    /// Removes and returns the next admitted command of a subject.
    pub(crate) fn pop(&mut self, subject: &Subject, boarding: Admission) -> Option<QueuedCommand> {
        let queue = self.queues.get_mut(subject)?;
        let command = match boarding {
            Admission::All => queue.pop_front(),
            Admission::ClientsOnly => queue.pop_client(),
        };
        if queue.is_empty() {
            self.queues.remove(subject);
        }
        command
    }

    /// Removes and returns all queued commands.
    pub(crate) fn drain(&mut self) -> Vec<QueuedCommand> {
        self.ready.clear();
        self.deferred.clear();
        std::mem::take(&mut self.queues).into_values().flatten().collect()
    }

    /// Removes and returns all commands of processes and tasks. The commands of each subject stay in order:
    /// commands in flight come before queued commands.
    pub(crate) fn drain_shards(&mut self) -> Vec<QueuedCommand> {
        let flying: Vec<Subject> =
            self.flights.keys().filter(|subject| subject.is_shard()).cloned().collect();
        let flights: Vec<Flight> = flying.iter().filter_map(|subject| self.take_flight(subject)).collect();
        let decided = flights.into_iter().flat_map(|flight| flight.decided).map(|(command, _)| command);
        let queued = self.queues.extract_if(.., |subject, _| subject.is_shard()).flat_map(|(_, queue)| queue);
        let commands = decided.chain(queued).collect();
        self.ready.retain(|subject| !subject.is_shard());
        self.deferred.retain(|subject| !subject.is_shard());
        self.reads.retain(|subject, _| !subject.is_shard());
        commands
    }

    /// Returns `true` if an entry of processes or tasks is in flight.
    pub(crate) fn has_shard_flight(&self) -> bool {
        self.flights.keys().any(Subject::is_shard)
    }

    /// Removes and returns all queued commands that this BBS did not issue itself.
    pub(crate) fn drain_external(&mut self) -> Vec<QueuedCommand> {
        let mut taken = vec![];
        for queue in self.queues.values_mut() {
            taken.extend(queue.iter().filter(|command| !command.is_own()).cloned());
            queue.retain(QueuedCommand::is_own);
        }
        self.queues.retain(|_, queue| !queue.is_empty());
        let queues = &self.queues;
        self.ready.retain(|subject| queues.contains_key(subject));
        self.deferred.retain(|subject| queues.contains_key(subject));
        taken
    }

    /// Removes queued commands of a subject that are no longer needed.
    pub(crate) fn withdraw(&mut self, subject: &Subject, withdrawn: impl Fn(&QueuedCommand) -> bool) {
        if let Some(queue) = self.queues.get_mut(subject) {
            queue.retain(|command| !withdrawn(command));
            if queue.is_empty() {
                self.queues.remove(subject);
            }
        }
    }

    /// Returns `true` if a matching command is queued or in flight on a subject.
    pub(crate) fn holds(&self, subject: &Subject, wanted: impl Fn(&QueuedCommand) -> bool) -> bool {
        let queued = self.queues.get(subject).into_iter().flat_map(Queue::iter);
        let flying = self.flights.get(subject).into_iter().flat_map(|flight| &flight.decided);
        queued.chain(flying.map(|(command, _)| command)).any(wanted)
    }

    /// Marks a subject for the next turn if the subject has queued commands and no entry in flight.
    pub(crate) fn mark_ready(&mut self, subject: Subject) {
        if self.is_ready(&subject) {
            self.ready.insert(subject);
        }
    }

    /// Removes and returns the subjects to decide in this turn. Subjects that were deferred in an earlier
    /// turn come first.
    pub(crate) fn take_ready(&mut self) -> impl Iterator<Item = Subject> + use<> {
        let (line, mut ready) = (std::mem::take(&mut self.deferred), std::mem::take(&mut self.ready));
        ready.retain(|subject| !line.contains(subject));
        line.into_iter().chain(ready)
    }

    /// Returns the commands that an entry of a subject may contain if the entry is sent now. `None` if no
    /// command may be sent now.
    ///
    /// Each entry costs a separate write, and each entry waits for all entries sent before it. Therefore the
    /// commands of one client are in at most [`CLIENT_ENTRIES_IN_FLIGHT`] flights. While at least
    /// `most_bytes` are in flight, internal actors' commands in a shard wait, so that they do not delay
    /// clients.
    pub(crate) fn admission(&self, subject: &Subject, most_bytes: usize) -> Option<Admission> {
        let queue = self.queues.get(subject).filter(|_| self.is_ready(subject))?;
        let in_few = |actor: &Actor| {
            self.clients_in_flight.values().filter(|aboard| aboard.contains(actor)).count()
                < CLIENT_ENTRIES_IN_FLIGHT
        };
        let has_room = self.bytes < most_bytes || !subject.is_shard();
        match (has_room, queue.has_internal(), queue.next_clients().take(MAX_NEXT_CLIENTS).any(in_few)) {
            (true, true, _) | (true, false, true) => Some(Admission::All),
            (false, _, true) => Some(Admission::ClientsOnly),
            (true, false, false) | (false, _, false) => None,
        }
    }

    /// Puts a subject with queued commands at the end of the deferred subjects. The next turn decides
    /// deferred subjects before subjects that become ready later.
    pub(crate) fn defer(&mut self, subject: Subject) {
        if self.queues.contains_key(&subject) {
            self.deferred.push_back(subject);
        }
    }

    /// Returns the subjects with queued commands.
    pub(crate) fn waiting(&self) -> Vec<Subject> {
        self.queues.keys().cloned().collect()
    }

    /// Returns `true` if the subject has queued commands and no entry in flight.
    fn is_ready(&self, subject: &Subject) -> bool {
        self.queues.contains_key(subject) && !self.flights.contains_key(subject)
    }

    /// Registers an entry that was sent.
    pub(crate) fn start_flight(&mut self, subject: Subject, flight: Flight) {
        let actors = flight.decided.iter().map(|(command, _)| &command.actor);
        let clients: BTreeSet<Actor> = actors.filter(|actor| is_client(actor)).cloned().collect();
        if !clients.is_empty() {
            self.clients_in_flight.insert(subject.clone(), clients);
        }
        self.bytes += flight.bytes.len();
        self.growth.add_all(&flight.growth);
        self.flights.insert(subject, flight);
    }

    /// Returns the flight of a subject.
    pub(crate) fn flight(&self, subject: &Subject) -> Option<&Flight> {
        self.flights.get(subject)
    }

    /// Returns the flight of a subject for modification.
    pub(crate) fn flight_mut(&mut self, subject: &Subject) -> Option<&mut Flight> {
        self.flights.get_mut(subject)
    }

    /// Detaches the clients from the commands of all entries in flight, and returns copies of these commands.
    /// The clients receive a reply before the outcome of the entries is known.
    pub(crate) fn abandon_flights(&mut self) -> Vec<QueuedCommand> {
        let mut waiting = vec![];
        for (command, _) in self.flights.values_mut().flat_map(|flight| &mut flight.decided) {
            if !command.is_own() {
                waiting.push(command.clone());
                command.requester = Requester::Own;
            }
        }
        waiting
    }

    /// Returns the time at which the oldest entry in flight was first sent.
    pub(crate) fn oldest_flight(&self) -> Option<Timestamp> {
        self.flights.values().map(|flight| flight.sent).min()
    }

    /// Removes and returns the flight of a subject. The entry of this flight is not appended again.
    pub(crate) fn take_flight(&mut self, subject: &Subject) -> Option<Flight> {
        self.clients_in_flight.remove(subject);
        let flight = self.flights.remove(subject)?;
        self.bytes -= flight.bytes.len();
        self.growth.subtract_all(&flight.growth);
        Some(flight)
    }

    /// Returns `true` if this entry is in flight.
    pub(crate) fn is_in_flight(&self, subject: &Subject, entry: EntryId) -> bool {
        self.flights.get(subject).is_some_and(|flight| flight.entry.id == entry)
    }

    /// Settles the flight of a subject when the follower delivers an entry of this subject. The delivered
    /// entry is the flight's own entry only if all bytes are equal. If only the ids are equal, the log does
    /// not contain the decisions of this BBS.
    pub(crate) fn delivered(&mut self, subject: &Subject, bytes: &Bytes) -> Delivered {
        self.reads.remove(subject);
        match self.take_flight(subject) {
            None => Delivered::NoFlight,
            Some(flight) if flight.bytes == *bytes => Delivered::Own(flight),
            Some(flight) => Delivered::Overtaken(flight),
        }
    }

    /// Schedules a read of a subject's last entry.
    pub(crate) fn schedule_read(&mut self, subject: &Subject, at: Timestamp) {
        self.reads.insert(subject.clone(), at);
    }

    /// Removes and returns the subjects whose read is due.
    pub(crate) fn due_reads(&mut self, now: Timestamp) -> Vec<Subject> {
        self.reads.extract_if(.., |_, due| *due <= now).map(|(subject, _)| subject).collect()
    }

    /// Returns the time of the next scheduled read.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.reads.values().copied().min()
    }

    /// Returns the number of queued commands on all subjects.
    pub(crate) fn queued(&self) -> usize {
        self.queues.values().map(Queue::len).sum()
    }

    /// Returns the number of entries in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Returns the sum of [`Flight::growth`] over all entries in flight.
    pub(crate) const fn growth(&self) -> &Growth {
        &self.growth
    }

    /// Returns a sum for leak checks: the flights with commands of clients, the ready subjects, the deferred
    /// subjects, and the bytes in flight. The sum is zero when the BBS is idle.
    pub(crate) fn bookkeeping_total(&self) -> usize {
        self.clients_in_flight.len() + self.ready.len() + self.deferred.len() + self.bytes
    }

    /// Returns the number of scheduled reads.
    pub(crate) fn reads(&self) -> usize {
        self.reads.len()
    }
}

#[cfg(test)]
mod tests {
    use schemas::names::{CellId, ClientName, IdGenerator, ServiceId};

    use super::*;
    use crate::aggregates::{CellCommand, Order};
    use crate::command::AggregateCommand;

    const MAX_BYTES: usize = schemas::limits::BYTES_IN_FLIGHT;

    fn command(token: u64) -> QueuedCommand {
        let actor = Actor::Bbs(ServiceId::new("b1").unwrap());
        let cell = CellId::new("c1").unwrap();
        QueuedCommand::new(
            Requester::Single(token),
            actor,
            AggregateCommand::Cell(Order::new(cell, CellCommand::DeclareLost("silent".into()))),
        )
    }

    fn cell(name: &str) -> Subject {
        Subject::Cell(CellId::new(name).unwrap())
    }

    fn flight(ids: &mut IdGenerator, commands: Vec<QueuedCommand>) -> Flight {
        let id = EntryId(ids.next(Timestamp(1)));
        let entry = Entry { id, format: 1, decisions: vec![] };
        let decided = commands.into_iter().map(|command| (command, Ok(1))).collect();
        Flight {
            bytes: Bytes::from(id.to_string()),
            entry: Arc::new(entry),
            expected: Position(0),
            decided,
            sent: Timestamp(1),
            attempts: Attempts::Open,
            growth: Growth::default(),
        }
    }

    fn tokens(shards: &mut Shards, subject: &Subject) -> Vec<Requester> {
        std::iter::from_fn(|| shards.pop(subject, Admission::All)).map(|command| command.requester).collect()
    }

    #[test]
    fn overtaken_commands_are_requeued_before_later_ones() {
        let (mut shards, mut ids, subject) = (Shards::default(), IdGenerator::new(1), cell("c1"));
        shards.push(subject.clone(), command(1));
        shards.push(subject.clone(), command(2));
        assert_eq!(shards.take_ready().count(), 1);
        let taken = std::iter::from_fn(|| shards.pop(&subject, Admission::All)).collect();
        shards.start_flight(subject.clone(), flight(&mut ids, taken));
        shards.push(subject.clone(), command(3));
        assert!(
            !shards.is_ready(&subject) && shards.take_ready().count() == 0,
            "one entry in flight at a time"
        );
        assert_eq!((shards.queued(), shards.in_flight()), (1, 1));
        let other = Bytes::from_static(b"another entry");
        let Delivered::Overtaken(flight) = shards.delivered(&subject, &other) else {
            panic!("the delivered entry is not the one in flight");
        };
        shards.put_back(&subject, flight.decided.into_iter().map(|(command, _)| command));
        assert!(shards.is_ready(&subject));
        assert_eq!(tokens(&mut shards, &subject), [1, 2, 3].map(Requester::Single));
        assert_eq!((shards.queued(), shards.in_flight()), (0, 0));
    }

    #[test]
    fn flights_of_one_client_are_bounded() {
        let (mut shards, mut ids) = (Shards::default(), IdGenerator::new(1));
        let of = |name: &str, token: u64| QueuedCommand {
            actor: Actor::Operator(ClientName::new(name).unwrap()),
            ..command(token)
        };
        let subjects: Vec<Subject> =
            (0..=CLIENT_ENTRIES_IN_FLIGHT).map(|number| cell(&format!("c{number}"))).collect();
        let (last, first) = subjects.split_last().unwrap();
        for subject in first {
            shards.push(subject.clone(), of("loud", 1));
            assert_eq!(shards.admission(subject, MAX_BYTES), Some(Admission::All));
            let taken = std::iter::from_fn(|| shards.pop(subject, Admission::All)).collect();
            shards.start_flight(subject.clone(), flight(&mut ids, taken));
        }
        shards.push(last.clone(), of("loud", 2));
        assert_eq!(shards.take_ready().count(), subjects.len());
        assert_eq!(shards.admission(last, MAX_BYTES), None, "the client has reached its limit of flights");
        shards.defer(last.clone());
        assert_eq!(
            shards.take_ready().next(),
            Some(last.clone()),
            "the subject is ready again in the next turn"
        );
        shards.push(last.clone(), of("quiet", 3));
        assert_eq!(
            shards.admission(last, MAX_BYTES),
            Some(Admission::All),
            "another client waits on the subject"
        );
        shards.withdraw(last, |queued| queued.requester == Requester::Single(3));
        assert_eq!(shards.admission(last, MAX_BYTES), None);
        shards.push(cell("other"), command(4));
        assert_eq!(
            shards.admission(&cell("other"), MAX_BYTES),
            Some(Admission::All),
            "commands of the BBS itself are not counted"
        );
        shards.take_flight(&first[0]).unwrap();
        assert_eq!(shards.admission(last, MAX_BYTES), Some(Admission::All));
    }

    #[test]
    fn client_commands_pass_internal_ones_when_bytes_are_exhausted() {
        let (mut shards, mut ids) = (Shards::default(), IdGenerator::new(1));
        let [full, asked, told] = [1, 2, 3].map(Subject::Lrp);
        let client = Actor::Operator(ClientName::new("quiet").unwrap());
        let mut large = flight(&mut ids, vec![command(1)]);
        large.bytes = Bytes::from(vec![b' '; MAX_BYTES]);
        shards.start_flight(full.clone(), large);
        shards.push(told.clone(), command(2));
        shards.push(asked.clone(), command(3));
        shards.push(asked.clone(), QueuedCommand { actor: client, ..command(4) });
        let all = |shards: &mut Shards| {
            let ready: Vec<Subject> = shards.take_ready().collect();
            let boarding = |subject| (subject, shards.admission(subject, MAX_BYTES));
            let all: Vec<_> = ready.iter().map(boarding).map(|(one, who)| (one.clone(), who)).collect();
            ready.into_iter().for_each(|subject| shards.defer(subject));
            all
        };
        assert_eq!(all(&mut shards), [(asked.clone(), Some(Admission::ClientsOnly)), (told.clone(), None)]);
        let taken = [shards.pop(&asked, Admission::ClientsOnly), shards.pop(&asked, Admission::ClientsOnly)];
        assert_eq!(taken.map(|one| one.map(|one| one.requester)), [Some(Requester::Single(4)), None]);
        shards.push(cell("c1"), command(5));
        shards.push(Subject::Lrp(1), command(6));
        let waits = [(asked.clone(), None), (told.clone(), None)];
        let first = (cell("c1"), Some(Admission::All));
        assert_eq!(all(&mut shards), [&waits[..], &[first]].concat(), "subjects of cells are not limited");
        shards.take_flight(&full).unwrap();
        shards.push(full.clone(), command(7));
        let next = [asked, told, cell("c1"), full].map(|subject| (subject, Some(Admission::All)));
        assert_eq!(all(&mut shards), next, "the longest waiting subjects go first");
    }

    #[test]
    fn counts_return_to_zero() {
        let (mut shards, mut ids) = (Shards::default(), IdGenerator::new(1));
        let subjects = ["c1", "c2", "c3"].map(cell);
        for subject in &subjects {
            (0..3).for_each(|token| shards.push(subject.clone(), command(token)));
        }
        assert_eq!(shards.queued(), 9);
        // The commands of the first subject are decided and stored. The commands of the second subject are
        // withdrawn, and the commands of the third are drained.
        let taken: Vec<_> = std::iter::from_fn(|| shards.pop(&subjects[0], Admission::All)).collect();
        let flight = flight(&mut ids, taken);
        let (id, bytes) = (flight.entry.id, flight.bytes.clone());
        shards.start_flight(subjects[0].clone(), flight);
        assert!(shards.is_in_flight(&subjects[0], id));
        shards.schedule_read(&subjects[0], Timestamp::from_millis(50));
        assert_eq!(shards.next_due(), Some(Timestamp::from_millis(50)));
        assert!(matches!(shards.delivered(&subjects[0], &bytes), Delivered::Own(_)));
        shards.withdraw(&subjects[1], QueuedCommand::is_loss);
        assert_eq!(shards.drain().len(), 3);
        let counts = (shards.queued(), shards.in_flight(), shards.reads(), shards.take_ready().count());
        assert_eq!((counts, shards.next_due()), ((0, 0, 0, 0), None));
    }
}
