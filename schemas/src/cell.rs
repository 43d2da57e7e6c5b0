//! Cells: present, evacuating, healthy, gone (Diego Dev Notes, "Detecting Cell Failures"). Only transitions are
//! recorded; heartbeats never are.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::attributes::{Attributes, Offer};
use crate::bus::OperatorVerb;
use crate::cause::{Cause, Origin};
use crate::entry::{self, Stamp};
use crate::names::{CellId, FolderId, Incarnation, PlacementTag, Stack, Zone};
use crate::refusal::{Code, Refusal};
use crate::request::{self, Requests};
use crate::resources::Resources;
use crate::{Timestamp, limits};

/// What a cell is: said by its rep, recorded when it appears or when it changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Presence {
    /// The data folder of its rep. Another folder is another rep, which must not speak for a cell that lives.
    pub folder: FolderId,
    /// Which run of the rep this is.
    pub incarnation: Incarnation,
    /// Its zone.
    pub zone: Zone,
    /// What it offers.
    pub stack: Stack,
    /// Work must ask for all of these to be placed here.
    pub placement_tags: BTreeSet<PlacementTag>,
    /// What else its rep says of it.
    pub attributes: Attributes,
    /// What it has in all.
    pub total: Resources,
}

impl Presence {
    /// What it offers, as the cell with this id.
    #[must_use]
    pub const fn offer<'a>(&'a self, cell_id: &'a CellId) -> Offer<'a> {
        let Self { folder: _, incarnation: _, zone, stack, placement_tags, attributes, total: _ } = self;
        Offer { cell_id, zone, stack, placement_tags, attributes }
    }
}

/// What is true of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// What it is, as of its last appearance.
    pub presence: Presence,
    /// Whether it is there.
    pub present: bool,
    /// Whether it evacuates.
    pub evacuating: bool,
    /// Why its self-test fails, if it does.
    pub unhealthy: Option<String>,
    /// Whether an operator wants it evacuated: its rep is ordered again until it evacuates.
    pub evacuation_wanted: bool,
    /// Whether an operator wants no new work on it; what is there stays.
    pub cordoned: bool,
    /// Since when it evacuates without having taken work again in between, whether its rep restarted or not. None, too,
    /// where that was taken back and its rep doesn't say yet that it takes work again: what is asked anew begins anew.
    pub evacuation_began: Option<Timestamp>,
    /// Why it is not there, if it isn't.
    pub gone: Option<String>,
    /// When any of this last changed.
    pub since: Timestamp,
    /// The decision by which it last appeared, began to evacuate, or disappeared: the cause of what that does to its
    /// work.
    pub cause: Cause,
    /// What operators asked of it.
    pub requests: Requests,
}

/// What a rep has to know of its cell's evacuation before it takes work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Evacuation {
    /// Nobody wants the cell evacuated.
    #[default]
    None,
    /// An operator does, and its rep has not begun.
    Wanted,
    /// A rep of the cell has begun then: its time goes on.
    Began(Timestamp),
}

/// Why a cell is not there whose rep left when its evacuation was over.
pub const EVACUATED: &str = "evacuated";

/// What an operator asks of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Move everything away from it; its rep leaves then.
    Evacuate,
    /// Give it no new work: what is there stays.
    Cordon,
    /// Take both back: it takes work again, if it is still there.
    Uncordon,
    /// Strike it off the tables: it is gone for good.
    Forget,
}

impl Command {
    /// Returns the verb of its subject.
    #[must_use]
    pub const fn verb(self) -> OperatorVerb {
        match self {
            Self::Evacuate => OperatorVerb::CellEvacuate,
            Self::Cordon => OperatorVerb::CellCordon,
            Self::Uncordon => OperatorVerb::CellUncordon,
            Self::Forget => OperatorVerb::CellForget,
        }
    }

    /// What it asks of this cell, for whoever has to tell it from another command with the same request id.
    #[must_use]
    pub fn digest(self, id: &CellId) -> String {
        request::digest(self.verb().noun_and_verb(), id.as_str())
    }
}

/// What happens to cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A cell, or a new incarnation of it, is there.
    Appeared(Presence),
    /// An operator wants everything moved away from it.
    EvacuationRequested {},
    /// An operator took that back.
    EvacuationWithdrawn {},
    /// An operator wants no new work on it.
    Cordoned {},
    /// An operator took that back.
    Uncordoned {},
    /// It takes no new work and moves away what it has: its rep says so.
    Evacuating {},
    /// It evacuates no longer and takes work again: its rep says so.
    Resumed {},
    /// Its self-test passes again.
    Healthy {},
    /// Its self-test fails: it takes no new work.
    Unhealthy {
        /// Why.
        reason: String,
    },
    /// Its evacuation is over and its rep has left.
    Left {},
    /// It is lost.
    Disappeared {
        /// Why it is believed so.
        reason: String,
    },
    /// An operator struck it off the tables.
    Forgotten {},
}

/// What a rep says of its cell with a heartbeat, as far as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it is.
    pub presence: Presence,
    /// Whether it evacuates.
    pub evacuating: bool,
    /// Why its self-test fails, if it does.
    pub unhealthy: Option<String>,
}

/// What a heartbeat changes: nothing, mostly.
#[must_use]
pub fn decide_seen(cell: Option<&Cell>, seen: &Seen) -> Vec<Event> {
    let mut events = vec![];
    let left = |cell: &Cell| {
        let same = cell.presence.incarnation == seen.presence.incarnation;
        !cell.present && same && cell.gone.as_deref() == Some(EVACUATED)
    };
    if cell.is_some_and(left) {
        // Said before it left, and heard after.
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
            events.push(Event::Unhealthy { reason: limits::cut(reason, limits::REASON_BYTES) });
        }
        (false, None) => events.push(Event::Healthy {}),
        (true, None) | (false, Some(_)) => {}
    }
    events
}

/// Where what a rep says comes from: that its cell evacuates, evacuates no longer, or has left, from the order to do
/// so.
#[must_use]
pub fn origin(cell: Option<&Cell>, events: &[entry::Event]) -> Origin {
    let Some(cell) = cell.filter(|cell| cell.present) else { return Origin::Beginning };
    let follows = |event: &entry::Event| match event {
        entry::Event::Cell(Event::Evacuating {}) => cell.evacuation_wanted,
        entry::Event::Cell(Event::Resumed {} | Event::Left {}) => true,
        entry::Event::Cell(
            Event::Appeared(_)
            | Event::EvacuationRequested {}
            | Event::EvacuationWithdrawn {}
            | Event::Cordoned {}
            | Event::Uncordoned {}
            | Event::Healthy {}
            | Event::Unhealthy { .. }
            | Event::Disappeared { .. }
            | Event::Forgotten {},
        )
        | entry::Event::Desired(_)
        | entry::Event::Actual(_)
        | entry::Event::Evacuating(_)
        | entry::Event::Rollout(_)
        | entry::Event::Evaluation(_)
        | entry::Event::Task(_)
        | entry::Event::Periodic(_)
        | entry::Event::Parameterised(_)
        | entry::Event::Domain(_)
        | entry::Event::Cluster(_) => false,
    };
    if events.iter().any(follows) { Origin::Decision(cell.cause) } else { Origin::Beginning }
}

/// What the loss of a cell changes.
#[must_use]
pub fn decide_lost(cell: Option<&Cell>, reason: &str) -> Vec<Event> {
    let present = cell.is_some_and(|cell| cell.present);
    if present { vec![Event::Disappeared { reason: reason.to_owned() }] } else { vec![] }
}

/// What the leave of a rep changes: nothing if another run of it speaks for the cell meanwhile.
#[must_use]
pub fn decide_left(cell: Option<&Cell>, incarnation: Incarnation) -> Vec<Event> {
    let same = cell.is_some_and(|cell| cell.present && cell.presence.incarnation == incarnation);
    if same { vec![Event::Left {}] } else { vec![] }
}

/// Judges what an operator asks.
///
/// # Errors
/// `ResourceNotFound` for a cell that was never seen or is forgotten, `CellAbsent` where there is nothing to evacuate,
/// `InvalidStateTransition` for a present cell that shall be forgotten.
pub fn decide(id: &CellId, cell: Option<&Cell>, command: Command) -> Result<Vec<Event>, Refusal> {
    let cell = cell.ok_or_else(|| Refusal::not_found(format!("cell {id}")))?;
    match (command, cell.present) {
        (Command::Evacuate, false) => {
            let why = format!("cell {id} is ABSENT: only a cell that is there can be evacuated");
            Err(Refusal::new(Code::CellAbsent, why))
        }
        (Command::Evacuate, true) if cell.evacuation_wanted => Ok(vec![]),
        (Command::Evacuate, true) => Ok(vec![Event::EvacuationRequested {}]),
        (Command::Cordon, _) if cell.cordoned => Ok(vec![]),
        (Command::Cordon, _) => Ok(vec![Event::Cordoned {}]),
        (Command::Uncordon, _) => {
            let evacuation = cell.evacuation_wanted.then_some(Event::EvacuationWithdrawn {});
            Ok(evacuation.into_iter().chain(cell.cordoned.then_some(Event::Uncordoned {})).collect())
        }
        (Command::Forget, true) => {
            let why = format!("cell {id} is present: only an ABSENT cell can be forgotten");
            Err(Refusal::new(Code::InvalidStateTransition, why))
        }
        (Command::Forget, false) => Ok(vec![Event::Forgotten {}]),
    }
}

/// Why a rep is refused that another one is in the way of.
#[must_use]
pub fn taken(id: &CellId, by: FolderId, not: FolderId) -> Refusal {
    let why = format!(
        "another rep speaks for cell {id}: data folder {by}; the rep with data folder {not} is refused until that one \
         has been silent for long enough to be lost"
    );
    Refusal::new(Code::CellTaken, why)
}

/// Folds a decision: what happened, and what was asked.
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

/// Folds what happened.
#[must_use]
pub fn evolve(cell: Option<Cell>, event: &Event, stamp: &Stamp) -> Option<Cell> {
    let (since, cause) = (stamp.at, stamp.cause());
    match event {
        Event::Appeared(presence) => {
            let evacuation_wanted =
                cell.as_ref().is_some_and(|cell| cell.evacuation_wanted && !is_over(cell, presence));
            let began = cell.as_ref().and_then(|cell| cell.evacuation_began);
            let cordoned = cell.as_ref().is_some_and(|cell| cell.cordoned);
            let requests = cell.map(|cell| cell.requests).unwrap_or_default();
            Some(Cell {
                presence: presence.clone(),
                present: true,
                evacuating: false,
                unhealthy: None,
                evacuation_wanted,
                cordoned,
                evacuation_began: began.filter(|_| evacuation_wanted),
                gone: None,
                since,
                cause,
                requests,
            })
        }
        Event::EvacuationRequested {} => cell.map(|cell| Cell { evacuation_wanted: true, cause, ..cell }),
        Event::EvacuationWithdrawn {} => {
            cell.map(|cell| Cell { evacuation_wanted: false, evacuation_began: None, cause, ..cell })
        }
        Event::Cordoned {} => cell.map(|cell| Cell { cordoned: true, cause, ..cell }),
        Event::Uncordoned {} => cell.map(|cell| Cell { cordoned: false, cause, ..cell }),
        Event::Evacuating {} => cell.map(|cell| {
            let evacuation_began = cell.evacuation_began.or(Some(since));
            Cell { evacuating: true, evacuation_began, since, cause, ..cell }
        }),
        Event::Resumed {} => {
            cell.map(|cell| Cell { evacuating: false, evacuation_began: None, since, cause, ..cell })
        }
        Event::Healthy {} => cell.map(|cell| Cell { unhealthy: None, since, ..cell }),
        Event::Unhealthy { reason } => {
            cell.map(|cell| Cell { unhealthy: Some(reason.clone()), since, ..cell })
        }
        Event::Left {} => {
            let over =
                |cell| Cell { evacuating: false, evacuation_wanted: false, evacuation_began: None, ..cell };
            cell.map(|cell| absent(over(cell), EVACUATED, stamp))
        }
        Event::Disappeared { reason } => cell.map(|cell| absent(cell, reason, stamp)),
        Event::Forgotten {} => None,
    }
}

fn absent(cell: Cell, why: &str, stamp: &Stamp) -> Cell {
    let gone = Some(why.to_owned());
    Cell { present: false, gone, since: stamp.at, cause: stamp.cause(), ..cell }
}

/// What a rep that starts has to know of its cell's evacuation: one that an operator wants goes on where the rep before
/// it was, unless the cell was lost with everything on it meanwhile.
#[must_use]
pub fn evacuation(cell: Option<&Cell>) -> Evacuation {
    match cell.filter(|cell| cell.evacuation_wanted && (cell.present || !cell.evacuating)) {
        None => Evacuation::None,
        Some(cell) => cell.evacuation_began.map_or(Evacuation::Wanted, Evacuation::Began),
    }
}

/// Whether an evacuation is over when a cell appears: the one that evacuated was lost with everything on it, and this
/// is another run of its rep. One that restarts in time goes on.
fn is_over(cell: &Cell, appears: &Presence) -> bool {
    !cell.present && cell.evacuating && cell.presence.incarnation != appears.incarnation
}
