//! Checks of a cluster and of a host. A program collects the facts; the checks are pure functions of these facts.
//!
//! | file | content |
//! |---|---|
//! | `facts.rs` | the collected facts |
//! | `judge/` | the checks |
//! | `check.rs` | the report |

mod check;
pub mod facts;
mod judge;

pub use check::{Check, Outcome, Report};
pub use judge::{run_checks, unconnected_report};
