//! Cells: heartbeats, probes, losses, and the choice of the acting rep. The rep is the agent on a cell. If
//! several reps use the same cell id, only one of them acts for the cell. The id of its data folder
//! (`FolderId`) identifies a rep.

use machines::cell::{self, HeartbeatState};
use schemas::message::{Dismiss, Heartbeat, RepOrder};
use schemas::names::{CellId, FolderId};
use schemas::subject::Subject;
use schemas::{Code, Refusal};

use super::Bbs;
use crate::aggregates::{CellCommand, Order};
use crate::clocks::Source;
use crate::command::{AggregateCommand, QueuedCommand};
use crate::effect::Effect;
use crate::presence::HeartbeatVerdict;

impl Bbs {
    /// Handles a heartbeat of a rep.
    pub(super) fn heartbeat(&mut self, beat: &Heartbeat) {
        if self.world().cell(&beat.cell_id).is_some() {
            let source = Source::Cell(beat.cell_id.clone());
            self.clocks.record(source, (beat.clock, self.wall), false, self.now);
        }
        if !self.leads() {
            // A standby does not supervise cells, but reports the time of their last heartbeat.
            if self.world().cell(&beat.cell_id).is_some() {
                self.presence.record_heartbeat(beat, self.now);
            }
            return;
        }
        let folder = beat.presence.folder;
        if let Some(refusal) = self.other_rep_refusal(&beat.cell_id, folder) {
            self.emit(Effect::Warn(refusal.message));
            return self.emit(Effect::Dismiss(beat.cell_id.clone(), Dismiss { folder }));
        }
        let known = self.world().cell(&beat.cell_id).map(|cell| cell.presence.incarnation);
        let news = self.is_news(beat);
        match self.presence.handle_heartbeat(beat, known, news, self.now) {
            HeartbeatVerdict::Alive => {
                self.record_presence(beat, news);
                self.order_evacuation(&beat.cell_id, beat.evacuating);
            }
            HeartbeatVerdict::Old => {}
            HeartbeatVerdict::Doubtful => self.emit(Effect::Probe(beat.cell_id.clone(), self.order())),
        }
    }

    /// Returns the header of an order to a rep: this leader's term and the current position of the log.
    fn order(&self) -> RepOrder {
        RepOrder { term: self.leadership.term(), position: self.world().position() }
    }

    /// Handles a rep's response to a probe or an order.
    pub(super) fn probe_answered(&mut self, cell: &CellId, beat: &Heartbeat) {
        if !self.leads() {
            return;
        }
        // A response of another rep does not count as a response of the probed rep.
        if self.other_rep_refusal(cell, beat.presence.folder).is_some() {
            return self.presence.handle_probe_timeout(cell);
        }
        let news = self.presence.handle_probe_response(beat, self.now) && self.is_news(beat);
        self.record_presence(beat, news);
    }

    /// Returns a refusal if a rep with another data folder than `folder` acts for the cell. `None` if the rep
    /// with this folder may act.
    ///
    /// The acting rep is the sender of the last recent sign of life. Without a recent sign of life, it is the
    /// rep that the log names, unless that rep was silent for too long.
    pub(super) fn other_rep_refusal(&self, id: &CellId, folder: FolderId) -> Option<Refusal> {
        let of_log = || {
            let known = self.world().cell(id).filter(|known| known.present)?;
            (!self.presence.is_silent(id)).then_some(known.presence.folder)
        };
        let speaks = self.presence.acting_rep(id, self.now).or_else(of_log)?;
        (speaks != folder).then(|| cell::cell_taken(id, speaks, folder))
    }

    /// Returns a refusal for the reports of a rep if the log names another rep for the cell. `folder` is the
    /// data folder of the reporting rep.
    pub(super) fn unknown_rep_refusal(&self, id: &CellId, folder: FolderId) -> Option<Refusal> {
        self.world().cell(id).filter(|known| known.presence.folder != folder)?;
        let behind = || {
            let why = format!(
                "the log does not name the rep with data folder {folder} for cell {id} yet: try again"
            );
            Refusal::new(Code::Unavailable, why)
        };
        Some(self.other_rep_refusal(id, folder).unwrap_or_else(behind))
    }

    /// Handles a sign of life: withdraws a pending loss of the cell, and records changes.
    fn record_presence(&mut self, beat: &Heartbeat, news: bool) {
        self.shards.withdraw(&Subject::Cell(beat.cell_id.clone()), QueuedCommand::is_loss);
        if news {
            let command = CellCommand::RecordPresence(presence_of(beat));
            self.enqueue_own(AggregateCommand::Cell(Order::new(beat.cell_id.clone(), command)));
        }
    }

    /// Returns `true` if the state in the heartbeat differs from the state in the log.
    fn is_news(&self, beat: &Heartbeat) -> bool {
        !cell::decide_heartbeat(self.world().cell(&beat.cell_id), &presence_of(beat)).is_empty()
    }

    /// Probes silent cells, and declares cells lost if they did not respond to the probe.
    pub(super) fn check_cells(&mut self) {
        let present = self.log.world().cells().filter(|(_, cell)| cell.present).map(|(id, _)| id);
        let look = self.presence.check(present, self.now);
        if let Some(count) = look.mass_loss {
            let why = format!(
                "{count} cells fell silent together, probably because of a network fault: their loss is delayed"
            );
            self.emit(Effect::Warn(why));
        }
        for cell in look.probe {
            self.emit(Effect::Probe(cell, self.order()));
        }
        for cell in look.lost {
            self.declare_lost(cell);
        }
    }

    /// Declares a cell lost, unless a command that declares the loss is already pending.
    fn declare_lost(&mut self, cell: CellId) {
        if !self.shards.holds(&Subject::Cell(cell.clone()), QueuedCommand::is_loss) {
            let why = "its heartbeats stopped and a probe was not answered".to_owned();
            self.enqueue_own(AggregateCommand::Cell(Order::new(cell, CellCommand::DeclareLost(why))));
        }
    }

    /// Sends the rep of a cell an order to evacuate, or to end the evacuation, after an operator has changed
    /// the request.
    pub(super) fn evacuation_changed(&mut self, id: &CellId) {
        self.order_evacuation(id, !self.evacuation_requested(id));
    }

    fn evacuation_requested(&self, id: &CellId) -> bool {
        self.world().cell(id).is_some_and(|cell| cell.evacuation_requested)
    }

    /// Sends a rep an order to start or end the evacuation of its cell, if `evacuates` differs from the
    /// operator's request.
    fn order_evacuation(&mut self, id: &CellId, evacuates: bool) {
        // If a cell returns, the log must first record whether its evacuation continues.
        if !self.world().is_present(id) {
            return;
        }
        let order = self.order();
        match (self.evacuation_requested(id), evacuates) {
            (true, false) => self.emit(Effect::Evacuate(id.clone(), order)),
            (false, true) => self.emit(Effect::Uncordon(id.clone(), order)),
            (true, true) | (false, false) => {}
        }
    }
}

/// Returns the recorded part of a heartbeat.
fn presence_of(beat: &Heartbeat) -> HeartbeatState {
    HeartbeatState {
        presence: beat.presence.clone(),
        evacuating: beat.evacuating,
        unhealthy: beat.unhealthy.clone(),
    }
}
