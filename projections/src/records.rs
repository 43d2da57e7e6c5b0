//! Records as reps need them.

use schemas::actual::State;
use schemas::cluster::{Cluster, Terms};
use schemas::container::WorkKey;
use schemas::message::{LrpRecord, LrpState, Record, TaskRecord, TaskState};
use schemas::names::{DefinitionId, TaskGuid};
use schemas::process::Process;
use schemas::query::{Records, RecordsAnswer};
use schemas::{cell, task};

use crate::index::WorkRef;
use crate::world::World;

/// The record of a piece of work; [`Record::Absent`] if there is none.
#[must_use]
pub fn record(world: &World, work: &WorkRef) -> Record {
    let found = match work {
        WorkRef::Lrp(guid, index) => world.process(guid).map(|process| lrp(process, *index)),
        WorkRef::Task(guid) => task_record(world, guid),
    };
    found.unwrap_or(Record::Absent)
}

/// The highest terms that the log names.
#[must_use]
pub fn terms(world: &World) -> Terms {
    world.cluster().map(Cluster::terms).unwrap_or_default()
}

/// Every record that names the cell, and those of the work that was asked for.
#[must_use]
pub fn of_cell(world: &World, asked: &Records) -> RecordsAnswer {
    let key = |work: &WorkKey| match work {
        WorkKey::Lrp { process_guid, index, .. } => WorkRef::Lrp(process_guid.clone(), *index),
        WorkKey::Task { task_guid, .. } => WorkRef::Task(task_guid.clone()),
    };
    let mut work: Vec<WorkRef> = world.on_cell(&asked.cell_id).cloned().collect();
    work.extend(asked.work.iter().map(key));
    work.sort();
    work.dedup();
    let records = work.iter().map(|work| record(world, work)).filter(|record| *record != Record::Absent);
    RecordsAnswer {
        position: world.position(),
        terms: terms(world),
        evacuation: cell::evacuation(world.cell(&asked.cell_id)),
        records: records.collect(),
    }
}

/// A process without an instance at this index has a record too, and one that is gone and remembered: its epoch tells
/// what belongs to it, and when it last changed what came after.
fn lrp(process: &Process, index: u32) -> Record {
    let slot = process.slot(index);
    let actual = slot.and_then(|slot| slot.actual.as_ref());
    let state = actual.map(|lrp| match &lrp.state {
        State::Unclaimed { placement_error } => {
            LrpState::Unclaimed { placement_error: placement_error.is_some() }
        }
        State::Claimed { by, stopping } => LrpState::Claimed { by: by.clone(), stopping: *stopping },
        State::Running { by, stopping, .. } => LrpState::Running { by: by.clone(), stopping: *stopping },
        State::Crashed => LrpState::Crashed,
    });
    let definition_id = actual.map_or_else(|| active(process), |lrp| lrp.definition_id.clone());
    Record::Lrp(LrpRecord {
        process_guid: process.guid.clone(),
        index,
        epoch: process.epoch,
        domain: process.domain.clone(),
        definition_id,
        state,
        evacuating: slot.and_then(|slot| slot.evacuating.as_ref()).map(|twin| twin.by.clone()),
        since: actual.map_or(process.changed_at, |lrp| lrp.since),
        changed_at: process.changed_at(index),
    })
}

fn active(process: &Process) -> DefinitionId {
    let active = process.desired.as_ref().map(|desired| desired.active_definition_id.clone());
    active.unwrap_or_else(|| DefinitionId::from(&process.guid))
}

fn task_record(world: &World, guid: &TaskGuid) -> Option<Record> {
    let task = world.task(guid)?;
    let state = match task.state.as_ref()? {
        task::State::Pending { .. } => TaskState::Pending,
        task::State::Running { by } => TaskState::Running { by: by.clone() },
        task::State::Completed(done) => TaskState::Completed { by: done.by.clone() },
        task::State::Resolving(done) => TaskState::Resolving { by: done.by.clone() },
    };
    Some(Record::Task(TaskRecord {
        task_guid: task.guid.clone(),
        epoch: task.epoch,
        domain: task.domain.clone(),
        state,
    }))
}
