//! What a program tells whoever watches it, over HTTP: `/metrics` as `OpenMetrics` has them, `/livez` and `/readyz`.
//!
//! | the module | holds |
//! |---|---|
//! | [`catalogue`] | every metric: its name, what it says, its unit, its labels, who tells it |
//! | [`family`] | what a metric is, and what is told of one |
//! | [`counted`] | counters and histograms that the hot path adds to: no lock, no allocation |
//! | [`pulse`] | whether a loop still turns |
//! | [`page`] | what the services of a program tell, on one page |
//! | [`server`] | that page over HTTP |
//!
//! Nothing here is global: whoever starts a service makes what it counts in, and hands it on.

pub mod catalogue;
pub mod counted;
pub mod family;
pub mod page;
pub mod pulse;
pub mod server;
