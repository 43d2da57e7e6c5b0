//! Messages from the bus to a BBS. The subject proves the caller. The reply subject is checked here, because
//! the server does not check it: with a forged one, the BBS would write its own reply into the stream.
//!
//! | file | content |
//! |---|---|
//! | `mod.rs` | subscriptions |
//! | [`authority`] | validation of reply subjects |
//! | [`commands`] | commands, on their way to the machine |
//! | [`queries`] | queries, on their way to the component that answers them |
//! | [`history`] | reads of the journal |
//! | [`logs`] | reads of container logs, through reps |
//! | [`relay`] | other requests that are forwarded to reps |
//! | [`waiting`] | refusals of a BBS that has no journal yet |

mod authority;
mod commands;
mod history;
mod logs;
mod queries;
mod relay;
pub(crate) mod waiting;

use std::sync::Arc;

use bbs::Input;
use bus::{Bus, BusError, Incoming};
use schemas::bus::{BusPattern, BusSubject, LeaderRole};
use schemas::codec;
use schemas::message::Alive;
use tokio_util::sync::CancellationToken;

use super::bbs::Driver;

/// Queue group in which BBSs share queries.
const GROUP: &str = "bbs";

/// Subscribes to the messages that every BBS processes: queries, heartbeats, presence, and leader heartbeats.
pub(super) async fn listen(driver: &Arc<Driver>, ends: &CancellationToken) -> Result<(), BusError> {
    let bus = driver.services.bus();
    on(bus, driver, ends, &BusPattern::Beats(LeaderRole::Bbs), None, |driver, incoming| async move {
        if let Ok((beat, _)) = codec::decode(&incoming.payload) {
            driver.heard_leader();
            driver.feed(Input::Beat(beat)).await;
        }
    })
    .await?;
    on(bus, driver, ends, &BusPattern::Alive, None, |driver, incoming| async move {
        if let (Ok(BusSubject::Alive(role)), Ok((alive, _))) =
            (BusSubject::parse(&incoming.subject), codec::decode::<Alive>(&incoming.payload))
            && role == LeaderRole::from(alive.role)
        {
            driver.feed(Input::Alive(alive)).await;
        }
    })
    .await?;
    on(bus, driver, ends, &BusPattern::Heartbeats, None, |driver, incoming| async move {
        commands::heartbeat(&driver, &incoming).await;
    })
    .await?;
    let of_this = BusPattern::QueriesOf(driver.id.clone());
    for (pattern, group) in [(BusPattern::Queries, Some(GROUP)), (of_this, None)] {
        on(&driver.lines.queries, driver, ends, &pattern, group, |driver, incoming| async move {
            queries::query(&driver, incoming).await;
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
    let bus = driver.services.bus();
    for pattern in [BusPattern::Clients, BusPattern::Operators, BusPattern::Reports, BusPattern::Auctioneers]
    {
        on(bus, driver, ends, &pattern, None, |driver, incoming| async move {
            commands::command(&driver, &incoming).await;
        })
        .await?;
    }
    Ok(())
}

/// Queue group in which stopped BBSs share the commands of operators.
const STOPPED: &str = "bbs-stopped";

/// Subscribes to the commands of operators. Apart from queries, a stopped BBS only answers these, so that the
/// entry that stopped it can be quarantined.
pub(super) async fn listen_to_operators(
    driver: &Arc<Driver>,
    ends: &CancellationToken,
) -> Result<(), BusError> {
    let bus = driver.services.bus();
    on(bus, driver, ends, &BusPattern::Operators, Some(STOPPED), |driver, incoming| async move {
        commands::command(&driver, &incoming).await;
    })
    .await
}

/// Subscribes to a pattern, and handles one message after the other until the token is cancelled. Handlers
/// never wait for anything that a client can slow down.
async fn on<F, Fut>(
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
