//! Saying that a BBS or an auctioneer is there, whether it leads or stands by; and to reps that one was elected.

use std::sync::{Mutex, PoisonError};

use bus::Bus;
use schemas::bus::{BusSubject, LeaderRole};
use schemas::cluster::Role;
use schemas::codec::{self, Form};
use schemas::message::{Alive, Beat, Program, Standing};
use schemas::names::ServiceId;
use schemas::query::AppendTrouble;

use super::asking::Services;
use super::drive::begin;

/// So often reps are told who was elected: with each of its first beats.
const ELECTED_TOLD: u32 = 3;

/// The beats of a leader.
#[derive(Debug)]
pub(super) struct LeaderBeats {
    role: LeaderRole,
    /// The last term in which it beat, and how often.
    told: Mutex<(u64, u32)>,
}

impl LeaderBeats {
    pub(super) const fn new(role: LeaderRole) -> Self {
        Self { role, told: Mutex::new((0, 0)) }
    }

    /// Tells standbys that the leader is there, and for a while reps that it was elected.
    pub(super) async fn say(&self, services: &Services, beat: &Beat) {
        services.tell(&BusSubject::Beat(self.role).to_string(), beat).await;
        if self.count(beat.term) <= ELECTED_TOLD {
            services.tell(&BusSubject::Elected(self.role).to_string(), beat).await;
        }
    }

    /// Tells standbys that the leader stops, so that one of them takes over at once.
    pub(super) async fn step_down(&self, services: &Services, beat: &Beat) {
        services.tell(&BusSubject::Beat(self.role).to_string(), beat).await;
        services.bus().flush().await;
    }

    /// How often it beat in this term.
    fn count(&self, term: u64) -> u32 {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        *told = (term, if told.0 == term { told.1.saturating_add(1) } else { 1 });
        told.1
    }
}

/// What says that a BBS or an auctioneer is there.
#[derive(Debug)]
pub(super) struct Beating {
    bus: Bus,
    role: Role,
    id: ServiceId,
    program: Program,
}

impl Beating {
    pub(super) fn new(bus: Bus, role: Role, (id, program): (ServiceId, Program)) -> Self {
        Self { bus, role, id, program }
    }

    /// Publishes where it stands, and a BBS's trouble with appending; the bus may lose it.
    pub(super) fn say(&self, standing: Standing, may_lead: bool, append_trouble: Option<AppendTrouble>) {
        let Self { bus, role, id, program } = self;
        let (id, program, clock) = (id.clone(), program.clone(), clock::now());
        let alive = Alive { id, role: *role, program, standing, clock, may_lead, append_trouble };
        let subject = BusSubject::Alive(LeaderRole::from(*role)).to_string();
        let (bus, bytes) = (bus.clone(), codec::encode(Form::Json, &alive));
        begin(async move {
            if let Err(error) = bus.publish(&subject, bytes.into()).await {
                tracing::debug!(%error, subject, "not told");
            }
        });
    }
}
