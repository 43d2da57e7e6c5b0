//! What tests share: a nats-server of their own.

pub mod server;
