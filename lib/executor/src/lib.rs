//! Containers: real processes, each supervised by a shim.
//!
//! ```text
//!   rep ── run, stop, delete ──▶ Executor ── spec.json, orders ──▶ shim ── fork ──▶ setup, action, monitor
//!    ▲                              │  ▲                             │
//!    └── list, events, logs ────────┘  └── state.json, events ◀──────┘
//! ```
//!
//! A container consists of a folder and a **shim**. The shim is a small program in a session of its own that
//! runs the recipe and records the result. The shim does not depend on the rep. If the rep dies, another rep
//! opens the same data folder. The new rep finds out which containers are running, and how the other
//! containers ended. Two named pipes in the folder of a container connect the executor and the shim. A byte
//! on `orders` asks the shim to stop. A byte on `events` signals that `state.json` changed, and the end of
//! `events` means that the shim is gone.
//!
//! | the file | holds |
//! |---|---|
//! | [`process`] | the executor: real containers, their ports, their logs |
//! | `isolation` | isolation from the host and from other containers |
//! | `ids` | host ids of the containers' users |
//! | `image` | file systems from OCI images |
//! | `trash` | folders that are being removed |
//! | `transfer`, `archive` | downloads and uploads for containers, and unpacking |
//! | `exec` | additional programs in a container |
//! | [`shim`] | inside of a container: the action tree, the monitor, the end of the process tree |

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
pub mod process;
mod processes;
pub mod shim;
mod shim_secrets;
mod socket;
mod transfer;
mod trash;
