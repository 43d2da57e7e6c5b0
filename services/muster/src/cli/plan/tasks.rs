//! `muster task plan`: predicts the placement of the tasks in a file.

use std::path::Path;

use auctioneer::plan::{ClusterCopy, TaskOutcome};
use client::Client;
use schemas::definition::DesiredTask;
use schemas::names::TaskGuid;
use schemas::spec::Item;
use schemas::{Code, Position, Refusal};
use serde::Serialize;

use super::{
    CellResources, ClusterState, OtherWork, cell_resources, end, exact_plan_note, free, no_room_text,
    victims_text,
};
use crate::cli::failure::Failure;
use crate::cli::output::{Output, RenderOptions};
use crate::cli::table::{Cell, Table};
use crate::cli::{file, find, task, words};

/// Predicted effect of running the tasks of a file.
#[derive(Clone, Debug, Serialize)]
struct Plan {
    /// Log position of the plan.
    position: Position,
    /// Always `true`, because a task is always new.
    changes: bool,
    /// `true` if all tasks would run.
    fits: bool,
    tasks: Vec<PlannedTask>,
    /// Work outside of the file that waits for placement.
    others: OtherWork,
    /// Free resources of the cells, before and afterwards.
    cells: Vec<CellResources>,
}

/// Predicted fate of a task.
#[derive(Clone, Debug, Serialize)]
struct PlannedTask {
    task_guid: TaskGuid,
    fate: TaskOutcome,
}

/// Prints the predicted effect of running the tasks of a file.
pub(crate) async fn run(
    client: &Client,
    path: &Path,
    items: Vec<Item>,
    output: Output,
) -> Result<(), Failure> {
    let desired = task::tasks_of_file(path, file::seal_items(client, items).await?, "planned")?;
    let ClusterState { position, copy, .. } = ClusterState::ask(client, []).await?;
    let plan = plan(client, position, copy, desired).await?;
    output.one(&plan, |plan, look| plan.text(path, look))?;
    end(plan.changes, plan.fits)
}

async fn plan(
    client: &Client,
    position: Position,
    mut copy: ClusterCopy,
    desired: Vec<DesiredTask>,
) -> Result<Plan, Failure> {
    let before = free(&copy);
    for task in desired {
        let guid = task.task_guid.clone();
        ask(client, &mut copy, task).await.map_err(|failure| task::run_failure(failure, "plan", &guid))?;
    }
    let fates = copy.place_tasks().map_err(Failure::from)?;
    let tasks: Vec<PlannedTask> =
        fates.into_iter().map(|(task_guid, fate)| PlannedTask { task_guid, fate }).collect();
    Ok(Plan {
        position,
        changes: true,
        fits: tasks.iter().all(|planned| planned.fate.runs()),
        tasks,
        others: OtherWork::from_copy(&copy),
        cells: cell_resources(before, &copy),
    })
}

/// Applies a task to the copy, in the same way as `task run` would send it to the cluster.
async fn ask(client: &Client, copy: &mut ClusterCopy, desired: DesiredTask) -> Result<(), Failure> {
    let guid = &desired.task_guid;
    match client.task(guid).await {
        Ok(one) if one.row.domain != desired.domain => {
            let forbidden = Refusal::new(Code::Forbidden, format!("task {guid} is in another domain"));
            let known = Some(one.row.domain);
            return Err(find::exists_in_other_domain(
                forbidden.into(),
                format!("task {guid}"),
                known,
                &desired.domain,
            ));
        }
        Ok(_) => copy.add_existing_task(desired.clone()),
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error.into()),
    }
    copy.desire_task(desired).map_err(Failure::from)
}

impl Plan {
    fn text(&self, path: &Path, look: RenderOptions) -> String {
        let mut table = Table::new(&["TASK", "WOULD", "CELL", "ZONE", "NOTE"]);
        for PlannedTask { task_guid, fate } in &self.tasks {
            let (would, cell, zone, note) = match fate {
                TaskOutcome::Runs { cell_id, zone } => ("run", Some(cell_id), Some(zone), None),
                TaskOutcome::Preempts { cell_id, zone, victims } => {
                    let note = format!("after these have stopped: {}", victims_text(victims));
                    ("preempt", Some(cell_id), Some(zone), Some(note))
                }
                TaskOutcome::Waits { deadline_ms, no_room } => {
                    let most = words::duration_text(std::time::Duration::from_millis(*deadline_ms));
                    ("wait", None, None, Some(format!("for room, at most {most}: {}", no_room_text(no_room))))
                }
                TaskOutcome::Fails { no_room } => ("fail", None, None, Some(no_room_text(no_room))),
            };
            table.row(vec![
                Cell::text(task_guid),
                Cell::text(would),
                Cell::optional(cell),
                Cell::optional(zone),
                Cell::optional(note),
            ]);
        }
        let mut parts = vec![table.render(look.colour)];
        if self.others.waiting > 0 {
            parts.push(self.others.text());
        }
        if self.fits {
            parts.push("all tasks fit".to_owned());
        }
        parts.push(exact_plan_note(self.position, "task run", path));
        parts.join("\n")
    }
}
