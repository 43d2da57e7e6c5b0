//! What tests share: a nats-server, a PostgreSQL server of their own.

pub mod postgres;
pub mod server;
mod shelf;
