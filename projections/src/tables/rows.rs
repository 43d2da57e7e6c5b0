//! Rows that an entry can change, and their values in a World (the state folded from the log).

use std::collections::{BTreeMap, BTreeSet};

use machines::evaluation::Evaluations;
use machines::process::{Process, Slot};
use machines::task::Task;
use schemas::entry::{Aggregate, Event};
use schemas::names::{CellId, Domain, InstanceGuid, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid};
use schemas::query::{DomainRow, EvaluationRow, EvaluationState, EvaluationSubject};
use schemas::{Entry, Position, Timestamp, cluster, evacuating};

use super::columns::{self, DefinitionSource, RolloutSource};
use super::{Row, Step, Table};
use crate::ended::{EndOrder, EndedInstanceKey, EndedTaskKey, HistoryEvent};
use crate::queries::{self, RecordSelection};
use crate::world::World;

/// Part of a process that an entry can change.
#[derive(Clone, Debug, Default)]
struct TouchedProcess {
    /// `true` if the desired state of the process can change. All instances of the process can then change,
    /// too.
    everything: bool,
    /// Indices whose instances can change.
    indices: BTreeSet<u32>,
}

/// Records that an entry can change.
#[derive(Clone, Debug, Default)]
pub(super) struct Touched {
    processes: BTreeMap<ProcessGuid, TouchedProcess>,
    tasks: BTreeSet<TaskGuid>,
    periodics: BTreeSet<PeriodicGuid>,
    parameterised: BTreeSet<ParameterisedGuid>,
    domains: BTreeSet<Domain>,
    cells: BTreeSet<CellId>,
    cluster: bool,
}

impl Touched {
    pub(super) fn from_entry(entry: &Entry) -> Self {
        let mut touched = Self::default();
        for decision in &entry.decisions {
            match &decision.aggregate {
                Aggregate::Process { guid, .. } => {
                    let process = touched.processes.entry(guid.clone()).or_default();
                    decision.events.iter().for_each(|event| process.touch(event));
                }
                Aggregate::Task { guid, .. } => {
                    touched.tasks.insert(guid.clone());
                }
                Aggregate::Periodic { guid, .. } => {
                    touched.periodics.insert(guid.clone());
                }
                Aggregate::Parameterised { guid, .. } => {
                    touched.parameterised.insert(guid.clone());
                }
                Aggregate::Domain(domain) => {
                    touched.domains.insert(domain.clone());
                }
                Aggregate::Cell(cell) => {
                    touched.cells.insert(cell.clone());
                }
                Aggregate::Cluster => {
                    touched.cluster = true;
                    let events = decision.events.iter().filter_map(Event::as_cluster);
                    touched.cells.extend(events.filter_map(cell_of_ordinal).cloned());
                }
            }
        }
        touched
    }

    /// Returns the current rows of the records that the entry can change.
    pub(super) fn rows(&self, world: &World) -> Vec<Row> {
        let mut rows = vec![];
        for (guid, touched) in &self.processes {
            let process = world.process(guid).into_iter();
            process.for_each(|process| add_process_rows(process, touched, &mut rows));
        }
        for task in self.tasks.iter().filter_map(|guid| world.task(guid)) {
            add_task_rows(task, &mut rows);
        }
        let periodics = self.periodics.iter().filter_map(|guid| world.periodic(guid));
        rows.extend(
            periodics
                .filter_map(|of| queries::periodic_row(world, of, false))
                .map(|row| columns::periodic(&row)),
        );
        let parameterised = self.parameterised.iter().filter_map(|guid| world.parameterised(guid));
        let of = parameterised.filter_map(|of| queries::parameterised_row(world, of, false, 0));
        rows.extend(of.map(|row| columns::parameterised(&row)));
        rows.extend(self.domains.iter().filter_map(|domain| domain_row(world, domain)));
        rows.extend(self.cells.iter().filter_map(|cell| cell_row(world, cell)));
        rows.extend(world.cluster().filter(|_| self.cluster).map(columns::cluster));
        rows
    }
}

impl TouchedProcess {
    fn touch(&mut self, event: &Event) {
        match event {
            Event::Desired(_) => self.everything = true,
            Event::Actual(event) => self.indices.extend(event.places().indices.iter()),
            Event::Evacuating(
                evacuating::Event::Set { place, .. } | evacuating::Event::Removed { place, .. },
            ) => {
                self.indices.insert(place.index);
            }
            Event::Rollout(event) => match event.indices() {
                Some(indices) => self.indices.extend(indices.iter()),
                None => self.everything = true,
            },
            Event::Evaluation(_)
            | Event::Task(_)
            | Event::Periodic(_)
            | Event::Parameterised(_)
            | Event::Domain(_)
            | Event::Cell(_)
            | Event::Cluster(_) => {}
        }
    }
}

/// Returns the cell whose ordinal an event of the cluster assigns or frees.
const fn cell_of_ordinal(event: &cluster::Event) -> Option<&CellId> {
    match event {
        cluster::Event::OrdinalAssigned { cell_id, .. } | cluster::Event::OrdinalFreed { cell_id, .. } => {
            Some(cell_id)
        }
        cluster::Event::Founded { .. }
        | cluster::Event::FormatRaised { .. }
        | cluster::Event::PreemptionSwitched { .. }
        | cluster::Event::Elected { .. }
        | cluster::Event::Resharded { .. }
        | cluster::Event::EntryQuarantined { .. } => None,
    }
}

/// Returns all rows of a World, in order of tables and keys.
pub(super) fn all(world: &World) -> Vec<Row> {
    let whole = || TouchedProcess { everything: true, indices: BTreeSet::new() };
    let touched = Touched {
        processes: world.processes_from(None).map(|process| (process.guid.clone(), whole())).collect(),
        tasks: world.tasks_from(None).map(|task| task.guid.clone()).collect(),
        periodics: world.periodics_from(None).map(|of| of.guid.clone()).collect(),
        parameterised: world.parameterised_from(None).map(|of| of.guid.clone()).collect(),
        domains: world.domains().map(|(domain, _)| domain.clone()).collect(),
        cells: world.cells().map(|(cell, _)| cell.clone()).collect(),
        cluster: true,
    };
    let mut rows = touched.rows(world);
    let ended = world.history.instances_from(None);
    rows.extend(ended.map(|(key, ended)| columns::ended_instance(&queries::ended_instance_row(key, ended))));
    let ended = world.history.tasks_from(None);
    rows.extend(ended.map(|(key, ended)| columns::ended_task(&queries::ended_task_row(key, ended))));
    rows.sort_by(|one, other| (one.table, one.key()).cmp(&(other.table, other.key())));
    rows
}

fn add_process_rows(process: &Process, touched: &TouchedProcess, rows: &mut Vec<Row>) {
    let (guid, domain) = (&process.guid, &process.domain);
    if let Some(desired) = process.desired.as_deref().filter(|_| touched.everything) {
        rows.push(columns::desired_lrp(&queries::lrp_row(process, true)));
        for (definition_id, definition) in &desired.definitions {
            let of = DefinitionSource { process_guid: guid, domain, definition_id, definition };
            rows.push(columns::definition(&of));
        }
    }
    for slot in slots(process, touched) {
        let of = queries::slot_rows(process, slot, RecordSelection::Both);
        rows.extend(of.map(|row| columns::actual_lrp(&row)));
    }
    if let Some(rollout) = process.rollout.as_deref() {
        let row = queries::rollout_row(rollout);
        rows.push(columns::rollout(&RolloutSource {
            process_guid: guid,
            epoch: process.epoch,
            domain,
            row: &row,
        }));
    }
    let subject = EvaluationSubject::Process(guid.clone());
    add_evaluation_rows(&subject, domain, &process.evaluations, rows);
}

/// Returns the slots of a process that an entry can change.
fn slots<'a>(process: &'a Process, touched: &'a TouchedProcess) -> impl Iterator<Item = &'a Slot> {
    let slots = process.slots.iter();
    slots.filter(|slot| touched.everything || touched.indices.contains(&slot.place.index))
}

fn add_task_rows(task: &Task, rows: &mut Vec<Row>) {
    rows.extend(queries::task_row(task, true).map(|row| columns::task(&row)));
    let subject = EvaluationSubject::Task(task.guid.clone());
    add_evaluation_rows(&subject, &task.domain, &task.evaluations, rows);
}

/// Adds the rows of evaluations. Values that depend on the time, the leader or the rest of the process have
/// no column. Placeholders stand for these values.
fn add_evaluation_rows(
    subject: &EvaluationSubject,
    domain: &Domain,
    evaluations: &Evaluations,
    rows: &mut Vec<Row>,
) {
    rows.extend(evaluations.iter().map(|evaluation| {
        columns::evaluation(&EvaluationRow {
            subject: subject.clone(),
            domain: domain.clone(),
            state: EvaluationState::from_evaluation(&evaluation, Timestamp(0), false),
            evaluation,
            remaining: 0,
            queue_position: None,
        })
    }));
}

fn domain_row(world: &World, domain: &Domain) -> Option<Row> {
    let freshness = world.domain(domain)?;
    Some(columns::domain(&DomainRow {
        domain: domain.clone(),
        fresh: freshness.is_fresh(freshness.refreshed_at),
        refreshed_at: freshness.refreshed_at,
        expires_at: freshness.expires_at,
    }))
}

fn cell_row(world: &World, id: &CellId) -> Option<Row> {
    let cell = world.cell(id)?;
    Some(columns::cell(&queries::cell_row(world, id, cell, None)))
}

/// Ends of instances and tasks that an entry records, and earlier ends that the entry revokes.
#[derive(Clone, Debug)]
pub(super) struct EndChanges {
    /// Containers that contained instances before the entry. None of these containers has a row yet.
    held_before: BTreeSet<InstanceGuid>,
    /// Row of each container that ended. `None` if an instance runs in the container again.
    instances: BTreeMap<InstanceGuid, Option<Row>>,
    tasks: Vec<Row>,
}

impl EndChanges {
    /// Creates the collector for the next entry. `world` is the World before that entry.
    pub(super) fn for_next_entry(world: &World, touched: &Touched) -> Self {
        let processes = touched.processes.iter().filter_map(|(guid, of)| Some((world.process(guid)?, of)));
        let slots = processes.flat_map(|(process, of)| slots(process, of));
        let held_before = slots.flat_map(Slot::holders).map(|by| by.instance_guid).collect();
        Self { held_before, instances: BTreeMap::new(), tasks: vec![] }
    }

    pub(super) fn take(&mut self, told: HistoryEvent<'_>, position: Position) {
        let when = EndOrder { position, nth: 0 };
        match told {
            HistoryEvent::InstanceEnded { process, ended } => {
                let key = EndedInstanceKey { process: process.clone(), index: ended.place.index, when };
                let row = columns::ended_instance(&queries::ended_instance_row(&key, ended));
                self.instances.insert(ended.by.instance_guid, Some(row));
            }
            HistoryEvent::ContainerInUse { container } => {
                self.instances.insert(container, None);
            }
            HistoryEvent::TaskEnded { ended } => {
                let key = EndedTaskKey { domain: ended.domain.clone(), when };
                self.tasks.push(columns::ended_task(&queries::ended_task_row(&key, ended)));
            }
        }
    }

    /// Returns the changes of the tables. A lost cell can bring back containers whose end the World has
    /// already forgotten. The database still has the rows of these containers. `Renew` and `Clear` therefore
    /// end such rows if they exist.
    pub(super) fn into_steps(self) -> impl Iterator<Item = Step> {
        let Self { held_before, instances, tasks } = self;
        let of_instances = instances.into_iter().filter_map(move |(container, row)| match row {
            Some(row) => Some(Step::Renew(row)),
            None if held_before.contains(&container) => None,
            None => Some(Step::Clear(Table::EndedInstances, columns::ended_instance_key(container))),
        });
        of_instances.chain(tasks.into_iter().map(Step::Open))
    }
}
