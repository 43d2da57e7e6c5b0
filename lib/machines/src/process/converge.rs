//! Convergence of a process: performs all due actions (Diego Dev Notes, "Harmonizing DesiredLRPs with
//! ActualLRPs: Convergence").

use super::Slot;
use super::draft::Draft;
use schemas::actual::{self, StopReason, UnclaimReason};
use schemas::cause::Origin;
use schemas::container::Instance;
use schemas::evacuating::{self, RemovalReason};
use schemas::evaluation::{Duty, Trigger};
use schemas::key::Place;
use schemas::names::CellId;

/// Action that is due at one slot.
#[derive(Clone, Copy, Debug)]
enum Due<'a> {
    /// The cell of the evacuating instance is lost.
    EvacuatingLost(&'a Instance),
    /// The evacuating instance has expired.
    EvacuatingExpired,
    /// The cell of the instance is lost.
    Lost {
        by: &'a Instance,
        /// `true` if the instance has to start on another cell.
        restart: bool,
    },
    /// The index is not desired, and the domain is fresh.
    Undesired,
    /// Another definition is now desired at the index.
    Replaced,
    /// The wait after a crash is over.
    Restart,
}

impl Due<'_> {
    /// Returns the same origin as [`super::origin`] returns for the resulting events. A forgotten cell cannot
    /// be an origin. In that case, the origin of each instance on the cell is the cause recorded in its slot.
    fn origin(self, slot: &Slot, known: &dyn Fn(&CellId) -> bool) -> Origin {
        match self {
            Self::EvacuatingLost(by) | Self::Lost { by, .. } if known(&by.cell_id) => {
                Origin::Cell(by.cell_id.clone(), Some(slot.cause))
            }
            Self::EvacuatingLost(_)
            | Self::Lost { .. }
            | Self::EvacuatingExpired
            | Self::Undesired
            | Self::Replaced
            | Self::Restart => Origin::Decision(slot.cause),
        }
    }
}

impl<'a> Draft<'a> {
    /// Performs the five duties of Diego Dev Notes, "Harmonizing DesiredLRPs with ActualLRPs: Convergence",
    /// slot by slot. One decision covers the first due action and all other actions with the same origin. The
    /// remaining actions stay due, and later decisions cover them.
    pub(super) fn converge(&mut self) {
        if self.follow_one_cell() {
            return;
        }
        let mut first = None;
        let mut comes_along =
            |origin: Origin| first.get_or_insert_with(|| origin.clone()).has_same_source(&origin);
        for slot in self.slots() {
            for due in [self.evacuating_due(slot), self.instance_due(slot)].into_iter().flatten() {
                if comes_along(due.origin(slot, self.context.is_known)) {
                    self.carry_out(slot, due);
                }
            }
        }
        if first.is_none() {
            self.create_missing(Trigger::Convergence);
            self.prune();
            let open = self.process.and_then(|process| process.open_evaluation(Duty::Place));
            if self.left.unanswered > 0 && open.is_none() {
                self.did.new_work.get_or_insert(Trigger::Convergence);
            }
        }
    }

    /// Removes an evacuating instance. If its slot has no other instance but an instance is desired, for
    /// example during a rollout, creates this instance.
    fn remove_evacuating(&mut self, place: &Place, cause: RemovalReason) {
        self.record_evacuating(evacuating::Event::Removed { place: place.clone(), cause });
        self.settle(place.index, Trigger::Evacuation);
    }

    fn evacuating_due(&self, slot: &'a Slot) -> Option<Due<'a>> {
        let twin = slot.evacuating.as_ref()?;
        if !(self.context.is_present)(&twin.by.cell_id) {
            return Some(Due::EvacuatingLost(&twin.by));
        }
        (twin.expires_at <= self.context.now).then_some(Due::EvacuatingExpired)
    }

    fn instance_due(&self, slot: &'a Slot) -> Option<Due<'a>> {
        let lrp = slot.actual.as_ref()?;
        let lost = lrp.holder().filter(|by| !(self.context.is_present)(&by.cell_id));
        if let Some(by) = lost {
            let restart = self.is_index_desired(slot.place.index) && !lrp.is_stopping();
            return Some(Due::Lost { by, restart });
        }
        if lrp.is_stopping() {
            return None;
        }
        if !self.is_index_desired(slot.place.index) {
            return self.context.is_fresh.then_some(Due::Undesired);
        }
        if !self.is_desired(&slot.place) {
            return Some(Due::Replaced);
        }
        let process = self.process?;
        let due = process.restart_at(&slot.place, lrp);
        due.is_some_and(|due| due <= self.context.now).then_some(Due::Restart)
    }

    fn carry_out(&mut self, slot: &Slot, due: Due<'_>) {
        let place = &slot.place;
        match due {
            Due::EvacuatingLost(_) => self.remove_evacuating(place, RemovalReason::CellLost),
            Due::EvacuatingExpired => self.remove_evacuating(place, RemovalReason::Expired),
            Due::Lost { restart: true, .. } => {
                self.restart(place, UnclaimReason::CellLost, Trigger::CellLost);
            }
            Due::Lost { restart: false, .. } => {
                let cause = StopReason::CellLost;
                self.record(actual::Event::Removed { places: place.clone().into(), cause });
                self.settle(place.index, Trigger::CellLost);
            }
            Due::Undesired => self.end(vec![place.clone()], StopReason::Undesired),
            Due::Replaced => self.settle(place.index, Trigger::Convergence),
            Due::Restart => self.restart(place, UnclaimReason::Restart, Trigger::Restart),
        }
    }
}
