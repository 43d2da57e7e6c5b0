//! Messages of a BBS or an auctioneer that are repeated: its presence, its leader heartbeats, and the
//! notification of reps after an election.

use bus::Bus;
use parking_lot::Mutex;
use schemas::bus::BusSubject;
use schemas::cluster::Role;
use schemas::codec::{self, Form};
use schemas::message::{LeaderHeartbeat, LeadershipStatus, Program, ServiceStatus};
use schemas::names::ServiceId;
use schemas::query::AppendProblem;

use super::drive::run_or_spawn;
use super::requests::ServiceClient;

/// Number of leader heartbeats per term that are also sent to reps.
const ELECTION_NOTICES: u32 = 3;

/// Sender of leader heartbeats.
#[derive(Debug)]
pub(super) struct LeaderHeartbeats {
    role: Role,
    /// Term of the last heartbeat, and the number of heartbeats in this term.
    sent: Mutex<(u64, u32)>,
}

impl LeaderHeartbeats {
    pub(super) const fn new(role: Role) -> Self {
        Self { role, sent: Mutex::new((0, 0)) }
    }

    /// Sends a leader heartbeat to standbys. The first heartbeats of a term are sent to reps, too.
    pub(super) async fn say(&self, services: &ServiceClient, beat: &LeaderHeartbeat) {
        services.notify(&BusSubject::LeaderHeartbeat(self.role).to_string(), beat).await;
        if self.count(beat.term) <= ELECTION_NOTICES {
            services.notify(&BusSubject::Elected(self.role).to_string(), beat).await;
        }
    }

    /// Announces to standbys that the leader stops, so that a standby takes over at once.
    pub(super) async fn step_down(&self, services: &ServiceClient, beat: &LeaderHeartbeat) {
        services.notify(&BusSubject::LeaderHeartbeat(self.role).to_string(), beat).await;
        services.bus().flush().await;
    }

    /// Counts a heartbeat. Returns the number of heartbeats in the term.
    fn count(&self, term: u64) -> u32 {
        let mut told = self.sent.lock();
        *told = (term, if told.0 == term { told.1.saturating_add(1) } else { 1 });
        told.1
    }
}

/// Publisher of the presence of a BBS or an auctioneer.
#[derive(Debug)]
pub(super) struct PresencePublisher {
    bus: Bus,
    role: Role,
    id: ServiceId,
    program: Program,
}

impl PresencePublisher {
    pub(super) fn new(bus: Bus, role: Role, (id, program): (ServiceId, Program)) -> Self {
        Self { bus, role, id, program }
    }

    /// Publishes the standing of the service. For a BBS, also publishes its problem with appends. The message
    /// may be lost.
    pub(super) fn say(
        &self,
        leadership: LeadershipStatus,
        may_lead: bool,
        append_problem: Option<AppendProblem>,
    ) {
        let Self { bus, role, id, program } = self;
        let (id, program, clock) = (id.clone(), program.clone(), clock::now());
        let alive = ServiceStatus { id, role: *role, program, leadership, clock, may_lead, append_problem };
        let subject = BusSubject::Alive(*role).to_string();
        let (bus, bytes) = (bus.clone(), codec::encode(Form::Json, &alive));
        run_or_spawn(async move {
            if let Err(error) = bus.publish(&subject, bytes.into()).await {
                tracing::debug!(%error, subject, "message not published");
            }
        });
    }
}
