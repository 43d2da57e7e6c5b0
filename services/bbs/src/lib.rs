//! The BBS: the state machine that makes all decisions. A decision is one accepted command with its events.
//!
//! [`Bbs::step`] takes one input and returns the actions to perform. It does not wait, read a clock or draw
//! random numbers. The World is the state folded from the log.
//!
//! ```text
//! request ──▶ shard queue ──▶ decide on a scratch copy of the World ──▶ append (compare-and-set)
//!                                                                           │
//! reply ◀── World.fold ◀─────────────── delivery by the follower ◀──────────┘
//! ```
//!
//! | file | content |
//! |---|---|
//! | `input`, `effect` | inputs and outputs |
//! | `machine` | `step`, which composes the duties |
//! | `command` | a command for one aggregate, on its way to its entry |
//! | `aggregates` | one file for each kind of aggregate, with everything that judging needs about its commands |
//! | `scratch` | the World with the earlier decisions of the batch |
//! | `judge` | decisions about a batch of commands, based on the World and the earlier decisions of the batch |
//! | [`queue`] | fair queues: actors take turns |
//! | `log`, `shards`, `appends`, `confirm`, `requesters`, `waiting`, `leadership`, [`presence`], `leases`, `living`, `clocks`, `timelines`, [`callbacks`], `convergence` | the duties (parts of the state), one type each |

mod aggregates;
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
mod scratch;
mod shards;
mod timelines;
mod waiting;

pub use clocks::CLOCK_STEP;
pub use effect::{Effect, Reply};
pub use input::{AppendFailure, ChangeRequest, Input, LogCheckError, Query};
pub use machine::{Bbs, Config, Gauges, SLICE_LEN, answer, answer_within};
