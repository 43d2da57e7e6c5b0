//! What tests share: a nats-server, a PostgreSQL server of their own, `muster` as they start it, and what runs in containers.

pub mod containers;
pub mod postgres;
pub mod program;
pub mod server;
mod shelf;
