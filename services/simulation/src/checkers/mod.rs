//! Checkers of the [invariants](super::invariants).
//!
//! Checkers use the stored log, the containers, and the messages of clients and services; they never use the
//! state that a service reports. One reference World is folded from the log, and all checkers read it. The audit
//! ([`audit::Law`]) judges each decision by the tables of the state machines. Checkers only store facts that
//! neither of them has.
//!
//! | file | checks |
//! |---|---|
//! | `log` | ids, positions, requests, leaders |
//! | `causes` | causes of decisions |
//! | `clients` | answers to clients |
//! | `process`, `task` | decisions, compared with containers and cells |
//! | `launches` | periodic and parameterised tasks |
//! | `truth` | containers |
//! | `placing` | work between auctioneers and reps |
//! | `evacuations` | evacuating cells |
//! | `calls` | completion callbacks |
//! | `signs` | signs of life of cells |
//! | `due` | due work |
//! | `rates` | repeated effects |
//! | `queries`, `tables` | rows of queries and of SQL tables |
//! | `memory` | memory of the services |
//! | `rest` | the cluster at rest |

#![expect(clippy::wildcard_enum_match_arm, reason = "a checker inspects only the events of its invariants")]

mod calls;
mod causes;
mod clients;
mod due;
mod evacuations;
mod launches;
mod log;
mod memory;
mod placing;
mod process;
mod queries;
mod rates;
mod rest;
mod signs;
mod tables;
mod task;
mod truth;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use audit::Law;
use machines::actual::Actual;
use machines::parameterised::Parameterised;
use machines::periodic::Periodic;
use machines::process::Process;
use machines::task::Task;
use projections::{World, WorldSnapshot};
use schemas::cluster::Terms;
use schemas::container::{Container, ContainerState, Epoch, Instance, WorkKey};
use schemas::entry::{Aggregate, Event};
use schemas::message::{Ack, Heartbeat, Perform, PerformReply, RepOrder};
use schemas::names::{
    CellId, EntryId, InstanceGuid, ParameterisedGuid, PeriodicGuid, ProcessGuid, RequestId, TaskGuid,
};
use schemas::spec::ClientCommand;
use schemas::stamp::Actor;
use schemas::subject::{Position, Subject};
use schemas::task::CallbackResult;
use schemas::{Decision, Entry, Refusal, Timestamp, cell};
use scripted::{ActionEvent, Scripted};

use self::calls::Calls;
use self::causes::Causes;
use self::clients::{Clients, Target};
use self::due::Due;
use self::evacuations::Evacuations;
use self::launches::Launches;
use self::log::Log;
use self::placing::Placing;
use self::process::Containers;
use self::rates::Rates;
use self::signs::Signs;
use self::truth::Truth;

use crate::coverage::{Coverage, Situation};
use crate::event::Append;
use crate::invariants::{Invariant as I, Violation};
use crate::journal::{SimJournal, Stored};
use crate::layout::cell_id;
use crate::requests::ClientRequest;
use crate::shape::{Life, Node, Shape};

/// Number of positions between two checks of the reference World, whose time grows with the World.
const WORLD_CHECK_INTERVAL: u64 = 16;

/// State of all checkers.
pub struct Checkers {
    shape: Shape,
    /// Maximum difference between two clocks.
    clock_slack: Duration,
    violations: Vec<Violation>,
    coverage: Coverage,
    /// Reference fold of the log.
    world: World,
    /// Snapshot of the reference World at each position.
    worlds: Vec<WorldSnapshot>,
    law: Law,
    /// Decider of each entry, with the position of its log and the expected end of the subject.
    decided: BTreeMap<EntryId, (Position, Position, Life)>,
    log: Log,
    causes: Causes,
    clients: Clients,
    containers: Containers,
    launches: Launches,
    truth: Truth,
    placing: Placing,
    evacuations: Evacuations,
    calls: Calls,
    signs: Signs,
    due: Due,
    rates: Rates,
    /// Time since which a BBS leads and no fault hinders it.
    calm_since: Option<Timestamp>,
    /// Time since which no fault occurs.
    at_peace_since: Option<Timestamp>,
    /// Waiting work that a cell had room for at the first check.
    idle: BTreeSet<String>,
    /// Cells that never come back.
    gone: BTreeSet<usize>,
}

/// Decision that is checked, and the facts to check it by.
pub(super) struct Scene<'a> {
    decision: &'a Decision,
    position: Position,
    /// World that the decider knew.
    known: &'a World,
    truth: &'a mut Truth,
    clock_slack: Duration,
    at_peace_since: Option<Timestamp>,
}

impl Scene<'_> {
    /// Returns `true` if the cell of the container was present, and the cell itself decided.
    fn is_present(&self, by: &Instance) -> bool {
        self.is_by_cell_of(by) && self.known.is_present(&by.cell_id)
    }

    fn is_by_cell_of(&self, by: &Instance) -> bool {
        matches!(&self.decision.actor, Actor::Cell(cell) if *cell == by.cell_id)
    }

    /// Returns `true` if a BBS decided, and knew that the cell of the container is lost.
    fn is_lost(&self, by: &Instance) -> bool {
        matches!(self.decision.actor, Actor::Bbs(_)) && !self.known.is_present(&by.cell_id)
    }

    fn is_fresh(&self, domain: &schemas::names::Domain) -> bool {
        let freshness = self.known.domain(domain);
        freshness.is_some_and(|known| known.expires_at.is_none_or(|expires_at| self.decision.at < expires_at))
    }
}

/// Results of a check.
#[derive(Default)]
pub(super) struct Notes {
    violations: Vec<Violation>,
    coverage: Vec<Situation>,
}

impl Notes {
    fn met(&mut self, situation: Situation) {
        self.coverage.push(situation);
    }

    /// Records a violation unless the condition holds.
    fn check(&mut self, invariant: I, holds: bool, detail: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(Violation { invariant, detail: detail() });
        }
    }
}

impl Checkers {
    /// Creates the checkers of a run.
    #[must_use]
    pub fn new(shape: Shape, clock_slack: Duration) -> Self {
        let world = World::new();
        Self {
            shape,
            clock_slack,
            violations: vec![],
            coverage: Coverage::default(),
            worlds: vec![world.freeze()],
            world,
            law: Law::default(),
            decided: BTreeMap::new(),
            log: Log::default(),
            causes: Causes::default(),
            clients: Clients::default(),
            containers: Containers::default(),
            launches: Launches::default(),
            truth: Truth::default(),
            placing: Placing::default(),
            evacuations: Evacuations::default(),
            calls: Calls::default(),
            signs: Signs::default(),
            due: Due::default(),
            rates: Rates::default(),
            calm_since: None,
            at_peace_since: None,
            idle: BTreeSet::new(),
            gone: BTreeSet::new(),
        }
    }

    /// Counts a situation.
    pub fn met(&mut self, situation: Situation) {
        self.coverage.met(situation);
    }

    /// Records a violation.
    pub fn violated(&mut self, violation: Violation) {
        self.violations.push(violation);
    }

    fn take(&mut self, notes: Notes) {
        self.violations.extend(notes.violations);
        notes.coverage.into_iter().for_each(|situation| self.coverage.met(situation));
    }

    /// Runs a check, and records its results.
    fn note(&mut self, check: impl FnOnce(&mut Self, &mut Notes)) {
        let mut notes = Notes::default();
        check(self, &mut notes);
        self.take(notes);
    }

    pub(super) fn violations(&self) -> &[Violation] {
        &self.violations
    }

    pub(super) const fn world(&self) -> &World {
        &self.world
    }

    /// Returns the amount of work that only convergence found.
    #[must_use]
    pub const fn found_by_convergence(&self) -> u64 {
        self.world.found_by_convergence()
    }

    /// Returns all violations, all situations, and the longest time for which more than two containers of one
    /// ActualLRP ran.
    #[must_use]
    pub fn results(mut self, now: Timestamp) -> (Vec<Violation>, Coverage, Duration) {
        self.note(|all, notes| all.check_world(notes));
        (self.violations, self.coverage, self.truth.crowded(now))
    }

    // ---- the log ---------------------------------------------------------------------------------------------------

    /// Records that a BBS whose log ends at `basis` decides an entry. A repeated append is ignored.
    pub(super) fn decided(&mut self, append: &Append, basis: Position, now: Timestamp) {
        if self.decided.contains_key(&append.entry) {
            return;
        }
        self.decided.insert(append.entry, (basis, append.expected, append.from));
        let Subject::Cell(cell) = &append.subject else { return };
        let is_loss = |event: &Event| matches!(event, Event::Cell(cell::Event::Disappeared { .. }));
        let loses = Entry::decode(&append.bytes)
            .is_ok_and(|entry| entry.decisions.iter().flat_map(|decision| &decision.events).any(is_loss));
        if loses {
            self.note(|all, notes| {
                let Some(world) = all.world_at(basis) else { return };
                all.signs.loses(append.from, (cell, world), (now, all.clock_slack), notes);
            });
        }
    }

    /// Checks a stored entry, and folds it. Returns the entry as text.
    pub fn appended(&mut self, journal: &SimJournal, position: Position) -> String {
        let Some(stored) = journal.get(position) else { return String::new() };
        let mut notes = Notes::default();
        let text = match Entry::decode(&stored.bytes) {
            Ok(entry) => self.check_entry(&entry, stored, position, &mut notes),
            Err(error) => {
                notes.check(I::OnePicture, false, || error.to_string());
                String::new()
            }
        };
        for violation in &mut notes.violations {
            violation.detail = format!("position {position}: {}", violation.detail);
        }
        self.take(notes);
        text
    }

    fn check_entry(
        &mut self,
        entry: &Entry,
        stored: &Stored,
        position: Position,
        notes: &mut Notes,
    ) -> String {
        let decided = self.decided.get(&entry.id).copied();
        let (basis, expected) =
            decided.map_or((Position(0), Position(0)), |(basis, expected, _)| (basis, expected));
        self.log.stored(&stored.subject, position, Some(expected), notes);
        if self.log.is_overtaken(entry, &stored.subject, self.world.shards()) {
            self.fold(position, &projections::reader::empty_entry());
            notes.met(Situation::Overtaken);
            return "ignored, because the number of shards was changed".to_owned();
        }
        let by = decided.map(|(.., by)| by);
        self.log.check((entry, stored), position, (by, basis), (&self.world, self.clock_slack), notes);
        self.launches.check(entry, &self.world, notes);
        let (mut processes, mut tasks) = (BTreeMap::new(), BTreeMap::new());
        for decision in &entry.decisions {
            self.causes.check(decision, &self.world, notes);
            self.clients.check(decision, position, notes);
            self.check_decision(decision, (position, basis), (&mut processes, &mut tasks), notes);
        }
        for finding in self.law.judge(&self.world, position, entry) {
            notes.check(I::LegalLog, false, || {
                format!("{}: {}: {}", finding.kind, finding.target, finding.detail)
            });
        }
        self.fold(position, entry);
        if position.0.is_multiple_of(WORLD_CHECK_INTERVAL) {
            self.check_world(notes);
        }
        for decision in &entry.decisions {
            self.check_remembered(&decision.aggregate, notes);
            self.check_concurrency(decision, entry, notes);
            note_evaluations(decision, notes);
        }
        entry_text(entry)
    }

    fn check_world(&self, notes: &mut Notes) {
        for violation in self.world.check() {
            notes.check(I::ConsistentWorld, false, || violation.to_string());
        }
    }

    fn check_decision(
        &mut self,
        decision: &Decision,
        (position, basis): (Position, Position),
        (processes, tasks): (&mut BTreeMap<ProcessGuid, Process>, &mut BTreeMap<TaskGuid, Option<Task>>),
        notes: &mut Notes,
    ) {
        let known = usize::try_from(basis.0).ok().and_then(|at| self.worlds.get(at));
        let mut scene = Scene {
            decision,
            position,
            known: known.map_or(&self.world, |known| &**known),
            truth: &mut self.truth,
            clock_slack: self.clock_slack,
            at_peace_since: self.at_peace_since,
        };
        match &decision.aggregate {
            Aggregate::Process { guid, domain, epoch } => {
                let process = processes.entry(guid.clone()).or_insert_with(|| {
                    let known = self.world.process(guid).cloned();
                    known.unwrap_or_else(|| Process::new(guid.clone(), domain.clone(), *epoch))
                });
                process::check(process, &mut self.containers, &mut scene, notes);
            }
            Aggregate::Task { guid, .. } => {
                let before = tasks.remove(guid).unwrap_or_else(|| self.world.task(guid).cloned());
                let after = task::check(guid, before, &mut self.calls, &mut scene, notes);
                tasks.insert(guid.clone(), after);
            }
            Aggregate::Cell(cell) => {
                for event in decision.events.iter().filter_map(Event::as_cell) {
                    note_cell(event, notes);
                    self.evacuations.recorded(cell, event, position);
                }
            }
            Aggregate::Periodic { .. }
            | Aggregate::Parameterised { .. }
            | Aggregate::Domain(_)
            | Aggregate::Cluster => {}
        }
    }

    fn fold(&mut self, position: Position, entry: &Entry) {
        self.world.fold(position, entry);
        self.worlds.push(self.world.freeze());
    }

    /// Records a message that is not a valid entry.
    pub fn malformed(&mut self, subject: &Subject, position: Position) {
        self.log.stored(subject, position, None, &mut Notes::default());
        self.fold(position, &projections::reader::empty_entry());
    }

    // ---- clients ---------------------------------------------------------------------------------------------------

    /// Records a new command of a client.
    pub(super) fn requested(&mut self, request: &ClientRequest) {
        self.log.requested(request);
        self.clients.requested(request);
    }

    /// Records that a command reaches a BBS, with its deadline.
    pub(super) fn command_arrived(&mut self, bbs: Life, request: &RequestId, until: Option<Timestamp>) {
        self.log.arrived(bbs, request, until);
    }

    /// Records that a client sends a command, maybe again.
    pub(super) fn sent(&mut self, request: RequestId, command: &ClientCommand) {
        self.clients.sent(request, command);
    }

    /// Checks an answer to a client, while the log ends at `end`.
    pub(super) fn answered(
        &mut self,
        request: &RequestId,
        command: &ClientCommand,
        answer: &Result<Ack, Refusal>,
        end: Position,
    ) {
        let mut notes = Notes::default();
        match answer {
            Ok(ack) => self.clients.acknowledged(request, command, *ack, &mut notes),
            Err(refusal) => {
                self.note_refused_dispatch(command, refusal.code);
                if clients::is_outdated_plan(refusal) {
                    notes.met(Situation::PlanOutdated);
                }
                if let Some(known) = self.world_at(self.clients.known(request)) {
                    self.clients.refused(request, command, refusal, (known, end), &mut notes);
                }
            }
        }
        self.take(notes);
    }

    /// Returns the position of the last decision about the target of a command, or 0.
    pub(super) fn last_decision(&self, command: &ClientCommand) -> Position {
        self.clients.last_decision(command)
    }

    /// Returns the version of the target of a command that changes an existing target.
    pub(super) fn version_of(&self, command: &ClientCommand) -> Option<u64> {
        if let ClientCommand::LrpDesire(_)
        | ClientCommand::TaskDesire(_)
        | ClientCommand::PeriodicDesire(_)
        | ClientCommand::ParameterisedDesire(_) = command
        {
            return None;
        }
        match clients::target(command) {
            Target::Process(guid) => self.world.process(&guid).map(|known| known.version),
            Target::Task(guid) => self.world.task(&guid).map(|known| known.version),
            Target::Periodic(guid) => self.world.periodic(&guid).map(|known| known.version),
            Target::Parameterised(guid) => self.world.parameterised(&guid).map(|known| known.version),
            Target::Domain(_) => None,
        }
    }

    /// Returns the periodic tasks that are desired.
    pub(crate) fn periodics(&self) -> Vec<PeriodicGuid> {
        let desired = self.world.periodics_from(None).filter(|known| !Periodic::is_removed(known));
        desired.map(|known| known.guid.clone()).collect()
    }

    /// Returns the parameterised tasks that are desired.
    pub(crate) fn parameterised(&self) -> Vec<ParameterisedGuid> {
        let desired = self.world.parameterised_from(None).filter(|known| !Parameterised::is_removed(known));
        desired.map(|known| known.guid.clone()).collect()
    }

    // ---- containers ------------------------------------------------------------------------------------------------

    /// Checks the start or the end of an action on a cell.
    pub fn happened(&mut self, event: &ActionEvent, cell: usize, containers: &Scripted) {
        let total = self.shape.cell(cell).total;
        self.note(|all, notes| all.truth.happened(event, (cell, total), containers, notes));
    }

    /// Records a change of a container.
    pub(super) fn changed(&mut self, container: &Container) {
        self.truth.changed(container);
    }

    /// Checks the deletion of a container by a rep. `answered`: the rep handles an answer of a BBS.
    pub(super) fn deleted(&mut self, rep: Life, guid: InstanceGuid, containers: &Scripted, answered: bool) {
        let container = containers.list().into_iter().find(|container| container.instance_guid == guid);
        let Some((container, cell)) = container.zip(cell_of(rep)) else { return };
        let is_live = match container.state {
            ContainerState::Initializing | ContainerState::Created | ContainerState::Running(_) => true,
            ContainerState::Reserved | ContainerState::Completed(_) => false,
        };
        // An evacuating rep deletes all containers in the end.
        let is_first = self.truth.deleted(guid);
        if is_first && is_live && !self.evacuations.may_go_on(&cell) {
            let right = answered && !self.is_needed(&container, &cell);
            self.note(|_, notes| {
                notes.check(I::LiveKept, right, || {
                    format!("{} deletes {}, {:?}", rep.0, container.work, container.state)
                });
            });
        }
    }

    pub(super) fn is_deleted(&self, guid: InstanceGuid) -> bool {
        self.truth.is_deleted(guid)
    }

    /// Returns `true` if the container is RUNNING in the log, at an index that belongs to its cell.
    fn is_needed(&self, container: &Container, cell: &CellId) -> bool {
        let WorkKey::Lrp { key, epoch } = &container.work else { return false };
        let process = self.world.process(&key.process_guid).filter(|process| process.epoch == *epoch);
        let lrp = process.and_then(|process| process.actual(&key.place)).filter(|lrp| lrp.is_running());
        let holds =
            lrp.and_then(Actual::holder).is_some_and(|by| by.instance_guid == container.instance_guid);
        holds && rest::only_cell(&self.world, key).is_none_or(|only| only == cell)
    }

    /// Records that the machine of a cell died with all its containers.
    pub fn cell_died(&mut self, cell: usize, now: Timestamp) {
        self.truth.cell_died(cell, now);
    }

    /// Records that a cell never comes back.
    pub fn cell_gone(&mut self, cell: usize) {
        self.gone.insert(cell);
    }

    // ---- auctioneers and reps --------------------------------------------------------------------------------------

    /// Records that a rep receives work.
    pub(super) fn work_received(&mut self, rep: Life, requester: u64, perform: Perform, now: Timestamp) {
        let evacuates = cell_of(rep).is_some_and(|cell| self.evacuations.takes_nothing(&cell));
        self.placing.received(rep, (requester, perform), evacuates, (now, self.clock_slack));
    }

    /// Checks the answer of a rep to work.
    pub(super) fn work_answered(
        &mut self,
        (rep, now): (Life, Timestamp),
        requester: u64,
        answer: &Result<PerformReply, Refusal>,
    ) {
        let Ok(reply) = answer else { return };
        self.note(|all, notes| all.placing.answered(rep, requester, reply, now, notes));
    }

    /// Checks work that an auctioneer sends. The log of the auctioneer ends at `delivered`.
    pub(super) fn work_sent(&mut self, (auctioneer, delivered, now): (Life, Position, Timestamp)) {
        let settings = self.shape.auctioneer();
        self.note(|all, notes| {
            let Some(world) = all.world_at(delivered) else { return };
            all.placing.places(auctioneer, world, (now, all.clock_slack), &settings, notes);
        });
    }

    /// Records that an auctioneer leads in a term.
    pub(super) fn auctioneer_leads(&mut self, auctioneer: Life, delivered: Position, term: (u64, Timestamp)) {
        let wait = self.shape.auctioneer().heartbeat;
        let Some(world) = usize::try_from(delivered.0).ok().and_then(|at| self.worlds.get(at)) else {
            return;
        };
        self.placing.leads(auctioneer, term, world, wait);
    }

    /// Records the terms that a BBS reports to a rep.
    pub(super) fn terms_reported(&mut self, rep: Life, terms: Terms) {
        self.placing.term_reported(rep, terms.auctioneer);
    }

    /// Records that a BBS allows a rep to act for its cell.
    pub(super) fn attached(&mut self, cell: &CellId, position: Position) {
        self.evacuations.attached(cell, position);
    }

    /// Records an order to evacuate that reaches a rep.
    pub(super) fn evacuation_ordered(&mut self, requester: u64, order: RepOrder) {
        self.evacuations.ordered(requester, order.position);
    }

    /// Records the answer of a rep to an order or a probe.
    pub(super) fn state_reported(&mut self, cell: &CellId, requester: u64, evacuates: bool) {
        self.evacuations.answered(cell, requester, evacuates);
    }

    // ---- signs of life ---------------------------------------------------------------------------------------------

    /// Records a heartbeat when the rep sends it.
    pub(super) fn heartbeat_sent(&mut self, beat: &Heartbeat) {
        self.signs.sent(beat);
    }

    /// Records a heartbeat that reaches a BBS or an auctioneer.
    pub(super) fn heartbeat_received(&mut self, life: Life, beat: &Heartbeat, now: Timestamp) {
        match life.0 {
            Node::Bbs(_) => self.signs.received(life, beat, now),
            Node::Auctioneer(_) => self.placing.heartbeat(life, beat, now),
            Node::Rep(_) => {}
        }
    }

    pub(super) fn probed(&mut self, bbs: Life, cell: &CellId, now: Timestamp) {
        self.signs.probed(bbs, cell, now);
    }

    pub(super) fn probe_answered(&mut self, bbs: Life, beat: &Heartbeat, now: Timestamp) {
        self.signs.probe_answered(bbs, beat, now);
    }

    // ---- callbacks -------------------------------------------------------------------------------------------------

    /// Records that a BBS starts or stops leading.
    pub(super) fn leads(&mut self, life: Life, leads: bool, now: Timestamp) {
        self.calls.leads(life, leads);
        self.signs.leads(life, now);
    }

    /// Checks the call of a task's owner by a BBS that knows the log up to `delivered`.
    pub(super) fn called(&mut self, life: Life, task: (&TaskGuid, Epoch), call: (Position, &str)) {
        let mut notes = Notes::default();
        self.calls.check(life, task, call, &self.world, &mut notes);
        self.take(notes);
    }

    /// Records the answer of a task's owner. Returns `true` if it ends the calls.
    pub(super) fn owner_answered(&mut self, task: &TaskGuid, epoch: Epoch, answer: &CallbackResult) -> bool {
        self.calls.answered(task, epoch, answer)
    }

    /// Records that the answer of an owner reaches the BBS that made the call.
    pub(super) fn call_returned(&mut self, life: Life, task: (&TaskGuid, Epoch), answer: &CallbackResult) {
        self.calls.returned(life, task, answer);
    }

    /// Returns the tasks whose owners gave a final answer.
    pub(super) fn answered_tasks(&self) -> impl Iterator<Item = &TaskGuid> {
        self.calls.answered_tasks()
    }
}

fn cell_of(rep: Life) -> Option<CellId> {
    match rep.0 {
        Node::Rep(at) => Some(cell_id(at)),
        Node::Bbs(_) | Node::Auctioneer(_) => None,
    }
}

fn note_cell(event: &cell::Event, notes: &mut Notes) {
    match event {
        cell::Event::Disappeared { .. } => notes.met(Situation::CellLost),
        cell::Event::Cordoned {} => notes.met(Situation::Cordoned),
        cell::Event::Resumed {} => notes.met(Situation::EvacuationWithdrawn),
        _ => {}
    }
}

fn note_evaluations(decision: &Decision, notes: &mut Notes) {
    use schemas::{evaluation as e, rollout as r};
    for event in &decision.events {
        notes.coverage.extend(match event {
            Event::Evaluation(e::Event::Joined { .. }) => Some(Situation::CauseJoined),
            Event::Evaluation(e::Event::Created {
                initial_status: e::InitialStatus::Blocked { .. }, ..
            }) => Some(Situation::EvaluationBlocked),
            Event::Evaluation(e::Event::Created {
                initial_status: e::InitialStatus::Delayed { .. }, ..
            }) => Some(Situation::RestartDelayed),
            Event::Evaluation(e::Event::Completed { placed, queued, .. }) if *placed > 0 && *queued > 0 => {
                Some(Situation::PartlyPlaced)
            }
            Event::Rollout(r::Event::Started { kind: r::Kind::Rollback, .. }) => Some(Situation::RolledBack),
            Event::Rollout(r::Event::Paused { .. }) => Some(Situation::RolloutPaused),
            Event::Rollout(r::Event::Stalled { .. }) => Some(Situation::RolloutStalled),
            _ => None,
        });
    }
}

/// Returns an entry as text.
fn entry_text(entry: &Entry) -> String {
    let decisions = entry.decisions.iter().map(|decision| {
        let events = decision.events.iter().map(|event| match event {
            Event::Actual(actual) => {
                let places = actual.places();
                format!("{}{:?}@{}", event.type_name(), places.indices.ranges(), places.definition_id)
            }
            _ => event.type_name().to_owned(),
        });
        let events: Vec<String> = events.collect();
        format!("{} v{} {}", decision.aggregate, decision.version, events.join(" "))
    });
    decisions.collect::<Vec<_>>().join("; ")
}
