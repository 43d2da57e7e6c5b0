//! The evacuating instance: the second ActualLRP of an index, which exists only while a cell evacuates (Diego
//! Dev Notes, "Evacuation"). An evacuating instance is always RUNNING.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::actual::Actual;
use schemas::Timestamp;
use schemas::container::{Instance, NetInfo};
use schemas::evacuating::{Command, Event, RemovalReason};
use schemas::key::Place;
use schemas::refusal::{Code, Refusal};

/// Default lifetime of an evacuating record: Diego's evacuation time-out.
pub const DEFAULT_TTL: Duration = Duration::from_secs(600);

/// Record of an evacuating instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evacuating {
    pub by: Instance,
    /// Address and ports of the instance.
    pub net: NetInfo,
    /// Time of the last event that set the record.
    pub since: Timestamp,
    /// Start of the RUNNING state of the container, according to the log.
    pub started_at: Timestamp,
    /// Time after which convergence removes the record.
    pub expires_at: Timestamp,
}

/// Decides a command of the rep about both records of a slot. `by` is the container that the rep reports.
/// Returns `None` if nothing changes.
///
/// # Errors
/// `ActualLRPCannotBeEvacuated` if the evacuating record belongs to another container, unless the record of
/// the instance names `by`.
pub fn decide(
    actual: Option<&Actual>,
    evacuating: Option<&Evacuating>,
    command: &Command,
    by: &Instance,
    place: &Place,
) -> Result<Option<Event>, Refusal> {
    let instance_is_mine = actual.and_then(Actual::holder) == Some(by);
    match (command, evacuating) {
        (Command::Set { net, expires_at }, None) => Ok(Some(set_event(place, by, net, *expires_at))),
        (Command::Set { net, expires_at }, Some(old)) if old.by == *by => {
            let same = old.net == *net && old.expires_at == *expires_at;
            Ok((!same).then(|| set_event(place, by, net, *expires_at)))
        }
        (Command::Set { net, expires_at }, Some(_)) if instance_is_mine => {
            Ok(Some(set_event(place, by, net, *expires_at)))
        }
        (Command::Set { .. }, Some(_)) => {
            let why = "another container is the evacuating instance of this index";
            Err(Refusal::new(Code::ActualLrpCannotBeEvacuated, why))
        }
        (Command::Remove, Some(old)) if old.by == *by => {
            Ok(Some(Event::Removed { place: place.clone(), cause: RemovalReason::Removed }))
        }
        // A rep may remove the evacuating record of another container in one case: its own container runs as
        // the replacement.
        (Command::Remove, Some(_)) if instance_is_mine && actual.is_some_and(Actual::is_running) => {
            Ok(Some(Event::Removed { place: place.clone(), cause: RemovalReason::Replaced }))
        }
        (Command::Remove, Some(_) | None) => Ok(None),
    }
}

fn set_event(place: &Place, by: &Instance, net: &NetInfo, expires_at: Timestamp) -> Event {
    Event::Set { place: place.clone(), by: by.clone(), net: net.clone(), expires_at }
}

/// Applies an event to the record of one slot.
#[must_use]
pub fn evolve(event: &Event, at: Timestamp) -> Option<Evacuating> {
    match event {
        Event::Set { by, net, expires_at, .. } => Some(Evacuating {
            by: by.clone(),
            net: net.clone(),
            since: at,
            started_at: at,
            expires_at: *expires_at,
        }),
        Event::Removed { .. } => None,
    }
}
