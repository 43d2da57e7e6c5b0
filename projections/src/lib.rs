//! What the log means: the [`World`], folded from entries in order.
//!
//! Pure: no clock, no chance, no waiting. Folding never fails on a valid log.
//!
//! | the file | holds |
//! |---|---|
//! | [`World`] (`world.rs`) | what is true after a position, and every question that the services ask |
//! | [`reader`] | what of the journal is an entry, and what is set aside |
//! | [`cluster_log`] | which positions operators set aside, known before the rest is read |
//! | [`queries`], [`records`] | what is true, as rows for readers and as records for reps |
//! | [`figures`] | what is true in numbers, for whoever watches from afar |
//! | `index.rs` | the sets that answer those questions, kept up to date slot by slot |
//! | `share.rs` | what keeps a million equal names and definitions in memory once |
//! | `ended.rs` | what ended, for queries to show |
//! | [`tables`] | what each entry changes in the tables of a database, and their columns |
//! | `snapshot.rs` | the World as bytes and back |

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

pub use cluster_log::ClusterLog;
pub use figures::Figures;
pub use index::{Counts, Due, InstanceCounts, TaskCounts, WorkRef};
pub use queries::{Observed, Query};
pub use reader::Reader;
pub use snapshot::SnapshotError;
pub use world::{Change, Picture, REMEMBERED, Told, World};
