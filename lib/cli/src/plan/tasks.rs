//! Tasks of a plan: predicts the placement of new tasks.

use std::time::Duration;

use auctioneer::plan::{ClusterCopy, TaskOutcome};
use cli_base::failure::Failure;
use cli_base::table::{Cell, Table};
use client::Client;
use schemas::definition::DesiredTask;
use schemas::names::TaskGuid;
use serde::Serialize;
use text::words;

use super::{no_room_text, victims_text};
use crate::task;

/// Predicted outcome of a task.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PlannedTask {
    task_guid: TaskGuid,
    pub(super) outcome: TaskOutcome,
}

/// Returns `true` if applying the task would run it. Without `rerun`, this requires that the task does not
/// exist and has not run before. With `rerun`, a task that has ended can run again.
pub(super) async fn runs(client: &Client, task: &DesiredTask, rerun: bool) -> Result<bool, Failure> {
    if let Some(row) = task::existing(client, task).await? {
        return Ok(rerun && task::may_run_again(&row));
    }
    Ok(rerun || task::last_decision(client, &task.task_guid).await?.is_none())
}

/// Places new tasks in the copy of the cluster.
pub(super) fn place(copy: &mut ClusterCopy, tasks: Vec<DesiredTask>) -> Result<Vec<PlannedTask>, Failure> {
    if tasks.is_empty() {
        return Ok(vec![]);
    }
    for task in tasks {
        let guid = task.task_guid.clone();
        copy.desire_task(task)
            .map_err(|refusal| Failure::from(refusal).while_doing(format!("plan task {guid}")))?;
    }
    let outcomes = copy.place_tasks().map_err(Failure::from)?;
    Ok(outcomes.into_iter().map(|(task_guid, outcome)| PlannedTask { task_guid, outcome }).collect())
}

pub(super) fn table(tasks: &[PlannedTask]) -> Table {
    let mut table = Table::new(&["TASK", "WOULD", "CELL", "ZONE", "NOTE"]);
    for PlannedTask { task_guid, outcome } in tasks {
        let (would, cell, zone, note) = match outcome {
            TaskOutcome::Runs { cell_id, zone } => ("run", Some(cell_id), Some(zone), None),
            TaskOutcome::Preempts { cell_id, zone, victims } => {
                let note = format!("after these have stopped: {}", victims_text(victims));
                ("preempt", Some(cell_id), Some(zone), Some(note))
            }
            TaskOutcome::Waits { deadline_ms, placement_failure: no_room } => {
                let most = words::duration_text(Duration::from_millis(*deadline_ms));
                ("wait", None, None, Some(format!("for room, at most {most}: {}", no_room_text(no_room))))
            }
            TaskOutcome::Fails { placement_failure: no_room } => {
                ("fail", None, None, Some(no_room_text(no_room)))
            }
        };
        table.row(vec![
            Cell::text(task_guid),
            Cell::text(would),
            Cell::optional(cell),
            Cell::optional(zone),
            Cell::optional(note),
        ]);
    }
    table
}
