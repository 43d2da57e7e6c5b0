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

mod authority;
mod commands;
mod history;
mod logs;
mod queries;
mod relay;

use std::sync::Arc;

use bbs::Input;
use bus::{BusError, Incoming};
use schemas::bus::{BusPattern, LeaderRole};
use schemas::codec;
use tokio_util::sync::CancellationToken;

use super::bbs::Hands;

/// The queue group in which BBSs share queries.
const GROUP: &str = "bbs";

/// Listens to what every BBS hears and answers: queries, heartbeats, and the leader's beats.
pub(super) async fn listen(hands: &Arc<Hands>, ends: &CancellationToken) -> Result<(), BusError> {
    on(hands, ends, &BusPattern::BeatsOf(LeaderRole::Bbs), None, |hands, incoming| async move {
        if let Ok((beat, _)) = codec::decode(&incoming.payload) {
            hands.heard_leader();
            hands.tell_machine(Input::Beat(beat)).await;
        }
    })
    .await?;
    on(hands, ends, &BusPattern::Heartbeats, None, |hands, incoming| async move {
        commands::heartbeat(&hands, &incoming).await;
    })
    .await?;
    on(hands, ends, &BusPattern::Queries, Some(GROUP), |hands, incoming| async move {
        queries::query(&hands, incoming).await;
    })
    .await
}

/// Listens to what only the leader answers: commands and reports.
pub(super) async fn listen_to_commands(hands: &Arc<Hands>, ends: &CancellationToken) -> Result<(), BusError> {
    for pattern in [BusPattern::Clients, BusPattern::Operators, BusPattern::Reports, BusPattern::Auctioneers]
    {
        on(hands, ends, &pattern, None, |hands, incoming| async move {
            commands::command(&hands, &incoming).await;
        })
        .await?;
    }
    Ok(())
}

/// The queue group in which BBSs that have stopped share what operators ask.
const STOPPED: &str = "bbs-stopped";

/// Listens to what a BBS that has stopped still answers beside queries: an operator's word on what stopped it.
pub(super) async fn listen_to_operators(
    hands: &Arc<Hands>,
    ends: &CancellationToken,
) -> Result<(), BusError> {
    on(hands, ends, &BusPattern::Operators, Some(STOPPED), |hands, incoming| async move {
        commands::command(&hands, &incoming).await;
    })
    .await
}

/// Subscribes, and handles one message after the other until the token ends it.
async fn on<F, Fut>(
    hands: &Arc<Hands>,
    ends: &CancellationToken,
    pattern: &BusPattern,
    group: Option<&str>,
    handle: F,
) -> Result<(), BusError>
where
    F: Fn(Arc<Hands>, Incoming) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send,
{
    let mut subscription = hands.asker.bus().subscribe(&pattern.to_string(), group).await?;
    let (hands, ends) = (Arc::clone(hands), ends.clone());
    tokio::spawn(async move {
        loop {
            tokio::select! {
                biased;
                () = ends.cancelled() => return,
                incoming = subscription.next() => match incoming {
                    Some(incoming) => handle(Arc::clone(&hands), incoming).await,
                    None => return,
                },
            }
        }
    });
    Ok(())
}
