//! Cells: presence, health, cordoning and evacuation (Diego Dev Notes, "Detecting Cell Failures"). The log
//! records only transitions, never heartbeats.

use serde::{Deserialize, Serialize};

use crate::request::Requests;
use schemas::cause::{Cause, Origin};
use schemas::cell::{Command, Evacuation, Event, Presence};
use schemas::names::{CellId, FolderId, Incarnation};
use schemas::refusal::{Code, Refusal};
use schemas::stamp::Stamp;
use schemas::{Timestamp, entry, limits};

/// State of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// Properties that the rep reported when the cell last appeared.
    pub presence: Presence,
    pub present: bool,
    pub evacuating: bool,
    /// Reason why the self-test fails. `None` if the cell is healthy.
    pub unhealthy: Option<String>,
    /// `true` if an operator requested an evacuation. The BBS repeats the order until the rep evacuates.
    pub evacuation_requested: bool,
    /// `true` if an operator cordoned the cell: the cell takes no new work, and running work stays.
    pub cordoned: bool,
    /// Start of the current evacuation, kept across restarts of the rep. `None` if the cell does not
    /// evacuate.
    ///
    /// A withdrawal of the evacuation sets this field to `None` at once, before the rep reports that it takes
    /// work again. Therefore the next order to evacuate starts a new time-out.
    pub evacuation_started_at: Option<Timestamp>,
    /// Reason why the cell is absent. `None` if the cell is present.
    pub absent_reason: Option<String>,
    /// Time of the last change to `presence`, `present`, `evacuating` or `unhealthy`.
    pub since: Timestamp,
    /// Decision (recorded change) by which the cell last appeared, disappeared, or changed its evacuation or
    /// cordon. If this decision affects the cell's work, the decisions about that work name it as their
    /// cause.
    pub cause: Cause,
    /// Recent requests of operators, with their answers.
    pub requests: Requests,
}

/// Reason of absence for a cell whose rep left after an evacuation.
pub const EVACUATED: &str = "evacuated";

/// Recorded part of a rep's heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatState {
    pub presence: Presence,
    pub evacuating: bool,
    /// Reason why the self-test fails. `None` if the cell is healthy.
    pub unhealthy: Option<String>,
}

/// Returns the events that follow from a heartbeat. Usually there are none.
#[must_use]
pub fn decide_heartbeat(cell: Option<&Cell>, seen: &HeartbeatState) -> Vec<Event> {
    let mut events = vec![];
    let left = |cell: &Cell| {
        let same = cell.presence.incarnation == seen.presence.incarnation;
        !cell.present && same && cell.absent_reason.as_deref() == Some(EVACUATED)
    };
    if cell.is_some_and(left) {
        // The rep sent the heartbeat before it left, but the heartbeat arrived after the departure.
        return events;
    }
    let known = cell.filter(|cell| cell.present && cell.presence == seen.presence);
    if known.is_none() {
        events.push(Event::Appeared(seen.presence.clone()));
    }
    if seen.evacuating && !known.is_some_and(|cell| cell.evacuating) {
        events.push(Event::Evacuating {});
    }
    if !seen.evacuating && known.is_some_and(|cell| cell.evacuating) {
        events.push(Event::Resumed {});
    }
    match (known.is_none_or(|cell| cell.unhealthy.is_none()), &seen.unhealthy) {
        (true, Some(reason)) => {
            events.push(Event::Unhealthy { reason: limits::truncate(reason, limits::REASON_BYTES) });
        }
        (false, None) => events.push(Event::Healthy {}),
        (true, None) | (false, Some(_)) => {}
    }
    events
}

/// Returns the origin of the decision about a rep's report. If the report starts or ends an evacuation, or
/// the rep leaves, the origin is the decision that last changed the cell, such as the order to evacuate.
/// Every other report starts a new chain of causes.
#[must_use]
pub fn origin(cell: Option<&Cell>, events: &[entry::Event]) -> Origin {
    let Some(cell) = cell.filter(|cell| cell.present) else { return Origin::Root };
    let follows = |event: &Event| match event {
        Event::Evacuating {} => cell.evacuation_requested,
        Event::Resumed {} | Event::Left {} => true,
        Event::Appeared(_)
        | Event::EvacuationRequested {}
        | Event::EvacuationWithdrawn {}
        | Event::Cordoned {}
        | Event::Uncordoned {}
        | Event::Healthy {}
        | Event::Unhealthy { .. }
        | Event::Disappeared { .. }
        | Event::Forgotten {} => false,
    };
    if events.iter().filter_map(entry::Event::as_cell).any(follows) {
        Origin::Decision(cell.cause)
    } else {
        Origin::Root
    }
}

/// Returns the events that follow from the loss of a cell.
#[must_use]
pub fn decide_lost(cell: Option<&Cell>, reason: &str) -> Vec<Event> {
    let present = cell.is_some_and(|cell| cell.present);
    if present { vec![Event::Disappeared { reason: reason.to_owned() }] } else { vec![] }
}

/// Returns the events that follow from the departure of a rep. Empty if a different run of the rep represents
/// the cell.
#[must_use]
pub fn decide_left(cell: Option<&Cell>, incarnation: Incarnation) -> Vec<Event> {
    let same = cell.is_some_and(|cell| cell.present && cell.presence.incarnation == incarnation);
    if same { vec![Event::Left {}] } else { vec![] }
}

/// Decides a command of an operator, that is, returns the events to record.
///
/// # Errors
/// `ResourceNotFound` if the cell is unknown or forgotten, `CellAbsent` for an evacuation of an absent cell,
/// `InvalidStateTransition` for forgetting a present cell.
pub fn decide(id: &CellId, cell: Option<&Cell>, command: Command) -> Result<Vec<Event>, Refusal> {
    let cell = cell.ok_or_else(|| Refusal::not_found(format!("cell {id}")))?;
    match (command, cell.present) {
        (Command::Evacuate, false) => {
            let why = format!("cell {id} is ABSENT: only a present cell can be evacuated");
            Err(Refusal::new(Code::CellAbsent, why))
        }
        (Command::Evacuate, true) if cell.evacuation_requested => Ok(vec![]),
        (Command::Evacuate, true) => Ok(vec![Event::EvacuationRequested {}]),
        (Command::Cordon, _) if cell.cordoned => Ok(vec![]),
        (Command::Cordon, _) => Ok(vec![Event::Cordoned {}]),
        (Command::Uncordon, _) => {
            let evacuation = cell.evacuation_requested.then_some(Event::EvacuationWithdrawn {});
            Ok(evacuation.into_iter().chain(cell.cordoned.then_some(Event::Uncordoned {})).collect())
        }
        (Command::Forget, true) => {
            let why = format!("cell {id} is present: only an ABSENT cell can be deleted");
            Err(Refusal::new(Code::InvalidStateTransition, why))
        }
        (Command::Forget, false) => Ok(vec![Event::Forgotten {}]),
    }
}

/// Returns the refusal for the rep with folder `not`: another rep, with folder `by`, represents the cell.
#[must_use]
pub fn cell_taken(id: &CellId, by: FolderId, not: FolderId) -> Refusal {
    let why = format!(
        "another rep represents cell {id}: data folder {by}; the rep with data folder {not} is refused \
         until the other one is lost"
    );
    Refusal::new(Code::CellTaken, why)
}

/// Applies a decision: its events and the operator's request.
#[must_use]
pub fn fold<'a>(
    cell: Option<Cell>,
    events: impl IntoIterator<Item = &'a Event>,
    stamp: &Stamp,
    version: u64,
) -> Option<Cell> {
    let mut cell = events.into_iter().fold(cell, |cell, event| evolve(cell, event, stamp))?;
    if let Some(request) = &stamp.request {
        cell.requests.remember(request.clone(), version);
    }
    Some(cell)
}

/// Applies an event.
#[must_use]
pub fn evolve(cell: Option<Cell>, event: &Event, stamp: &Stamp) -> Option<Cell> {
    let (since, cause) = (stamp.at, stamp.cause());
    match event {
        Event::Appeared(presence) => {
            let evacuation_requested = cell
                .as_ref()
                .is_some_and(|cell| cell.evacuation_requested && !is_evacuation_over(cell, presence));
            let began = cell.as_ref().and_then(|cell| cell.evacuation_started_at);
            let cordoned = cell.as_ref().is_some_and(|cell| cell.cordoned);
            let requests = cell.map(|cell| cell.requests).unwrap_or_default();
            Some(Cell {
                presence: presence.clone(),
                present: true,
                evacuating: false,
                unhealthy: None,
                evacuation_requested,
                cordoned,
                evacuation_started_at: began.filter(|_| evacuation_requested),
                absent_reason: None,
                since,
                cause,
                requests,
            })
        }
        Event::EvacuationRequested {} => cell.map(|cell| Cell { evacuation_requested: true, cause, ..cell }),
        Event::EvacuationWithdrawn {} => {
            cell.map(|cell| Cell { evacuation_requested: false, evacuation_started_at: None, cause, ..cell })
        }
        Event::Cordoned {} => cell.map(|cell| Cell { cordoned: true, cause, ..cell }),
        Event::Uncordoned {} => cell.map(|cell| Cell { cordoned: false, cause, ..cell }),
        Event::Evacuating {} => cell.map(|cell| {
            let evacuation_started_at = cell.evacuation_started_at.or(Some(since));
            Cell { evacuating: true, evacuation_started_at, since, cause, ..cell }
        }),
        Event::Resumed {} => {
            cell.map(|cell| Cell { evacuating: false, evacuation_started_at: None, since, cause, ..cell })
        }
        Event::Healthy {} => cell.map(|cell| Cell { unhealthy: None, since, ..cell }),
        Event::Unhealthy { reason } => {
            cell.map(|cell| Cell { unhealthy: Some(reason.clone()), since, ..cell })
        }
        Event::Left {} => {
            let over = |cell| Cell {
                evacuating: false,
                evacuation_requested: false,
                evacuation_started_at: None,
                ..cell
            };
            cell.map(|cell| absent(over(cell), EVACUATED, stamp))
        }
        Event::Disappeared { reason } => cell.map(|cell| absent(cell, reason, stamp)),
        Event::Forgotten {} => None,
    }
}

fn absent(cell: Cell, why: &str, stamp: &Stamp) -> Cell {
    let absent_reason = Some(why.to_owned());
    Cell { present: false, absent_reason, since: stamp.at, cause: stamp.cause(), ..cell }
}

/// Returns the evacuation state for a starting rep. A requested evacuation continues, unless the cell was
/// lost while it evacuated.
#[must_use]
pub fn evacuation(cell: Option<&Cell>) -> Evacuation {
    match cell.filter(|cell| cell.evacuation_requested && (cell.present || !cell.evacuating)) {
        None => Evacuation::None,
        Some(cell) => cell.evacuation_started_at.map_or(Evacuation::Requested, Evacuation::Started),
    }
}

/// Returns `true` if the appearance of the cell ends a requested evacuation.
///
/// The evacuation ends if the cell was lost while it evacuated, and a different run of its rep appears. If
/// the rep restarts before the cell is lost, the evacuation continues.
fn is_evacuation_over(cell: &Cell, appears: &Presence) -> bool {
    !cell.present && cell.evacuating && cell.presence.incarnation != appears.incarnation
}
