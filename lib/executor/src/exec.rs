//! Protocol for additional programs in a container (docs/internals/model/containers.md, "Exec sessions").
//!
//! ```text
//!   executor ── request ──────▶ shim ──▶ program, started like those of the action
//!      ▲  ▲                      │          ▲
//!      │  └── ExecEnd ───────────┘          │
//!      └── pipes, or a terminal ────────────┘
//! ```
//!
//! The shim (the program that runs the container) listens on a socket in the container's folder. It creates
//! the streams of the additional program and passes their other ends to the executor. So input and output
//! bypass the shim and the container's log. The program ends when the connection between the executor and the
//! shim ends.

use schemas::exec::ExecEnd;
use serde::{Deserialize, Serialize};

/// Name of the socket in a container's folder.
pub(crate) const SOCKET: &str = "shim";
/// Maximum number of additional programs that run in one container at a time.
pub(crate) const MAX_CONCURRENT: usize = 16;

/// Reply of a shim to a request to run a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// The program runs. Its streams are attached: either the terminal, or pipes for standard input, output
    /// and error.
    Started,
    /// The program was not started, for this reason.
    Refused(String),
    /// The program ended.
    Ended(ExecEnd),
}
