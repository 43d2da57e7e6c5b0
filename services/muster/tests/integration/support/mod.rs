//! Support code of the integration tests.
//!
//! | file | content |
//! |---|---|
//! | `test_dir.rs` | folder of a test with its processes; default timeout |
//! | `program.rs` | `muster` as a running service and as a command |
//! | `http.rs` | server side of HTTP |
//! | `plain.rs` | plain NATS client, as in any language |
//! | `terminal.rs` | pseudo-terminal with a program on it |
//! | `cluster.rs` | services on a nats-server of their own |
//! | `users.rs` | nats-server with the users and permissions of `muster auth` |

pub(crate) mod cluster;
pub(crate) mod http;
pub(crate) mod plain;
pub(crate) mod program;
pub(crate) mod terminal;
pub(crate) mod test_dir;
pub(crate) mod users;

pub(crate) use ::support::containers;
pub(crate) use cluster::Cluster;
pub(crate) use program::{CommandOutput, Muster, Service};
pub(crate) use terminal::Terminal;
pub(crate) use test_dir::{TIMEOUT, TestDir, eventually};
