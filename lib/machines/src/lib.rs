//! State machines of Muster.
//!
//! A state machine is a pair of functions: `decide(state, command, context) -> events or a refusal` and
//! `evolve(state, event) -> state`. The crate `schemas` defines the commands and events. This crate is pure. It
//! never blocks, reads a clock or uses randomness: times and ids are inputs.
//!
//! | module | contents |
//! |---|---|
//! | [`process`]: [`desired`], [`actual`], [`evacuating`], [`crash`], [`rollout`], [`evaluation`] | state machines of a process |
//! | [`task`], [`periodic`], [`parameterised`], [`domain`], [`cell`], [`cluster`] | the other state machines |
//! | [`preemption`], [`rank`] | choice of the work that stops to make room for more urgent work; order of work |
//! | [`ended`], [`request`] | history of ended containers and tasks; requests that an aggregate remembers |

pub mod actual;
pub mod cell;
pub mod cluster;
pub mod crash;
pub mod desired;
pub mod domain;
pub mod ended;
pub mod evacuating;
pub mod evaluation;
pub mod parameterised;
pub mod periodic;
pub mod preemption;
pub mod process;
pub mod rank;
pub mod request;
pub mod rollout;
pub mod task;
