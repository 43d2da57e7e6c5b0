//! Cells: present, evacuating, healthy, gone (seed `000`, "Detecting Cell Failures"). Only transitions are recorded;
//! heartbeats never are.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::entry::Stamp;
use crate::names::{Incarnation, PlacementTag, Stack, Zone};
use crate::resources::Resources;
use crate::{Timestamp, limits};

/// What a cell is: told by its rep, recorded when it appears or when it changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Presence {
    /// Which run of the rep this is.
    pub incarnation: Incarnation,
    /// Its zone.
    pub zone: Zone,
    /// What it offers.
    pub stack: Stack,
    /// Work must ask for all of these to be placed here.
    pub placement_tags: BTreeSet<PlacementTag>,
    /// What it has in all.
    pub total: Resources,
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
    /// Whether its self-test passes.
    pub healthy: bool,
    /// When any of this last changed.
    pub since: Timestamp,
    /// The decision by which it last appeared, began to evacuate, or disappeared: the cause of what that does to its work.
    pub cause: Cause,
}

/// What happens to cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A cell, or a new incarnation of it, is there.
    Appeared(Presence),
    /// It takes no new work and moves away what it has.
    Evacuating {},
    /// Its self-test passes again.
    Healthy {},
    /// Its self-test fails: it takes no new work.
    Unhealthy {
        /// Why.
        reason: String,
    },
    /// It is lost, or it left.
    Disappeared {
        /// Why it is believed so.
        reason: String,
    },
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
    let known = cell.filter(|cell| cell.present && cell.presence == seen.presence);
    if known.is_none() {
        events.push(Event::Appeared(seen.presence.clone()));
    }
    if seen.evacuating && !known.is_some_and(|cell| cell.evacuating) {
        events.push(Event::Evacuating {});
    }
    match (known.is_none_or(|cell| cell.healthy), &seen.unhealthy) {
        (true, Some(reason)) => {
            events.push(Event::Unhealthy { reason: limits::cut(reason, limits::REASON_BYTES) });
        }
        (false, None) => events.push(Event::Healthy {}),
        (true, None) | (false, Some(_)) => {}
    }
    events
}

/// What the loss of a cell changes.
#[must_use]
pub fn decide_lost(cell: Option<&Cell>, reason: &str) -> Vec<Event> {
    let present = cell.is_some_and(|cell| cell.present);
    if present { vec![Event::Disappeared { reason: reason.to_owned() }] } else { vec![] }
}

/// Folds what happened.
#[must_use]
pub fn evolve(cell: Option<Cell>, event: &Event, stamp: &Stamp) -> Option<Cell> {
    let (since, cause) = (stamp.at, stamp.cause());
    match event {
        Event::Appeared(presence) => Some(Cell {
            presence: presence.clone(),
            present: true,
            evacuating: false,
            healthy: true,
            since,
            cause,
        }),
        Event::Evacuating {} => cell.map(|cell| Cell { evacuating: true, since, cause, ..cell }),
        Event::Healthy {} => cell.map(|cell| Cell { healthy: true, since, ..cell }),
        Event::Unhealthy { .. } => cell.map(|cell| Cell { healthy: false, since, ..cell }),
        Event::Disappeared { .. } => cell.map(|cell| Cell { present: false, since, cause, ..cell }),
    }
}
