//! `muster task plan`: predicts the placement of the tasks in a file.

use std::path::Path;

use auctioneer::plan::{Copy, Fate};
use client::Client;
use schemas::definition::DesiredTask;
use schemas::names::TaskGuid;
use schemas::spec::Item;
use schemas::{Code, Position, Refusal};
use serde::Serialize;

use super::{Known, Others, Room, end, exactly, free, in_words, rooms, told};
use crate::cli::failure::Failure;
use crate::cli::output::{Look, Output};
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
    tasks: Vec<Planned>,
    /// Work outside of the file that waits for placement.
    others: Others,
    /// Free resources of the cells, before and afterwards.
    cells: Vec<Room>,
}

/// Predicted fate of a task.
#[derive(Clone, Debug, Serialize)]
struct Planned {
    task_guid: TaskGuid,
    fate: Fate,
}

/// Prints the predicted effect of running the tasks of a file.
pub(crate) async fn run(
    client: &Client,
    path: &Path,
    items: Vec<Item>,
    output: Output,
) -> Result<(), Failure> {
    let desired = task::of_file(path, file::sealed(client, items).await?, "planned")?;
    let Known { position, copy, .. } = Known::ask(client, []).await?;
    let plan = plan(client, position, copy, desired).await?;
    output.one(&plan, |plan, look| plan.text(path, look))?;
    end(plan.changes, plan.fits)
}

async fn plan(
    client: &Client,
    position: Position,
    mut copy: Copy,
    desired: Vec<DesiredTask>,
) -> Result<Plan, Failure> {
    let before = free(&copy);
    for task in desired {
        let guid = task.task_guid.clone();
        ask(client, &mut copy, task).await.map_err(|failure| task::not_run(failure, "plan", &guid))?;
    }
    let fates = copy.place_tasks().map_err(Failure::from)?;
    let tasks: Vec<Planned> =
        fates.into_iter().map(|(task_guid, fate)| Planned { task_guid, fate }).collect();
    Ok(Plan {
        position,
        changes: true,
        fits: tasks.iter().all(|planned| planned.fate.runs()),
        tasks,
        others: Others::of(&copy),
        cells: rooms(before, &copy),
    })
}

/// Applies the command that `task run` would send to the cluster to the copy.
async fn ask(client: &Client, copy: &mut Copy, desired: DesiredTask) -> Result<(), Failure> {
    let guid = &desired.task_guid;
    match client.task(guid).await {
        Ok(one) if one.row.domain != desired.domain => {
            let forbidden = Refusal::new(Code::Forbidden, format!("task {guid} is in another domain"));
            let known = Some(one.row.domain);
            return Err(find::elsewhere(forbidden.into(), format!("task {guid}"), known, &desired.domain));
        }
        Ok(_) => copy.knows_task(desired.clone()),
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error.into()),
    }
    copy.desire_task(desired).map_err(Failure::from)
}

impl Plan {
    fn text(&self, path: &Path, look: Look) -> String {
        let mut table = Table::new(&["TASK", "WOULD", "CELL", "ZONE", "NOTE"]);
        for Planned { task_guid, fate } in &self.tasks {
            let (would, cell, zone, note) = match fate {
                Fate::Runs { cell_id, zone } => ("run", Some(cell_id), Some(zone), None),
                Fate::Preempts { cell_id, zone, victims } => {
                    let note = format!("when these have stopped: {}", in_words(victims));
                    ("preempt", Some(cell_id), Some(zone), Some(note))
                }
                Fate::Waits { deadline_ms, no_room } => {
                    let most = words::span(std::time::Duration::from_millis(*deadline_ms));
                    ("wait", None, None, Some(format!("for room, {most} at most: {}", told(no_room))))
                }
                Fate::Fails { no_room } => ("fail", None, None, Some(told(no_room))),
            };
            table.row(vec![
                Cell::text(task_guid),
                Cell::text(would),
                Cell::maybe(cell),
                Cell::maybe(zone),
                Cell::maybe(note),
            ]);
        }
        let mut parts = vec![table.render(look.colour)];
        if self.others.waiting > 0 {
            parts.push(self.others.text());
        }
        if self.fits {
            parts.push("all of them would find their place".to_owned());
        }
        parts.push(exactly(self.position, "task run", path));
        parts.join("\n")
    }
}
