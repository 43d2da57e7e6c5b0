//! Simulated cluster: one BBS, one auctioneer and the reps of the cells, with a clock, a log and a bus
//! without faults. Events run in one thread, ordered by time. Runs are deterministic: equal runs have equal
//! steps.

use std::collections::BTreeMap;
use std::time::Duration;

use auctioneer::Auctioneer;
use bbs::Bbs;
use projections::World;
use schemas::message::{Ack, PerformId};
use schemas::names::{CellId, IdGenerator, Incarnation};
use schemas::subject::Position;
use schemas::{Entry, Refusal, Timestamp};

use super::cells::{self, Node};
use super::tape::Tape;
use super::times::Times;
use super::{Recording, Unusable};

/// Latency of a message or an append.
pub(super) const LATENCY: Duration = Duration::from_millis(1);
/// Request timeout.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// Retry interval of a rep whose attach request was refused or timed out.
pub(super) const ATTACH_AGAIN: Duration = Duration::from_millis(200);
/// Maximum number of steps of a run. A run that comes to rest takes fewer.
const STEPS: u64 = 50_000_000;

/// Machine of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    Bbs,
    Auctioneer,
    Rep(CellId),
}

/// Scheduled event.
pub(super) enum Due {
    Bbs(Box<bbs::Input>),
    Auctioneer(Box<auctioneer::Input>),
    /// Input for one life of a rep. The number is the life.
    Rep(CellId, u64, Box<rep::Input>),
    /// Turn of a machine, shared by all inputs of the same moment.
    Turn(Machine),
    Alarm(Machine),
    /// Container event of a cell.
    Containers(CellId),
    /// Attach request of the rep of a cell.
    Attach(CellId),
    /// Timeout of a request.
    Expires(u64),
}

/// Sender and purpose of a request.
#[derive(Clone, Debug)]
pub(super) enum Asker {
    /// Report of a rep.
    Report { cell: CellId, life: u64, id: u64 },
    /// Record query of a rep.
    Records { cell: CellId, life: u64, id: u64 },
    /// Attach request of a rep.
    Attach(CellId),
    /// Placement outcomes of the auctioneer.
    Outcomes(u64),
    /// Leadership request of the auctioneer.
    Lead,
    /// Work that the auctioneer assigned to a rep.
    Perform(CellId, PerformId),
    /// Probe or other order of the BBS for the rep of a cell.
    Probe(CellId),
    /// Request of a client or an operator.
    Change(u64),
    /// Request whose reply is ignored.
    Nobody,
}

/// Simulated cluster that continues a recorded log.
pub(super) struct Stage<'a> {
    pub(super) now: Timestamp,
    /// End time of the recording.
    pub(super) began: Timestamp,
    pub(super) tape: Tape,
    pub(super) bbs: Bbs,
    pub(super) auctioneer: Auctioneer,
    pub(super) cells: BTreeMap<CellId, Node>,
    pub(super) times: &'a Times,
    pub(super) ids: IdGenerator,
    due: BTreeMap<(Timestamp, u64), Due>,
    counter: u64,
    pub(super) asked: BTreeMap<u64, Asker>,
    /// Replies to clients and operators, by request number.
    pub(super) answers: BTreeMap<u64, Result<Ack, Refusal>>,
    /// Number of requests of clients and operators.
    pub(super) changes: u64,
    bbs_alarm: Option<Timestamp>,
    auctioneer_alarm: Option<Timestamp>,
    bbs_turn: bool,
    auctioneer_turn: bool,
    /// Time of the last append.
    pub(super) appended_at: Timestamp,
    steps: u64,
    /// Reason that the simulation cannot continue.
    pub(super) halted: Option<String>,
}

impl<'a> Stage<'a> {
    /// Creates the cluster of a recording and schedules the start of all its machines.
    pub(super) fn new(recording: &'a Recording) -> Self {
        let world = recording.bbs.world();
        let now = recording.time;
        let auctioneer = Auctioneer::with_world(
            recording.auctioneer.clone(),
            auctioneer::Settings::default(),
            world.clone(),
        );
        let times = &recording.times;
        let cells = cells::nodes(world, now, times);
        let mut stage = Self {
            now,
            began: now,
            tape: recording.tape.clone(),
            bbs: recording.bbs.clone(),
            auctioneer,
            cells,
            times,
            ids: IdGenerator::new(recording.tape.end().0),
            due: BTreeMap::new(),
            counter: 0,
            asked: BTreeMap::new(),
            answers: BTreeMap::new(),
            changes: 0,
            bbs_alarm: None,
            auctioneer_alarm: None,
            bbs_turn: false,
            auctioneer_turn: false,
            appended_at: now,
            steps: 0,
            halted: None,
        };
        stage.schedule(now, Due::Bbs(Box::new(bbs::Input::CaughtUp)));
        stage.schedule(now, Due::Auctioneer(Box::new(auctioneer::Input::CaughtUp)));
        for id in stage.cells.keys().cloned().collect::<Vec<_>>() {
            stage.schedule(now + LATENCY, Due::Attach(id.clone()));
            stage.wait_for_containers(&id);
        }
        stage
    }

    /// Returns the current World.
    pub(super) const fn world(&self) -> &World {
        self.bbs.world()
    }

    /// Schedules an event. A time in the past means now.
    pub(super) fn schedule(&mut self, at: Timestamp, due: Due) {
        self.counter += 1;
        self.due.insert((at.max(self.now), self.counter), due);
    }

    /// Schedules an event after the message latency.
    pub(super) fn send(&mut self, due: Due) {
        self.schedule(self.now + LATENCY, due);
    }

    /// Registers a request and its timeout. Returns the request number, which the reply must carry.
    pub(super) fn asks(&mut self, asker: Asker) -> u64 {
        self.counter += 1;
        let number = self.counter;
        self.asked.insert(number, asker);
        self.schedule(self.now + PATIENCE, Due::Expires(number));
        number
    }

    /// Advances the time to a moment.
    ///
    /// # Errors
    /// Returns an error if a machine stopped at input that it cannot process, or if the run exceeded its step
    /// limit.
    pub(super) fn until(&mut self, moment: Timestamp) -> Result<(), Unusable> {
        while let Some(first) = self.due.first_entry().filter(|first| first.key().0 <= moment) {
            let ((at, _), due) = first.remove_entry();
            self.now = self.now.max(at);
            self.steps += 1;
            if self.steps > STEPS {
                return Err(Unusable::Restless(self.now));
            }
            self.happens(due);
            if let Some(why) = self.halted.take() {
                return Err(Unusable::Halted(why));
            }
        }
        self.now = self.now.max(moment);
        Ok(())
    }

    fn happens(&mut self, due: Due) {
        match due {
            Due::Bbs(input) => self.bbs_takes(*input),
            Due::Auctioneer(input) => self.auctioneer_takes(*input),
            Due::Rep(id, life, input) => {
                let alive = self.cells.get(&id).is_some_and(|node| node.rep.is_some() && node.life == life);
                // Input for an absent rep has no reply, so the request times out.
                if alive {
                    self.rep_takes(&id, *input);
                }
            }
            Due::Turn(who) => self.turn(&who),
            Due::Alarm(who) => self.alarm(&who),
            Due::Containers(id) => self.advance(&id),
            Due::Attach(id) => self.attach(&id),
            Due::Expires(number) => self.expires(number),
        }
    }

    // ---- inputs ----

    pub(super) fn bbs_takes(&mut self, input: bbs::Input) {
        let effects = self.bbs.step(self.now, input);
        self.turn_soon(Machine::Bbs);
        effects.into_iter().for_each(|effect| self.bbs_effect(effect));
        self.wake(Machine::Bbs);
    }

    fn auctioneer_takes(&mut self, input: auctioneer::Input) {
        let effects = self.auctioneer.step(self.now, input);
        self.turn_soon(Machine::Auctioneer);
        effects.into_iter().for_each(|effect| self.auctioneer_effect(effect));
        self.wake(Machine::Auctioneer);
    }

    fn rep_takes(&mut self, id: &CellId, input: rep::Input) {
        let now = self.now;
        let Some(rep) = self.cells.get_mut(id).and_then(|node| node.rep.as_mut()) else { return };
        let effects = rep.step(now, input);
        self.turn_soon(Machine::Rep(id.clone()));
        effects.into_iter().for_each(|effect| self.rep_effect(id, effect));
        self.wake(Machine::Rep(id.clone()));
    }

    /// Schedules a turn, unless one is due. The turn decides all inputs before it together.
    fn turn_soon(&mut self, who: Machine) {
        let due = match &who {
            Machine::Bbs => std::mem::replace(&mut self.bbs_turn, true),
            Machine::Auctioneer => std::mem::replace(&mut self.auctioneer_turn, true),
            Machine::Rep(id) => {
                let Some(node) = self.cells.get_mut(id) else { return };
                std::mem::replace(&mut node.turn_due, true)
            }
        };
        if !due {
            self.schedule(self.now, Due::Turn(who));
        }
    }

    fn turn(&mut self, who: &Machine) {
        match who {
            Machine::Bbs => {
                self.bbs_turn = false;
                let effects = self.bbs.step(self.now, bbs::Input::Turn);
                effects.into_iter().for_each(|effect| self.bbs_effect(effect));
            }
            Machine::Auctioneer => {
                self.auctioneer_turn = false;
                let effects = self.auctioneer.step(self.now, auctioneer::Input::Turn);
                effects.into_iter().for_each(|effect| self.auctioneer_effect(effect));
            }
            Machine::Rep(id) => {
                let now = self.now;
                let Some(node) = self.cells.get_mut(id) else { return };
                node.turn_due = false;
                let Some(rep) = &mut node.rep else { return };
                let effects = rep.step(now, rep::Input::Turn);
                effects.into_iter().for_each(|effect| self.rep_effect(id, effect));
            }
        }
        self.wake(who.clone());
    }

    // ---- alarms ----

    fn alarm_of(&self, who: &Machine) -> Option<Timestamp> {
        match who {
            Machine::Bbs => self.bbs.alarm(),
            Machine::Auctioneer => self.auctioneer.alarm(),
            Machine::Rep(id) => self.cells.get(id)?.rep.as_ref()?.alarm(),
        }
    }

    fn set_alarm(&mut self, who: &Machine) -> Option<&mut Option<Timestamp>> {
        Some(match who {
            Machine::Bbs => &mut self.bbs_alarm,
            Machine::Auctioneer => &mut self.auctioneer_alarm,
            Machine::Rep(id) => &mut self.cells.get_mut(id)?.alarm,
        })
    }

    /// Schedules a wake-up at the alarm of a machine.
    pub(super) fn wake(&mut self, who: Machine) {
        let Some(due) = self.alarm_of(&who) else { return };
        let due = due.max(self.now + LATENCY);
        let Some(set) = self.set_alarm(&who) else { return };
        if set.is_none_or(|set| due < set) {
            *set = Some(due);
            self.schedule(due, Due::Alarm(who));
        }
    }

    fn alarm(&mut self, who: &Machine) {
        let Some(set) = self.set_alarm(who) else { return };
        *set = None;
        if self.alarm_of(who).is_none_or(|due| due > self.now) {
            return self.wake(who.clone());
        }
        match who {
            Machine::Bbs => self.bbs_takes(bbs::Input::Tick),
            Machine::Auctioneer => self.auctioneer_takes(auctioneer::Input::Tick),
            Machine::Rep(id) => self.rep_takes(id, rep::Input::Tick),
        }
    }

    // ---- log ----

    /// Delivers the entry at a position to the BBS and the auctioneer.
    pub(super) fn deliver(&mut self, position: Position) {
        let Some(message) = self.tape.get(position).cloned() else { return };
        let entry = match Entry::decode(&message.bytes) {
            Ok(entry) => entry,
            Err(why) => {
                self.halted = Some(format!("position {position}: {why}"));
                return;
            }
        };
        let recorded = bbs::Input::Delivered {
            position,
            subject: message.subject,
            entry: message.entry,
            bytes: message.bytes,
        };
        self.send(Due::Bbs(Box::new(recorded)));
        self.send(Due::Auctioneer(Box::new(auctioneer::Input::Recorded { position, entry: entry.into() })));
    }

    // ---- containers and cells ----

    /// Processes the due container events of a cell.
    fn advance(&mut self, id: &CellId) {
        let now = self.now;
        let Some(node) = self.cells.get_mut(id) else { return };
        let changed = node.containers.advance(now);
        node.containers.take_events();
        let life = node.life;
        for container in changed {
            self.send(Due::Rep(id.clone(), life, Box::new(rep::Input::Container(container))));
        }
        self.wait_for_containers(id);
    }

    pub(super) fn wait_for_containers(&mut self, id: &CellId) {
        let next = self.cells.get(id).and_then(|node| node.containers.next_due());
        if let Some(due) = next {
            self.schedule(due, Due::Containers(id.clone()));
        }
    }

    /// Sends the attach request of a rep. The rep does nothing before it is granted.
    fn attach(&mut self, id: &CellId) {
        let Some(node) = self.cells.get(id).filter(|node| node.rep.is_none()) else { return };
        let attach = schemas::message::Attach { folder: node.presence.folder };
        let requester = self.asks(Asker::Attach(id.clone()));
        let ask = bbs::ChangeRequest::Attach { cell: id.clone(), attach };
        self.send(Due::Bbs(Box::new(bbs::Input::Request { requester, ask })));
    }

    /// Starts the rep of a cell after its attach request was granted.
    pub(super) fn attached(&mut self, id: &CellId, position: Position) {
        let seed = self.counter;
        let Some(node) = self.cells.get_mut(id).filter(|node| node.rep.is_none()) else { return };
        node.begin(id, position, IdGenerator::new(seed));
        self.wake(Machine::Rep(id.clone()));
    }

    /// Returns the incarnation of a new run of a rep.
    pub(super) fn incarnation(&mut self) -> Incarnation {
        Incarnation(self.ids.next(self.now))
    }
}
