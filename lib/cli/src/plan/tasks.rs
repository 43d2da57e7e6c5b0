//! Text of the tasks of a plan.

use std::time::Duration;

use auctioneer::plan::TaskOutcome;
use cli_base::table::{Cell, Table};
use explain::plan::PlannedTask;
use text::words;

use super::{no_room_text, victims_text};

pub(super) fn table(tasks: &[PlannedTask]) -> Table {
    let headers = ["TASK", "WOULD", "CELL", "ZONE", "NOTE"];
    Table::with_rows(headers, tasks, |PlannedTask { task_guid, outcome }| {
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
        [
            Cell::text(task_guid),
            Cell::text(would),
            Cell::optional(cell),
            Cell::optional(zone),
            Cell::optional(note),
        ]
    })
}
