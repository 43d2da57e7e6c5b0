//! Fault injection into a cluster of real processes under a steady load.
//!
//! After each fault, everything is checked: no acknowledged command is lost, no task ran twice, exactly the
//! desired instances run, and the tables and the log are correct. The short version is the test `faults` of
//! `muster`, and the long one is `cargo run --release -p faults`. See `docs/internals/faults.md`.
//!
//! | file | content |
//! |---|---|
//! | `fault.rs` | faults: name, effect, how it is undone |
//! | `injector.rs` | injection of faults |
//! | `cluster.rs` | servers, services, and the folder with their files; observations of them |
//! | `disk.rs` | disk that can be full and lose its power |
//! | `proxy.rs` | network of a rep |
//! | `program.rs` | `muster`: services and commands |
//! | `load.rs` | clients that send commands continuously |
//! | `work.rs` | processes and tasks of these clients |
//! | `recording_client.rs`, `ledger.rs` | commands with request ids, and the record of their outcomes |
//! | `service.rs` | test for full service |
//! | `check.rs`, `log.rs` | properties that must hold when the cluster is quiet again |
//! | `long_log.rs` | long log to start with |
//! | `build.rs` | builds of the program, of this commit and of the previous one |
//! | `run.rs`, `report.rs` | one fault after the other, and their results |

pub mod build;
pub mod check;
pub mod cluster;
pub mod disk;
pub mod error;
pub mod fault;
pub mod injector;
pub mod ledger;
pub mod load;
pub mod log;
pub mod long_log;
pub mod program;
pub mod proxy;
pub mod recording_client;
pub mod report;
pub mod run;
pub mod service;
pub mod work;
