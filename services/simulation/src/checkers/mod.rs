//! What has to be true, read from what the containers really did and from the log, never from a service's own opinion.
//!
//! At every append the entry is folded into a model that is written anew here, from the documents and not from the
//! services' code: each event has to be legal where the model stands, and what the services' own fold makes of it has
//! to be the same.
//!
//! | the file | what it watches |
//! |---|---|
//! | `causes` | what brought each decision about |
//! | `log` | ids, versions, times, requests; the cluster, its cells and domains |
//! | `heard` | what clients were told, and what they may be told after that |
//! | `planned` | commands that name the position at which they were planned |
//! | `lrp` | processes: instances, evacuating twins, crashes |
//! | `evaluations` | which evaluation stands for what waits |
//! | `task` | tasks: at most one start, one outcome, the ways to their end |
//! | `periodics` | periodic tasks: what is launched, skipped and queued, and when |
//! | `dispatches` | parameterised tasks: what is dispatched, launched and withdrawn |
//! | `truth` | what the containers really did |
//! | `apart` | how many instances of a process are where |
//! | `auction` | every choice of an auctioneer, judged again |
//! | `placing` | what auctioneers give and reps take |
//! | `preemptions` | what stops for something more urgent |
//! | `fullness` | what cells and auctioneers say is free |
//! | `emptying` | evacuations: who knows of them, and when they end |
//! | `calls` | completion callbacks |
//! | `due` | what the clock brings about, and that it is not late |
//! | `signs` | who was heard of by whom before it was taken for lost |
//! | `orders` | orders to stop |
//! | `rates` | how often the same is said |
//! | `sizes` | how large what is written and said becomes |
//! | `specs` | what is desired, word for word |
//! | `rollouts`, `rollout_rows` | rollouts as the log tells them, and which rows of their table were met |
//! | `rows` | what queries answer |
//! | `tables` | the tables of a database, as of any position |
//! | `memory` | what is remembered, and of what |
//! | `peace` | what is left when everything is quiet |

mod apart;
mod auction;
mod calls;
mod causes;
mod dispatches;
mod due;
mod emptying;
mod evaluations;
mod fullness;
mod heard;
mod log;
mod lrp;
mod memory;
mod orders;
mod peace;
mod periodics;
mod placing;
mod planned;
mod preemptions;
mod rates;
mod rollout_rows;
mod rollouts;
pub(crate) mod rows;
pub(crate) mod signs;
pub(crate) mod sizes;
mod specs;
mod tables;
mod task;
mod truth;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use audit::Law;
use projections::{WorkRef, World};
use schemas::cluster::Terms;
use schemas::container::{Container, ContainerState, Epoch, Recipe, WorkKey};
use schemas::entry::{Aggregate, Event};
use schemas::message::{Ack, Heartbeat, Outcomes, Perform, PerformReply, Stop};
use schemas::names::{CellId, EntryId, InstanceGuid, ProcessGuid, RequestId, TaskGuid};
use schemas::query::{InstancePresence, InstanceRow, Page};
use schemas::spec::ClientCommand;
use schemas::subject::{Position, Subject};
use schemas::task::CallbackResult;
use schemas::{Decision, Entry, Refusal, Timestamp, cell, message};
use scripted::{ActionEvent, Scripted};

use self::auction::Auctions;
use self::calls::CallBody;
use self::calls::Calls;
use self::causes::Causes;
use self::dispatches::Dispatches;
use self::due::Due;
use self::emptying::Evacuations;
use self::fullness::Fullness;
use self::heard::Heard;
use self::log::Log;
use self::orders::Orders;
use self::periodics::Periodics;
use self::placing::{Placing, Unplaced};
use self::planned::Planned;
use self::preemptions::Preemptions;
use self::rates::Rates;
use self::rows::{Next, Rows, When};
use self::signs::Signs;
use self::specs::Specs;
use self::truth::Truth;
use super::asked::{ClientRequest, Wanted};
use super::coverage::{Coverage, Situation};
use super::journal::SimJournal;
use super::nodes::{Life, Node, Shape, cell_id};
use super::promises::{Broken, Promise};
use super::reads::Read;
use super::records::Append;

/// What was seen so far, and what was broken.
pub struct Checkers {
    shape: Shape,
    broken: Vec<Broken>,
    coverage: Coverage,
    log: Log,
    causes: Causes,
    lrps: BTreeMap<ProcessGuid, lrp::Process>,
    tasks: BTreeMap<TaskGuid, task::Task>,
    periodics: Periodics,
    dispatches: Dispatches,
    truth: Truth,
    calls: Calls,
    due: Due,
    orders: Orders,
    /// The true time.
    now: Timestamp,
    /// Since when a BBS leads and nothing hinders it.
    calm_since: Option<Timestamp>,
    heard: Heard,
    planned: Planned,
    placing: Placing,
    evacuations: Evacuations,
    auctions: Auctions,
    preemptions: Preemptions,
    fullness: Fullness,
    rates: Rates,
    rows: Rows,
    signs: Signs,
    specs: Specs,
    world: World,
    /// What an audit would say of it.
    law: Law,
    /// Where the log stood for whoever decided an entry, and where the entry's subject did.
    decided: BTreeMap<EntryId, (Position, Position, Life)>,
    /// How far two clocks may be apart.
    clock_slack: Duration,
    /// What could have been placed and was not, when it was looked at first.
    idle: BTreeSet<String>,
    peace_since: Option<Timestamp>,
    /// Cells that never come back.
    gone: BTreeSet<usize>,
}

/// What a decision is judged by.
pub(super) struct Scene<'a> {
    decision: &'a Decision,
    /// Where the log stood for whoever made it.
    basis: Position,
    log: &'a Log,
    truth: &'a Truth,
    placing: &'a Placing,
    evacuations: &'a Evacuations,
    shape: Shape,
    clock_slack: Duration,
    /// Where it stands.
    position: Position,
}

/// What judging finds.
#[derive(Default)]
pub(super) struct Notes {
    broken: Vec<Broken>,
    coverage: Vec<Situation>,
}

impl Notes {
    fn saw(&mut self, situation: Situation) {
        self.coverage.push(situation);
    }

    fn broken(&mut self, promise: Promise, how: String) {
        self.broken.push(Broken { promise, how });
    }

    /// Says what is broken unless it holds.
    fn must(&mut self, promise: Promise, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.broken(promise, otherwise());
        }
    }
}

impl Checkers {
    /// Nothing was seen yet.
    #[must_use]
    pub fn new(shape: Shape, clock_slack: Duration) -> Self {
        Self {
            shape,
            broken: vec![],
            coverage: Coverage::default(),
            log: Log::default(),
            causes: Causes::default(),
            lrps: BTreeMap::new(),
            tasks: BTreeMap::new(),
            periodics: Periodics::default(),
            dispatches: Dispatches::default(),
            truth: Truth::default(),
            calls: Calls::default(),
            due: Due::default(),
            orders: Orders::default(),
            now: Timestamp(0),
            calm_since: None,
            heard: Heard::default(),
            planned: Planned::default(),
            placing: Placing::default(),
            evacuations: Evacuations::default(),
            auctions: Auctions::new(shape.auctioneer().outstanding),
            preemptions: Preemptions::default(),
            fullness: Fullness::default(),
            rates: Rates::default(),
            rows: Rows::default(),
            signs: Signs::default(),
            specs: Specs::default(),
            world: World::new(),
            law: Law::default(),
            decided: BTreeMap::new(),
            clock_slack,
            idle: BTreeSet::new(),
            peace_since: None,
            gone: BTreeSet::new(),
        }
    }

    /// Something interesting happened.
    pub fn saw(&mut self, situation: Situation) {
        self.coverage.saw(situation);
    }

    /// A promise was broken.
    pub fn broken(&mut self, broken: Broken) {
        self.broken.push(broken);
    }

    /// What the log says.
    pub(super) const fn world(&self) -> &World {
        &self.world
    }

    /// Tasks whose owners answered for good.
    pub(super) fn told_owners(&self) -> impl Iterator<Item = &TaskGuid> {
        self.calls.told()
    }

    /// How much work only convergence found.
    #[must_use]
    pub const fn found_by_convergence(&self) -> u64 {
        self.world.found_by_convergence()
    }

    /// What was broken and seen in all, and how long more than two containers of one ActualLRP ran at once.
    #[must_use]
    pub fn results(self, now: Timestamp) -> (Vec<Broken>, Coverage, Duration) {
        (self.broken, self.coverage, self.truth.crowded(now))
    }

    /// A BBS whose log ends at `basis` decides an entry. Repeating an append decides nothing anew.
    #[must_use]
    pub(super) fn decided(&mut self, append: &Append, basis: Position, now: Timestamp) -> Vec<Broken> {
        if self.decided.contains_key(&append.entry) {
            return vec![];
        }
        self.decided.insert(append.entry, (basis, append.expected, append.from));
        let Subject::Cell(cell) = &append.subject else { return vec![] };
        let loses = Entry::decode(&append.bytes)
            .is_ok_and(|entry| entry.decisions.iter().flat_map(|decision| &decision.events).any(is_loss));
        if loses { self.loses(append.from, (cell, basis), now) } else { vec![] }
    }

    /// A client sends a command.
    pub(super) fn asked(&mut self, request: &ClientRequest) {
        self.log.asked(request);
        self.specs.asked(request);
        self.planned.asked(request);
    }

    /// A BBS gets a client's command.
    pub(super) fn arrives(&mut self, bbs: Life, request: &RequestId, until: Option<Timestamp>) {
        self.log.arrives(bbs, request, until);
    }

    /// The version of what a command is about.
    pub(super) fn version_of(&self, command: &ClientCommand) -> Option<u64> {
        match command {
            ClientCommand::LrpUpdate { process_guid, .. }
            | ClientCommand::LrpActivate { process_guid, .. }
            | ClientCommand::LrpRestart { process_guid, .. }
            | ClientCommand::LrpSteer { process_guid, .. }
            | ClientCommand::LrpRemove { process_guid }
            | ClientCommand::LrpRetry { process_guid, .. }
            | ClientCommand::InstanceExec { process_guid, .. }
            | ClientCommand::LrpRetire { process_guid, .. } => {
                self.world.process(process_guid).map(|process| process.version)
            }
            ClientCommand::TaskCancel { task_guid }
            | ClientCommand::TaskRetry { task_guid, .. }
            | ClientCommand::TaskResolve { task_guid } => self.world.task(task_guid).map(|task| task.version),
            ClientCommand::PeriodicUpdate(desired) => {
                self.world.periodic(&desired.periodic_guid).map(|known| known.version)
            }
            ClientCommand::PeriodicAction { periodic_guid, .. } => {
                self.world.periodic(periodic_guid).map(|known| known.version)
            }
            ClientCommand::ParameterisedUpdate(desired) => {
                self.world.parameterised(&desired.parameterised_guid).map(|known| known.version)
            }
            ClientCommand::ParameterisedDispatch { parameterised_guid, .. }
            | ClientCommand::ParameterisedWithdraw { parameterised_guid, .. }
            | ClientCommand::ParameterisedRemove { parameterised_guid } => {
                self.world.parameterised(parameterised_guid).map(|known| known.version)
            }
            ClientCommand::LrpDesire(_)
            | ClientCommand::TaskDesire(_)
            | ClientCommand::PeriodicDesire(_)
            | ClientCommand::ParameterisedDesire(_)
            | ClientCommand::DomainUpsert { .. } => None,
        }
    }

    /// Where the last decision stands about what a command is about; 0: nowhere.
    pub(super) fn last_decision(&self, command: &ClientCommand) -> Position {
        self.planned.last(command)
    }

    /// A client sends a command, or sends it again.
    pub(super) fn asks(&mut self, request: RequestId, command: &ClientCommand) {
        self.heard.asks(request, command);
    }

    /// A client is told what became of its command, while the log ends at `end`.
    #[must_use]
    pub(super) fn told(
        &mut self,
        request: &RequestId,
        command: &ClientCommand,
        answer: &Result<Ack, Refusal>,
        end: Position,
    ) -> Option<Broken> {
        match answer {
            Ok(done) => {
                let unheard = self.heard.done(request, command, *done);
                unheard.or_else(|| self.dispatches.told(request, command, *done))
            }
            Err(refusal) => {
                self.not_dispatched(command, refusal.code);
                if self.planned.is_outdated(request, refusal) {
                    self.coverage.saw(Situation::PlanOutdated);
                }
                let broken = self.heard.refused(request, command, refusal.code, end);
                broken.or_else(|| self.planned.refused(request, refusal))
            }
        }
    }

    /// An entry was accepted. Answers it in words, and the promises that it breaks.
    #[must_use]
    pub fn appended(
        &mut self,
        journal: &SimJournal,
        position: Position,
        now: Timestamp,
    ) -> (String, Vec<Broken>) {
        self.now = now;
        let Some(stored) = journal.get(position) else {
            return (String::new(), vec![]);
        };
        let entry = match Entry::decode(&stored.bytes) {
            Ok(entry) => entry,
            Err(error) => {
                let how = format!("position {position}: {error}");
                return (String::new(), vec![Broken { promise: Promise::NobodyHalts, how }]);
            }
        };
        let mut notes = Notes::default();
        let (basis, expected, by) = match self.decided.get(&entry.id) {
            Some((basis, expected, by)) => (*basis, *expected, Some(*by)),
            None => (Position(0), Position(0), None),
        };
        self.log.stands(&stored.subject, position, Some(expected), &mut notes);
        if self.log.is_overtaken(&entry, &stored.subject) {
            self.world.fold(position, &projections::reader::empty_entry());
            self.coverage.saw(Situation::Overtaken);
            return ("set aside: the number of shards was changed".to_owned(), notes.broken);
        }
        self.log.entry(&entry, stored, position, self.clock_slack, &mut notes);
        sizes::of_entry(&entry, stored.bytes.len(), &mut notes);
        for decision in &entry.decisions {
            self.judge(decision, basis, &mut notes);
            self.note_evacuations(decision, position, &mut notes);
            self.log.decided(decision, basis, position, &mut notes);
            if let Some(by) = by {
                self.log.carries(by, decision, &mut notes);
            }
            let preemptor = self.preemptions.of(decision, &self.world);
            self.causes.judge(decision, (position, basis), &preemptor, &mut notes);
            self.preemptions.decided(decision, (&self.world, &self.log), basis, &mut notes);
            self.heard.decision(decision, position);
            self.planned.decision(decision, position, &mut notes);
            self.specs.decided(decision, &mut notes);
        }
        self.periodics.entry(&entry, &mut notes);
        self.dispatches.entry(&entry, &mut notes);
        rollout_rows::of_entry(&self.world, &entry, &mut notes);
        for finding in self.law.judge(&self.world, position, &entry) {
            notes.broken(
                Promise::AuditClean,
                format!("{}: {}: {}", finding.kind, finding.target, finding.detail),
            );
        }
        self.world.fold(position, &entry);
        self.forget(&stored.subject, entry.decisions.last().map(|last| last.at));
        for decision in &entry.decisions {
            self.compare(&decision.aggregate, &mut notes);
            self.goes_on(&decision.aggregate, &mut notes);
            self.keeps_apart(&entry, decision, &mut notes);
            self.remembers(&decision.aggregate, &mut notes);
        }
        notes.coverage.into_iter().for_each(|situation| self.coverage.saw(situation));
        for broken in &mut notes.broken {
            broken.how = format!("position {position}: {}", broken.how);
        }
        let words = words(&entry);
        self.rows.entry(position, entry);
        (words, notes.broken)
    }

    fn note_evacuations(&mut self, decision: &Decision, position: Position, notes: &mut Notes) {
        let Aggregate::Cell(cell) = &decision.aggregate else { return };
        for event in &decision.events {
            if let Event::Cell(event) = event {
                if let cell::Event::Resumed {} = event {
                    notes.must(Promise::CellsSound, self.evacuations.has_resumed(cell), || {
                        format!("{cell} takes work again, and its rep never said so")
                    });
                }
                self.evacuations.recorded(cell, event, position, decision.at);
            }
        }
    }

    fn judge(&mut self, decision: &Decision, basis: Position, notes: &mut Notes) {
        let position = Position(self.world.position().0 + 1);
        let scene = Scene {
            decision,
            basis,
            log: &self.log,
            truth: &self.truth,
            placing: &self.placing,
            evacuations: &self.evacuations,
            shape: self.shape,
            clock_slack: self.clock_slack,
            position,
        };
        match &decision.aggregate {
            Aggregate::Process { guid, domain, epoch } => {
                let process =
                    self.lrps.entry(guid.clone()).or_insert_with(|| lrp::Process::new(domain, *epoch));
                process.judge(guid, &scene, notes);
                self.truth.claimed(process.take_claims());
                self.orders.asked(process.take_stops(), position);
            }
            Aggregate::Task { guid, .. } => {
                let task = self.tasks.entry(guid.clone()).or_default();
                task.judge(guid, &scene, &self.calls, self.peace_since, notes);
                self.truth.claimed(task.take_claims());
                if let Some(guid) = task.take_cancelled() {
                    self.orders.cancelled(guid, position, self.now);
                }
                if task.is_gone() {
                    self.calls.deleted(guid, task.epoch(), position);
                }
            }
            Aggregate::Periodic { .. }
            | Aggregate::Parameterised { .. }
            | Aggregate::Domain(_)
            | Aggregate::Cell(_)
            | Aggregate::Cluster => {}
        }
    }

    /// What has been gone for long is forgotten with the first entry of its own subject after that.
    fn forget(&mut self, subject: &Subject, now: Option<Timestamp>) {
        let Some(now) = now else { return };
        let forgotten = |guid: &ProcessGuid, process: &lrp::Process| {
            process.is_forgotten(now) && Subject::of_process(guid, self.world.shards()) == *subject
        };
        let forgotten: Vec<ProcessGuid> = self
            .lrps
            .iter()
            .filter(|(guid, process)| forgotten(guid, process))
            .map(|(guid, _)| guid.clone())
            .collect();
        for guid in forgotten {
            self.lrps.remove(&guid);
            self.log.forget(&guid);
            self.causes.forget(&guid);
            self.coverage.saw(Situation::Forgotten);
        }
    }

    /// The services' fold and the model agree.
    fn compare(&self, aggregate: &Aggregate, notes: &mut Notes) {
        let difference = match aggregate {
            Aggregate::Process { guid, .. } => {
                let model = self.lrps.get(guid).map(lrp::Process::in_words);
                let folded = self.world.process(guid).map(lrp::words_of);
                (model != folded).then_some((format!("{model:?}"), format!("{folded:?}")))
            }
            Aggregate::Task { guid, .. } => {
                let model = self.tasks.get(guid).map(task::Task::in_words);
                let folded = self.world.task(guid).map(task::words_of);
                (model != folded).then_some((format!("{model:?}"), format!("{folded:?}")))
            }
            Aggregate::Periodic { guid, .. } => self.compare_periodic(guid),
            Aggregate::Parameterised { guid, .. } => self.compare_parameterised(guid),
            Aggregate::Domain(_) | Aggregate::Cell(_) | Aggregate::Cluster => None,
        };
        if let Some((model, folded)) = difference {
            notes.broken(
                Promise::OnePicture,
                format!("{aggregate:?} should be {model} and is folded to {folded}"),
            );
        }
    }

    /// No rollout waits for instances that their restart policy keeps down: each index has one owner. Whatever is decided of
    /// a process, what follows for its rollout is decided with it.
    fn goes_on(&self, aggregate: &Aggregate, notes: &mut Notes) {
        let Aggregate::Process { guid, .. } = aggregate else { return };
        let Some(process) = self.world.process(guid) else { return };
        let hangs = rollouts::hangs(process);
        notes.must(Promise::RolloutsGoOn, !hangs, || {
            format!("{guid} waits for what is kept down: {:?}, {:?}", process.rollout, process.slots)
        });
    }

    /// Bytes that are no valid entry are in the log.
    pub fn malformed(&mut self, subject: &Subject, position: Position) {
        self.log.stands(subject, position, None, &mut Notes::default());
        self.world.fold(position, &projections::reader::empty_entry());
    }

    /// What a client sees of the instances: nothing of what it removed or scaled away goes on.
    #[must_use]
    pub(super) fn looked(&self, wanted: &Wanted, page: &Page<InstanceRow>) -> Vec<Broken> {
        let mut last: BTreeMap<&ProcessGuid, ((Position, u64), u32)> = BTreeMap::new();
        for (request, asked) in wanted.asked() {
            let Some((guid, wants)) = asked.wants() else { continue };
            for carried in self.log.carried(request) {
                let known = last.entry(guid).or_insert(((Position(0), 0), u32::MAX));
                let at = (carried.position, carried.version);
                if carried.position <= page.position && at > known.0 {
                    *known = (at, wants);
                }
            }
        }
        let goes_on = |row: &&InstanceRow| {
            let unwanted = last.get(&row.process_guid).is_some_and(|(_, wanted)| row.index >= *wanted);
            unwanted
                && !self.is_orphan(&row.process_guid)
                && row.presence == InstancePresence::Ordinary
                && !row.stopping
        };
        let seen = page.rows.iter().filter(goes_on).map(|row| Broken {
            promise: Promise::UnwantedEnds,
            how: format!(
                "{}/{} is seen as {:?} at {}",
                row.process_guid, row.index, row.state, page.position
            ),
        });
        seen.collect()
    }

    /// A reader is answered. Says where its list goes on, or what is wrong.
    pub(super) fn read(
        &mut self,
        read: &Read,
        answer: &Result<String, Refusal>,
        now: Timestamp,
    ) -> Result<Option<Next>, Broken> {
        let when = When { asked: read.asked(), now, slack: self.clock_slack };
        self.rows
            .judge(read, answer, when)
            .map_err(|wrong| Broken { promise: Promise::RowsTrue, how: format!("{:?} {wrong}", read.query) })
    }

    /// Whether nobody remembers that a process was ever desired.
    fn is_orphan(&self, guid: &ProcessGuid) -> bool {
        self.lrps.get(guid).is_none_or(lrp::Process::is_orphan)
    }

    // ---- what the containers did ---------------------------------------------------------------------------------

    /// An action started or ended on a cell.
    #[must_use]
    pub fn happened(&mut self, happened: &ActionEvent, cell: usize, containers: &Scripted) -> Vec<Broken> {
        let mut notes = Notes::default();
        let total = self.shape.cell(cell).total;
        self.truth.happened(happened, cell, containers, total, &mut notes);
        notes.coverage.into_iter().for_each(|situation| self.coverage.saw(situation));
        notes.broken
    }

    /// A rep has a container made, whether its executor gets the order or not.
    pub(super) fn runs(&mut self, cell: usize, recipe: &Recipe, now: Timestamp) {
        self.fullness.runs(cell, (recipe.instance_guid, &recipe.work), recipe.resources, now);
    }

    /// A container is made.
    pub(super) fn made(&mut self, guid: InstanceGuid) {
        self.truth.made(guid);
    }

    /// A container came to a state.
    pub(super) fn changed(&mut self, container: &Container) {
        self.truth.changed(container);
    }

    /// A BBS that knows the log so far tells a cell to stop containers.
    #[must_use]
    pub(super) fn says_stop(
        &mut self,
        bbs: Life,
        cell: &CellId,
        stop: &Stop,
        (delivered, now): (Position, Timestamp),
    ) -> Vec<Broken> {
        let mut notes = Notes::default();
        self.orders.says(bbs, (cell, stop), delivered, now, &mut notes);
        notes.broken
    }

    /// Whether an instance's index belongs to another cell than its rep's, as those of a global process do.
    fn is_of_another_cell(&self, rep: Life, container: &Container) -> bool {
        let only = peace::only_cell(&self.world, &auction::known::name_of(&container.work));
        only.is_some_and(|only| cell_of(rep).is_some_and(|cell| *only != cell))
    }

    /// A rep has a container deleted, maybe because a BBS just answered it.
    #[must_use]
    pub(super) fn deleted(
        &mut self,
        rep: Life,
        guid: InstanceGuid,
        containers: &Scripted,
        answered: bool,
    ) -> Option<Broken> {
        let container = containers.list().into_iter().find(|container| container.instance_guid == guid)?;
        let lives = match container.state {
            ContainerState::Initializing | ContainerState::Created | ContainerState::Running(_) => true,
            ContainerState::Reserved | ContainerState::Completed(_) => false,
        };
        // A cell that evacuates deletes what nobody wants any more, and in the end all.
        let empties = cell_of(rep).is_some_and(|cell| self.evacuations.may_go_on(&cell));
        if !self.truth.is_first_deletion(guid) || !lives || empties {
            return None;
        }
        let right = answered && (!self.runs_on(&container) || self.is_of_another_cell(rep, &container));
        let how = || format!("{} deletes {}, {:?}", rep.0, container.work, container.state);
        (!right).then(|| Broken { promise: Promise::LiveKept, how: how() })
    }

    /// Whether a rep had a container deleted.
    pub(super) fn is_deleted(&self, guid: InstanceGuid) -> bool {
        self.truth.is_deleted(guid)
    }

    /// Whether a container is the last of its place of which the log said that it runs, and its life goes on.
    fn runs_on(&self, container: &Container) -> bool {
        match &container.work {
            WorkKey::Lrp { key, epoch } => {
                let process = self.lrps.get(&key.process_guid);
                process.is_some_and(|process| process.ran_last(&key.place, *epoch, container.instance_guid))
            }
            WorkKey::Task { .. } => false,
        }
    }

    /// A cell's machine died with everything on it.
    pub fn cell_died(&mut self, cell: usize, now: Timestamp) {
        self.truth.cell_died(cell, now);
    }

    /// A cell never comes back.
    pub fn cell_gone(&mut self, cell: usize) {
        self.gone.insert(cell);
    }

    // ---- what is placed where --------------------------------------------------------------------------------------

    /// A rep gets work from an auctioneer.
    pub(super) fn given(&mut self, rep: Life, requester: u64, perform: Perform, now: Timestamp) {
        if let Node::Rep(cell) = rep.0 {
            // It reserves room at once, and may say so before it answers.
            self.fullness.reserved(cell, requester, perform.work.clone(), now);
        }
        let nothing = cell_of(rep).is_some_and(|cell| self.evacuations.takes_nothing(&cell));
        self.placing.given(rep, (requester, perform), nothing, (now, self.clock_slack));
    }

    /// A rep is let speak for its cell.
    pub(super) fn attached(&mut self, cell: &CellId, position: Position) {
        self.evacuations.attached(cell, position);
    }

    /// A rep gets the order to evacuate.
    pub(super) fn told_to_evacuate(&mut self, requester: u64, order: message::RepOrder) {
        self.evacuations.ordered(requester, order.position);
    }

    /// A rep says how its cell is.
    pub(super) fn says_state(&mut self, cell: &CellId, requester: u64, evacuates: bool) {
        self.evacuations.answered(cell, requester, evacuates);
    }

    /// An auctioneer that knows the log so far gives work to a cell.
    pub(super) fn gives(
        &mut self,
        (auctioneer, delivered, now): (Life, Position, Timestamp),
        cell: &CellId,
        perform: &Perform,
    ) -> Option<Broken> {
        self.placing.gives(cell, perform);
        if self.log.is_cordoned(cell, delivered) {
            let how = format!("{} gives {:?} to {cell}", auctioneer.0, perform.work);
            return Some(Broken { promise: Promise::CordonedTakesNothing, how });
        }
        let present = self.log.present(delivered);
        self.placing.sees(auctioneer, &present, (now, self.clock_slack))
    }

    /// An auctioneer leads in a term.
    pub(super) fn auctions(&mut self, auctioneer: Life, delivered: Position, leads: (u64, Timestamp)) {
        self.placing.leads(auctioneer, leads, || self.log.present(delivered));
    }

    /// An auctioneer hears a heartbeat.
    pub(super) fn auctioneer_hears(&mut self, auctioneer: Life, beat: &Heartbeat, now: Timestamp) {
        self.placing.hears(auctioneer, beat, now);
    }

    /// A BBS answers a rep, and names the terms of the log.
    pub(super) fn rep_learns(&mut self, rep: Life, terms: Terms) {
        self.placing.learns(rep, terms.auctioneer);
    }

    /// An auctioneer says what it could not place.
    pub(super) fn finds(&mut self, outcomes: &Outcomes) {
        self.placing.finds(outcomes);
        self.preemptions.says(outcomes);
    }

    /// A rep answers what it was given.
    #[must_use]
    pub(super) fn performed(
        &mut self,
        (rep, now): (Life, Timestamp),
        requester: u64,
        answer: &Result<PerformReply, Refusal>,
    ) -> Vec<Broken> {
        if let Node::Rep(cell) = rep.0 {
            self.fullness.refused(cell, requester, &self.placing.refuses(requester, answer));
        }
        self.placing.answered(rep, requester, answer, now)
    }

    /// A heartbeat reaches an auctioneer, at this time and at this time by its clock.
    pub(super) fn auctioneer_is_told(&mut self, life: Life, beat: &Heartbeat, at: (Timestamp, Timestamp)) {
        self.auctions.hears(life, beat, at);
    }

    /// An auctioneer folds what the log says of a cell.
    pub(super) fn auctioneer_folds(&mut self, life: Life, cell: &CellId) {
        self.auctions.recorded(life, cell);
    }

    /// What a rep answered, or that it didn't, reaches an auctioneer.
    pub(super) fn auctioneer_answered(
        &mut self,
        life: Life,
        of: (&CellId, u64),
        answer: Option<&Result<PerformReply, Refusal>>,
        now: Timestamp,
    ) {
        self.auctions.performed(life, of, answer, now);
    }

    /// An auctioneer that is behind the log gave work away.
    pub(super) fn chose_behind(&mut self, life: Life, now: Timestamp, placed: &[(CellId, Perform)]) {
        self.auctions.is_behind(life, now, placed);
    }

    /// Judges the choices of an auctioneer whose picture of the log is this.
    #[must_use]
    pub(super) fn chose(
        &mut self,
        life: Life,
        world: &World,
        now: (Timestamp, Timestamp),
        batch: (&[(CellId, Perform)], &[Outcomes]),
    ) -> Vec<Broken> {
        let Notes { broken, coverage } = self.auctions.judge(life, world, now, batch);
        coverage.into_iter().for_each(|situation| self.saw(situation));
        broken
    }

    /// An auctioneer whose picture of the log is `seen` is done with a batch.
    #[must_use]
    pub(super) fn auctioned(
        &mut self,
        seen: &World,
        placed: &[(CellId, Perform)],
        outcomes: &[Outcomes],
    ) -> Vec<Broken> {
        let unplaced: Vec<Unplaced> = outcomes
            .iter()
            .flat_map(placing::without_room)
            .filter_map(|(work, epoch)| {
                let current = match &work {
                    WorkRef::Lrp(key) => self.world.process(&key.process_guid)?.epoch,
                    WorkRef::Task(guid) => self.world.task(guid)?.epoch,
                };
                // Who is behind speaks of a life that needed other room.
                let (constraint, size, _) = peace::demands(&self.world, &work)?;
                let constraint = constraint.clone();
                let only = peace::only_cell(&self.world, &work).cloned();
                let priority = peace::priority(seen, &work);
                (current == epoch).then_some(Unplaced { work, constraint, size, only, priority })
            })
            .collect();
        if !placed.is_empty() && !unplaced.is_empty() {
            self.coverage.saw(Situation::BatchDidNotFit);
        }
        self.placing.out_of_order((self.shape, seen), placed, &unplaced)
    }

    /// What a cell held that is absent since a second or more has to be in the auction.
    #[must_use]
    pub(super) fn lost_is_reaped(&mut self, cell: &CellId, since: Position) -> Vec<Broken> {
        if self.log.absent_since(cell) != Some(since) {
            return vec![];
        }
        self.coverage.saw(Situation::LossLookedAt);
        let left = self
            .lrps
            .iter()
            .flat_map(|(guid, process)| process.held_by(cell, since).map(move |place| (guid, place)));
        let broken = left.map(|(guid, place)| Broken {
            promise: Promise::LostAtOnce,
            how: format!("{guid}/{} is still said to be on {cell}", place.index),
        });
        broken.collect()
    }

    // ---- signs of life ---------------------------------------------------------------------------------------------

    /// A rep says that it lives.
    pub(super) fn said(&mut self, beat: &Heartbeat) {
        self.signs.said(beat);
        self.evacuations.said(beat);
    }

    /// A BBS hears a heartbeat.
    pub(super) fn heard(&mut self, bbs: Life, beat: &Heartbeat, now: Timestamp) {
        self.signs.heard(bbs, beat, now);
    }

    /// A BBS hears that a cell is there.
    pub(super) fn probe_answered(&mut self, bbs: Life, beat: &Heartbeat, now: Timestamp) {
        self.signs.answered(bbs, beat, now);
    }

    /// A BBS asks a cell whether it is there.
    pub(super) fn probes(&mut self, bbs: Life, cell: &CellId, now: Timestamp) {
        self.signs.probes(bbs, cell, now);
    }

    /// A BBS decides that a cell is lost.
    fn loses(&mut self, bbs: Life, (lost, basis): (&CellId, Position), now: Timestamp) -> Vec<Broken> {
        let mut notes = Notes::default();
        self.signs.loses(bbs, lost, (now, self.clock_slack), &mut notes);
        let present = self.log.present(basis);
        self.signs.loses_many(bbs, (lost, &present), (now, self.clock_slack), &mut notes);
        notes.coverage.drain(..).for_each(|situation| self.coverage.saw(situation));
        notes.broken
    }

    // ---- callbacks -----------------------------------------------------------------------------------------------

    /// A BBS leads from now on, or no longer.
    pub(super) fn leads(&mut self, life: Life, leads: bool, now: Timestamp) {
        self.calls.leads(life, leads);
        self.orders.leads(life, leads);
        self.signs.leads(life, now);
    }

    /// A BBS that has folded the log to `delivered` calls a task's owner. Answers what is wrong with that.
    pub(super) fn call(
        &mut self,
        life: Life,
        (task, epoch): (&TaskGuid, Epoch),
        (delivered, now): (Position, Timestamp),
        body: &str,
    ) -> Vec<Broken> {
        let known = self.tasks.get(task);
        let outcome = known.and_then(|known| known.outcome_in(epoch));
        let told = CallBody { outcome, annotation: known.map_or("", task::Task::annotation) };
        self.calls.call(life, (task, epoch), (delivered, now, self.clock_slack), body, &told)
    }

    /// What the owner of a task answers. Tells whether that ends the calls.
    pub(super) fn owner_answers(&mut self, task: &TaskGuid, epoch: Epoch, called: &CallbackResult) -> bool {
        self.calls.owner_answers(task, epoch, called)
    }

    /// What came of a call reaches the BBS that made it.
    pub(super) fn call_came_back(
        &mut self,
        life: Life,
        of: (&TaskGuid, Epoch),
        called: &CallbackResult,
        now: Timestamp,
    ) {
        self.calls.came_back(life, of, called, now);
    }
}

/// The cell of a rep.
fn cell_of(rep: Life) -> Option<CellId> {
    match rep.0 {
        Node::Rep(at) => Some(cell_id(at)),
        Node::Bbs(_) | Node::Auctioneer(_) => None,
    }
}

/// Whether a cell is lost.
const fn is_loss(event: &Event) -> bool {
    matches!(event, Event::Cell(cell::Event::Disappeared { .. }))
}

/// What an entry says, in short.
fn words(entry: &Entry) -> String {
    let decisions = entry.decisions.iter().map(|decision| {
        let name = match &decision.aggregate {
            Aggregate::Process { guid, .. } => guid.to_string(),
            Aggregate::Task { guid, .. } => guid.to_string(),
            Aggregate::Periodic { guid, .. } => guid.to_string(),
            Aggregate::Parameterised { guid, .. } => guid.to_string(),
            Aggregate::Domain(domain) => domain.to_string(),
            Aggregate::Cell(cell) => cell.to_string(),
            Aggregate::Cluster => "cluster".into(),
        };
        let events = decision.events.iter().map(|event| match event {
            Event::Actual(actual) => {
                let places = actual.places();
                format!("{}{:?}@{}", event.type_name(), places.indices.ranges(), places.definition_id)
            }
            Event::Desired(_)
            | Event::Evacuating(_)
            | Event::Rollout(_)
            | Event::Evaluation(_)
            | Event::Task(_)
            | Event::Periodic(_)
            | Event::Parameterised(_)
            | Event::Domain(_)
            | Event::Cell(_)
            | Event::Cluster(_) => event.type_name().to_owned(),
        });
        let events: Vec<String> = events.collect();
        format!("{name} v{} {}", decision.version, events.join(" "))
    });
    decisions.collect::<Vec<_>>().join("; ")
}
