//! Cells: their heartbeats, probes, which rep speaks for one, and when one is given up.

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
    /// A rep beat.
    pub(super) fn heartbeat(&mut self, beat: &Heartbeat) {
        if self.world().cell(&beat.cell_id).is_some() {
            let source = Source::Cell(beat.cell_id.clone());
            self.clocks.read(source, (beat.clock, self.wall), false, self.now);
        }
        if !self.leads() {
            // It watches nobody, and can say all the same how long ago a cell was heard.
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

    /// An order to a rep, in the name of this leader, as of now.
    fn order(&self) -> RepOrder {
        RepOrder { term: self.leadership.term(), position: self.world().position() }
    }

    /// A rep answered a probe, or an order.
    pub(super) fn probe_answered(&mut self, cell: &CellId, beat: &Heartbeat) {
        if !self.leads() {
            return;
        }
        // Somebody else's answer says nothing of the rep that was asked.
        if self.taken(cell, beat.presence.folder).is_some() {
            return self.presence.unanswered(cell);
        }
        let news = self.presence.answered(beat, self.now) && self.is_news(beat);
        self.seen(beat, news);
    }

    /// Why a rep with this folder may not speak for the cell: another one does, and lives. It is the one that was
    /// heard last or, where nobody was, the one that the log names, until it is silent for too long.
    pub(super) fn taken(&self, id: &CellId, folder: FolderId) -> Option<Refusal> {
        let of_log = || {
            let known = self.world().cell(id).filter(|known| known.present)?;
            (!self.presence.is_silent(id)).then_some(known.presence.folder)
        };
        let speaks = self.presence.speaks(id, self.now).or_else(of_log)?;
        (speaks != folder).then(|| cell::taken(id, speaks, folder))
    }

    /// Why reports of a rep with this folder can't be judged: the log names another one for the cell.
    pub(super) fn is_strange(&self, id: &CellId, folder: FolderId) -> Option<Refusal> {
        self.world().cell(id).filter(|known| known.presence.folder != folder)?;
        let behind = || {
            let why =
                format!("the rep with data folder {folder} is not in the log yet as cell {id}: try again");
            Refusal::new(Code::Unavailable, why)
        };
        Some(self.taken(id, folder).unwrap_or_else(behind))
    }

    /// A cell lives: what is new of it is recorded, and nobody gives it up any more.
    fn seen(&mut self, beat: &Heartbeat, news: bool) {
        self.shards.withdraw(&Subject::Cell(beat.cell_id.clone()), QueuedCommand::is_loss);
        if news {
            self.enqueue_own(AggregateCommand::Seen(beat.cell_id.clone(), Box::new(seen_in(beat))));
        }
    }

    /// Whether the log says otherwise of a cell.
    fn is_news(&self, beat: &Heartbeat) -> bool {
        !cell::decide_seen(self.world().cell(&beat.cell_id), &seen_in(beat)).is_empty()
    }

    /// Probes cells that are silent, and gives up those that stay so.
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

    /// Gives up a cell, once.
    fn lose(&mut self, cell: CellId) {
        if !self.shards.holds(&Subject::Cell(cell.clone()), QueuedCommand::is_loss) {
            let why = "its heartbeats stopped and a probe was not answered".to_owned();
            self.enqueue_own(AggregateCommand::Lost(cell, why));
        }
    }

    /// An operator wants a cell to evacuate, or not any more: its rep is told, if it does otherwise.
    pub(super) fn evacuation_changed(&mut self, id: &CellId) {
        self.order_evacuation(id, !self.evacuation_wanted(id));
    }

    fn evacuation_wanted(&self, id: &CellId) -> bool {
        self.world().cell(id).is_some_and(|cell| cell.evacuation_wanted)
    }

    /// Tells a rep whose cell evacuates, or doesn't, to do otherwise if that is wanted.
    fn order_evacuation(&mut self, id: &CellId, evacuates: bool) {
        // Of a cell that comes back it is known when the log tells so whether its evacuation goes on.
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

/// What of a heartbeat is recorded.
fn seen_in(beat: &Heartbeat) -> Seen {
    Seen { presence: beat.presence.clone(), evacuating: beat.evacuating, unhealthy: beat.unhealthy.clone() }
}
