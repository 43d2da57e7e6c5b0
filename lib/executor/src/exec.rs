//! Protocol for additional programs in a container (docs/model.md, "Running a program in a container").
//!
//! ```text
//!   executor ── request ──────▶ shim ──▶ program, started like those of the action
//!      ▲  ▲                      │          ▲
//!      │  └── ExecEnd ───────────┘          │
//!      └── pipes, or a terminal ────────────┘
//! ```
//!
//! The shim listens on a socket in the container's folder. It passes the client's ends of the program's
//! streams to the client, so input and output go through neither the shim nor its log. The program ends when
//! the connection ends.

use schemas::exec::ExecEnd;
use serde::{Deserialize, Serialize};

/// Name of the socket in a container's folder.
pub(crate) const SOCKET: &str = "shim";
/// Maximum number of additional programs that run in one container at a time.
pub(crate) const AT_ONCE: usize = 16;

/// Reply of a shim to a request to run a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// The program runs. Its streams are attached: the terminal, or else standard input, output and error.
    Began,
    /// The program was not started, for this reason.
    Refused(String),
    /// The program ended.
    Ended(ExecEnd),
}
