//! What the log says, folded anew for whoever judges rows: from what each event means (docs/internals/model/README.md), and not from the
//! services' fold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schemas::cell::Presence;
use schemas::cluster::{self, Leader, Role};
use schemas::container::{Epoch, Instance, NetInfo};
use schemas::crash::{Attempts, Restart};
use schemas::definition::{Definition, DesiredLrp, Mode, TaskDefinition};
use schemas::entry::{Aggregate, Event};
use schemas::evaluation::{Evaluation, Status, Wait};
use schemas::names::{
    CellId, ClusterId, DefinitionId, Domain, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid,
};
use schemas::query::{EndedInstanceRow, EndedTaskRow, InstanceState, ModificationTag, TaskState};
use schemas::quota::Quotas;
use schemas::resources::Resources;
use schemas::subject::{Position, Subject};
use schemas::task::{Callback, Outcome};
use schemas::{Decision, Entry, Indices, Place, Timestamp, actual, cell, desired, domain, evacuating, task};

use super::evaluated;
use super::gone::Going;
use crate::checkers::lrp::REMEMBERED;
use crate::checkers::rollouts::Roll;

/// What is true after a position.
#[derive(Clone, Default)]
pub(super) struct Facts {
    pub(super) position: Position,
    pub(super) cluster: Option<(ClusterId, u16, u32)>,
    /// Whether preemption is on.
    pub(super) preemption: bool,
    pub(super) leaders: BTreeMap<Role, Leader>,
    pub(super) processes: BTreeMap<ProcessGuid, Process>,
    pub(super) tasks: BTreeMap<TaskGuid, Task>,
    pub(super) periodics: BTreeMap<PeriodicGuid, super::periodics::Periodic>,
    pub(super) parameterised: BTreeMap<ParameterisedGuid, super::parameterised::Parameterised>,
    /// When each domain was refreshed, and until when that holds.
    pub(super) domains: BTreeMap<Domain, (Timestamp, Option<Timestamp>)>,
    /// Quotas that operators set.
    pub(super) quotas: BTreeMap<Domain, Quotas>,
    /// The ordinals of cells.
    pub(super) ordinals: BTreeMap<u32, CellId>,
    pub(super) cells: BTreeMap<CellId, Cell>,
    /// The containers and the tasks that ended and are remembered, in the order of the log.
    pub(super) ended: Vec<EndedInstanceRow>,
    pub(super) ended_tasks: Vec<EndedTaskRow>,
}

/// A process.
#[derive(Clone)]
pub(super) struct Process {
    pub(super) domain: Domain,
    pub(super) epoch: Epoch,
    pub(super) version: u64,
    pub(super) last_decision: Position,
    pub(super) changed_at: Timestamp,
    pub(super) desired: Option<DesiredLrp>,
    /// The indices of a global process, and which of their cells take no new work.
    pub(super) cells: BTreeMap<u32, bool>,
    /// Every definition of its life that is kept, in the order in which they came.
    pub(super) definitions: Vec<(DefinitionId, Arc<Definition>)>,
    pub(super) healthy: Option<DefinitionId>,
    pub(super) roll: Option<Roll>,
    pub(super) lrps: BTreeMap<Place, Lrp>,
    pub(super) twins: BTreeMap<Place, Twin>,
    /// The version by which each place last changed.
    pub(super) changed: BTreeMap<Place, u64>,
    pub(super) evaluations: Vec<Evaluation>,
    /// What it says of its history, in this life or the last one.
    pub(super) history: Option<u32>,
}

/// An instance.
#[derive(Clone)]
pub(super) struct Lrp {
    pub(super) state: InstanceState,
    pub(super) since: Timestamp,
    pub(super) by: Option<Held>,
    pub(super) net: Option<NetInfo>,
    pub(super) stopping: bool,
    /// Why it is asked to stop.
    pub(super) stop: Option<actual::StopReason>,
    pub(super) error: Option<String>,
    pub(super) crashes: u32,
    pub(super) reason: Option<String>,
    pub(super) crashed_in: Option<Instance>,
    /// Whether and when it runs again; none: it isn't CRASHED.
    pub(super) restart: Option<Restart>,
    pub(super) attempts: Option<Attempts>,
}

/// An evacuating twin.
#[derive(Clone)]
pub(super) struct Twin {
    pub(super) by: Held,
    pub(super) net: NetInfo,
    pub(super) since: Timestamp,
    /// Since when the log says that its container runs.
    pub(super) ran: Timestamp,
}

/// A container and what it takes; none: nobody desired its definition when it was told of, so nobody can say.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) by: Instance,
    pub(super) takes: Option<Resources>,
}

/// A task.
#[derive(Clone)]
pub(super) struct Task {
    pub(super) domain: Domain,
    pub(super) epoch: Epoch,
    pub(super) version: u64,
    pub(super) last_decision: Position,
    pub(super) since: Timestamp,
    pub(super) definition: TaskDefinition,
    /// None: it is deleted.
    pub(super) state: Option<TaskState>,
    pub(super) by: Option<Instance>,
    /// Since when it ran.
    pub(super) ran: Option<Timestamp>,
    pub(super) error: Option<String>,
    pub(super) ended: Option<(Timestamp, Outcome)>,
    pub(super) callback: Option<Callback>,
    pub(super) evaluations: Vec<Evaluation>,
}

/// A cell.
#[derive(Clone)]
pub(super) struct Cell {
    pub(super) presence: Presence,
    pub(super) present: bool,
    pub(super) evacuating: bool,
    pub(super) unhealthy: Option<String>,
    pub(super) wanted_empty: bool,
    /// Whether an operator wants no new work on it.
    pub(super) cordoned: bool,
    pub(super) gone: Option<String>,
    pub(super) since: Timestamp,
}

impl Process {
    /// Whether nobody desires it and nothing of it is left.
    pub(super) fn is_gone(&self) -> bool {
        self.desired.is_none() && self.lrps.is_empty() && self.twins.is_empty()
    }

    /// How much of what an evaluation stands for is left.
    pub(super) fn left(&self, of: &Evaluation) -> u32 {
        let unclaimed = |error: bool| {
            move |lrp: &&Lrp| lrp.state == InstanceState::Unclaimed && lrp.error.is_some() == error
        };
        let left = match (&of.status, of.wait) {
            (Status::Pending, Wait::Restart(_)) => {
                self.lrps.values().filter(|lrp| matches!(lrp.restart, Some(Restart::At(_)))).count()
            }
            (Status::Pending, Wait::Nothing | Wait::Delivery(_)) => {
                self.lrps.values().filter(unclaimed(false)).count()
            }
            (Status::Blocked { .. }, _) => self.lrps.values().filter(unclaimed(true)).count(),
            (Status::Complete | Status::Failed { .. } | Status::Canceled { .. }, _) => 0,
        };
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    /// Which of the places that an event names wait to be placed, and whether each has found no place before.
    fn waiting_at(&self, event: &actual::Event) -> Vec<(Place, bool)> {
        let waits = |place: Place| {
            let lrp = self.lrps.get(&place).filter(|lrp| lrp.state == InstanceState::Unclaimed)?;
            Some((place, lrp.error.is_some()))
        };
        event.places().iter().filter_map(waits).collect()
    }

    /// Counts what of that was placed, or found no place for the first time.
    fn count_moved(&mut self, waited: Vec<(Place, bool)>) {
        for (place, had_error) in waited {
            let Some(lrp) = self.lrps.get(&place) else { continue };
            match lrp.state {
                InstanceState::Claimed | InstanceState::Running => {
                    evaluated::moved(&mut self.evaluations, had_error, true);
                }
                InstanceState::Unclaimed if !had_error && lrp.error.is_some() => {
                    evaluated::moved(&mut self.evaluations, false, false);
                }
                InstanceState::Unclaimed | InstanceState::Crashed => {}
            }
        }
    }

    /// The containers of a place: the instance's, and the twin's if that is another.
    pub(super) fn containers(&self, place: &Place) -> impl Iterator<Item = &Held> {
        let own = self.lrps.get(place).and_then(|lrp| lrp.by.as_ref());
        let twin = self.twins.get(place).map(|twin| &twin.by);
        let other = twin.filter(move |twin| own.is_none_or(|own| own.by != twin.by));
        own.into_iter().chain(other)
    }

    /// The modification tag of a place.
    pub(super) fn tag(&self, place: &Place) -> ModificationTag {
        ModificationTag { epoch: self.epoch, index: self.changed.get(place).copied().unwrap_or_default() }
    }

    /// Every place that has a record, in order.
    pub(super) fn places(&self) -> BTreeSet<&Place> {
        self.lrps.keys().chain(self.twins.keys()).collect()
    }

    /// A container of a place with what it takes: what is noted of it, or what its definition says.
    fn held(&self, place: &Place, by: &Instance) -> Held {
        let noted = self.containers(place).find(|held| held.by == *by).map(|held| held.takes);
        let known = self.definitions.iter().find(|(id, _)| *id == place.definition_id);
        let said = || known.map(|(_, definition)| definition.resources());
        Held { by: by.clone(), takes: noted.unwrap_or_else(said) }
    }

    /// The indices at which an instance is desired.
    pub(super) fn indices_of(&self, desired: &DesiredLrp) -> Indices {
        match desired.mode {
            Mode::Replicated => (0..desired.instances).collect(),
            Mode::Global => self.cells.keys().copied().collect(),
        }
    }

    fn desired(&mut self, event: &desired::Event, at: Timestamp) {
        match event {
            desired::Event::Desired(lrp) => {
                (self.domain, self.epoch) = (lrp.domain.clone(), Epoch(at));
                self.desired = Some((**lrp).clone());
                self.definitions = vec![(lrp.definition_id.clone(), Arc::clone(&lrp.definition))];
                (self.healthy, self.roll) = (None, None);
                self.cells.clear();
            }
            desired::Event::Updated(update) => {
                let Some(desired) = &mut self.desired else { return };
                if let (Some(roll), Some(to)) = (&mut self.roll, update.instances) {
                    roll.scale(desired.instances, to);
                }
                desired.instances = update.instances.unwrap_or(desired.instances);
                desired.priority = update.priority.unwrap_or(desired.priority);
                if let Some(policies) = &update.policies {
                    desired.policies.clone_from(policies);
                }
                if let Some(routes) = &update.routes {
                    desired.routes.clone_from(routes);
                }
                if let Some(annotation) = &update.annotation {
                    desired.annotation.clone_from(annotation);
                }
            }
            desired::Event::Removed {} => {
                (self.desired, self.healthy, self.roll) = (None, None, None);
                self.definitions.clear();
            }
            desired::Event::DefinitionAdded { definition_id, definition } => {
                self.definitions.push((definition_id.clone(), Arc::clone(definition)));
            }
            desired::Event::Activated { definition_id } => {
                let known = self.definitions.iter().find(|(id, _)| id == definition_id);
                if let (Some(desired), Some((id, definition))) = (&mut self.desired, known) {
                    (desired.definition_id, desired.definition) = (id.clone(), Arc::clone(definition));
                }
            }
            desired::Event::HealthyChanged { definition_id } => self.healthy = Some(definition_id.clone()),
            desired::Event::CellsChanged { cells, removed: left } => {
                let before = open_to_work(&self.cells);
                self.cells.retain(|index, _| !left.contains(*index));
                self.cells.extend(cells.iter().map(|(index, cell)| (*index, cell.cordoned)));
                if let Some(roll) = &mut self.roll {
                    roll.follow(&before, &open_to_work(&self.cells));
                }
                let count = u32::try_from(self.cells.len()).unwrap_or(u32::MAX);
                self.desired.iter_mut().for_each(|desired| desired.instances = count);
            }
            desired::Event::Pruned { definition_ids } => {
                self.definitions.retain(|(id, _)| !definition_ids.contains(id));
            }
        }
    }

    fn actual(&mut self, event: &actual::Event, at: Timestamp) {
        if !matches!(event, actual::Event::ExecStarted { .. }) {
            self.changed.extend(event.places().iter().map(|place| (place, self.version)));
        }
        for place in event.places().iter() {
            let lrp = self.next(&place, event, at);
            match lrp {
                Some(lrp) => self.lrps.insert(place, lrp),
                None => self.lrps.remove(&place),
            };
        }
    }

    /// What an event makes of an instance.
    fn next(&self, place: &Place, event: &actual::Event, at: Timestamp) -> Option<Lrp> {
        let old = self.lrps.get(place).cloned();
        let new = || Lrp {
            state: InstanceState::Unclaimed,
            since: at,
            by: None,
            net: None,
            stopping: false,
            stop: None,
            error: None,
            crashes: 0,
            reason: None,
            crashed_in: None,
            restart: None,
            attempts: None,
        };
        match event {
            actual::Event::Created { .. } => Some(new()),
            actual::Event::Claimed { by, .. } => old.map(|old| {
                let by = Some(self.held(place, by));
                Lrp { state: InstanceState::Claimed, since: at, by, net: None, error: None, ..old }
            }),
            actual::Event::Started { by, net, .. } => {
                let (by, net) = (Some(self.held(place, by)), Some(net.clone()));
                let old = old.unwrap_or_else(new);
                Some(Lrp {
                    state: InstanceState::Running,
                    since: at,
                    by,
                    net,
                    error: None,
                    restart: None,
                    ..old
                })
            }
            actual::Event::ExecStarted { .. } => old,
            actual::Event::Crashed { by, reason, crash_count, restart, attempts, .. } => Some(Lrp {
                state: InstanceState::Crashed,
                crashes: *crash_count,
                reason: Some(reason.clone()).filter(|reason| !reason.is_empty()),
                crashed_in: Some(by.clone()),
                restart: Some(*restart),
                attempts: *attempts,
                ..new()
            }),
            actual::Event::PlacementFailed { error, .. } => {
                old.map(|old| Lrp { error: Some(error.clone()), ..old })
            }
            actual::Event::Unclaimed { .. } => old.map(|old| Lrp {
                crashes: old.crashes,
                reason: old.reason,
                crashed_in: old.crashed_in,
                attempts: old.attempts,
                ..new()
            }),
            actual::Event::StopRequested { cause, .. } => {
                old.map(|old| Lrp { stopping: true, stop: Some(*cause), ..old })
            }
            actual::Event::Removed { .. } => None,
        }
    }

    fn evacuating(&mut self, event: &evacuating::Event, at: Timestamp) {
        let (evacuating::Event::Set { place, .. } | evacuating::Event::Removed { place, .. }) = event;
        self.changed.insert(place.clone(), self.version);
        match event {
            evacuating::Event::Set { place, by, net, .. } => {
                let own = self.lrps.get(place).filter(|lrp| lrp.state == InstanceState::Running);
                let own = own.filter(|lrp| lrp.by.as_ref().is_some_and(|held| held.by == *by));
                let twin = self.twins.get(place).filter(|twin| twin.by.by == *by);
                let ran = own.map(|lrp| lrp.since).or_else(|| twin.map(|twin| twin.ran)).unwrap_or(at);
                let by = self.held(place, by);
                self.twins.insert(place.clone(), Twin { by, net: net.clone(), since: at, ran });
            }
            evacuating::Event::Removed { place, .. } => {
                self.twins.remove(place);
            }
        }
    }
}

impl Task {
    fn event(&mut self, event: &task::Event, at: Timestamp) {
        match event {
            task::Event::Desired(_) => return,
            task::Event::PlacementFailed { error, .. } => {
                self.error = Some(error.clone());
                return;
            }
            task::Event::CallbackTried { attempt, outcome: called } => {
                self.callback = Some(Callback { attempts: *attempt, last: called.clone(), at });
                return;
            }
            task::Event::Started { by, .. } => {
                (self.state, self.by, self.error) = (Some(TaskState::Running), Some(by.clone()), None);
                self.ran = Some(at);
            }
            task::Event::Completed { by, outcome, .. } => {
                (self.state, self.by, self.error) = (Some(TaskState::Completed), by.clone(), None);
                self.ended = Some((at, outcome.clone()));
            }
            task::Event::Resolving {} => self.state = Some(TaskState::Resolving),
            task::Event::Demoted {} => self.state = Some(TaskState::Completed),
            task::Event::Deleted {} => self.state = None,
        }
        self.since = at;
    }
}

impl Facts {
    /// Takes in the next entry.
    pub(super) fn fold(&mut self, position: Position, entry: &Entry) {
        self.position = position;
        for decision in &entry.decisions {
            match &decision.aggregate {
                Aggregate::Process { guid, domain, epoch } => {
                    self.process(guid, (domain, *epoch), decision);
                }
                Aggregate::Task { guid, .. } => self.task(guid, decision),
                Aggregate::Periodic { guid, .. } => self.periodic(guid, decision),
                Aggregate::Parameterised { guid, .. } => self.parameterised(guid, decision),
                Aggregate::Domain(domain) => self.domain(domain, decision),
                Aggregate::Cell(cell) => self.cell(cell, decision),
                Aggregate::Cluster => self.cluster(decision),
            }
        }
        if let Some(last) = entry.decisions.last() {
            let shards = self.cluster.map_or(schemas::subject::DEFAULT_SHARDS, |(_, shards, _)| shards);
            self.forget(&last.aggregate.subject(shards), shards, last.at);
        }
    }

    /// What has been gone for long is forgotten with the first entry of its own subject after that.
    fn forget(&mut self, subject: &Subject, shards: u16, now: Timestamp) {
        self.processes.retain(|guid, process| {
            let over = process.is_gone() && process.changed_at + REMEMBERED <= now;
            !(over && Subject::of_process(guid, shards) == *subject)
        });
        self.ended.retain(|row| self.processes.contains_key(&row.process_guid));
        for (guid, process) in &mut self.processes {
            if Subject::of_process(guid, shards) == *subject {
                evaluated::drop_old(&mut process.evaluations, now);
            }
        }
        for (guid, task) in &mut self.tasks {
            if Subject::of_task(guid, shards) == *subject {
                evaluated::drop_old(&mut task.evaluations, now);
            }
        }
        self.tasks.retain(|guid, task| {
            let over = task.state.is_none() && task.since + REMEMBERED <= now;
            !(over && Subject::of_task(guid, shards) == *subject)
        });
        self.periodics.retain(|guid, known| {
            let over = known.desired.is_none() && known.since + REMEMBERED <= now;
            !(over && Subject::of_periodic(guid, shards) == *subject)
        });
    }

    fn process(&mut self, guid: &ProcessGuid, (domain, epoch): (&Domain, Epoch), decision: &Decision) {
        let at = decision.at;
        let process = self.processes.entry(guid.clone()).or_insert_with(|| Process {
            domain: domain.clone(),
            epoch,
            version: 0,
            last_decision: self.position,
            changed_at: at,
            desired: None,
            cells: BTreeMap::new(),
            definitions: vec![],
            healthy: None,
            roll: None,
            lrps: BTreeMap::new(),
            twins: BTreeMap::new(),
            changed: BTreeMap::new(),
            evaluations: vec![],
            history: None,
        });
        let mut going = Going::default();
        (process.version, process.last_decision) = (decision.version, self.position);
        process.changed_at = at;
        for event in &decision.events {
            going.event(guid, process, event, at);
            match event {
                Event::Desired(event) => process.desired(event, at),
                Event::Actual(event) => {
                    let waited = process.waiting_at(event);
                    process.actual(event, at);
                    process.count_moved(waited);
                }
                Event::Evacuating(event) => process.evacuating(event, at),
                Event::Rollout(event) => Roll::fold(&mut process.roll, event, at),
                Event::Evaluation(event) => evaluated::evaluated(&mut process.evaluations, event, decision),
                Event::Task(_)
                | Event::Periodic(_)
                | Event::Parameterised(_)
                | Event::Domain(_)
                | Event::Cell(_)
                | Event::Cluster(_) => {}
            }
        }
        let gone = going.done(process);
        self.ended(guid, decision, gone);
    }

    fn task(&mut self, guid: &TaskGuid, decision: &Decision) {
        let at = decision.at;
        for event in &decision.events {
            if let Event::Task(task::Event::Desired(desired)) = event {
                let evaluations = self.tasks.remove(guid).map(|old| old.evaluations);
                let task = Task {
                    domain: desired.domain.clone(),
                    epoch: Epoch(at),
                    version: 0,
                    last_decision: self.position,
                    since: at,
                    definition: (*desired.definition).clone(),
                    state: Some(TaskState::Pending),
                    by: None,
                    ran: None,
                    error: None,
                    ended: None,
                    callback: None,
                    evaluations: evaluations.unwrap_or_default(),
                };
                self.tasks.insert(guid.clone(), task);
            }
            if let (Event::Task(task::Event::Deleted {}), Some(task)) = (event, self.tasks.get(guid).cloned())
            {
                self.task_ended(guid, &task, at);
            }
            let Some(task) = self.tasks.get_mut(guid) else { continue };
            match event {
                Event::Task(event) => task.event(event, at),
                Event::Evaluation(event) => evaluated::evaluated(&mut task.evaluations, event, decision),
                Event::Desired(_)
                | Event::Actual(_)
                | Event::Evacuating(_)
                | Event::Rollout(_)
                | Event::Periodic(_)
                | Event::Parameterised(_)
                | Event::Domain(_)
                | Event::Cell(_)
                | Event::Cluster(_) => {}
            }
        }
        if let Some(task) = self.tasks.get_mut(guid) {
            (task.version, task.last_decision) = (decision.version, self.position);
        }
    }

    fn domain(&mut self, domain: &Domain, decision: &Decision) {
        for event in decision.events.iter().filter_map(Event::as_domain) {
            match event {
                domain::Event::Refreshed { expires_at } => {
                    self.domains.insert(domain.clone(), (decision.at, *expires_at));
                }
                domain::Event::Limited { quotas } => {
                    self.quotas.insert(domain.clone(), *quotas);
                }
            }
        }
    }

    fn cell(&mut self, id: &CellId, decision: &Decision) {
        for event in decision.events.iter().filter_map(Event::as_cell) {
            let next = next_cell(self.cells.remove(id), event, decision.at);
            next.into_iter().for_each(|cell| drop(self.cells.insert(id.clone(), cell)));
        }
    }

    fn cluster(&mut self, decision: &Decision) {
        for event in decision.events.iter().filter_map(Event::as_cluster) {
            match event {
                cluster::Event::Founded { id, shards, format } => {
                    self.cluster = Some((*id, *shards, *format));
                }
                cluster::Event::Elected { role, id, term } => {
                    let leader = Leader { id: id.clone(), term: *term, since: decision.at };
                    self.leaders.insert(*role, leader);
                }
                cluster::Event::OrdinalAssigned { cell_id, ordinal } => {
                    self.ordinals.insert(*ordinal, cell_id.clone());
                }
                cluster::Event::OrdinalFreed { ordinal, .. } => {
                    self.ordinals.remove(ordinal);
                }
                cluster::Event::FormatRaised { format } => {
                    self.cluster = self.cluster.map(|(id, shards, _)| (id, shards, *format));
                }
                cluster::Event::PreemptionSwitched { enabled: on } => self.preemption = *on,
                cluster::Event::Resharded { shards } => {
                    self.cluster = self.cluster.map(|(id, _, format)| (id, *shards, format));
                }
                cluster::Event::EntryQuarantined { .. } => {}
            }
        }
    }
}

/// The indices at which a rollout replaces what is there.
fn open_to_work(cells: &BTreeMap<u32, bool>) -> BTreeSet<u32> {
    cells.iter().filter(|(_, cordoned)| !**cordoned).map(|(index, _)| *index).collect()
}

/// What an event makes of a cell.
fn next_cell(old: Option<Cell>, event: &cell::Event, at: Timestamp) -> Option<Cell> {
    let away = |cell: Cell, why: &str| Cell { present: false, gone: Some(why.into()), since: at, ..cell };
    match event {
        cell::Event::Appeared(presence) => {
            // What evacuated was lost with all that was on it, and this is another run of its rep.
            let emptied = |old: &Cell| {
                !old.present && old.evacuating && old.presence.incarnation != presence.incarnation
            };
            let cordoned = old.as_ref().is_some_and(|old| old.cordoned);
            let wanted_empty = old.is_some_and(|old| old.wanted_empty && !emptied(&old));
            let presence = presence.clone();
            let (present, evacuating) = (true, false);
            Some(Cell {
                presence,
                present,
                evacuating,
                unhealthy: None,
                wanted_empty,
                cordoned,
                gone: None,
                since: at,
            })
        }
        cell::Event::EvacuationRequested {} => old.map(|old| Cell { wanted_empty: true, ..old }),
        cell::Event::EvacuationWithdrawn {} => old.map(|old| Cell { wanted_empty: false, ..old }),
        cell::Event::Cordoned {} => old.map(|old| Cell { cordoned: true, ..old }),
        cell::Event::Uncordoned {} => old.map(|old| Cell { cordoned: false, ..old }),
        cell::Event::Evacuating {} => old.map(|old| Cell { evacuating: true, since: at, ..old }),
        cell::Event::Resumed {} => old.map(|old| Cell { evacuating: false, since: at, ..old }),
        cell::Event::Healthy {} => old.map(|old| Cell { unhealthy: None, since: at, ..old }),
        cell::Event::Unhealthy { reason } => {
            old.map(|old| Cell { unhealthy: Some(reason.clone()), since: at, ..old })
        }
        cell::Event::Left {} => {
            old.map(|old| away(Cell { wanted_empty: false, evacuating: false, ..old }, "evacuated"))
        }
        cell::Event::Disappeared { reason } => old.map(|old| away(old, reason)),
        cell::Event::Forgotten {} => None,
    }
}
