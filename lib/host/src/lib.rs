//! Wiring: the drivers of the state machines.
//!
//! A state machine does no I/O: it returns effects. Its driver performs the effects one at a time, and passes
//! the results back to the machine as inputs. Drivers make no decisions.
//!
//! | file | content |
//! |---|---|
//! | `drive` | the loop that drives a machine |
//! | `decision_reports` | log lines and spans for the decisions of a leading BBS |
//! | `run_error` | errors that end a service |
//! | `feed` | publication of every event by a leading BBS |
//! | `founding` | answers to an operator who founds a cluster, with the cluster that a service belongs to |
//! | `follower` | delivery of journal entries to a machine |
//! | `requests` | requests between services, in postcard or JSON |
//! | `bbs` | driver of a BBS; its state is in `driver` |
//! | `budget` | limits of in-flight requests per client |
//! | `election_listener` | leader heartbeats while a starting service reads the log |
//! | `log_comparison` | comparison of the cluster's log with the log that a rep knows |
//! | `turn_queue` | queues in which clients take turns |
//! | `inbox` | messages from the bus to a BBS |
//! | `past` | queries about the past, each answered from a World (state folded from the log) of that time |
//! | `snapshot_index` | index of snapshots of the past, extended as the log grows |
//! | `query_pool` | queries about the present, answered from World snapshots |
//! | `monitoring` | metrics and probes of each service |
//! | `quarantine` | quarantined entries of the journal |
//! | `auctioneer`, `rep` | drivers of the other machines |
//! | `projector` | driver that keeps the tables of a database up to date |
//! | `containers` | container backends: real or scripted |

pub mod auctioneer;
pub mod bbs;
mod budget;
mod callback;
pub mod container_process;
pub mod containers;
mod decision_reports;
pub mod drive;
mod driver;
mod election_listener;
pub mod error;
pub mod example_server;
mod exec_sessions;
mod feed;
pub mod fingerprint;
mod follower;
mod founding;
pub mod home;
pub mod http;
pub mod inbox;
pub mod local;
mod log_comparison;
pub mod monitoring;
pub mod otlp;
pub mod past;
mod presence;
#[cfg(feature = "projector")]
pub mod projector;
pub mod quarantine;
mod query_pool;
pub mod rep;
mod reply_target;
mod requests;
pub mod run_error;
pub mod serve;
mod snapshot_index;
pub mod supervision;
pub mod telemetry_args;
pub mod transfers;
mod turn_queue;
