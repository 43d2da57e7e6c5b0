//! The integration tests of the crate, built as a single program so that it is linked only once.

#[cfg(test)]
mod cells;
#[cfg(test)]
mod common;
#[cfg(test)]
mod desired;
#[cfg(test)]
mod distinct;
#[cfg(test)]
mod evaluations;
#[cfg(test)]
mod global;
#[cfg(test)]
mod parameterised;
#[cfg(test)]
mod periodic;
#[cfg(test)]
mod promotion;
#[cfg(test)]
mod rank;
#[cfg(test)]
mod restarts;
#[cfg(test)]
mod rollouts;
#[cfg(test)]
mod sequences;
#[cfg(test)]
#[path = "../../../schemas/tests/strategies.rs"]
mod strategies;
#[cfg(test)]
mod tables;
