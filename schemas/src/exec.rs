//! A program that somebody has run in a container, beside what its definition runs (docs/model.md, "Running a program in a
//! container").

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::{CellId, ClientName, Domain, RequestId};

/// What is to be run. It stands in the log for as long as that is kept: what is secret is given on the standard input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    /// The program: a path, or a name looked up in `PATH`.
    pub path: String,
    /// Its arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// Where it runs, relative to the container's work directory; empty: where the first program of the action runs.
    #[serde(default)]
    pub dir: String,
    /// Who runs it, as a user of the container by name or number, with `:GROUP` behind it or not; empty: who runs the first
    /// program of the action.
    #[serde(default)]
    pub user: String,
    /// The terminal that it has; none: its standard streams are pipes.
    #[serde(default)]
    pub terminal: Option<Terminal>,
}

/// A terminal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Terminal {
    /// What it is, as `TERM` says.
    pub kind: String,
    /// Its size.
    pub size: TerminalSize,
}

/// How large a terminal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Signs in a line.
    pub columns: u16,
}

/// How a program that was run so ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecEnd {
    /// It exited with this status.
    Exited(i32),
    /// A signal ended it.
    Killed {
        /// Its number.
        signal: i32,
        /// Why, as far as that is known.
        reason: String,
    },
    /// It was not started, or nobody can say how it ended, for this reason.
    Failed(String),
}

/// What a client says to a program that it has run: `muster.client.<domain>.<client>.instance.talk`. Only who had it run is
/// heard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Talk {
    /// What the request id of `instance.exec` was.
    pub request_id: RequestId,
    /// The cell of the instance.
    pub cell_id: CellId,
    /// What the program is to read, in base64 (RFC 4648, with padding).
    #[serde(default)]
    pub input: String,
    /// How many bytes of input came before these. What the cell has already is passed over.
    #[serde(default)]
    pub input_from: u64,
    /// Whether no more input comes.
    #[serde(default)]
    pub input_ends: bool,
    /// How many bytes of output are here already: the cell forgets them, and answers with those behind them. None: no output
    /// is asked for.
    #[serde(default)]
    pub output_from: Option<u64>,
    /// How long the answer may wait for something new, in milliseconds, at most [`TALK_WAIT_MS`](crate::limits::TALK_WAIT_MS); 0: it comes at once.
    #[serde(default)]
    pub wait_ms: u64,
    /// The terminal has this size from now on.
    #[serde(default)]
    pub size: Option<TerminalSize>,
    /// Whether the program is to end.
    #[serde(default)]
    pub leave: bool,
}

impl Talk {
    /// Says nothing yet to the program of a request on a cell, and asks for nothing.
    #[must_use]
    pub const fn new(request_id: RequestId, cell_id: CellId) -> Self {
        Self {
            request_id,
            cell_id,
            input: String::new(),
            input_from: 0,
            input_ends: false,
            output_from: None,
            wait_ms: 0,
            size: None,
            leave: false,
        }
    }
}

/// What a program that a client has run says: the answer to [`Talk`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Talked {
    /// What it wrote behind [`Talk::output_from`].
    pub output: Vec<Written>,
    /// How many bytes of output are told of with these.
    pub output_next: u64,
    /// How many bytes of input the cell has.
    pub input_next: u64,
    /// How it ended; none: it runs, or there is more output than this answer has.
    pub end: Option<ExecEnd>,
}

/// What a client says to its program, as the BBS passes it on to the rep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Talking {
    /// The domain of the client, as its subject proves it.
    pub domain: Domain,
    /// The client, as its subject proves it.
    pub client: ClientName,
    /// What it says.
    pub talk: Talk,
}

/// What a program wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Written {
    /// On which stream.
    pub stream: Stream,
    /// The bytes, in base64 (RFC 4648, with padding).
    pub data: String,
}

/// Where a program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Its standard output; of a program that has a terminal, that.
    Out,
    /// Its standard error.
    Err,
}
