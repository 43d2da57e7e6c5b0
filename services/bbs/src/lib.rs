//! The BBS: the deciding machine.
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
//! | [`machine`] | inputs, effects, the one `step`; its parts are `landing` (the journal), `asking` (commands), `reacting` (what happened), `timing` (alarms), `answering` (queries) |
//! | [`shard`] | group commit: one entry in flight for each subject |
//! | `judge` | a command against the World and what the batch decided so far |
//! | [`confirm`] | what is answered without an entry is confirmed by the journal's leader first |
//! | [`converge`] | what is due: the safety net and the timers |
//! | [`presence`] | who is there: heartbeats, probes, the brake on mass loss |
//! | [`callbacks`] | telling the owners of completed tasks |

mod answering;
mod asking;
mod books;
pub mod callbacks;
pub mod confirm;
pub mod converge;
mod judge;
mod landing;
pub mod machine;
pub mod presence;
mod reacting;
pub mod shard;
mod timing;

pub use answering::answer;
pub use machine::{Ask, Bbs, Effect, Input, NotAppended, Query, Reply, Settings};
