//! Deterministic simulation of a cluster in one thread. It runs the production `step` functions of BBSs,
//! auctioneers and reps, with a simulated journal, bus, clock and containers.
//!
//! Time jumps to the next due event. The same seed gives the same run, byte for byte. Messages are encoded
//! and decoded.
//!
//! | module | contents |
//! |---|---|
//! | [`plan`] | plans of runs, drawn from seeds |
//! | [`workload`] | commands of clients; the modules beside it draw special workloads |
//! | [`faults`], `bursts` | faults and their combinations |
//! | [`directed`] | plans for rows of the reconciliation tables |
//! | [`story`] | plans and expectations as text |
//! | [`cluster`] | the cluster, and the loop through its events |
//! | [`nodes`], `arrived`, `effects` | nodes, their inputs and effects |
//! | `bus`, `records`, [`journal`] | message bus; messages of the journal; the journal |
//! | `clients`, `reads` | clients, operators, task owners, readers |
//! | [`invariants`], [`checkers`] | invariants and their checkers |
//! | `takeover` | first convergence pass of a new leader |
//! | [`coverage`] | situations that runs met |
//! | [`batch`], [`shrink`] | batches of seeds, and shortening of failed plans |

mod absences;
mod arrived;
pub mod asked;
pub mod batch;
mod bursts;
mod bus;
pub mod checkers;
mod clients;
pub mod cluster;
pub mod coverage;
pub mod directed;
mod dispatches;
mod effects;
pub mod faults;
mod globals;
pub mod invariants;
pub mod journal;
mod large;
pub mod nodes;
mod periodics;
pub mod plan;
mod preemption;
mod priorities;
pub mod racks;
mod reads;
mod records;
mod restarts;
mod retries;
pub mod rng;
mod rollouts;
pub mod shrink;
pub mod story;
mod takeover;
mod walls;
pub mod workload;

pub use cluster::{Cluster, Outcome, run, run_plan, run_told};
pub use plan::Plan;
