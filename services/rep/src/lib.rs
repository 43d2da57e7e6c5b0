//! Keeps a cell's containers and the records in harmony.
//!
//! The rep takes work that an auctioneer gives it, runs it as containers, and tells the BBS what became of them. It
//! does so by one road: whether the executor says that a container changed, the BBS answers, or it is time to look at
//! everything again, [`reconcile`] compares one container with one record, and the steps it names are taken.
//!
//! ```text
//!  auctioneer ─ perform ─▶ reservation ─┐                      ┌─▶ report ─▶ BBS ─ answer ─┐
//!  executor ─── container changed ──────┼─▶ look ─▶ reconcile ─┤                           ├─▶ look again
//!  poll ─────── list, records ──────────┘     (table, steps)   └─▶ run, stop, delete ◀─────┘
//! ```
//!
//! [`Rep`] waits for nothing, reads no clock and opens no socket: time and everything else that comes from outside is
//! an [`Input`], everything that goes there an [`Effect`].
//!
//! What holds:
//! - One report at most is under way for a container, and it is told with all its steps in one decision.
//! - Work is claimed only once its container is prepared: a cell that can't create containers refuses it.
//! - A container that ended is kept until the BBS has answered for it: no outcome is lost.
//! - A container that is INITIALIZING, CREATED or RUNNING is deleted only by a decision on a record that was read for
//!   it; the one exception is an evacuation whose time is over.
//! - Reservations and containers together never take more than the cell has.
//! - A container of an earlier life of its guid goes, and says nothing about the current one.

pub mod limits;
mod machine;
pub mod reconcile;

pub use machine::{ContainerCounts, Effect, Input, Level, Rep, Settings, Unprepared};
