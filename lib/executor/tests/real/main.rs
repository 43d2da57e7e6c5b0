//! Real processes, end to end: an executor, its shims, and what they run.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod actions;
mod adoption;
mod exec;
mod groups;
mod hostile;
mod images;
mod isolation;
mod kills;
mod life;
mod logs;
mod monitor;
mod removal;
mod stop;
mod support;
mod transfers;
