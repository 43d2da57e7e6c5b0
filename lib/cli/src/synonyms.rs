//! Words that users of other tools try. Some words stand for a command. The other words cause an error that
//! names the command to use.

use std::ffi::OsString;

/// Commands by other names. The parser does not know the last word on the left.
const REWRITES: [(&[&str], &[&str]); 27] = [
    (&["scale"], &["lrp", "scale"]),
    (&["restart"], &["lrp", "restart"]),
    (&["rollback"], &["lrp", "rollback"]),
    (&["rollout"], &["lrp", "rollout"]),
    (&["update"], &["lrp", "update"]),
    (&["exec"], &["instance", "exec"]),
    (&["stop"], &["instance", "stop"]),
    (&["cancel"], &["task", "cancel"]),
    (&["dispatch"], &["parameterised", "dispatch"]),
    (&["launch"], &["periodic", "launch"]),
    (&["drain"], &["cell", "evacuate"]),
    (&["evacuate"], &["cell", "evacuate"]),
    (&["cordon"], &["cell", "cordon"]),
    (&["uncordon"], &["cell", "uncordon"]),
    (&["plan"], &["apply", "--dry-run"]),
    (&["lrp", "desire"], &["apply"]),
    (&["lrp", "apply"], &["apply"]),
    (&["lrp", "plan"], &["apply", "--dry-run"]),
    (&["lrp", "diff"], &["apply", "--dry-run"]),
    (&["lrp", "logs"], &["logs"]),
    (&["task", "run"], &["run"]),
    (&["task", "logs"], &["logs", "--task"]),
    (&["instance", "logs"], &["logs"]),
    (&["periodic", "apply"], &["apply"]),
    (&["parameterised", "apply"], &["apply"]),
    (&["lrp", "rollout", "rollback"], &["lrp", "rollback"]),
    (&["dead-letters", "skip"], &["journal", "quarantine"]),
];

/// Words without a command, and the commands to use instead.
const POINTERS: [(&[&str], &str); 7] = [
    (
        &["get", "list", "ls"],
        "to list: muster ps, muster lrp list, muster cell list and others; to show one object: muster lrp show NAME",
    ),
    (
        &["describe", "inspect", "show"],
        "to show an object: muster lrp show NAME, muster instance show NAME/0, muster task show NAME",
    ),
    (
        &["create", "deploy", "push", "up", "desire", "start"],
        "to create or update what a file describes: muster apply FILE; to run a program once: muster run -- PROGRAM",
    ),
    (
        &["down", "rm", "remove", "destroy", "purge"],
        "to delete what a file describes: muster delete FILE; to delete a process: muster lrp delete NAME",
    ),
    (
        &["kill"],
        "to stop an instance: muster instance stop NAME/0; to cancel a task: muster task cancel NAME",
    ),
    (
        &["server", "agent", "node-agent"],
        "to run a cluster on this machine: muster dev; for the services of a cluster: muster help all",
    ),
    (
        &["edit", "set", "patch"],
        "edit the file and apply it: muster apply FILE; for instances and priority: muster lrp scale, muster lrp update",
    ),
];

/// Returns the command line with the command that an unknown word stands for. `None` if there is no such command.
pub fn rewritten(arguments: &[OsString], unknown: &str) -> Option<Vec<OsString>> {
    let end = arguments.iter().position(|word| word == unknown)? + 1;
    let matches = |from: &[&str]| {
        let begin = end.checked_sub(from.len());
        begin.is_some_and(|begin| begin > 0 && arguments[begin..end].iter().eq(from.iter()))
    };
    let (from, to) = REWRITES.iter().filter(|(from, _)| matches(from)).max_by_key(|(from, _)| from.len())?;
    let mut words = arguments[..end - from.len()].to_vec();
    words.extend(to.iter().map(OsString::from));
    words.extend_from_slice(&arguments[end..]);
    Some(words)
}

/// Returns the commands to use instead of an unknown word. `None` if the word is not in the table.
#[must_use]
pub fn pointer(unknown: &str) -> Option<&'static str> {
    POINTERS.iter().find(|(words, _)| words.contains(&unknown)).map(|(_, advice)| *advice)
}
