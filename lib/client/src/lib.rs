//! Typed Muster client for other programs.
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
//! - A **command** contains a request id and the client's patience (timeout). The client repeats the command
//!   with the same id until an answer arrives or the patience ends. The command is carried out only once. The
//!   BBS answers it after recording the result in the log.
//! - A **query** reads all its pages. Its answer is at or after the highest log position that this client has
//!   seen, so a client reads its own writes.
//! - **Events** are followed from a position. If the connection is lost, the follower waits for the next
//!   connection. No event is missed or returned twice. [`Client::events`] requests entries of the cluster or
//!   of one aggregate; [`Client::feed`] subscribes to single events.
//!
//! | Module | Contents |
//! |---|---|
//! | [`target`] | address of a cluster |
//! | [`subjects`] | construction of all subjects |
//! | [`limits`] | limits, with their units |

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
mod session;
pub mod subjects;
pub mod target;
mod watch;

pub use client::{Client, Connect, default_domain};
pub use commands::{check_mode, invalid_name};
pub use error::Error;
pub use events::Events;
pub use feed::{Feed, FeedEvent};
pub use logs::{LogChunk, LogReader, LogSource};
pub use queries::{ListAnswer, ListFilter, instance_key, port_address};
pub use schemas::bus::Inbox;
pub use schemas::spec::own_definition_id;
pub use target::{Login, Target, Tls, default_folder, default_socket};
pub use watch::{LrpWatch, MAX_DETAILED_INSTANCES, Progress, Snapshot, TaskEnd};
