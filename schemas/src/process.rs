//! The process: the aggregate of one DesiredLRP, its ActualLRPs with their evacuating twins, and its evaluations.
//!
//! What the seeds promise of an LRP (one RUNNING per index, the delta between desired and actual, one pending
//! evaluation) are promises of the process, so one decision sees all of it. The machines inside are [`desired`],
//! [`actual`], [`evacuating`], [`crash`] and [`evaluation`]; this file says what a process is, where its
//! decisions come from and how they are folded. `draft` puts the machines together, `report`, `converge` and `rolling` are
//! what reps, time and rollouts ask, `places` says which places are desired, and `cells` on which cells a global process runs.

mod cells;
mod converge;
mod draft;
mod places;
mod report;
mod rolling;
mod slots;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::actual::{self, Actual, Ended, Unclaimed};
use crate::cause::{Cause, Origin};
use crate::cell::Cell;
use crate::container::{Epoch, Instance};
use crate::crash;
use crate::definition::{Definition, DesiredLrp, DesiredLrpUpdate};
use crate::desired::{self, Desired};
use crate::ended::{self, EndedInstance, Life};
use crate::entry::{Event, Stamp};
use crate::evacuating::{self, Evacuating, Gone};
use crate::evaluation::{self, Duty, Evaluation, Evaluations, Moved};
use crate::exec::Exec;
use crate::indices::Indices;
use crate::key::Place;
use crate::names::{CellId, DefinitionId, Domain, EvaluationId, ProcessGuid};
use crate::placement::Explanation;
use crate::preemption::Eviction;
use crate::refusal::Refusal;
use crate::request::Requests;
use crate::rollout::{self, Rollout, Seen};
use crate::subject::Position;

pub use self::slots::Slots;

use self::draft::Draft;
use self::places::Wanted;

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
    /// Where the last decision stands in the log; 0: nowhere yet.
    pub last_decision: Position,
    /// When the last decision was made.
    pub changed_at: Timestamp,
    /// When a place last lost its records; 0: none did in what is remembered.
    pub emptied_at: Timestamp,
    /// What is desired; none: nobody desires it, and what is left is to be stopped or is an orphan.
    pub desired: Option<Box<Desired>>,
    /// The rollout that is under way, or the last one; none: there was none in this life.
    pub rollout: Option<Box<Rollout>>,
    /// Every place that has a record, in order.
    pub slots: Slots,
    /// How many slots are UNCLAIMED.
    pub unclaimed: u32,
    /// How many of those carry a placement error.
    pub unplaced: u32,
    /// The CRASHED instances whose wait ends by itself, by when it does.
    pub waits: BTreeSet<(Timestamp, Place)>,
    /// The open evaluations and the newest that ended, the newest last.
    pub evaluations: Evaluations,
    /// The newest requests and their answers.
    pub requests: Requests,
    /// The decision by which somebody last said how many instances shall run. None: nobody did, or that is forgotten,
    /// and what is here are containers that reps reported.
    pub asked: Option<Cause>,
}

/// The records of one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// Which.
    pub place: Place,
    /// The instance.
    pub actual: Option<Actual>,
    /// Its evacuating twin.
    pub evacuating: Option<Box<Evacuating>>,
    /// When one of the two last changed; that an instance could not be placed changes nothing for a rep.
    pub changed_at: Timestamp,
    /// Version of the process by the last decision that changed what rows show of the two.
    pub version: u64,
    /// The decision that last made work for the place, or asked its instance to stop.
    pub cause: Cause,
}

impl Slot {
    /// The containers that its instance and its evacuating twin are in.
    pub fn holders(&self) -> impl Iterator<Item = &Instance> {
        let twin = self.evacuating.iter().map(|twin| &twin.by);
        self.actual.iter().filter_map(Actual::holder).chain(twin)
    }
}

/// What can be asked of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A client desires it.
    Desire(Box<DesiredLrp>),
    /// A client changes its scale, priority, routes, annotation or policies.
    Update(DesiredLrpUpdate),
    /// A client wants every instance to run another definition, and may change the rest, too.
    Deploy {
        /// What else changes.
        update: DesiredLrpUpdate,
        /// The definition's id.
        definition_id: DefinitionId,
        /// What each instance runs.
        definition: Arc<Definition>,
    },
    /// A client wants every instance to run a definition that is there.
    Activate {
        /// Which.
        definition_id: DefinitionId,
    },
    /// A client wants every instance to be replaced by one that runs the same.
    Restart(Purpose),
    /// A client steers the rollout.
    Steer(Steer),
    /// A client no longer desires it.
    Remove,
    /// A client stops one instance; if it is still desired it starts again.
    Retire {
        /// Which.
        index: u32,
        /// Which of those that are there; none: the only one, or the one of the active definition.
        definition_id: Option<DefinitionId>,
    },
    /// A client has a program run in the container of an instance.
    Enter {
        /// Which.
        index: u32,
        /// Which of those that are there; none: the only one, or the one of the active definition.
        definition_id: Option<DefinitionId>,
        /// What is run.
        exec: Exec,
    },
    /// The auctioneer wants an instance stopped, so that something more urgent has room.
    Evict(Box<Eviction>),
    /// A rep reports one container: all steps or none.
    Report(Report),
    /// The auctioneer could not place some.
    Fail(Outcome),
    /// The auctioneer didn't answer a delivery of an evaluation.
    Unanswered {
        /// Which.
        evaluation: EvaluationId,
        /// The how manieth delivery.
        delivery: u32,
    },
    /// A client wants an evaluation tried again now.
    Retry(EvaluationId),
    /// The BBS looks whether something is due: lost cells, missing, extra, crashed, expired.
    Converge,
}

/// Why every instance is replaced by one that runs the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// They shall begin anew.
    #[default]
    Restart,
    /// They shall be spread more evenly over the cells.
    Rebalance,
}

impl Purpose {
    /// It in a word, as clients write it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::Rebalance => "rebalance",
        }
    }

    /// What is said of a process for which it was done.
    #[must_use]
    pub const fn done(self) -> &'static str {
        match self {
            Self::Restart => "restarted",
            Self::Rebalance => "rebalanced",
        }
    }
}

/// What clients ask of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Steer {
    /// No index shall take its turn any more.
    Pause,
    /// Indices shall take their turns again.
    Resume,
    /// Everything shall go back to the definition that was healthy when the rollout began.
    RollBack,
}

/// What a rep asks of the records of one place, in one decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The domain of the container.
    pub domain: Domain,
    /// The place of the container.
    pub place: Place,
    /// The life of the guid that the container belongs to.
    pub epoch: Epoch,
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

/// What an auctioneer could not place of one evaluation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Which.
    pub evaluation: EvaluationId,
    /// What could not be placed.
    pub unplaced: Vec<Unplaced>,
    /// Whether that is the end of its attempts: reps refused it too often.
    pub used_up: bool,
    /// Why, cell by cell, of the last one.
    pub explanation: Option<Box<Explanation>>,
}

/// An instance that could not be placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unplaced {
    /// Which.
    pub place: Place,
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
    /// Whether anything is known of a cell: what was forgotten doesn't say any more why it is gone.
    pub known: &'a dyn Fn(&CellId) -> bool,
    /// Shows every cell that has an ordinal.
    pub numbered: &'a dyn Fn(Visit<'_>),
}

/// Sees a cell, behind its ordinal and its id.
pub type Visit<'a> = &'a mut dyn FnMut(u32, &CellId, &Cell);

impl Process {
    /// A process of which nothing is known but its name.
    #[must_use]
    pub fn new(guid: ProcessGuid, domain: Domain, epoch: Epoch) -> Self {
        Self {
            guid,
            domain,
            epoch,
            version: 0,
            last_decision: Position(0),
            changed_at: Timestamp(0),
            emptied_at: Timestamp(0),
            desired: None,
            rollout: None,
            slots: Slots::new(),
            unclaimed: 0,
            unplaced: 0,
            waits: BTreeSet::new(),
            evaluations: Evaluations::default(),
            requests: Requests::default(),
            asked: None,
        }
    }

    /// Whether nobody desires it and nothing of it is left: only its name and its answers are remembered.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.desired.is_none() && self.slots.is_empty()
    }

    /// The records of a place.
    #[must_use]
    pub fn slot(&self, place: &Place) -> Option<&Slot> {
        self.slots.get(place)
    }

    /// The records of every place at an index: more than one during a rollout, and while one takes another's place.
    pub fn slots_at(&self, index: u32) -> impl Iterator<Item = &Slot> + Clone {
        self.slots.at(index)
    }

    /// The records that are meant: where a request leaves the definition open and there are several, the active one's
    /// (Updatable LRPs, "Corresponding changes to ActualLRPs"); an instance before what only evacuates.
    #[must_use]
    pub fn find(&self, index: u32, definition_id: Option<&DefinitionId>) -> Option<&Slot> {
        let active = self.desired.as_ref().map(|desired| &desired.active_definition_id);
        let meant = |slot: &&Slot| definition_id.is_none_or(|id| slot.place.definition_id == *id);
        let there = self.slots_at(index).filter(meant);
        there.max_by_key(|slot| (slot.actual.is_some(), Some(&slot.place.definition_id) == active))
    }

    /// The instance at a place.
    #[must_use]
    pub fn actual(&self, place: &Place) -> Option<&Actual> {
        self.slot(place)?.actual.as_ref()
    }

    /// The instances at an index, each with its place.
    pub fn actuals_at(&self, index: u32) -> impl Iterator<Item = (&Place, &Actual)> + Clone {
        self.slots_at(index).filter_map(|slot| Some((&slot.place, slot.actual.as_ref()?)))
    }

    /// The containers that stay: nobody asked them to stop, and none is what a rollout is about to replace. So many of a
    /// cell or zone are in the way of another instance there.
    pub fn staying(&self) -> impl Iterator<Item = &Instance> {
        self.staying_of(self.slots.iter())
    }

    /// The containers of an index that stay: see [`Self::staying`].
    pub fn staying_at(&self, index: u32) -> impl Iterator<Item = &Instance> {
        self.staying_of(self.slots_at(index))
    }

    fn staying_of<'a>(&'a self, slots: impl Iterator<Item = &'a Slot>) -> impl Iterator<Item = &'a Instance> {
        let stays = |slot: &&Slot| !self.is_replaced(&slot.place);
        let lrps = slots.filter(stays).filter_map(|slot| slot.actual.as_ref());
        lrps.filter(|lrp| !lrp.is_stopping()).filter_map(Actual::holder)
    }

    /// Whether the rollout has an instance for the place of this one: it is to be placed, or on a cell.
    fn is_replaced(&self, place: &Place) -> bool {
        let rollout = self.rollout.as_deref().and_then(Rollout::under_way);
        let rollout = rollout.filter(|rollout| rollout.in_replacement(place.index).is_some());
        let target = rollout.map(|rollout| &rollout.target).filter(|target| **target != place.definition_id);
        let others = target.and_then(|target| self.actual(&Place::new(place.index, target.clone())));
        others.is_some_and(|new| !new.is_stopping() && (new.is_unclaimed() || new.holder().is_some()))
    }

    /// When the records of a place last changed; where there are none, when any place of the process last lost its own.
    /// Decisions on one subject are never at the same time, so this names one. Where there is no instance, the one that
    /// runs another definition in its place counts too.
    #[must_use]
    pub fn changed_at(&self, place: &Place) -> Timestamp {
        let slot = self.slot(place);
        let own = slot.map_or(self.emptied_at, |slot| slot.changed_at);
        let is_run = slot.is_some_and(|slot| slot.actual.is_some());
        let others = self.slots_at(place.index).filter(|_| !is_run);
        others.map(|other| other.changed_at).fold(own, Timestamp::max)
    }

    /// Whether an instance is desired at a place.
    #[must_use]
    pub fn wants(&self, place: &Place) -> bool {
        self.wanted(place.index).has(&place.definition_id)
    }

    /// The definitions that an index is to run.
    fn wanted(&self, index: u32) -> Wanted<'_> {
        let Some(desired) = self.desired.as_deref() else { return Wanted::default() };
        let evacuates = self.slots_at(index).any(|slot| slot.evacuating.is_some());
        let (rollout, there) = (self.rollout.as_deref(), self.actuals_at(index));
        places::Index { desired, rollout, index, there, evacuates }.wanted()
    }

    /// Where a decision about a place comes from: from a cell, if it is for what happened to that; else from the last
    /// decision that made work for the place or asked its instance to stop. A place without records has that from
    /// another at its index, and one that nobody wants from whoever said how many instances shall run.
    fn origin(&self, place: &Place, cell: Option<&CellId>) -> Origin {
        let newest = || self.slots_at(place.index).max_by_key(|slot| slot.changed_at);
        let slot = self.slot(place).or_else(newest);
        let cause = slot.map(|slot| slot.cause).or_else(|| self.asked.filter(|_| !self.wants(place)));
        cell.map_or_else(|| cause.into(), |cell| Origin::Cell(cell.clone(), cause))
    }

    /// The open evaluation that stands for something.
    #[must_use]
    pub fn open_evaluation(&self, duty: Duty) -> Option<Evaluation> {
        evaluation::open(self.evaluations.iter(), duty)
    }

    /// The open evaluation that stands for an instance; none: it waits for nothing.
    #[must_use]
    pub fn evaluation_of(&self, lrp: &Actual) -> Option<Evaluation> {
        self.open_evaluation(lrp.duty()?)
    }

    /// The moment at which convergence next has something to do here, cells and freshness aside.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        let of_slots = self.slots.iter().filter_map(|slot| self.due_of(slot));
        of_slots.chain(self.rollout_due()).min()
    }

    /// The moment at which it has something to do with one place.
    #[must_use]
    pub fn due_of(&self, slot: &Slot) -> Option<Timestamp> {
        let wanted = slot.actual.as_ref().filter(|_| self.wants(&slot.place));
        let restart = wanted.and_then(|lrp| self.restart_at(&slot.place, lrp));
        let expiry = slot.evacuating.as_ref().map(|twin| twin.expires_at);
        let proof = wanted.and_then(|lrp| self.proven_at(&slot.place, lrp));
        restart.into_iter().chain(expiry).chain(proof).min()
    }

    /// When a CRASHED instance is to be restarted. What a rollout starts is never given up (Updatable LRPs, "Failing new LRP
    /// definition"): if its policy had declined to restart it, it waits as the crash policy says at most.
    fn restart_at(&self, place: &Place, lrp: &Actual) -> Option<Timestamp> {
        lrp.restart_at().or_else(|| {
            let starts = self.rollout.as_deref().is_some_and(|rollout| rollout.starts(place));
            let declined = lrp.declined().filter(|_| starts);
            declined
                .map(|_| crash::due(lrp.crash_count, lrp.since).unwrap_or(lrp.since + crash::LONGEST_WAIT))
        })
    }

    /// When an instance of a definition that is not known to work will have survived its monitor.
    fn proven_at(&self, place: &Place, lrp: &Actual) -> Option<Timestamp> {
        let desired = self.desired.as_deref()?;
        let open = desired.active_definition_id == place.definition_id
            && desired.healthy_definition_id.as_ref() != Some(&place.definition_id);
        let monitor = monitor(desired, self.rollout.as_deref());
        (open && lrp.runs_on()).then(|| lrp.since + monitor)
    }

    /// When time alone makes something follow from the rollout.
    #[must_use]
    pub fn rollout_due(&self) -> Option<Timestamp> {
        let rollout = self.rollout.as_deref()?.under_way()?;
        let desired = self.desired.as_deref()?;
        let see = |index| Seen::of(&rollout.target, self.actuals_at(index));
        let healthy = desired.healthy_definition_id.as_ref();
        let mut due = rollout.due(healthy, see);
        due.sort_unstable();
        due.into_iter().find(|at| rolling::next(rollout, desired, *at, see).is_some())
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
        Command::Deploy { update, definition_id, definition } => {
            draft.deploy(update, definition_id, definition)?;
        }
        Command::Activate { definition_id } => draft.activate(definition_id)?,
        Command::Restart(purpose) => draft.restart_all(*purpose)?,
        Command::Steer(steer) => draft.steer(*steer)?,
        Command::Remove => draft.remove()?,
        Command::Retire { index, definition_id } => draft.retire(*index, definition_id.as_ref())?,
        Command::Enter { index, definition_id, exec } => {
            draft.enter(*index, definition_id.as_ref(), exec)?;
        }
        Command::Evict(eviction) => draft.evict(eviction)?,
        Command::Report(report) => draft.report(report)?,
        Command::Fail(outcome) => draft.fail(outcome)?,
        Command::Unanswered { evaluation, delivery } => return draft.unanswered(*evaluation, *delivery),
        Command::Retry(evaluation) => return draft.retry(*evaluation),
        Command::Converge => draft.converge(),
    }
    Ok(draft.finish())
}

/// Where a decision comes from, told from what was true before it. One about several indices comes from where the first
/// of them does about whose instance it speaks; convergence decides apart what comes from different places.
#[must_use]
pub fn origin(process: Option<&Process>, command: &Command, events: &[Event]) -> Origin {
    match command {
        Command::Desire(_)
        | Command::Update(_)
        | Command::Deploy { .. }
        | Command::Activate { .. }
        | Command::Restart(_)
        | Command::Steer(_)
        | Command::Remove
        | Command::Retire { .. }
        | Command::Enter { .. }
        // Whose room it is to be says where it comes from.
        | Command::Evict(_)
        | Command::Retry(_) => Origin::Beginning,
        Command::Unanswered { evaluation, .. } => {
            let mut known = process.into_iter().flat_map(|process| process.evaluations.iter());
            known.find(|one| one.id == *evaluation).map(|one| one.cause()).into()
        }
        Command::Report(_) | Command::Fail(_) | Command::Converge => {
            // What a twin leaves behind that is lost, or whose time is over, comes of what made or moved that twin, or of
            // the loss: and so do instances that take its place, whatever else is at their index.
            let is_origin = |event: &&Event| {
                matches!(
                    event,
                    Event::Rollout(_)
                        | Event::Desired(_)
                        | Event::Evacuating(evacuating::Event::Removed {
                            cause: Gone::CellLost | Gone::Expired,
                            ..
                        })
                )
            };
            let first = events.first().filter(is_origin);
            let of_instance = || events.iter().find(|event| matches!(event, Event::Actual(_)));
            let event = first.or_else(of_instance).or_else(|| events.first());
            process.zip(event).map_or(Origin::Beginning, |(process, event)| origin_of(process, event))
        }
    }
}

fn origin_of(process: &Process, event: &Event) -> Origin {
    match event {
        Event::Actual(event) => {
            let Some(place) = event.places().iter().next() else { return Origin::Beginning };
            let by_cell = match event {
                actual::Event::Unclaimed { cause: Unclaimed::CellLost | Unclaimed::Evacuation, .. }
                | actual::Event::Removed { cause: Ended::CellLost, .. } => true,
                actual::Event::Unclaimed { cause: Unclaimed::Crash | Unclaimed::Restart, .. }
                | actual::Event::Removed { .. }
                | actual::Event::Created { .. }
                | actual::Event::Claimed { .. }
                | actual::Event::Started { .. }
                | actual::Event::Crashed { .. }
                | actual::Event::Entered { .. }
                | actual::Event::PlacementFailed { .. }
                | actual::Event::StopRequested { .. } => false,
            };
            let holder = process.actual(&place).and_then(Actual::holder).filter(|_| by_cell);
            process.origin(&place, holder.map(|by| &by.cell_id))
        }
        Event::Evacuating(evacuating::Event::Set { place, by, .. }) => {
            process.origin(place, Some(&by.cell_id))
        }
        Event::Evacuating(evacuating::Event::Removed { place, cause }) => {
            let twin = process.slot(place).and_then(|slot| slot.evacuating.as_ref());
            let lost = twin.filter(|_| *cause == Gone::CellLost);
            process.origin(place, lost.map(|twin| &twin.by.cell_id))
        }
        Event::Desired(desired::Event::CellsChanged { cells, left }) => {
            let of = |index| process.desired.as_ref().and_then(|desired| desired.only_cell(index));
            let joined = cells.first().map(|(_, cell)| &cell.cell_id);
            let cell = joined.or_else(|| of(left.iter().next()?));
            cell.cloned().map_or(Origin::Beginning, Origin::News)
        }
        Event::Rollout(_)
        | Event::Desired(desired::Event::HealthyChanged { .. } | desired::Event::Pruned { .. }) => {
            process.rollout.as_ref().and_then(|rollout| rollout.cause).or(process.asked).into()
        }
        Event::Desired(
            desired::Event::Desired(_)
            | desired::Event::Updated(_)
            | desired::Event::DefinitionAdded { .. }
            | desired::Event::Activated { .. }
            | desired::Event::Removed {},
        )
        | Event::Evaluation(_)
        | Event::Task(_)
        | Event::Periodic(_)
        | Event::Parameterised(_)
        | Event::Domain(_)
        | Event::Cell(_)
        | Event::Cluster(_) => Origin::Beginning,
    }
}

/// Folds one decision's events into the process, and says which containers ended with it. Total: the log is never argued
/// with.
pub fn evolve(process: &mut Process, events: &[Event], stamp: &Stamp) -> Vec<EndedInstance> {
    let mut ended = vec![];
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
                let (desired, rollout) = (process.desired.take(), process.rollout.take());
                let (desired, rollout) =
                    evolve_desired(desired.map(|old| *old), rollout.map(|old| *old), event);
                process.desired = desired.map(Box::new);
                process.rollout = rollout.map(Box::new);
            }
            Event::Rollout(event) => {
                let old = process.rollout.take().map(|old| *old);
                let mut new = rollout::evolve(old, event, stamp.at);
                if let (rollout::Event::Started { .. }, Some(new)) = (event, &mut new) {
                    new.cause = Some(stamp.cause());
                }
                process.rollout = new.map(Box::new);
            }
            Event::Actual(event) => evolve_actual(process, event, stamp, &mut ended),
            Event::Evacuating(event) => evolve_evacuating(process, event, stamp, &mut ended),
            Event::Evaluation(event) => {
                process.evaluations.change(|all| evaluation::evolve(all, event, stamp));
            }
            Event::Task(_)
            | Event::Periodic(_)
            | Event::Parameterised(_)
            | Event::Domain(_)
            | Event::Cell(_)
            | Event::Cluster(_) => {}
        }
    }
    process.version += 1;
    process.changed_at = stamp.at;
    if let Some(request) = &stamp.request {
        process.requests.remember(request.clone(), process.version);
    }
    ended::settled(process, ended)
}

/// How long an instance has to be RUNNING before it counts as healthy: as the rollout says that brings it.
fn monitor(desired: &Desired, rollout: Option<&Rollout>) -> Duration {
    rollout
        .and_then(Rollout::under_way)
        .map_or_else(|| desired.policies.update.monitor(), |rollout| rollout.policy.monitor())
}

/// Folds a change of the desired side. The rollout ends with the life, follows its scale and its cells, and keeps the
/// definition that its rollback needs.
#[must_use]
pub fn evolve_desired(
    desired: Option<Desired>,
    rollout: Option<Rollout>,
    event: &desired::Event,
) -> (Option<Desired>, Option<Rollout>) {
    let Some(mut rollout) = rollout else { return (desired::evolve(desired, event), None) };
    match event {
        desired::Event::Desired(_) | desired::Event::Removed {} => (desired::evolve(desired, event), None),
        desired::Event::Updated(_) | desired::Event::CellsChanged { .. } => {
            let rolling = |desired: &Desired| desired.rolling_indices().collect::<Indices>();
            let before = desired.as_ref().map(rolling).unwrap_or_default();
            let desired = desired::evolve(desired, event);
            rollout.resize(&before, &desired.as_ref().map(rolling).unwrap_or_default());
            (desired, Some(rollout))
        }
        desired::Event::Pruned { definition_ids } => {
            if let Some(desired) = &desired {
                rollout.keep_pruned(desired, definition_ids);
            }
            (desired::evolve(desired, event), Some(rollout))
        }
        desired::Event::DefinitionAdded { .. }
        | desired::Event::Activated { .. }
        | desired::Event::HealthyChanged { .. } => (desired::evolve(desired, event), Some(rollout)),
    }
}

fn evolve_actual(
    process: &mut Process,
    event: &actual::Event,
    stamp: &Stamp,
    ended: &mut Vec<EndedInstance>,
) {
    let (at, version, life) = (stamp.at, process.version + 1, Life::of(process, stamp.at));
    if let actual::Event::Created { places } = event {
        process.slots.reserve(usize::try_from(places.indices.len()).unwrap_or(0));
    }
    let shows = !matches!(event, actual::Event::Entered { .. });
    let changes = shows && !matches!(event, actual::Event::PlacementFailed { .. });
    let causes = event.makes_work() || matches!(event, actual::Event::StopRequested { .. });
    for place in event.places().iter() {
        let (mut unclaimed, mut unplaced) = (0_i64, 0_i64);
        let (mut waited, mut waits, mut moved) = (None, None, None);
        with_slot(process, &place, stamp, |slot| {
            let held = ended::held(slot);
            let before = slot.actual.take();
            let duty = before.as_ref().and_then(Actual::duty);
            unclaimed -= i64::from(before.as_ref().is_some_and(Actual::is_unclaimed));
            unplaced -= i64::from(before.as_ref().is_some_and(Actual::is_unplaced));
            waited = before.as_ref().and_then(Actual::waits_until);
            slot.actual = actual::evolve(before, event, at);
            waits = slot.actual.as_ref().and_then(Actual::waits_until);
            moved = duty.map(|duty| (duty, moved_to(duty, slot.actual.as_ref())));
            slot.changed_at = if changes { at } else { slot.changed_at };
            slot.version = if shows { version } else { slot.version };
            slot.cause = if causes { stamp.cause() } else { slot.cause };
            unclaimed += i64::from(slot.actual.as_ref().is_some_and(Actual::is_unclaimed));
            unplaced += i64::from(slot.actual.as_ref().is_some_and(Actual::is_unplaced));
            ended.extend(ended::by_instance(held, slot, event, &life));
        });
        if let Some((duty, moved)) = moved {
            process.evaluations.change(|all| evaluation::count(all, duty, moved));
        }
        if let Some(at) = waited {
            process.waits.remove(&(at, place.clone()));
        }
        process.waits.extend(waits.map(|at| (at, place.clone())));
        let add = |count: u32, change: i64| u32::try_from(i64::from(count) + change).unwrap_or(0);
        process.unclaimed = add(process.unclaimed, unclaimed);
        process.unplaced = add(process.unplaced, unplaced);
    }
}

/// What became of work that an evaluation stood for.
fn moved_to(duty: Duty, after: Option<&Actual>) -> Moved {
    match (duty, after) {
        // What was to restart later runs by itself, if it runs.
        (Duty::Place | Duty::Unblock, Some(lrp)) if lrp.holder().is_some() => Moved::Placed,
        (Duty::Place, Some(lrp)) if lrp.is_unplaced() => Moved::Queued,
        (Duty::Place | Duty::Unblock | Duty::Restart, _) => Moved::Elsewhere,
    }
}

fn evolve_evacuating(
    process: &mut Process,
    event: &evacuating::Event,
    stamp: &Stamp,
    ended: &mut Vec<EndedInstance>,
) {
    let (at, version, life) = (stamp.at, process.version + 1, Life::of(process, stamp.at));
    let (evacuating::Event::Set { place, .. } | evacuating::Event::Removed { place, .. }) = event;
    let mut twin = evacuating::evolve(event, at).map(Box::new);
    with_slot(process, place, stamp, |slot| {
        let held = ended::held(slot);
        if let Some(twin) = &mut twin {
            twin.started_at = ended::started_at(&held, &twin.by).unwrap_or(at);
        }
        slot.evacuating = twin;
        slot.changed_at = at;
        slot.version = version;
        ended.extend(ended::by_twin(held, slot, event, &life));
    });
}

/// Changes the slot of a place, makes it if it isn't there, and drops it when nothing is left in it.
fn with_slot(process: &mut Process, place: &Place, stamp: &Stamp, change: impl FnOnce(&mut Slot)) {
    let (actual, evacuating, changed_at, cause) = (None, None, Timestamp(0), stamp.cause());
    let make = || Slot { place: place.clone(), actual, evacuating, changed_at, version: 0, cause };
    if !process.slots.change(place, make, change) {
        process.emptied_at = stamp.at;
    }
}
