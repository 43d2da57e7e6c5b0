//! Keeps the containers of a cell consistent with the records in the log.
//!
//! The rep accepts work from an auctioneer, runs it in containers, and reports the state of the containers to
//! the BBS. All changes take a single code path: [`reconcile`] compares one container with one record, and
//! the rep performs the resulting steps. Three events start this path: a change reported by the executor, an
//! answer of the BBS, and a due poll.
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
//! - Each container has at most one unanswered report. The report contains all steps for this container, and
//!   the BBS records the steps in one decision.
//! - The rep claims work only after preparing the container. So a cell that cannot create containers refuses
//!   the work.
//! - An ended container is kept until the BBS has answered its report, so that no outcome is lost.
//! - The deletion of an INITIALIZING, CREATED or RUNNING container always needs a record that was read for
//!   this decision. The exception is an evacuation that has timed out.
//! - Reservations and containers together never use more than the cell's total resources.
//! - A container that belongs to an earlier epoch of its guid is deleted. It never reports on the current
//!   epoch.

pub mod limits;
mod machine;
pub mod reconcile;

pub use machine::{ContainerCounts, Effect, Input, Level, Rep, Settings, Unprepared};
