//! State while an entry is judged (checked against the rules): the World before the entry, and the changes by
//! the entry's decisions so far. The World is the state folded from the log.

use std::collections::BTreeMap;

use machines::actual::Actual;
use machines::cell::{self, Cell};
use machines::cluster::{self, Cluster};
use machines::desired::Desired;
use machines::evacuating::Evacuating;
use machines::evaluation::{self, StatusKind};
use machines::parameterised::{self, Parameterised};
use machines::periodic::{self, Periodic};
use machines::process::{self, Process};
use machines::rollout::{self, Rollout};
use machines::task::{self, Task};
use projections::World;
use schemas::container::Epoch;
use schemas::entry::{Aggregate, Event};
use schemas::evaluation::Evaluation;
use schemas::names::{CellId, Domain, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid};
use schemas::stamp::Stamp;
use schemas::{Decision, Place, Position, actual, evacuating};

use super::{Violation, fleet, instances, launchers, life, rollouts, starts_epoch, tasks};
use crate::Kind;

/// World before an entry, with the changes by the entry's decisions so far.
pub(super) struct Draft<'a> {
    world: &'a World,
    /// Position of the entry.
    position: Position,
    processes: BTreeMap<ProcessGuid, DraftProcess<'a>>,
    tasks: BTreeMap<TaskGuid, Option<Task>>,
    periodics: BTreeMap<PeriodicGuid, Option<Periodic>>,
    parameterised: BTreeMap<ParameterisedGuid, Option<Parameterised>>,
    cells: BTreeMap<CellId, Option<Cell>>,
    cluster: Option<Option<Cluster>>,
}

/// A process while an entry is judged. Only the slots that change are copied, because a process may have ten
/// thousand.
pub(super) struct DraftProcess<'a> {
    before: Option<&'a Process>,
    /// Domain and epoch. `None` if the process is unknown.
    domain_and_epoch: Option<(Domain, Epoch)>,
    version: u64,
    pub(super) desired: Option<Desired>,
    pub(super) rollout: Option<Rollout>,
    evaluations: Vec<Evaluation>,
    actuals: BTreeMap<Place, Option<Actual>>,
    evacuating: BTreeMap<Place, Option<Evacuating>>,
}

impl<'a> Draft<'a> {
    pub(super) const fn new(world: &'a World, position: Position) -> Self {
        Self {
            world,
            position,
            processes: BTreeMap::new(),
            tasks: BTreeMap::new(),
            periodics: BTreeMap::new(),
            parameterised: BTreeMap::new(),
            cells: BTreeMap::new(),
            cluster: None,
        }
    }

    /// Returns the last version of an aggregate that shares its subject with other aggregates. `None` if the
    /// aggregate has a subject of its own.
    pub(super) fn version(&self, aggregate: &Aggregate) -> Option<u64> {
        let version = match aggregate {
            Aggregate::Process { guid, .. } => match self.processes.get(guid) {
                Some(drafted) => drafted.version,
                None => self.world.process(guid).map_or(0, |process| process.version),
            },
            Aggregate::Task { guid, .. } => match self.tasks.get(guid) {
                Some(task) => task.as_ref().map_or(0, |task| task.version),
                None => self.world.task(guid).map_or(0, |task| task.version),
            },
            Aggregate::Periodic { guid, .. } => match self.periodics.get(guid) {
                Some(known) => known.as_ref().map_or(0, |known| known.version),
                None => self.world.periodic(guid).map_or(0, |known| known.version),
            },
            Aggregate::Parameterised { guid, .. } => match self.parameterised.get(guid) {
                Some(known) => known.as_ref().map_or(0, |known| known.version),
                None => self.world.parameterised(guid).map_or(0, |known| known.version),
            },
            Aggregate::Domain(_) | Aggregate::Cell(_) | Aggregate::Cluster => return None,
        };
        Some(version)
    }

    /// Returns `true` if the decision starts an epoch and nothing of an earlier epoch is left. The state is
    /// then known, even after a quarantined entry.
    pub(super) fn starts_clean_epoch(&self, decision: &Decision) -> bool {
        let is_empty = match &decision.aggregate {
            Aggregate::Process { guid, .. } => match self.processes.get(guid) {
                Some(drafted) => drafted.instances().next().is_none() && drafted.twins().next().is_none(),
                None => self.world.process(guid).is_none_or(|process| process.slots.is_empty()),
            },
            // A new epoch of these aggregates keeps nothing of the previous epoch.
            Aggregate::Task { .. } | Aggregate::Periodic { .. } | Aggregate::Parameterised { .. } => true,
            Aggregate::Cell(id) => match self.cells.get(id) {
                Some(cell) => cell.is_none(),
                None => self.world.cell(id).is_none(),
            },
            Aggregate::Domain(_) | Aggregate::Cluster => false,
        };
        is_empty && starts_epoch(decision)
    }

    /// Checks a decision against the rules, and applies it.
    pub(super) fn judge(&mut self, decision: &Decision) -> Vec<Violation> {
        match &decision.aggregate {
            Aggregate::Process { guid, .. } => self.process(guid, decision),
            Aggregate::Task { guid, .. } => self.task(guid, decision),
            Aggregate::Periodic { guid, .. } => self.periodic(guid, decision),
            Aggregate::Parameterised { guid, .. } => self.parameterised(guid, decision),
            // A refresh sets a new expiry, independent of the previous state.
            Aggregate::Domain(_) => vec![],
            Aggregate::Cell(id) => self.cell(id, decision),
            Aggregate::Cluster => self.cluster(decision),
        }
    }

    fn process(&mut self, guid: &ProcessGuid, decision: &Decision) -> Vec<Violation> {
        let before = self.world.process(guid);
        let drafted = self.processes.entry(guid.clone()).or_insert_with(|| DraftProcess::new(before));
        drafted.judge(decision)
    }

    fn task(&mut self, guid: &TaskGuid, decision: &Decision) -> Vec<Violation> {
        let before = self.tasks.remove(guid).unwrap_or_else(|| self.world.task(guid).cloned());
        let known = before.as_ref().map(|task| (&task.domain, task.epoch));
        let mut wrong: Vec<Violation> = life(decision, known).into_iter().collect();
        let (mut task, stamp) = (before, decision.stamp());
        for event in &decision.events {
            if let Event::Task(event) = event {
                wrong.extend(tasks::check_task(task.as_ref(), event, decision));
            }
            if let Event::Evaluation(event) = event {
                let known = task.as_ref().map(|task| task.evaluations.to_vec());
                wrong.extend(check_evaluation(&known.unwrap_or_default(), event, &stamp));
            }
            task = task::evolve(task, std::slice::from_ref(event), &stamp);
        }
        if let Some(task) = &mut task {
            task.version = decision.version;
        }
        self.tasks.insert(guid.clone(), task);
        wrong
    }

    fn periodic(&mut self, guid: &PeriodicGuid, decision: &Decision) -> Vec<Violation> {
        let mut known = self.periodics.remove(guid).unwrap_or_else(|| self.world.periodic(guid).cloned());
        let events = || decision.events.iter().filter_map(Event::as_periodic);
        let before = known.as_ref().map(|known| (&known.domain, known.epoch));
        let mut wrong: Vec<Violation> = life(decision, before).into_iter().collect();
        for event in events() {
            wrong.extend(launchers::periodic(known.as_ref(), event));
            known = periodic::evolve(known, [event], &decision.stamp());
        }
        if let Some(known) = &mut known {
            known.version = decision.version;
        }
        self.periodics.insert(guid.clone(), known);
        wrong
    }

    fn parameterised(&mut self, guid: &ParameterisedGuid, decision: &Decision) -> Vec<Violation> {
        let taken = self.parameterised.remove(guid);
        let mut known = taken.unwrap_or_else(|| self.world.parameterised(guid).cloned());
        let events = || decision.events.iter().filter_map(Event::as_parameterised);
        let before = known.as_ref().map(|known| (&known.domain, known.epoch));
        let mut wrong: Vec<Violation> = life(decision, before).into_iter().collect();
        for event in events() {
            wrong.extend(launchers::parameterised(known.as_ref(), event));
        }
        known = parameterised::evolve(known, events(), &decision.stamp());
        if let Some(known) = &mut known {
            known.version = decision.version;
        }
        self.parameterised.insert(guid.clone(), known);
        wrong
    }

    fn cell(&mut self, id: &CellId, decision: &Decision) -> Vec<Violation> {
        let mut cell = self.cells.remove(id).unwrap_or_else(|| self.world.cell(id).cloned());
        let mut wrong = vec![];
        for event in decision.events.iter().filter_map(Event::as_cell) {
            wrong.extend(fleet::cell(cell.as_ref(), event, decision));
            cell = cell::evolve(cell, event, &decision.stamp());
        }
        self.cells.insert(id.clone(), cell);
        wrong
    }

    fn cluster(&mut self, decision: &Decision) -> Vec<Violation> {
        let mut cluster = self.cluster.take().unwrap_or_else(|| self.world.cluster().cloned());
        let mut wrong = vec![];
        for event in decision.events.iter().filter_map(Event::as_cluster) {
            wrong.extend(fleet::check_cluster(cluster.as_ref(), event, decision, self.position));
            cluster = cluster::evolve(cluster, event, decision.at);
        }
        self.cluster = Some(cluster);
        wrong
    }
}

impl<'a> DraftProcess<'a> {
    fn new(before: Option<&'a Process>) -> Self {
        Self {
            before,
            domain_and_epoch: before.map(|process| (process.domain.clone(), process.epoch)),
            version: before.map_or(0, |process| process.version),
            desired: before.and_then(|process| process.desired.as_deref().cloned()),
            rollout: before.and_then(|process| process.rollout.as_deref().cloned()),
            evaluations: before.map(|process| process.evaluations.to_vec()).unwrap_or_default(),
            actuals: BTreeMap::new(),
            evacuating: BTreeMap::new(),
        }
    }

    /// Returns the instance in a slot.
    pub(super) fn actual(&self, place: &Place) -> Option<&Actual> {
        match self.actuals.get(place) {
            Some(drafted) => drafted.as_ref(),
            None => self.before?.actual(place),
        }
    }

    /// Returns the evacuating instance in a slot.
    pub(super) fn evacuating_instance(&self, place: &Place) -> Option<&Evacuating> {
        match self.evacuating.get(place) {
            Some(drafted) => drafted.as_ref(),
            None => self.before?.slot(place)?.evacuating.as_deref(),
        }
    }

    /// Returns every instance with its slot.
    pub(super) fn instances(&self) -> impl Iterator<Item = (&Place, &Actual)> {
        let slots = self.before.into_iter().flat_map(|process| process.slots.iter());
        let kept = slots.filter(|slot| !self.actuals.contains_key(&slot.place));
        let kept = kept.filter_map(|slot| Some((&slot.place, slot.actual.as_ref()?)));
        kept.chain(self.actuals.iter().filter_map(|(place, drafted)| Some((place, drafted.as_ref()?))))
    }

    /// Returns every evacuating instance with its slot.
    pub(super) fn twins(&self) -> impl Iterator<Item = (&Place, &Evacuating)> {
        let slots = self.before.into_iter().flat_map(|process| process.slots.iter());
        let kept = slots.filter(|slot| !self.evacuating.contains_key(&slot.place));
        let kept = kept.filter_map(|slot| Some((&slot.place, slot.evacuating.as_deref()?)));
        kept.chain(self.evacuating.iter().filter_map(|(place, drafted)| Some((place, drafted.as_ref()?))))
    }

    fn judge(&mut self, decision: &Decision) -> Vec<Violation> {
        let stamp = decision.stamp();
        let known = self.domain_and_epoch.as_ref().map(|(domain, epoch)| (domain, *epoch));
        let mut wrong: Vec<Violation> = life(decision, known).into_iter().collect();
        for event in &decision.events {
            match event {
                Event::Desired(event) => {
                    wrong.extend(rollouts::desired(self, event));
                    let (desired, rollout) = (self.desired.take(), self.rollout.take());
                    (self.desired, self.rollout) = process::evolve_desired(desired, rollout, event);
                }
                Event::Rollout(event) => {
                    wrong.extend(rollouts::check_rollout(self, event, decision));
                    self.rollout = rollout::evolve(self.rollout.take(), event, decision.at);
                }
                Event::Actual(event) => self.instance(event, decision, &mut wrong),
                Event::Evacuating(event) => {
                    wrong.extend(instances::twin(self, event, decision));
                    let (evacuating::Event::Set { place, .. } | evacuating::Event::Removed { place, .. }) =
                        event;
                    self.evacuating.insert(place.clone(), machines::evacuating::evolve(event, decision.at));
                }
                Event::Evaluation(event) => {
                    wrong.extend(check_evaluation(&self.evaluations, event, &stamp));
                    evaluation::fold(&mut self.evaluations, event, &stamp);
                }
                Event::Task(_)
                | Event::Periodic(_)
                | Event::Parameterised(_)
                | Event::Domain(_)
                | Event::Cell(_)
                | Event::Cluster(_) => {}
            }
        }
        wrong.extend(rollouts::check_at_most_two(self));
        self.version = decision.version;
        if let Aggregate::Process { domain, epoch, .. } = &decision.aggregate {
            self.domain_and_epoch = Some((domain.clone(), *epoch));
        }
        wrong
    }

    fn instance(&mut self, event: &actual::Event, decision: &Decision, wrong: &mut Vec<Violation>) {
        for place in event.places().iter() {
            wrong.extend(instances::check_instance(self, &place, event, decision));
            let before = self.actual(&place).cloned();
            self.actuals.insert(place, machines::actual::evolve(before, event, decision.at));
        }
    }
}

/// Checks an event of an evaluation against the table of transitions.
fn check_evaluation(
    known: &[Evaluation],
    event: &schemas::evaluation::Event,
    stamp: &Stamp,
) -> Option<Violation> {
    let id = event.evaluation(stamp.decision);
    let from = known
        .iter()
        .rev()
        .find(|one| one.id == id)
        .map_or(StatusKind::New, |one| StatusKind::from_status(&one.status));
    let legal = evaluation::transition(from, evaluation::Step::from_event(event)).is_some();
    let what =
        || format!("evaluation {id} is {from:?}: invalid step {:?}", evaluation::Step::from_event(event));
    (!legal).then(|| (Kind::Illegal, what()))
}
