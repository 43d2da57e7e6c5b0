//! Fault injection into a cluster of real processes under a steady load.
//!
//! All properties are checked after each fault: no acknowledged command is lost, no task ran twice, exactly
//! the desired instances run, and the tables and the log are correct. The short version is the test `faults`
//! of `muster`. The long version is `cargo run --release -p faults`. See `docs/internals/faults.md`.
//!
//! | file | content |
//! |---|---|
//! | `fault.rs` | faults: name, effect, removal |
//! | `injector.rs` | injection of faults |
//! | `cluster.rs` | servers and services, the folder with their files, and observations of them |
//! | `disk.rs` | disk that can become full and lose its power |
//! | `proxy.rs` | network of a rep |
//! | `program.rs` | `muster`: services and commands |
//! | `load.rs` | clients that send commands continuously |
//! | `work.rs` | processes and tasks of these clients |
//! | `recording_client.rs`, `ledger.rs` | commands with request ids, and the record of their outcomes |
//! | `service.rs` | test for full service |
//! | `check.rs`, `log.rs` | properties that must hold when the cluster is quiet again |
//! | `long_log.rs` | long log that exists before the services start |
//! | `build.rs` | builds of the program, from this commit and from the previous commit |
//! | `run.rs`, `report.rs` | sequence of faults, and their results |

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
