//! Queries: what is true, as rows. Pure reads of the World.

use std::collections::BTreeMap;

use projections::{WorkRef, World};
use schemas::actual::{Actual, State};
use schemas::cell::Cell;
use schemas::evaluation::Evaluation;
use schemas::limits::PAGE_ROWS;
use schemas::names::{CellId, Domain, InstanceGuid, ProcessGuid, TaskGuid};
use schemas::process::{Process, Slot};
use schemas::query::{
    CellRow, ClusterRow, DomainRow, EvaluationRow, Filter, InstanceRow, LrpRow, One, Page, SetAside, Show,
    TaskRow,
};
use schemas::task::{self, Outcome, Task};
use schemas::{BadField, Refusal, Timestamp};

/// The DesiredLRPs that pass the filter, in order of their guids.
#[must_use]
pub fn lrps(world: &World, filter: &Filter) -> Page<LrpRow> {
    let after = cursor_guid(filter);
    let rows = world
        .processes_from(after.as_ref())
        .filter(|process| !process.is_gone() && in_domain(&process.domain, filter))
        .filter(|process| filter.process_guid.as_ref().is_none_or(|guid| *guid == process.guid))
        .map(|process| lrp_row(process, false));
    page(world, rows, filter, |row| row.process_guid.to_string())
}

/// One DesiredLRP with its definition.
///
/// # Errors
/// `ResourceNotFound`.
pub fn lrp(world: &World, show: &Show) -> Result<One<LrpRow>, Refusal> {
    let found = ProcessGuid::new(&show.id).ok().and_then(|guid| world.process(&guid));
    let found = found.filter(|process| !process.is_gone());
    let row = found.map(|process| lrp_row(process, true));
    one(world, row, format!("process {}", show.id))
}

fn lrp_row(process: &Process, whole: bool) -> LrpRow {
    let desired = process.desired.as_deref();
    let count = |wanted: &str| {
        let of = |slot: &&Slot| slot.actual.as_ref().is_some_and(|lrp| lrp.state_name() == wanted);
        u32::try_from(process.slots.iter().filter(of).count()).unwrap_or(u32::MAX)
    };
    let definition = desired.and_then(|desired| desired.definition(&desired.active_definition_id));
    LrpRow {
        process_guid: process.guid.clone(),
        domain: process.domain.clone(),
        epoch: process.epoch,
        version: process.version,
        desired: desired.is_some(),
        instances: desired.map_or(0, |desired| desired.instances),
        running: count("RUNNING"),
        claimed: count("CLAIMED"),
        unclaimed: count("UNCLAIMED"),
        crashed: count("CRASHED"),
        routes: desired.map(|desired| desired.routes.clone()).unwrap_or_default(),
        annotation: desired.map(|desired| desired.annotation.clone()).unwrap_or_default(),
        definition_id: desired.map(|desired| desired.active_definition_id.clone()),
        definition: definition.filter(|_| whole).map(|definition| (**definition).clone()),
        changed_at: process.changed_at,
    }
}

/// The ActualLRPs that pass the filter, in order of process and index; an evacuating twin follows its instance.
#[must_use]
pub fn instances(world: &World, filter: &Filter) -> Page<InstanceRow> {
    let after = filter.cursor.as_deref().and_then(parse_instance_cursor);
    let rows: Box<dyn Iterator<Item = InstanceRow>> = match (&filter.process_guid, &filter.cell_id) {
        (Some(guid), _) => Box::new(world.process(guid).into_iter().flat_map(instance_rows)),
        (None, Some(cell)) => Box::new(on_cell(world, cell)),
        (None, None) => {
            let start = after.as_ref().map(|(guid, _, _)| guid);
            let first = start.and_then(|guid| world.process(guid));
            Box::new(first.into_iter().chain(world.processes_from(start)).flat_map(instance_rows))
        }
    };
    let rows = rows.filter(|row| in_domain(&row.domain, filter)).filter(|row| {
        let on = filter.cell_id.as_ref().is_none_or(|cell| row.cell_id.as_ref() == Some(cell));
        let key = (row.process_guid.clone(), row.index, row.presence == EVACUATING);
        on && after.as_ref().is_none_or(|after| key > *after)
    });
    page(world, rows, filter, |row| {
        format!("{}/{}/{}", row.process_guid, row.index, u8::from(row.presence == EVACUATING))
    })
}

const ORDINARY: &str = "ORDINARY";
const EVACUATING: &str = "EVACUATING";

fn parse_instance_cursor(cursor: &str) -> Option<(ProcessGuid, u32, bool)> {
    let mut parts = cursor.split('/');
    let guid = ProcessGuid::new(parts.next()?).ok()?;
    Some((guid, parts.next()?.parse().ok()?, parts.next()? == "1"))
}

fn on_cell<'a>(world: &'a World, cell: &'a CellId) -> impl Iterator<Item = InstanceRow> + 'a {
    let slots = world.on_cell(cell).filter_map(|work| match work {
        WorkRef::Lrp(guid, index) => world.process(guid).zip(Some(*index)),
        WorkRef::Task(_) => None,
    });
    slots.flat_map(|(process, index)| {
        let rows = process.slot(index).map(|slot| slot_rows(process, slot));
        rows.into_iter().flatten()
    })
}

fn instance_rows(process: &Process) -> impl Iterator<Item = InstanceRow> + '_ {
    process.slots.iter().flat_map(|slot| slot_rows(process, slot))
}

fn slot_rows<'a>(process: &'a Process, slot: &'a Slot) -> impl Iterator<Item = InstanceRow> + 'a {
    let ordinary = slot.actual.as_ref().map(|lrp| instance_row(process, slot.index, lrp));
    let twin = slot.evacuating.as_ref().map(|twin| InstanceRow {
        process_guid: process.guid.clone(),
        index: slot.index,
        domain: process.domain.clone(),
        epoch: process.epoch,
        presence: EVACUATING.into(),
        state: "RUNNING".into(),
        instance_guid: Some(twin.by.instance_guid),
        cell_id: Some(twin.by.cell_id.clone()),
        stopping: false,
        address: Some(twin.net.address.clone()),
        ports: twin.net.ports.clone(),
        placement_error: None,
        crash_count: 0,
        crash_reason: None,
        crashed_in: None,
        restart_at: None,
        definition_id: None,
        since: twin.since,
    });
    ordinary.into_iter().chain(twin)
}

fn instance_row(process: &Process, index: u32, lrp: &Actual) -> InstanceRow {
    let (address, ports) = match &lrp.state {
        State::Running { net, .. } => (Some(net.address.clone()), net.ports.clone()),
        State::Unclaimed { .. } | State::Claimed { .. } | State::Crashed => (None, vec![]),
    };
    let placement_error = match &lrp.state {
        State::Unclaimed { placement_error } => placement_error.as_deref().map(str::to_owned),
        State::Claimed { .. } | State::Running { .. } | State::Crashed => None,
    };
    InstanceRow {
        process_guid: process.guid.clone(),
        index,
        domain: process.domain.clone(),
        epoch: process.epoch,
        presence: ORDINARY.into(),
        state: lrp.state_name().into(),
        instance_guid: lrp.holder().map(|by| by.instance_guid),
        cell_id: lrp.holder().map(|by| by.cell_id.clone()),
        stopping: lrp.is_stopping(),
        address,
        ports,
        placement_error,
        crash_count: lrp.crash_count,
        crash_reason: Some(lrp.crash_reason.to_string()).filter(|reason| !reason.is_empty()),
        crashed_in: lrp.crashed_in.as_deref().cloned(),
        restart_at: lrp.restart_at(),
        definition_id: Some(lrp.definition_id.clone()),
        since: lrp.since,
    }
}

/// The ActualLRPs of an index, `PROCESS/INDEX`, or of a container, by its guid.
///
/// # Errors
/// `ResourceNotFound`.
pub fn instance(world: &World, show: &Show) -> Result<One<Vec<InstanceRow>>, Refusal> {
    let rows: Vec<InstanceRow> = match (show.id.split_once('/'), show.id.parse::<InstanceGuid>()) {
        (Some((guid, index)), _) => {
            let process = ProcessGuid::new(guid).ok().and_then(|guid| world.process(&guid));
            let slot = process.zip(index.parse().ok()).and_then(|(process, index)| process.slot(index));
            process.zip(slot).map(|(process, slot)| slot_rows(process, slot).collect()).unwrap_or_default()
        }
        (None, Ok(guid)) => {
            let all = world.processes_from(None).flat_map(instance_rows);
            all.filter(|row| row.instance_guid == Some(guid)).collect()
        }
        (None, Err(_)) => vec![],
    };
    one(world, Some(rows).filter(|rows| !rows.is_empty()), format!("instance {}", show.id))
}

/// The tasks that pass the filter, in order of their guids.
#[must_use]
pub fn tasks(world: &World, filter: &Filter) -> Page<TaskRow> {
    let after = filter.cursor.as_deref().and_then(|cursor| TaskGuid::new(cursor).ok());
    let on = |task: &&Task| {
        filter.cell_id.as_ref().is_none_or(|cell| task.holder().is_some_and(|by| by.cell_id == *cell))
    };
    let rows = world
        .tasks_from(after.as_ref())
        .filter(|task| in_domain(&task.domain, filter))
        .filter(on)
        .filter_map(|task| task_row(task, false));
    page(world, rows, filter, |row| row.task_guid.to_string())
}

/// One task with its definition.
///
/// # Errors
/// `ResourceNotFound`.
pub fn task(world: &World, show: &Show) -> Result<One<TaskRow>, Refusal> {
    let found = TaskGuid::new(&show.id).ok().and_then(|guid| world.task(&guid));
    one(world, found.and_then(|task| task_row(task, true)), format!("task {}", show.id))
}

fn task_row(task: &Task, whole: bool) -> Option<TaskRow> {
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
        state: task.state_name().into(),
        instance_guid: task.holder().map(|by| by.instance_guid),
        cell_id: task.holder().map(|by| by.cell_id.clone()),
        failed,
        failure_reason,
        result,
        placement_error,
        first_completed_at: done.map(|done| done.first_completed_at),
        since: task.since,
        annotation: task.definition.annotation.clone(),
        definition: whole.then(|| (*task.definition).clone()),
    })
}

/// The domains that were ever refreshed.
#[must_use]
pub fn domains(world: &World, filter: &Filter, now: Timestamp) -> Page<DomainRow> {
    let rows = world
        .domains()
        .filter(|(domain, _)| filter.cursor.as_deref().is_none_or(|after| domain.as_str() > after))
        .map(|(domain, freshness)| DomainRow {
            domain: domain.clone(),
            fresh: freshness.is_fresh(now),
            refreshed_at: freshness.refreshed_at,
            expires_at: freshness.expires_at,
        });
    page(world, rows, filter, |row| row.domain.to_string())
}

/// The cells that were ever seen.
#[must_use]
pub fn cells(world: &World, filter: &Filter) -> Page<CellRow> {
    let rows = world
        .cells()
        .filter(|(id, _)| filter.cursor.as_deref().is_none_or(|after| id.as_str() > after))
        .map(|(id, cell)| cell_row(world, id, cell));
    page(world, rows, filter, |row| row.cell_id.to_string())
}

/// One cell.
///
/// # Errors
/// `ResourceNotFound`.
pub fn cell(world: &World, show: &Show) -> Result<One<CellRow>, Refusal> {
    let id = CellId::new(&show.id).ok();
    let row = id.as_ref().and_then(|id| world.cell(id).map(|cell| cell_row(world, id, cell)));
    one(world, row, format!("cell {}", show.id))
}

fn cell_row(world: &World, id: &CellId, cell: &Cell) -> CellRow {
    let count =
        |of: fn(&&WorkRef) -> bool| u32::try_from(world.on_cell(id).filter(of).count()).unwrap_or(u32::MAX);
    CellRow {
        cell_id: id.clone(),
        presence: cell.presence.clone(),
        state: cell_state(cell).into(),
        instances: count(|work| matches!(work, WorkRef::Lrp(..))),
        tasks: count(|work| matches!(work, WorkRef::Task(_))),
        used: world.used_on(id),
        since: cell.since,
    }
}

const fn cell_state(cell: &Cell) -> &'static str {
    match (cell.present, cell.evacuating, cell.healthy) {
        (false, _, _) => "ABSENT",
        (true, true, _) => "EVACUATING",
        (true, false, false) => "UNHEALTHY",
        (true, false, true) => "PRESENT",
    }
}

/// The evaluations that are kept, of processes first.
#[must_use]
pub fn evaluations(world: &World, filter: &Filter) -> Page<EvaluationRow> {
    let after = filter.cursor.as_deref();
    let rows = all_evaluations(world)
        .filter(|row| in_domain(&row.domain, filter))
        .filter(|row| {
            filter.process_guid.as_ref().is_none_or(|guid| row.subject == format!("process {guid}"))
        })
        .filter(|row| after.is_none_or(|after| evaluation_key(row).as_str() > after));
    page(world, rows, filter, evaluation_key)
}

fn evaluation_key(row: &EvaluationRow) -> String {
    format!("{}/{}", row.subject, row.evaluation.id)
}

/// One evaluation by its id.
///
/// # Errors
/// `ResourceNotFound`: no such one, or it is no longer kept.
pub fn evaluation(world: &World, show: &Show) -> Result<One<EvaluationRow>, Refusal> {
    let row = all_evaluations(world).find(|row| row.evaluation.id.to_string() == show.id);
    one(world, row, format!("evaluation {}", show.id))
}

fn all_evaluations(world: &World) -> impl Iterator<Item = EvaluationRow> + '_ {
    let row = |subject: String, domain: &Domain, evaluation: &Evaluation, left: u32| EvaluationRow {
        subject,
        domain: domain.clone(),
        evaluation: evaluation.clone(),
        left: if evaluation.status.is_open() { left } else { 0 },
    };
    let of_processes = world.processes_from(None).flat_map(move |process| {
        let rows = process.evaluations.iter();
        rows.map(move |of| row(format!("process {}", process.guid), &process.domain, of, process.unclaimed))
    });
    let of_tasks = world.tasks_from(None).flat_map(move |task| {
        let left = u32::from(task.is_pending());
        task.evaluations.iter().map(move |of| row(format!("task {}", task.guid), &task.domain, of, left))
    });
    of_processes.chain(of_tasks)
}

/// The cluster.
///
/// # Errors
/// `ResourceNotFound` before it is founded.
pub fn cluster(world: &World, durability: &str, set_aside: &SetAside) -> Result<One<ClusterRow>, Refusal> {
    let mut cells: BTreeMap<String, u32> = BTreeMap::new();
    let mut zones = vec![];
    for (_, cell) in world.cells() {
        *cells.entry(cell_state(cell).into()).or_default() += 1;
        if cell.present {
            zones.push(cell.presence.zone.clone());
        }
    }
    zones.sort();
    zones.dedup();
    let counts = world.counts();
    let row = world.cluster().map(|cluster| ClusterRow {
        cluster_id: cluster.id,
        shards: cluster.shards,
        format: cluster.format,
        bbs: cluster.bbs.clone(),
        auctioneer: cluster.auctioneer.clone(),
        cells,
        zones,
        lrps: counts.processes,
        instances: [
            ("UNCLAIMED", counts.instances.unclaimed),
            ("CLAIMED", counts.instances.claimed),
            ("RUNNING", counts.instances.running),
            ("CRASHED", counts.instances.crashed),
        ]
        .map(|(state, count)| (state.to_owned(), count))
        .into(),
        tasks: [
            ("PENDING", counts.tasks.pending),
            ("RUNNING", counts.tasks.running),
            ("COMPLETED", counts.tasks.completed),
            ("RESOLVING", counts.tasks.resolving),
        ]
        .map(|(state, count)| (state.to_owned(), count))
        .into(),
        found_by_convergence: world.found_by_convergence(),
        durability: durability.to_owned(),
        set_aside: set_aside.clone(),
    });
    one(world, row, "the cluster".into())
}

fn in_domain(domain: &Domain, filter: &Filter) -> bool {
    filter.domain.as_ref().is_none_or(|wanted| wanted == domain)
}

fn cursor_guid(filter: &Filter) -> Option<ProcessGuid> {
    filter.cursor.as_deref().and_then(|cursor| ProcessGuid::new(cursor).ok())
}

fn one<T>(world: &World, row: Option<T>, what: String) -> Result<One<T>, Refusal> {
    row.map(|row| One { position: world.position(), row }).ok_or_else(|| Refusal::not_found(what))
}

/// A page ends at its limit of rows, or of bytes as JSON.
fn page<T: serde::Serialize>(
    world: &World,
    rows: impl Iterator<Item = T>,
    filter: &Filter,
    key: impl Fn(&T) -> String,
) -> Page<T> {
    let limit = filter.limit.unwrap_or(PAGE_ROWS).clamp(1, PAGE_ROWS);
    let mut page = Page { position: world.position(), rows: vec![], next: None };
    let mut bytes = 0;
    for row in rows {
        let size = serde_json::to_vec(&row).map_or(0, |json| json.len());
        let full = page.rows.len() >= limit || bytes + size > schemas::limits::PAGE_BYTES;
        if full && !page.rows.is_empty() {
            page.next = page.rows.last().map(&key);
            break;
        }
        bytes += size;
        page.rows.push(row);
    }
    page
}

/// Refuses a cursor or a limit that no page gave.
///
/// # Errors
/// `InvalidRequest` with the field.
pub fn check(filter: &Filter) -> Result<(), Refusal> {
    if filter.limit == Some(0) || filter.limit.is_some_and(|limit| limit > PAGE_ROWS) {
        let problem = format!("must be 1 to {PAGE_ROWS}");
        return Err(Refusal::invalid(vec![BadField { field: "limit".into(), problem }]));
    }
    Ok(())
}
