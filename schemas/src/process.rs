//! The process: the aggregate of one DesiredLRP, its ActualLRPs with their evacuating twins, and its evaluations.
//!
//! What the seeds promise of an LRP (one RUNNING per index, the delta between desired and actual, one pending
//! evaluation) are promises of the process, so one decision sees all of it. The machines inside are [`desired`],
//! [`actual`], [`evacuating`], [`crash`] and [`evaluation`]; this file puts them together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::actual::{self, Actual, Ended, State, Unclaimed};
use crate::cause::{Cause, Origin};
use crate::container::{Epoch, Instance};
use crate::definition::{DesiredLrp, DesiredLrpUpdate};
use crate::desired::{self, Desired};
use crate::entry::{Event, Stamp};
use crate::evacuating::{self, Evacuating, Gone};
use crate::evaluation::{self, Evaluation, Left, Trigger};
use crate::indices::Indices;
use crate::names::{CellId, DefinitionId, Domain, ProcessGuid};
use crate::placement::Explanation;
use crate::refusal::{Code, Refusal};
use crate::request::Requests;
use crate::{Timestamp, crash, limits};

/// What is true of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its name.
    pub guid: ProcessGuid,
    /// Its domain.
    pub domain: Domain,
    /// Which life of the guid this is.
    pub epoch: Epoch,
    /// Decisions so far, over all lives that are remembered.
    pub version: u64,
    /// When the last decision was made.
    pub changed_at: Timestamp,
    /// What is desired; none: nobody desires it, and what is left is to be stopped or is an orphan.
    pub desired: Option<Box<Desired>>,
    /// Every index that has a record, in order.
    pub slots: Vec<Slot>,
    /// How many slots are UNCLAIMED.
    pub unclaimed: u32,
    /// How many of those carry a placement error.
    pub unplaced: u32,
    /// The newest evaluations, the newest last.
    pub evaluations: Vec<Evaluation>,
    /// The newest requests and their answers.
    pub requests: Requests,
    /// The decision by which somebody last said how many instances shall run. None: nobody did, or that is forgotten,
    /// and what is here are containers that reps reported.
    pub asked: Option<Cause>,
}

/// The records of one index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// The index.
    pub index: u32,
    /// The instance.
    pub actual: Option<Actual>,
    /// Its evacuating twin.
    pub evacuating: Option<Box<Evacuating>>,
    /// When one of the two last changed; that an instance could not be placed changes nothing for a rep.
    pub changed_at: Timestamp,
    /// The decision that last made work for the index, or asked its instance to stop.
    pub cause: Cause,
}

/// What can be asked of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A client desires it.
    Desire(Box<DesiredLrp>),
    /// A client changes its scale, routes or annotation.
    Update(DesiredLrpUpdate),
    /// A client no longer desires it.
    Remove,
    /// A client stops one instance; if it is still desired it starts again.
    Retire {
        /// Which.
        index: u32,
    },
    /// A rep reports one container: all steps or none.
    Report(Report),
    /// The auctioneer could not place some indices.
    Fail(Vec<Unplaced>, Option<Box<Explanation>>),
    /// The BBS looks whether something is due: lost cells, missing, extra, crashed, expired.
    Converge,
}

/// What a rep asks of the records of one index, in one decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The domain of the container.
    pub domain: Domain,
    /// The index.
    pub index: u32,
    /// The life of the guid that the container belongs to.
    pub epoch: Epoch,
    /// The definition that it runs.
    pub definition_id: DefinitionId,
    /// The container.
    pub by: Instance,
    /// When the records that the rep judged had last changed (see [`Process::changed_at`]): if they have changed since,
    /// nothing of it is done. So an old report that comes late, or a copy, says nothing of what came after it.
    pub judged: Timestamp,
    /// What is asked, in order; a refused step refuses all.
    pub steps: Vec<ReportStep>,
}

/// One step of a report: about the instance, or about its evacuating twin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportStep {
    /// About the instance.
    Actual(actual::Command),
    /// About the evacuating twin.
    Evacuating(evacuating::Command),
}

/// An index that could not be placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unplaced {
    /// The index.
    pub index: u32,
    /// The `since` of the UNCLAIMED record that was judged: an outcome settles only what is unchanged.
    pub attempt: Timestamp,
    /// Why, as users read it.
    pub error: String,
}

/// What else a decision depends on.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The time of the decision.
    pub now: Timestamp,
    /// Whether the process's domain is fresh.
    pub fresh: bool,
    /// Whether a cell is present.
    pub present: &'a dyn Fn(&CellId) -> bool,
}

impl Process {
    /// A process of which nothing is known but its name.
    #[must_use]
    pub fn new(guid: ProcessGuid, domain: Domain, epoch: Epoch) -> Self {
        Self {
            guid,
            domain,
            epoch,
            version: 0,
            changed_at: Timestamp(0),
            desired: None,
            slots: vec![],
            unclaimed: 0,
            unplaced: 0,
            evaluations: vec![],
            requests: Requests::default(),
            asked: None,
        }
    }

    /// Whether nobody desires it and nothing of it is left: only its name and its answers are remembered.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.desired.is_none() && self.slots.is_empty()
    }

    /// The records of an index.
    #[must_use]
    pub fn slot(&self, index: u32) -> Option<&Slot> {
        self.slots.binary_search_by_key(&index, |slot| slot.index).ok().map(|at| &self.slots[at])
    }

    /// The instance at an index.
    #[must_use]
    pub fn actual(&self, index: u32) -> Option<&Actual> {
        self.slot(index)?.actual.as_ref()
    }

    /// When the records of an index last changed; where there are none, when the process did. Decisions on one subject
    /// are never at the same time, so this names one.
    #[must_use]
    pub fn changed_at(&self, index: u32) -> Timestamp {
        self.slot(index).map_or(self.changed_at, |slot| slot.changed_at)
    }

    /// Whether an index is desired.
    #[must_use]
    pub fn wants(&self, index: u32) -> bool {
        self.desired.as_ref().is_some_and(|desired| index < desired.instances)
    }

    /// Whether it is known that nobody wants an index: somebody said how many instances shall run, and it is none of
    /// them. Where nobody said anything that is remembered, nothing is known.
    #[must_use]
    pub fn is_unwanted(&self, index: u32) -> bool {
        self.asked.is_some() && !self.wants(index)
    }

    /// Where a decision about an index comes from: from a cell, if it is for what happened to that; else from the last
    /// decision that made work for the index or asked its instance to stop. An index without records that nobody wants
    /// has that from whoever said how many instances shall run.
    fn origin(&self, index: u32, cell: Option<&CellId>) -> Origin {
        let cause = self.slot(index).map(|slot| slot.cause);
        let cause = cause.or_else(|| self.asked.filter(|_| !self.wants(index)));
        cell.map_or_else(|| cause.into(), |cell| Origin::Cell(cell.clone(), cause))
    }

    /// The evaluation that is pending or blocked.
    #[must_use]
    pub fn open_evaluation(&self) -> Option<&Evaluation> {
        evaluation::open(&self.evaluations)
    }

    /// The moment at which convergence next has something to do here, cells and freshness aside.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.slots.iter().filter_map(|slot| self.due_of(slot)).min()
    }

    /// The moment at which it has something to do with one index.
    #[must_use]
    pub fn due_of(&self, slot: &Slot) -> Option<Timestamp> {
        let wanted = slot.actual.as_ref().filter(|_| self.wants(slot.index));
        let restart = wanted.and_then(Actual::restart_at);
        let expiry = slot.evacuating.as_ref().map(|twin| twin.expires_at);
        restart.into_iter().chain(expiry).min()
    }
}

/// Judges a command against what is true. No events: it is so already.
///
/// # Errors
/// The refusal of the machine that said no, or `ResourceExists`, `ResourceNotFound`, `StaleEpoch`, `StaleRecord`,
/// `CellAbsent`, `Unavailable` if a report is of a later life.
pub fn decide(
    process: Option<&Process>,
    command: &Command,
    context: Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    let mut draft = Draft::new(process, context);
    match command {
        Command::Desire(lrp) => draft.desire(lrp)?,
        Command::Update(update) => draft.update(update)?,
        Command::Remove => draft.remove()?,
        Command::Retire { index } => draft.retire(*index)?,
        Command::Report(report) => draft.report(report)?,
        Command::Fail(unplaced, explanation) => draft.fail(unplaced, explanation.as_deref()),
        Command::Converge => draft.converge(),
    }
    Ok(draft.finish())
}

/// Where a decision comes from, told from what was true before it. One about several indices comes from where the first
/// of them does about whose instance it speaks; convergence decides apart what comes from different places.
#[must_use]
pub fn origin(process: Option<&Process>, command: &Command, events: &[Event]) -> Origin {
    match command {
        Command::Desire(_) | Command::Update(_) | Command::Remove | Command::Retire { .. } => {
            Origin::Beginning
        }
        Command::Report(_) | Command::Fail(..) | Command::Converge => {
            let of_instance = events.iter().find(|event| matches!(event, Event::Actual(_)));
            let event = of_instance.or_else(|| events.first());
            process.zip(event).map_or(Origin::Beginning, |(process, event)| origin_of(process, event))
        }
    }
}

fn origin_of(process: &Process, event: &Event) -> Origin {
    match event {
        Event::Actual(event) => {
            let Some(index) = event.indices().iter().next() else { return Origin::Beginning };
            let by_cell = match event {
                actual::Event::Unclaimed { cause: Unclaimed::CellLost | Unclaimed::Evacuation, .. }
                | actual::Event::Removed { cause: Ended::CellLost, .. } => true,
                actual::Event::Unclaimed { cause: Unclaimed::Crash | Unclaimed::Restart, .. }
                | actual::Event::Removed { .. }
                | actual::Event::Created { .. }
                | actual::Event::Claimed { .. }
                | actual::Event::Started { .. }
                | actual::Event::Crashed { .. }
                | actual::Event::PlacementFailed { .. }
                | actual::Event::StopRequested { .. } => false,
            };
            let holder = process.actual(index).and_then(Actual::holder).filter(|_| by_cell);
            process.origin(index, holder.map(|by| &by.cell_id))
        }
        Event::Evacuating(evacuating::Event::Set { index, by, .. }) => {
            process.origin(*index, Some(&by.cell_id))
        }
        Event::Evacuating(evacuating::Event::Removed { index, cause }) => {
            let twin = process.slot(*index).and_then(|slot| slot.evacuating.as_ref());
            let lost = twin.filter(|_| *cause == Gone::CellLost);
            process.origin(*index, lost.map(|twin| &twin.by.cell_id))
        }
        Event::Desired(_)
        | Event::Evaluation(_)
        | Event::Task(_)
        | Event::Domain(_)
        | Event::Cell(_)
        | Event::Cluster(_) => Origin::Beginning,
    }
}

/// A process while it is being decided: what is true, with what was decided so far laid over it.
struct Draft<'a> {
    process: Option<&'a Process>,
    context: Context<'a>,
    wanted: u32,
    definition_id: Option<DefinitionId>,
    over: BTreeMap<u32, Option<Actual>>,
    left: Left,
    made: Option<Trigger>,
    error: Option<String>,
    events: Vec<Event>,
}

impl<'a> Draft<'a> {
    fn new(process: Option<&'a Process>, context: Context<'a>) -> Self {
        let desired = process.and_then(|process| process.desired.as_ref());
        Self {
            process,
            context,
            wanted: desired.map_or(0, |desired| desired.instances),
            definition_id: desired.map(|desired| desired.active_definition_id.clone()),
            over: BTreeMap::new(),
            left: Left {
                unclaimed: process.map_or(0, |process| process.unclaimed),
                unplaced: process.map_or(0, |process| process.unplaced),
                placed: false,
            },
            made: None,
            error: None,
            events: vec![],
        }
    }

    fn slots(&self) -> &'a [Slot] {
        self.process.map_or(&[], |process| &process.slots)
    }

    fn actual(&self, index: u32) -> Option<&Actual> {
        match self.over.get(&index) {
            Some(decided) => decided.as_ref(),
            None => self.process.and_then(|process| process.actual(index)),
        }
    }

    fn living(&self) -> Result<&'a Process, Refusal> {
        self.process
            .filter(|process| process.desired.is_some())
            .ok_or_else(|| Refusal::not_found("the process"))
    }

    fn desire(&mut self, lrp: &DesiredLrp) -> Result<(), Refusal> {
        if let Some(process) = self.process.filter(|process| process.desired.is_some()) {
            let why = format!("process {} is desired already", process.guid);
            return Err(Refusal::new(Code::ResourceExists, why));
        }
        if self.process.is_some_and(|old| old.domain != lrp.domain && !old.slots.is_empty()) {
            let why = "instances of an earlier life in another domain are still being stopped";
            return Err(Refusal::new(Code::ResourceConflict, why));
        }
        self.events.push(Event::Desired(desired::Event::Desired(Box::new(lrp.clone()))));
        self.wanted = lrp.instances;
        self.definition_id = Some(lrp.definition_id.clone());
        let leftovers = self.slots().iter().map(|slot| slot.index).collect();
        self.end(&leftovers, Ended::Superseded);
        self.create_missing(Trigger::Desire);
        Ok(())
    }

    fn update(&mut self, update: &DesiredLrpUpdate) -> Result<(), Refusal> {
        let process = self.living()?;
        let Some(difference) = process.desired.as_ref().and_then(|old| old.difference(update)) else {
            return Ok(());
        };
        if let Some(instances) = difference.instances {
            self.wanted = instances;
        }
        self.events.push(Event::Desired(desired::Event::Updated(difference)));
        self.end(&self.extra(), Ended::Scale);
        self.create_missing(Trigger::Scale);
        Ok(())
    }

    /// Whatever of it is left is stopped, also what nobody desires any more, or ever did as far as is remembered.
    fn remove(&mut self) -> Result<(), Refusal> {
        let known = self.process.filter(|process| !process.is_gone());
        let process = known.ok_or_else(|| Refusal::not_found("the process"))?;
        if process.desired.is_some() || process.asked.is_none() {
            self.events.push(Event::Desired(desired::Event::Removed {}));
        }
        self.wanted = 0;
        self.end(&self.extra(), Ended::Removed);
        Ok(())
    }

    fn retire(&mut self, index: u32) -> Result<(), Refusal> {
        let Some(_) = self.actual(index) else {
            return Err(Refusal::not_found(format!("instance {index}")));
        };
        self.end(&[index].into_iter().collect(), Ended::Retired);
        self.create_missing(Trigger::Stop);
        Ok(())
    }

    /// Diego Dev Notes, "Computing ∆s", first half: what has a record and is not desired, and was not asked to stop
    /// yet.
    fn extra(&self) -> Indices {
        let wanted = self.wanted;
        self.slots().iter().map(|slot| slot.index).filter(|index| *index >= wanted).collect()
    }

    /// Diego Dev Notes, "Computing ∆s", second half: what is desired and has no record is created and placed.
    fn create_missing(&mut self, trigger: Trigger) {
        let Some(definition_id) = self.definition_id.clone() else { return };
        let missing: Indices = (0..self.wanted).filter(|index| self.actual(*index).is_none()).collect();
        if !missing.is_empty() {
            self.record(actual::Event::Created { indices: missing, definition_id });
            self.made.get_or_insert(trigger);
        }
    }

    /// Stops what is on a cell, and removes what is not (Diego Dev Notes, "Stopping ActualLRPs").
    fn end(&mut self, indices: &Indices, cause: Ended) {
        let on_cell = |lrp: &Actual| lrp.holder().is_some();
        let stop: Indices = indices
            .iter()
            .filter(|index| self.actual(*index).is_some_and(|lrp| on_cell(lrp) && !lrp.is_stopping()))
            .collect();
        let remove: Indices =
            indices.iter().filter(|index| self.actual(*index).is_some_and(|lrp| !on_cell(lrp))).collect();
        if !stop.is_empty() {
            self.record(actual::Event::StopRequested { indices: stop, cause });
        }
        if !remove.is_empty() {
            self.record(actual::Event::Removed { indices: remove, cause });
        }
    }

    fn report(&mut self, report: &Report) -> Result<(), Refusal> {
        self.check_life(report)?;
        if !(self.context.present)(&report.by.cell_id) {
            let why = format!("cell {} is not present", report.by.cell_id);
            return Err(Refusal::new(Code::CellAbsent, why));
        }
        let slot = self.process.and_then(|process| process.slot(report.index));
        let mut twin = slot.and_then(|slot| slot.evacuating.as_deref()).cloned();
        for step in &report.steps {
            match step {
                ReportStep::Actual(command) => self.report_actual(report, command)?,
                ReportStep::Evacuating(command) => {
                    let actual = self.actual(report.index);
                    self.check_evacuated(report.index, command)?;
                    let event = evacuating::decide(actual, twin.as_ref(), command, &report.by, report.index)?;
                    if let Some(event) = event {
                        twin = evacuating::evolve(&event, self.context.now);
                        self.events.push(Event::Evacuating(event));
                    }
                }
            }
        }
        self.check_judged(report)
    }

    fn is_unwanted(&self, index: u32) -> bool {
        self.process.is_some_and(|process| process.is_unwanted(index))
    }

    /// What nobody wants and has no record is kept for nobody.
    fn check_evacuated(&self, index: u32, command: &evacuating::Command) -> Result<(), Refusal> {
        match command {
            evacuating::Command::Set { .. } if self.is_unwanted(index) && self.actual(index).is_none() => {
                Err(Refusal::new(Code::ActualLrpCannotBeEvacuated, format!("index {index} is not desired")))
            }
            evacuating::Command::Set { .. } | evacuating::Command::Remove => Ok(()),
        }
    }

    /// What a rep reported of an index that nobody wants is recorded, and ends at once.
    fn end_unwanted(&mut self, index: u32) {
        if self.is_unwanted(index) {
            let lives = self.process.is_some_and(|process| process.desired.is_some());
            self.end(&index.into(), if lives { Ended::Scale } else { Ended::Removed });
        }
    }

    /// What a rep asks is about the records as it knew them. What is so already needs no asking.
    fn check_judged(&self, report: &Report) -> Result<(), Refusal> {
        let changed_at = self.process.map_or(Timestamp(0), |process| process.changed_at(report.index));
        if self.events.is_empty() || changed_at <= report.judged {
            return Ok(());
        }
        let why = format!("the records of index {} have changed since the rep judged them", report.index);
        Err(Refusal::new(Code::StaleRecord, why))
    }

    /// Nothing of an earlier life reports into a later one; where nothing is remembered, a running container is believed.
    fn check_life(&self, report: &Report) -> Result<(), Refusal> {
        match self.process {
            // A BBS that was deposed and doesn't know it: what it has not heard of is not over.
            Some(process) if process.epoch < report.epoch => Err(Refusal::behind()),
            Some(process) if process.epoch > report.epoch => {
                let why = format!("process {} was desired anew since that container was made", process.guid);
                Err(Refusal::new(Code::StaleEpoch, why))
            }
            Some(process) if process.domain != report.domain => {
                let why = format!("process {} is in domain {}", process.guid, process.domain);
                Err(Refusal::new(Code::Forbidden, why))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn report_actual(&mut self, report: &Report, command: &actual::Command) -> Result<(), Refusal> {
        let (index, by) = (report.index, report.by.clone());
        match (actual::decide(self.actual(index), command, &by)?, command) {
            (actual::Step::Nothing, _) => {}
            (actual::Step::Claim, actual::Command::Claim { .. }) if self.is_unwanted(index) => {
                let why = format!("index {index} is not desired");
                return Err(Refusal::new(Code::ActualLrpCannotBeClaimed, why));
            }
            (actual::Step::Claim, actual::Command::Claim { placement }) => {
                self.record(actual::Event::Claimed { index, by, placement: placement.clone() });
                self.left.placed = true;
            }
            (actual::Step::Start, actual::Command::Start { net }) => {
                let (net, definition_id) = (net.clone(), report.definition_id.clone());
                self.record(actual::Event::Started { index, by, net, definition_id });
                self.left.placed = true;
                self.end_unwanted(index);
            }
            (actual::Step::Crash, actual::Command::Crash { .. }) if self.is_over(index) => {}
            (actual::Step::Crash, actual::Command::Crash { reason }) => {
                self.crash(report, reason);
                self.end_unwanted(index);
            }
            (actual::Step::Remove(cause), _) => {
                self.record(actual::Event::Removed { indices: index.into(), cause });
                self.create_missing(Trigger::Stop);
            }
            (actual::Step::Unclaim, _) if index < self.wanted => {
                self.unclaim(index, Unclaimed::Evacuation, Trigger::Evacuation);
            }
            // Nobody desires it: there is no definition to place it by.
            (actual::Step::Unclaim, _) => {
                self.record(actual::Event::Removed { indices: index.into(), cause: Ended::Evacuated });
            }
            (actual::Step::Claim | actual::Step::Start | actual::Step::Crash, other) => {
                unreachable!("actual::decide answers {other:?} with its own step")
            }
        }
        Ok(())
    }

    /// Whether the process is known and an index of it has no record and is not desired. A crash there is a report
    /// that comes late or twice. (Where nothing of the process is known, the table writes down what the cell knows.)
    fn is_over(&self, index: u32) -> bool {
        let known = self.process.is_some() || !self.events.is_empty();
        known && index >= self.wanted && self.actual(index).is_none()
    }

    /// The `RepCrashDance` (Diego Dev Notes, "Crashes").
    fn crash(&mut self, report: &Report, reason: &str) {
        let (stored, running_since) = self.actual(report.index).map_or((0, None), |lrp| {
            (lrp.crash_count, matches!(lrp.state, State::Running { .. }).then_some(lrp.since))
        });
        let before = crash::count_before(stored, running_since, self.context.now);
        self.record(actual::Event::Crashed {
            index: report.index,
            by: report.by.clone(),
            reason: limits::cut(reason, limits::REASON_BYTES),
            crash_count: before + 1,
            definition_id: report.definition_id.clone(),
        });
        if crash::restarts_at_once(before) && report.index < self.wanted {
            self.unclaim(report.index, Unclaimed::Crash, Trigger::Crash);
        }
    }

    fn unclaim(&mut self, index: u32, cause: Unclaimed, trigger: Trigger) {
        self.record(actual::Event::Unclaimed { indices: index.into(), cause });
        self.made.get_or_insert(trigger);
    }

    fn fail(&mut self, unplaced: &[Unplaced], explanation: Option<&Explanation>) {
        let mut by_error: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for Unplaced { index, attempt, error } in unplaced {
            let judged = self.actual(*index).filter(|lrp| lrp.since == *attempt);
            let known = judged.and_then(|lrp| match &lrp.state {
                State::Unclaimed { placement_error } => Some(placement_error.as_deref()),
                State::Claimed { .. } | State::Running { .. } | State::Crashed => None,
            });
            let error = limits::cut(error, limits::REASON_BYTES);
            if known.is_some_and(|known| known != Some(error.as_str())) {
                by_error.entry(error).or_default().push(*index);
            }
        }
        // The decision names the cause of the first index.
        let mut by_index: Vec<_> = by_error.into_iter().collect();
        by_index.sort_by_key(|(_, indices)| indices.iter().min().copied());
        for (error, indices) in by_index {
            let explanation = explanation.cloned().map(Box::new);
            let indices = indices.into_iter().collect();
            self.record(actual::Event::PlacementFailed { indices, error: error.clone(), explanation });
            self.error = Some(error);
        }
    }

    /// The five duties of Diego Dev Notes, "Harmonizing DesiredLRPs with ActualLRPs: Convergence", index by index: what
    /// is due first, and with it whatever comes from the same place. The rest is due still, and gets a decision of its
    /// own.
    fn converge(&mut self) {
        let mut first = None;
        let mut comes_along = |origin: Origin| first.get_or_insert_with(|| origin.clone()).is_where(&origin);
        for slot in self.slots() {
            for due in [self.twin_due(slot), self.instance_due(slot)].into_iter().flatten() {
                if comes_along(due.origin(slot)) {
                    self.carry_out(slot, due);
                }
            }
        }
        if first.is_none() {
            self.create_missing(Trigger::Convergence);
            let open = self.process.and_then(Process::open_evaluation);
            if self.left.unclaimed > 0 && open.is_none() {
                self.made.get_or_insert(Trigger::Convergence);
            }
        }
    }

    fn twin_due(&self, slot: &'a Slot) -> Option<Due<'a>> {
        let twin = slot.evacuating.as_ref()?;
        if !(self.context.present)(&twin.by.cell_id) {
            return Some(Due::TwinLost(&twin.by));
        }
        (twin.expires_at <= self.context.now).then_some(Due::TwinExpired)
    }

    fn instance_due(&self, slot: &'a Slot) -> Option<Due<'a>> {
        let lrp = slot.actual.as_ref()?;
        let wanted = slot.index < self.wanted;
        let lost = lrp.holder().filter(|by| !(self.context.present)(&by.cell_id));
        if let Some(by) = lost {
            return Some(Due::Lost { by, restart: wanted && !lrp.is_stopping() });
        }
        let asked_already = lrp.is_stopping();
        if !wanted {
            return (self.context.fresh && !asked_already).then_some(Due::Undesired);
        }
        lrp.restart_at().is_some_and(|due| due <= self.context.now).then_some(Due::Restart)
    }

    fn carry_out(&mut self, slot: &Slot, due: Due<'_>) {
        let index = slot.index;
        let twin_gone = |cause| Event::Evacuating(evacuating::Event::Removed { index, cause });
        match due {
            Due::TwinLost(_) => self.events.push(twin_gone(Gone::CellLost)),
            Due::TwinExpired => self.events.push(twin_gone(Gone::Expired)),
            Due::Lost { restart, .. } => self.reap(index, restart),
            Due::Undesired => self.end(&index.into(), Ended::Undesired),
            Due::Restart => self.unclaim(index, Unclaimed::Restart, Trigger::Restart),
        }
    }

    fn reap(&mut self, index: u32, restart: bool) {
        if restart {
            self.unclaim(index, Unclaimed::CellLost, Trigger::CellLost);
        } else {
            self.record(actual::Event::Removed { indices: index.into(), cause: Ended::CellLost });
            if index < self.wanted {
                self.create_missing(Trigger::CellLost);
            }
        }
    }

    /// Takes an event into the draft, and joins it with the one before if only the index differs.
    fn record(&mut self, event: actual::Event) {
        for index in event.indices().iter() {
            let before = self.actual(index).cloned();
            self.count(before.as_ref(), false);
            let after = actual::evolve(before, &event, self.context.now);
            self.count(after.as_ref(), true);
            self.over.insert(index, after);
        }
        match self.events.last_mut() {
            Some(Event::Actual(last)) => {
                if !join(last, &event) {
                    self.events.push(Event::Actual(event));
                }
            }
            Some(_) | None => self.events.push(Event::Actual(event)),
        }
    }

    fn count(&mut self, lrp: Option<&Actual>, add: bool) {
        let by = |counter: &mut u32, counts: bool| match (counts, add) {
            (true, true) => *counter += 1,
            (true, false) => *counter = counter.saturating_sub(1),
            (false, _) => {}
        };
        by(&mut self.left.unclaimed, lrp.is_some_and(Actual::is_unclaimed));
        by(&mut self.left.unplaced, lrp.is_some_and(Actual::is_unplaced));
    }

    /// The placement error of the first index that has one, if all work that is left has one: what was placed may
    /// have been the last without an answer.
    fn known_error(&self) -> Option<String> {
        if self.left.unplaced < self.left.unclaimed {
            return None;
        }
        let indices = self.slots().iter().map(|slot| slot.index).chain(self.over.keys().copied());
        let error = |index| match &self.actual(index)?.state {
            State::Unclaimed { placement_error } => placement_error.as_deref().map(str::to_owned),
            State::Claimed { .. } | State::Running { .. } | State::Crashed => None,
        };
        indices.filter_map(error).next()
    }

    fn finish(mut self) -> Vec<Event> {
        let open = self.process.and_then(Process::open_evaluation);
        let touched = !self.events.is_empty() || self.made.is_some();
        let pending = open.is_some_and(|open| open.status == evaluation::Status::Pending);
        let error = self.error.take().or_else(|| self.known_error().filter(|_| pending));
        let event = evaluation::decide(open, self.made, self.left, error.as_deref());
        self.events.extend(event.filter(|_| touched).map(Event::Evaluation));
        self.events
    }
}

/// What convergence finds due at one index.
#[derive(Clone, Copy)]
enum Due<'a> {
    /// The cell of its evacuating twin is lost.
    TwinLost(&'a Instance),
    /// The time of its evacuating twin is over.
    TwinExpired,
    /// The cell of its instance is lost.
    Lost {
        /// The container.
        by: &'a Instance,
        /// Whether it shall run elsewhere.
        restart: bool,
    },
    /// Nobody desires it, as far as is known.
    Undesired,
    /// Its wait after a crash is over.
    Restart,
}

impl Due<'_> {
    /// As [`origin`] finds it for the events that come of it.
    fn origin(self, slot: &Slot) -> Origin {
        match self {
            Self::TwinLost(by) | Self::Lost { by, .. } => Origin::Cell(by.cell_id.clone(), Some(slot.cause)),
            Self::TwinExpired | Self::Undesired | Self::Restart => Origin::Decision(slot.cause),
        }
    }
}

/// Joins two events that differ only in their indices. An index appears twice in a decision only in different events.
fn join(last: &mut actual::Event, next: &actual::Event) -> bool {
    use actual::Event as E;
    let merge = |indices: &mut Indices, more: &Indices| {
        *indices = indices.iter().chain(more.iter()).collect();
        true
    };
    match (last, next) {
        (E::Unclaimed { indices, cause }, E::Unclaimed { indices: more, cause: same }) if cause == same => {
            merge(indices, more)
        }
        (E::Removed { indices, cause }, E::Removed { indices: more, cause: same })
        | (E::StopRequested { indices, cause }, E::StopRequested { indices: more, cause: same })
            if cause == same =>
        {
            merge(indices, more)
        }
        (
            E::Created { .. }
            | E::Claimed { .. }
            | E::Started { .. }
            | E::Crashed { .. }
            | E::PlacementFailed { .. }
            | E::Unclaimed { .. }
            | E::StopRequested { .. }
            | E::Removed { .. },
            _,
        ) => false,
    }
}

/// Folds one decision's events into the process. Total: the log is never argued with.
pub fn evolve(process: &mut Process, events: &[Event], stamp: &Stamp) {
    for event in events {
        match event {
            Event::Desired(event) => {
                if let desired::Event::Desired(lrp) = event {
                    process.epoch = Epoch(stamp.at);
                    process.domain = lrp.domain.clone();
                }
                if event.says_how_many() {
                    process.asked = Some(stamp.cause());
                }
                let old = process.desired.take().map(|old| *old);
                process.desired = desired::evolve(old, event).map(Box::new);
            }
            Event::Actual(event) => evolve_actual(process, event, stamp),
            Event::Evacuating(event) => {
                let (evacuating::Event::Set { index, .. } | evacuating::Event::Removed { index, .. }) = event;
                let twin = evacuating::evolve(event, stamp.at).map(Box::new);
                with_slot(process, *index, stamp.cause(), |slot| {
                    slot.evacuating = twin;
                    slot.changed_at = stamp.at;
                });
            }
            Event::Evaluation(event) => {
                evaluation::evolve(&mut process.evaluations, event, stamp);
            }
            Event::Task(_) | Event::Domain(_) | Event::Cell(_) | Event::Cluster(_) => {}
        }
    }
    process.version += 1;
    process.changed_at = stamp.at;
    if let Some(request) = &stamp.request {
        process.requests.remember(request.clone(), process.version);
    }
}

fn evolve_actual(process: &mut Process, event: &actual::Event, stamp: &Stamp) {
    let at = stamp.at;
    if let (actual::Event::Started { definition_id, .. }, Some(desired)) = (event, &mut process.desired)
        && desired.definition(definition_id).is_some()
        && desired.healthy_definition_id.as_ref() != Some(definition_id)
    {
        desired.healthy_definition_id = Some(definition_id.clone());
    }
    if let actual::Event::Created { indices, .. } = event {
        process.slots.reserve_exact(usize::try_from(indices.len()).unwrap_or(0));
    }
    let changes = !matches!(event, actual::Event::PlacementFailed { .. });
    let causes = event.makes_work() || matches!(event, actual::Event::StopRequested { .. });
    for index in event.indices().iter() {
        let (mut unclaimed, mut unplaced) = (0_i64, 0_i64);
        with_slot(process, index, stamp.cause(), |slot| {
            let before = slot.actual.take();
            unclaimed -= i64::from(before.as_ref().is_some_and(Actual::is_unclaimed));
            unplaced -= i64::from(before.as_ref().is_some_and(Actual::is_unplaced));
            slot.actual = actual::evolve(before, event, at);
            slot.changed_at = if changes { at } else { slot.changed_at };
            slot.cause = if causes { stamp.cause() } else { slot.cause };
            unclaimed += i64::from(slot.actual.as_ref().is_some_and(Actual::is_unclaimed));
            unplaced += i64::from(slot.actual.as_ref().is_some_and(Actual::is_unplaced));
        });
        let add = |count: u32, change: i64| u32::try_from(i64::from(count) + change).unwrap_or(0);
        process.unclaimed = add(process.unclaimed, unclaimed);
        process.unplaced = add(process.unplaced, unplaced);
    }
}

/// Changes the slot of an index, makes it if it isn't there, and drops it when nothing is left in it.
fn with_slot(process: &mut Process, index: u32, cause: Cause, change: impl FnOnce(&mut Slot)) {
    let at = match process.slots.binary_search_by_key(&index, |slot| slot.index) {
        Ok(at) => at,
        Err(at) => {
            let changed_at = Timestamp(0);
            process.slots.insert(at, Slot { index, actual: None, evacuating: None, changed_at, cause });
            at
        }
    };
    let slot = &mut process.slots[at];
    change(slot);
    if slot.actual.is_none() && slot.evacuating.is_none() {
        process.slots.remove(at);
    }
}
