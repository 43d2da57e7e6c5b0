//! Conversion of the records of the projected state (World) to rows.

use std::collections::BTreeMap;
use std::time::Duration;

use machines::actual::{Actual, State};
use machines::cell::Cell;
use machines::desired::Desired;
use machines::evacuating::Evacuating;
use machines::process::{Process, Slot};
use machines::task::{self, Task};
use schemas::definition::Definition;
use schemas::evaluation::{Duty, Evaluation};
use schemas::names::{CellId, Domain};
use schemas::policy::Policies;
use schemas::query::{
    CellRow, CellState, ClusterRow, EvaluationRow, EvaluationState, EvaluationSubject, InstancePresence,
    InstanceRow, InstanceState, LrpRow, ModificationTag, TaskRow, TaskState,
};
use schemas::task::Outcome;
use schemas::{Place, Timestamp};

use super::Observed;
use super::states::{cell_state, instance_state, rollout_row, task_state};
use crate::index::WorkRef;
use crate::world::World;

pub(crate) fn lrp_row(process: &Process, whole: bool) -> LrpRow {
    let desired = process.desired.as_deref();
    let count = |wanted: InstanceState| {
        let of = |slot: &&Slot| slot.actual.as_ref().is_some_and(|lrp| instance_state(&lrp.state) == wanted);
        u32::try_from(process.slots.iter().filter(of).count()).unwrap_or(u32::MAX)
    };
    let definitions = || desired.into_iter().flat_map(|desired| &desired.definitions);
    LrpRow {
        process_guid: process.guid.clone(),
        domain: process.domain.clone(),
        epoch: process.epoch,
        version: process.version,
        last_decision: process.last_decision,
        desired: desired.is_some(),
        mode: desired.map(Desired::mode),
        instances: desired.map_or(0, |desired| desired.instances),
        priority: desired.map(|desired| desired.priority),
        indices: desired.map(|desired| desired.indices().collect()).unwrap_or_default(),
        running: count(InstanceState::Running),
        claimed: count(InstanceState::Claimed),
        unclaimed: count(InstanceState::Unclaimed),
        crashed: count(InstanceState::Crashed),
        routes: desired.map(|desired| desired.routes.clone()).unwrap_or_default(),
        annotation: desired.map(|desired| desired.annotation.to_string()).unwrap_or_default(),
        definition_id: desired.map(|desired| desired.active_definition_id.clone()),
        healthy_definition_id: desired.and_then(|desired| desired.healthy_definition_id.clone()),
        definition_ids: definitions().map(|(id, _)| id.clone()).collect(),
        sizes: definitions().map(|(id, definition)| (id.clone(), definition.resources())).collect(),
        definitions: definitions()
            .filter(|_| whole)
            .map(|(id, definition)| (id.clone(), Definition::clone(definition)))
            .collect(),
        policies: desired.filter(|_| whole).map(|desired| Policies::clone(&desired.policies)),
        rollout: process.rollout.as_deref().map(rollout_row),
        changed_at: process.changed_at,
    }
}

/// Selection of records at an index with an evacuating instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordSelection {
    /// Only the effective record. If the regular instance is UNCLAIMED or CLAIMED, this is the record of the
    /// evacuating instance, because only the evacuating instance is running. Otherwise it is the record of
    /// the regular instance.
    Effective,
    /// Both records.
    Both,
}

pub(super) fn instance_rows(
    process: &Process,
    which: RecordSelection,
) -> impl Iterator<Item = InstanceRow> + '_ {
    process.slots.iter().flat_map(move |slot| slot_rows(process, slot, which))
}

pub(crate) fn slot_rows(
    process: &Process,
    slot: &Slot,
    which: RecordSelection,
) -> impl Iterator<Item = InstanceRow> + use<> {
    let evacuating_counts = match slot.actual.as_ref().map(|lrp| &lrp.state) {
        None | Some(State::Unclaimed { .. } | State::Claimed { .. }) => true,
        Some(State::Running { .. } | State::Crashed { .. }) => false,
    };
    let both = which == RecordSelection::Both;
    let ordinary = slot.actual.as_ref().filter(|_| both || !evacuating_counts || slot.evacuating.is_none());
    let tag = ModificationTag { epoch: process.epoch, index: slot.version };
    let ordinary = ordinary.map(|lrp| instance_row(process, &slot.place, lrp, tag));
    let twin = slot.evacuating.as_ref().filter(|_| both || evacuating_counts);
    let twin = twin.map(|twin| evacuating_row(process, &slot.place, twin, tag));
    ordinary.into_iter().chain(twin)
}

fn evacuating_row(process: &Process, place: &Place, twin: &Evacuating, tag: ModificationTag) -> InstanceRow {
    InstanceRow {
        process_guid: process.guid.clone(),
        index: place.index,
        domain: process.domain.clone(),
        epoch: process.epoch,
        presence: InstancePresence::Evacuating,
        state: InstanceState::Running,
        instance_guid: Some(twin.by.instance_guid),
        cell_id: Some(twin.by.cell_id.clone()),
        stopping: false,
        address: Some(twin.net.address.to_string()),
        ports: twin.net.ports.to_vec(),
        isolation: None,
        placement_error: None,
        crash_count: 0,
        crash_reason: None,
        crashed_instance: None,
        restart_at: None,
        no_restart_reason: None,
        attempts: None,
        definition_id: place.definition_id.clone(),
        since: twin.since,
        modification_tag: tag,
    }
}

fn instance_row(process: &Process, place: &Place, lrp: &Actual, tag: ModificationTag) -> InstanceRow {
    let (address, ports, isolation) = match &lrp.state {
        State::Running { net, isolation, .. } => {
            (Some(net.address.to_string()), net.ports.to_vec(), Some(*isolation))
        }
        State::Unclaimed { .. } | State::Claimed { .. } | State::Crashed { .. } => (None, vec![], None),
    };
    let placement_error = match &lrp.state {
        State::Unclaimed { placement_error } => placement_error.as_deref().map(str::to_owned),
        State::Claimed { .. } | State::Running { .. } | State::Crashed { .. } => None,
    };
    InstanceRow {
        process_guid: process.guid.clone(),
        index: place.index,
        domain: process.domain.clone(),
        epoch: process.epoch,
        presence: InstancePresence::Ordinary,
        state: instance_state(&lrp.state),
        instance_guid: lrp.holder().map(|by| by.instance_guid),
        cell_id: lrp.holder().map(|by| by.cell_id.clone()),
        stopping: lrp.is_stopping(),
        address,
        ports,
        isolation,
        placement_error,
        crash_count: lrp.crash_count,
        crash_reason: Some(lrp.crash_reason.to_string()).filter(|reason| !reason.is_empty()),
        crashed_instance: lrp.crashed_instance.as_deref().cloned(),
        restart_at: lrp.restart_at(),
        no_restart_reason: lrp.no_restart_reason(),
        attempts: lrp.counted.as_ref().map(|counted| counted.attempts),
        definition_id: place.definition_id.clone(),
        since: lrp.since,
        modification_tag: tag,
    }
}

pub(crate) fn task_row(task: &Task, whole: bool) -> Option<TaskRow> {
    let state = task.state.as_ref()?;
    let done = task.completed();
    let (failed, failure_reason, result) = match done.map(|done| &done.outcome) {
        Some(Outcome::Succeeded { result }) => (Some(false), None, Some(result.clone())),
        Some(Outcome::Failed { reason }) => (Some(true), Some(reason.clone()), None),
        None => (None, None, None),
    };
    let placement_error = match state {
        task::State::Pending { placement_error } => placement_error.as_deref().map(str::to_owned),
        task::State::Running { .. } | task::State::Completed(_) | task::State::Resolving(_) => None,
    };
    Some(TaskRow {
        task_guid: task.guid.clone(),
        domain: task.domain.clone(),
        epoch: task.epoch,
        version: task.version,
        last_decision: task.last_decision,
        state: task_state(state),
        instance_guid: task.holder().map(|by| by.instance_guid),
        cell_id: task.holder().map(|by| by.cell_id.clone()),
        failed,
        failure_reason,
        result,
        placement_error,
        callback: done.and_then(|done| done.callback.clone()),
        first_completed_at: done.map(|done| done.first_completed_at),
        since: task.since,
        annotation: task.definition.annotation.clone(),
        priority: task.definition.priority,
        definition: whole.then(|| (*task.definition).clone()),
    })
}

pub(crate) fn cell_row(world: &World, id: &CellId, cell: &Cell, heard: Option<Duration>) -> CellRow {
    let count =
        |of: fn(&&WorkRef) -> bool| u32::try_from(world.on_cell(id).filter(of).count()).unwrap_or(u32::MAX);
    CellRow {
        cell_id: id.clone(),
        presence: cell.presence.clone(),
        state: cell_state(cell, heard),
        evacuation_requested: cell.evacuation_requested,
        cordoned: cell.cordoned,
        ordinal: world.ordinal(id),
        absent_reason: cell.absent_reason.clone(),
        unhealthy: cell.unhealthy.clone(),
        heartbeat_ms_ago: heard.map(|ago| u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)),
        instances: count(|work| matches!(work, WorkRef::Lrp(..))),
        tasks: count(|work| matches!(work, WorkRef::Task(_))),
        used: world.used_on(id),
        since: cell.since,
    }
}

/// Returns the evaluations of `start` and of all later subjects. Evaluations of processes come first.
pub(super) fn evaluations_from<'a>(
    world: &'a World,
    start: Option<&'a EvaluationSubject>,
    now: Timestamp,
) -> impl Iterator<Item = EvaluationRow> + use<'a> {
    let leads = world.cluster().is_some_and(|cluster| cluster.auctioneer.is_some());
    let row = move |subject: EvaluationSubject, domain: &Domain, evaluation: Evaluation, remaining: u32| {
        EvaluationRow {
            subject,
            domain: domain.clone(),
            state: EvaluationState::from_evaluation(&evaluation, now, leads),
            evaluation,
            remaining,
            queue_position: None,
        }
    };
    let (processes, tasks): (Box<dyn Iterator<Item = &'a Process>>, Box<dyn Iterator<Item = &'a Task>>) =
        match start {
            None => (Box::new(world.processes_from(None)), Box::new(world.tasks_from(None))),
            Some(EvaluationSubject::Process(guid)) => {
                let first = world.process(guid).into_iter();
                (Box::new(first.chain(world.processes_from(Some(guid)))), Box::new(world.tasks_from(None)))
            }
            Some(EvaluationSubject::Task(guid)) => {
                let first = world.task(guid).into_iter();
                (Box::new(std::iter::empty()), Box::new(first.chain(world.tasks_from(Some(guid)))))
            }
        };
    let of_processes = processes.flat_map(move |process| {
        process.evaluations.iter().map(move |of| {
            let subject = EvaluationSubject::Process(process.guid.clone());
            let left = match of.duty() {
                Some(Duty::Place) => process.unclaimed.saturating_sub(process.unplaced),
                Some(Duty::Unblock) => process.unplaced,
                Some(Duty::Restart) => u32::try_from(process.pending_restarts.len()).unwrap_or(u32::MAX),
                None => 0,
            };
            row(subject, &process.domain, of, left)
        })
    });
    let of_tasks = tasks.flat_map(move |task| {
        task.evaluations.iter().map(move |of| {
            let left = u32::from(of.duty().is_some());
            row(EvaluationSubject::Task(task.guid.clone()), &task.domain, of, left)
        })
    });
    of_processes.chain(of_tasks)
}

/// Returns the row of the cluster, or `None` if the cluster is not founded yet.
pub(super) fn cluster_row(world: &World, observed: &Observed) -> Option<ClusterRow> {
    let mut cells: BTreeMap<CellState, u32> = BTreeMap::new();
    let mut zones = vec![];
    for (id, cell) in world.cells() {
        let state = cell_state(cell, observed.heartbeat_ages.get(id).copied());
        *cells.entry(state).or_default() += 1;
        if cell.present {
            zones.push(cell.presence.zone.clone());
        }
    }
    zones.sort();
    zones.dedup();
    let counts = world.counts();
    world.cluster().map(|cluster| ClusterRow {
        cluster_id: cluster.id,
        shards: cluster.shards,
        format: cluster.format,
        preemption: cluster.preemption,
        bbs: cluster.bbs.clone(),
        auctioneer: cluster.auctioneer.clone(),
        services: observed.services.clone(),
        problems: super::status::problems(&observed.services),
        cells,
        zones,
        lrps: counts.processes,
        instances: InstanceState::ALL.map(|state| (state, counts.instances.in_state(state))).into(),
        tasks: TaskState::ALL.map(|state| (state, counts.tasks.in_state(state))).into(),
        found_by_convergence: world.found_by_convergence(),
        refused_transitions: observed.refused_transitions,
        durability: observed.durability.clone(),
        quarantined_entries: observed.quarantined_entries.clone(),
    })
}
