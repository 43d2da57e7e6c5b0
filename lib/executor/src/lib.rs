//! Containers: real processes with their shim.
//!
//! ```text
//!   rep ── run, stop, delete ──▶ Executor ── spec.json, orders ──▶ shim ── fork ──▶ setup, action, monitor
//!    ▲                              │  ▲                             │
//!    └── list, events, logs ────────┘  └── state.json, events ◀──────┘
//! ```
//!
//! A container is a folder and a **shim**: a small program in a session of its own that runs the recipe and writes
//! down what became of it. The shim needs nobody: a rep may die and another may open the same data folder, and finds
//! what ran, what ended meanwhile and how. Two named pipes in the folder join the two: on `orders` a byte asks the
//! shim to stop, on `events` a byte says that `state.json` is worth reading, and the end of `events` says that the
//! shim is gone.
//!
//! | the file | holds |
//! |---|---|
//! | [`process`] | the executor: real containers, their ports, their logs |
//! | `isolation` | what keeps them apart from the host and from each other |
//! | `ids` | which ids of the host their users have |
//! | `image` | file systems for them, from OCI images |
//! | `trash` | folders that are being removed |
//! | `transfer`, `archive` | what is fetched and sent for them, and how it is unpacked |
//! | `exec` | one more program in a container |
//! | [`shim`] | what runs inside: the action tree, the monitor, the end of the tree |

mod archive;
mod cgroup;
mod clock;
mod environment;
mod exec;
mod folder;
mod host;
mod ids;
mod image;
mod isolation;
mod opened;
pub mod process;
mod processes;
pub mod shim;
mod socket;
mod transfer;
mod trash;
