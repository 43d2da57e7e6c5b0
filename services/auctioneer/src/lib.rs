//! Places work on cells.
//!
//! | the file | holds |
//! |---|---|
//! | [`score`] | how good a place is: a struct that sorts, as the [`rank`](schemas::rank) of work does |
//! | [`auction`] | one auction: pure, the same cells and batch give the same answer |
//! | [`board`] | the cells, indexed so that an auction looks at few of them |
//! | [`preempt`] | what stops, so that work which waits has room: pure, too |
//! | [`plan`] | what would come of a wish: the same on a copy |
//! | [`machine`] | the machine around it: folds the log, finds the work there, gives it to reps |
//!
//! Nothing here waits, reads a clock or draws by chance.

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

pub use machine::{Auctioneer, Deeds, Effect, Input, Settings};
