//! Process-level support for a program: its data folder, its logging and its shutdown.
//!
//! | module | content |
//! |---|---|
//! | [`exit`] | exit statuses |
//! | [`folder`] | exclusive ownership of a data folder |
//! | [`telemetry`], [`stop`] | logging, shutdown on signals |

pub mod exit;
pub mod folder;
pub mod stop;
pub mod telemetry;
