//! Isolation of a container from its host and from other containers (docs/model.md, "Isolation").
//!
//! ```text
//!   rep ──▶ shim            enters the groups, creates namespaces, writes the id maps of the next program, waits
//!            └─▶ shim init  is process 1 of the container: builds its file system, then acts as every shim does
//!                 └─▶ shim program   enters that file system, drops all rights, becomes the program (or unpacks)
//! ```
//!
//! Three programs are needed, since each step requires a new process with one thread. The process that
//! creates a process namespace is not in it, and process 1 in it needs rights that no program of a container
//! may have. The last program receives its request over a socket, since an environment from a definition must
//! not affect a program with rights.
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
//! | `kernel.rs` | kernel limits for its users |
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

pub(crate) use disk::Counted;
pub(crate) use inner::enter;
pub(crate) use outer::{again, lead, leaves_host};
pub(crate) use plan::{Plan, Tree, masked};
pub(crate) use probe::{Found, kernel_walls, ladder};
pub(crate) use program::{Deed, NotStarted, Session, Wish, become_program, exchange, exchange_for_file};
pub(crate) use terminal::{Pair, resize};
pub(crate) use users::OWNER;

/// Argument that selects the second of the three programs.
pub(crate) const INIT: &str = "init";
/// Argument that selects the third.
pub(crate) const PROGRAM: &str = "program";
/// Work directory of a container as its programs see it, and home of the user that owns it.
pub(crate) const WORK: &str = "/home/vcap";
