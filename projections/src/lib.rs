//! Projections of the log. Entries are folded in order into the projected state, the [`World`]. All answers
//! are derived from the World.
//!
//! The crate is pure: no clock, no randomness, no I/O waits. Folding a valid log never fails.
//!
//! | file | contents |
//! |---|---|
//! | [`World`] (`world.rs`) | state after a position, and every query that the services make |
//! | [`reader`] | journal messages: entries and quarantined messages |
//! | [`cluster_log`] | positions that operators quarantined, read before the rest of the log |
//! | [`queries`], [`records`] | the state as rows for clients and as records for reps |
//! | [`figures`] | the state in numbers, for metrics |
//! | `index.rs` | indexes that make queries of the World fast, maintained slot by slot |
//! | `check.rs` | rules that hold for every World |
//! | `share.rs` | deduplication of equal names and definitions in memory |
//! | `ended.rs` | history of ended instances and tasks, for queries |
//! | [`tables`] | conversion of each entry to changes of database tables, and the columns of these tables |
//! | `snapshot.rs` | serialization of the World |

mod check;
pub mod cluster_log;
mod ended;
pub mod figures;
mod index;
pub mod queries;
pub mod reader;
pub mod records;
mod share;
pub mod snapshot;
pub mod tables;
mod world;

pub use check::Violation;
pub use cluster_log::ClusterLog;
pub use ended::HistoryEvent;
pub use figures::Figures;
pub use index::{Counts, Due, InstanceCounts, RETENTION, TaskCounts, WorkRef};
pub use queries::{Observed, Query};
pub use reader::Reader;
pub use snapshot::SnapshotError;
pub use world::{Change, World, WorldSnapshot};
