//! Shared support for tests: separate nats-server and PostgreSQL servers, starting `muster`, wall clocks,
//! processes of containers, and waiting for conditions.

pub mod clock;
pub mod containers;
mod packages;
pub mod postgres;
pub mod program;
pub mod server;
pub mod wait;
