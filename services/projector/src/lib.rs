//! Projector: keeps the tables of a database up to date with the journal.
//!
//! ```text
//!   journal ──▶ reader ──▶ tables (pure: projections::tables) ──▶ batch ──▶ rows and position, one transaction
//! ```
//!
//! This crate does not depend on the meaning of rows. While one batch is written, the next batch collects the
//! entries that arrive. Therefore batches grow with the lag. A restarted projector resumes after its last
//! transaction. Before that, it folds the log up to this transaction without writing, because rows are
//! derived from the World (the state folded from the log).
//!
//! | file | contents |
//! |---|---|
//! | `url.rs`, `error.rs` | addresses of databases; errors |
//! | `connection.rs` | connection to a database of either kind |
//! | `database.rs` | generations of tables, and their state |
//! | `file.rs`, `server.rs` | writers of rows to `SQLite` and to `PostgreSQL` |
//! | `run.rs`, `writer.rs` | following the journal: folding, and concurrent writing |
//! | `verify.rs`, `rebuild.rs` | comparison of tables with the log; rebuilding next to the live tables |
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
