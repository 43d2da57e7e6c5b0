//! Roles of a Muster cluster and their permissions. One table defines the permissions, and the NATS server
//! enforces them.
//!
//! Every program and every person on a cluster has a [`Role`]. [`Role::rights`] returns the subjects that a
//! role may publish on and subscribe to. The server's configuration, the table in the documentation and the
//! permission probes are derived from these rights. Nothing in this crate is asynchronous. Callers pass the
//! random bytes for nkeys.
//!
//! | Module | Contents |
//! |---|---|
//! | [`roles`] | table of the subjects that each role publishes on, subscribes to and answers |
//! | [`pattern`] | matching of subject patterns |
//! | [`probes`] | operations that each role must and must not be able to perform, derived from the table |
//! | [`server`] | configuration of a NATS server for a list of users |
//! | [`certificates`] | certificate authority for trials and private networks |
//! | [`store`] | folder that `muster auth` creates and changes |

pub mod certificates;
pub mod pattern;
pub mod probes;
pub mod roles;
pub mod server;
pub mod store;

pub use roles::{Rights, Role};
pub use server::User;
pub use store::Store;
