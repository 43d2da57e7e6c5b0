//! Causes: which decision each decision has to name, told from the log alone.
//!
//! Each place of a process and each task has one decision that last made work for it or asked it to stop. Whatever is decided of it
//! afterwards names that one; only what a cell's loss or evacuation brings about names what the log says of the cell.
//! Clients begin chains, and so do cells, what a rep tells of which nobody knows, and what only convergence finds.

use std::collections::{BTreeMap, BTreeSet};

use schemas::actual::{self, StopReason, UnclaimReason};
use schemas::container::WorkKey;
use schemas::definition::Mode;
use schemas::desired::GlobalCell;
use schemas::entry::{Aggregate, Event};
use schemas::evacuating::{self, RemovalReason};
use schemas::names::{
    CellId, DecisionId, DefinitionId, Incarnation, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid,
};
use schemas::stamp::Actor;
use schemas::subject::Position;
use schemas::{
    ActualLrpKey, Decision, Place, Timestamp, cell, desired, parameterised, periodic, rollout, task,
};

use super::Notes;
use crate::promises::Promise as P;

/// What is known of who caused what.
#[derive(Default)]
pub(super) struct Causes {
    /// The first decision of the chain of each.
    first: BTreeMap<DecisionId, DecisionId>,
    processes: BTreeMap<ProcessGuid, Process>,
    tasks: BTreeMap<TaskGuid, DecisionId>,
    /// By which decision each periodic task last began to launch as it does.
    periodics: BTreeMap<PeriodicGuid, DecisionId>,
    /// By which decision each dispatch was made, by its number.
    dispatches: BTreeMap<(ParameterisedGuid, u64), DecisionId>,
    /// By which decision each task was launched that was.
    launched: BTreeMap<TaskGuid, DecisionId>,
    cells: BTreeMap<CellId, Vec<(Position, Moved)>>,
    ordered: BTreeMap<CellId, Ordered>,
    /// By which decisions each piece of work was made.
    made: BTreeMap<WorkKey, BTreeSet<DecisionId>>,
}

/// What operators ordered of a cell, and whether it is there to follow.
#[derive(Default)]
struct Ordered {
    present: bool,
    evacuating: bool,
    wanted: bool,
    incarnation: Option<Incarnation>,
}

/// A decision by which a cell came, went, began or ceased to evacuate, or was told to, and whether work leaves it since.
#[derive(Clone, Copy)]
struct Moved {
    decision: DecisionId,
    away: bool,
    forgotten: bool,
}

#[derive(Default)]
struct Process {
    /// How many instances somebody wants, and who said so last.
    wanted: Option<(u32, DecisionId)>,
    /// The cells of a global process, by their indices.
    cells: Option<BTreeMap<u32, GlobalCell>>,
    /// By which decision the last rollout of its life began.
    rollout: Option<DecisionId>,
    places: BTreeMap<Place, Records>,
}

/// The records of a place.
struct Records {
    cause: DecisionId,
    changed_at: Timestamp,
    instance: bool,
    holder: Option<CellId>,
    twin: Option<CellId>,
}

impl Process {
    /// The last decision about a place, if somebody still knows of one: without records of its own it takes over from
    /// the one at its index that changed last.
    fn about(&self, place: &Place) -> Option<DecisionId> {
        // On a cell that takes no new work nothing is wanted but what is there.
        let may_start = |wanted: u32| match &self.cells {
            None => place.index < wanted,
            Some(cells) => cells.get(&place.index).is_some_and(|cell| !cell.cordoned),
        };
        let unwanted = self.wanted.filter(|(wanted, _)| !may_start(*wanted)).map(|(_, decision)| decision);
        let first = Place::new(place.index, DefinitionId::min_value());
        let others = || self.places.range(first..).take_while(|(known, _)| known.index == place.index);
        let newest = || others().map(|(_, known)| known).max_by_key(|known| known.changed_at);
        let known = self.places.get(place).or_else(newest);
        known.map(|known| known.cause).or(unwanted)
    }
}

impl Causes {
    /// A process is forgotten.
    pub(super) fn forget(&mut self, guid: &ProcessGuid) {
        self.processes.remove(guid);
    }

    /// A decision stands at a position, made by somebody whose log ended at `basis`.
    pub(super) fn judge(
        &mut self,
        decision: &Decision,
        (position, basis): (Position, Position),
        preemptor: &[WorkKey],
        notes: &mut Notes,
    ) {
        let expected = if preemptor.is_empty() {
            self.expected(decision, basis)
        } else {
            // What something is stopped for may be of another shard: whoever decides knows one of those that made it.
            let made = preemptor.iter().filter_map(|work| self.made.get(work)).flatten();
            let right = decision.cause.is_some_and(|cause| made.into_iter().any(|made| *made == cause));
            notes.must(P::CausesTrue, right, || {
                format!(
                    "what is stopped for {preemptor:?} names {:?}, which didn't make that",
                    decision.cause
                )
            });
            vec![]
        };
        for (about, cause) in &expected {
            notes.must(P::CausesTrue, decision.cause == *cause, || {
                format!("a decision about {about} names {:?} as its cause, not {cause:?}", decision.cause)
            });
        }
        let first = match decision.cause {
            None => Some(decision.id),
            Some(cause) => self.first.get(&cause).copied(),
        };
        notes.must(P::CausesTrue, first == Some(decision.correlation), || {
            format!("{} names {} as the first of its chain, not {first:?}", decision.id, decision.correlation)
        });
        let by_auctioneer = matches!(decision.actor, Actor::Auctioneer(_));
        notes.must(
            P::CausesTrue,
            decision.cause.is_some() || !by_auctioneer || is_election(decision),
            || "an auctioneer began something".into(),
        );
        self.first.insert(decision.id, decision.correlation);
        self.fold(decision, position);
    }

    /// What a decision is about, and the cause that it has to name: more than one, if it is about several indices that
    /// have to be decided about together.
    fn expected(&self, decision: &Decision, basis: Position) -> Vec<(String, Option<DecisionId>)> {
        let by_client = matches!(decision.actor, Actor::Client { .. });
        match &decision.aggregate {
            Aggregate::Periodic { guid, .. } if by_client => vec![(guid.to_string(), None)],
            Aggregate::Periodic { guid, .. } => {
                vec![(guid.to_string(), self.periodics.get(guid).copied())]
            }
            Aggregate::Parameterised { guid, .. } if by_client => vec![(guid.to_string(), None)],
            // What waited is launched because it was dispatched.
            Aggregate::Parameterised { guid, .. } => {
                let number = decision.events.iter().find_map(launched_number);
                let of = number.and_then(|number| self.dispatches.get(&(guid.clone(), number)));
                vec![(guid.to_string(), of.copied())]
            }
            Aggregate::Domain(_) | Aggregate::Cluster => {
                vec![(format!("{:?}", decision.aggregate), None)]
            }
            Aggregate::Cell(id) => vec![(id.to_string(), self.of_order(id, decision))],
            Aggregate::Process { guid, .. } if by_client => vec![(guid.to_string(), None)],
            // What is launched comes of its launch, which stands in the same entry before it.
            Aggregate::Task { guid, .. } if is_launched(decision) => {
                vec![(guid.to_string(), self.launched.get(guid).copied())]
            }
            Aggregate::Task { guid, .. } if by_client => vec![(guid.to_string(), None)],
            Aggregate::Task { guid, .. } => {
                let lost = decision.events.iter().find_map(|event| task_lost_on(event));
                let cell = lost.and_then(|cell| self.moved(cell, basis));
                vec![(guid.to_string(), cell.or_else(|| self.tasks.get(guid).copied()))]
            }
            Aggregate::Process { guid, .. } => {
                let none = Process::default();
                let known = self.processes.get(guid).unwrap_or(&none);
                // What convergence does about a cell that came, changed or left comes of that.
                if let Some(Event::Desired(desired::Event::CellsChanged { cells, removed: left })) =
                    decision.events.first()
                {
                    let before = |index| known.cells.as_ref()?.get(&index);
                    let of = cells.first().map(|(_, cell)| cell).or_else(|| before(left.iter().next()?));
                    let cause = of.and_then(|of| self.news(&of.cell_id, basis));
                    return vec![(guid.to_string(), cause)];
                }
                if decision.events.first().is_some_and(is_of_rollout) {
                    let cause = known.rollout.or(known.wanted.map(|(_, decision)| decision));
                    return vec![(guid.to_string(), cause)];
                }
                let mut of_indices = self.of_indices(known, decision, basis);
                // An auctioneer says of many indices at once that there is no room: the first tells for all.
                if matches!(decision.actor, Actor::Auctioneer(_)) {
                    of_indices.truncate(1);
                }
                // What a rollout does at other indices comes of what happened at the first.
                if decision.events.iter().any(is_of_rollout) {
                    let first = first_index(decision);
                    of_indices.retain(|(index, ..)| Some(*index) == first);
                }
                of_indices.into_iter().map(|(index, cause)| (format!("{guid}/{index}"), cause)).collect()
            }
        }
    }

    /// What a rep says of its cell because it was told so names what was last decided of that.
    fn of_order(&self, id: &CellId, decision: &Decision) -> Option<DecisionId> {
        let ordered = self.ordered.get(id).filter(|ordered| ordered.present)?;
        let follows = decision.events.iter().any(|event| match event {
            Event::Cell(cell::Event::Evacuating {}) => ordered.wanted,
            Event::Cell(cell::Event::Resumed {} | cell::Event::Left {}) => true,
            Event::Cell(
                cell::Event::Appeared(_)
                | cell::Event::EvacuationRequested {}
                | cell::Event::EvacuationWithdrawn {}
                | cell::Event::Cordoned {}
                | cell::Event::Uncordoned {}
                | cell::Event::Healthy {}
                | cell::Event::Unhealthy { .. }
                | cell::Event::Disappeared { .. }
                | cell::Event::Forgotten {},
            )
            | Event::Desired(_)
            | Event::Actual(_)
            | Event::Evacuating(_)
            | Event::Rollout(_)
            | Event::Evaluation(_)
            | Event::Task(_)
            | Event::Periodic(_)
            | Event::Parameterised(_)
            | Event::Domain(_)
            | Event::Cluster(_) => false,
        });
        let (_, last) = self.cells.get(id)?.last()?;
        follows.then_some(last.decision)
    }

    fn of_indices(
        &self,
        known: &Process,
        decision: &Decision,
        basis: Position,
    ) -> Vec<(u32, Option<DecisionId>)> {
        let mut causes: BTreeMap<u32, (bool, Option<DecisionId>)> = BTreeMap::new();
        for event in &decision.events {
            let (places, of_instance): (Vec<Place>, bool) = match event {
                Event::Actual(event) => (event.places().iter().collect(), true),
                Event::Evacuating(evacuating::Event::Removed { place, cause }) => {
                    (vec![place.clone()], is_replaced(*cause))
                }
                Event::Evacuating(evacuating::Event::Set { place, .. }) => (vec![place.clone()], false),
                Event::Desired(_)
                | Event::Rollout(_)
                | Event::Evaluation(_)
                | Event::Task(_)
                | Event::Periodic(_)
                | Event::Parameterised(_)
                | Event::Domain(_)
                | Event::Cell(_)
                | Event::Cluster(_) => continue,
            };
            for place in places {
                // The first that is told of an instance counts, and what it means for others at its index comes of it;
                // if nothing is, the first that is told of a twin.
                if causes.get(&place.index).is_some_and(|(instance, _)| *instance || !of_instance) {
                    continue;
                }
                let cell = left_with(event, known.places.get(&place));
                let moved = cell.and_then(|cell| self.moved(cell, basis));
                causes.insert(place.index, (of_instance, moved.or_else(|| known.about(&place))));
            }
        }
        causes.into_iter().map(|(index, (_, cause))| (index, cause)).collect()
    }

    /// What is the matter with a cell for somebody whose log ended there, if work leaves it.
    fn moved(&self, cell: &CellId, basis: Position) -> Option<DecisionId> {
        self.last(cell, basis).filter(|last| last.away).map(|last| last.decision)
    }

    /// What happened last to a cell for somebody whose log ended there, if it was not forgotten.
    fn news(&self, cell: &CellId, basis: Position) -> Option<DecisionId> {
        self.last(cell, basis).filter(|last| !last.forgotten).map(|last| last.decision)
    }

    fn last(&self, cell: &CellId, basis: Position) -> Option<&Moved> {
        let history = self.cells.get(cell)?;
        history.iter().take_while(|(position, _)| *position <= basis).last().map(|(_, last)| last)
    }

    fn fold_periodic(&mut self, guid: &PeriodicGuid, event: &periodic::Event, decision: DecisionId) {
        match event {
            periodic::Event::Desired { .. }
            | periodic::Event::Updated { .. }
            | periodic::Event::Resumed { .. } => {
                self.periodics.insert(guid.clone(), decision);
            }
            periodic::Event::Launched { task_guid, .. } => {
                self.launched.insert(task_guid.clone(), decision);
            }
            periodic::Event::Skipped { .. }
            | periodic::Event::Queued { .. }
            | periodic::Event::Paused {}
            | periodic::Event::Removed {} => {}
        }
    }

    fn fold_parameterised(
        &mut self,
        guid: &ParameterisedGuid,
        event: &parameterised::Event,
        decision: DecisionId,
    ) {
        match event {
            parameterised::Event::Dispatched { number, .. } => {
                self.dispatches.insert((guid.clone(), *number), decision);
            }
            parameterised::Event::Launched { task_guid, .. } => {
                self.launched.insert(task_guid.clone(), decision);
            }
            parameterised::Event::Desired { .. }
            | parameterised::Event::Updated { .. }
            | parameterised::Event::Repeated { .. }
            | parameterised::Event::Withdrawn { .. }
            | parameterised::Event::Removed {} => {}
        }
    }

    /// Takes down which work a decision makes.
    fn makes(&mut self, event: &Event, decision: &Decision) {
        match (event, &decision.aggregate) {
            (Event::Actual(event), Aggregate::Process { guid, epoch, .. }) if event.creates_work() => {
                for place in event.places().iter() {
                    let key = ActualLrpKey::new(guid.clone(), place);
                    self.made.entry(WorkKey::Lrp { key, epoch: *epoch }).or_default().insert(decision.id);
                }
            }
            (Event::Task(task::Event::Desired(_)), Aggregate::Task { guid, epoch, .. }) => {
                let key = WorkKey::Task { task_guid: guid.clone(), epoch: *epoch };
                self.made.entry(key).or_default().insert(decision.id);
            }
            (
                Event::Actual(_)
                | Event::Task(_)
                | Event::Desired(_)
                | Event::Evacuating(_)
                | Event::Rollout(_)
                | Event::Evaluation(_)
                | Event::Periodic(_)
                | Event::Parameterised(_)
                | Event::Domain(_)
                | Event::Cell(_)
                | Event::Cluster(_),
                _,
            ) => {}
        }
    }

    fn fold(&mut self, decision: &Decision, position: Position) {
        for event in &decision.events {
            self.makes(event, decision);
            match (event, &decision.aggregate) {
                (Event::Cell(event), Aggregate::Cell(id)) => {
                    self.ordered.entry(id.clone()).or_default().fold(event);
                    let history = self.cells.entry(id.clone()).or_default();
                    let before = history.last().is_some_and(|(_, last)| last.away);
                    let away = match event {
                        cell::Event::Appeared(_) | cell::Event::Resumed {} | cell::Event::Forgotten {} => {
                            Some(false)
                        }
                        cell::Event::Evacuating {}
                        | cell::Event::Left {}
                        | cell::Event::Disappeared { .. } => Some(true),
                        cell::Event::EvacuationRequested {}
                        | cell::Event::EvacuationWithdrawn {}
                        | cell::Event::Cordoned {}
                        | cell::Event::Uncordoned {} => Some(before),
                        cell::Event::Healthy {} | cell::Event::Unhealthy { .. } => None,
                    };
                    let forgotten = matches!(event, cell::Event::Forgotten {});
                    let moved = |away| Moved { decision: decision.id, away, forgotten };
                    history.extend(away.map(|away| (position, moved(away))));
                }
                (Event::Task(event), Aggregate::Task { guid, .. }) => match event {
                    task::Event::Desired(_)
                    | task::Event::Completed { .. }
                    | task::Event::Resolving {}
                    | task::Event::Demoted {} => {
                        self.tasks.insert(guid.clone(), decision.id);
                    }
                    task::Event::Started { .. }
                    | task::Event::PlacementFailed { .. }
                    | task::Event::CallbackTried { .. }
                    | task::Event::Deleted {} => {}
                },
                (Event::Periodic(event), Aggregate::Periodic { guid, .. }) => {
                    self.fold_periodic(guid, event, decision.id);
                }
                (Event::Parameterised(event), Aggregate::Parameterised { guid, .. }) => {
                    self.fold_parameterised(guid, event, decision.id);
                }
                (event, Aggregate::Process { guid, .. }) => {
                    self.processes.entry(guid.clone()).or_default().fold(event, decision.id, decision.at);
                }
                (
                    Event::Desired(_)
                    | Event::Actual(_)
                    | Event::Evacuating(_)
                    | Event::Rollout(_)
                    | Event::Evaluation(_)
                    | Event::Task(_)
                    | Event::Periodic(_)
                    | Event::Parameterised(_)
                    | Event::Domain(_)
                    | Event::Cell(_)
                    | Event::Cluster(_),
                    _,
                ) => {}
            }
        }
    }
}

impl Ordered {
    fn fold(&mut self, event: &cell::Event) {
        match event {
            cell::Event::Appeared(presence) => {
                // One that was lost while it evacuated, and starts anew, has nothing left to move away.
                let over = self.incarnation != Some(presence.incarnation);
                self.wanted &= self.present || !self.evacuating || !over;
                (self.present, self.evacuating) = (true, false);
                self.incarnation = Some(presence.incarnation);
            }
            cell::Event::EvacuationRequested {} => self.wanted = true,
            cell::Event::EvacuationWithdrawn {} => self.wanted = false,
            cell::Event::Evacuating {} => self.evacuating = true,
            cell::Event::Resumed {} => self.evacuating = false,
            cell::Event::Cordoned {}
            | cell::Event::Uncordoned {}
            | cell::Event::Healthy {}
            | cell::Event::Unhealthy { .. } => {}
            cell::Event::Disappeared { .. } => self.present = false,
            cell::Event::Left {} | cell::Event::Forgotten {} => *self = Self::default(),
        }
    }
}

impl Process {
    fn fold(&mut self, event: &Event, decision: DecisionId, at: Timestamp) {
        match event {
            Event::Desired(event) => {
                self.change_cells(event);
                let wanted = match event {
                    desired::Event::Desired(lrp) => Some(lrp.instances),
                    desired::Event::Updated(update) => update.instances,
                    desired::Event::Removed {} => Some(0),
                    desired::Event::DefinitionAdded { .. }
                    | desired::Event::Activated { .. }
                    | desired::Event::HealthyChanged { .. }
                    | desired::Event::Pruned { .. }
                    | desired::Event::CellsChanged { .. } => None,
                };
                self.wanted = wanted.map(|wanted| (wanted, decision)).or(self.wanted);
                if let desired::Event::Desired(_) | desired::Event::Removed {} = event {
                    self.rollout = None;
                }
            }
            Event::Actual(event) => {
                for place in event.places().iter() {
                    let changed = !matches!(event, actual::Event::PlacementFailed { .. });
                    self.at(&place, decision, changed.then_some(at)).of_instance(event, decision);
                    self.drop_empty(&place);
                }
            }
            Event::Evacuating(evacuating::Event::Set { place, by, .. }) => {
                self.at(place, decision, Some(at)).twin = Some(by.cell_id.clone());
            }
            Event::Evacuating(evacuating::Event::Removed { place, .. }) => {
                self.at(place, decision, Some(at)).twin = None;
                self.drop_empty(place);
            }
            Event::Rollout(rollout::Event::Started { .. }) => self.rollout = Some(decision),
            Event::Rollout(_)
            | Event::Evaluation(_)
            | Event::Task(_)
            | Event::Periodic(_)
            | Event::Parameterised(_)
            | Event::Domain(_)
            | Event::Cell(_)
            | Event::Cluster(_) => {}
        }
    }

    fn change_cells(&mut self, event: &desired::Event) {
        match event {
            desired::Event::Desired(lrp) => self.cells = (lrp.mode == Mode::Global).then(BTreeMap::new),
            desired::Event::Removed {} => self.cells = None,
            desired::Event::CellsChanged { cells, removed: left } => {
                let known = self.cells.get_or_insert_default();
                known.retain(|index, _| !left.contains(*index));
                known.extend(cells.iter().cloned());
            }
            desired::Event::Updated(_)
            | desired::Event::DefinitionAdded { .. }
            | desired::Event::Activated { .. }
            | desired::Event::HealthyChanged { .. }
            | desired::Event::Pruned { .. } => {}
        }
    }

    fn at(&mut self, place: &Place, cause: DecisionId, changed_at: Option<Timestamp>) -> &mut Records {
        let new = Records { cause, changed_at: Timestamp(0), instance: false, holder: None, twin: None };
        let records = self.places.entry(place.clone()).or_insert(new);
        records.changed_at = changed_at.unwrap_or(records.changed_at);
        records
    }

    fn drop_empty(&mut self, place: &Place) {
        if self.places.get(place).is_some_and(|known| !known.instance && known.twin.is_none()) {
            self.places.remove(place);
        }
    }
}

impl Records {
    fn of_instance(&mut self, event: &actual::Event, decision: DecisionId) {
        self.instance = true;
        match event {
            actual::Event::Created { .. }
            | actual::Event::Unclaimed { .. }
            | actual::Event::Crashed { .. } => {
                self.cause = decision;
                self.holder = None;
            }
            actual::Event::StopRequested { .. } => self.cause = decision,
            actual::Event::Claimed { by, .. } | actual::Event::Started { by, .. } => {
                self.holder = Some(by.cell_id.clone());
            }
            actual::Event::ExecStarted { .. } | actual::Event::PlacementFailed { .. } => {}
            actual::Event::Removed { .. } => {
                self.instance = false;
                self.holder = None;
            }
        }
    }
}

/// The cell that an event says an instance has to leave, or has left.
fn left_with<'a>(event: &'a Event, known: Option<&'a Records>) -> Option<&'a CellId> {
    match event {
        Event::Actual(
            actual::Event::Unclaimed { cause: UnclaimReason::CellLost | UnclaimReason::Evacuation, .. }
            | actual::Event::Removed { cause: StopReason::CellLost, .. },
        ) => known?.holder.as_ref(),
        Event::Evacuating(evacuating::Event::Set { by, .. }) => Some(&by.cell_id),
        Event::Evacuating(evacuating::Event::Removed { cause: RemovalReason::CellLost, .. }) => {
            known?.twin.as_ref()
        }
        Event::Actual(_)
        | Event::Evacuating(_)
        | Event::Rollout(_)
        | Event::Desired(_)
        | Event::Evaluation(_)
        | Event::Task(_)
        | Event::Periodic(_)
        | Event::Parameterised(_)
        | Event::Domain(_)
        | Event::Cell(_)
        | Event::Cluster(_) => None,
    }
}

/// Whether a decision desires what a periodic or parameterised task launched.
pub(super) fn is_launched(decision: &Decision) -> bool {
    let is_desire = |event: &Event| matches!(event, Event::Task(task::Event::Desired(desired)) if desired.task_guid.as_str().contains("--"));
    decision.events.iter().any(is_desire)
}

/// The number of the dispatch that an event launches.
const fn launched_number(event: &Event) -> Option<u64> {
    match event {
        Event::Parameterised(parameterised::Event::Launched { number, .. }) => Some(*number),
        Event::Parameterised(_)
        | Event::Periodic(_)
        | Event::Actual(_)
        | Event::Evacuating(_)
        | Event::Rollout(_)
        | Event::Desired(_)
        | Event::Evaluation(_)
        | Event::Task(_)
        | Event::Domain(_)
        | Event::Cell(_)
        | Event::Cluster(_) => None,
    }
}

/// The cell whose loss or evacuation ended a task.
fn task_lost_on(event: &Event) -> Option<&CellId> {
    match event {
        Event::Task(task::Event::Completed {
            by: Some(by),
            outcome: task::Outcome::Failed { reason },
            ..
        }) if reason == "cell disappeared before completion"
            || reason == "timed out during cell evacuation" =>
        {
            Some(&by.cell_id)
        }
        Event::Task(_)
        | Event::Periodic(_)
        | Event::Parameterised(_)
        | Event::Actual(_)
        | Event::Evacuating(_)
        | Event::Rollout(_)
        | Event::Desired(_)
        | Event::Evaluation(_)
        | Event::Domain(_)
        | Event::Cell(_)
        | Event::Cluster(_) => None,
    }
}

/// Whether an event is of a rollout, or of what one sees to.
fn is_of_rollout(event: &Event) -> bool {
    match event {
        Event::Rollout(_)
        | Event::Desired(desired::Event::HealthyChanged { .. } | desired::Event::Pruned { .. }) => true,
        Event::Desired(_)
        | Event::Actual(_)
        | Event::Evacuating(_)
        | Event::Evaluation(_)
        | Event::Task(_)
        | Event::Periodic(_)
        | Event::Parameterised(_)
        | Event::Domain(_)
        | Event::Cell(_)
        | Event::Cluster(_) => false,
    }
}

/// Whether what takes the place of a twin comes of the same: it is lost, or its time is over.
const fn is_replaced(gone: RemovalReason) -> bool {
    match gone {
        RemovalReason::CellLost | RemovalReason::Expired => true,
        RemovalReason::Replaced | RemovalReason::Removed => false,
    }
}

/// The index of which a decision speaks first: of its instance, or else of its twin.
fn first_index(decision: &Decision) -> Option<u32> {
    let of_instance = |event: &Event| {
        if let Event::Evacuating(evacuating::Event::Removed { place, cause }) = event
            && is_replaced(*cause)
        {
            return Some(place.index);
        }
        let Event::Actual(event) = event else { return None };
        event.places().iter().next().map(|place| place.index)
    };
    let of_twin = |event: &Event| {
        let Event::Evacuating(event) = event else { return None };
        let (evacuating::Event::Set { place, .. } | evacuating::Event::Removed { place, .. }) = event;
        Some(place.index)
    };
    let of_twins = || decision.events.iter().find_map(of_twin);
    decision.events.iter().find_map(of_instance).or_else(of_twins)
}

fn is_election(decision: &Decision) -> bool {
    matches!(decision.aggregate, Aggregate::Cluster)
}
