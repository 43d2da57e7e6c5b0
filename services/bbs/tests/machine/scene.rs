//! Test scene: BBSs, an in-memory journal, and cells that send heartbeats automatically.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bbs::{AppendFailure, Bbs, ChangeRequest, Config, Effect, Input, Query, Reply, presence};
use bytes::Bytes;
use projections::cluster_log::QuarantinedPositions;
use schemas::container::Epoch;
use schemas::entry::Event;
use schemas::message::{Envelope, Heartbeat, Report, Reports, StartExec, Stop};
use schemas::names::{CellId, ClientName, EntryId, IdGenerator, ServiceId, TaskGuid};
use schemas::query::{ClusterRow, Filter, ShowAnswer};
use schemas::spec::ClientCommand;
use schemas::{Decision, Entry, Position, Subject, Timestamp};

use crate::words;

/// A message in the journal.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) subject: String,
    pub(crate) entry: Option<EntryId>,
    pub(crate) bytes: Bytes,
}

/// Outcome of an append.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The entry is stored and delivered to all BBSs.
    #[default]
    Stored,
    /// The entry is stored and delivered by [`Scene::release`].
    Held,
    /// The entry is lost, and its outcome is unknown to the sender.
    Lost,
    /// The journal stores nothing for now.
    Rejected,
    /// The journal will never accept the entry.
    Refused,
}

/// An append that is held.
type Append = (Subject, Position, EntryId, Bytes);

#[derive(Default)]
pub(crate) struct Scene {
    pub(crate) now: Timestamp,
    /// The BBSs; `None` if a BBS is dead.
    pub(crate) bbs: Vec<Option<Bbs>>,
    pub(crate) journal: Vec<Message>,
    /// Outcome of appends, by prefix of the subject.
    pub(crate) fate: BTreeMap<&'static str, Fate>,
    /// Text of an event. The journal refuses every entry that contains this event.
    pub(crate) refused: Option<&'static str>,
    /// BBSs that started (`true`) or stopped leading, in order.
    pub(crate) leading: Vec<(usize, bool)>,
    /// Entries that BBSs published on the feed, in order.
    pub(crate) published: Vec<(usize, Position, EntryId)>,
    /// Appends with [`Fate::Held`].
    held: Vec<Append>,
    /// BBSs whose followers deliver nothing for now.
    pub(crate) lagging: BTreeSet<usize>,
    /// `true` if the journal cannot be read.
    pub(crate) is_unreadable: bool,
    /// Number of reads of a last entry.
    pub(crate) reads: usize,
    /// BBS that dies, and the event that triggers its death. The BBS dies once its next entry with this event
    /// is stored, before it receives the entry.
    pub(crate) dies_after: Option<(usize, &'static str)>,
    /// Cells that send a heartbeat every five seconds and respond to probes, with their incarnation and
    /// number of heartbeats.
    pub(crate) cells: BTreeMap<String, (u64, u64)>,
    /// Responses to probes from a rep other than the probed one.
    pub(crate) other_reps: BTreeMap<String, Heartbeat>,
    next_beat: Timestamp,
    pub(crate) answers: BTreeMap<u64, Reply>,
    pub(crate) stops: Vec<(CellId, Stop)>,
    pub(crate) cancels: Vec<(CellId, Stop)>,
    pub(crate) entered: Vec<(CellId, StartExec)>,
    pub(crate) probes: Vec<CellId>,
    /// Orders to reps to evacuate, end an evacuation or stop acting for a cell.
    pub(crate) orders: Vec<(&'static str, CellId)>,
    pub(crate) beats: Vec<(usize, Timestamp)>,
    pub(crate) warned: Vec<String>,
    pub(crate) halted: BTreeSet<usize>,
    /// Positions that operators have quarantined. Each BBS that starts is given these positions.
    pub(crate) quarantines: QuarantinedPositions,
    /// Callbacks without a response.
    pub(crate) calls: Vec<(usize, TaskGuid, Epoch)>,
    requester: u64,
    /// Number of allocations in the steps of all BBSs.
    pub(crate) allocations: u64,
}

impl Scene {
    /// Returns a scene with these cells and this many BBSs. The first BBS leads.
    pub(crate) fn with(bbss: usize, cells: &[&str]) -> Self {
        let mut scene = Self { now: words::at(0), ..Self::default() };
        scene.next_beat = scene.now;
        scene.start();
        scene.pass(Duration::from_secs(1));
        for _ in 1..bbss {
            scene.start();
        }
        scene.cells = cells.iter().map(|cell| ((*cell).to_owned(), (1, 0))).collect();
        scene.pass(Duration::from_secs(6));
        assert!(scene.bbs[0].as_ref().unwrap().leads());
        cells.iter().for_each(|cell| assert!(scene.bbs(0).world().is_present(&words::cell_id(cell))));
        scene
    }

    /// Starts another BBS, which reads the journal from the start.
    pub(crate) fn start(&mut self) -> usize {
        self.bbs.push(None);
        self.restart(self.bbs.len() - 1)
    }

    /// Starts the BBS with this number again. The BBS reads the journal from the start.
    pub(crate) fn restart(&mut self, number: usize) -> usize {
        self.bbs[number] = Some(self.new_bbs(number));
        for position in 1..=self.journal.len() {
            self.input(number, self.delivery(position));
        }
        self.input(number, Input::CaughtUp);
        self.input(number, Input::Tick);
        number
    }

    /// Adds a BBS that has not read the journal yet.
    pub(crate) fn add_unread_bbs(&mut self) -> usize {
        let number = self.bbs.len();
        let bbs = self.new_bbs(number);
        self.bbs.push(Some(bbs));
        number
    }

    fn new_bbs(&mut self, number: usize) -> Bbs {
        self.requester += 1;
        Bbs::new(settings(number), IdGenerator::new(100 + self.requester))
            .with_quarantined(self.quarantines.clone())
    }

    pub(crate) fn bbs(&self, number: usize) -> &Bbs {
        self.bbs[number].as_ref().unwrap()
    }

    fn delivery(&self, position: usize) -> Input {
        let Message { subject, entry, bytes } = self.journal[position - 1].clone();
        Input::Delivered { position: Position(position as u64), subject, entry, bytes }
    }

    /// Passes an input to a BBS, and handles everything that follows from it.
    pub(crate) fn input(&mut self, node: usize, input: Input) {
        let mut waiting = VecDeque::from([(node, input)]);
        while let Some((node, input)) = waiting.pop_front() {
            for input in [input, Input::Turn] {
                let Some(bbs) = &mut self.bbs[node] else { break };
                let mut effects = vec![];
                let allocated = allocation_counter::measure(|| effects = bbs.step(self.now, input));
                self.allocations += allocated.count_total;
                for effect in effects {
                    waiting.extend(self.perform(node, effect));
                }
            }
        }
    }

    fn perform(&mut self, node: usize, effect: Effect) -> Vec<(usize, Input)> {
        match effect {
            Effect::Append { subject, expected, entry, bytes } => {
                return self.append(node, (subject, expected, entry, bytes));
            }
            Effect::ReadLast(subject) => {
                self.reads += 1;
                if self.is_unreadable {
                    return vec![(
                        node,
                        Input::LastEntry { subject, last: Err("no server responds".into()) },
                    )];
                }
                let text = subject.to_string();
                let place = self.journal.iter().rposition(|stored| stored.subject == text);
                let last = place.map(|at| (Position(at as u64 + 1), self.journal[at].entry));
                return vec![(node, Input::LastEntry { subject, last: Ok(last) })];
            }
            Effect::Reply { requester, reply } => drop(self.answers.insert(requester, reply)),
            Effect::AnswerQuery { requester, query, picture, observed } => {
                drop(self.answers.insert(requester, bbs::answer(&query, &picture, &observed)));
            }
            Effect::Stop(cell, stop) => self.stops.push((cell, stop)),
            Effect::Cancel(cell, stop) => self.cancels.push((cell, stop)),
            Effect::Enter(cell, enter) => self.entered.push((cell, enter)),
            Effect::Probe(cell, _) => {
                self.probes.push(cell.clone());
                let answer = self
                    .cells
                    .get(cell.as_str())
                    .map(|(incarnation, beats)| words::heartbeat(cell.as_str(), *incarnation, *beats));
                let answer = answer.or_else(|| self.other_reps.get(cell.as_str()).cloned());
                return vec![(node, Input::ProbeResult { cell, answer })];
            }
            Effect::LeaderHeartbeat(beat) => {
                self.beats.push((node, self.now));
                let others = (0..self.bbs.len()).filter(|other| *other != node);
                return others.map(|other| (other, Input::LeaderHeartbeat(beat.clone()))).collect();
            }
            Effect::Call { task, epoch, .. } => self.calls.push((node, task, epoch)),
            Effect::Warn(why) => self.warned.push(why),
            Effect::Quarantined(none) => {
                self.warned.push(format!("position {} is quarantined: {}", none.position, none.reason));
            }
            Effect::Halt(_) => drop(self.halted.insert(node)),
            Effect::Evacuate(cell, _) => self.orders.push(("evacuate", cell)),
            Effect::Uncordon(cell, _) => self.orders.push(("uncordon", cell)),
            Effect::Dismiss(cell, _) => self.orders.push(("dismiss", cell)),
            Effect::Publish { position, entry, .. } => self.published.push((node, position, entry.id)),
            Effect::Subscribed(_) => {}
            Effect::Leading(leads) => self.leading.push((node, leads)),
        }
        vec![]
    }

    fn append(&mut self, node: usize, append: Append) -> Vec<(usize, Input)> {
        let (subject, _, entry, _) = &append;
        let text = subject.to_string();
        let fate = self.fate.iter().find(|(start, _)| text.starts_with(**start)).map(|(_, fate)| *fate);
        let not = |why| vec![(node, Input::NotAppended { subject: subject.clone(), entry: *entry, why })];
        let has = |event: &str| String::from_utf8_lossy(&append.3).contains(event);
        let fate = self.refused.is_some_and(has).then_some(Fate::Refused).or(fate);
        match fate.unwrap_or_default() {
            Fate::Stored => self.store(node, append),
            Fate::Held => {
                self.held.push(append);
                vec![]
            }
            Fate::Lost => not(AppendFailure::Unknown { why: "no server responds".into(), stated: false }),
            Fate::Rejected => not(AppendFailure::NotStored("insufficient resources".into())),
            Fate::Refused => not(AppendFailure::Refused("no".into())),
        }
    }

    fn store(&mut self, node: usize, (subject, expected, entry, bytes): Append) -> Vec<(usize, Input)> {
        let text = subject.to_string();
        let last = self.journal.iter().rposition(|stored| stored.subject == text).map_or(0, |at| at + 1);
        if expected.0 != last as u64 {
            return vec![(node, Input::NotAppended { subject, entry, why: AppendFailure::Conflict })];
        }
        let event = self.dies_after.filter(|(who, _)| *who == node).map(|(_, event)| event);
        if event.is_some_and(|event| String::from_utf8_lossy(&bytes).contains(event)) {
            self.bbs[node] = None;
            self.dies_after = None;
        }
        self.put(&text, Some(entry), bytes)
    }

    /// Stores bytes without any checks. Returns the deliveries to all BBSs.
    fn put(&mut self, subject: &str, entry: Option<EntryId>, bytes: Bytes) -> Vec<(usize, Input)> {
        self.journal.push(Message { subject: subject.to_owned(), entry, bytes });
        let position = self.journal.len();
        let told = (0..self.bbs.len()).filter(|node| !self.lagging.contains(node));
        told.map(|node| (node, self.delivery(position))).collect()
    }

    /// Delivers the entries that a BBS missed while it lagged.
    pub(crate) fn catch_up(&mut self, node: usize) {
        let mut told = usize::try_from(self.bbs(node).world().position().0).unwrap();
        while told < self.journal.len() {
            told += 1;
            self.redeliver(node, told);
        }
        self.lagging.remove(&node);
    }

    /// Delivers the message at a position again.
    pub(crate) fn redeliver(&mut self, node: usize, position: usize) {
        let input = self.delivery(position);
        self.input(node, input);
    }

    /// Lets the cells continue to send heartbeats after the clock was set.
    pub(crate) fn resume(&mut self) {
        self.next_beat = self.now;
    }

    /// Writes invalid data into the journal.
    pub(crate) fn write_invalid(&mut self, subject: &str, bytes: &[u8]) {
        for (node, input) in self.put(subject, None, Bytes::copy_from_slice(bytes)) {
            self.input(node, input);
        }
    }

    /// Stores the held appends in order, with their bytes modified by `changed`.
    pub(crate) fn release(&mut self, changed: impl Fn(Bytes) -> Bytes) {
        for (subject, expected, entry, bytes) in std::mem::take(&mut self.held) {
            for (node, input) in self.store(0, (subject, expected, entry, changed(bytes))) {
                self.input(node, input);
            }
        }
    }

    /// Refuses the held appends.
    pub(crate) fn refuse_held(&mut self) {
        for (subject, _, entry, _) in std::mem::take(&mut self.held) {
            let why = AppendFailure::Refused("no".into());
            self.input(0, Input::NotAppended { subject, entry, why });
        }
    }

    /// Lets time pass, from alarm to alarm and from heartbeat to heartbeat.
    pub(crate) fn pass(&mut self, length: Duration) {
        let end = self.now + length;
        loop {
            let alarms = self.bbs.iter().flatten().filter_map(Bbs::alarm);
            let Some(next) = alarms.chain([self.next_beat]).min().filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            if self.next_beat <= self.now {
                self.next_beat = self.now + Duration::from_secs(5);
                self.send_all_heartbeats();
            }
            for node in 0..self.bbs.len() {
                if self.bbs[node].as_ref().and_then(Bbs::alarm).is_some_and(|at| at <= self.now) {
                    self.input(node, Input::Tick);
                }
            }
        }
        self.now = end;
    }

    fn send_all_heartbeats(&mut self) {
        for cell in self.cells.keys().cloned().collect::<Vec<_>>() {
            self.send_heartbeat(&cell);
        }
    }

    pub(crate) fn send_heartbeat(&mut self, cell: &str) {
        let (incarnation, beats) = self.cells.get_mut(cell).unwrap();
        *beats += 1;
        let beat = words::heartbeat(cell, *incarnation, *beats);
        for node in 0..self.bbs.len() {
            self.input(node, Input::Heartbeat(beat.clone()));
        }
    }

    pub(crate) fn ask(&mut self, node: usize, ask: ChangeRequest) -> u64 {
        self.requester += 1;
        self.input(node, Input::Request { requester: self.requester, ask });
        self.requester
    }

    pub(crate) fn client(&mut self, node: usize, command: ClientCommand) -> u64 {
        let client = ClientName::new("tester").unwrap();
        let (domain, envelope) = (words::domain(), Envelope::default());
        self.ask(node, ChangeRequest::client(domain, client, envelope, command))
    }

    pub(crate) fn report(&mut self, node: usize, cell: &str, report: Report) -> u64 {
        let reports = Reports { folder: words::folder(1), reports: vec![report] };
        self.ask(node, ChangeRequest::Cell { cell: words::cell_id(cell), reports })
    }

    /// Returns all decisions with their positions.
    pub(crate) fn decisions(&self) -> Vec<(usize, Decision)> {
        let of = |(at, stored): (usize, &Message)| {
            let decisions = Entry::decode(&stored.bytes).map_or(vec![], |entry| entry.decisions);
            decisions.into_iter().map(move |decision| (at + 1, decision)).collect::<Vec<_>>()
        };
        self.journal.iter().enumerate().flat_map(of).collect()
    }

    /// Returns the times of the decisions with an event of this type.
    pub(crate) fn times(&self, event: &str) -> Vec<Timestamp> {
        let has =
            |decision: &Decision| decision.events.iter().map(Event::type_name).any(|name| name == event);
        self.decisions().into_iter().filter(|(_, one)| has(one)).map(|(_, one)| one.at).collect()
    }

    pub(crate) fn epoch(&self, node: usize, name: &str) -> Epoch {
        self.bbs(node).world().process(&words::process_guid(name)).unwrap().epoch
    }

    pub(crate) fn state(&self, node: usize, name: &str, index: u32) -> &'static str {
        let process = self.bbs(node).world().process(&words::process_guid(name));
        process
            .and_then(|process| process.actual(&fixtures::place(index, name)))
            .map_or("-", |lrp| lrp.state_name())
    }

    pub(crate) fn task_state(&self, node: usize, name: &str) -> &'static str {
        let task = self.bbs(node).world().task(&words::task_guid(name));
        task.filter(|task| task.state.is_some()).map_or("-", |task| task.state_name())
    }

    /// Returns a BBS's reply to a query.
    pub(crate) fn query(&mut self, node: usize, query: Query) -> Reply {
        self.requester += 1;
        let requester = self.requester;
        self.input(node, Input::Query { requester, at_least: None, query });
        self.answers.remove(&requester).expect("queries are answered at once")
    }

    /// Returns the state of the cluster as a BBS reports it.
    pub(crate) fn cluster(&mut self, node: usize) -> ClusterRow {
        let query = Query::Rows(projections::Query::Cluster(Filter::default()));
        let Reply::Rows(Ok(rows)) = self.query(node, query) else { panic!("no rows") };
        serde_json::from_str::<ShowAnswer<ClusterRow>>(&rows).unwrap().row
    }
}

/// Returns the settings of a BBS that founds a cluster in an empty log.
pub(crate) fn settings(number: usize) -> Config {
    Config {
        id: ServiceId::new(&format!("b{number}")).unwrap(),
        founding_shards: Some(4),
        presence: presence::Config::default(),
        durability: "none".into(),
        history_limit: schemas::limits::DEFAULT_HISTORY_SHOWN,
        program: schemas::message::Program::default(),
        slice_len: bbs::SLICE_LEN,
        bytes_in_flight: schemas::limits::BYTES_IN_FLIGHT,
        may_lead: true,
    }
}
