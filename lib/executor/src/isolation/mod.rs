//! Isolation of a container from its host and from other containers (docs/internals/model/containers.md,
//! "Isolation").
//!
//! ```text
//!   rep ──▶ shim            enters the control groups, creates namespaces, writes the id maps of the next program, waits
//!            └─▶ shim init  is process 1 of the container: builds its file system, then acts as every shim does
//!                 └─▶ shim program   enters that file system, drops all rights, becomes the program (or unpacks)
//! ```
//!
//! Three programs are needed, since each step requires a new process with one thread. A process that creates
//! a process namespace is not itself in the namespace. Process 1 of the namespace needs rights that no
//! program of a container may have. The last program receives its request over a socket and not through its
//! environment. The definition determines the environment, so the environment must not affect a program that
//! still has rights.
//!
//! | the file | does |
//! |---|---|
//! | `plan.rs` | the isolation plan of one container, which the rep writes into the container's spec |
//! | `probe.rs` | detects which isolation layers this host supports |
//! | `outer.rs`, `inner.rs`, `program.rs` | the three programs |
//! | `tree.rs`, `mounts.rs` | the file system |
//! | `users.rs` | users of the container by name, and their ids on the host |
//! | `terminal.rs` | terminals for interactive programs |
//! | `calls.rs`, `landlock.rs` | refused system calls; Landlock |
//! | `kernel.rs` | kernel limits for the users of a container |
//! | `disk.rs` | disk use |

mod calls;
mod disk;
mod inner;
mod kernel;
mod landlock;
mod loopback;
mod mounts;
mod outer;
mod plan;
mod probe;
mod program;
mod terminal;
mod tree;
mod users;

pub(crate) use disk::DiskUsage;
pub(crate) use inner::enter;
pub(crate) use outer::{leaves_host, reexec_command, run_outer};
pub(crate) use plan::{Plan, RootFs, masked_paths};
pub(crate) use probe::{HostIsolation, candidates, kernel_layers};
pub(crate) use program::{
    Operation, ProgramRequest, Session, StartError, request_file, run_program, send_request,
};
pub(crate) use terminal::{Pty, resize};
pub(crate) use users::OWNER;

/// Argument that selects the second of the three programs.
pub(crate) const INIT: &str = "init";
/// Argument that selects the third of the three programs.
pub(crate) const PROGRAM: &str = "program";
/// Work directory of a container as its programs see it. The directory is also the home of the user that owns
/// it.
pub(crate) const WORK_DIR: &str = "/home/vcap";
