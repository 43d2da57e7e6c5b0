//! Explanations, comparisons, plans and checks of a cluster, as data. The command line formats this data as text,
//! and other programs return it as JSON.
//!
//! Functions that query a cluster take a [`client::Client`], and [`recorded::read`] takes a journal. All other functions
//! are pure, except for the clock. No function sends a command that changes the cluster, or writes to a terminal.
//!
//! | module | content |
//! |---|---|
//! | [`why`] | explanation of the state of an instance or a task |
//! | [`trace`] | tree of the decisions that a command caused |
//! | [`plan`] | predicted effect of applying objects, and of a rebalance |
//! | [`what_if`], [`recorded`] | continuation of a recorded cluster with changes |
//! | [`doctor`] | checks of collected facts about a cluster and a host |
//! | [`placement_gap`] | reason that work waits for a cell |
//! | [`changes`], [`decision_changes`] | changes between two moments, and changes that single decisions made |
//! | [`comparison`] | comparison of a process with another version of it, field by field |
//! | [`decisions`] | reading of decisions from the log |
//! | [`find`], [`names`], [`monitors`] | lookup of objects; display names; failures of monitors |

pub mod changes;
pub mod comparison;
pub mod decision_changes;
pub mod decisions;
pub mod doctor;
mod error;
pub mod find;
pub mod monitors;
pub mod names;
pub mod placement_gap;
pub mod plan;
pub mod recorded;
pub mod trace;
pub mod what_if;
pub mod why;

pub use error::{Error, Missing};
pub use scenario::Unusable;
