//! The typed client for other programs.
//!
//! ```no_run
//! # async fn example(lrp: schemas::definition::DesiredLrp) -> Result<(), client::Error> {
//! use client::{Client, Target};
//! use std::time::Duration;
//!
//! let client = Client::connect(Target::nats("nats://127.0.0.1:4222")).await?;
//! let guid = lrp.process_guid.clone();
//! let done = client.desire_lrp(lrp).await?;
//! client.wait_for_lrp(&guid, done.position, Duration::from_secs(60)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! - A **command** carries a request id and the client's patience, and is asked again with the same id until it is answered or the
//!   patience ends: asking twice is asking once. It is answered when it is in the log.
//! - A **query** reads all its pages, and sees at least what this client has seen before: what was written is read.
//! - **Events** are followed from a position. A lost connection is waited for, and none is missed or given twice:
//!   [`Client::events`] asks for entries, of the cluster or of one thing; [`Client::feed`] listens to single events.
//!
//! | the file | holds |
//! |---|---|
//! | [`target`] | where a cluster is reached |
//! | [`subjects`] | the one place that builds subjects |
//! | [`limits`] | every limit, with its unit |

mod ask;
mod client;
mod commands;
mod decision;
mod error;
mod events;
mod exec;
mod feed;
pub mod limits;
mod logs;
mod queries;
pub mod subjects;
pub mod target;
mod watch;

pub use client::{Client, Connect, default_domain};
pub use commands::{bad_name, check_mode};
pub use error::Error;
pub use events::Events;
pub use feed::{Feed, FeedEvent};
pub use logs::{LogReader, Piece, Whose};
pub use queries::{Listed, Only, key_of, reached_at};
pub use schemas::bus::Inbox;
pub use schemas::spec::own_definition_id;
pub use target::{Login, Target, Tls, default_folder, default_socket};
pub use watch::{LOOKED_AT, LrpWatch, Progress, Snapshot, TaskEnd};
