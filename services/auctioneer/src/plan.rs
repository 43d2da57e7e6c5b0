//! Simulation of a change. The state machine that makes decisions and the auction that places work run step
//! by step on a copy of the cluster.
//!
//! Nothing is written to the log. In the copy, placed work runs immediately and stopped work ends
//! immediately. If nothing else remains to be done, the simulated time advances to the next deadline. A
//! deadline is the end of a monitoring period or of a delay. Another kind of deadline belongs to an index
//! that has no room for two instances at once: at this time the index stops its old instance first. Waiting
//! work of other processes takes part in every auction. Future requests of other clients are unknown, so a
//! plan assumes that there are none.

mod from_rows;
pub(crate) mod obstacles;
mod overview;
mod preempted;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use machines::actual::Actual;
use machines::cell::Cell;
use machines::desired::Desired;
use machines::process::{self, Context, Process, Slot};
use machines::rollout::Rollout;
use machines::task::Task;
use schemas::container::{Instance, NetInfo, WorkKey};
use schemas::entry::Event;
use schemas::isolation::Isolation;
use schemas::names::{CellId, DecisionId, Domain, InstanceGuid, ProcessGuid, TaskGuid, Zone};
use schemas::process::{Command, Outcome, Report, ReportStep, RolloutControl, Unplaced};
use schemas::query::CellRow;
use schemas::resources::Resources;
use schemas::rollout::{self, PauseReason};
use schemas::stamp::Stamp;
use schemas::{ActualLrpKey, Place, Refusal, Timestamp, actual};
use serde::Serialize;
use uuid::Uuid;

use self::overview::Overview;
use crate::auction::{Item, Verdict, auction};
use crate::board::{Board, BoardCell};
use crate::preempt::PreemptibleWork;

pub use from_rows::{board_cell, process as known_process, task as known_task};
pub use obstacles::{Nearest, Obstacle, ReasonsByCell, nearest};
pub use preempted::{Victim, running_instance, running_task};
pub use tasks::TaskOutcome;

/// Maximum number of time advances without a placement or stop, in addition to one advance per instance.
/// After this number of advances, the plan treats the remaining work as impossible.
const MAX_IDLE_ADVANCES: usize = 100;

/// Base of the ids that are generated in a copy. Generated ids are greater than any random or counted id of a
/// cluster.
const GENERATED_ID_BASE: u128 = u128::MAX << 64;

/// Copy of a cluster on which changes are simulated.
#[derive(Clone, Debug)]
pub struct ClusterCopy {
    now: Timestamp,
    board: Board,
    /// Cells with their ordinals, from which the indices of global processes are derived.
    cell_ordinals: Vec<(u32, CellId, Cell)>,
    processes: BTreeMap<ProcessGuid, Process>,
    overview: Overview,
    /// Existing tasks, and the tasks that the plan places.
    tasks: BTreeMap<TaskGuid, Task>,
    planned_tasks: BTreeSet<TaskGuid>,
    /// Waiting work of other processes.
    others: WaitingWork,
    /// Running work of other processes that may be stopped for work of higher priority, by cell.
    may_stop: BTreeMap<CellId, Arc<Vec<PreemptibleWork>>>,
    /// `true` if room was freed since the last auction.
    freed: bool,
    /// Last id that was generated for a container or decision.
    last_id: u128,
    turn: u32,
    /// Number of recorded steps at the start of the current turn (the simultaneous replacement of some
    /// indices).
    turn_at: usize,
    steps: Vec<Step>,
    /// Reason for each instance that could not be placed, from its last attempt.
    lacking: BTreeMap<(ProcessGuid, Place), PlacementFailure>,
    /// Processes whose rollouts paused at a canary.
    paused: BTreeSet<ProcessGuid>,
}

/// Step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Number of replacement turns that had started before this step. 0 before the first turn.
    pub turn: u32,
    pub process_guid: ProcessGuid,
    pub action: StepAction,
}

/// Action of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepAction {
    /// An instance is placed and starts.
    Starts {
        place: Place,
        cell_id: CellId,
        zone: Zone,
    },
    Stops {
        place: Place,
        cell_id: CellId,
    },
    /// Work of lower priority on a cell stops to make room for an instance.
    Preempts {
        /// The instance that gets the room.
        place: Place,
        cell_id: CellId,
        victims: Vec<Victim>,
    },
    /// The new instance of an index finds no room beside the old instance. After a delay, the old instance
    /// stops before the new one starts.
    FallsBack {
        index: u32,
        /// Reason why the new instance found no room.
        placement_failure: Option<PlacementFailure>,
    },
    /// The rollout pauses until an operator resumes it.
    Pauses {
        reason: String,
    },
}

/// Reason why an instance could not be placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlacementFailure {
    /// Placement error shown to users.
    pub error: String,
    /// Resources or constraints that each cell lacks, or the reason why it was not considered.
    pub cells: ReasonsByCell,
}

/// Instance that could not be placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnplacedInstance {
    pub process_guid: ProcessGuid,
    pub place: Place,
    #[serde(flatten)]
    pub placement_failure: PlacementFailure,
}

impl ClusterCopy {
    /// Creates a copy with these cells and with the processes that the plan changes.
    pub fn new(
        now: Timestamp,
        cells: impl IntoIterator<Item = BoardCell>,
        processes: impl IntoIterator<Item = Process>,
    ) -> Self {
        let mut copy = Self {
            now,
            board: Board::new(cells),
            cell_ordinals: vec![],
            processes: BTreeMap::new(),
            overview: Overview::default(),
            tasks: BTreeMap::new(),
            planned_tasks: BTreeSet::new(),
            others: WaitingWork::default(),
            may_stop: BTreeMap::new(),
            freed: false,
            last_id: GENERATED_ID_BASE,
            turn: 0,
            turn_at: 0,
            steps: vec![],
            lacking: BTreeMap::new(),
            paused: BTreeSet::new(),
        };
        for process in processes {
            copy.overview.update(&process);
            copy.processes.insert(process.guid.clone(), process);
        }
        copy
    }

    /// Adds processes and tasks of other clients that also wait for room.
    #[must_use]
    pub fn with_waiting(
        mut self,
        processes: impl IntoIterator<Item = Process>,
        tasks: impl IntoIterator<Item = Item>,
    ) -> Self {
        for process in processes.into_iter().filter(|process| !self.processes.contains_key(&process.guid)) {
            for by in process.retained_containers() {
                self.overview.count(&process.guid, &by.cell_id);
            }
            let places = process.slots.iter().map(|slot| &slot.place);
            self.others.waiting.extend(places.filter_map(|place| Item::of_place(&process, place)));
        }
        self.others.waiting.extend(tasks);
        self.others.untried = !self.others.waiting.is_empty();
        self
    }

    /// Returns two numbers of work items of other processes. The first counts the items that waited for room
    /// at the start, and the second the items among them that have been placed.
    #[must_use]
    pub fn other_work(&self) -> (usize, usize) {
        (self.others.waiting.len() + self.others.placed, self.others.placed)
    }

    /// Sets the ordinals of these cells, from which the indices of global processes are derived.
    ///
    /// # Errors
    /// See [`Self::run`].
    pub fn with_cell_ordinals(mut self, cells: &[CellRow]) -> Result<Self, Refusal> {
        self.cell_ordinals = cells.iter().filter_map(from_rows::numbered_cell).collect();
        let is_global = |process: &&Process| process.desired.as_deref().is_some_and(Desired::is_global);
        let global: Vec<ProcessGuid> =
            self.processes.values().filter(is_global).map(|process| process.guid.clone()).collect();
        for guid in &global {
            self.converge(guid)?;
        }
        Ok(self)
    }

    /// Returns the cells with their free resources.
    pub fn cells(&self) -> impl Iterator<Item = (&BoardCell, Resources)> {
        (0..).zip(self.board.cells()).map(|(number, cell)| (cell, self.board.free(number)))
    }

    /// Returns the steps in order.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns a process in its current simulated state.
    #[must_use]
    pub fn process(&self, guid: &ProcessGuid) -> Option<&Process> {
        self.processes.get(guid)
    }

    /// Returns the instances that could not be placed, with the reason for each cell.
    #[must_use]
    pub fn unplaced_instances(&self) -> Vec<UnplacedInstance> {
        let left = self.lacking.iter().filter(|((guid, place), _)| {
            let process = self.processes.get(guid);
            process.and_then(|process| process.actual(place)).is_some_and(Actual::is_unclaimed)
        });
        left.map(|((guid, place), no_room)| UnplacedInstance {
            process_guid: guid.clone(),
            place: place.clone(),
            placement_failure: no_room.clone(),
        })
        .collect()
    }

    /// Returns `true` if a process has reached its desired state: exactly one instance runs at each desired
    /// index, no other index has an instance, and no rollout is under way. Indices of a global process whose
    /// cell accepts no new work are not considered.
    #[must_use]
    pub fn is_settled(&self, guid: &ProcessGuid) -> bool {
        let Some(process) = self.processes.get(guid) else { return false };
        let rolls = process.rollout.as_deref().and_then(Rollout::active).is_some();
        let running = |index| process.actuals_at(index).filter(|(_, lrp)| lrp.keeps_running()).count();
        let desired = process.desired.as_deref();
        let all = desired.is_none_or(|desired| {
            desired
                .indices()
                .filter(|index| desired.is_rolling_index(*index))
                .all(|index| running(index) == 1)
        });
        let extra = |slot: &Slot| desired.is_none_or(|desired| !desired.desires_index(slot.place.index));
        !rolls && all && !process.slots.iter().any(extra)
    }

    /// Returns the difference between the highest and the lowest number of instances per cell. Only cells
    /// that may run the process are considered.
    #[must_use]
    pub fn skew(&self, guid: &ProcessGuid) -> u32 {
        let on = self.spread(guid);
        let (most, least) = (on.values().max(), on.values().min());
        most.copied().unwrap_or(0) - least.copied().unwrap_or(0)
    }

    /// Returns the number of instances that remain on each cell. Only cells that may run the process are
    /// considered.
    #[must_use]
    pub fn spread(&self, guid: &ProcessGuid) -> BTreeMap<CellId, u32> {
        let Some(process) = self.processes.get(guid) else { return BTreeMap::new() };
        let desired = process.desired.as_deref();
        let active = desired.and_then(|desired| desired.definition(&desired.active_definition_id));
        let Some(definition) = active else { return BTreeMap::new() };
        let takes = |cell: &&BoardCell| obstacles::accepts(cell, &definition.constraint);
        let cells = self.board.cells().iter().filter(takes);
        let mut on: BTreeMap<CellId, u32> = cells.map(|cell| (cell.id.clone(), 0)).collect();
        for by in process.retained_containers() {
            if let Some(count) = on.get_mut(&by.cell_id) {
                *count += 1;
            }
        }
        on
    }

    /// Applies a command to a process. Returns `true` if the command changes anything.
    ///
    /// # Errors
    ///
    /// The refusal that a client would get.
    pub fn apply(&mut self, guid: &ProcessGuid, domain: &Domain, command: &Command) -> Result<bool, Refusal> {
        self.now = self.now.next();
        let board = &self.board;
        let present = |cell: &CellId| board.number(cell).is_some();
        let numbered = |visit: process::CellVisitor<'_>| {
            self.cell_ordinals.iter().for_each(|(ordinal, id, cell)| visit(*ordinal, id, cell));
        };
        let context = Context {
            now: self.now,
            is_fresh: true,
            is_present: &present,
            is_known: &|_| true,
            for_each_cell: &numbered,
        };
        let events = process::decide(self.processes.get(guid), command, context)?;
        if events.is_empty() {
            return Ok(false);
        }
        events.iter().for_each(|event| self.note(guid, event));
        self.last_id += 1;
        let decision = DecisionId(Uuid::from_u128(self.last_id));
        let stamp = Stamp::root(decision, self.now);
        let epoch = schemas::container::Epoch(self.now);
        let new = || Process::new(guid.clone(), domain.clone(), epoch);
        let process = self.processes.entry(guid.clone()).or_insert_with(new);
        process::evolve(process, &events, &stamp);
        self.overview.update_for_events(process, &events);
        Ok(true)
    }

    /// Updates the copy for an event, before the process folds the event.
    fn note(&mut self, guid: &ProcessGuid, event: &Event) {
        match event {
            Event::Rollout(rollout::Event::IndicesStarted { .. }) => {
                // Rollouts that begin without a step in between belong to the same turn.
                if self.turn == 0 || self.turn_at < self.steps.len() {
                    self.turn += 1;
                    self.turn_at = self.steps.len();
                }
            }
            Event::Rollout(rollout::Event::FellBack { index }) => {
                let lacking =
                    self.lacking.iter().find(|((of, place), _)| of == guid && place.index == *index);
                let placement_failure = lacking.map(|(_, no_room)| no_room.clone());
                self.step(guid, StepAction::FallsBack { index: *index, placement_failure });
            }
            Event::Rollout(rollout::Event::Paused { cause, reason }) => {
                if *cause == PauseReason::Canary {
                    self.paused.insert(guid.clone());
                }
                self.step(guid, StepAction::Pauses { reason: reason.clone() });
            }
            Event::Actual(actual::Event::StopRequested { places, .. }) => {
                for place in places.iter() {
                    if let Some(cell_id) = self.holder(guid, &place).map(|by| by.cell_id.clone()) {
                        self.step(guid, StepAction::Stops { place, cell_id });
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

    fn step(&mut self, guid: &ProcessGuid, action: StepAction) {
        self.steps.push(Step { turn: self.turn, process_guid: guid.clone(), action });
    }

    fn holder(&self, guid: &ProcessGuid, place: &Place) -> Option<&Instance> {
        self.processes.get(guid)?.actual(place)?.holder()
    }

    /// Frees the resources of an instance on its cell.
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

    /// Runs the simulation until nothing more happens.
    ///
    /// # Errors
    ///
    /// Returns a refusal if the copied state is inconsistent. A real cluster would not return such a refusal.
    pub fn run(&mut self) -> Result<(), Refusal> {
        let instances = self.processes.values().filter_map(|process| process.desired.as_deref());
        let instances: u32 = instances.map(|desired| desired.instances).sum();
        let (mut idle, most) = (0, MAX_IDLE_ADVANCES + usize::try_from(instances).unwrap_or(usize::MAX));
        self.converge_all()?;
        loop {
            // Convergence inspects every instance. It runs last, because it only finds work that reports do
            // not trigger.
            let does = self.start_claimed()? | self.remove_stopping()? | self.place()? | self.resume()?;
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

    /// Converges every process. Returns `true` if anything changed.
    fn converge_all(&mut self) -> Result<bool, Refusal> {
        let guids: Vec<ProcessGuid> = self.processes.keys().cloned().collect();
        let mut any = false;
        for guid in guids {
            any |= self.converge(&guid)?;
        }
        Ok(any)
    }

    /// Converges a process until nothing is due. Each decision settles something, so the loop ends.
    fn converge(&mut self, guid: &ProcessGuid) -> Result<bool, Refusal> {
        let mut any = false;
        while self.apply_existing(guid, &Command::Converge)? {
            any = true;
        }
        Ok(any)
    }

    /// Returns the instances that match a condition. Only instances that may have something left to do are
    /// considered.
    fn unsettled(&self, so: impl Fn(&Actual) -> bool) -> Vec<(ProcessGuid, Place, Actual)> {
        let moving = self.overview.unsettled().filter_map(|(guid, place)| {
            let lrp = self.processes.get(guid)?.actual(place).filter(|lrp| so(lrp))?;
            Some((guid.clone(), place.clone(), lrp.clone()))
        });
        moving.collect()
    }

    fn is_on_board(&self, lrp: &Actual) -> bool {
        lrp.holder().is_some_and(|by| self.board.number(&by.cell_id).is_some())
    }

    /// Starts the instances that cells have claimed.
    fn start_claimed(&mut self) -> Result<bool, Refusal> {
        let claimed = self.unsettled(|lrp| self.is_on_board(lrp) && !lrp.is_running() && !lrp.is_stopping());
        let mut any = false;
        for (guid, place, lrp) in claimed {
            let Some(by) = lrp.holder() else { continue };
            any |= self.report(&guid, &place, by, vec![start()])?;
        }
        Ok(any)
    }

    /// Removes the instances that were asked to stop.
    fn remove_stopping(&mut self) -> Result<bool, Refusal> {
        let stopping = self.unsettled(|lrp| self.is_on_board(lrp) && lrp.is_stopping());
        let mut any = false;
        for (guid, place, lrp) in stopping {
            let Some(by) = lrp.holder() else { continue };
            any |= self.report(&guid, &place, by, vec![actual::Command::Remove])?;
        }
        Ok(any)
    }

    /// Runs an auction for the instances that wait for a cell. Instances that found no cell take part in
    /// later auctions only after room was freed.
    fn place(&mut self) -> Result<bool, Refusal> {
        let again = std::mem::take(&mut self.freed);
        let open = self.unsettled(|lrp| lrp.is_unclaimed() && (again || !lrp.has_placement_error()));
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
        // Every placement is recorded before the first instance runs.
        for (guid, place, cell_id) in &placed {
            if let Some(number) = self.board.number(cell_id) {
                let zone = self.board.cell(number).zone.clone();
                self.step(guid, StepAction::Starts { place: place.clone(), cell_id: cell_id.clone(), zone });
            }
        }
        let mut any = !placed.is_empty();
        for (guid, place, cell_id) in placed {
            self.last_id += 1;
            let by = Instance { instance_guid: InstanceGuid(Uuid::from_u128(self.last_id)), cell_id };
            // All instances of the auction are claimed before the first one starts, because the start of one
            // instance can end the need for another.
            self.report(&guid, &place, &by, vec![actual::Command::Claim { placement: None }])?;
        }
        for (guid, place, error, item) in failed {
            if self.preempt(&guid, &place, &item) {
                any = true;
                continue;
            }
            let cells = obstacles::reasons_by_cell(&self.board, &item, self.overview.siblings().get(&guid));
            self.lacking
                .insert((guid.clone(), place.clone()), PlacementFailure { error: error.clone(), cells });
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
            observed_at: self.now.next(),
            steps: steps.into_iter().map(ReportStep::Actual).collect(),
        };
        self.apply_existing(guid, &Command::Report(report))
    }

    fn fail(&mut self, guid: &ProcessGuid, unplaced: Unplaced) -> Result<bool, Refusal> {
        let process = self.processes.get(guid);
        let judged = process.and_then(|process| process.evaluation_for(process.actual(&unplaced.place)?));
        let Some(evaluation) = judged.map(|one| one.id) else { return Ok(false) };
        let unplaced = vec![unplaced];
        let outcome = Outcome { evaluation, unplaced, attempts_exhausted: false, explanation: None };
        self.apply_existing(guid, &Command::Fail(outcome))
    }

    /// Applies a command to a process. Returns `false` if the process does not exist.
    fn apply_existing(&mut self, guid: &ProcessGuid, command: &Command) -> Result<bool, Refusal> {
        let domain = self.processes.get(guid).map(|process| process.domain.clone());
        domain.map_or(Ok(false), |domain| self.apply(guid, &domain, command))
    }

    /// Resumes the rollouts that paused at a canary, as an operator would.
    fn resume(&mut self) -> Result<bool, Refusal> {
        let mut any = false;
        for guid in std::mem::take(&mut self.paused) {
            any |= self.apply_existing(&guid, &Command::Steer(RolloutControl::Resume))?;
        }
        Ok(any)
    }

    /// Applies the auction's verdict on waiting work of another process. If the work got no cell, it keeps
    /// waiting.
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

/// Waiting work of other processes.
#[derive(Clone, Debug, Default)]
struct WaitingWork {
    waiting: Vec<Item>,
    /// `true` if the work has not been in an auction yet.
    untried: bool,
    /// Number of placed items.
    placed: usize,
}

fn start() -> actual::Command {
    actual::Command::Start { net: NetInfo::default(), isolation: Isolation::NONE }
}
