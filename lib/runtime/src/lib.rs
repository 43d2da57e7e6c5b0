//! What a program needs around its services: a data folder, how it speaks and how it ends.
//!
//! | the module | holds |
//! |---|---|
//! | [`folder`] | one data folder, one owner |
//! | [`telemetry`], [`stop`] | what a program says, and how it ends |

pub mod folder;
pub mod stop;
pub mod telemetry;
