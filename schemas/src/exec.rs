//! Exec sessions: a program that a client runs in a container in addition to the programs of the definition
//! (docs/internals/model/containers.md, "Exec sessions").

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::{CellId, ClientName, Domain, RequestId};

/// A program to run in a container. The log stores this request, so pass secrets to the program on its
/// standard input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    /// Program to run: a path, or a name that is looked up in `PATH`.
    pub path: String,
    /// Arguments of the program.
    #[serde(default)]
    pub args: Vec<String>,
    /// Directory of the program, relative to the container's work directory. If empty, the directory of the
    /// action's first program.
    #[serde(default)]
    pub dir: String,
    /// User that runs the program in the container, by name or number, optionally followed by `:GROUP`. If
    /// empty, the user of the action's first program.
    #[serde(default)]
    pub user: String,
    /// Terminal of the program. If absent, its standard streams are pipes.
    #[serde(default)]
    pub terminal: Option<Terminal>,
}

/// Terminal of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Terminal {
    /// Terminal type, as in `TERM`.
    pub kind: String,
    /// Size of the terminal.
    pub size: TerminalSize,
}

/// Size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalSize {
    /// Number of lines.
    pub rows: u16,
    /// Number of characters per line.
    pub columns: u16,
}

/// End of a program that a client ran in a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecEnd {
    /// Exit with this status.
    Exited(i32),
    /// End by a signal.
    Killed {
        /// Number of the signal.
        signal: i32,
        /// Reason, if it is known.
        reason: String,
    },
    /// The program was not started, or its outcome is unknown. The text is the reason.
    Failed(String),
}

/// Request of a client to its program in a container: `muster.client.<domain>.<client>.instance.exec-io`.
/// Only the client that started the program may send it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecIo {
    /// Request id of the `instance.exec` command.
    pub request_id: RequestId,
    /// Cell of the instance.
    pub cell_id: CellId,
    /// Input of the program, in base64 (RFC 4648, with padding).
    #[serde(default)]
    pub input: String,
    /// Offset of this input in bytes. Input that the cell already has is skipped.
    #[serde(default)]
    pub input_from: u64,
    /// Set to `true` after the last input.
    #[serde(default)]
    pub input_eof: bool,
    /// Number of output bytes that the client has received. The cell discards this output and returns the
    /// output after it. If absent, no output is returned.
    #[serde(default)]
    pub output_from: Option<u64>,
    /// Maximum time to wait for new output, in milliseconds, at most
    /// [`EXEC_IO_WAIT_MS`](crate::limits::EXEC_IO_WAIT_MS). With 0 the answer is immediate.
    #[serde(default)]
    pub wait_ms: u64,
    /// New size of the terminal.
    #[serde(default)]
    pub size: Option<TerminalSize>,
    /// Set to `true` to end the program.
    #[serde(default)]
    pub hang_up: bool,
}

impl ExecIo {
    /// Returns a request for the session of `request_id` that neither sends input nor requests output.
    #[must_use]
    pub const fn new(request_id: RequestId, cell_id: CellId) -> Self {
        Self {
            request_id,
            cell_id,
            input: String::new(),
            input_from: 0,
            input_eof: false,
            output_from: None,
            wait_ms: 0,
            size: None,
            hang_up: false,
        }
    }
}

/// State of a program that a client runs in a container: the answer to [`ExecIo`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExecIoReply {
    /// Output from offset [`ExecIo::output_from`].
    pub output: Vec<OutputChunk>,
    /// Offset in bytes of the next output, which follows this answer.
    pub output_next: u64,
    /// Number of input bytes that the cell has received.
    pub input_next: u64,
    /// End of the program. Absent while the program runs, and while some of its output did not fit into this
    /// answer.
    pub end: Option<ExecEnd>,
}

/// An [`ExecIo`] request that the BBS forwards to the rep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardedExecIo {
    /// Domain of the client, as proved by the subject of the request.
    pub domain: Domain,
    /// Client, as proved by the subject of the request.
    pub client: ClientName,
    pub io: ExecIo,
}

/// A piece of a program's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputChunk {
    /// Stream that it was written to.
    pub stream: Stream,
    /// Bytes in base64 (RFC 4648, with padding).
    pub data: String,
}

/// Output stream of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output, or the terminal if the program has one.
    Out,
    /// Standard error.
    Err,
}
