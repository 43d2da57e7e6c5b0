//! Errors of commands, for users and scripts: an error code, a message, advice, and an exit status.

use std::fmt;

use client::Error;
use schemas::placement::NO_COMPATIBLE_CELLS;
use schemas::query::InstanceRow;
use schemas::{BadField, Class, Code, Refusal};
use serde::Serialize;

use super::names::Names;
use super::words::{InvalidValue, escape_text};
use crate::error::chain;

/// Exit status of the program. Each status has one meaning; scripts depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
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
pub(crate) fn exit_status_help() -> String {
    let all: Vec<String> = EXITS.iter().map(|(exit, meaning)| format!("{} {meaning}", *exit as u8)).collect();
    format!("Exit status: {}. instance exec otherwise exits with the status of its program.", all.join(", "))
}

/// Failure of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Exit status of this program if `program` is not set.
    pub(crate) exit: Exit,
    /// Stable error code for scripts.
    pub(crate) code: String,
    /// Message: the action, its object and the reason.
    pub(crate) message: String,
    /// Invalid fields of the request.
    pub(crate) fields: Vec<BadField>,
    pub(crate) advice: Vec<String>,
    /// Exit status of the program that `instance exec` ran. If set, this program exits with the same status.
    /// `None` if `exit` applies.
    pub(crate) program: Option<u8>,
}

impl Failure {
    /// Creates a failure without advice.
    pub(crate) fn new(exit: Exit, code: &str, message: impl Into<String>) -> Self {
        Self {
            exit,
            code: code.to_owned(),
            message: message.into(),
            fields: vec![],
            advice: vec![],
            program: None,
        }
    }

    /// Creates a failure for an invalid command line that clap cannot detect.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "Usage", message)
    }

    /// Creates a failure for an object that does not exist.
    pub(crate) fn not_found(what: impl fmt::Display) -> Self {
        Refusal::not_found(what).into()
    }

    /// Creates a failure for a closed standard output, for example after the user closed a pager. This
    /// program exits without a message.
    pub(crate) fn broken_pipe() -> Self {
        Self::new(Exit::Done, "", "")
    }

    /// Creates a failure without a message, for a command that has already printed its result.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self::new(exit, "", "")
    }

    /// Creates a failure with the exit status of a program that this program ran.
    pub(crate) fn program_status(status: i32) -> Self {
        let program = Some(u8::try_from(status).unwrap_or(u8::MAX));
        Self { program, ..Self::silent(Exit::Failed) }
    }

    /// Returns the exit status of this program.
    pub(crate) fn status(&self) -> u8 {
        self.program.unwrap_or(self.exit as u8)
    }

    /// Returns the exit status for `instance exec`. There, the statuses of this program must differ from the
    /// statuses of the program in the container.
    pub(crate) fn status_beside_program(&self) -> u8 {
        let is_own = [Exit::Done, Exit::NotStarted].contains(&self.exit);
        self.program.unwrap_or(if is_own { self.exit as u8 } else { Exit::NotReached as u8 })
    }

    /// Returns `true` if there is no message to print.
    pub(crate) fn is_silent(&self) -> bool {
        self.message.is_empty()
    }

    /// Prefixes the message with the action that failed: `can't scale process web: ...`.
    pub(crate) fn while_doing(mut self, what: impl fmt::Display) -> Self {
        if !self.is_silent() {
            self.message = format!("can't {what}: {}", self.message);
        }
        self
    }

    /// Adds advice.
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice.push(advice.into());
        self
    }

    /// Adds advice if it is `Some`.
    pub(crate) fn advise_some(mut self, advice: Option<String>) -> Self {
        self.advice.extend(advice);
        self
    }

    /// Adds advice if the failure has this exit status.
    pub(crate) fn advise_if_exit(self, exit: Exit, advice: impl Into<String>) -> Self {
        if self.exit == exit { self.advise(advice) } else { self }
    }

    /// Formats the failure as text.
    pub(crate) fn text(&self, colour: bool) -> String {
        let (on, off) = if colour { ("\u{1b}[1;31m", "\u{1b}[0m") } else { ("", "") };
        let mut text = format!("{on}error:{off} {}", escape_text(&self.message));
        if !self.code.is_empty() {
            text.push_str(&format!(" ({})", self.code));
        }
        if self.fields.len() > 1 {
            for bad in &self.fields {
                text.push_str(&format!("\n  {}: {}", escape_text(&bad.field), escape_text(&bad.problem)));
            }
        }
        for advice in &self.advice {
            text.push_str(&format!("\n  {}", escape_text(advice)));
        }
        text
    }

    /// Formats the failure as JSON.
    pub(crate) fn json(&self) -> String {
        #[derive(Serialize)]
        struct Printed<'a> {
            code: &'a str,
            message: &'a str,
            fields: &'a [BadField],
        }
        let printed = Printed { code: &self.code, message: &self.message, fields: &self.fields };
        serde_json::to_string(&printed).unwrap_or_else(|_| "{}".to_owned())
    }
}

/// Returns the exit status for a refusal by the BBS.
pub(crate) const fn exit_for(code: Code) -> Exit {
    match (code.class(), code) {
        (Class::NotFound, _) => Exit::NotFound,
        (Class::Conflict, _) | (Class::Retryable, Code::CellAbsent | Code::CellTaken) => Exit::Conflict,
        (Class::Retryable, Code::Unavailable) => Exit::Unreachable,
        (Class::Retryable | Class::Invalid, _) => Exit::Failed,
    }
}

/// Advice for refusal codes.
const ADVICE: [(Code, &str); 7] = [
    (Code::RequestIdReused, "use another --request-id, or omit it: each command then gets an id of its own"),
    (
        Code::Unavailable,
        "check muster status and try again: with the same --request-id, the command is \
                         carried out only once",
    ),
    (Code::Overloaded, "the BBS is busy: try again"),
    (Code::Expired, "the pages were read too slowly: list again from the start"),
    (
        Code::DeadlinePassed,
        "the command arrived after its deadline: try again, and check that the clocks of both machines agree",
    ),
    (Code::Forbidden, "check which domain and client the server allows: --domain, --client, --creds"),
    (Code::Unreadable, "this program and the cluster have different versions: use the same version"),
];

fn advice_for(code: Code) -> Option<&'static str> {
    ADVICE.iter().find(|(known, _)| *known == code).map(|(_, advice)| *advice)
}

impl From<InvalidValue> for Failure {
    fn from(invalid: InvalidValue) -> Self {
        Self::usage(invalid.to_string())
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let Refusal { code, message, fields } = refusal;
        let message = match fields.len() {
            0 | 1 => message,
            bad => format!("{bad} fields are invalid"),
        };
        let advice = advice_for(code).map(str::to_owned).into_iter().collect();
        Self { fields, advice, ..Self::new(exit_for(code), &code.to_string(), message) }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let message = chain(&error);
        match error {
            Error::Refused(refusal) => refusal.into(),
            Error::Unreachable(_) => Self::new(Exit::Unreachable, "Unreachable", message)
                .advise("check that a BBS runs there (muster bbs), or start a local cluster: muster dev"),
            Error::TimedOut { .. } => Self::new(Exit::Unreachable, "NoAnswer", message)
                .advise("try again with the same --request-id: the command is then carried out only once"),
            Error::Protocol { .. } => Self::new(Exit::Failed, "Protocol", message)
                .advise("this program and the cluster have different versions: use the same version"),
            Error::Setup { .. } => Self::new(Exit::Failed, "Setup", message),
        }
    }
}

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
                Some(error) => format!("{name} is not placed: {}", super::words::one_line(error)),
                None => {
                    let reason = row.crash_reason.as_deref().unwrap_or("no reason is known");
                    let reason = super::words::one_line(reason);
                    let next = super::rows::restart_text(row);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_statuses_in_the_documents_are_those_of_the_program() {
        let documented = include_str!("../../../../docs/reference/exit-codes.md");
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

    #[test]
    fn refusals_map_to_exit_statuses() {
        let exits = [
            (Code::ResourceNotFound, 3),
            (Code::ResourceExists, 4),
            (Code::ResourceConflict, 4),
            (Code::InvalidStateTransition, 4),
            (Code::Unavailable, 5),
            (Code::InvalidRequest, 1),
            (Code::Forbidden, 1),
        ];
        for (code, exit) in exits {
            assert_eq!(exit_for(code) as u8, exit, "{code}");
        }
        let exit = |error: Error| Failure::from(error).exit as u8;
        assert_eq!(exit(Error::Unreachable("gone".into())), 5);
        let waited = std::time::Duration::from_secs(1);
        assert_eq!(exit(Error::TimedOut { awaited: "it".into(), elapsed: waited }), 5);
        assert_eq!(exit(Error::Protocol { subject: "s".into(), why: "w".into() }), 1);
    }

    #[test]
    fn failure_text_has_action_reason_and_advice() {
        let failure =
            Failure::not_found("process web").while_doing("scale process web").advise("did you mean wob?");
        assert_eq!(
            failure.text(false),
            "error: can't scale process web: process web does not exist (ResourceNotFound)\n  did you mean wob?"
        );
        assert_eq!(
            failure.json(),
            r#"{"code":"ResourceNotFound","message":"can't scale process web: process web does not exist","fields":[]}"#
        );
    }

    #[test]
    fn every_invalid_field_is_listed() {
        let bad = |field: &str| BadField { field: field.into(), problem: "is bad".into() };
        let one = Failure::from(Refusal::invalid(vec![bad("a")]));
        assert_eq!(one.text(false), "error: a: is bad (InvalidRequest)");
        let two = Failure::from(Refusal::invalid(vec![bad("a"), bad("b")]));
        assert_eq!(two.text(false), "error: 2 fields are invalid (InvalidRequest)\n  a: is bad\n  b: is bad");
    }
}
