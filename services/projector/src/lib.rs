//! Projector: keeps the tables of a database up to date with the journal.
//!
//! ```text
//!   journal ──▶ reader ──▶ tables (pure: projections::tables) ──▶ batch ──▶ rows and position, one transaction
//! ```
//!
//! This crate does not depend on the meaning of rows. A batch consists of the entries that are ready while
//! the previous batch is written, so batches grow with the lag. A restarted projector resumes after its last
//! transaction. First it folds the log up to that transaction without writing, because rows are derived from
//! the projected state (World).
//!
//! | file | contents |
//! |---|---|
//! | `url.rs`, `error.rs` | addresses of databases; errors |
//! | `connection.rs` | connection to a database of either kind |
//! | `database.rs` | generations of tables, and their state |
//! | `file.rs`, `server.rs` | writers of rows to `SQLite` and to `PostgreSQL` |
//! | `run.rs`, `writer.rs` | following the journal: folding, and writing beside it |
//! | `verify.rs`, `rebuild.rs` | comparison of tables with the log; rebuilding beside the live tables |
//! | `ask.rs` | queries in SQL |

pub mod ask;
mod connection;
mod database;
mod error;
mod file;
pub mod rebuild;
mod run;
mod server;
mod url;
pub mod verify;
mod writer;

pub use connection::TextRow;
pub use database::{Database, FILE_NAME, Generation, grant, remove, request_retry, wait_for_retry_request};
pub use error::Error;
pub use run::{Projector, run};
pub use url::{BadUrl, PostgresUrl, Url};
