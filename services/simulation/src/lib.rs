//! A cluster in one thread, driven by a seed: the real `step` functions of two BBSs, two auctioneers and three reps,
//! with a journal, a bus, containers and a clock that are simulated.
//!
//! Nothing here waits or reads a clock: time jumps to whatever is due next. The same seed gives the same run, byte for
//! byte. Messages travel encoded, so that codecs and limits are exercised.
//!
//! | the file | holds |
//! |---|---|
//! | [`rng`] | chance, one stream for each concern |
//! | [`cluster`] | everything together, and the one loop through what is due |
//! | [`nodes`] | the machines with their clocks; life and death |
//! | [`faults`], `bursts` | what goes wrong, and how often; what goes wrong together |
//! | `large` | plans in which much is large, and much happens at once |
//! | [`journal`] | a log with compare-and-set |
//! | [`directed`] | plans that lead to one row of the tables |
//! | `records` | the way to the log and back: lost, late, unacknowledged; followers that lag |
//! | `bus` | messages that are lost, late, doubled or old; questions and answers |
//! | `arrived`, `effects` | what machines take, and what they want done |
//! | `takeover` | what a new leader finds, alone with a copy of what it knows |
//! | [`workload`], `clients` | what clients do, what they are told, and the owners of tasks |
//! | `reads` | what readers ask of the tables |
//! | [`checkers`] | what has to be true, at every append and at the end |
//! | [`story`] | plans as text, and what is expected of them |
//! | [`coverage`] | the interesting things, counted |

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
