//! Collects the facts that the checks need. This module changes nothing and judges nothing.
//!
//! | file | source of facts |
//! |---|---|
//! | `server.rs` | the NATS server, the stream, the permissions of the credentials |
//! | `folder.rs` | the data folder of a local cluster |
//! | `cluster.rs` | a BBS |
//! | `database.rs` | the database |
//! | `host.rs` | this host, by running a container on it |
//! | `metrics.rs` | the metrics pages of services |

mod cluster;
mod database;
mod folder;
mod host;
mod metrics;
mod server;

use journal::Durability;

use super::super::args::Global;
use super::super::connect::{self, data_folder};
use super::DoctorArgs;
use super::facts::{Asked, Facts, Host, NoConnection, OnNats, Place};
use crate::launch;

pub(super) use metrics::Endpoint;

/// Result of collecting facts.
pub(super) enum Answers {
    /// Facts about a cluster that can be reached.
    Facts(Box<Facts>),
    /// There is no connection to a cluster.
    None {
        why: NoConnection,
        /// Advice for this failure, in addition to the advice for its kind.
        advice: Vec<String>,
        host: Asked<Host>,
    },
}

/// Collects all facts.
pub(super) async fn all(args: &DoctorArgs, global: &Global) -> Answers {
    match data_folder(global) {
        Some(folder) => Box::pin(of_folder(&folder, args, global)).await,
        None => Box::pin(of_nats(args, global)).await,
    }
}

async fn of_nats(args: &DoctorArgs, global: &Global) -> Answers {
    let unnamed = || NoConnection::Settings("no NATS server is named".to_owned());
    let connected = async {
        let nats = launch::nats(global).ok_or_else(unnamed)?;
        server::connect(&nats, global).await.map(|connected| (nats, connected))
    };
    let (nats, connected) = match connected.await {
        Ok(connected) => connected,
        Err(why) => return Answers::None { why, advice: vec![], host: host::host().await },
    };
    let client = server::client(&connected, global);
    // The server is queried alone because other queries would distort its round-trip time.
    let server = server::of(&connected, global).await;
    let stream = server::stream(&connected, args.replicas).await;
    let (entries, storage, health, cluster, tables, host, told) = tokio::join!(
        server::entries(&connected, &nats, &stream),
        server::storage(&args.monitoring),
        server::health(&args.monitoring),
        cluster::of(client),
        database::of(args.of.database.as_ref(), global),
        host::host(),
        metrics::of(&args.metrics),
    );
    let rights = server::rights(&connected).await;
    let durability = match &cluster.row {
        // A BBS that verified durability is trusted if no monitoring address is given.
        Ok(row) if args.monitoring.is_empty() && row.durability == Durability::Synced.to_string() => {
            Durability::Synced
        }
        Ok(_) | Err(_) => journal::durability(&args.monitoring).await,
    };
    let on = OnNats { server, stream, entries, durability, storage, health, rights };
    Answers::Facts(Box::new(Facts { place: Place::Nats(Box::new(on)), cluster, tables, host, told }))
}

async fn of_folder(folder: &std::path::Path, args: &DoctorArgs, global: &Global) -> Answers {
    let client = match connect::connect(global).await {
        Ok(client) => client,
        Err(failure) => {
            let why = NoConnection::Unreachable(failure.message);
            return Answers::None { why, advice: failure.advice, host: host::host().await };
        }
    };
    let (folder, cluster, tables, host, told) = tokio::join!(
        folder::of(folder),
        cluster::of(Ok(client)),
        database::of(args.of.database.as_ref(), global),
        host::host(),
        metrics::of(&args.metrics),
    );
    Answers::Facts(Box::new(Facts { place: Place::Local(folder), cluster, tables, host, told }))
}
