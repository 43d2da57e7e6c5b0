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
mod documented;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod queries;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod secrets;
#[cfg(test)]
#[cfg(test)]
mod sight;
#[cfg(test)]
mod spec;
#[cfg(test)]
mod strategies;
