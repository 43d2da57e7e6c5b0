//! The evacuating record: the second ActualLRP of an index, which lives only while a cell evacuates (Diego Dev Notes,
//! "Evacuation"). It is always RUNNING.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::actual::Actual;
use crate::container::{Instance, NetInfo};
use crate::key::Place;
use crate::refusal::{Code, Refusal};

/// How long an evacuating record may live, unless the rep says otherwise: Diego's evacuation time-out.
pub const DEFAULT_TTL: Duration = Duration::from_secs(600);

/// What is true of an evacuating instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evacuating {
    /// The container.
    pub by: Instance,
    /// Where it is reached.
    pub net: NetInfo,
    /// Since when.
    pub since: Timestamp,
    /// Since when the container is RUNNING, as far as the log tells.
    pub started_at: Timestamp,
    /// Convergence removes it when this has passed.
    pub expires_at: Timestamp,
}

/// What the rep of the evacuating container asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Keep my running instance routable until a replacement runs: creates the record, or takes it over.
    Set {
        /// Where it is reached.
        net: NetInfo,
        /// When the evacuation ends.
        expires_at: Timestamp,
    },
    /// My instance is gone.
    Remove,
}

/// Why an evacuating record went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Gone {
    /// A replacement runs.
    Replaced,
    /// The rep removed it.
    Removed,
    /// Its time is over.
    Expired,
    /// Its cell disappeared.
    CellLost,
}

/// What happens to evacuating records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// One was created or taken over.
    Set {
        /// Which.
        place: Place,
        /// The container.
        by: Instance,
        /// Where it is reached.
        net: NetInfo,
        /// When it ends.
        expires_at: Timestamp,
    },
    /// One is gone.
    Removed {
        /// Which.
        place: Place,
        /// Why.
        cause: Gone,
    },
}

/// Judges what the rep of container `by` asks, against both records of the place. `None`: it is so already.
///
/// # Errors
/// `ActualLRPCannotBeEvacuated` if the record belongs to another container that has not given it up.
pub fn decide(
    actual: Option<&Actual>,
    evacuating: Option<&Evacuating>,
    command: &Command,
    by: &Instance,
    place: &Place,
) -> Result<Option<Event>, Refusal> {
    let instance_is_mine = actual.and_then(Actual::holder) == Some(by);
    match (command, evacuating) {
        (Command::Set { net, expires_at }, None) => Ok(Some(set(place, by, net, *expires_at))),
        (Command::Set { net, expires_at }, Some(old)) if old.by == *by => {
            let same = old.net == *net && old.expires_at == *expires_at;
            Ok((!same).then(|| set(place, by, net, *expires_at)))
        }
        (Command::Set { net, expires_at }, Some(_)) if instance_is_mine => {
            Ok(Some(set(place, by, net, *expires_at)))
        }
        (Command::Set { .. }, Some(_)) => {
            let why = "another container is the evacuating instance of this index";
            Err(Refusal::new(Code::ActualLrpCannotBeEvacuated, why))
        }
        (Command::Remove, Some(old)) if old.by == *by => {
            Ok(Some(Event::Removed { place: place.clone(), cause: Gone::Removed }))
        }
        // Another container's goes only for one that runs in its place.
        (Command::Remove, Some(_)) if instance_is_mine && actual.is_some_and(Actual::is_running) => {
            Ok(Some(Event::Removed { place: place.clone(), cause: Gone::Replaced }))
        }
        (Command::Remove, Some(_) | None) => Ok(None),
    }
}

fn set(place: &Place, by: &Instance, net: &NetInfo, expires_at: Timestamp) -> Event {
    Event::Set { place: place.clone(), by: by.clone(), net: net.clone(), expires_at }
}

/// Folds what happened to one place.
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
