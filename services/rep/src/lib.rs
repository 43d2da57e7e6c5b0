//! Keeps the containers of a cell consistent with the records in the log.
//!
//! The rep accepts work from an auctioneer, runs it in containers, and reports their state to the BBS. All
//! changes take a single code path. It is used when the executor reports a change, when the BBS answers, and
//! when a poll is due: [`reconcile`] compares one container with one record, and the rep performs the
//! resulting steps.
//!
//! ```text
//!  auctioneer ─ perform ─▶ reservation ─┐                      ┌─▶ report ─▶ BBS ─ answer ─┐
//!  executor ─── container changed ──────┼─▶ look ─▶ reconcile ─┤                           ├─▶ look again
//!  poll ─────── list, records ──────────┘     (table, steps)   └─▶ run, stop, delete ◀─────┘
//! ```
//!
//! [`Rep`] never blocks, reads no clock and opens no socket. Time and all other external data arrive as an
//! [`Input`]. Every external action is returned as an [`Effect`].
//!
//! Invariants:
//! - At most one report per container is unanswered. It contains all steps for this container, and the BBS
//!   records them in one decision.
//! - Work is claimed only after its container was prepared. A cell that cannot create containers therefore
//!   refuses the work.
//! - A container that has ended is kept until the BBS has answered its report, so that no outcome is lost.
//! - A container that is INITIALIZING, CREATED or RUNNING is deleted only by a decision on a record that was
//!   read for this decision. The exception is an evacuation that has timed out.
//! - Reservations and containers together never use more than the cell's total resources.
//! - A container that belongs to an earlier epoch of its guid is deleted. It never reports on the current
//!   epoch.

pub mod limits;
mod machine;
pub mod reconcile;

pub use machine::{ContainerCounts, Effect, Input, Level, Rep, Settings, Unprepared};
