//! The process: the aggregate of one DesiredLRP, its ActualLRPs with their evacuating instances, and its
//! evaluations.
//!
//! The invariants of an LRP (one RUNNING instance per index, the delta between desired and actual, one
//! pending evaluation) are invariants of the process, so one decision sees all of it. The process combines
//! the state machines [`desired`], [`actual`], [`evacuating`], [`crash`] and [`evaluation`].
//!
//! This file defines the state, the origin of decisions, and the fold of events. `draft` combines the state
//! machines. `report`, `converge` and `rolling` handle the input of reps, of time and of rollouts. `places`
//! determines the desired slots, and `cells` the cells of a global process.

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

/// State of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub guid: ProcessGuid,
    pub domain: Domain,
    pub epoch: Epoch,
    /// Number of decisions, over all remembered epochs.
    pub version: u64,
    /// Log position of the last decision; 0 before it is in the log.
    pub last_decision: Position,
    /// Time of the last decision.
    pub changed_at: Timestamp,
    /// Time at which a slot last lost its records; 0 if none did as far as is remembered.
    pub emptied_at: Timestamp,
    /// Desired state. `None` if the process is not desired: remaining instances are stopped, or are orphans.
    pub desired: Option<Box<Desired>>,
    /// Current or last rollout. `None` if this epoch had none.
    pub rollout: Option<Box<Rollout>>,
    /// Slots that have a record, in order.
    pub slots: Slots,
    /// Number of UNCLAIMED slots.
    pub unclaimed: u32,
    /// Number of UNCLAIMED slots with a placement error.
    pub unplaced: u32,
    /// CRASHED instances that restart at a known time, sorted by that time.
    pub waits: BTreeSet<(Timestamp, Place)>,
    /// Open evaluations and the most recent ended ones, the newest last.
    pub evaluations: Evaluations,
    /// Most recent requests with their answers.
    pub requests: Requests,
    /// Decision that last set the number of desired instances. `None` if none is remembered, so the instances
    /// are containers that reps reported.
    pub asked: Option<Cause>,
}

/// Records of one slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    pub place: Place,
    /// Record of the instance.
    pub actual: Option<Actual>,
    /// Record of the evacuating instance.
    pub evacuating: Option<Box<Evacuating>>,
    /// Time of the last change of a record, as far as it matters to reps: a placement error does not count.
    pub changed_at: Timestamp,
    /// Version of the process after the last decision that changed the rows of the slot.
    pub version: u64,
    /// Decision that last made work for the slot or asked its instance to stop.
    pub cause: Cause,
}

impl Slot {
    /// Returns the containers of the instance and of the evacuating instance.
    pub fn holders(&self) -> impl Iterator<Item = &Instance> {
        let twin = self.evacuating.iter().map(|twin| &twin.by);
        self.actual.iter().filter_map(Actual::holder).chain(twin)
    }
}

/// Command for a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Desire(Box<DesiredLrp>),
    /// Changes the scale, priority, routes, annotation or policies.
    Update(DesiredLrpUpdate),
    /// Rolls out another definition to every instance. May change everything else, too.
    Deploy {
        /// Other changes.
        update: DesiredLrpUpdate,
        /// Id of the new definition.
        definition_id: DefinitionId,
        definition: Arc<Definition>,
    },
    /// Rolls out a definition that the process has already.
    Activate {
        definition_id: DefinitionId,
    },
    /// Replaces every instance by one with the same definition.
    Restart(Purpose),
    /// Controls the rollout.
    Steer(Steer),
    Remove,
    /// Stops one instance. It starts again if it is still desired.
    Retire {
        index: u32,
        /// Definition of the instance. `None` selects the only instance of the index, or the one of the
        /// active definition.
        definition_id: Option<DefinitionId>,
    },
    /// Runs a program in the container of an instance.
    Enter {
        index: u32,
        /// Definition of the instance, as for [`Command::Retire`].
        definition_id: Option<DefinitionId>,
        /// Program to run.
        exec: Exec,
    },
    /// Stops an instance so that more urgent work has its room. Sent by the auctioneer.
    Evict(Box<Eviction>),
    /// Reports one container. Either all steps are carried out or none. Sent by a rep.
    Report(Report),
    /// Reports instances that could not be placed. Sent by the auctioneer.
    Fail(Outcome),
    /// Reports that the auctioneer did not answer a delivery of an evaluation.
    Unanswered {
        evaluation: EvaluationId,
        /// Number of the delivery.
        delivery: u32,
    },
    /// Retries an evaluation now, at the request of a client.
    Retry(EvaluationId),
    /// Carries out everything that is due: lost cells; missing, extra, crashed or expired instances.
    Converge,
}

/// Reason for replacing every instance by one with the same definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// To restart the instances.
    #[default]
    Restart,
    /// To spread the instances more evenly over the cells.
    Rebalance,
}

impl Purpose {
    /// Returns the purpose as clients write it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::Rebalance => "rebalance",
        }
    }

    /// Returns the reason of the rollout, as shown to users.
    #[must_use]
    pub const fn done(self) -> &'static str {
        match self {
            Self::Restart => "restarted",
            Self::Rebalance => "rebalanced",
        }
    }
}

/// Control of a rollout by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Steer {
    /// No further index takes its turn.
    Pause,
    /// Indices take their turns again.
    Resume,
    /// The process returns to the definition that was healthy when the rollout started.
    RollBack,
}

/// Report of a rep on the records of one slot, decided as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub domain: Domain,
    /// Slot of the container.
    pub place: Place,
    /// Epoch that the container belongs to.
    pub epoch: Epoch,
    pub by: Instance,
    /// Time of the last change of the records that the rep judged (see [`Process::changed_at`]). If they have
    /// changed since, the report is refused, so that a late or duplicated report cannot undo later changes.
    pub judged: Timestamp,
    /// Steps in order. If one is refused, the whole report is refused.
    pub steps: Vec<ReportStep>,
}

/// One step of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportStep {
    /// Concerns the instance.
    Actual(actual::Command),
    /// Concerns the evacuating instance.
    Evacuating(evacuating::Command),
}

/// Instances of one evaluation that an auctioneer could not place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub evaluation: EvaluationId,
    pub unplaced: Vec<Unplaced>,
    /// `true` if the attempts of the evaluation are exhausted because reps refused it too often.
    pub used_up: bool,
    /// Explanation per cell for the last instance that could not be placed.
    pub explanation: Option<Box<Explanation>>,
}

/// Instance that could not be placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unplaced {
    pub place: Place,
    /// `since` of the UNCLAIMED record that was judged. The outcome applies only if the record is unchanged.
    pub attempt: Timestamp,
    /// Placement error, as shown to users.
    pub error: String,
}

/// Other state that a decision depends on.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub now: Timestamp,
    /// `true` if the domain of the process is fresh.
    pub fresh: bool,
    /// Returns `true` if the cell is present.
    pub present: &'a dyn Fn(&CellId) -> bool,
    /// Returns `true` if the cell is known. The log no longer holds the reason for the absence of a forgotten
    /// cell.
    pub known: &'a dyn Fn(&CellId) -> bool,
    /// Calls the visitor for every cell that has an ordinal.
    pub numbered: &'a dyn Fn(Visit<'_>),
}

/// Visitor of a cell, called with the cell's ordinal, id and state.
pub type Visit<'a> = &'a mut dyn FnMut(u32, &CellId, &Cell);

impl Process {
    /// Creates a process without any state besides its name.
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

    /// Returns `true` if the process is not desired and has no instances: only its name and its answers are
    /// remembered.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.desired.is_none() && self.slots.is_empty()
    }

    /// Returns the records of a slot.
    #[must_use]
    pub fn slot(&self, place: &Place) -> Option<&Slot> {
        self.slots.get(place)
    }

    /// Returns the records of every slot at an index. There are several during a rollout, and while one
    /// instance replaces another.
    pub fn slots_at(&self, index: u32) -> impl Iterator<Item = &Slot> + Clone {
        self.slots.at(index)
    }

    /// Returns the records that a request refers to. If the request names no definition and several slots
    /// match, an instance takes precedence over an evacuating one, and the active definition over others
    /// (Updatable LRPs, "Corresponding changes to ActualLRPs").
    #[must_use]
    pub fn find(&self, index: u32, definition_id: Option<&DefinitionId>) -> Option<&Slot> {
        let active = self.desired.as_ref().map(|desired| &desired.active_definition_id);
        let meant = |slot: &&Slot| definition_id.is_none_or(|id| slot.place.definition_id == *id);
        let there = self.slots_at(index).filter(meant);
        there.max_by_key(|slot| (slot.actual.is_some(), Some(&slot.place.definition_id) == active))
    }

    /// Returns the instance of a slot.
    #[must_use]
    pub fn actual(&self, place: &Place) -> Option<&Actual> {
        self.slot(place)?.actual.as_ref()
    }

    /// Returns the instances at an index, each with its slot.
    pub fn actuals_at(&self, index: u32) -> impl Iterator<Item = (&Place, &Actual)> + Clone {
        self.slots_at(index).filter_map(|slot| Some((&slot.place, slot.actual.as_ref()?)))
    }

    /// Returns the containers that stay: they are not stopping, and no rollout is about to replace them. They
    /// count when instances are spread over cells and zones.
    pub fn staying(&self) -> impl Iterator<Item = &Instance> {
        self.staying_of(self.slots.iter())
    }

    /// Returns the containers of an index that stay: see [`Self::staying`].
    pub fn staying_at(&self, index: u32) -> impl Iterator<Item = &Instance> {
        self.staying_of(self.slots_at(index))
    }

    fn staying_of<'a>(&'a self, slots: impl Iterator<Item = &'a Slot>) -> impl Iterator<Item = &'a Instance> {
        let stays = |slot: &&Slot| !self.is_replaced(&slot.place);
        let lrps = slots.filter(stays).filter_map(|slot| slot.actual.as_ref());
        lrps.filter(|lrp| !lrp.is_stopping()).filter_map(Actual::holder)
    }

    /// Returns `true` if the rollout has created an instance that replaces this one and is either UNCLAIMED
    /// or on a cell.
    fn is_replaced(&self, place: &Place) -> bool {
        let rollout = self.rollout.as_deref().and_then(Rollout::under_way);
        let rollout = rollout.filter(|rollout| rollout.in_replacement(place.index).is_some());
        let target = rollout.map(|rollout| &rollout.target).filter(|target| **target != place.definition_id);
        let others = target.and_then(|target| self.actual(&Place::new(place.index, target.clone())));
        others.is_some_and(|new| !new.is_stopping() && (new.is_unclaimed() || new.holder().is_some()))
    }

    /// Returns the time of the last change of a slot's records. A slot without records uses the time at which
    /// any slot of the process last lost its records.
    ///
    /// Decisions about one process never have the same time, so the time identifies a decision. If the slot
    /// has no instance, the changes of the other slots at its index count as well.
    #[must_use]
    pub fn changed_at(&self, place: &Place) -> Timestamp {
        let slot = self.slot(place);
        let own = slot.map_or(self.emptied_at, |slot| slot.changed_at);
        let is_run = slot.is_some_and(|slot| slot.actual.is_some());
        let others = self.slots_at(place.index).filter(|_| !is_run);
        others.map(|other| other.changed_at).fold(own, Timestamp::max)
    }

    /// Returns `true` if an instance is desired at a slot.
    #[must_use]
    pub fn wants(&self, place: &Place) -> bool {
        self.wanted(place.index).has(&place.definition_id)
    }

    /// Returns the definitions that are desired at an index.
    fn wanted(&self, index: u32) -> Wanted<'_> {
        let Some(desired) = self.desired.as_deref() else { return Wanted::default() };
        let evacuates = self.slots_at(index).any(|slot| slot.evacuating.is_some());
        let (rollout, there) = (self.rollout.as_deref(), self.actuals_at(index));
        places::Index { desired, rollout, index, there, evacuates }.wanted()
    }

    /// Returns the origin of a decision about a slot: the cell, if given, or else the last decision that made
    /// work for the slot or asked its instance to stop. A slot without records uses the cause of the last
    /// changed slot at its index. A slot that is not desired falls back to the decision that set the number
    /// of instances.
    fn origin(&self, place: &Place, cell: Option<&CellId>) -> Origin {
        let newest = || self.slots_at(place.index).max_by_key(|slot| slot.changed_at);
        let slot = self.slot(place).or_else(newest);
        let cause = slot.map(|slot| slot.cause).or_else(|| self.asked.filter(|_| !self.wants(place)));
        cell.map_or_else(|| cause.into(), |cell| Origin::Cell(cell.clone(), cause))
    }

    /// Returns the open evaluation with this duty.
    #[must_use]
    pub fn open_evaluation(&self, duty: Duty) -> Option<Evaluation> {
        evaluation::open(self.evaluations.iter(), duty)
    }

    /// Returns the open evaluation of an instance, or `None` if the instance waits for nothing.
    #[must_use]
    pub fn evaluation_of(&self, lrp: &Actual) -> Option<Evaluation> {
        self.open_evaluation(lrp.duty()?)
    }

    /// Returns the next time at which convergence has something to do, apart from changes of cells and of
    /// freshness.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        let of_slots = self.slots.iter().filter_map(|slot| self.due_of(slot));
        of_slots.chain(self.rollout_due()).min()
    }

    /// Returns the next time at which convergence has something to do for one slot.
    #[must_use]
    pub fn due_of(&self, slot: &Slot) -> Option<Timestamp> {
        let wanted = slot.actual.as_ref().filter(|_| self.wants(&slot.place));
        let restart = wanted.and_then(|lrp| self.restart_at(&slot.place, lrp));
        let expiry = slot.evacuating.as_ref().map(|twin| twin.expires_at);
        let proof = wanted.and_then(|lrp| self.proven_at(&slot.place, lrp));
        restart.into_iter().chain(expiry).chain(proof).min()
    }

    /// Returns the time at which a CRASHED instance restarts. A rollout never gives up an instance that it
    /// starts (Updatable LRPs, "Failing new LRP definition"): if the restart policy declined the restart, the
    /// crash policy decides, with at most its longest wait.
    fn restart_at(&self, place: &Place, lrp: &Actual) -> Option<Timestamp> {
        lrp.restart_at().or_else(|| {
            let starts = self.rollout.as_deref().is_some_and(|rollout| rollout.starts(place));
            let declined = lrp.declined().filter(|_| starts);
            declined
                .map(|_| crash::due(lrp.crash_count, lrp.since).unwrap_or(lrp.since + crash::LONGEST_WAIT))
        })
    }

    /// Returns the time at which an instance survives its monitor. `None` if its definition is already known
    /// to work.
    fn proven_at(&self, place: &Place, lrp: &Actual) -> Option<Timestamp> {
        let desired = self.desired.as_deref()?;
        let open = desired.active_definition_id == place.definition_id
            && desired.healthy_definition_id.as_ref() != Some(&place.definition_id);
        let monitor = monitor(desired, self.rollout.as_deref());
        (open && lrp.runs_on()).then(|| lrp.since + monitor)
    }

    /// Returns the next time at which the rollout advances because of the time alone.
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

/// Decides which events a command causes. The list is empty if the state is already as requested.
///
/// # Errors
/// The refusal of the state machine that rejected the command, or `ResourceExists`, `ResourceNotFound`,
/// `StaleEpoch`, `StaleRecord`, `CellAbsent`, or `Unavailable` if a report belongs to a later epoch.
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

/// Returns the origin of a decision, given the state before it. A decision about several indices has the
/// origin of the first instance among its events. Convergence makes one decision for each origin.
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
        // The caller replaces this by the cause of the work that gets the room.
        | Command::Evict(_)
        | Command::Retry(_) => Origin::Beginning,
        Command::Unanswered { evaluation, .. } => {
            let mut known = process.into_iter().flat_map(|process| process.evaluations.iter());
            known.find(|one| one.id == *evaluation).map(|one| one.cause()).into()
        }
        Command::Report(_) | Command::Fail(_) | Command::Converge => {
            // If an evacuating instance is lost or expires, the origin is that loss, or the decision that
            // made or moved the evacuating instance. The same origin covers the instances that replace it,
            // regardless of others at their index.
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

/// Applies the events of one decision to the process, and returns the containers that ended with it. Never
/// fails, because events in the log are facts.
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

/// Returns the time that an instance has to be RUNNING before it counts as healthy. The policy of the current
/// rollout decides, if there is one.
fn monitor(desired: &Desired, rollout: Option<&Rollout>) -> Duration {
    rollout
        .and_then(Rollout::under_way)
        .map_or_else(|| desired.policies.update.monitor(), |rollout| rollout.policy.monitor())
}

/// Applies a change of the desired state. The rollout ends with the epoch, follows changes of scale and
/// cells, and keeps the definition that its rollback needs.
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

/// Returns the fate of work that an evaluation covered.
fn moved_to(duty: Duty, after: Option<&Actual>) -> Moved {
    match (duty, after) {
        // Work that waited for its restart does not count as placed if it runs.
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

/// Changes the record of a slot. Creates the record if it is missing, and removes it if it is empty
/// afterwards.
fn with_slot(process: &mut Process, place: &Place, stamp: &Stamp, change: impl FnOnce(&mut Slot)) {
    let (actual, evacuating, changed_at, cause) = (None, None, Timestamp(0), stamp.cause());
    let make = || Slot { place: place.clone(), actual, evacuating, changed_at, version: 0, cause };
    if !process.slots.change(place, make, change) {
        process.emptied_at = stamp.at;
    }
}
