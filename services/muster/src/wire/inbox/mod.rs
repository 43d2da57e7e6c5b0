//! What comes to a BBS by the bus: who asks is proved by the subject, and where the answer goes is checked, because
//! the server doesn't: a forged reply subject would make the BBS write its own answer into the stream.
//!
//! | the file | holds |
//! |---|---|
//! | this one | who listens to what |
//! | [`authority`] | whose answer may go where |
//! | [`commands`] | what changes something, on its way to the machine |
//! | [`queries`] | what changes nothing, on its way to who answers it |
//! | [`history`] | reads of the journal |
//! | [`logs`] | reads of a container's log, by its rep |
//! | [`relay`] | what else only a rep knows |
//! | [`waiting`] | the refusals of a BBS that has no journal yet |

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

/// The queue group in which BBSs share queries.
const GROUP: &str = "bbs";

/// Listens to what every BBS hears and answers: queries, heartbeats, who is there, and the
/// leader's beats.
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

/// Listens to what only the leader answers: commands and reports.
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

/// The queue group in which BBSs that have stopped share what operators ask.
const STOPPED: &str = "bbs-stopped";

/// Listens to what a BBS that has stopped still answers beside queries: an operator's word on what stopped it.
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

/// Subscribes, and handles one message after the other until the token ends it. What handles them waits for nothing that
/// a client can make slow.
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
