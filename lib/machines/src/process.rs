//! The process: the aggregate of one DesiredLRP, its ActualLRPs with their evacuating instances, and its
//! evaluations.
//!
//! The process enforces the invariants of an LRP: one RUNNING instance per index, the delta between desired
//! and actual, and one pending evaluation. So each decision (one accepted command with its events) sees the
//! state of the whole process. The process combines the state machines [`desired`], [`actual`],
//! [`evacuating`], [`crash`] and [`evaluation`].
//!
//! This file defines the state of a process, the origin of each decision, and the effect of events on the
//! state. `draft` combines the state machines. `report` handles the reports of reps and auctioneers.
//! `converge` carries out due actions. `rolling` handles rollouts. `places` determines the desired slots.
//! `cells` determines the cells of a global process.

mod cells;
mod converge;
mod draft;
mod ended;
mod places;
mod report;
mod rolling;
mod slots;

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cell::Cell;
use crate::crash;
use crate::ended::EndedInstance;
use crate::request::Requests;

use self::draft::Draft;
use self::ended::ProcessEpoch;
use self::places::DesiredDefinitions;
use crate::actual::Actual;
use crate::desired::Desired;
use crate::evacuating::Evacuating;
use crate::evaluation::{self, Evaluations, WorkResult};
use crate::rollout::{IndexView, Rollout};
use schemas::actual::{self, StopReason, UnclaimReason};
use schemas::cause::{Cause, Origin};
use schemas::container::{Epoch, Instance};
use schemas::entry::Event;
use schemas::evacuating::{self, RemovalReason};
use schemas::evaluation::{Duty, Evaluation};
use schemas::indices::Indices;
use schemas::key::Place;
use schemas::names::{CellId, DefinitionId, Domain, ProcessGuid};
use schemas::process::Command;
use schemas::refusal::Refusal;
use schemas::stamp::Stamp;
use schemas::subject::Position;
use schemas::{Timestamp, desired, rollout};

pub use self::slots::Slots;

/// State of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub guid: ProcessGuid,
    pub domain: Domain,
    pub epoch: Epoch,
    /// Number of decisions over all remembered epochs. An epoch starts when the process is desired.
    pub version: u64,
    /// Log position of the last decision; 0 before the log contains the decision.
    pub last_decision: Position,
    /// Time of the last decision.
    pub changed_at: Timestamp,
    /// Time at which a slot of the process last lost its records. 0 if the process remembers no such loss.
    pub emptied_at: Timestamp,
    /// Desired state. `None` if the process is not desired. In that case, remaining instances are stopping or
    /// are orphans.
    pub desired: Option<Box<Desired>>,
    /// Current or last rollout. `None` if this epoch had none.
    pub rollout: Option<Box<Rollout>>,
    /// Slots that have a record, in order. A slot is an index together with a definition.
    pub slots: Slots,
    /// Number of UNCLAIMED slots.
    pub unclaimed: u32,
    /// Number of UNCLAIMED slots with a placement error.
    pub unplaced: u32,
    /// CRASHED instances that restart at a known time, sorted by that time.
    pub pending_restarts: BTreeSet<(Timestamp, Place)>,
    /// Open evaluations and the most recently closed evaluations. The newest evaluation comes last.
    pub evaluations: Evaluations,
    /// Most recent requests with their answers.
    pub requests: Requests,
    /// Decision that last set the number of desired instances. `None` if the process remembers no such
    /// decision. In that case, only reports of reps about their containers have created its instances.
    pub scaled_by: Option<Cause>,
}

/// Records of one slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    pub place: Place,
    /// Record of the instance.
    pub actual: Option<Actual>,
    /// Record of the evacuating instance.
    pub evacuating: Option<Box<Evacuating>>,
    /// Time of the last change of a record that matters to reps. A new placement error does not count as a
    /// change.
    pub changed_at: Timestamp,
    /// Version of the process after the last decision that changed the slot as clients see it.
    pub version: u64,
    /// Decision that last created work for the slot, or that requested the stop of the instance in the slot.
    pub cause: Cause,
}

impl Slot {
    /// Returns the containers of the instance and of the evacuating instance.
    pub fn holders(&self) -> impl Iterator<Item = &Instance> {
        let twin = self.evacuating.iter().map(|twin| &twin.by);
        self.actual.iter().filter_map(Actual::holder).chain(twin)
    }
}

/// Other state that a decision depends on.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub now: Timestamp,
    /// `true` if the domain of the process is fresh.
    pub is_fresh: bool,
    /// Returns `true` if the cell is present.
    pub is_present: &'a dyn Fn(&CellId) -> bool,
    /// Returns `true` if the cell is remembered. For a forgotten cell, the reason for its absence is no
    /// longer known.
    pub is_known: &'a dyn Fn(&CellId) -> bool,
    /// Calls the visitor for every cell that has an ordinal.
    pub for_each_cell: &'a dyn Fn(CellVisitor<'_>),
}

/// Visitor of a cell. Receives the ordinal, the id and the state of the cell.
pub type CellVisitor<'a> = &'a mut dyn FnMut(u32, &CellId, &Cell);

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
            pending_restarts: BTreeSet::new(),
            evaluations: Evaluations::default(),
            requests: Requests::default(),
            scaled_by: None,
        }
    }

    /// Returns `true` if the process is not desired and has no instances. Such a process only remembers its
    /// name and its answers to requests.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.desired.is_none() && self.slots.is_empty()
    }

    /// Returns the records of a slot.
    #[must_use]
    pub fn slot(&self, place: &Place) -> Option<&Slot> {
        self.slots.get(place)
    }

    /// Returns the records of every slot at an index. An index has several slots during a rollout, and while
    /// one instance replaces another.
    pub fn slots_at(&self, index: u32) -> impl Iterator<Item = &Slot> + Clone {
        self.slots.at(index)
    }

    /// Returns the container at a slot (one index of a process) if the container may be preempted. The instance
    /// must be desired and the only one at its index. An instance that is stopping, evacuating, or being
    /// replaced by a rollout is not preempted.
    #[must_use]
    pub fn preemptible_instance(&self, place: &Place) -> Option<&Instance> {
        let by = self.actual(place).filter(|lrp| !lrp.is_stopping())?.holder()?;
        let alone = self.slots_at(place.index).count() == 1;
        let evacuates = self.slot(place).is_some_and(|slot| slot.evacuating.is_some());
        let rollout = self.rollout.as_deref().and_then(Rollout::active);
        let replaced = rollout.is_some_and(|rollout| rollout.replacement_step(place.index).is_some());
        (alone && !evacuates && !replaced && self.is_desired(place)).then_some(by)
    }

    /// Returns the records that a request refers to. If the request names no definition, several slots may
    /// match. A slot with an instance takes precedence over a slot with only an evacuating instance. Among
    /// slots of the same rank, the slot of the active definition takes precedence (Updatable LRPs,
    /// "Corresponding changes to ActualLRPs").
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

    /// Returns the retained containers: containers that are not stopping, and that no rollout is about to
    /// replace. The auction counts these containers when it spreads instances over cells and zones.
    pub fn retained_containers(&self) -> impl Iterator<Item = &Instance> {
        self.retained_containers_of(self.slots.iter())
    }

    /// Returns the retained containers of an index: see [`Self::retained_containers`].
    pub fn retained_containers_at(&self, index: u32) -> impl Iterator<Item = &Instance> {
        self.retained_containers_of(self.slots_at(index))
    }

    fn retained_containers_of<'a>(
        &'a self,
        slots: impl Iterator<Item = &'a Slot>,
    ) -> impl Iterator<Item = &'a Instance> {
        let stays = |slot: &&Slot| !self.is_replaced(&slot.place);
        let lrps = slots.filter(stays).filter_map(|slot| slot.actual.as_ref());
        lrps.filter(|lrp| !lrp.is_stopping()).filter_map(Actual::holder)
    }

    /// Returns `true` if the rollout is replacing the instance of this slot. In this case a new instance
    /// exists, is not stopping, and is either UNCLAIMED or on a cell.
    fn is_replaced(&self, place: &Place) -> bool {
        let rollout = self.rollout.as_deref().and_then(Rollout::active);
        let rollout = rollout.filter(|rollout| rollout.replacement_step(place.index).is_some());
        let target = rollout.map(|rollout| &rollout.target).filter(|target| **target != place.definition_id);
        let others = target.and_then(|target| self.actual(&Place::new(place.index, target.clone())));
        others.is_some_and(|new| !new.is_stopping() && (new.is_unclaimed() || new.holder().is_some()))
    }

    /// Returns the time of the last change of a slot's records. For a slot without records, returns the time
    /// at which any slot of the process last lost its records. If the slot has no instance, the changes of
    /// the other slots at the same index count as well.
    ///
    /// Two decisions about one process never have the same time, so the time identifies a decision.
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
    pub fn is_desired(&self, place: &Place) -> bool {
        self.wanted(place.index).has(&place.definition_id)
    }

    /// Returns the definitions that are desired at an index.
    fn wanted(&self, index: u32) -> DesiredDefinitions<'_> {
        let Some(desired) = self.desired.as_deref() else { return DesiredDefinitions::default() };
        let evacuates = self.slots_at(index).any(|slot| slot.evacuating.is_some());
        let (rollout, instances) = (self.rollout.as_deref(), self.actuals_at(index));
        places::Index { desired, rollout, index, instances, evacuates }.wanted()
    }

    /// Returns the origin of a decision about a slot: the given cell together with the cause, or the cause
    /// alone if no cell is given. The cause is the last decision that created work for the slot, or that
    /// requested the stop of the slot's instance. A slot without records has the cause of the last changed
    /// slot at the same index. If the index has no records at all and the slot is not desired, the cause is
    /// the decision that set the number of instances.
    fn origin(&self, place: &Place, cell: Option<&CellId>) -> Origin {
        let newest = || self.slots_at(place.index).max_by_key(|slot| slot.changed_at);
        let slot = self.slot(place).or_else(newest);
        let cause =
            slot.map(|slot| slot.cause).or_else(|| self.scaled_by.filter(|_| !self.is_desired(place)));
        cell.map_or_else(|| cause.into(), |cell| Origin::Cell(cell.clone(), cause))
    }

    /// Returns the open evaluation with this duty.
    #[must_use]
    pub fn open_evaluation(&self, duty: Duty) -> Option<Evaluation> {
        evaluation::find_open(self.evaluations.iter(), duty)
    }

    /// Returns the open evaluation of an instance, or `None` if the instance waits for nothing.
    #[must_use]
    pub fn evaluation_for(&self, lrp: &Actual) -> Option<Evaluation> {
        self.open_evaluation(lrp.duty()?)
    }

    /// Returns the next time at which convergence has something to do. Changes of cells, or of the freshness
    /// of the domain, may require convergence earlier.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        let of_slots = self.slots.iter().filter_map(|slot| self.slot_due(slot));
        of_slots.chain(self.rollout_due()).min()
    }

    /// Returns the next time at which convergence has something to do for one slot.
    #[must_use]
    pub fn slot_due(&self, slot: &Slot) -> Option<Timestamp> {
        let wanted = slot.actual.as_ref().filter(|_| self.is_desired(&slot.place));
        let restart = wanted.and_then(|lrp| self.restart_at(&slot.place, lrp));
        let expiry = slot.evacuating.as_ref().map(|twin| twin.expires_at);
        let proof = wanted.and_then(|lrp| self.proven_at(&slot.place, lrp));
        restart.into_iter().chain(expiry).chain(proof).min()
    }

    /// Returns the time at which a CRASHED instance restarts. `None` if the instance does not restart. An
    /// instance that a rollout is starting always restarts (Updatable LRPs, "Failing new LRP definition"). If
    /// the restart policy declined this restart, the crash policy determines the time. If the crash policy
    /// sets no time, the longest delay of the crash policy applies.
    fn restart_at(&self, place: &Place, lrp: &Actual) -> Option<Timestamp> {
        lrp.restart_at().or_else(|| {
            let starts = self.rollout.as_deref().is_some_and(|rollout| rollout.starts(place));
            let declined = lrp.no_restart_reason().filter(|_| starts);
            declined.map(|_| {
                crash::restart_due(lrp.crash_count, lrp.since).unwrap_or(lrp.since + crash::MAX_DELAY)
            })
        })
    }

    /// Returns the time at which an instance proves its definition healthy: the instance has then been
    /// RUNNING for the monitoring time. `None` in three cases: the instance is not RUNNING, its definition is
    /// already known to work, or its definition is not the active one.
    fn proven_at(&self, place: &Place, lrp: &Actual) -> Option<Timestamp> {
        let desired = self.desired.as_deref()?;
        let open = desired.active_definition_id == place.definition_id
            && desired.healthy_definition_id.as_ref() != Some(&place.definition_id);
        let monitor = monitor(desired, self.rollout.as_deref());
        (open && lrp.keeps_running()).then(|| lrp.since + monitor)
    }

    /// Returns the time at which the rollout advances next if nothing else changes.
    #[must_use]
    pub fn rollout_due(&self) -> Option<Timestamp> {
        let rollout = self.rollout.as_deref()?.active()?;
        let desired = self.desired.as_deref()?;
        let see = |index| IndexView::from_instances(&rollout.target, self.actuals_at(index));
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

/// Returns the origin of a decision, given the state before the decision. A decision about several indices
/// has the origin of the first instance among its events. Convergence makes a separate decision for each
/// origin.
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
        // The caller replaces this origin by the cause of the work that gets the freed resources.
        | Command::Evict(_)
        | Command::Retry(_) => Origin::Root,
        Command::Unanswered { evaluation, .. } => {
            let mut known = process.into_iter().flat_map(|process| process.evaluations.iter());
            known.find(|one| one.id == *evaluation).map(|one| one.cause()).into()
        }
        Command::Report(_) | Command::Fail(_) | Command::Converge => {
            // If the decision removes an evacuating instance because its cell is lost, the origin is the loss
            // of the cell. If the decision removes an expired evacuating instance, the origin is the decision
            // that created or moved the evacuating instance. The replacements of the evacuating instance get
            // the same origin. Other instances at their index do not affect this origin.
            let is_origin = |event: &&Event| {
                matches!(
                    event,
                    Event::Rollout(_)
                        | Event::Desired(_)
                        | Event::Evacuating(evacuating::Event::Removed {
                            cause: RemovalReason::CellLost | RemovalReason::Expired,
                            ..
                        })
                )
            };
            let first = events.first().filter(is_origin);
            let of_instance = || events.iter().find(|event| matches!(event, Event::Actual(_)));
            let event = first.or_else(of_instance).or_else(|| events.first());
            process.zip(event).map_or(Origin::Root, |(process, event)| event_origin(process, event))
        }
    }
}

fn event_origin(process: &Process, event: &Event) -> Origin {
    match event {
        Event::Actual(event) => {
            let Some(place) = event.places().iter().next() else { return Origin::Root };
            let by_cell = match event {
                actual::Event::Unclaimed {
                    cause: UnclaimReason::CellLost | UnclaimReason::Evacuation,
                    ..
                }
                | actual::Event::Removed { cause: StopReason::CellLost, .. } => true,
                actual::Event::Unclaimed { cause: UnclaimReason::Crash | UnclaimReason::Restart, .. }
                | actual::Event::Removed { .. }
                | actual::Event::Created { .. }
                | actual::Event::Claimed { .. }
                | actual::Event::Started { .. }
                | actual::Event::Crashed { .. }
                | actual::Event::ExecStarted { .. }
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
            let lost = twin.filter(|_| *cause == RemovalReason::CellLost);
            process.origin(place, lost.map(|twin| &twin.by.cell_id))
        }
        Event::Desired(desired::Event::CellsChanged { cells, removed }) => {
            let of = |index| process.desired.as_ref().and_then(|desired| desired.only_cell(index));
            let joined = cells.first().map(|(_, cell)| &cell.cell_id);
            let cell = joined.or_else(|| of(removed.iter().next()?));
            cell.cloned().map_or(Origin::Root, Origin::CellChange)
        }
        Event::Rollout(_)
        | Event::Desired(desired::Event::HealthyChanged { .. } | desired::Event::Pruned { .. }) => {
            process.rollout.as_ref().and_then(|rollout| rollout.cause).or(process.scaled_by).into()
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
        | Event::Cluster(_) => Origin::Root,
    }
}

/// Applies the events of one decision to the process. Returns the containers that ended because of these
/// events. Never fails, because events in the log are facts.
pub fn evolve(process: &mut Process, events: &[Event], stamp: &Stamp) -> Vec<EndedInstance> {
    let mut ended = vec![];
    for event in events {
        match event {
            Event::Desired(event) => {
                if let desired::Event::Desired(lrp) = event {
                    process.epoch = Epoch(stamp.at);
                    process.domain = lrp.domain.clone();
                }
                if event.sets_instance_count() {
                    process.scaled_by = Some(stamp.cause());
                }
                let (desired, rollout) = (process.desired.take(), process.rollout.take());
                let (desired, rollout) =
                    evolve_desired(desired.map(|old| *old), rollout.map(|old| *old), event);
                process.desired = desired.map(Box::new);
                process.rollout = rollout.map(Box::new);
            }
            Event::Rollout(event) => {
                let old = process.rollout.take().map(|old| *old);
                let mut new = crate::rollout::evolve(old, event, stamp.at);
                if let (rollout::Event::Started { .. }, Some(new)) = (event, &mut new) {
                    new.cause = Some(stamp.cause());
                }
                process.rollout = new.map(Box::new);
            }
            Event::Actual(event) => evolve_actual(process, event, stamp, &mut ended),
            Event::Evacuating(event) => evolve_evacuating(process, event, stamp, &mut ended),
            Event::Evaluation(event) => {
                process.evaluations.modify(|all| evaluation::evolve(all, event, stamp));
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
    ended::finally_ended(process, ended)
}

/// Returns the time that an instance has to be RUNNING before it counts as healthy. The policy of the current
/// rollout takes precedence over the policy of the process.
fn monitor(desired: &Desired, rollout: Option<&Rollout>) -> Duration {
    rollout
        .and_then(Rollout::active)
        .map_or_else(|| desired.policies.update.monitor(), |rollout| rollout.policy.monitor())
}

/// Applies a change of the desired state, and adapts the rollout to the change. The rollout ends together
/// with its epoch. It follows changes of the scale and of the cells. It keeps the definition that its
/// rollback needs.
#[must_use]
pub fn evolve_desired(
    desired: Option<Desired>,
    rollout: Option<Rollout>,
    event: &desired::Event,
) -> (Option<Desired>, Option<Rollout>) {
    let Some(mut rollout) = rollout else { return (crate::desired::evolve(desired, event), None) };
    match event {
        desired::Event::Desired(_) | desired::Event::Removed {} => {
            (crate::desired::evolve(desired, event), None)
        }
        desired::Event::Updated(_) | desired::Event::CellsChanged { .. } => {
            let rolling = |desired: &Desired| desired.rolling_indices().collect::<Indices>();
            let before = desired.as_ref().map(rolling).unwrap_or_default();
            let desired = crate::desired::evolve(desired, event);
            rollout.resize(&before, &desired.as_ref().map(rolling).unwrap_or_default());
            (desired, Some(rollout))
        }
        desired::Event::Pruned { definition_ids } => {
            if let Some(desired) = &desired {
                rollout.keep_pruned(desired, definition_ids);
            }
            (crate::desired::evolve(desired, event), Some(rollout))
        }
        desired::Event::DefinitionAdded { .. }
        | desired::Event::Activated { .. }
        | desired::Event::HealthyChanged { .. } => (crate::desired::evolve(desired, event), Some(rollout)),
    }
}

fn evolve_actual(
    process: &mut Process,
    event: &actual::Event,
    stamp: &Stamp,
    ended: &mut Vec<EndedInstance>,
) {
    let (at, version, life) = (stamp.at, process.version + 1, ProcessEpoch::new(process, stamp.at));
    if let actual::Event::Created { places } = event {
        process.slots.reserve(usize::try_from(places.indices.len()).unwrap_or(0));
    }
    let shows = !matches!(event, actual::Event::ExecStarted { .. });
    let changes = shows && !matches!(event, actual::Event::PlacementFailed { .. });
    let causes = event.creates_work() || matches!(event, actual::Event::StopRequested { .. });
    for place in event.places().iter() {
        let (mut unclaimed, mut unplaced) = (0_i64, 0_i64);
        let (mut waited, mut waits, mut moved) = (None, None, None);
        with_slot(process, &place, stamp, |slot| {
            let held = ended::recorded_containers(slot);
            let before = slot.actual.take();
            let duty = before.as_ref().and_then(Actual::duty);
            unclaimed -= i64::from(before.as_ref().is_some_and(Actual::is_unclaimed));
            unplaced -= i64::from(before.as_ref().is_some_and(Actual::has_placement_error));
            waited = before.as_ref().and_then(Actual::delayed_until);
            slot.actual = crate::actual::evolve(before, event, at);
            waits = slot.actual.as_ref().and_then(Actual::delayed_until);
            moved = duty.map(|duty| (duty, work_outcome(duty, slot.actual.as_ref())));
            slot.changed_at = if changes { at } else { slot.changed_at };
            slot.version = if shows { version } else { slot.version };
            slot.cause = if causes { stamp.cause() } else { slot.cause };
            unclaimed += i64::from(slot.actual.as_ref().is_some_and(Actual::is_unclaimed));
            unplaced += i64::from(slot.actual.as_ref().is_some_and(Actual::has_placement_error));
            ended.extend(ended::ended_by_instance(held, slot, event, &life));
        });
        if let Some((duty, moved)) = moved {
            process.evaluations.modify(|all| evaluation::count_work(all, duty, moved));
        }
        if let Some(at) = waited {
            process.pending_restarts.remove(&(at, place.clone()));
        }
        process.pending_restarts.extend(waits.map(|at| (at, place.clone())));
        let add = |count: u32, change: i64| u32::try_from(i64::from(count) + change).unwrap_or(0);
        process.unclaimed = add(process.unclaimed, unclaimed);
        process.unplaced = add(process.unplaced, unplaced);
    }
}

/// Returns the effect of an event on the work of an open evaluation. `after` is the instance after the event.
fn work_outcome(duty: Duty, after: Option<&Actual>) -> WorkResult {
    match (duty, after) {
        // An instance that only waited for its restart does not count as placed, even if the instance is now
        // on a cell.
        (Duty::Place | Duty::Unblock, Some(lrp)) if lrp.holder().is_some() => WorkResult::Placed,
        (Duty::Place, Some(lrp)) if lrp.has_placement_error() => WorkResult::Queued,
        (Duty::Place | Duty::Unblock | Duty::Restart, _) => WorkResult::Unchanged,
    }
}

fn evolve_evacuating(
    process: &mut Process,
    event: &evacuating::Event,
    stamp: &Stamp,
    ended: &mut Vec<EndedInstance>,
) {
    let (at, version, life) = (stamp.at, process.version + 1, ProcessEpoch::new(process, stamp.at));
    let (evacuating::Event::Set { place, .. } | evacuating::Event::Removed { place, .. }) = event;
    let mut twin = crate::evacuating::evolve(event, at).map(Box::new);
    with_slot(process, place, stamp, |slot| {
        let held = ended::recorded_containers(slot);
        if let Some(twin) = &mut twin {
            twin.started_at = ended::started_at(&held, &twin.by).unwrap_or(at);
        }
        slot.evacuating = twin;
        slot.changed_at = at;
        slot.version = version;
        ended.extend(ended::ended_by_evacuating(held, slot, event, &life));
    });
}

/// Changes the records of a slot. Creates the slot if it is missing, and removes it if it has no records
/// afterwards.
fn with_slot(process: &mut Process, place: &Place, stamp: &Stamp, change: impl FnOnce(&mut Slot)) {
    let (actual, evacuating, changed_at, cause) = (None, None, Timestamp(0), stamp.cause());
    let make = || Slot { place: place.clone(), actual, evacuating, changed_at, version: 0, cause };
    if !process.slots.change(place, make, change) {
        process.emptied_at = stamp.at;
    }
}
