//! Saying that a BBS or an auctioneer is there, whether it leads or stands by.

use bus::Bus;
use schemas::bus::{BusSubject, LeaderRole};
use schemas::cluster::Role;
use schemas::codec::{self, Form};
use schemas::message::{Alive, Program, Standing};
use schemas::names::ServiceId;

/// What says so.
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

    /// Says where it stands; the bus may lose it.
    pub(super) fn say(&self, standing: Standing) {
        let Self { bus, role, id, program } = self;
        let alive = Alive { id: id.clone(), role: *role, program: program.clone(), standing };
        let subject = BusSubject::Alive(LeaderRole::from(*role)).to_string();
        let (bus, bytes) = (bus.clone(), codec::encode(Form::Json, &alive));
        tokio::spawn(async move {
            if let Err(error) = bus.publish(&subject, bytes.into()).await {
                tracing::debug!(%error, subject, "not told");
            }
        });
    }
}
