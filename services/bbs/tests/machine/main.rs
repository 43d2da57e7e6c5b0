//! Tests of the BBS state machine as scenarios: with an in-memory journal, and all other processes simulated
//! by the test.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod allocations;
mod appends;
mod auctioneers;
mod causes;
mod cells;
mod clock;
mod confirm;
mod journal;
mod limits;
mod parameterised;
mod periodic;
mod planned;
mod quotas;
mod requests;
mod rollouts;
mod scene;
mod shards;
mod tasks;
mod words;
