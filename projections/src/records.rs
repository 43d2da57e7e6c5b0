//! Records for reps: the state of the work (instances and tasks) on a cell.

use machines::actual::{Actual, State};
use machines::cluster::Cluster;
use machines::process::Process;
use machines::{cell, task};
use schemas::cluster::Terms;
use schemas::container::WorkKey;
use schemas::message::{LrpRecord, LrpState, Record, TaskRecord, TaskState};
use schemas::names::TaskGuid;
use schemas::query::{Records, RecordsAnswer};
use schemas::{ActualLrpKey, Place};

use crate::index::WorkRef;
use crate::world::World;

/// Returns the record of an instance or task, or [`Record::Absent`] if it has no record.
#[must_use]
pub fn record(world: &World, work: &WorkRef) -> Record {
    let found = match work {
        WorkRef::Lrp(key) => world.process(&key.process_guid).map(|process| lrp_record(process, &key.place)),
        WorkRef::Task(guid) => task_record(world, guid),
    };
    found.unwrap_or(Record::Absent)
}

/// Returns the highest terms of the leaders in the log.
#[must_use]
pub fn terms(world: &World) -> Terms {
    world.cluster().map(Cluster::terms).unwrap_or_default()
}

/// Returns every record that names the cell, and the record of each instance and task in the request.
#[must_use]
pub fn cell_records(world: &World, asked: &Records) -> RecordsAnswer {
    let key = |work: &WorkKey| match work {
        WorkKey::Lrp { key, .. } => WorkRef::Lrp(key.clone()),
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

/// Returns the record of a slot, which is an index with a definition. A process has a record even for a slot
/// without an instance, and even while the removed process is only remembered. The epoch in this record
/// determines which containers belong to the slot. `changed_at` shows whether a later report is newer than
/// the last change.
fn lrp_record(process: &Process, place: &Place) -> Record {
    let slot = process.slot(place);
    let twin = slot.and_then(|slot| slot.evacuating.as_deref());
    let own = slot.and_then(|slot| slot.actual.as_ref());
    // An evacuating instance waits for its replacement, even if the replacement runs another definition.
    let actual = own.or_else(|| twin.and_then(|_| successor(process, place)));
    let state = actual.map(|lrp| match &lrp.state {
        State::Unclaimed { placement_error } => {
            LrpState::Unclaimed { placement_error: placement_error.is_some() }
        }
        State::Claimed { by, stopping } => LrpState::Claimed { by: by.clone(), stopping: *stopping },
        State::Running { by, stopping, .. } => LrpState::Running { by: by.clone(), stopping: *stopping },
        State::Crashed { .. } => LrpState::Crashed,
    });
    Record::Lrp(LrpRecord {
        key: ActualLrpKey::new(process.guid.clone(), place.clone()),
        epoch: process.epoch,
        domain: process.domain.clone(),
        state,
        evacuating: twin.map(|twin| twin.by.clone()),
        since: actual.map_or(process.changed_at, |lrp| lrp.since),
        changed_at: process.changed_at(place),
    })
}

/// Returns the replacement of an evacuating instance that has no other instance in its slot. A RUNNING
/// instance without a stop request is preferred, followed by an instance of a desired slot.
fn successor<'a>(process: &'a Process, place: &Place) -> Option<&'a Actual> {
    let rank = |place: &Place, lrp: &Actual| (lrp.keeps_running(), process.is_desired(place));
    process.actuals_at(place.index).max_by_key(|(place, lrp)| rank(place, lrp)).map(|(_, lrp)| lrp)
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
