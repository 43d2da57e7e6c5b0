//! Text output of ended instances and tasks.

use std::time::Duration;

use cli_base::failure::Failure;
use cli_base::output::RenderOptions;
use cli_base::table::{Cell, Table, facts};
use client::{Client, ListFilter};
use schemas::ended::EndKind;
use schemas::names::DefinitionId;
use schemas::query::{EndedInstanceRow, EndedTaskRow};
use text::describe;
use text::words::{age, duration_text, short_id};

use super::find;

/// Returns the table of ended instances.
pub(crate) fn instance_table(rows: &[EndedInstanceRow], look: RenderOptions) -> Table {
    let headers = ["INSTANCE", "ID", "CELL", "ENDED", "RAN", "OUTCOME", "EXIT", "CRASHES", "NOTE"];
    Table::with_rows(headers, rows, |row| {
        [
            Cell::text(name(row)),
            Cell::text(short_id(&row.instance_guid, look.full_ids)),
            Cell::text(&row.cell_id),
            Cell::text(format!("{} ago", age(look.now, row.ended_at))),
            Cell::optional(row.duration_ms.map(format_duration)),
            Cell::state(end_state(row)),
            Cell::optional(row.exit_status),
            if row.end_kind == EndKind::Crashed { Cell::number(row.crash_count) } else { Cell::None },
            Cell::optional(end_reason(row)),
        ]
    })
}

/// Formats an ended instance, including the command that shows its log.
pub(crate) fn describe_instance(row: &EndedInstanceRow, look: RenderOptions) -> String {
    let ended = format!("{} ({} ago), position {}", row.ended_at, age(look.now, row.ended_at), row.position);
    let crashes = (row.end_kind == EndKind::Crashed).then(|| row.crash_count.to_string());
    facts(&[
        ("instance", name(row)),
        ("id", row.instance_guid.to_string()),
        ("domain", row.domain.to_string()),
        ("state", end_state(row).to_owned()),
        ("exit status", row.exit_status.map(|status| status.to_string()).unwrap_or_default()),
        ("reason", end_reason(row).unwrap_or_default()),
        ("crashes", crashes.unwrap_or_default()),
        ("started", row.started_at.map_or_else(|| "never RUNNING".to_owned(), |at| at.to_string())),
        ("ended", ended),
        ("ran", row.duration_ms.map(format_duration).unwrap_or_default()),
        ("cell", row.cell_id.to_string()),
        ("definition", row.definition_id.to_string()),
        ("log", format!("muster logs {}", row.instance_guid)),
    ])
}

/// Returns the table of ended tasks.
pub(crate) fn task_table(rows: &[EndedTaskRow], look: RenderOptions) -> Table {
    let headers = ["TASK", "DOMAIN", "OUTCOME", "CELL", "ENDED", "RAN", "RESOLVED", "NOTE"];
    Table::with_rows(headers, rows, |row| {
        let note = row.failure_reason.as_ref().or(row.result.as_ref());
        [
            Cell::text(&row.task_guid),
            Cell::text(&row.domain),
            Cell::state(if row.failed { "FAILED" } else { "SUCCEEDED" }),
            Cell::optional(row.cell_id.as_ref()),
            Cell::text(format!("{} ago", age(look.now, row.first_completed_at))),
            Cell::optional(row.duration_ms.map(format_duration)),
            Cell::text(if row.resolved { "yes" } else { "expired" }),
            Cell::optional(note.filter(|note| !note.is_empty())),
        ]
    })
}

/// Returns the ended instance whose guid has this prefix or suffix. `None` if the history contains none.
pub(crate) async fn find_instance(client: &Client, id: &str) -> Result<Option<EndedInstanceRow>, Failure> {
    let rows = client.ended_instances(&ListFilter::default(), None).await?.rows;
    match find::pick("instance", id, rows, |row: &EndedInstanceRow| Some(row.instance_guid.to_string())) {
        Ok(row) => Ok(Some(row)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the name of the instance. The name includes the definition id unless this id equals the guid of
/// the process.
fn name(row: &EndedInstanceRow) -> String {
    let own = row.definition_id == DefinitionId::from(&row.process_guid);
    let definition = if own { String::new() } else { format!("@{}", row.definition_id) };
    format!("{}/{}{definition}", row.process_guid, row.index)
}

fn format_duration(millis: u64) -> String {
    duration_text(Duration::from_millis(millis))
}

/// Returns the state that the instance ended in.
const fn end_state(row: &EndedInstanceRow) -> &'static str {
    match row.end_kind {
        EndKind::Crashed if matches!(row.exit_status, Some(0)) => "EXITED",
        EndKind::Crashed => "CRASHED",
        EndKind::Stopped => "STOPPED",
        EndKind::CrashedStopping => "STOPPED (crashed)",
        EndKind::CellLost => "LOST",
        EndKind::Evacuated => "EVACUATED",
        EndKind::EvacuationExpired => "EVACUATED (timed out)",
        EndKind::Displaced => "DISPLACED",
    }
}

/// Returns the reason for the end, if it is known.
fn end_reason(row: &EndedInstanceRow) -> Option<String> {
    if let Some(cause) = row.stop_reason {
        return Some(describe::end_reason(cause).to_owned());
    }
    match row.end_kind {
        EndKind::Crashed => row.reason.clone(),
        EndKind::Stopped | EndKind::CrashedStopping | EndKind::Evacuated => None,
        EndKind::CellLost => Some("its cell disappeared".to_owned()),
        EndKind::EvacuationExpired => Some("no replacement ran in time".to_owned()),
        EndKind::Displaced => Some("another container took its place".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use schemas::Timestamp;
    use schemas::actual::StopReason;
    use schemas::container::Epoch;
    use schemas::names::{CellId, Domain, InstanceGuid, ProcessGuid};
    use schemas::subject::Position;
    use uuid::Uuid;

    use super::*;

    fn row(how: EndKind, stop: Option<StopReason>, exit_status: Option<i32>) -> EndedInstanceRow {
        EndedInstanceRow {
            process_guid: ProcessGuid::new("web").unwrap(),
            index: 0,
            domain: Domain::new("shop").unwrap(),
            epoch: Epoch::default(),
            definition_id: DefinitionId::new("web").unwrap(),
            instance_guid: InstanceGuid(Uuid::from_u128(7)),
            cell_id: CellId::new("c1").unwrap(),
            started_at: Some(Timestamp::from_millis(1_000)),
            ended_at: Timestamp::from_millis(61_000),
            duration_ms: Some(60_000),
            end_kind: how,
            stop_reason: stop,
            reason: exit_status.map(|status| format!("Exited with status {status}")),
            exit_status,
            crash_count: u32::from(exit_status.is_some()),
            position: Position(9),
            nth: 0,
        }
    }

    #[test]
    fn end_state_and_reason_match_the_kind_of_end() {
        let told = |row: &EndedInstanceRow| (end_state(row), end_reason(row).unwrap_or_default());
        let cases = [
            (row(EndKind::Crashed, None, Some(3)), "CRASHED", "Exited with status 3"),
            (row(EndKind::Crashed, None, Some(0)), "EXITED", "Exited with status 0"),
            (row(EndKind::Stopped, Some(StopReason::Scale), None), "STOPPED", "fewer instances are desired"),
            (
                row(EndKind::Stopped, Some(StopReason::RolloutFailed), None),
                "STOPPED",
                "its rollout gave up on it",
            ),
            (row(EndKind::Stopped, None, None), "STOPPED", ""),
            (
                row(EndKind::CrashedStopping, Some(StopReason::Removed), None),
                "STOPPED (crashed)",
                "the process was deleted",
            ),
            (row(EndKind::CellLost, None, None), "LOST", "its cell disappeared"),
            (row(EndKind::Evacuated, None, None), "EVACUATED", ""),
            (
                row(EndKind::EvacuationExpired, None, None),
                "EVACUATED (timed out)",
                "no replacement ran in time",
            ),
            (row(EndKind::Displaced, None, None), "DISPLACED", "another container took its place"),
        ];
        for (row, state, note) in cases {
            assert_eq!(told(&row), (state, note.to_owned()));
        }
    }

    #[test]
    fn ended_instance_shows_the_command_for_its_log() {
        let look = RenderOptions { now: Timestamp::from_millis(100_000), full_ids: false, colour: false };
        let text = describe_instance(&row(EndKind::Crashed, None, Some(3)), look);
        for line in ["instance     web/0", "exit status  3", "(39s ago), position 9", "muster logs 00000000-"]
        {
            assert!(text.contains(line), "{line} in {text}");
        }
        let v2 = EndedInstanceRow {
            definition_id: DefinitionId::new("v2").unwrap(),
            ..row(EndKind::Evacuated, None, None)
        };
        assert_eq!(name(&v2), "web/0@v2");
    }
}
