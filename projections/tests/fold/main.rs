//! Tests of folding on randomly generated logs.

mod answers;
mod arbitrary;
mod ended;
mod figures;
mod log;
mod pages;
mod pinned;
mod rollouts;
mod rows;
mod snapshots;
mod stories;
mod tables;
