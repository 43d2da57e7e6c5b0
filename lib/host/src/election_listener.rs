//! Receives leader heartbeats while a starting service reads the log. The service has to wait for a leader
//! for some time before an election. This time starts when the service subscribes, and not when it has read
//! the log.

use std::sync::Arc;

use bus::{Bus, BusError, Subscription};
use election::{Election, HEARTBEAT_INTERVAL};
use parking_lot::Mutex;
use schemas::bus::BusPattern;
use schemas::cluster::{Leader, Role};
use schemas::codec;
use schemas::message::LeaderHeartbeat;
use schemas::names::ServiceId;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Participant in a future election. It receives heartbeats from its creation until it is dropped.
#[derive(Debug)]
pub(super) struct ElectionListener {
    election: Arc<Mutex<Election>>,
    _ends: DropGuard,
}

impl ElectionListener {
    /// Subscribes to the leader heartbeats of a role.
    ///
    /// # Errors
    /// The bus cannot be subscribed to.
    pub(super) async fn subscribe(bus: &Bus, role: Role, id: ServiceId) -> Result<Self, BusError> {
        let beats = bus.subscribe(&BusPattern::LeaderHeartbeats(role).to_string(), None).await?;
        let election = Arc::new(Mutex::new(Election::new(id)));
        let ends = CancellationToken::new();
        let listens = listen(beats, Arc::clone(&election));
        tokio::spawn(ends.clone().run_until_cancelled_owned(listens));
        Ok(Self { election, _ends: ends.drop_guard() })
    }

    /// Sets the leader that the log names. The log must have been read after the subscription, so that a
    /// heartbeat of a live leader is not missed.
    pub(super) fn set_leader(&self, leader: Option<&Leader>) {
        self.election.lock().follow(leader, clock::now());
    }

    /// Returns the election with the heartbeats so far. After this call, the caller has to receive further
    /// heartbeats.
    pub(super) fn into_election(self) -> Election {
        self.election.lock().clone()
    }
}

async fn listen(mut beats: Subscription, election: Arc<Mutex<Election>>) {
    let mut looks = interval(HEARTBEAT_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            incoming = beats.next() => {
                let Some(incoming) = incoming else { return };
                if let Ok((beat, _)) = codec::decode::<LeaderHeartbeat>(&incoming.payload) {
                    election.lock().record_heartbeat(&beat, clock::now());
                }
            }
            _ = looks.tick() => election.lock().poll(clock::now()),
        }
    }
}
