//! One more program in a container (docs/model.md, "Running a program in a container").
//!
//! ```text
//!   executor ── what to run ──▶ shim ──▶ program, as those of the action are
//!      ▲  ▲                      │          ▲
//!      │  └── how it ended ──────┘          │
//!      └── pipes, or a terminal ────────────┘
//! ```
//!
//! The shim listens on a socket in the folder of its container. Who asked gets the ends of the program's streams and reads and
//! writes by itself: of that nothing passes through the shim, or its log. When the connection ends the program does.

use schemas::exec::ExecEnd;
use serde::{Deserialize, Serialize};

/// The name of the socket in the folder of a container.
pub(crate) const SOCKET: &str = "shim";
/// Programs that may run so in one container at a time.
pub(crate) const AT_ONCE: usize = 16;

/// What a shim says when it is asked to run a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// It runs. With this come its streams: of a terminal that, else its standard input, output and error.
    Began,
    /// It doesn't, for this reason.
    Refused(String),
    /// It ended.
    Ended(ExecEnd),
}
