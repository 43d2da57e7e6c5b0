//! What tests share: a nats-server, a PostgreSQL server of their own, `muster` as they start it, wall clocks, containers, and patience.

pub mod clock;
pub mod containers;
pub mod patience;
pub mod postgres;
pub mod program;
pub mod server;
mod shelf;
