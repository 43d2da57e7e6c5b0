//! Cells: heartbeats, probes, which rep acts for a cell, and losses.

use schemas::cell::{self, Seen};
use schemas::message::{Dismiss, Heartbeat, RepOrder};
use schemas::names::{CellId, FolderId};
use schemas::subject::Subject;
use schemas::{Code, Refusal};

use super::Bbs;
use crate::clocks::Source;
use crate::command::{AggregateCommand, QueuedCommand};
use crate::effect::Effect;
use crate::presence::Heard;

impl Bbs {
    /// Handles a heartbeat of a rep.
    pub(super) fn heartbeat(&mut self, beat: &Heartbeat) {
        if self.world().cell(&beat.cell_id).is_some() {
            let source = Source::Cell(beat.cell_id.clone());
            self.clocks.read(source, (beat.clock, self.wall), false, self.now);
        }
        if !self.leads() {
            // A standby watches no cells, but reports the time of their last heartbeat.
            if self.world().cell(&beat.cell_id).is_some() {
                self.presence.note(beat, self.now);
            }
            return;
        }
        let folder = beat.presence.folder;
        if let Some(refusal) = self.taken(&beat.cell_id, folder) {
            self.emit(Effect::Warn(refusal.message));
            return self.emit(Effect::Dismiss(beat.cell_id.clone(), Dismiss { folder }));
        }
        let known = self.world().cell(&beat.cell_id).map(|cell| cell.presence.incarnation);
        let news = self.is_news(beat);
        match self.presence.heard(beat, known, news, self.now) {
            Heard::Alive => {
                self.seen(beat, news);
                self.order_evacuation(&beat.cell_id, beat.evacuating);
            }
            Heard::Old => {}
            Heard::Doubtful => self.emit(Effect::Probe(beat.cell_id.clone(), self.order())),
        }
    }

    /// Returns the header of an order to a rep: the term and current position of this leader.
    fn order(&self) -> RepOrder {
        RepOrder { term: self.leadership.term(), position: self.world().position() }
    }

    /// Handles a rep's response to a probe or an order.
    pub(super) fn probe_answered(&mut self, cell: &CellId, beat: &Heartbeat) {
        if !self.leads() {
            return;
        }
        // A response of another rep does not count for the one that was asked.
        if self.taken(cell, beat.presence.folder).is_some() {
            return self.presence.unanswered(cell);
        }
        let news = self.presence.answered(beat, self.now) && self.is_news(beat);
        self.seen(beat, news);
    }

    /// Returns the refusal for a rep with this folder if another rep acts for the cell; `None` if the rep may
    /// act for it.
    ///
    /// The acting rep is the one with the last recent sign of life. If there is none, it is the rep in the
    /// log, until it was silent for too long.
    pub(super) fn taken(&self, id: &CellId, folder: FolderId) -> Option<Refusal> {
        let of_log = || {
            let known = self.world().cell(id).filter(|known| known.present)?;
            (!self.presence.is_silent(id)).then_some(known.presence.folder)
        };
        let speaks = self.presence.speaks(id, self.now).or_else(of_log)?;
        (speaks != folder).then(|| cell::taken(id, speaks, folder))
    }

    /// Returns the refusal of reports from a rep with this folder if the log names another rep for the cell.
    pub(super) fn is_strange(&self, id: &CellId, folder: FolderId) -> Option<Refusal> {
        self.world().cell(id).filter(|known| known.presence.folder != folder)?;
        let behind = || {
            let why =
                format!("the rep with data folder {folder} is not in the log yet as cell {id}: try again");
            Refusal::new(Code::Unavailable, why)
        };
        Some(self.taken(id, folder).unwrap_or_else(behind))
    }

    /// Handles a sign of life: withdraws a pending loss of the cell, and records news.
    fn seen(&mut self, beat: &Heartbeat, news: bool) {
        self.shards.withdraw(&Subject::Cell(beat.cell_id.clone()), QueuedCommand::is_loss);
        if news {
            self.enqueue_own(AggregateCommand::Seen(beat.cell_id.clone(), Box::new(seen_in(beat))));
        }
    }

    /// Returns `true` if the heartbeat differs from the log.
    fn is_news(&self, beat: &Heartbeat) -> bool {
        !cell::decide_seen(self.world().cell(&beat.cell_id), &seen_in(beat)).is_empty()
    }

    /// Probes silent cells, and declares those lost that did not respond.
    pub(super) fn look_at_cells(&mut self) {
        let present = self.log.world().cells().filter(|(_, cell)| cell.present).map(|(id, _)| id);
        let look = self.presence.look(present, self.now);
        if let Some(count) = look.mass_loss {
            let why = format!(
                "{count} cells fell silent together: probably the network, waiting before it is believed"
            );
            self.emit(Effect::Warn(why));
        }
        for cell in look.probe {
            self.emit(Effect::Probe(cell, self.order()));
        }
        for cell in look.lost {
            self.lose(cell);
        }
    }

    /// Declares a cell lost, unless that is already pending.
    fn lose(&mut self, cell: CellId) {
        if !self.shards.holds(&Subject::Cell(cell.clone()), QueuedCommand::is_loss) {
            let why = "its heartbeats stopped and a probe was not answered".to_owned();
            self.enqueue_own(AggregateCommand::Lost(cell, why));
        }
    }

    /// Orders the rep of a cell to evacuate, or to end the evacuation, after an operator's request has
    /// changed.
    pub(super) fn evacuation_changed(&mut self, id: &CellId) {
        self.order_evacuation(id, !self.evacuation_wanted(id));
    }

    fn evacuation_wanted(&self, id: &CellId) -> bool {
        self.world().cell(id).is_some_and(|cell| cell.evacuation_wanted)
    }

    /// Orders a rep to start or end the evacuation of its cell if `evacuates` differs from the operator's
    /// request.
    fn order_evacuation(&mut self, id: &CellId, evacuates: bool) {
        // For a cell that returns, the log must first record whether its evacuation continues.
        if !self.world().is_present(id) {
            return;
        }
        let order = self.order();
        match (self.evacuation_wanted(id), evacuates) {
            (true, false) => self.emit(Effect::Evacuate(id.clone(), order)),
            (false, true) => self.emit(Effect::Uncordon(id.clone(), order)),
            (true, true) | (false, false) => {}
        }
    }
}

/// Returns the part of a heartbeat that is recorded.
fn seen_in(beat: &Heartbeat) -> Seen {
    Seen { presence: beat.presence.clone(), evacuating: beat.evacuating, unhealthy: beat.unhealthy.clone() }
}
