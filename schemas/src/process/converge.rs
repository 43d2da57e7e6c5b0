//! Convergence of a process: carries out everything that is due (Diego Dev Notes, "Harmonizing DesiredLRPs
//! with ActualLRPs: Convergence").

use super::Slot;
use super::draft::Draft;
use crate::actual::{self, Ended, Unclaimed};
use crate::cause::Origin;
use crate::container::Instance;
use crate::evacuating::{self, Gone};
use crate::evaluation::{Duty, Trigger};
use crate::key::Place;
use crate::names::CellId;

/// Action that is due at one slot.
#[derive(Clone, Copy, Debug)]
enum Due<'a> {
    /// The cell of the evacuating instance is lost.
    TwinLost(&'a Instance),
    /// The evacuating instance has expired.
    TwinExpired,
    /// The cell of the instance is lost.
    Lost {
        by: &'a Instance,
        /// `true` if the instance has to start elsewhere.
        restart: bool,
    },
    /// The index is not desired, and the domain is fresh.
    Undesired,
    /// Another definition is desired at the index.
    Replaced,
    /// The wait after a crash is over.
    Restart,
}

impl Due<'_> {
    /// Returns the origin that [`super::origin`] finds for the resulting events. A forgotten cell is not an
    /// origin: its instances have a cause each.
    fn origin(self, slot: &Slot, known: &dyn Fn(&CellId) -> bool) -> Origin {
        match self {
            Self::TwinLost(by) | Self::Lost { by, .. } if known(&by.cell_id) => {
                Origin::Cell(by.cell_id.clone(), Some(slot.cause))
            }
            Self::TwinLost(_)
            | Self::Lost { .. }
            | Self::TwinExpired
            | Self::Undesired
            | Self::Replaced
            | Self::Restart => Origin::Decision(slot.cause),
        }
    }
}

impl<'a> Draft<'a> {
    /// Carries out the five duties of Diego Dev Notes, "Harmonizing DesiredLRPs with ActualLRPs:
    /// Convergence", slot by slot. One decision covers the first due action and all others with the same
    /// origin. The remaining ones stay due and get decisions of their own.
    pub(super) fn converge(&mut self) {
        if self.follow_a_cell() {
            return;
        }
        let mut first = None;
        let mut comes_along = |origin: Origin| first.get_or_insert_with(|| origin.clone()).is_where(&origin);
        for slot in self.slots() {
            for due in [self.twin_due(slot), self.instance_due(slot)].into_iter().flatten() {
                if comes_along(due.origin(slot, self.context.known)) {
                    self.carry_out(slot, due);
                }
            }
        }
        if first.is_none() {
            self.create_missing(Trigger::Convergence);
            self.prune();
            let open = self.process.and_then(|process| process.open_evaluation(Duty::Place));
            if self.left.unanswered > 0 && open.is_none() {
                self.did.made.get_or_insert(Trigger::Convergence);
            }
        }
    }

    /// Removes an evacuating instance. If nothing runs in its slot, for example during a rollout, an instance
    /// is created.
    fn twin_gone(&mut self, place: &Place, cause: Gone) {
        self.record_evacuating(evacuating::Event::Removed { place: place.clone(), cause });
        self.settle(place.index, Trigger::Evacuation);
    }

    fn twin_due(&self, slot: &'a Slot) -> Option<Due<'a>> {
        let twin = slot.evacuating.as_ref()?;
        if !(self.context.present)(&twin.by.cell_id) {
            return Some(Due::TwinLost(&twin.by));
        }
        (twin.expires_at <= self.context.now).then_some(Due::TwinExpired)
    }

    fn instance_due(&self, slot: &'a Slot) -> Option<Due<'a>> {
        let lrp = slot.actual.as_ref()?;
        let lost = lrp.holder().filter(|by| !(self.context.present)(&by.cell_id));
        if let Some(by) = lost {
            let restart = self.wants_index(slot.place.index) && !lrp.is_stopping();
            return Some(Due::Lost { by, restart });
        }
        if lrp.is_stopping() {
            return None;
        }
        if !self.wants_index(slot.place.index) {
            return self.context.fresh.then_some(Due::Undesired);
        }
        if !self.wants(&slot.place) {
            return Some(Due::Replaced);
        }
        let process = self.process?;
        let due = process.restart_at(&slot.place, lrp);
        due.is_some_and(|due| due <= self.context.now).then_some(Due::Restart)
    }

    fn carry_out(&mut self, slot: &Slot, due: Due<'_>) {
        let place = &slot.place;
        match due {
            Due::TwinLost(_) => self.twin_gone(place, Gone::CellLost),
            Due::TwinExpired => self.twin_gone(place, Gone::Expired),
            Due::Lost { restart: true, .. } => {
                self.restart(place, Unclaimed::CellLost, Trigger::CellLost);
            }
            Due::Lost { restart: false, .. } => {
                let cause = Ended::CellLost;
                self.record(actual::Event::Removed { places: place.clone().into(), cause });
                self.settle(place.index, Trigger::CellLost);
            }
            Due::Undesired => self.end(vec![place.clone()], Ended::Undesired),
            Due::Replaced => self.settle(place.index, Trigger::Convergence),
            Due::Restart => self.restart(place, Unclaimed::Restart, Trigger::Restart),
        }
    }
}
