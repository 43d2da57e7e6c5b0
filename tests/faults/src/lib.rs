//! A cluster of real processes under a steady load, and everything that may happen to it.
//!
//! After each fault everything is looked at: no acknowledged command is lost, no task ran twice, what ought to run runs and
//! nothing else does, the tables and the log are right. The short version is the test `faults` of `muster`; the long one
//! is `cargo run --release -p faults`. `docs/testing.md` says more.
//!
//! | the file | holds |
//! |---|---|
//! | `fault.rs` | every fault: its name, what it does, how it is undone |
//! | `strike.rs` | faults as they are done |
//! | `cluster.rs` | servers, services, and the folder with all that lives in it; what is seen of them |
//! | `disk.rs` | a disk that can be full and lose its power |
//! | `proxy.rs` | the network of a rep |
//! | `program.rs` | `muster`: services and commands |
//! | `load.rs` | clients that never stop |
//! | `work.rs` | what they desire |
//! | `asker.rs`, `ledger.rs` | commands with request tokens, and the record of what came of each |
//! | `service.rs` | whether somebody who asks gets everything |
//! | `check.rs`, `log.rs` | what has to hold when everything is quiet again |
//! | `past.rs` | a long log to begin with |
//! | `build.rs` | builds of the program, of this commit and of the one before |
//! | `run.rs`, `report.rs` | one fault after the other, and what came of them |

pub mod asker;
pub mod build;
pub mod check;
pub mod cluster;
pub mod disk;
pub mod failed;
pub mod fault;
pub mod ledger;
pub mod load;
pub mod log;
pub mod past;
pub mod program;
pub mod proxy;
pub mod report;
pub mod run;
pub mod service;
pub mod strike;
pub mod work;
