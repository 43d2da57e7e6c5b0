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

use cli_base::connect::{self, data_folder, nats};
use cli_base::options::Global;
use explain::doctor::facts::{Fact, Facts, Host, NatsFacts, NoConnection, Place};
use journal::Durability;

use super::DoctorArgs;
pub(super) use metrics::Endpoint;

/// Result of collecting facts.
pub(super) enum Collected {
    /// Facts about a cluster that can be reached.
    Facts(Box<Facts>),
    /// The cluster cannot be reached.
    None {
        why: NoConnection,
        /// Advice for this failure, in addition to the advice for its kind.
        advice: Vec<String>,
        host: Fact<Host>,
    },
}

/// Collects all facts.
pub(super) async fn collect(args: &DoctorArgs, global: &Global) -> Collected {
    match data_folder(global) {
        Some(folder) => Box::pin(collect_from_folder(&folder, args, global)).await,
        None => Box::pin(collect_from_nats(args, global)).await,
    }
}

async fn collect_from_nats(args: &DoctorArgs, global: &Global) -> Collected {
    let unnamed = || NoConnection::Settings("no NATS server is set".to_owned());
    let connected = async {
        let nats = nats(global).ok_or_else(unnamed)?;
        server::connect(&nats, global).await.map(|connected| (nats, connected))
    };
    let (nats, connected) = match connected.await {
        Ok(connected) => connected,
        Err(why) => return Collected::None { why, advice: vec![], host: host::collect().await },
    };
    let client = server::client(&connected, global);
    // The server is queried alone because other queries would distort its round-trip time.
    let server = server::server_facts(&connected, global).await;
    let stream = server::stream_facts(&connected, args.replicas).await;
    let (entries, storage, health, cluster, tables, host, told) = tokio::join!(
        server::read_entries(&connected, &nats, &stream),
        server::storage_facts(&args.monitoring),
        server::query_health(&args.monitoring),
        cluster::collect(client),
        database::collect(args.of.database.as_ref(), global),
        host::collect(),
        metrics::collect(&args.metrics),
    );
    let rights = server::try_permissions(&connected).await;
    let durability = match &cluster.row {
        // If no monitoring address is given, the durability that the BBS verified is trusted.
        Ok(row) if args.monitoring.is_empty() && row.durability == Durability::Synced.to_string() => {
            Durability::Synced
        }
        Ok(_) | Err(_) => journal::durability(&args.monitoring).await,
    };
    let on = NatsFacts { server, stream, entries, durability, storage, health, permissions: rights };
    Collected::Facts(Box::new(Facts {
        place: Place::Nats(Box::new(on)),
        cluster,
        tables,
        host,
        metrics: told,
    }))
}

async fn collect_from_folder(folder: &std::path::Path, args: &DoctorArgs, global: &Global) -> Collected {
    let client = match connect::connect(global).await {
        Ok(client) => client,
        Err(failure) => {
            let why = NoConnection::Unreachable(failure.message);
            return Collected::None { why, advice: failure.advice, host: host::collect().await };
        }
    };
    let (folder, cluster, tables, host, told) = tokio::join!(
        folder::collect(folder),
        cluster::collect(Ok(client)),
        database::collect(args.of.database.as_ref(), global),
        host::collect(),
        metrics::collect(&args.metrics),
    );
    Collected::Facts(Box::new(Facts { place: Place::Local(folder), cluster, tables, host, metrics: told }))
}
