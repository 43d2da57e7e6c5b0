//! The nodes: the machines with their clocks, whether they live, and when they have something to do.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use auctioneer::Auctioneer;
use bbs::Bbs;
use projections::cluster_log::QuarantinedPositions;
use projections::{Reader, World};
use rep::Rep;
use schemas::cluster::Role;
use schemas::container::ContainerState;
use schemas::message::{ALIVE_INTERVAL, Ack, Attach, Program, ServiceStatus};
use schemas::names::{CellId, FolderId, IdGenerator, Incarnation, PlacementTag, ServiceId, Stack, Zone};
use schemas::resources::Resources;
use schemas::subject::Position;
use schemas::{Refusal, Timestamp, limits};
use scripted::{Behaviour, Scripted};

use super::arrived::{Arrived, Clock};
use super::bus::{About, Kind, Question, bytes_of};
use super::cluster::{Cluster, ClusterEvent, NodeEvent, START};
use super::coverage::Situation;
use super::invariants::Invariant;
use super::racks;
use super::rng::Rng;
use super::walls;

/// So many containers that ended BBSs show of each index.
pub(crate) const HISTORY: u32 = 3;
/// How soon a rep that was not let speak for its cell asks again.
const ATTACH_AGAIN: Duration = Duration::from_millis(200);

/// A node, by its role and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    /// A BBS.
    Bbs(usize),
    /// An auctioneer.
    Auctioneer(usize),
    /// A rep.
    Rep(usize),
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bbs(at) => write!(f, "bbs-{}", at + 1),
            Self::Auctioneer(at) => write!(f, "auctioneer-{}", at + 1),
            Self::Rep(at) => write!(f, "rep-{}", cell_id(*at)),
        }
    }
}

/// One life of a node: what comes to an earlier one is lost.
pub(super) type Life = (Node, u64);

/// A machine.
pub(super) enum Machine {
    Bbs(Box<Bbs>),
    /// With what its driver reads of the log.
    Auctioneer(Box<Auctioneer>, Box<Reader>),
    Rep(Box<Rep>),
}

/// What the log said up to a position, as bytes.
pub(super) struct Snapshot {
    position: Position,
    reader: Vec<u8>,
    world: Vec<u8>,
}

/// What a machine wants done.
pub(super) enum NodeEffect {
    Bbs(bbs::Effect),
    Auctioneer(auctioneer::Effect),
    Rep(rep::Effect),
}

/// Where a node runs: what of it outlives the machine, and which faults it has.
pub(super) struct Place {
    pub(super) machine: Option<Machine>,
    pub(super) generation: u64,
    /// How far its follower is.
    pub(super) delivered: Position,
    pub(super) caught_up: bool,
    /// When it is woken next.
    pub(super) alarm: Option<Timestamp>,
    /// Whether it is to get a turn.
    pub(super) turn_due: bool,
    /// Until then everything that comes waits.
    pub(super) held_until: Timestamp,
    /// Until then the bus loses everything from and to it.
    pub(super) cut_until: Timestamp,
    /// Whether it noticed that it is cut off.
    pub(super) knows_cut: bool,
    /// Until then it does not reach the journal.
    pub(super) dark_until: Timestamp,
    /// Until then its follower stands still.
    pub(super) lags_until: Timestamp,
    /// How much its clock was ahead at its last step in this life.
    stepped_at_ms: i64,
    /// How much its clock is ahead, in milliseconds; START is far enough from 0 to subtract.
    pub(super) skew_ms: i64,
}

impl Place {
    pub(super) const fn new(skew_ms: i64) -> Self {
        Self {
            machine: None,
            generation: 0,
            delivered: Position(0),
            caught_up: false,
            alarm: None,
            turn_due: false,
            held_until: START,
            cut_until: START,
            knows_cut: false,
            dark_until: START,
            lags_until: START,
            stepped_at_ms: skew_ms,
            skew_ms,
        }
    }

    /// What its clock shows: it goes back when it is set back, as that of a service does.
    pub(super) const fn clock(&self, now: Timestamp) -> Timestamp {
        shifted(now, self.skew_ms)
    }

    /// Time of decisions, if it is a BBS.
    pub(super) fn decision_time(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.machine {
            Some(Machine::Bbs(bbs)) => Some(bbs.time_at(self.clock(now))),
            Some(Machine::Auctioneer(..) | Machine::Rep(_)) | None => None,
        }
    }

    /// Nanoseconds by which its clock was set since its last step, if its driver notices that.
    fn take_clock_step(&mut self) -> Option<i64> {
        let by = self.skew_ms - std::mem::replace(&mut self.stepped_at_ms, self.skew_ms);
        let noticed = u128::from(by.unsigned_abs()) >= bbs::CLOCK_STEP.as_millis();
        noticed.then_some(by * 1_000_000)
    }

    /// The true time at which its clock shows `time`.
    fn true_time(&self, time: Timestamp) -> Timestamp {
        shifted(time, -self.skew_ms)
    }

    fn is_leading_bbs(&self) -> bool {
        match &self.machine {
            Some(Machine::Bbs(bbs)) => bbs.leads(),
            Some(Machine::Auctioneer(..) | Machine::Rep(_)) | None => false,
        }
    }

    fn is_leading_auctioneer(&self) -> bool {
        match &self.machine {
            Some(Machine::Auctioneer(auctioneer, _)) => auctioneer.is_leader(),
            Some(Machine::Bbs(_) | Machine::Rep(_)) | None => false,
        }
    }

    /// Whether it leads, in whichever role.
    pub(super) fn leads(&self) -> bool {
        self.is_leading_bbs() || self.is_leading_auctioneer()
    }

    /// What it sends to every BBS, unless it is a rep.
    fn alive(&self, now: Timestamp) -> Option<ServiceStatus> {
        let (id, role, standing) = match self.machine.as_ref()? {
            Machine::Bbs(bbs) => (bbs.id(), Role::Bbs, bbs.standing()),
            Machine::Auctioneer(auctioneer, _) => (auctioneer.id(), Role::Auctioneer, auctioneer.standing()),
            Machine::Rep(_) => return None,
        };
        let (clock, program) = (self.clock(now), Program::default());
        Some(ServiceStatus {
            id: id.clone(),
            role,
            program,
            leadership: standing,
            clock,
            may_lead: true,
            append_problem: None,
        })
    }

    /// What it has under way, by name.
    pub(super) fn books(&self) -> BTreeMap<&'static str, usize> {
        match &self.machine {
            Some(Machine::Bbs(bbs)) => bbs.pending_work(),
            Some(Machine::Auctioneer(auctioneer, _)) => {
                let counts = auctioneer.counts();
                BTreeMap::from([
                    ("work that waits for an auction", counts.ready),
                    ("work that was handed out", counts.handed_out),
                    ("messages to reps", counts.performs),
                    ("messages to the BBS", counts.outgoing),
                ])
            }
            Some(Machine::Rep(rep)) => rep.pending_counts(),
            None => BTreeMap::new(),
        }
    }

    /// How much it remembers, by name.
    pub(super) fn remembered(&self) -> BTreeMap<&'static str, usize> {
        match &self.machine {
            Some(Machine::Bbs(bbs)) => bbs.memory_sizes(),
            Some(Machine::Auctioneer(auctioneer, _)) => auctioneer.collection_sizes(),
            Some(Machine::Rep(rep)) => rep.collection_sizes(),
            None => BTreeMap::new(),
        }
    }

    /// What it makes of the log, if it folds it.
    pub(super) fn world(&self) -> Option<&World> {
        match self.machine.as_ref()? {
            Machine::Bbs(bbs) => Some(bbs.world()),
            Machine::Auctioneer(auctioneer, _) => Some(auctioneer.world()),
            Machine::Rep(_) => None,
        }
    }
}

const fn shifted(time: Timestamp, millis: i64) -> Timestamp {
    Timestamp(time.0.saturating_add_signed(millis * 1_000_000))
}

impl Machine {
    fn alarm(&self) -> Option<Timestamp> {
        match self {
            Self::Bbs(bbs) => bbs.alarm(),
            Self::Auctioneer(auctioneer, _) => auctioneer.alarm(),
            Self::Rep(rep) => rep.alarm(),
        }
    }

    /// Takes an input, and gets a turn if one is due. Answers what each of both steps wants done.
    fn step(
        &mut self,
        (now, clock_step): (Timestamp, Option<i64>),
        arrived: Arrived,
        turn: bool,
    ) -> Vec<Vec<NodeEffect>> {
        fn each<E>(effects: Vec<E>, of: fn(E) -> NodeEffect) -> Vec<NodeEffect> {
            effects.into_iter().map(of).collect()
        }
        match self {
            Self::Bbs(bbs) => {
                let clock_step = clock_step.map(bbs::Input::ClockStepped).into_iter();
                let inputs = clock_step.chain(arrived.for_bbs()).chain(turn.then_some(bbs::Input::Turn));
                inputs.map(|input| each(bbs.step(now, input), NodeEffect::Bbs)).collect()
            }
            Self::Auctioneer(auctioneer, reader) => {
                let turn = turn.then_some(auctioneer::Input::Turn);
                let inputs = arrived.for_auctioneer(reader).into_iter().chain(turn);
                inputs.map(|input| each(auctioneer.step(now, input), NodeEffect::Auctioneer)).collect()
            }
            Self::Rep(rep) => {
                let inputs = arrived.for_rep().into_iter().chain(turn.then_some(rep::Input::Turn));
                inputs.map(|input| each(rep.step(now, input), NodeEffect::Rep)).collect()
            }
        }
    }
}

/// Most work of a narrow cluster that its cells have and nobody claimed.
pub const NARROW: usize = 8;

/// Who is there, and what is the same for every machine of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many BBSs there are.
    pub bbss: usize,
    /// How many auctioneers there are.
    pub auctioneers: usize,
    /// How many cells there are; every second one is in another zone.
    pub cells: usize,
    /// Whether the last cell takes only work that asks for its tag.
    pub tagged: bool,
    /// Whether cells are of different sizes.
    pub mixed: bool,
    /// Whether the last cell has room for a thousand instances.
    pub roomy: bool,
    /// Whether auctioneers give cells no more than [`NARROW`] pieces of work before some of it is claimed.
    pub narrow: bool,
    /// How long an evacuation may take.
    pub evacuation: Duration,
    /// How often a rep tests itself.
    pub self_test: Duration,
    /// How the journal answers an append that it has stored before.
    pub replicas: Replicas,
    /// Whether the journal acknowledges only what is on disk. If not, it must break promises when the power is cut.
    pub synced: bool,
}

/// How many machines keep the journal. One answers a repeated append with a conflict, three as a duplicate, as long as
/// they remember it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicas {
    /// One.
    One,
    /// Three.
    Three,
}

impl Shape {
    /// Two BBSs, two auctioneers, three cells.
    pub const USUAL: Self = Self {
        bbss: 2,
        auctioneers: 2,
        cells: 3,
        tagged: false,
        mixed: false,
        roomy: false,
        narrow: false,
        evacuation: Duration::from_secs(30),
        self_test: Duration::from_secs(15),
        replicas: Replicas::One,
        synced: true,
    };

    /// A shape drawn from the seed.
    #[must_use]
    pub const fn drawn(rng: &mut Rng) -> Self {
        let tagged = rng.chance(400);
        let evacuation = rng.millis(3_000, 30_000);
        let self_test = if rng.chance(500) { Duration::from_secs(600) } else { Duration::from_secs(15) };
        let bbss = if rng.chance(200) { 3 } else { 2 };
        let auctioneers = if rng.chance(100) { 3 } else { 2 };
        let cells = match rng.below(6) {
            0 => 5,
            1 | 2 => 4,
            _ => 3,
        };
        let replicas = if rng.chance(500) { Replicas::One } else { Replicas::Three };
        let mixed = rng.chance(400);
        let narrow = rng.chance(250);
        Self {
            bbss,
            auctioneers,
            cells,
            tagged,
            mixed,
            roomy: false,
            narrow,
            evacuation,
            self_test,
            replicas,
            synced: true,
        }
    }

    /// The same, with time for evacuations and room for several at once.
    #[must_use]
    pub fn for_evacuations(self) -> Self {
        Self { evacuation: self.evacuation * 2, cells: self.cells + 2, ..self }
    }

    /// Every node, whether it lives or not.
    pub fn nodes(self) -> impl Iterator<Item = Node> {
        let bbss = (0..self.bbss).map(Node::Bbs);
        let auctioneers = (0..self.auctioneers).map(Node::Auctioneer);
        bbss.chain(auctioneers).chain((0..self.cells).map(Node::Rep))
    }

    /// How an auctioneer is set up.
    #[must_use]
    pub fn auctioneer(self) -> auctioneer::Settings {
        let usual = auctioneer::Settings::default();
        auctioneer::Settings { outstanding: if self.narrow { NARROW } else { usual.outstanding }, ..usual }
    }

    /// How a cell is set up.
    #[must_use]
    pub fn cell(self, at: usize) -> rep::Settings {
        let zone = Zone::new(if at.is_multiple_of(2) { "z1" } else { "z2" }).expect("a name");
        let roomy = self.roomy && at + 1 == self.cells;
        let total = match (self.mixed && !roomy, at % 4) {
            (false, _) if roomy => {
                Resources { memory_mb: 1_048_576, disk_mb: 1_048_576, containers: 1_000, ports: 1_000 }
            }
            (false, _) | (true, 0) => {
                Resources { memory_mb: 2_048, disk_mb: 4_096, containers: 12, ports: 10 }
            }
            (true, 1) => Resources { memory_mb: 4_096, disk_mb: 1_024, containers: 16, ports: 20 },
            (true, 2) => Resources { memory_mb: 1_024, disk_mb: 8_192, containers: 6, ports: 3 },
            (true, _) => Resources { memory_mb: 8_192, disk_mb: 512, containers: 4, ports: 10 },
        };
        let mut settings =
            rep::Settings::new(cell_id(at), folder(at), zone, Stack::new("linux").expect("a name"), total);
        if self.tagged && at + 1 == self.cells {
            settings.placement_tags.insert(tag());
        }
        settings.attributes = racks::attributes(at);
        settings.evacuation_timeout = self.evacuation;
        settings.self_test = self.self_test;
        settings
    }
}

/// The tag that the last cell may have.
#[must_use]
pub fn tag() -> PlacementTag {
    PlacementTag::new("gpu").expect("a name")
}

/// The name of a cell.
#[must_use]
pub fn cell_id(at: usize) -> CellId {
    CellId::new(&format!("c{}", at + 1)).expect("a name")
}

/// Where the containers of a cell are reached.
#[must_use]
fn address(at: usize) -> String {
    format!("10.0.0.{}", at + 1)
}

/// The data folder of a cell's rep: it outlives the machine.
fn folder(cell: usize) -> FolderId {
    FolderId(uuid::Uuid::from_u64_pair(0, cell as u64))
}

/// The rep of a cell.
pub(super) fn rep_of(cell: &CellId) -> Node {
    let number = cell.as_str().strip_prefix('c').and_then(|number| number.parse::<usize>().ok());
    Node::Rep(number.and_then(|number| number.checked_sub(1)).expect("cells are called c1, c2, ..."))
}

/// A cell's number in the run.
pub(super) fn number_of(cell: &CellId) -> usize {
    match rep_of(cell) {
        Node::Rep(at) => at,
        Node::Bbs(_) | Node::Auctioneer(_) => usize::MAX,
    }
}

/// The containers of a cell that is new.
pub(super) fn containers(cell: usize) -> Scripted {
    Scripted::new(&address(cell), Behaviour::from_recipe).with_isolation(walls::kept(cell))
}

impl Cluster {
    pub(super) fn all_nodes(&self) -> Vec<Node> {
        self.places.keys().copied().collect()
    }

    pub(super) fn place(&self, node: Node) -> &Place {
        &self.places[&node]
    }

    pub(super) fn place_mut(&mut self, node: Node) -> &mut Place {
        self.places.get_mut(&node).expect("every node has a place")
    }

    /// The life of a node, if it lives.
    pub(super) fn life(&self, node: Node) -> Option<Life> {
        let place = self.place(node);
        place.machine.is_some().then_some((node, place.generation))
    }

    pub(super) fn leading_bbss(&self) -> Vec<Node> {
        let leads = |(_, place): &(&Node, &Place)| place.is_leading_bbs();
        self.places.iter().filter(leads).map(|(node, _)| *node).collect()
    }

    pub(super) fn leading_auctioneers(&self) -> usize {
        self.places.values().filter(|place| place.is_leading_auctioneer()).count()
    }

    pub(super) fn start(&mut self, node: Node) {
        match node {
            Node::Rep(cell) => self.attach(cell),
            Node::Bbs(_) | Node::Auctioneer(_) => self.start_machine(node, Position(0)),
        }
    }

    /// The rep of a cell asks whether it may speak for it, before it does anything.
    fn attach(&mut self, cell: usize) {
        let node = Node::Rep(cell);
        if self.gone.contains(&cell) {
            return;
        }
        if self.is_cut(node) {
            return self.schedule(self.now + ATTACH_AGAIN, ClusterEvent::Restart(node));
        }
        let to = self.leader();
        let question = Question { from: None, about: About::Attach(cell) };
        self.ask(to, question, Kind::Attach(cell_id(cell)), bytes_of(&Attach { folder: folder(cell) }));
    }

    /// The rep of a cell may speak for it, or has to ask again.
    pub(super) fn attached(&mut self, cell: usize, answer: Option<Result<Ack, Refusal>>) {
        let node = Node::Rep(cell);
        match answer {
            Some(Ok(_)) if self.gone.contains(&cell) => {}
            Some(Ok(done)) => {
                self.checkers.attached(&cell_id(cell), done.position);
                self.start_machine(node, done.position);
            }
            Some(Err(_)) | None => self.schedule(self.now + ATTACH_AGAIN, ClusterEvent::Restart(node)),
        }
    }

    fn start_machine(&mut self, node: Node, attached: Position) {
        self.seeds += 1;
        let mut ids = IdGenerator::new(self.seeds);
        let id = ServiceId::new(&format!("s{}", self.seeds)).expect("a name");
        let (reader, world) = self.snapshot_for(node);
        let delivered = world.position();
        let machine = match node {
            Node::Bbs(_) => {
                // Every other BBS has hardly room for entries in flight.
                let bytes = if self.seeds.is_multiple_of(2) { limits::BYTES_IN_FLIGHT } else { 4_000 };
                let bbs = Bbs::new(bbs_settings(id, bytes), ids);
                Machine::Bbs(Box::new(bbs.with_log(reader, world)))
            }
            Node::Auctioneer(_) => {
                let auctioneer = Auctioneer::with_world(id, self.shape.auctioneer(), world);
                Machine::Auctioneer(Box::new(auctioneer), Box::new(reader))
            }
            Node::Rep(at) => {
                if self.cells[at].list().iter().any(|one| matches!(one.state, ContainerState::Running(_))) {
                    self.saw(Situation::RepAdopted);
                }
                let incarnation = Incarnation(ids.next(self.place(node).clock(self.now)));
                Machine::Rep(Box::new(Rep::new(self.shape.cell(at), attached, incarnation, ids)))
            }
        };
        let place = self.place_mut(node);
        let (cut_until, dark_until, lags_until) = (place.cut_until, place.dark_until, place.lags_until);
        let (generation, skew_ms) = (place.generation + 1, place.skew_ms);
        let machine = Some(machine);
        *place = Place {
            machine,
            generation,
            delivered,
            cut_until,
            dark_until,
            lags_until,
            ..Place::new(skew_ms)
        };
        self.tell(|| format!("{node} starts"));
        let first = match node {
            Node::Bbs(_) | Node::Auctioneer(_) => NodeEvent::Follow,
            Node::Rep(_) => NodeEvent::Alarm,
        };
        self.schedule_for(self.now, (node, self.place(node).generation), first);
    }

    /// Where a machine begins to fold the log: every second life at the newest snapshot, the others at the beginning.
    fn snapshot_for(&mut self, node: Node) -> (Reader, World) {
        let folds = match node {
            Node::Bbs(_) | Node::Auctioneer(_) => true,
            Node::Rep(_) => false,
        };
        let wanted = folds && self.place(node).generation % 2 == 1;
        let snapshot = self.snapshot.as_ref().filter(|_| wanted);
        let Some(snapshot) = snapshot else { return Default::default() };
        let reader = Reader::from_bytes(&snapshot.reader, snapshot.position, QuarantinedPositions::default());
        let world = World::from_bytes(&snapshot.world, None);
        let begin = (reader.expect("a reader is restored"), world.expect("a World is restored"));
        self.saw(Situation::StartedFromSnapshot);
        begin
    }

    /// Somebody who folds the log writes a snapshot of it.
    fn write_snapshot(&mut self, node: Node) {
        let written = match &self.place(node).machine {
            Some(Machine::Bbs(bbs)) => Some((bbs.reader(), bbs.world())),
            Some(Machine::Auctioneer(auctioneer, reader)) => Some((&**reader, auctioneer.world())),
            Some(Machine::Rep(_)) | None => None,
        };
        let snapshot = written.map(|(reader, world)| Snapshot {
            position: world.position(),
            reader: reader.to_bytes(),
            world: world.to_bytes(),
        });
        if snapshot.as_ref().map(|new| new.position) > self.snapshot.as_ref().map(|old| old.position) {
            self.snapshot = snapshot;
        }
    }

    /// A machine is no more; what a rep met is kept. Answers whether it lived.
    pub(super) fn end_life(&mut self, node: Node) -> bool {
        let life = self.life(node);
        life.into_iter().for_each(|life| self.checkers.leads(life, false, self.now));
        self.write_snapshot(node);
        let machine = self.place_mut(node).machine.take();
        if let Some(Machine::Rep(rep)) = &machine {
            for (row, count) in rep.applied_rows() {
                *self.rows.entry(*row).or_default() += count;
            }
        }
        machine.is_some()
    }

    /// Kills a node, and lets it start again later.
    pub(super) fn kill(&mut self, node: Node, away: Duration) {
        if self.end_life(node) {
            self.tell(|| format!("{node} is killed"));
            self.schedule(self.now + away, ClusterEvent::Restart(node));
        }
    }

    /// The machine of a cell dies with everything on it; another one takes its place later, or never.
    pub(super) fn let_die(&mut self, cell: usize, away: Option<Duration>) {
        let node = Node::Rep(cell);
        self.checkers.cell_died(cell, self.now);
        self.cells[cell] = containers(cell);
        let lived = self.end_life(node);
        match away {
            Some(away) if lived => self.schedule(self.now + away, ClusterEvent::Restart(node)),
            // Who is away already comes back as it was to, and finds nothing.
            Some(_) => {}
            None => {
                self.gone.insert(cell);
                self.checkers.cell_gone(cell);
            }
        }
    }

    /// The evacuated cell's program ended: it comes back later, and must find nothing.
    pub(super) fn exited(&mut self, cell: usize) {
        let node = Node::Rep(cell);
        self.tell(|| format!("{node} exits"));
        self.end_life(node);
        let away = self.chaos.millis(12_000, 30_000);
        self.schedule(self.now + away, ClusterEvent::Replace(cell));
    }

    /// A cell that was evacuated comes back.
    pub(super) fn replace(&mut self, cell: usize) {
        // An order to delete may have been lost: what it leaves has ended, or ends when the rep is back.
        let mut left = self.cells[cell].list();
        left.retain(|container| !self.checkers.is_deleted(container.instance_guid));
        if !left.is_empty() {
            let how = format!("{} still holds {} containers", cell_id(cell), left.len());
            self.violated(Invariant::Evacuation, how);
        }
        self.start(Node::Rep(cell));
    }

    // ---- inputs --------------------------------------------------------------------------------------------------

    /// Lets a machine take an input and, now or soon, a turn, and does what it says.
    pub(super) fn input(&mut self, node: Node, arrived: Arrived) {
        self.steps += 1;
        let answers = matches!(arrived, Arrived::Answer { bytes: Some(_), .. });
        let ticks = matches!(arrived, Arrived::Tick);
        let gathers = !matches!(arrived, Arrived::Turn) && self.chaos.chance(self.faults.gathered);
        let now = self.now;
        let place = self.place_mut(node);
        let clock = (place.clock(now), place.take_clock_step());
        let Some(machine) = &mut place.machine else { return };
        let steps = machine.step(clock, arrived, !gathers);
        if let (Machine::Auctioneer(auctioneer, _), generation) = (&*machine, place.generation)
            && let Some(term) = auctioneer.term()
        {
            let delivered = place.delivered;
            self.checkers.auctioneer_leads((node, generation), delivered, (term, now));
        }
        let place = self.place_mut(node);
        let turn_due = std::mem::replace(&mut place.turn_due, gathers);
        if gathers && !turn_due {
            let at = self.now + self.chaos.millis(1, 20);
            let life = (node, self.place(node).generation);
            self.schedule_for(at, life, NodeEvent::Turn);
        }
        // Nobody here listens to the feed, so nothing can go wrong with it: no chance is spent on it.
        let is_felt = |effect: &NodeEffect| !matches!(effect, NodeEffect::Bbs(bbs::Effect::Publish { .. }));
        let effects: Vec<NodeEffect> = steps.into_iter().flatten().filter(is_felt).collect();
        self.look_at_takeover(node, &effects, ticks);
        for effect in effects {
            if let Some(life) = self.life(node) {
                self.checkers.effect(life, &effect, now);
            }
            if self.chaos.chance(self.faults.killed_between) {
                self.inject("services killed between two effects");
                self.trouble(Duration::from_secs(5));
                self.saw(Situation::KilledBetween);
                let away = self.chaos.millis(0, 5_000);
                return self.kill(node, away);
            }
            match effect {
                NodeEffect::Bbs(effect) => self.bbs_effect(node, effect),
                NodeEffect::Auctioneer(effect) => self.auctioneer_effect(node, effect),
                NodeEffect::Rep(effect) => self.rep_effect(node, effect, answers),
            }
        }
        self.set_alarm(node);
    }

    /// Clocks of the NATS server, of BBSs and of auctioneers come to every BBS that is reached.
    pub(super) fn compare_clocks(&mut self) {
        let lives: Vec<Life> = self.all_nodes().into_iter().filter_map(|node| self.life(node)).collect();
        for (node, generation) in lives {
            let Node::Bbs(_) = node else { continue };
            if self.is_cut(node) {
                continue;
            }
            let mut clocks = vec![];
            if !self.is_dark(node) {
                clocks.push(Clock::Server(self.now));
            }
            for from in self.all_nodes() {
                let place = self.place(from);
                let heard = place.held_until <= self.now && !self.is_cut(from) && !self.is_parted(from, node);
                clocks.extend(place.alive(self.now).filter(|_| heard && from != node).map(Clock::Alive));
            }
            for clock in clocks {
                self.schedule_for(self.now, (node, generation), NodeEvent::Clock(clock));
            }
        }
        self.schedule(self.now + ALIVE_INTERVAL, ClusterEvent::CompareClocks);
    }

    pub(super) fn alarm(&mut self, node: Node) {
        let now = self.now;
        let place = self.place_mut(node);
        place.alarm = None;
        let due = place.machine.as_ref().and_then(Machine::alarm);
        if due.is_some_and(|due| due <= place.clock(now)) {
            self.input(node, Arrived::Tick);
        } else {
            self.set_alarm(node);
        }
    }

    fn set_alarm(&mut self, node: Node) {
        let soon = self.now + Duration::from_millis(1);
        let place = self.place_mut(node);
        let Some(due) = place.machine.as_ref().and_then(Machine::alarm) else { return };
        let due = place.true_time(due).max(soon);
        if place.alarm.is_none_or(|set| due < set) {
            place.alarm = Some(due);
            let life = (node, place.generation);
            self.schedule_for(due, life, NodeEvent::Alarm);
        }
    }
}

/// Returns the timeouts of the presence detection.
pub(super) fn presence() -> bbs::presence::Config {
    let mass_loss_wait = Duration::from_secs(10);
    bbs::presence::Config { mass_loss_wait, ..bbs::presence::Config::default() }
}

fn bbs_settings(id: ServiceId, bytes_in_flight: usize) -> bbs::Config {
    bbs::Config {
        id,
        founding_shards: Some(4),
        presence: presence(),
        durability: "simulated".into(),
        history_limit: HISTORY,
        program: Program::default(),
        slice_len: bbs::SLICE_LEN,
        bytes_in_flight,
        may_lead: true,
    }
}
