//! The stage: one BBS, one auctioneer and the cells' reps, with a clock, a log and a bus on which nothing goes wrong. Everything
//! happens in one thread, in the order of its times; the same run is the same, step by step.

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

/// How long a message takes, and an append.
pub(super) const LATENCY: Duration = Duration::from_millis(1);
/// How long somebody waits for an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// How soon a rep asks again that was not let speak for its cell.
pub(super) const ATTACH_AGAIN: Duration = Duration::from_millis(200);
/// More steps than any run takes that comes to rest.
const STEPS: u64 = 50_000_000;

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Bbs,
    Auctioneer,
    Rep(CellId),
}

/// What happens at its time.
pub(super) enum Due {
    Bbs(Box<bbs::Input>),
    Auctioneer(Box<auctioneer::Input>),
    /// To one life of a rep.
    Rep(CellId, u64, Box<rep::Input>),
    /// A machine gets its turn, once for all that came to it at the moment.
    Turn(Who),
    Alarm(Who),
    /// Something happens to the containers of a cell.
    Containers(CellId),
    /// The rep of a cell asks whether it may speak for it.
    Attach(CellId),
    /// Nobody waits for the answer to a question any more.
    Expires(u64),
}

/// Who asked a machine, and what for.
#[derive(Clone, Debug)]
pub(super) enum Asker {
    /// A rep that reports.
    Report { cell: CellId, life: u64, id: u64 },
    /// A rep that asks for records.
    Records { cell: CellId, life: u64, id: u64 },
    /// A rep that wants to speak for its cell.
    Attach(CellId),
    /// The auctioneer, of what it could not place.
    Outcomes(u64),
    /// The auctioneer, that wants to lead.
    Lead,
    /// The auctioneer, that gave work to a rep.
    Perform(CellId, PerformId),
    /// The BBS, that wants to know how a cell is.
    Probe(CellId),
    /// A client or an operator.
    Change(u64),
    /// Somebody who does not want to know.
    Nobody,
}

/// A cluster that goes on from where a log was left.
pub(super) struct Stage<'a> {
    pub(super) now: Timestamp,
    /// When the log was left.
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
    /// What clients and operators were answered.
    pub(super) answers: BTreeMap<u64, Result<Ack, Refusal>>,
    /// Counts what they asked.
    pub(super) changes: u64,
    bbs_alarm: Option<Timestamp>,
    auctioneer_alarm: Option<Timestamp>,
    bbs_turn: bool,
    auctioneer_turn: bool,
    /// When something was appended last.
    pub(super) appended_at: Timestamp,
    steps: u64,
    /// Why it can't go on.
    pub(super) halted: Option<String>,
}

impl<'a> Stage<'a> {
    /// The cluster of a recording, where all of it starts.
    pub(super) fn new(recording: &'a Recording) -> Self {
        let world = recording.bbs.world();
        let now = recording.time;
        let auctioneer = Auctioneer::with_world(
            recording.auctioneer.clone(),
            auctioneer::Settings::default(),
            world.clone(),
        );
        let times = &recording.times;
        let cells = cells::of(world, now, times);
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

    /// What is true.
    pub(super) const fn world(&self) -> &World {
        self.bbs.world()
    }

    /// Something happens at a time.
    pub(super) fn schedule(&mut self, at: Timestamp, due: Due) {
        self.counter += 1;
        self.due.insert((at.max(self.now), self.counter), due);
    }

    /// Something comes to a machine soon.
    pub(super) fn send(&mut self, due: Due) {
        self.schedule(self.now + LATENCY, due);
    }

    /// Remembers who asked; whoever answers names the number.
    pub(super) fn asks(&mut self, asker: Asker) -> u64 {
        self.counter += 1;
        let number = self.counter;
        self.asked.insert(number, asker);
        self.schedule(self.now + PATIENCE, Due::Expires(number));
        number
    }

    /// Lets time run to a moment.
    ///
    /// # Errors
    /// Why it can't: a machine met what it doesn't understand, or goes round in circles.
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
                // What comes to nobody is not answered, and whoever asked waits until its patience is over.
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

    // ---- inputs --------------------------------------------------------------------------------------------------

    pub(super) fn bbs_takes(&mut self, input: bbs::Input) {
        let effects = self.bbs.step(self.now, input);
        self.turn_soon(Who::Bbs);
        effects.into_iter().for_each(|effect| self.bbs_effect(effect));
        self.wake(Who::Bbs);
    }

    fn auctioneer_takes(&mut self, input: auctioneer::Input) {
        let effects = self.auctioneer.step(self.now, input);
        self.turn_soon(Who::Auctioneer);
        effects.into_iter().for_each(|effect| self.auctioneer_effect(effect));
        self.wake(Who::Auctioneer);
    }

    fn rep_takes(&mut self, id: &CellId, input: rep::Input) {
        let now = self.now;
        let Some(rep) = self.cells.get_mut(id).and_then(|node| node.rep.as_mut()) else { return };
        let effects = rep.step(now, input);
        self.turn_soon(Who::Rep(id.clone()));
        effects.into_iter().for_each(|effect| self.rep_effect(id, effect));
        self.wake(Who::Rep(id.clone()));
    }

    /// What came to a machine before its turn is decided together in it.
    fn turn_soon(&mut self, who: Who) {
        let due = match &who {
            Who::Bbs => std::mem::replace(&mut self.bbs_turn, true),
            Who::Auctioneer => std::mem::replace(&mut self.auctioneer_turn, true),
            Who::Rep(id) => {
                let Some(node) = self.cells.get_mut(id) else { return };
                std::mem::replace(&mut node.turn_due, true)
            }
        };
        if !due {
            self.schedule(self.now, Due::Turn(who));
        }
    }

    fn turn(&mut self, who: &Who) {
        match who {
            Who::Bbs => {
                self.bbs_turn = false;
                let effects = self.bbs.step(self.now, bbs::Input::Turn);
                effects.into_iter().for_each(|effect| self.bbs_effect(effect));
            }
            Who::Auctioneer => {
                self.auctioneer_turn = false;
                let effects = self.auctioneer.step(self.now, auctioneer::Input::Turn);
                effects.into_iter().for_each(|effect| self.auctioneer_effect(effect));
            }
            Who::Rep(id) => {
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

    // ---- alarms --------------------------------------------------------------------------------------------------

    fn alarm_of(&self, who: &Who) -> Option<Timestamp> {
        match who {
            Who::Bbs => self.bbs.alarm(),
            Who::Auctioneer => self.auctioneer.alarm(),
            Who::Rep(id) => self.cells.get(id)?.rep.as_ref()?.alarm(),
        }
    }

    fn set_alarm(&mut self, who: &Who) -> Option<&mut Option<Timestamp>> {
        Some(match who {
            Who::Bbs => &mut self.bbs_alarm,
            Who::Auctioneer => &mut self.auctioneer_alarm,
            Who::Rep(id) => &mut self.cells.get_mut(id)?.alarm,
        })
    }

    /// A machine is woken when it wants to be.
    pub(super) fn wake(&mut self, who: Who) {
        let Some(due) = self.alarm_of(&who) else { return };
        let due = due.max(self.now + LATENCY);
        let Some(set) = self.set_alarm(&who) else { return };
        if set.is_none_or(|set| due < set) {
            *set = Some(due);
            self.schedule(due, Due::Alarm(who));
        }
    }

    fn alarm(&mut self, who: &Who) {
        let Some(set) = self.set_alarm(who) else { return };
        *set = None;
        if self.alarm_of(who).is_none_or(|due| due > self.now) {
            return self.wake(who.clone());
        }
        match who {
            Who::Bbs => self.bbs_takes(bbs::Input::Tick),
            Who::Auctioneer => self.auctioneer_takes(auctioneer::Input::Tick),
            Who::Rep(id) => self.rep_takes(id, rep::Input::Tick),
        }
    }

    // ---- the log -------------------------------------------------------------------------------------------------

    /// Everybody who follows the log is told what the run appended at a position.
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

    // ---- containers and cells ------------------------------------------------------------------------------------

    /// Something is due of the containers of a cell.
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

    /// A rep asks whether it may speak for its cell, before it does anything.
    fn attach(&mut self, id: &CellId) {
        let Some(node) = self.cells.get(id).filter(|node| node.rep.is_none()) else { return };
        let attach = schemas::message::Attach { folder: node.presence.folder };
        let requester = self.asks(Asker::Attach(id.clone()));
        let ask = bbs::ChangeRequest::Attach { cell: id.clone(), attach };
        self.send(Due::Bbs(Box::new(bbs::Input::Request { requester, ask })));
    }

    /// A rep may speak for its cell.
    pub(super) fn attached(&mut self, id: &CellId, position: Position) {
        let seed = self.counter;
        let Some(node) = self.cells.get_mut(id).filter(|node| node.rep.is_none()) else { return };
        node.begin(id, position, IdGenerator::new(seed));
        self.wake(Who::Rep(id.clone()));
    }

    /// Another run of a rep.
    pub(super) fn incarnation(&mut self) -> Incarnation {
        Incarnation(self.ids.next(self.now))
    }
}
