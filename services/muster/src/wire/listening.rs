//! Listening to the beats of leaders while the log is read: what a service that starts has to wait for them counts from
//! there, and not from when it knows the log.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bus::{Bus, BusError, Subscription};
use election::{BEAT, Election};
use schemas::bus::{BusPattern, LeaderRole};
use schemas::cluster::Leader;
use schemas::codec;
use schemas::message::Beat;
use schemas::names::ServiceId;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Who will take part in an election, and listens already, until this is dropped.
#[derive(Debug)]
pub(super) struct Listening {
    election: Arc<Mutex<Election>>,
    _ends: DropGuard,
}

impl Listening {
    /// Begins to listen to the beats in a role.
    ///
    /// # Errors
    /// The bus can't be listened to.
    pub(super) async fn begin(bus: &Bus, role: LeaderRole, id: ServiceId) -> Result<Self, BusError> {
        let beats = bus.subscribe(&BusPattern::Beats(role).to_string(), None).await?;
        let election = Arc::new(Mutex::new(Election::new(id)));
        let ends = CancellationToken::new();
        let listens = listen(beats, Arc::clone(&election));
        tokio::spawn(ends.clone().run_until_cancelled_owned(listens));
        Ok(Self { election, _ends: ends.drop_guard() })
    }

    /// Who leads, as the log says that was read since it listens: who was elected before is heard from now on, if it is there.
    pub(super) fn know(&self, leader: Option<&Leader>) {
        lock(&self.election).follow(leader, clock::now());
    }

    /// What was heard. From here on somebody else listens.
    pub(super) fn end(self) -> Election {
        lock(&self.election).clone()
    }
}

async fn listen(mut beats: Subscription, election: Arc<Mutex<Election>>) {
    let mut looks = interval(BEAT);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            incoming = beats.next() => {
                let Some(incoming) = incoming else { return };
                if let Ok((beat, _)) = codec::decode::<Beat>(&incoming.payload) {
                    lock(&election).heard(&beat, clock::now());
                }
            }
            _ = looks.tick() => lock(&election).look(clock::now()),
        }
    }
}

fn lock(election: &Mutex<Election>) -> MutexGuard<'_, Election> {
    election.lock().unwrap_or_else(PoisonError::into_inner)
}
