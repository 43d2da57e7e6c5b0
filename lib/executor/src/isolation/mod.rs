//! How a container is kept apart from its host and from others (docs/model.md, "Isolation").
//!
//! ```text
//!   rep ──▶ shim            enters the groups, leaves the namespaces of the host, gives the next one its users, waits
//!            └─▶ shim init  is process 1 of the container: makes its file system, then lives as every shim does
//!                 └─▶ shim program   enters that file system, gives up every right, becomes the program (or unpacks)
//! ```
//!
//! Three programs, since each step wants a process of one thread that has just begun, and no other step can take its place:
//! who makes a namespace of processes is not in it, who is 1 in it needs the rights that no program may have. The last one
//! is told by a socket what to become, for an environment that a definition wrote must touch no program that has rights.
//!
//! | the file | does |
//! |---|---|
//! | `plan.rs` | what is to be done for one container; the rep writes it into the container's spec |
//! | `probe.rs` | finds out once what this host gives |
//! | `outer.rs`, `inner.rs`, `program.rs` | the three programs |
//! | `tree.rs`, `mounts.rs` | the file system |
//! | `users.rs` | users of the container by name, and what they are on the host |
//! | `terminal.rs` | terminals for programs that somebody talks to |
//! | `calls.rs`, `landlock.rs` | which system calls are refused; Landlock |
//! | `kernel.rs` | limits of the kernel for its users |
//! | `disk.rs` | how much disk is used |

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

/// What the second of the three programs is called.
pub(crate) const INIT: &str = "init";
/// What the third is called.
pub(crate) const PROGRAM: &str = "program";
/// Where the working directory of a container is, as its programs see it: the home of who owns it.
pub(crate) const WORK: &str = "/home/vcap";
