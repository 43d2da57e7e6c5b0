//! The BBS: the machine that decides.
//!
//! [`Bbs::step`] takes one input and says what is to be done; it waits for nothing, reads no clock, draws no chance.
//!
//! ```text
//! asked ──▶ shard queue ──▶ decide on the World, on a scratch copy ──▶ append (compare-and-set)
//!                                                                          │
//! answer ◀── World.fold ◀────────────── what the follower delivers ◀───────┘
//! ```
//!
//! | the file | holds |
//! |---|---|
//! | `input`, `effect` | what comes in, what goes out |
//! | `machine` | the one `step`, which composes the duties |
//! | `command` | a command for one aggregate, on its way to its entry |
//! | `judge` | a batch of commands against the World and what the batch decided so far |
//! | [`queue`] | what waits in a shard: actors take turns |
//! | `log`, `shards`, `appends`, `confirm`, `requesters`, `waiting`, `leadership`, [`presence`], `leases`, `living`, `clocks`, `timelines`, [`callbacks`], `convergence` | the duties, one type each |

mod appends;
pub mod callbacks;
mod clocks;
mod command;
mod confirm;
mod convergence;
mod effect;
mod input;
mod judge;
mod leadership;
mod leases;
mod living;
mod log;
mod machine;
pub mod presence;
pub mod queue;
mod rates;
mod requesters;
mod shards;
mod timelines;
mod waiting;

pub use clocks::CLOCK_STEP;
pub use effect::{Effect, Reply};
pub use input::{Ask, Input, LogUnread, NotAppended, Query};
pub use machine::{Bbs, Gauges, SWEEP, Settings, answer, answer_to};
