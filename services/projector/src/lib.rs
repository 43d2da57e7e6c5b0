//! The tables of a database, kept up to date with the journal.
//!
//! ```text
//!   journal ──▶ reader ──▶ tables (pure: projections::tables) ──▶ batch ──▶ rows and position, one transaction
//! ```
//! Nothing here knows what a row means. A batch is what the journal holds ready while the one before it is written: the
//! further behind, the more at once. A projector that is killed begins where its last transaction ended; it folds the
//! log up to there first, without writing, for rows follow from the World.
//!
//! | the file | holds |
//! |---|---|
//! | `url.rs`, `error.rs` | where a database is; why something can't be done |
//! | `connection.rs` | one connection to either database |
//! | `database.rs` | the generations of tables in it, and where each stands |
//! | `file.rs`, `server.rs` | how rows are written into `SQLite`, into `PostgreSQL` |
//! | `run.rs`, `writer.rs` | following the journal: what folds, and beside it what writes |
//! | `verify.rs`, `rebuild.rs` | comparing tables with the log; making them again beside those that readers see |
//! | `ask.rs` | questions in SQL |

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
pub use database::{Database, FILE, Standing, ask_again, asked, grant, remove};
pub use error::Error;
pub use run::{Projector, run};
pub use url::{BadUrl, Place, Url};
