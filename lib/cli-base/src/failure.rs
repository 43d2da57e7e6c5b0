//! Errors of commands, for users and scripts: an error code, a message, advice, and an exit status.

use std::fmt;

use access::store::StoreError;
use bus::nats::ConnectError;
use client::Error;
use host::error::ServiceError;
use runtime::exit::Exit;
use schemas::{BadField, Class, Code, Refusal};
use secrets::FileError;
use serde::Serialize;
use text::chain;
#[cfg(feature = "explain")]
use text::suggestions::question;
use text::words::{InvalidValue, escape_text};

/// Failure of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Exit status of this program if `program` is not set.
    pub exit: Exit,
    /// Stable error code for scripts.
    pub code: String,
    /// Message: the action, its object and the reason.
    pub message: String,
    /// Invalid fields of the request.
    pub fields: Vec<BadField>,
    pub advice: Vec<String>,
    /// Exit status of the program that `instance exec` ran. If set, this program exits with the same status.
    /// `None` if `exit` applies.
    pub program: Option<u8>,
}

impl Failure {
    /// Creates a failure without advice.
    pub fn new(exit: Exit, code: &str, message: impl Into<String>) -> Self {
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
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "Usage", message)
    }

    /// Creates a failure for an object that does not exist.
    pub fn not_found(what: impl fmt::Display) -> Self {
        Refusal::not_found(what).into()
    }

    /// Creates a failure for a closed standard output, for example after the user closed a pager. This
    /// program exits without a message.
    #[must_use]
    pub fn broken_pipe() -> Self {
        Self::new(Exit::Done, "", "")
    }

    /// Creates a failure without a message, for a command that has already printed its result.
    #[must_use]
    pub fn silent(exit: Exit) -> Self {
        Self::new(exit, "", "")
    }

    /// Creates a failure with the exit status of a program that this program ran.
    #[must_use]
    pub fn program_status(status: i32) -> Self {
        let program = Some(u8::try_from(status).unwrap_or(u8::MAX));
        Self { program, ..Self::silent(Exit::Failed) }
    }

    /// Returns the exit status of this program.
    #[must_use]
    pub fn status(&self) -> u8 {
        self.program.unwrap_or(self.exit as u8)
    }

    /// Returns the exit status for `instance exec`. There, the statuses of this program must differ from the
    /// statuses of the program in the container.
    #[must_use]
    pub fn status_beside_program(&self) -> u8 {
        let is_own = [Exit::Done, Exit::NotStarted].contains(&self.exit);
        self.program.unwrap_or(if is_own { self.exit as u8 } else { Exit::NotReached as u8 })
    }

    /// Returns `true` if there is no message to print.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.message.is_empty()
    }

    /// Prefixes the message with the action that failed: `can't scale process web: ...`.
    pub fn while_doing(mut self, what: impl fmt::Display) -> Self {
        if !self.is_silent() {
            self.message = format!("can't {what}: {}", self.message);
        }
        self
    }

    /// Adds advice.
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice.push(advice.into());
        self
    }

    /// Adds advice if it is `Some`.
    #[must_use]
    pub fn advise_some(mut self, advice: Option<String>) -> Self {
        self.advice.extend(advice);
        self
    }

    /// Adds advice if the failure has this exit status.
    pub fn advise_if_exit(self, exit: Exit, advice: impl Into<String>) -> Self {
        if self.exit == exit { self.advise(advice) } else { self }
    }

    /// Formats the failure as text.
    #[must_use]
    pub fn text(&self, colour: bool) -> String {
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
#[must_use]
pub const fn exit_for(code: Code) -> Exit {
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

impl From<ServiceError> for Failure {
    fn from(error: ServiceError) -> Self {
        let why = chain(&error);
        let unreachable =
            matches!(error, ServiceError::NoServer | ServiceError::Connect(ConnectError::Unreachable { .. }));
        if !unreachable {
            return Self::new(Exit::Failed, "Failed", why);
        }
        Self::new(Exit::Unreachable, "Unreachable", why).advise(
            "start a NATS server (nats-server -c deploy/nats.conf), or run a local cluster: muster dev",
        )
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let why = chain(&error);
        match error {
            StoreError::Exists { .. } | StoreError::Taken { .. } => Self::new(Exit::Conflict, "Exists", why),
            StoreError::Absent { .. } | StoreError::Unknown { .. } => {
                Self::new(Exit::NotFound, "NotFound", why)
            }
            StoreError::ClusterSize(_) => Self::usage(why),
            StoreError::Busy { .. }
            | StoreError::Unreadable { .. }
            | StoreError::Unwritable { .. }
            | StoreError::Malformed { .. }
            | StoreError::Certificate(_)
            | StoreError::Key(_) => Self::new(Exit::Failed, "Auth", why),
        }
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        let why = chain(&error);
        match error {
            FileError::Exists { .. } => Self::new(Exit::Conflict, "Exists", why)
                .advise("to add a key to this file: muster secrets rotate FILE"),
            FileError::Unreadable { .. }
            | FileError::Unwritable { .. }
            | FileError::AccessibleToOthers { .. }
            | FileError::Malformed { .. }
            | FileError::Busy { .. } => Self::new(Exit::Failed, "Keys", why),
        }
    }
}

#[cfg(feature = "explain")]
impl From<explain::Error> for Failure {
    fn from(error: explain::Error) -> Self {
        use explain::{Error, Unusable};
        let message = error.to_string();
        match error {
            Error::Client(error) => error.into(),
            Error::Refused(refusal) => refusal.into(),
            Error::Invalid(_) => Self::usage(message),
            Error::NotFound { what, missing } => {
                search_advice(&missing).into_iter().fold(Self::not_found(what), Self::advise)
            }
            Error::OtherDomain { what, requested, actual } => {
                Self::not_found(format!("{what} in domain {requested}"))
                    .advise(format!("it is in domain {actual}: use --domain {actual}, or omit --domain"))
            }
            Error::AmbiguousId { .. } => {
                Self::new(Exit::Usage, "Ambiguous", message).advise("use more characters of the id")
            }
            Error::AmbiguousCommand { .. } => Self::new(Exit::Usage, "Ambiguous", message)
                .advise("use more characters of the id, or the id of a decision"),
            Error::NoWork { id, error } => {
                let failure = Self::from(*error).while_doing(format!("explain {id}"));
                // An id with a slash is not a task guid.
                if id.contains('/') { failure } else { failure.advise("for a task, see muster task list") }
            }
            Error::OtherTaskDefinition(guid) => {
                Self::new(Exit::Conflict, &Code::ResourceExists.to_string(), message).advise(format!(
                    "cancel or resolve it first: muster task cancel {guid}, muster task resolve {guid}"
                ))
            }
            Error::RolloutUnderWay(guid) => {
                Self::new(Exit::Conflict, &Code::InvalidStateTransition.to_string(), message)
                    .advise(format!("see muster lrp rollout status {guid}"))
            }
            Error::Journal(error) => Self::new(Exit::Failed, "Journal", chain(&error)),
            Error::IncompleteJournal(_) => Self::new(Exit::Failed, "Journal", message),
            Error::Unusable(Unusable::Beyond { .. }) => Self::usage(message),
            Error::Unusable(Unusable::Halted(_)) => Self::new(Exit::Failed, "Journal", message)
                .advise("this program and the cluster have different versions: use the same version"),
            Error::Unusable(Unusable::Restless(_)) => {
                Self::new(Exit::Failed, "Restless", message).advise("limit the simulated time: --for 10m")
            }
            Error::RefusedChange { change, refusal, similar } => {
                let failure = Self::from(refusal).advise_some(question(&similar));
                match change {
                    Some(change) => failure.while_doing(format!("apply {change}")),
                    None => failure,
                }
            }
            Error::While { action, error } => Self::from(*error).while_doing(action),
        }
    }
}

/// Returns the advice for a search that did not find an object.
#[cfg(feature = "explain")]
fn search_advice(missing: &explain::Missing) -> Vec<String> {
    use explain::Missing;
    match missing {
        Missing::Process { similar } => {
            vec![question(similar).unwrap_or_else(|| "see muster lrp list".to_owned())]
        }
        Missing::InstanceOf(process) => vec![format!("see muster instance list --lrp {process}")],
        Missing::Fragment(kind) => vec![format!("see muster {kind} list")],
        Missing::Recorded { min_fragment_len } => vec![
            "to find ids: muster history or muster events list, with -o json".to_owned(),
            format!("a part of an id must have at least {min_fragment_len} characters"),
        ],
        Missing::Other => vec![],
    }
}

#[cfg(feature = "sql")]
impl From<projector::Error> for Failure {
    fn from(error: projector::Error) -> Self {
        use projector::Error;
        let exit = match &error {
            Error::InvalidQuery(_) | Error::NoRoles(_) => Exit::Usage,
            Error::LockedByOther
            | Error::OtherCluster { .. }
            | Error::AheadOfJournal { .. }
            | Error::OtherHistory { .. }
            | Error::QuarantinedLater { .. } => Exit::Conflict,
            Error::Database { .. }
            | Error::MissingRight { .. }
            | Error::Empty(_)
            | Error::Lost(_)
            | Error::OtherShape
            | Error::OtherMetadata { .. }
            | Error::Replaced
            | Error::Rewound { .. }
            | Error::OldServer(_)
            | Error::OtherEncoding(_)
            | Error::Remove { .. }
            | Error::Journal(_)
            | Error::Unreadable { .. } => Exit::Failed,
        };
        Self::new(exit, "Database", chain(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[cfg(feature = "explain")]
    #[test]
    fn explanation_errors_keep_message_exit_status_and_advice() {
        use explain::{Error, Missing};
        let invalid = Failure::from(Error::Invalid("invalid index x".into()));
        assert_eq!((invalid.exit, invalid.code.as_str()), (Exit::Usage, "Usage"));
        let missing = |id: &str| {
            let error = Error::not_found(format!("instance {id}"), Missing::Fragment("instance".into()));
            Failure::from(Error::NoWork { id: id.into(), error: Box::new(error) }).text(false)
        };
        assert_eq!(
            missing("beef"),
            "error: can't explain beef: instance beef does not exist (ResourceNotFound)\n  \
             see muster instance list\n  for a task, see muster task list"
        );
        assert!(missing("web/0").ends_with("\n  see muster instance list"));
        let similar = Missing::Process { similar: vec!["web".into()] };
        let process = Failure::from(Error::not_found("process wob", similar));
        assert_eq!((process.exit, process.advice), (Exit::NotFound, vec!["did you mean web?".to_owned()]));
        let ids = vec!["decision 1".into(), "decision 2".into()];
        let several = Error::AmbiguousCommand { id: "grow".into(), commands: 2, matches: ids, more: 3 };
        assert_eq!(
            Failure::from(several).text(false),
            "error: ambiguous id grow: it matches 2 commands: decision 1, decision 2 and 3 more (Ambiguous)\n  \
             use more characters of the id, or the id of a decision"
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
