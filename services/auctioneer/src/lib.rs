//! Places work on cells.
//!
//! | the file | holds |
//! |---|---|
//! | [`score`] | sortable rating of a cell, the counterpart of the [`rank`](machines::rank) of work |
//! | [`auction`] | one auction, as a pure function of cells and batch |
//! | [`board`] | index of the cells, so that an auction inspects few of them |
//! | [`preempt`] | selection of victims for waiting work, as a pure function |
//! | [`plan`] | simulation of a change on a copy of the cluster |
//! | [`machine`] | the state machine: folds the log, collects open work, sends it to reps |
//!
//! Nothing in this crate blocks, reads a clock or uses randomness.

pub mod auction;
pub mod board;
mod eligibility;
mod explain;
mod family;
pub mod machine;
pub mod plan;
pub mod preempt;
pub mod score;
mod search;
mod tally;
mod view;

pub use machine::{Auctioneer, Effect, Input, Settings, Totals};
