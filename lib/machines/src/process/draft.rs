//! The draft of a process during a decision: the state before the decision, overlaid with the events decided
//! so far. This module contains the operations that all decisions share, and the commands of clients.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use super::places::{self, DesiredDefinitions};
use super::{Context, Process, Slot};
use crate::actual::{Actual, State};
use crate::desired::Desired;
use crate::evacuating::Evacuating;
use crate::evaluation::{self, WaitingWork, WorkEffects, WorkResult};
use crate::preemption;
use crate::rollout::Rollout;
use schemas::actual::{self, StopReason, UnclaimReason};
use schemas::container::WorkKey;
use schemas::definition::{DesiredLrp, DesiredLrpUpdate};
use schemas::entry::Event;
use schemas::evaluation::{Duty, Evaluation, Trigger};
use schemas::exec::Exec;
use schemas::key::{Place, Places};
use schemas::names::DefinitionId;
use schemas::preemption::Eviction;
use schemas::refusal::{BadField, Code, Refusal};
use schemas::{Timestamp, desired, evacuating, rollout};

pub(super) struct Draft<'a> {
    pub(super) process: Option<&'a Process>,
    pub(super) context: Context<'a>,
    desired: Option<Cow<'a, Desired>>,
    rollout: Option<Cow<'a, Rollout>>,
    /// Instances that this decision changed, by index.
    changed_instances: BTreeMap<u32, Vec<(Place, Option<Actual>)>>,
    /// Evacuating instances that this decision changed.
    changed_evacuating: BTreeMap<Place, Option<Evacuating>>,
    /// Definitions that a rollout gave up in this decision, each with the index. `None` stands for all
    /// indices.
    given_up: Vec<(Option<u32>, DefinitionId)>,
    pub(super) left: WaitingWork,
    pub(super) did: WorkEffects,
    pub(super) events: Vec<Event>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(process: Option<&'a Process>, context: Context<'a>) -> Self {
        let desired = process.and_then(|process| process.desired.as_deref());
        let rollout = process.and_then(|process| process.rollout.as_deref());
        Self {
            process,
            context,
            desired: desired.map(Cow::Borrowed),
            rollout: rollout.map(Cow::Borrowed),
            changed_instances: BTreeMap::new(),
            changed_evacuating: BTreeMap::new(),
            given_up: vec![],
            left: WaitingWork {
                unanswered: process.map_or(0, |process| process.unclaimed.saturating_sub(process.unplaced)),
                unplaced: process.map_or(0, |process| process.unplaced),
                restart_at: None,
            },
            did: WorkEffects::default(),
            events: vec![],
        }
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = &'a Slot> + use<'a> {
        self.process.into_iter().flat_map(|process| process.slots.iter())
    }

    /// Returns the instance of a slot.
    pub(super) fn actual(&self, place: &Place) -> Option<&Actual> {
        match self.changed_instance(place) {
            Some(decided) => decided.as_ref(),
            None => self.process.and_then(|process| process.actual(place)),
        }
    }

    fn changed_instance(&self, place: &Place) -> Option<&Option<Actual>> {
        self.changed_instances
            .get(&place.index)?
            .iter()
            .find(|(known, _)| known == place)
            .map(|(_, decided)| decided)
    }

    /// Returns the instances at an index, each with its slot.
    pub(super) fn actuals_at(&self, index: u32) -> impl Iterator<Item = (&Place, &Actual)> + Clone {
        let known = self.process.into_iter().flat_map(move |process| process.actuals_at(index));
        let decided = self.changed_instances.get(&index).into_iter().flatten();
        let decided = decided.filter_map(|(place, decided)| Some((place, decided.as_ref()?)));
        known.filter(|(place, _)| self.changed_instance(place).is_none()).chain(decided)
    }

    /// Returns the indices at which this decision changed an instance.
    pub(super) fn changed_indices(&self) -> impl Iterator<Item = u32> {
        self.changed_instances.keys().copied()
    }

    pub(super) fn desired(&self) -> Option<&Desired> {
        self.desired.as_deref()
    }

    pub(super) fn rollout(&self) -> Option<&Rollout> {
        self.rollout.as_deref()
    }

    /// Returns the time that an instance has to be RUNNING before it counts as healthy.
    pub(super) fn monitor_period(&self, desired: &Desired) -> Duration {
        super::monitor(desired, self.rollout())
    }

    /// Returns the number of desired instances.
    fn instances(&self) -> u32 {
        self.desired.as_ref().map_or(0, |desired| desired.instances)
    }

    fn desired_indices(&self) -> Vec<u32> {
        self.desired().map(|desired| desired.indices().collect()).unwrap_or_default()
    }

    /// Returns `true` if an instance is desired at an index, with any definition.
    pub(super) fn is_index_desired(&self, index: u32) -> bool {
        self.desired().is_some_and(|desired| desired.desires_index(index))
    }

    /// Returns `true` if an instance is desired at a slot.
    pub(super) fn is_desired(&self, place: &Place) -> bool {
        self.wanted(place.index, None).has(&place.definition_id)
    }

    /// Returns the definitions that are desired at an index. The instance of the slot `but` is ignored.
    fn wanted(&self, index: u32, but: Option<&Place>) -> DesiredDefinitions<'_> {
        let Some(desired) = self.desired() else { return DesiredDefinitions::default() };
        let instances = self.actuals_at(index).filter(|(place, _)| Some(*place) != but);
        let (rollout, evacuates) = (self.rollout(), self.is_evacuating(index));
        places::Index { desired, rollout, index, instances, evacuates }.wanted()
    }

    fn is_evacuating(&self, index: u32) -> bool {
        self.evacuating_slots_at(index).next().is_some()
    }

    /// Returns the slots of an index that have an evacuating instance.
    pub(super) fn evacuating_slots_at(&self, index: u32) -> impl Iterator<Item = &Place> {
        let known = self.process.into_iter().flat_map(move |process| process.slots_at(index));
        let known = known.filter(|slot| slot.evacuating.is_some()).map(|slot| &slot.place);
        let known = known.filter(|place| !self.changed_evacuating.contains_key(place));
        let first = Place::new(index, DefinitionId::min_value());
        let decided =
            self.changed_evacuating.range(first..).take_while(move |(place, _)| place.index == index);
        known.chain(decided.filter(|(_, twin)| twin.is_some()).map(|(place, _)| place))
    }

    /// Returns the evacuating instance of a slot.
    pub(super) fn evacuating_instance(&self, place: &Place) -> Option<&Evacuating> {
        match self.changed_evacuating.get(place) {
            Some(decided) => decided.as_ref(),
            None => self.process?.slot(place)?.evacuating.as_deref(),
        }
    }

    /// Returns `true` if a slot is known not to be desired. Returns `false` if the process remembers no
    /// decision about the number of instances.
    pub(super) fn is_known_undesired(&self, place: &Place) -> bool {
        self.process.is_some_and(|process| process.scaled_by.is_some()) && !self.is_desired(place)
    }

    fn require_desired(&self) -> Result<&'a Process, Refusal> {
        self.process
            .filter(|process| process.desired.is_some())
            .ok_or_else(|| Refusal::not_found("the process"))
    }

    pub(super) fn desire(&mut self, lrp: &DesiredLrp) -> Result<(), Refusal> {
        if let Some(process) = self.process.filter(|process| process.desired.is_some()) {
            let why = format!("process {} is already desired", process.guid);
            return Err(Refusal::new(Code::ResourceExists, why));
        }
        if self.process.is_some_and(|old| old.domain != lrp.domain && !old.slots.is_empty()) {
            let why = "instances of an earlier epoch in another domain are still being stopped";
            return Err(Refusal::new(Code::ResourceConflict, why));
        }
        self.record_desired(desired::Event::Desired(Box::new(lrp.clone())));
        let leftovers = self.slots().map(|slot| slot.place.clone()).collect();
        self.end(leftovers, StopReason::Superseded);
        self.follow_cells(Trigger::Desire);
        self.create_missing(Trigger::Desire);
        Ok(())
    }

    pub(super) fn update(&mut self, update: &DesiredLrpUpdate) -> Result<(), Refusal> {
        let process = self.require_desired()?;
        // The command is refused even if the number happens to match. When the command is repeated, the
        // number of cells may have changed.
        if update.instances.is_some() && self.desired().is_some_and(Desired::is_global) {
            let problem = "cannot be set: a global process has one instance on each cell that fits".into();
            return Err(Refusal::invalid(vec![BadField { field: "instances".into(), problem }]));
        }
        let Some(difference) = process.desired.as_ref().and_then(|old| old.difference(update)) else {
            return Ok(());
        };
        let instances = difference.instances.unwrap_or_else(|| self.instances());
        if let Some(problem) = difference.policies.as_ref().and_then(|policies| policies.fault(instances)) {
            return Err(Refusal::invalid(vec![BadField { field: "policies.min_running".into(), problem }]));
        }
        self.record_desired(desired::Event::Updated(difference));
        self.end(self.undesired_slots(), StopReason::Scale);
        self.create_missing(Trigger::Scale);
        self.count_stop_requests(Trigger::Scale);
        self.did.stopped = self.did.stopped.filter(|(_, stopped)| *stopped > 0);
        Ok(())
    }

    /// Stops every remaining instance, including instances that are not desired, and instances of a process
    /// whose creation is not remembered.
    pub(super) fn remove(&mut self) -> Result<(), Refusal> {
        let known = self.process.filter(|process| !process.is_gone());
        let process = known.ok_or_else(|| Refusal::not_found("the process"))?;
        if process.desired.is_some() || process.scaled_by.is_none() {
            self.record_desired(desired::Event::Removed {});
        }
        self.end(self.undesired_slots(), StopReason::Removed);
        self.count_stop_requests(Trigger::Remove);
        Ok(())
    }

    pub(super) fn retire(&mut self, index: u32, definition_id: Option<&DefinitionId>) -> Result<(), Refusal> {
        let (place, _) = self.instance(index, definition_id)?;
        self.end(vec![place.clone()], StopReason::Retired);
        self.settle(index, Trigger::Stop);
        Ok(())
    }

    /// Records that a program is run in the container of an instance.
    pub(super) fn enter(
        &mut self,
        index: u32,
        definition_id: Option<&DefinitionId>,
        exec: &Exec,
    ) -> Result<(), Refusal> {
        let (place, actual) = self.instance(index, definition_id)?;
        let why = match &actual.state {
            State::Running { by, stopping: false, .. } => {
                let (place, by, exec) = (place.clone(), by.clone(), Box::new(exec.clone()));
                self.record(actual::Event::ExecStarted { place, by, exec });
                return Ok(());
            }
            State::Running { stopping: true, .. } => "is being stopped",
            State::Claimed { .. } => "is CLAIMED",
            State::Unclaimed { .. } => "is UNCLAIMED",
            State::Crashed { .. } => "is CRASHED",
        };
        let why = format!("instance {index} {why}: programs run only in a RUNNING instance");
        Err(Refusal::new(Code::InvalidStateTransition, why))
    }

    /// Returns the instance that a client refers to.
    fn instance(
        &self,
        index: u32,
        definition_id: Option<&DefinitionId>,
    ) -> Result<(&'a Place, &'a Actual), Refusal> {
        let found = self.process.and_then(|process| process.find(index, definition_id));
        found.and_then(|slot| Some((&slot.place, slot.actual.as_ref()?))).ok_or_else(|| {
            let of = definition_id.map_or_else(String::new, |id| format!(" of definition {id}"));
            Refusal::not_found(format!("instance {index}{of}"))
        })
    }

    /// Stops an instance to free its resources for more urgent work. The instance is placed again after it
    /// has ended.
    pub(super) fn evict(&mut self, eviction: &Eviction) -> Result<(), Refusal> {
        let WorkKey::Lrp { key, .. } = &eviction.victim else {
            return Err(preemption::stale_eviction(&eviction.victim));
        };
        let process = self.require_desired()?;
        let judged = process.preemptible_instance(&key.place).filter(|by| **by == eviction.by);
        if judged.is_none() || eviction.preemptor.belongs_to(&process.guid) {
            return Err(preemption::stale_eviction(key));
        }
        let priority = self.desired().map(|desired| desired.priority).unwrap_or_default();
        preemption::check_priority(&eviction.preemptor, priority)?;
        self.end(vec![key.place.clone()], StopReason::Preempted);
        self.count_stop_requests(Trigger::Preemption);
        self.did.new_work = Some(Trigger::Preemption);
        Ok(())
    }

    /// Returns the slots that have a record and are not desired (Diego Dev Notes, "Computing ∆s", first
    /// half).
    fn undesired_slots(&self) -> Vec<Place> {
        self.slots().map(|slot| &slot.place).filter(|place| !self.is_desired(place)).cloned().collect()
    }

    /// Creates the instances that are desired and have no record (Diego Dev Notes, "Computing ∆s", second
    /// half).
    pub(super) fn create_missing(&mut self, trigger: Trigger) {
        self.create(self.desired_indices().into_iter(), trigger);
    }

    /// Creates the missing instances at these indices.
    fn create(&mut self, indices: impl Iterator<Item = u32>, trigger: Trigger) {
        let missing: Vec<Place> = indices.flat_map(|index| self.missing_slots(index)).collect();
        for places in group_by_definition(missing) {
            self.record(actual::Event::Created { places });
            self.did.new_work.get_or_insert(trigger);
        }
    }

    /// Returns the slots of an index that are desired and have no instance. If the index has an instance
    /// already, that instance has to end first, unless a rollout of the index is start-first.
    fn missing_slots(&self, index: u32) -> Vec<Place> {
        let wanted = self.wanted(index, None);
        if !wanted.starts_first && self.actuals_at(index).next().is_some() {
            return vec![];
        }
        let places = wanted.iter().map(|id| Place::new(index, id.clone()));
        places.filter(|place| self.actual(place).is_none()).collect()
    }

    /// Brings one index to its desired state: stops excess instances and creates missing instances.
    pub(super) fn settle(&mut self, index: u32, trigger: Trigger) {
        self.settle_each(&[index], trigger);
    }

    /// Brings every index to its desired state.
    pub(super) fn settle_all(&mut self, trigger: Trigger) {
        self.settle_each(&self.desired_indices(), trigger);
    }

    pub(super) fn settle_each(&mut self, indices: &[u32], trigger: Trigger) {
        let wanted = |index: &&u32| self.is_index_desired(**index);
        let extra = indices.iter().filter(wanted).flat_map(|index| {
            let wanted = self.wanted(*index, None);
            self.actuals_at(*index)
                .map(|(place, _)| place)
                .filter(move |place| !wanted.has(&place.definition_id))
        });
        let (failed, replaced) = extra.cloned().partition(|place| self.is_given_up(place));
        self.end(failed, StopReason::RolloutFailed);
        self.end(replaced, StopReason::Replaced);
        self.create(indices.iter().copied(), trigger);
    }

    /// Marks a definition as given up by the rollout, at one index, or at all indices if `index` is `None`.
    /// If this decision later ends an instance of the definition, the recorded reason is that the rollout
    /// failed.
    pub(super) fn mark_given_up(&mut self, index: Option<u32>, id: DefinitionId) {
        self.given_up.push((index, id));
    }

    fn is_given_up(&self, place: &Place) -> bool {
        let is = |(index, id): &(Option<u32>, DefinitionId)| {
            index.is_none_or(|index| index == place.index) && *id == place.definition_id
        };
        self.given_up.iter().any(is)
    }

    /// Ends instances that are not stopping yet. Instances on a cell are asked to stop. Instances without a
    /// cell are removed (Diego Dev Notes, "Stopping ActualLRPs").
    pub(super) fn end(&mut self, places: Vec<Place>, cause: StopReason) {
        let is_on_cell = |place: &Place| self.actual(place).is_some_and(|lrp| lrp.holder().is_some());
        let (stop, remove): (Vec<_>, Vec<_>) = places.into_iter().partition(is_on_cell);
        let is_new = |place: &Place| self.actual(place).is_some_and(|lrp| !lrp.is_stopping());
        let (stop, remove): (Vec<_>, Vec<_>) =
            (stop.into_iter().filter(is_new).collect(), remove.into_iter().filter(is_new).collect());
        for places in group_by_definition(stop) {
            self.record(actual::Event::StopRequested { places, cause });
        }
        for places in group_by_definition(remove) {
            self.record(actual::Event::Removed { places, cause });
        }
    }

    /// Restarts an instance that is no longer on a cell. The instance keeps its definition if that definition
    /// is still desired. Otherwise it is replaced by an instance of the definition that is known to work
    /// (Updatable LRPs, "`UpdateLRPDeployment`").
    pub(super) fn restart(&mut self, place: &Place, cause: UnclaimReason, trigger: Trigger) {
        // An instance of a cordoned cell waits for that cell.
        let waits = self.desired().is_some_and(|desired| desired.is_cordoned(place.index));
        if waits || self.wanted(place.index, Some(place)).has(&place.definition_id) {
            self.record(actual::Event::Unclaimed { places: place.clone().into(), cause });
            self.did.new_work.get_or_insert(trigger);
        } else {
            let cause = match cause {
                UnclaimReason::CellLost => StopReason::CellLost,
                UnclaimReason::Evacuation => StopReason::Evacuated,
                UnclaimReason::Crash | UnclaimReason::Restart => StopReason::Replaced,
            };
            self.record(actual::Event::Removed { places: place.clone().into(), cause });
            self.settle(place.index, trigger);
        }
    }

    pub(super) fn record_desired(&mut self, event: desired::Event) {
        let (desired, rollout) = (self.desired.take(), self.rollout.take());
        let (desired, rollout) =
            super::evolve_desired(desired.map(Cow::into_owned), rollout.map(Cow::into_owned), &event);
        (self.desired, self.rollout) = (desired.map(Cow::Owned), rollout.map(Cow::Owned));
        self.events.push(Event::Desired(event));
    }

    pub(super) fn fold_rollout(&mut self, event: &rollout::Event) {
        let old = self.rollout.take().map(Cow::into_owned);
        self.rollout = crate::rollout::evolve(old, event, self.context.now).map(Cow::Owned);
    }

    pub(super) fn record_evacuating(&mut self, event: evacuating::Event) {
        let (evacuating::Event::Set { place, .. } | evacuating::Event::Removed { place, .. }) = &event;
        self.changed_evacuating.insert(place.clone(), crate::evacuating::evolve(&event, self.context.now));
        self.events.push(Event::Evacuating(event));
    }

    /// Adds an event to the draft. Merges the event into the previous event if the two differ only in their
    /// indices.
    pub(super) fn record(&mut self, event: actual::Event) {
        for place in event.places().iter() {
            let before = self.actual(&place).cloned();
            let duty = before.as_ref().and_then(Actual::duty);
            let after = crate::actual::evolve(before, &event, self.context.now);
            self.count(duty, after.as_ref());
            let decided = self.changed_instances.entry(place.index).or_default();
            match decided.iter_mut().find(|(known, _)| *known == place) {
                Some((_, decided)) => *decided = after,
                None => decided.push((place, after)),
            }
        }
        match self.events.last_mut() {
            Some(Event::Actual(last)) => {
                if !merge_events(last, &event) {
                    self.events.push(Event::Actual(event));
                }
            }
            Some(_) | None => self.events.push(Event::Actual(event)),
        }
    }

    /// Updates the counters for the change of one instance.
    fn count(&mut self, before: Option<Duty>, after: Option<&Actual>) {
        let (left, did) = (&mut self.left, &mut self.did);
        match before {
            Some(Duty::Place) => left.unanswered = left.unanswered.saturating_sub(1),
            Some(Duty::Unblock) => left.unplaced = left.unplaced.saturating_sub(1),
            Some(Duty::Restart) | None => {}
        }
        match after.and_then(Actual::duty) {
            Some(Duty::Place) => left.unanswered += 1,
            Some(Duty::Unblock) => left.unplaced += 1,
            Some(Duty::Restart) | None => {}
        }
        let Some(before) = before else { return };
        match (super::work_outcome(before, after), before) {
            (WorkResult::Placed, Duty::Place) => did.placed += 1,
            (WorkResult::Placed, Duty::Unblock) => did.unblocked += 1,
            (WorkResult::Queued, _) => did.queued += 1,
            (WorkResult::Placed, Duty::Restart) | (WorkResult::Unchanged, _) => {}
        }
    }

    /// Returns the earliest time at which a CRASHED instance restarts.
    fn first_restart(&self) -> Option<Timestamp> {
        let waits = self.process.into_iter().flat_map(|process| &process.pending_restarts);
        let known =
            waits.filter(|(_, place)| self.changed_instance(place).is_none()).map(|(at, _)| *at).next();
        let decided = self.changed_instances.values().flatten();
        let decided = decided.filter_map(|(_, decided)| decided.as_ref()?.delayed_until());
        known.into_iter().chain(decided).min()
    }

    /// Counts the stop requests of this decision as work with this trigger.
    fn count_stop_requests(&mut self, trigger: Trigger) {
        let stopped = self.events.iter().map(|event| {
            let Event::Actual(actual::Event::StopRequested { places, .. }) = event else { return 0 };
            places.indices.len()
        });
        self.did.stopped = Some((trigger, u32::try_from(stopped.sum::<u64>()).unwrap_or(u32::MAX)));
    }

    pub(super) fn evaluations(&self) -> Vec<Evaluation> {
        self.process.map(|process| process.evaluations.to_vec()).unwrap_or_default()
    }

    /// Links the evaluations of the rollout of a global process: the evaluation of each cell follows the
    /// evaluation of the previous cell.
    fn chain_rolling_updates(&mut self) {
        if self.did.new_work != Some(Trigger::Rollout) || !self.desired().is_some_and(Desired::is_global) {
            return;
        }
        self.did.new_work = Some(Trigger::RollingUpdate);
        let began = self.rollout().and_then(|rollout| rollout.cause).map(|cause| cause.correlation);
        let of_rollout = |one: &&Evaluation| {
            one.trigger == Trigger::RollingUpdate && Some(one.correlation) == began && one.next.is_none()
        };
        self.did.follows = self.evaluations().iter().rev().find(of_rollout).map(|one| one.id);
    }

    /// Drops the placement error of the decision if no instance with that error is waiting. One decision can
    /// record a failed placement and also, through a rollout, remove the instance.
    fn drop_errors_of_removed_work(&mut self) {
        if self.did.error.is_none() {
            return;
        }
        let waits_for = |place: &Place, reason: &str| match self.actual(place).map(|lrp| &lrp.state) {
            Some(State::Unclaimed { placement_error }) => placement_error.as_deref() == Some(reason),
            Some(State::Claimed { .. } | State::Running { .. } | State::Crashed { .. }) | None => false,
        };
        let still = self.events.iter().rev().find_map(|event| {
            let Event::Actual(actual::Event::PlacementFailed { places, error, .. }) = event else {
                return None;
            };
            places.iter().any(|place| waits_for(&place, error)).then(|| error.clone())
        });
        self.did.error = still;
    }

    pub(super) fn finish(mut self) -> Vec<Event> {
        self.advance_rollout();
        self.drop_errors_of_removed_work();
        self.chain_rolling_updates();
        self.left.restart_at = self.first_restart();
        if !self.events.is_empty() || self.did.new_work.is_some() {
            let evaluations = evaluation::decide(&self.evaluations(), &self.left, &self.did);
            self.events.extend(evaluations.into_iter().map(Event::Evaluation));
        }
        self.events
    }
}

/// Groups slots by definition, in the form in which events name slots. Groups are in the order in which their
/// definitions first appear.
pub(super) fn group_by_definition(places: Vec<Place>) -> Vec<Places> {
    let mut all: Vec<(DefinitionId, Vec<u32>)> = vec![];
    for Place { index, definition_id } in places {
        match all.iter_mut().find(|(known, _)| *known == definition_id) {
            Some((_, indices)) => indices.push(index),
            None => all.push((definition_id, vec![index])),
        }
    }
    let places = |(definition_id, indices): (_, Vec<u32>)| Places {
        indices: indices.into_iter().collect(),
        definition_id,
    };
    all.into_iter().map(places).collect()
}

/// Merges the second event into the first if they differ only in their indices. Returns `true` if the events
/// were merged. A slot appears twice in a decision only in different events.
fn merge_events(last: &mut actual::Event, next: &actual::Event) -> bool {
    use actual::Event as E;
    let merge = |places: &mut Places, more: &Places| {
        let same = places.definition_id == more.definition_id;
        if same {
            places.indices = places.indices.iter().chain(more.indices.iter()).collect();
        }
        same
    };
    match (last, next) {
        (E::Unclaimed { places, cause }, E::Unclaimed { places: more, cause: same }) if cause == same => {
            merge(places, more)
        }
        (E::Removed { places, cause }, E::Removed { places: more, cause: same })
        | (E::StopRequested { places, cause }, E::StopRequested { places: more, cause: same })
            if cause == same =>
        {
            merge(places, more)
        }
        _ => false,
    }
}
