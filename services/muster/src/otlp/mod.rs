//! Traces as OpenTelemetry has them: OTLP over HTTP with JSON (OpenTelemetry Protocol Specification, "OTLP/HTTP").
//!
//! A decision is a span that begins when its cause was decided and ends when it was decided. All ids come from the log, so
//! that sending a trace twice, or from two programs, sends the same spans.
//!
//! | the file | holds |
//! |---|---|
//! | [`span`] | a decision as a span |
//! | [`known`] | what else has to be known for that: whose traces chains belong to, and where evaluations began |
//! | [`collector`] | who takes spans |

pub(crate) mod collector;
pub(crate) mod known;
pub(crate) mod span;

pub(crate) use collector::{BATCH, Collector, PATIENCE, Untaken};
pub(crate) use known::Known;
pub(crate) use span::Told;
