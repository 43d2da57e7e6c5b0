//! Nodes: state machines with clocks, their starts and stops, and their inputs.

use std::time::Duration;

use auctioneer::Auctioneer;
use bbs::Bbs;
use projections::cluster_log::QuarantinedPositions;
use projections::{Reader, World};
use rep::Rep;
use schemas::container::ContainerState;
use schemas::message::{ALIVE_INTERVAL, Ack, Attach, Program};
use schemas::names::{IdGenerator, Incarnation, ServiceId};
use schemas::subject::Position;
use schemas::{Refusal, limits};

use crate::arrived::Arrived;
use crate::cluster::Cluster;
use crate::coverage::Situation;
use crate::event::{About, Clock, ClusterEvent, Kind, NodeEvent, Question, bytes_of};
use crate::invariants::Invariant;
use crate::layout::cell_id;
use crate::machine::{Machine, NodeEffect, Place, Snapshot};
use crate::shape::{HISTORY, Life, Node, containers, folder, presence};

/// Delay before a rep that may not act for its cell asks again.
const ATTACH_AGAIN: Duration = Duration::from_millis(200);

impl Cluster {
    pub(crate) fn all_nodes(&self) -> Vec<Node> {
        self.places.keys().copied().collect()
    }

    pub(crate) fn place(&self, node: Node) -> &Place {
        &self.places[&node]
    }

    pub(crate) fn place_mut(&mut self, node: Node) -> &mut Place {
        self.places.get_mut(&node).expect("every node has a place")
    }

    /// Returns the life of a node. `None` if the node is down.
    pub(crate) fn life(&self, node: Node) -> Option<Life> {
        let place = self.place(node);
        place.machine.is_some().then_some((node, place.generation))
    }

    pub(crate) fn leading_bbss(&self) -> Vec<Node> {
        let leads = |(_, place): &(&Node, &Place)| place.is_leading_bbs();
        self.places.iter().filter(leads).map(|(node, _)| *node).collect()
    }

    pub(crate) fn leading_auctioneers(&self) -> usize {
        self.places.values().filter(|place| place.is_leading_auctioneer()).count()
    }

    pub(crate) fn start(&mut self, node: Node) {
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
    pub(crate) fn attached(&mut self, cell: usize, answer: Option<Result<Ack, Refusal>>) {
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
                    self.met(Situation::RepAdopted);
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
        self.log(|| format!("{node} starts"));
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
        self.met(Situation::StartedFromSnapshot);
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
    pub(crate) fn end_life(&mut self, node: Node) -> bool {
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
    pub(crate) fn kill(&mut self, node: Node, away: Duration) {
        if self.end_life(node) {
            self.log(|| format!("{node} is killed"));
            self.schedule(self.now + away, ClusterEvent::Restart(node));
        }
    }

    /// Kills the machine of a cell with all its containers. An empty machine may replace it later.
    pub(crate) fn let_die(&mut self, cell: usize, away: Option<Duration>) {
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
    pub(crate) fn exited(&mut self, cell: usize) {
        let node = Node::Rep(cell);
        self.log(|| format!("{node} exits"));
        self.end_life(node);
        let away = self.chaos.millis(12_000, 30_000);
        self.schedule(self.now + away, ClusterEvent::Replace(cell));
    }

    /// Starts the rep of an evacuated cell again. The cell must be empty.
    pub(crate) fn replace(&mut self, cell: usize) {
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
    pub(crate) fn input(&mut self, node: Node, arrived: Arrived) {
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
        self.check_takeover(node, &effects, ticks);
        for effect in effects {
            if let Some(life) = self.life(node) {
                self.checkers.effect(life, &effect, now);
            }
            if self.chaos.chance(self.faults.killed_between) {
                self.inject("services killed between two effects");
                self.trouble(Duration::from_secs(5));
                self.met(Situation::KilledBetween);
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
    pub(crate) fn compare_clocks(&mut self) {
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

    pub(crate) fn alarm(&mut self, node: Node) {
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
