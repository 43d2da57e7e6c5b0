//! What waits: the journal, the bus, the clock, and what a program needs around them.
//!
//! This crate knows bytes, subjects and positions, and nothing of processes, tasks or cells. Everything that decides
//! is elsewhere, and waits for nothing.
//!
//! | the module | holds |
//! |---|---|
//! | [`journal`] | what happened: durable, ordered, never edited. In memory, in an embedded database, on JetStream |
//! | [`bus`] | what is being asked right now: in process, over a Unix socket, on NATS. It may lose anything |
//! | [`nats`] | how a connection to a NATS server is made, for both |
//! | [`clock`], [`ids`] | the one place that reads the time, the one place that draws by chance |
//! | [`folder`] | one data folder, one owner |
//! | [`telemetry`], [`stop`] | what a program says, and how it ends |
//! | [`server`] | a nats-server of one's own, for tests and trials |

pub mod bus;
pub mod clock;
pub mod folder;
pub mod ids;
pub mod journal;
pub mod limits;
mod monitor;
pub mod nats;
pub mod server;
pub mod stop;
pub mod telemetry;

pub use bus::Bus;
pub use journal::Journal;
