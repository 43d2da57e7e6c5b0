//! What the tests stand on.
//!
//! | the file | holds |
//! |---|---|
//! | `place.rs` | a folder with all that lives in it, and how long things may take |
//! | `program.rs` | `muster` as a service that runs, and as a command that answers |
//! | `http.rs` | what is posted to a test, and its answer |
//! | `plain.rs` | a NATS client of a hundred lines, as any language has one |
//! | `terminal.rs` | a pseudo-terminal, with a program on it |
//! | `cluster.rs` | services on a nats-server of their own |
//! | `users.rs` | a nats-server with the users and permissions that `muster auth` makes |

pub(crate) mod cluster;
pub(crate) mod http;
pub(crate) mod place;
pub(crate) mod plain;
pub(crate) mod program;
pub(crate) mod terminal;
pub(crate) mod users;

pub(crate) use ::support::containers;
pub(crate) use cluster::Cluster;
pub(crate) use place::{LIMIT, Place, eventually};
pub(crate) use program::{Muster, Said, Service};
pub(crate) use terminal::Terminal;
