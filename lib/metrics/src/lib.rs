//! Metrics and probes of a program over HTTP: `/metrics` in the `OpenMetrics` format, `/livez` and `/readyz`.
//!
//! | Module | Contents |
//! |---|---|
//! | [`catalogue`] | every metric: name, help text, unit, labels, exporting services |
//! | [`family`] | definitions and samples of metrics |
//! | [`counters`] | counters and histograms for the hot path, without locks and allocations |
//! | [`pulse`] | detection of loops that hang |
//! | [`page`] | metrics page and probes for the services of a program |
//! | [`server`] | HTTP server of the page |
//!
//! Nothing here is global: the code that starts a service creates its counters and passes them on.

pub mod catalogue;
pub mod counters;
pub mod family;
pub mod page;
pub mod pulse;
pub mod server;
