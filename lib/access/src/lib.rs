//! Who may do what: enforced by the NATS server, and said in one table.
//!
//! A role is what a program or a person is on a cluster. [`Role::rights`] says what it publishes and hears; the server's
//! configuration, the documentation and the probes by which tests try all that a role must not do follow from that.
//! Nothing here waits or draws by chance: keys are made of randomness that is given.
//!
//! | the file | holds |
//! |---|---|
//! | [`roles`] | the table: for each role what it publishes, hears and answers |
//! | [`pattern`] | which subjects a pattern covers |
//! | [`probes`] | what each role must be able to do and must not, derived from the table |
//! | [`server`] | the configuration of a NATS server, for a list of users |
//! | [`certificates`] | a certificate authority for trials and private networks |
//! | [`store`] | the folder with all of that, which `muster auth` makes and changes |

pub mod certificates;
pub mod pattern;
pub mod probes;
pub mod roles;
pub mod server;
pub mod store;

pub use roles::{Rights, Role};
pub use server::User;
pub use store::Store;
