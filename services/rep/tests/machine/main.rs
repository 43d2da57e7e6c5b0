//! The rep's machine, step by step and in stories. The BBS that answers it is a small one, but decides with the
//! language's own machines; the executor is a table of containers.
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
