//! Waits until an evacuated cell is empty: no record names the cell, and its rep has left the cluster. A rep
//! leaves after its last container has ended.

use std::time::Duration;

use cli_base::failure::Failure;
use cli_base::output::{Output, note};
use client::Client;
use runtime::exit::Exit;
use schemas::Position;
use schemas::names::CellId;
use schemas::query::{CellRow, CellState};
use text::words::{count, duration_text};
use tokio::time::timeout;

use super::bar::Bar;
use super::find;

/// Interval between polls of the cell.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Waits until a cell is empty, and prints its remaining work. Returns the reason for the cell's absence.
pub(super) async fn wait_until_empty(
    client: &Client,
    id: &CellId,
    after: Position,
    limit: Option<Duration>,
    output: Output,
) -> Result<String, Failure> {
    let bar = Bar::new(output, format!("cell {id} is being evacuated"));
    let emptied = timeout(limit.unwrap_or(Duration::MAX), poll_until_empty(client, id, after, &bar));
    let emptied = tokio::select! {
        emptied = emptied => emptied,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.map_err(|error| Failure::new(Exit::Failed, "Signal", error.to_string()))?;
            drop(bar);
            note(&format!("interrupted: the evacuation continues; see muster cell show {id}"));
            return Err(Failure::silent(Exit::Interrupted));
        }
    };
    emptied.unwrap_or_else(|_| {
        let waited = duration_text(limit.unwrap_or_default());
        let why = format!("cell {id} is not empty after {waited}");
        let advice = format!("the evacuation continues; see muster cell show {id}");
        Err(Failure::new(Exit::TimedOut, "WaitTimedOut", why).advise(advice))
    })
}

async fn poll_until_empty(
    client: &Client,
    id: &CellId,
    after: Position,
    bar: &Bar,
) -> Result<String, Failure> {
    // The client's read position includes the evacuation command, so every answer reflects this command.
    debug_assert!(
        client.seen_position().is_some_and(|seen| seen >= after),
        "the client has read the evacuation command"
    );
    let mut said = String::new();
    loop {
        let cell = find::cell(client, id).await?.row;
        // A completed task uses no resources of the cell, but its record names the cell until the record is
        // deleted. Such tasks are not counted.
        if let (0, 0, Some(gone)) = (cell.instances, cell.tasks, &cell.absent_reason) {
            return Ok(gone.clone());
        }
        if !cell.evacuation_requested && cell.state != CellState::Evacuating && cell.absent_reason.is_none() {
            let why = format!("the evacuation of cell {id} was canceled");
            return Err(Failure::new(Exit::Conflict, "Withdrawn", why));
        }
        let line = remaining_work(&cell);
        if line != said {
            bar.print_line(&line);
        }
        bar.set(line.clone());
        said = line;
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Describes the work that is left on a cell in one line.
fn remaining_work(cell: &CellRow) -> String {
    if (cell.instances, cell.tasks) == (0, 0) && cell.state == CellState::Evacuating {
        return format!("cell {} is stopping its last containers", cell.cell_id);
    }
    let waits = match (cell.absent_reason.is_some(), (cell.state == CellState::Evacuating)) {
        (true, _) => " (the cell is absent: its remaining work is being removed)",
        (false, false) => " (its rep has not been reached yet)",
        (false, true) => "",
    };
    format!(
        "cell {} still holds {} and {}{waits}",
        cell.cell_id,
        count(cell.instances.into(), "instance"),
        count(cell.tasks.into(), "task")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::example_cell;

    #[test]
    fn remaining_work_names_counts_and_reason() {
        let asked = CellRow { evacuation_requested: true, instances: 1, ..example_cell() };
        assert_eq!(
            remaining_work(&asked),
            "cell c1 still holds 1 instance and 0 tasks (its rep has not been reached yet)"
        );
        let evacuating = CellRow { state: CellState::Evacuating, instances: 0, ..asked };
        assert_eq!(remaining_work(&evacuating), "cell c1 is stopping its last containers");
    }
}
