//! Traces in the OpenTelemetry format: OTLP over HTTP with JSON (OpenTelemetry Protocol Specification,
//! "OTLP/HTTP").
//!
//! A decision is a span from the time of its cause to its own time. All ids come from the log. A trace that
//! is sent twice, or by two programs, therefore has the same spans.
//!
//! | file | content |
//! |---|---|
//! | `span` | conversion of a decision to a span |
//! | `context` | the context that the conversion needs: parent spans of chains, and the origins of evaluations |
//! | `collector` | client of a collector |

pub(crate) mod collector;
pub(crate) mod context;
pub mod span;

pub use collector::{Collector, DEFAULT_TIMEOUT, MAX_BATCH, SendError};
pub use context::TraceContext;
pub use span::DecisionSpan;
