//! Rows of periodic tasks.

use machines::periodic::Periodic;
use machines::task::Task;
use schemas::Refusal;
use schemas::names::{PeriodicGuid, TaskGuid};
use schemas::query::{Filter, Page, PeriodicRow, PeriodicState, Show, ShowAnswer};
use schemas::verb::QueryVerb;

use super::{Observed, in_domain, page, parse_cursor, single_row};
use crate::world::World;

/// Maximum number of running launched tasks that one row lists.
const MAX_RUNNING: usize = 16;

/// Returns the periodic tasks that pass the filter, in order of their guids.
///
/// # Errors
/// See [`super::lrps`].
pub fn periodics(world: &World, filter: &Filter, observed: &Observed) -> Result<Page<PeriodicRow>, Refusal> {
    let after = parse_cursor(world, filter, QueryVerb::PeriodicList, |key| PeriodicGuid::new(key).ok())?;
    let rows = world
        .periodics_from(after.as_ref())
        .filter(|periodic| in_domain(&periodic.domain, filter))
        .filter_map(|periodic| periodic_row(world, periodic, filter.definitions));
    Ok(page(world, rows, filter, observed, |row| row.periodic_guid.to_string()))
}

/// Returns one periodic task with the definition of its tasks.
///
/// # Errors
/// `ResourceNotFound` if there is no such periodic task.
pub fn periodic(world: &World, show: &Show) -> Result<ShowAnswer<PeriodicRow>, Refusal> {
    let found = PeriodicGuid::new(&show.id).ok().and_then(|guid| world.periodic(&guid));
    single_row(
        world,
        found.and_then(|known| periodic_row(world, known, true)),
        format!("periodic task {}", show.id),
    )
}

pub(crate) fn periodic_row(world: &World, periodic: &Periodic, whole: bool) -> Option<PeriodicRow> {
    let desired = periodic.desired.as_ref()?;
    let running: Vec<TaskGuid> = world
        .launched_by(&periodic.guid)
        .filter(|task| Task::is_live(task))
        .map(|task| task.guid.clone())
        .take(MAX_RUNNING)
        .collect();
    Some(PeriodicRow {
        periodic_guid: periodic.guid.clone(),
        domain: periodic.domain.clone(),
        epoch: periodic.epoch,
        version: periodic.version,
        last_decision: periodic.last_decision,
        state: if periodic.paused { PeriodicState::Paused } else { PeriodicState::Active },
        cron: desired.schedule.cron().to_owned(),
        time_zone: desired.schedule.time_zone().to_owned(),
        overlap: desired.overlap,
        next: periodic.next,
        queued: periodic.queued_due,
        last: periodic.last.clone(),
        running,
        launched: periodic.launched,
        skipped: periodic.skipped,
        since: periodic.since,
        definition: whole.then(|| (*desired.definition).clone()),
    })
}
