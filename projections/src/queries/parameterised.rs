//! Rows of parameterised tasks.

use machines::parameterised::{Parameterised, QueuedDispatch};
use machines::task::Task;
use schemas::Refusal;
use schemas::names::{ParameterisedGuid, TaskGuid};
use schemas::parameterised::DispatchSummary;
use schemas::query::{Filter, Page, ParameterisedRow, Show, ShowAnswer};
use schemas::verb::QueryVerb;

use super::{Observed, in_domain, page, parse_cursor, single_row};
use crate::world::World;

/// Maximum number of running tasks in a row. In lists, it is also the maximum number of waiting dispatches in
/// a row.
const MAX_NAMED: usize = 16;

/// Returns the parameterised tasks that pass the filter, in ascending order of their guids.
///
/// # Errors
/// See [`super::lrps`].
pub fn parameterised(
    world: &World,
    filter: &Filter,
    observed: &Observed,
) -> Result<Page<ParameterisedRow>, Refusal> {
    let after =
        parse_cursor(world, filter, QueryVerb::ParameterisedList, |key| ParameterisedGuid::new(key).ok())?;
    let rows = world
        .parameterised_from(after.as_ref())
        .filter(|known| in_domain(&known.domain, filter))
        .filter_map(|known| parameterised_row(world, known, filter.definitions, MAX_NAMED));
    Ok(page(world, rows, filter, observed, |row| row.parameterised_guid.to_string()))
}

/// Returns one parameterised task, with all its waiting dispatches and the definition of the tasks that it
/// launches.
///
/// # Errors
/// `ResourceNotFound` if there is no such parameterised task.
pub fn parameterised_one(world: &World, show: &Show) -> Result<ShowAnswer<ParameterisedRow>, Refusal> {
    let found = ParameterisedGuid::new(&show.id).ok().and_then(|guid| world.parameterised(&guid));
    let row = found.and_then(|known| parameterised_row(world, known, true, usize::MAX));
    single_row(world, row, format!("parameterised task {}", show.id))
}

pub(crate) fn parameterised_row(
    world: &World,
    known: &Parameterised,
    whole: bool,
    queued: usize,
) -> Option<ParameterisedRow> {
    let desired = known.desired.as_ref()?;
    let running: Vec<TaskGuid> = world
        .dispatched_by(&known.guid)
        .filter(|task| Task::is_live(task))
        .map(|task| task.guid.clone())
        .collect();
    let waits = |waiting: &QueuedDispatch| {
        let QueuedDispatch { number, at, dispatch, .. } = waiting;
        let task_guid = known.guid.dispatched_task_guid(*number).ok()?;
        Some(DispatchSummary { number: *number, task_guid, key: dispatch.key.clone(), at: *at })
    };
    Some(ParameterisedRow {
        parameterised_guid: known.guid.clone(),
        domain: known.domain.clone(),
        epoch: known.epoch,
        version: known.version,
        last_decision: known.last_decision,
        payload: desired.payload,
        required_parameters: desired.required_parameters.clone(),
        optional_parameters: desired.optional_parameters.clone(),
        concurrency: desired.concurrency,
        overflow: desired.overflow,
        waiting: known.queue.len() as u64,
        queued: known.queue.iter().take(queued).filter_map(|waiting| waits(waiting)).collect(),
        running: running.len() as u64,
        tasks: running.into_iter().take(MAX_NAMED).collect(),
        last: known.last.clone(),
        dispatched: known.dispatched,
        launched: known.launched,
        withdrawn: known.withdrawn,
        since: known.since,
        definition: whole.then(|| (*desired.definition).clone()),
    })
}
