//! Convergence: what is due although nobody asked (Diego Dev Notes, "Harmonizing DesiredLRPs with ActualLRPs:
//! Convergence" and Diego Dev Notes, "Maintaining Consistency: Convergence").
//!
//! It returns commands, which pass through `decide` like anybody's: there is no second road to a transition. The
//! duties themselves are in `schemas::process` and `schemas::task`; here is only who has to be looked at.

use projections::{Due, WorkRef, World};
use schemas::names::{CellId, ProcessGuid, TaskGuid};
use schemas::{Timestamp, process, task};

/// How often everything is looked at.
pub const INTERVAL: std::time::Duration = std::time::Duration::from_secs(30);

/// A process or a task to be looked at.
pub type Suspect = Due;

/// What has a timer that ran out.
#[must_use]
pub fn timers(world: &World, now: Timestamp) -> Vec<Suspect> {
    world.due(now)
}

/// What names a cell.
#[must_use]
pub fn of_cell(world: &World, cell: &CellId) -> Vec<Suspect> {
    let mut suspects: Vec<Suspect> = world.on_cell(cell).map(suspect).collect();
    suspects.sort();
    suspects.dedup();
    suspects
}

fn suspect(work: &WorkRef) -> Suspect {
    match work {
        WorkRef::Lrp(guid, _) => Due::Process(guid.clone()),
        WorkRef::Task(guid) => Due::Task(guid.clone()),
    }
}

/// Everything that has something due: the safety net, a look at the whole world.
#[must_use]
pub fn everything(world: &World, now: Timestamp) -> Vec<Suspect> {
    let present = |cell: &CellId| world.is_present(cell);
    let due_process = |guid: &ProcessGuid| {
        let known = world.process(guid);
        let fresh = known.is_some_and(|known| world.is_fresh(&known.domain, now));
        let context = process::Context { now, fresh, present: &present };
        process::decide(known, &process::Command::Converge, context).is_ok_and(|events| !events.is_empty())
    };
    let due_task = |guid: &TaskGuid| {
        let context = task::Context { now, present: &present };
        task::decide(world.task(guid), &task::Command::Converge, context)
            .is_ok_and(|events| !events.is_empty())
    };
    let processes = world.processes_from(None).map(|process| &process.guid).filter(|guid| due_process(guid));
    let tasks = world.tasks_from(None).map(|task| &task.guid).filter(|guid| due_task(guid));
    processes.cloned().map(Due::Process).chain(tasks.cloned().map(Due::Task)).collect()
}
