//! Tests of the rep's state machine, as single steps and as scenarios. Its BBS is a small model that decides
//! with the state machines of `schemas`. Its executor is a map of containers.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod adoption;
mod capacity;
mod cell;
mod evacuation;
mod happy;
mod losses;
mod preparing;
mod signs;
mod small_bbs;
mod stops;
mod words;
