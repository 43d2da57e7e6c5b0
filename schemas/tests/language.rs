//! The integration tests of the crate, built as a single program so that it is linked only once.

#[cfg(test)]
mod attributes;
#[cfg(test)]
mod bundle;
#[cfg(test)]
mod bus;
#[cfg(test)]
mod cloud_foundry;
#[cfg(test)]
mod codec;
#[cfg(test)]
mod common;
#[cfg(test)]
mod distinct;
#[cfg(test)]
mod documented;
#[cfg(test)]
mod evaluations;
#[cfg(test)]
mod global;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod machines;
#[cfg(test)]
mod parameterised;
#[cfg(test)]
mod periodic;
#[cfg(test)]
mod promotion;
#[cfg(test)]
mod queries;
#[cfg(test)]
mod rank;
#[cfg(test)]
mod restarts;
#[cfg(test)]
mod rollouts;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod shapes;
#[cfg(test)]
mod sight;
#[cfg(test)]
mod spec;
#[cfg(test)]
mod tables;
