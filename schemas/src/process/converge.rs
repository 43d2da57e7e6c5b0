//! What convergence finds due (Diego Dev Notes, "Harmonizing DesiredLRPs with ActualLRPs: Convergence").

use super::Slot;
use super::draft::Draft;
use crate::actual::{self, Ended, Unclaimed};
use crate::cause::Origin;
use crate::container::Instance;
use crate::evacuating::{self, Gone};
use crate::evaluation::{Duty, Trigger};
use crate::key::Place;
use crate::names::CellId;

/// What convergence finds due at one place.
#[derive(Clone, Copy, Debug)]
enum Due<'a> {
    /// The cell of its evacuating twin is lost.
    TwinLost(&'a Instance),
    /// The time of its evacuating twin is over.
    TwinExpired,
    /// The cell of its instance is lost.
    Lost {
        /// The container.
        by: &'a Instance,
        /// Whether it shall run elsewhere.
        restart: bool,
    },
    /// Nobody desires it, as far as is known.
    Undesired,
    /// Another definition is desired at its index.
    Replaced,
    /// Its wait after a crash is over.
    Restart,
}

impl Due<'_> {
    /// As [`super::origin`] finds it for the events that come of it. Of a cell that was forgotten nothing comes: what was
    /// there has a cause each.
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
    /// The five duties of Diego Dev Notes, "Harmonizing DesiredLRPs with ActualLRPs: Convergence", place by place: what
    /// is due first, and with it whatever comes from the same place. The rest is due still, and gets a decision of its
    /// own.
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

    /// A twin is gone. If nothing runs in its place, as while a rollout tries to, something has to.
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
