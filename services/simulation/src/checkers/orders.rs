//! Orders to stop: whoever holds what shall stop is told so, again and again until it is gone, and nobody else is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::Timestamp;
use schemas::container::Instance;
use schemas::message::Stop;
use schemas::names::{CellId, InstanceGuid};
use schemas::subject::Position;

use super::Notes;
use super::due::Thing;
use crate::nodes::Life;
use crate::promises::Promise as P;

/// How often a stop is said again.
const AGAIN: Duration = Duration::from_secs(5);

/// What was decided to stop, and what was said.
#[derive(Default)]
pub(super) struct Orders {
    /// Containers that the log asks to stop: since where.
    asked: BTreeMap<InstanceGuid, Position>,
    /// When each was last told to stop, by whom.
    said: BTreeMap<InstanceGuid, BTreeMap<Life, Timestamp>>,
    /// Who leads now.
    leading: BTreeSet<Life>,
    /// Cancelled tasks' containers, and when that was stored.
    cancelled: BTreeMap<InstanceGuid, Timestamp>,
}

impl Orders {
    /// The log asks containers to stop.
    pub(super) fn asked(&mut self, guids: Vec<InstanceGuid>, position: Position) {
        for guid in guids {
            self.asked.entry(guid).or_insert(position);
        }
    }

    /// A task is cancelled that runs.
    pub(super) fn cancelled(&mut self, guid: InstanceGuid, position: Position, now: Timestamp) {
        self.asked.entry(guid).or_insert(position);
        self.cancelled.insert(guid, now);
    }

    pub(super) fn leads(&mut self, life: Life, leads: bool) {
        if leads {
            self.leading.insert(life);
        } else {
            self.leading.remove(&life);
        }
    }

    /// A BBS that knows the log so far tells a cell to stop containers.
    pub(super) fn says(
        &mut self,
        life: Life,
        (cell, stop): (&CellId, &Stop),
        delivered: Position,
        now: Timestamp,
        notes: &mut Notes,
    ) {
        for (work, guid) in &stop.containers {
            let asked = self.asked.get(guid).is_some_and(|position| *position <= delivered);
            notes.must(P::StopSaid, asked, || {
                format!("{cell} is told to stop {guid} of {work}, which goes on")
            });
            self.said.entry(*guid).or_default().insert(life, now);
        }
    }

    /// What a container that shall stop is owed: an order, or the next one.
    pub(super) fn owed(&self, what: &str, by: &Instance) -> Thing {
        let said = self.said.get(&by.instance_guid).into_iter().flatten();
        let last = said.filter(|(life, _)| self.leading.contains(life)).map(|(_, at)| at).max();
        let promise = P::StopSaid;
        match last {
            None => Thing::new(promise, format!("{what} shall stop, and {} is not told", by.cell_id)),
            Some(last) => {
                let what = format!("{what} shall stop, {} was told at {last} and not again", by.cell_id);
                Thing { promise, what, slow: AGAIN }
            }
        }
    }

    /// Cancelled tasks whose cells were not told since then, where nothing hindered anybody since.
    pub(super) fn uncancelled(&self, calm_since: Timestamp) -> impl Iterator<Item = Thing> {
        let untold = self
            .cancelled
            .iter()
            .filter(move |(guid, since)| **since >= calm_since && !self.said.contains_key(guid));
        untold.map(|(guid, _)| {
            Thing::new(P::StopSaid, format!("the task in {guid} is cancelled, its cell is not told"))
        })
    }
}
