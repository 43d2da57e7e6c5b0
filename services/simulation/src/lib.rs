//! Deterministic simulation of a cluster in one thread. It runs the production `step` functions of BBSs,
//! auctioneers and reps, with a simulated journal, bus, clock and containers.
//!
//! Time jumps to the next due event. The same seed gives the same run, byte for byte. Messages are encoded
//! and decoded.
//!
//! | module | contents |
//! |---|---|
//! | [`plan`] | plan of a run |
//! | [`work`], [`act`], [`rules`] | commands and work of clients; acts of a run; placement rules |
//! | `generate`, [`rates`] | plans drawn from seeds; fault rates |
//! | [`shape`], `layout` | nodes and configuration of a cluster; racks and isolation of its cells |
//! | [`directed`] | plans for rows of the reconciliation tables |
//! | [`story`] | plans and expectations as text |
//! | [`cluster`], [`run`](mod@run) | the cluster, and the loop through its events; runs of plans |
//! | `event`, `machine` | messages and events; state machines of nodes |
//! | `nodes`, `arrived`, `effects`, `faults` | lives of nodes, their inputs, effects and faults |
//! | `bus`, `records`, [`journal`] | message bus; messages of the journal; the journal |
//! | `clients`, `reads` | clients, operators, task owners, readers |
//! | [`invariants`], [`checkers`] | invariants and their checkers |
//! | `takeover` | first convergence pass of a new leader |
//! | [`coverage`] | situations that runs met |
//! | [`batch`], [`shrink`] | batches of seeds, and shortening of failed plans |

pub mod act;
mod arrived;
pub mod batch;
mod bus;
pub mod checkers;
mod clients;
pub mod cluster;
pub mod coverage;
pub mod directed;
mod effects;
mod event;
mod faults;
mod generate;
pub mod invariants;
pub mod journal;
pub mod layout;
mod machine;
mod nodes;
pub mod plan;
pub mod rates;
mod reads;
mod records;
pub mod requests;
pub mod rng;
pub mod rules;
pub mod run;
pub mod shape;
pub mod shrink;
pub mod story;
mod takeover;
pub mod work;

pub use cluster::Cluster;
pub use plan::Plan;
pub use run::{Outcome, run, run_plan, run_with};
