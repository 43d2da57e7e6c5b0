//! Restart of crashed instances, as text.

use schemas::crash::Attempts;
use schemas::query::InstanceRow;
use text::words::time_of_day;

/// Describes when a crashed instance restarts, or why the instance does not restart.
pub(crate) fn restart_text(row: &InstanceRow) -> String {
    match row.restart_at {
        Some(at) => format!("restarts at {} UTC{}", time_of_day(at), attempts_text(row)),
        None => no_restart_text(row),
    }
}

/// Describes why a crashed instance is not restarted.
pub(crate) fn no_restart_text(row: &InstanceRow) -> String {
    row.no_restart_reason.map_or_else(|| "not restarted".to_owned(), |why| format!("not restarted: {why}"))
}

/// Formats the number of counted restarts, and the number that the policy allows.
pub(crate) fn attempts_text(row: &InstanceRow) -> String {
    let attempts = |Attempts { counted, allowed }| format!(" ({counted} of {allowed} restarts)");
    row.attempts.map(attempts).unwrap_or_default()
}
