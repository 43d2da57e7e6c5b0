//! Exit statuses of the program.

/// Exit status of the program. Each status has one meaning; scripts depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command did its work.
    Done = 0,
    /// The command failed for a reason without a status of its own.
    Failed = 1,
    /// The command line is invalid.
    Usage = 2,
    /// The object does not exist.
    NotFound = 3,
    /// The object exists already, or its state does not allow the command.
    Conflict = 4,
    /// No server answered.
    Unreachable = 5,
    /// No cell is compatible, or no compatible cell has room.
    NotPlaced = 6,
    /// A rollout failed and was rolled back.
    RolledBack = 7,
    /// The change was not carried out within `--timeout`.
    TimedOut = 8,
    /// A check found a problem.
    Found = 9,
    /// A rep stopped after its evacuation.
    Evacuated = 10,
    /// The cluster works, with problems.
    Degraded = 11,
    /// The cluster cannot decide commands, or cannot place work.
    Unhealthy = 12,
    /// The compared things differ, or a plan has changes.
    Differs = 13,
    /// A rollout is paused.
    Paused = 14,
    /// Several items failed, with different statuses.
    Several = 15,
    /// `instance exec` did not reach the program.
    NotReached = 125,
    /// `instance exec` reached the container, and the program could not be started.
    NotStarted = 126,
    /// The user interrupted the command. A change that the command submitted continues.
    Interrupted = 130,
}

/// Exit statuses with their meanings, in ascending order. The help text and docs/reference/exit-codes.md
/// contain the same table.
const EXITS: [(Exit, &str); 19] = [
    (Exit::Done, "success; for status: the cluster is healthy"),
    (Exit::Failed, "error"),
    (Exit::Usage, "invalid command line"),
    (Exit::NotFound, "not found"),
    (Exit::Conflict, "conflict with existing state"),
    (Exit::Unreachable, "no server answered"),
    (Exit::NotPlaced, "not placed; for apply --dry-run: would not be placed"),
    (Exit::RolledBack, "the rollout was rolled back"),
    (Exit::TimedOut, "not carried out within --timeout"),
    (Exit::Found, "a check found a problem"),
    (Exit::Evacuated, "a rep evacuated its cell and stopped"),
    (Exit::Degraded, "the cluster is degraded"),
    (Exit::Unhealthy, "the cluster is unhealthy"),
    (Exit::Differs, "diff or --dry-run found changes"),
    (Exit::Paused, "the rollout is paused"),
    (Exit::Several, "several items failed with different statuses"),
    (Exit::NotReached, "instance exec did not reach the program"),
    (Exit::NotStarted, "instance exec could not start the program"),
    (Exit::Interrupted, "interrupted (Ctrl-C); a submitted change continues"),
];

/// Returns the table of exit statuses for the help.
#[must_use]
pub fn exit_status_help() -> String {
    let all: Vec<String> = EXITS.iter().map(|(exit, meaning)| format!("{} {meaning}", *exit as u8)).collect();
    format!("Exit status: {}. instance exec otherwise exits with the status of its program.", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_statuses_in_the_documents_are_those_of_the_program() {
        let documented = include_str!("../../../docs/reference/exit-codes.md");
        let rows: Vec<String> =
            EXITS.iter().map(|(exit, meaning)| format!("| {} | {meaning} |", *exit as u8)).collect();
        assert!(
            documented.contains(&rows.join("\n")),
            "docs/reference/exit-codes.md lacks:\n{}",
            rows.join("\n")
        );
        let numbers: std::collections::BTreeSet<u8> = EXITS.iter().map(|(exit, _)| *exit as u8).collect();
        assert_eq!(numbers.len(), EXITS.len());
    }
}
