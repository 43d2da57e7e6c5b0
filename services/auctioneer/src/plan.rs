//! What would come of a wish: the machine that decides and the auction that places, step by step, on a copy of what is.
//!
//! Nothing of it is written anywhere. In the copy whatever is placed runs at once and whatever is asked to stop is gone at
//! once, and only where nothing else is left to do time goes on to what is due next: monitors, delays, and the moment at
//! which an index without room for two stops its old instance first. What waits for room of others is in every auction, where
//! it has its turn; what they want later isn't known: a plan is true for a cluster in which nothing else is asked for.

mod known;
pub(crate) mod lacks;
mod overview;
mod preempted;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schemas::actual::{self, Actual};
use schemas::cell::Cell;
use schemas::container::{Instance, NetInfo, WorkKey};
use schemas::desired::Desired;
use schemas::entry::{Event, Stamp};
use schemas::isolation::Isolation;
use schemas::names::{CellId, DecisionId, Domain, InstanceGuid, ProcessGuid, TaskGuid, Zone};
use schemas::process::{self, Command, Context, Outcome, Process, Report, ReportStep, Slot, Steer, Unplaced};
use schemas::query::CellRow;
use schemas::resources::Resources;
use schemas::rollout::{self, Pause, Rollout};
use schemas::task::Task;
use schemas::{ActualLrpKey, Place, Refusal, Timestamp};
use serde::Serialize;
use uuid::Uuid;

use self::overview::Overview;
use crate::auction::{Item, Verdict, auction};
use crate::board::{Board, BoardCell};
use crate::preempt::Running;

pub use known::{board_cell, process as known_process, task as known_task};
pub use lacks::{Keeps, Lacks, Nearest, nearest};
pub use preempted::{Victim, running_instance, running_task};
pub use tasks::Fate;

/// How often time may go on without anything being placed or stopped, beside once for each instance, before a plan takes
/// what is left for impossible.
const IDLE: usize = 100;

/// What is made in a copy has greater numbers than anything that is drawn by chance or counted elsewhere.
const MADE: u128 = u128::MAX << 64;

/// A copy of a cluster, in which wishes come true.
#[derive(Clone, Debug)]
pub struct Copy {
    now: Timestamp,
    board: Board,
    /// The cells that global processes follow, with their ordinals.
    numbered: Vec<(u32, CellId, Cell)>,
    processes: BTreeMap<ProcessGuid, Process>,
    overview: Overview,
    /// The tasks that are known, and those of them that were asked for.
    tasks: BTreeMap<TaskGuid, Task>,
    asked_tasks: BTreeSet<TaskGuid>,
    /// What waits for room of others.
    others: Others,
    /// What runs of others and may be stopped for what is more urgent.
    may_stop: BTreeMap<CellId, Arc<Vec<Running>>>,
    /// Whether room appeared since the last auction.
    freed: bool,
    /// Names containers and decisions.
    made: u128,
    turn: u32,
    /// How many steps there were when it began.
    turn_at: usize,
    steps: Vec<Step>,
    /// Why what could not be placed was not, when it was last tried.
    lacking: BTreeMap<(ProcessGuid, Place), NoRoom>,
    /// The processes whose rollouts paused of themselves.
    paused: BTreeSet<ProcessGuid>,
}

/// Something that would happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Counts the turns that indices took before it; 0: none did.
    pub turn: u32,
    /// The process.
    pub process_guid: ProcessGuid,
    /// What.
    pub does: Does,
}

/// What would happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Does {
    /// An instance is placed, and starts.
    Starts {
        /// Which.
        place: Place,
        /// Where.
        cell_id: CellId,
        /// In which zone.
        zone: Zone,
    },
    /// An instance is asked to stop.
    Stops {
        /// Which.
        place: Place,
        /// Where it runs.
        cell_id: CellId,
    },
    /// What is less urgent stops on a cell, so that an instance has room there.
    Preempts {
        /// Which instance.
        place: Place,
        /// Where.
        cell_id: CellId,
        /// What stops.
        victims: Vec<Victim>,
    },
    /// There is no room for the new instance of an index beside its old one: after a while that goes first.
    FallsBack {
        /// Which.
        index: u32,
        /// What was missing.
        no_room: Option<NoRoom>,
    },
    /// The rollout pauses, and waits for somebody who resumes it.
    Pauses {
        /// Why.
        reason: String,
    },
}

/// Why an instance could not be placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NoRoom {
    /// As users read it.
    pub error: String,
    /// What each cell lacked, or why it was not looked at.
    pub cells: Lacks,
}

/// An instance that would find no place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Left {
    /// The process.
    pub process_guid: ProcessGuid,
    /// Which.
    pub place: Place,
    /// Why.
    #[serde(flatten)]
    pub no_room: NoRoom,
}

impl Copy {
    /// A copy of these cells, and of these processes among those that they run.
    pub fn new(
        now: Timestamp,
        cells: impl IntoIterator<Item = BoardCell>,
        processes: impl IntoIterator<Item = Process>,
    ) -> Self {
        let mut copy = Self {
            now,
            board: Board::new(cells),
            numbered: vec![],
            processes: BTreeMap::new(),
            overview: Overview::default(),
            tasks: BTreeMap::new(),
            asked_tasks: BTreeSet::new(),
            others: Others::default(),
            may_stop: BTreeMap::new(),
            freed: false,
            made: MADE,
            turn: 0,
            turn_at: 0,
            steps: vec![],
            lacking: BTreeMap::new(),
            paused: BTreeSet::new(),
        };
        for process in processes {
            copy.overview.take_in(&process);
            copy.processes.insert(process.guid.clone(), process);
        }
        copy
    }

    /// The same, where these processes and tasks wait for room as well.
    #[must_use]
    pub fn beside(
        mut self,
        processes: impl IntoIterator<Item = Process>,
        tasks: impl IntoIterator<Item = Item>,
    ) -> Self {
        for process in processes.into_iter().filter(|process| !self.processes.contains_key(&process.guid)) {
            for by in process.staying() {
                self.overview.count(&process.guid, &by.cell_id);
            }
            let places = process.slots.iter().map(|slot| &slot.place);
            self.others.waiting.extend(places.filter_map(|place| Item::of_place(&process, place)));
        }
        self.others.waiting.extend(tasks);
        self.others.untried = !self.others.waiting.is_empty();
        self
    }

    /// How much of others waits for room, and how much of it would have been placed by now.
    #[must_use]
    pub fn others(&self) -> (usize, usize) {
        (self.others.waiting.len() + self.others.placed, self.others.placed)
    }

    /// The same, with the ordinals of these cells: global processes follow them.
    ///
    /// # Errors
    /// See [`Self::walk`].
    pub fn numbered(mut self, cells: &[CellRow]) -> Result<Self, Refusal> {
        self.numbered = cells.iter().filter_map(known::numbered_cell).collect();
        let is_global = |process: &&Process| process.desired.as_deref().is_some_and(Desired::is_global);
        let global: Vec<ProcessGuid> =
            self.processes.values().filter(is_global).map(|process| process.guid.clone()).collect();
        for guid in &global {
            self.converge(guid)?;
        }
        Ok(self)
    }

    /// The cells, and what is free of each.
    pub fn cells(&self) -> impl Iterator<Item = (&BoardCell, Resources)> {
        (0..).zip(self.board.cells()).map(|(number, cell)| (cell, self.board.free(number)))
    }

    /// What would happen, in order.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// A process, as it is by now.
    #[must_use]
    pub fn process(&self, guid: &ProcessGuid) -> Option<&Process> {
        self.processes.get(guid)
    }

    /// The instances that found no place, with what each cell lacked.
    #[must_use]
    pub fn left(&self) -> Vec<Left> {
        let left = self.lacking.iter().filter(|((guid, place), _)| {
            let process = self.processes.get(guid);
            process.and_then(|process| process.actual(place)).is_some_and(Actual::is_unclaimed)
        });
        left.map(|((guid, place), no_room)| Left {
            process_guid: guid.clone(),
            place: place.clone(),
            no_room: no_room.clone(),
        })
        .collect()
    }

    /// Whether a process came to its end: one instance runs wherever one is to run, and no rollout is left under way. Of a
    /// global process, a cell that takes no new work is left as it is.
    #[must_use]
    pub fn is_carried_out(&self, guid: &ProcessGuid) -> bool {
        let Some(process) = self.processes.get(guid) else { return false };
        let rolls = process.rollout.as_deref().and_then(Rollout::under_way).is_some();
        let running = |index| process.actuals_at(index).filter(|(_, lrp)| lrp.runs_on()).count();
        let desired = process.desired.as_deref();
        let all = desired.is_none_or(|desired| {
            desired.indices().filter(|index| desired.rolls(*index)).all(|index| running(index) == 1)
        });
        let extra = |slot: &Slot| desired.is_none_or(|desired| !desired.has(slot.place.index));
        !rolls && all && !process.slots.iter().any(extra)
    }

    /// The most instances of a process on a cell that may have some, less the fewest.
    #[must_use]
    pub fn skew(&self, guid: &ProcessGuid) -> u32 {
        let on = self.spread(guid);
        let (most, least) = (on.values().max(), on.values().min());
        most.copied().unwrap_or(0) - least.copied().unwrap_or(0)
    }

    /// How many instances of a process stay on each cell that takes some of it.
    #[must_use]
    pub fn spread(&self, guid: &ProcessGuid) -> BTreeMap<CellId, u32> {
        let Some(process) = self.processes.get(guid) else { return BTreeMap::new() };
        let desired = process.desired.as_deref();
        let active = desired.and_then(|desired| desired.definition(&desired.active_definition_id));
        let Some(definition) = active else { return BTreeMap::new() };
        let takes = |cell: &&BoardCell| lacks::takes(cell, &definition.constraint);
        let cells = self.board.cells().iter().filter(takes);
        let mut on: BTreeMap<CellId, u32> = cells.map(|cell| (cell.id.clone(), 0)).collect();
        for by in process.staying() {
            if let Some(count) = on.get_mut(&by.cell_id) {
                *count += 1;
            }
        }
        on
    }

    /// Asks something of a process; says whether that changes anything.
    ///
    /// # Errors
    /// The refusal that a client would get.
    pub fn ask(&mut self, guid: &ProcessGuid, domain: &Domain, command: &Command) -> Result<bool, Refusal> {
        self.now = self.now.next();
        let board = &self.board;
        let present = |cell: &CellId| board.number(cell).is_some();
        let numbered = |visit: process::Visit<'_>| {
            self.numbered.iter().for_each(|(ordinal, id, cell)| visit(*ordinal, id, cell));
        };
        let context =
            Context { now: self.now, fresh: true, present: &present, known: &|_| true, numbered: &numbered };
        let events = process::decide(self.processes.get(guid), command, context)?;
        if events.is_empty() {
            return Ok(false);
        }
        events.iter().for_each(|event| self.note(guid, event));
        self.made += 1;
        let decision = DecisionId(Uuid::from_u128(self.made));
        let stamp = Stamp::beginning(decision, self.now);
        let epoch = schemas::container::Epoch(self.now);
        let new = || Process::new(guid.clone(), domain.clone(), epoch);
        let process = self.processes.entry(guid.clone()).or_insert_with(new);
        process::evolve(process, &events, &stamp);
        self.overview.take_in_events(process, &events);
        Ok(true)
    }

    /// Notes what an event makes of the copy, before the process is what it says.
    fn note(&mut self, guid: &ProcessGuid, event: &Event) {
        match event {
            Event::Rollout(rollout::Event::Begun { .. }) => {
                // Indices that take their turn one after the other, and nothing happens between, take it together.
                if self.turn == 0 || self.turn_at < self.steps.len() {
                    self.turn += 1;
                    self.turn_at = self.steps.len();
                }
            }
            Event::Rollout(rollout::Event::FellBack { index }) => {
                let lacking =
                    self.lacking.iter().find(|((of, place), _)| of == guid && place.index == *index);
                let no_room = lacking.map(|(_, no_room)| no_room.clone());
                self.step(guid, Does::FallsBack { index: *index, no_room });
            }
            Event::Rollout(rollout::Event::Paused { cause, reason }) => {
                if *cause == Pause::Canary {
                    self.paused.insert(guid.clone());
                }
                self.step(guid, Does::Pauses { reason: reason.clone() });
            }
            Event::Actual(actual::Event::StopRequested { places, .. }) => {
                for place in places.iter() {
                    if let Some(cell_id) = self.holder(guid, &place).map(|by| by.cell_id.clone()) {
                        self.step(guid, Does::Stops { place, cell_id });
                    }
                }
            }
            Event::Actual(actual::Event::Removed { places, .. }) => {
                places.iter().for_each(|place| self.free(guid, &place));
            }
            Event::Actual(_)
            | Event::Rollout(_)
            | Event::Desired(_)
            | Event::Evacuating(_)
            | Event::Evaluation(_)
            | Event::Task(_)
            | Event::Periodic(_)
            | Event::Parameterised(_)
            | Event::Domain(_)
            | Event::Cell(_)
            | Event::Cluster(_) => {}
        }
    }

    fn step(&mut self, guid: &ProcessGuid, does: Does) {
        self.steps.push(Step { turn: self.turn, process_guid: guid.clone(), does });
    }

    fn holder(&self, guid: &ProcessGuid, place: &Place) -> Option<&Instance> {
        self.processes.get(guid)?.actual(place)?.holder()
    }

    /// What an instance took of its cell is free.
    fn free(&mut self, guid: &ProcessGuid, place: &Place) {
        let size = self.size(guid, place);
        let number = self.holder(guid, place).and_then(|by| self.board.number(&by.cell_id));
        if let (Some(size), Some(number)) = (size, number) {
            self.board.set_free(number, self.board.free(number).plus(size));
            self.freed = true;
        }
    }

    fn size(&self, guid: &ProcessGuid, place: &Place) -> Option<Resources> {
        let desired = self.processes.get(guid)?.desired.as_deref()?;
        desired.definition(&place.definition_id).map(|definition| definition.resources())
    }

    /// Lets everything happen that follows, until nothing does.
    ///
    /// # Errors
    /// A refusal that no cluster would give: what was copied contradicts itself.
    pub fn walk(&mut self) -> Result<(), Refusal> {
        let instances = self.processes.values().filter_map(|process| process.desired.as_deref());
        let instances: u32 = instances.map(|desired| desired.instances).sum();
        let (mut idle, most) = (0, IDLE + usize::try_from(instances).unwrap_or(usize::MAX));
        self.converge_all()?;
        loop {
            // Convergence looks at every instance, and finds only what reports leave to do.
            let does = self.start_claimed()? | self.stop()? | self.place()? | self.resume()?;
            if does || self.converge_all()? {
                idle = if does { 0 } else { idle };
                continue;
            }
            let due = self.processes.values().filter_map(Process::next_due).min();
            let Some(due) = due.filter(|_| idle < most) else { return Ok(()) };
            idle += 1;
            self.now = self.now.max(due);
        }
    }

    /// Has every process settle all that is due; says whether that was anything.
    fn converge_all(&mut self) -> Result<bool, Refusal> {
        let guids: Vec<ProcessGuid> = self.processes.keys().cloned().collect();
        let mut any = false;
        for guid in guids {
            any |= self.converge(&guid)?;
        }
        Ok(any)
    }

    /// Has a process settle all that is due: each decision settles something, so there is an end.
    fn converge(&mut self, guid: &ProcessGuid) -> Result<bool, Refusal> {
        let mut any = false;
        while self.ask_known(guid, &Command::Converge)? {
            any = true;
        }
        Ok(any)
    }

    /// The instances at which something may be left to do and of which something is true, with their processes.
    fn moving(&self, so: impl Fn(&Actual) -> bool) -> Vec<(ProcessGuid, Place, Actual)> {
        let moving = self.overview.moving().filter_map(|(guid, place)| {
            let lrp = self.processes.get(guid)?.actual(place).filter(|lrp| so(lrp))?;
            Some((guid.clone(), place.clone(), lrp.clone()))
        });
        moving.collect()
    }

    fn is_there(&self, lrp: &Actual) -> bool {
        lrp.holder().is_some_and(|by| self.board.number(&by.cell_id).is_some())
    }

    /// What a cell took before runs.
    fn start_claimed(&mut self) -> Result<bool, Refusal> {
        let claimed = self.moving(|lrp| self.is_there(lrp) && !lrp.is_running() && !lrp.is_stopping());
        let mut any = false;
        for (guid, place, lrp) in claimed {
            let Some(by) = lrp.holder() else { continue };
            any |= self.report(&guid, &place, by, vec![start()])?;
        }
        Ok(any)
    }

    /// What was asked to stop is gone.
    fn stop(&mut self) -> Result<bool, Refusal> {
        let stopping = self.moving(|lrp| self.is_there(lrp) && lrp.is_stopping());
        let mut any = false;
        for (guid, place, lrp) in stopping {
            let Some(by) = lrp.holder() else { continue };
            any |= self.report(&guid, &place, by, vec![actual::Command::Remove])?;
        }
        Ok(any)
    }

    /// Runs an auction of what is to be placed; what no cell takes is tried again when there is more room.
    fn place(&mut self) -> Result<bool, Refusal> {
        let again = std::mem::take(&mut self.freed);
        let open = self.moving(|lrp| lrp.is_unclaimed() && (again || !lrp.is_unplaced()));
        let item = |(guid, place, _): &(ProcessGuid, Place, Actual)| {
            self.processes.get(guid).and_then(|process| Item::of_place(process, place))
        };
        let mut items: Vec<Item> = open.iter().filter_map(item).collect();
        if again || std::mem::take(&mut self.others.untried) {
            items.append(&mut self.others.waiting);
        }
        if items.is_empty() {
            return Ok(false);
        }
        let (mut placed, mut failed) = (vec![], vec![]);
        for verdict in auction(&mut self.board, items, self.overview.siblings()) {
            let own = match &verdict.item.rank.key {
                WorkKey::Lrp { key, .. } => {
                    Some(key).filter(|key| self.processes.contains_key(&key.process_guid))
                }
                WorkKey::Task { .. } => None,
            };
            let Some(ActualLrpKey { process_guid: guid, place }) = own.cloned() else {
                self.place_other(verdict);
                continue;
            };
            match verdict.place {
                Ok(cell_id) => placed.push((guid, place, cell_id)),
                Err(error) => failed.push((guid, place, error, verdict.item)),
            }
        }
        // All of them start before the first of them runs.
        for (guid, place, cell_id) in &placed {
            if let Some(number) = self.board.number(cell_id) {
                let zone = self.board.cell(number).zone.clone();
                self.step(guid, Does::Starts { place: place.clone(), cell_id: cell_id.clone(), zone });
            }
        }
        let mut any = !placed.is_empty();
        for (guid, place, cell_id) in placed {
            self.made += 1;
            let by = Instance { instance_guid: InstanceGuid(Uuid::from_u128(self.made)), cell_id };
            self.report(&guid, &place, &by, vec![actual::Command::Claim { placement: None }, start()])?;
        }
        for (guid, place, error, item) in failed {
            if self.preempt(&guid, &place, &item) {
                any = true;
                continue;
            }
            let cells = lacks::of(&self.board, &item, self.overview.siblings().get(&guid));
            self.lacking.insert((guid.clone(), place.clone()), NoRoom { error: error.clone(), cells });
            self.fail(&guid, Unplaced { place, attempt: item.rank.since, error })?;
        }
        Ok(any)
    }

    fn report(
        &mut self,
        guid: &ProcessGuid,
        place: &Place,
        by: &Instance,
        steps: Vec<actual::Command>,
    ) -> Result<bool, Refusal> {
        let Some(process) = self.processes.get(guid) else { return Ok(false) };
        let report = Report {
            domain: process.domain.clone(),
            place: place.clone(),
            epoch: process.epoch,
            by: by.clone(),
            judged: self.now.next(),
            steps: steps.into_iter().map(ReportStep::Actual).collect(),
        };
        self.ask_known(guid, &Command::Report(report))
    }

    fn fail(&mut self, guid: &ProcessGuid, unplaced: Unplaced) -> Result<bool, Refusal> {
        let process = self.processes.get(guid);
        let judged = process.and_then(|process| process.evaluation_of(process.actual(&unplaced.place)?));
        let Some(evaluation) = judged.map(|one| one.id) else { return Ok(false) };
        let unplaced = vec![unplaced];
        let outcome = Outcome { evaluation, unplaced, used_up: false, explanation: None };
        self.ask_known(guid, &Command::Fail(outcome))
    }

    /// Asks something of a process that is there.
    fn ask_known(&mut self, guid: &ProcessGuid, command: &Command) -> Result<bool, Refusal> {
        let domain = self.processes.get(guid).map(|process| process.domain.clone());
        domain.map_or(Ok(false), |domain| self.ask(guid, &domain, command))
    }

    /// What paused of itself, to be looked at, goes on as if somebody had.
    fn resume(&mut self) -> Result<bool, Refusal> {
        let mut any = false;
        for guid in std::mem::take(&mut self.paused) {
            any |= self.ask_known(&guid, &Command::Steer(Steer::Resume))?;
        }
        Ok(any)
    }

    /// What an auction says of something that waits for room of others: it waits on, or takes its room.
    fn place_other(&mut self, verdict: Verdict) {
        let Ok(cell_id) = verdict.place else {
            self.others.waiting.push(verdict.item);
            return;
        };
        self.others.placed += 1;
        match verdict.item.rank.key {
            WorkKey::Lrp { key, .. } => self.overview.count(&key.process_guid, &cell_id),
            WorkKey::Task { .. } => {}
        }
    }
}

/// What waits for room of others.
#[derive(Clone, Debug, Default)]
struct Others {
    waiting: Vec<Item>,
    /// Whether none of it was in an auction yet.
    untried: bool,
    /// How much of it was placed.
    placed: usize,
}

fn start() -> actual::Command {
    actual::Command::Start { net: NetInfo::default(), isolation: Isolation::NONE }
}
