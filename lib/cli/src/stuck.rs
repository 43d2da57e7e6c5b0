//! Failure of a process whose instances do not all run.

use cli_base::failure::Failure;
use explain::names::Names;
use runtime::exit::Exit;
use schemas::placement::NO_COMPATIBLE_CELLS;
use schemas::query::InstanceRow;
use text::words::one_line;

use super::restarts::restart_text;

/// Returns the failure for a process whose instances do not all run. The message lists the instances that
/// crashed or could not be placed.
pub(crate) fn stuck_process(process: &str, rows: &[InstanceRow]) -> Failure {
    let unplaced = rows.iter().any(|row| row.placement_error.is_some());
    let (exit, code) = if unplaced { (Exit::NotPlaced, "NotPlaced") } else { (Exit::Failed, "Crashed") };
    let names = Names::from_rows(rows);
    let lines: Vec<String> = rows
        .iter()
        .take(10)
        .map(|row| {
            let name = names.row_name(row);
            match &row.placement_error {
                Some(error) => format!("{name} is not placed: {}", one_line(error)),
                None => {
                    let reason = row.crash_reason.as_deref().unwrap_or("no reason is known");
                    let reason = one_line(reason);
                    let next = restart_text(row);
                    format!("{name} crashed {} times: {reason}; {next}", row.crash_count)
                }
            }
        })
        .collect();
    let more = rows.len().saturating_sub(lines.len());
    let mut failure =
        Failure::new(exit, code, format!("process {process} doesn't run as desired: {}", lines.join("; ")));
    if more > 0 {
        failure = failure.advise(format!("and {more} more"));
    }
    if unplaced {
        let errors: Vec<&str> = rows.iter().filter_map(|row| row.placement_error.as_deref()).collect();
        let of_class = |begin: &str| errors.iter().all(|error| error.starts_with(begin));
        failure = failure.advise(if of_class(NO_COMPATIBLE_CELLS) {
            "no cell is compatible, regardless of free resources; \
             see muster why INSTANCE and muster cell list"
        } else {
            "it is placed as soon as a cell has room; see muster cell list and muster evaluation list"
        });
        if errors.iter().any(|error| error.contains("isolation")) {
            let asks = "isolation, user, root_fs and absolute paths require isolated containers: \
                        with muster dev, set --isolation full";
            failure = failure.advise(asks);
        }
    }
    if let Some(first) = rows.iter().find(|row| row.placement_error.is_none()) {
        let first = names.row_name(first);
        let advice = format!("see muster logs {first} and muster history instance {first}");
        failure = failure.advise(advice);
    }
    failure
}
