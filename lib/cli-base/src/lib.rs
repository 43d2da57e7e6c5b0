//! Base of all commands: their common options, the cluster they connect to, their output and their failures.
//!
//! | module | content |
//! |---|---|
//! | `options`, `config` | options of every command; the configuration file |
//! | `connect`, `moment` | the selected cluster; past moments |
//! | `file` | files with definitions |
//! | `output`, `table` | replies as tables or JSON |
//! | `failure` | errors with code, advice and exit status |

pub mod config;
pub mod connect;
pub mod failure;
pub mod file;
pub mod moment;
pub mod options;
pub mod output;
pub mod table;
