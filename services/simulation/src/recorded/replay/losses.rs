//! When cells died that the log says are lost: it says when that was believed, which is later.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bbs::presence::Config;
use projections::World;
use schemas::names::CellId;
use schemas::{Timestamp, cell};

use super::super::stage::PATIENCE;

/// A cell that the log says is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Loss {
    at: Timestamp,
    cell: CellId,
    /// How many cells were present just before, with this one.
    present: usize,
    /// When a decision came of what it said last.
    heard: Option<Timestamp>,
}

impl Loss {
    /// When it died, if it was silent for so long before it was believed lost: not before what it said last.
    fn died(&self, waited: Duration) -> Timestamp {
        (self.at - waited).max(self.heard.unwrap_or_default())
    }
}

/// The cells that some decisions say are lost.
#[derive(Clone, Debug)]
pub(super) struct Losses {
    present: BTreeSet<CellId>,
    /// When a decision came of what a cell said.
    heard: BTreeMap<CellId, Timestamp>,
    all: Vec<Loss>,
}

impl Losses {
    /// Begins with the cells that are there.
    pub(super) fn of(world: &World) -> Self {
        let present = world.cells().filter(|(_, cell)| cell.present);
        Self { present: present.map(|(id, _)| id.clone()).collect(), heard: BTreeMap::new(), all: vec![] }
    }

    /// A cell said something: it lived then.
    pub(super) fn heard(&mut self, id: &CellId, at: Timestamp) {
        self.heard.insert(id.clone(), at);
    }

    /// Takes note of what happens to a cell, in the order of the log.
    pub(super) fn note(&mut self, id: &CellId, event: &cell::Event, at: Timestamp) {
        match event {
            cell::Event::Appeared(_) => {
                self.present.insert(id.clone());
            }
            cell::Event::Disappeared { .. } => {
                let (present, heard) = (self.present.len(), self.heard.get(id).copied());
                self.all.push(Loss { at, cell: id.clone(), present, heard });
                self.present.remove(id);
            }
            cell::Event::Left {} | cell::Event::Forgotten {} => {
                self.present.remove(id);
            }
            cell::Event::EvacuationRequested {}
            | cell::Event::EvacuationWithdrawn {}
            | cell::Event::Cordoned {}
            | cell::Event::Uncordoned {}
            | cell::Event::Evacuating {}
            | cell::Event::Resumed {}
            | cell::Event::Healthy {}
            | cell::Event::Unhealthy { .. } => {}
        }
    }

    /// Each of them, and when it died. `mass_loss_wait` is how long the BBSs of the log waited before they believed that most
    /// cells are gone at once.
    pub(super) fn died(&self, mass_loss_wait: Duration) -> Vec<(Timestamp, CellId)> {
        let silence = Config::default().silence;
        let alone = silence + PATIENCE;
        let together = alone.max(silence + mass_loss_wait);
        // Of cells that are believed lost one by one, each is still heard shortly before the one before it is: those that
        // follow one another faster waited together.
        let follows = |one: &Loss, next: &Loss| next.at.since(one.at) < silence / 2;
        let mut died = vec![];
        for group in self.all.chunk_by(follows) {
            let present = group.first().map_or(0, |first| first.present);
            let most = group.len() >= 2 && group.len() * 2 > present;
            let waited = if most { together } else { alone };
            died.extend(group.iter().map(|loss| (loss.died(waited), loss.cell.clone())));
        }
        died
    }
}
