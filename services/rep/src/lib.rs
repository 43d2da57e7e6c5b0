//! Keeps a cell's containers and the log's records consistent.
//!
//! The rep accepts work from an auctioneer, runs it in containers, and reports their state to the BBS. All of
//! this uses a single path. Whether the executor reports a change, the BBS answers, or a poll is due:
//! [`reconcile`] compares one container with one record, and the rep performs the resulting steps.
//!
//! ```text
//!  auctioneer ─ perform ─▶ reservation ─┐                      ┌─▶ report ─▶ BBS ─ answer ─┐
//!  executor ─── container changed ──────┼─▶ look ─▶ reconcile ─┤                           ├─▶ look again
//!  poll ─────── list, records ──────────┘     (table, steps)   └─▶ run, stop, delete ◀─────┘
//! ```
//!
//! [`Rep`] never blocks, reads no clock and opens no socket. Time and all other external data arrive as an
//! [`Input`], and all external actions are an [`Effect`].
//!
//! Invariants:
//! - At most one report per container is unanswered. It contains all of its steps, which the BBS records in
//!   one decision.
//! - Work is claimed only after its container was prepared: a cell that cannot create containers refuses the
//!   work.
//! - A container that ended is kept until the BBS has answered its report, so no outcome is lost.
//! - A container that is INITIALIZING, CREATED or RUNNING is deleted only by a decision on a record that was
//!   read for it. The exception is an evacuation that has timed out.
//! - Reservations and containers together never use more than the cell's total resources.
//! - A container of an earlier epoch of its guid is deleted and never reports on the current epoch.

pub mod limits;
mod machine;
pub mod reconcile;

pub use machine::{ContainerCounts, Effect, Input, Level, Rep, Settings, Unprepared};
