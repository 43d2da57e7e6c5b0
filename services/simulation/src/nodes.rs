//! Nodes: state machines with clocks, their starts and stops, and their inputs.

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

/// Number of ended containers that BBSs show for each index.
pub(crate) const HISTORY: u32 = 3;
/// Delay before a rep that may not act for its cell asks again.
const ATTACH_AGAIN: Duration = Duration::from_millis(200);

/// Node with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    Bbs(usize),
    Auctioneer(usize),
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

/// One life of a node. Events for an earlier life are lost.
pub(super) type Life = (Node, u64);

/// State machine of a node.
pub(super) enum Machine {
    Bbs(Box<Bbs>),
    /// With the log reader of its driver.
    Auctioneer(Box<Auctioneer>, Box<Reader>),
    Rep(Box<Rep>),
}

/// Snapshot of the log up to a position.
pub(super) struct Snapshot {
    position: Position,
    reader: Vec<u8>,
    world: Vec<u8>,
}

/// Effect of a state machine.
pub(super) enum NodeEffect {
    Bbs(bbs::Effect),
    Auctioneer(auctioneer::Effect),
    Rep(rep::Effect),
}

/// Runtime state of a node that outlives its state machine.
pub(super) struct Place {
    pub(super) machine: Option<Machine>,
    pub(super) generation: u64,
    /// Last position that the log reader delivered.
    pub(super) delivered: Position,
    pub(super) caught_up: bool,
    /// Time of the next tick.
    pub(super) alarm: Option<Timestamp>,
    /// `true` if the machine is due for a turn.
    pub(super) turn_due: bool,
    /// End of a pause. All inputs wait until then.
    pub(super) held_until: Timestamp,
    /// End of a cut from the bus.
    pub(super) cut_until: Timestamp,
    /// `true` if the node noticed the cut.
    pub(super) knows_cut: bool,
    /// End of a cut from the journal.
    pub(super) dark_until: Timestamp,
    /// Time until which the log reader stands still.
    pub(super) lags_until: Timestamp,
    /// Clock offset at the last step of this life.
    stepped_at_ms: i64,
    /// Clock offset in milliseconds.
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

    /// Returns the time that the clock shows. It may go back.
    pub(super) const fn clock(&self, now: Timestamp) -> Timestamp {
        shifted(now, self.skew_ms)
    }

    /// Returns the time of decisions. `None` if the node is not a BBS.
    pub(super) fn decision_time(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.machine {
            Some(Machine::Bbs(bbs)) => Some(bbs.time_at(self.clock(now))),
            Some(Machine::Auctioneer(..) | Machine::Rep(_)) | None => None,
        }
    }

    /// Returns the clock step since the last input in nanoseconds, if the driver notices it.
    fn take_clock_step(&mut self) -> Option<i64> {
        let by = self.skew_ms - std::mem::replace(&mut self.stepped_at_ms, self.skew_ms);
        let noticed = u128::from(by.unsigned_abs()) >= bbs::CLOCK_STEP.as_millis();
        noticed.then_some(by * 1_000_000)
    }

    /// Returns the true time at which the clock shows `time`.
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

    /// Returns `true` if the node leads as a BBS or as an auctioneer.
    pub(super) fn leads(&self) -> bool {
        self.is_leading_bbs() || self.is_leading_auctioneer()
    }

    /// Returns the status message to every BBS. `None` for a rep.
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

    /// Returns the sizes of queues and pending work by name.
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

    /// Returns the sizes of collections by name.
    pub(super) fn remembered(&self) -> BTreeMap<&'static str, usize> {
        match &self.machine {
            Some(Machine::Bbs(bbs)) => bbs.memory_sizes(),
            Some(Machine::Auctioneer(auctioneer, _)) => auctioneer.collection_sizes(),
            Some(Machine::Rep(rep)) => rep.collection_sizes(),
            None => BTreeMap::new(),
        }
    }

    /// Returns the World of a BBS or an auctioneer.
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

    /// Handles an input, and a turn if one is due. Returns the effects of each step.
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

/// Maximum amount of unclaimed work per auctioneer in a narrow cluster.
pub const NARROW: usize = 8;

/// Size and configuration of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub bbss: usize,
    pub auctioneers: usize,
    /// Number of cells. Every second cell is in another zone.
    pub cells: usize,
    /// `true` if the last cell accepts only work that requires its tag.
    pub tagged: bool,
    /// `true` if cells have different sizes.
    pub mixed: bool,
    /// `true` if the last cell has room for a thousand instances.
    pub roomy: bool,
    /// `true` if auctioneers allow only [`NARROW`] pieces of unclaimed work.
    pub narrow: bool,
    /// Evacuation timeout.
    pub evacuation: Duration,
    /// Interval of the self-tests of reps.
    pub self_test: Duration,
    /// Number of journal servers.
    pub replicas: Replicas,
    /// `true` if the journal acknowledges only synced entries. Otherwise a power cut violates invariants.
    pub synced: bool,
}

/// Number of journal servers. One server answers a repeated append with a conflict. Three servers answer it
/// as a duplicate, while they remember the first append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicas {
    One,
    Three,
}

impl Shape {
    /// Default shape: two BBSs, two auctioneers, three cells.
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

    /// Draws a shape.
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

    /// Returns the shape with more time and more cells for evacuations.
    #[must_use]
    pub fn for_evacuations(self) -> Self {
        Self { evacuation: self.evacuation * 2, cells: self.cells + 2, ..self }
    }

    /// Returns all nodes.
    pub fn nodes(self) -> impl Iterator<Item = Node> {
        let bbss = (0..self.bbss).map(Node::Bbs);
        let auctioneers = (0..self.auctioneers).map(Node::Auctioneer);
        bbss.chain(auctioneers).chain((0..self.cells).map(Node::Rep))
    }

    /// Returns the settings of an auctioneer.
    #[must_use]
    pub fn auctioneer(self) -> auctioneer::Settings {
        let usual = auctioneer::Settings::default();
        auctioneer::Settings { outstanding: if self.narrow { NARROW } else { usual.outstanding }, ..usual }
    }

    /// Returns the settings of a cell.
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

/// Returns the tag that the last cell may have.
#[must_use]
pub fn tag() -> PlacementTag {
    PlacementTag::new("gpu").expect("a name")
}

/// Returns the id of a cell.
#[must_use]
pub fn cell_id(at: usize) -> CellId {
    CellId::new(&format!("c{}", at + 1)).expect("a name")
}

/// Returns the address of the containers of a cell.
#[must_use]
fn address(at: usize) -> String {
    format!("10.0.0.{}", at + 1)
}

/// Returns the data folder of a cell's rep. It outlives the machine.
fn folder(cell: usize) -> FolderId {
    FolderId(uuid::Uuid::from_u64_pair(0, cell as u64))
}

/// Returns the rep of a cell.
pub(super) fn rep_of(cell: &CellId) -> Node {
    let number = cell.as_str().strip_prefix('c').and_then(|number| number.parse::<usize>().ok());
    Node::Rep(number.and_then(|number| number.checked_sub(1)).expect("cells are called c1, c2, ..."))
}

/// Returns the number of a cell.
pub(super) fn number_of(cell: &CellId) -> usize {
    match rep_of(cell) {
        Node::Rep(at) => at,
        Node::Bbs(_) | Node::Auctioneer(_) => usize::MAX,
    }
}

/// Returns the containers of a new cell.
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

    /// Returns the life of a node. `None` if the node is down.
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

    /// Asks a BBS to let the rep act for its cell.
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

    /// Starts a rep that may act for its cell, or asks again.
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
                // Every second BBS has room for few entries in flight.
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

    /// Returns the log state with which a node starts: the newest snapshot for every second life, otherwise
    /// nothing.
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

    /// Stores a snapshot of the node's log state.
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

    /// Ends a life. Returns `false` if the node was down.
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

    /// Kills a node, which starts again later.
    pub(super) fn kill(&mut self, node: Node, away: Duration) {
        if self.end_life(node) {
            self.tell(|| format!("{node} is killed"));
            self.schedule(self.now + away, ClusterEvent::Restart(node));
        }
    }

    /// Kills the machine of a cell with all its containers. An empty machine may replace it later.
    pub(super) fn let_die(&mut self, cell: usize, away: Option<Duration>) {
        let node = Node::Rep(cell);
        self.checkers.cell_died(cell, self.now);
        self.cells[cell] = containers(cell);
        let lived = self.end_life(node);
        match away {
            Some(away) if lived => self.schedule(self.now + away, ClusterEvent::Restart(node)),
            // The rep is down, and restarts as scheduled.
            Some(_) => {}
            None => {
                self.gone.insert(cell);
                self.checkers.cell_gone(cell);
            }
        }
    }

    /// The rep exits after an evacuation, and comes back later.
    pub(super) fn exited(&mut self, cell: usize) {
        let node = Node::Rep(cell);
        self.tell(|| format!("{node} exits"));
        self.end_life(node);
        let away = self.chaos.millis(12_000, 30_000);
        self.schedule(self.now + away, ClusterEvent::Replace(cell));
    }

    /// Starts the rep of an evacuated cell again. The cell must be empty.
    pub(super) fn replace(&mut self, cell: usize) {
        // The order to delete an ended container may have been lost.
        let mut left = self.cells[cell].list();
        left.retain(|container| !self.checkers.is_deleted(container.instance_guid));
        if !left.is_empty() {
            let how = format!("{} still holds {} containers", cell_id(cell), left.len());
            self.violated(Invariant::Evacuation, how);
        }
        self.start(Node::Rep(cell));
    }

    // ---- inputs --------------------------------------------------------------------------------------------------

    /// Passes an input to a node, with a turn now or soon, and carries out the effects.
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
        // No node receives the event feed.
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

    /// Sends the clocks of the NATS server, BBSs and auctioneers to every reachable BBS.
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
