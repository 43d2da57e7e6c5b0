//! Queries: what is true at one position, as rows. Pure reads of the World.

mod rows;

use schemas::limits::{PAGE_BYTES, PAGE_ROWS};
use schemas::names::{CellId, Domain, InstanceGuid, ProcessGuid, TaskGuid};
use schemas::query::{
    CellRow, ClusterRow, DomainRow, EvaluationRow, EvaluationSubject, Filter, InstancePresence, InstanceRow,
    LrpRow, One, Page, SetAside, Show, TaskRow,
};
use schemas::task::Task;
use schemas::{BadField, Code, Refusal, Timestamp};

use self::rows::{all_evaluations, cell_row, cluster_row, instance_rows, lrp_row, slot_rows, task_row};
use crate::index::WorkRef;
use crate::world::World;

/// What rows show that the log doesn't hold: told by the BBS that answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// What its clock shows.
    pub now: Timestamp,
    /// Whether what is acknowledged survives a power cut, as far as it can see.
    pub durability: String,
    /// What the journal holds that is no entry.
    pub set_aside: SetAside,
}

/// What can be asked that has rows as its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// The DesiredLRPs.
    Lrps(Filter),
    /// One of them.
    Lrp(Show),
    /// The ActualLRPs.
    Instances(Filter),
    /// Those of one index.
    Instance(Show),
    /// The tasks.
    Tasks(Filter),
    /// One of them.
    Task(Show),
    /// The domains.
    Domains(Filter),
    /// The cells.
    Cells(Filter),
    /// One of them.
    Cell(Show),
    /// The evaluations.
    Evaluations(Filter),
    /// One of them.
    Evaluation(Show),
    /// The cluster.
    Cluster,
}

impl Query {
    /// The answer, as JSON text of a [`Page`] or of [`One`].
    ///
    /// # Errors
    /// What is wrong with the question, or that there is no such thing.
    pub fn answer(&self, world: &World, observed: &Observed) -> Result<String, Refusal> {
        match self {
            Self::Lrps(filter) => check(filter).and_then(|()| json(&lrps(world, filter))),
            Self::Lrp(show) => lrp(world, show).and_then(|row| json(&row)),
            Self::Instances(filter) => check(filter).and_then(|()| json(&instances(world, filter))),
            Self::Instance(show) => instance(world, show).and_then(|row| json(&row)),
            Self::Tasks(filter) => check(filter).and_then(|()| json(&tasks(world, filter))),
            Self::Task(show) => task(world, show).and_then(|row| json(&row)),
            Self::Domains(filter) => check(filter).and_then(|()| json(&domains(world, filter, observed))),
            Self::Cells(filter) => check(filter).and_then(|()| json(&cells(world, filter))),
            Self::Cell(show) => cell(world, show).and_then(|row| json(&row)),
            Self::Evaluations(filter) => check(filter).and_then(|()| json(&evaluations(world, filter))),
            Self::Evaluation(show) => evaluation(world, show).and_then(|row| json(&row)),
            Self::Cluster => cluster(world, observed).and_then(|row| json(&row)),
        }
    }
}

fn json<T: serde::Serialize>(rows: &T) -> Result<String, Refusal> {
    serde_json::to_string(rows).map_err(|error| Refusal::new(Code::Unavailable, error.to_string()))
}

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
        let key = (row.process_guid.clone(), row.index, row.presence == InstancePresence::Evacuating);
        on && after.as_ref().is_none_or(|after| key > *after)
    });
    page(world, rows, filter, |row| {
        format!(
            "{}/{}/{}",
            row.process_guid,
            row.index,
            u8::from(row.presence == InstancePresence::Evacuating)
        )
    })
}

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

/// The domains that were ever refreshed.
#[must_use]
pub fn domains(world: &World, filter: &Filter, observed: &Observed) -> Page<DomainRow> {
    let rows = world
        .domains()
        .filter(|(domain, _)| filter.cursor.as_deref().is_none_or(|after| domain.as_str() > after))
        .map(|(domain, freshness)| DomainRow {
            domain: domain.clone(),
            fresh: freshness.is_fresh(observed.now),
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

/// The evaluations that are kept, of processes first.
#[must_use]
pub fn evaluations(world: &World, filter: &Filter) -> Page<EvaluationRow> {
    let after = filter.cursor.as_deref();
    let rows = all_evaluations(world)
        .filter(|row| in_domain(&row.domain, filter))
        .filter(|row| {
            filter
                .process_guid
                .as_ref()
                .is_none_or(|guid| row.subject == EvaluationSubject::Process(guid.clone()))
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

/// The cluster.
///
/// # Errors
/// `ResourceNotFound` before it is founded.
pub fn cluster(world: &World, observed: &Observed) -> Result<One<ClusterRow>, Refusal> {
    one(world, cluster_row(world, observed), "the cluster".into())
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
        let full = page.rows.len() >= limit || bytes + size > PAGE_BYTES;
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
