//! End-to-end tests with real processes: an executor, its shims, and the programs of containers.
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
