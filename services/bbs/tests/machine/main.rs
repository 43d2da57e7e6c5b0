//! The BBS's machine in stories: a journal in memory, and everybody else played by hand.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

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
