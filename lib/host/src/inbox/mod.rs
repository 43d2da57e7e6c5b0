//! Messages from the bus to a BBS. The subject of a message proves the identity of the caller. The server
//! does not check reply subjects, so the BBS checks them. Otherwise a caller could use a forged reply subject
//! to make the BBS publish its reply into the stream that holds the log.
//!
//! | file | content |
//! |---|---|
//! | `mod.rs` | subscriptions |
//! | `authority` | validation of reply subjects |
//! | `commands` | forwarding of commands to the machine |
//! | `queries` | forwarding of queries to the component that answers them |
//! | `history` | reads of the journal |
//! | `logs` | reads of container logs, through reps |
//! | `relay` | other requests that are forwarded to reps |
//! | `no_journal` | refusals of a BBS that has no journal yet |

mod authority;
mod commands;
mod history;
mod logs;
pub(crate) mod no_journal;
mod queries;
mod relay;

use std::sync::Arc;

use bbs::Input;
use bus::{Bus, BusError, Incoming};
use schemas::bus::{BusPattern, BusSubject};
use schemas::cluster::Role;
use schemas::codec;
use schemas::message::ServiceStatus;
use tokio_util::sync::CancellationToken;

use super::driver::Driver;

/// Queue group of BBSs. The server delivers each query to one BBS of the group.
const QUERY_GROUP: &str = "bbs";

/// Subscribes to the messages that every BBS processes: queries, heartbeats, presence, and leader heartbeats.
pub(super) async fn listen(driver: &Arc<Driver>, ends: &CancellationToken) -> Result<(), BusError> {
    let bus = driver.services.bus();
    subscribe_to(
        bus,
        driver,
        ends,
        &BusPattern::LeaderHeartbeats(Role::Bbs),
        None,
        |driver, incoming| async move {
            if let Ok((beat, _)) = codec::decode(&incoming.payload) {
                driver.record_leader_heartbeat();
                driver.feed(Input::LeaderHeartbeat(beat)).await;
            }
        },
    )
    .await?;
    subscribe_to(bus, driver, ends, &BusPattern::Alive, None, |driver, incoming| async move {
        if let (Ok(BusSubject::Alive(role)), Ok((alive, _))) =
            (BusSubject::parse(&incoming.subject), codec::decode::<ServiceStatus>(&incoming.payload))
            && role == alive.role
        {
            driver.feed(Input::Alive(alive)).await;
        }
    })
    .await?;
    subscribe_to(bus, driver, ends, &BusPattern::Heartbeats, None, |driver, incoming| async move {
        commands::handle_heartbeat(&driver, &incoming).await;
    })
    .await?;
    let of_this = BusPattern::ForwardedQueries(driver.id.clone());
    for (pattern, group) in [(BusPattern::Queries, Some(QUERY_GROUP)), (of_this, None)] {
        subscribe_to(&driver.lines.queries, driver, ends, &pattern, group, |driver, incoming| async move {
            queries::handle_query(&driver, incoming).await;
        })
        .await?;
    }
    Ok(())
}

/// Subscribes to the messages that only the leader answers: commands and reports.
pub(super) async fn listen_to_commands(
    driver: &Arc<Driver>,
    ends: &CancellationToken,
) -> Result<(), BusError> {
    for pattern in [BusPattern::Clients, BusPattern::Operators, BusPattern::Reports, BusPattern::Auctioneers]
    {
        subscribe_to_commands(driver, ends, &pattern, None).await?;
    }
    Ok(())
}

/// Queue group of stopped BBSs. The server delivers each command of an operator to one BBS of the group.
const STOPPED_GROUP: &str = "bbs-stopped";

/// Subscribes to the commands of operators. Apart from queries, a stopped BBS answers only these commands.
/// With such a command, an operator can quarantine the entry at which the BBS stopped.
pub(super) async fn listen_to_operators(
    driver: &Arc<Driver>,
    ends: &CancellationToken,
) -> Result<(), BusError> {
    subscribe_to_commands(driver, ends, &BusPattern::Operators, Some(STOPPED_GROUP)).await
}

async fn subscribe_to_commands(
    driver: &Arc<Driver>,
    ends: &CancellationToken,
    pattern: &BusPattern,
    group: Option<&str>,
) -> Result<(), BusError> {
    let handle = |driver: Arc<Driver>, incoming: Incoming| async move {
        commands::handle_command(&driver, &incoming).await;
    };
    subscribe_to(driver.services.bus(), driver, ends, pattern, group, handle).await
}

/// Subscribes to a pattern. Handles one message after the other until the token is cancelled. Handlers never
/// wait for operations that a client can delay.
async fn subscribe_to<F, Fut>(
    bus: &Bus,
    driver: &Arc<Driver>,
    ends: &CancellationToken,
    pattern: &BusPattern,
    group: Option<&str>,
    handle: F,
) -> Result<(), BusError>
where
    F: Fn(Arc<Driver>, Incoming) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send,
{
    let mut subscription = bus.subscribe(&pattern.to_string(), group).await?;
    let (driver, ends) = (Arc::clone(driver), ends.clone());
    tokio::spawn(async move {
        loop {
            tokio::select! {
                biased;
                () = ends.cancelled() => return,
                incoming = subscription.next() => match incoming {
                    Some(incoming) => handle(Arc::clone(&driver), incoming).await,
                    None => return,
                },
            }
        }
    });
    Ok(())
}
