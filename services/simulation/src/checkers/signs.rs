//! Signs of life: a cell is lost only after a silence, and after it was asked in vain.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::Timestamp;
use schemas::message::Heartbeat;
use schemas::names::{CellId, Incarnation};

use super::Notes;
use crate::coverage::Situation;
use crate::nodes::Life;
use crate::promises::Promise as P;

/// How long a cell is silent at least before it is taken for lost.
const SILENCE: Duration = Duration::from_secs(15);

/// So long silence of most cells is taken for a fault of the network.
pub(crate) const MASS_LOSS_WAIT: Duration = Duration::from_secs(10);

/// So much of it may be a clock that was set forward: less than a pause, which a BBS would notice, and maybe twice.
const UNNOTICED: Duration = Duration::from_secs(6);

/// What each BBS heard and asked.
#[derive(Default)]
pub(super) struct Signs {
    leads: BTreeMap<Life, Timestamp>,
    heard: BTreeMap<(Life, CellId), Heard>,
    /// When anything came of a cell, believed or not.
    came: BTreeMap<(Life, CellId), Timestamp>,
    probed: BTreeMap<(Life, CellId), Timestamp>,
    /// The runs of each cell's rep: the one that lives, and the greatest of all. They differ if its clock was set back.
    runs: BTreeMap<CellId, (Incarnation, Incarnation)>,
}

/// What a BBS heard of a cell.
struct Heard {
    /// When.
    at: Timestamp,
    /// The run of the rep that was heard last, and the number of its heartbeat.
    run: Incarnation,
    sequence: u64,
}

impl Signs {
    /// A BBS leads from now on: nothing that it heard before counts.
    pub(super) fn leads(&mut self, bbs: Life, now: Timestamp) {
        self.leads.insert(bbs, now);
        self.heard.retain(|(by, _), _| *by != bbs);
    }

    /// A rep says that it lives.
    pub(super) fn said(&mut self, beat: &Heartbeat) {
        let run = beat.presence.incarnation;
        let greatest = self.runs.get(&beat.cell_id).map_or(run, |(_, greatest)| run.max(*greatest));
        self.runs.insert(beat.cell_id.clone(), (run, greatest));
    }

    /// A BBS hears a heartbeat. One that is older than the last says nothing, and one of a run that seems to have begun
    /// before another is believed only when a probe was answered by that run.
    pub(super) fn heard(&mut self, bbs: Life, beat: &Heartbeat, now: Timestamp) {
        self.came.insert((bbs, beat.cell_id.clone()), now);
        let run = beat.presence.incarnation;
        let known = self.heard.get(&(bbs, beat.cell_id.clone()));
        let same = known.filter(|known| known.run == run);
        let newer = same.is_none_or(|known| known.sequence <= beat.sequence);
        let believed = same.is_some() || self.runs.get(&beat.cell_id) == Some(&(run, run));
        if newer && believed {
            self.answered(bbs, beat, now);
        }
    }

    /// A BBS hears that its probe was answered. A later heartbeat of the same run may have overtaken the answer: older
    /// ones than that still say nothing.
    pub(super) fn answered(&mut self, bbs: Life, beat: &Heartbeat, now: Timestamp) {
        let (run, key) = (beat.presence.incarnation, (bbs, beat.cell_id.clone()));
        let known = self.heard.get(&key).filter(|known| known.run == run);
        let sequence = known.map_or(beat.sequence, |known| known.sequence.max(beat.sequence));
        self.heard.insert(key, Heard { at: now, run, sequence });
    }

    /// A BBS asks a cell whether it is there.
    pub(super) fn probes(&mut self, bbs: Life, cell: &CellId, now: Timestamp) {
        self.probed.insert((bbs, cell.clone()), now);
    }

    /// A BBS takes a cell for lost.
    pub(super) fn loses(
        &self,
        bbs: Life,
        lost: &CellId,
        (now, clock_slack): (Timestamp, Duration),
        notes: &mut Notes,
    ) {
        let silence = self.silence(bbs, lost, now);
        let unnoticed = clock_slack.min(UNNOTICED);
        let long = silence + unnoticed >= SILENCE;
        notes.must(P::LostInTime, long, || format!("{lost} was silent for {silence:?}"));
        let asked = self.probed.get(&(bbs, lost.clone())).is_some_and(|asked| now.since(*asked) < silence);
        notes.must(P::LostInTime, asked, || format!("{lost} was not asked since it fell silent"));
    }

    /// If more than half of the cells, and at least two, fell silent together, each of them is lost only after a longer
    /// silence. Judged by what the BBS heard last of each cell that was present for it.
    pub(super) fn loses_many(
        &self,
        bbs: Life,
        (lost, present): (&CellId, &[CellId]),
        (now, clock_slack): (Timestamp, Duration),
        notes: &mut Notes,
    ) {
        let gone = present.iter().filter(|cell| self.nothing(bbs, cell, now) >= SILENCE).count();
        if gone < 2 || gone * 2 <= present.len() {
            return;
        }
        notes.saw(Situation::LostTogether);
        let silence = self.silence(bbs, lost, now);
        let long = silence + clock_slack.min(UNNOTICED) >= SILENCE + MASS_LOSS_WAIT;
        notes.must(P::LostTogether, long, || {
            format!("{lost} is lost with {gone} of {present:?}, after a silence of {silence:?}")
        });
    }

    /// Whether more than half of these cells, and at least two, are silent for so long.
    pub(super) fn is_mass(&self, bbs: Life, present: &[CellId], now: Timestamp, time: Duration) -> bool {
        let silent = present.iter().filter(|cell| self.silence(bbs, cell, now) >= time).count();
        silent >= 2 && silent * 2 > present.len()
    }

    /// How long nothing at all came of a cell to a BBS that leads.
    fn nothing(&self, bbs: Life, cell: &CellId, now: Timestamp) -> Duration {
        let came = self.came.get(&(bbs, cell.clone())).copied().unwrap_or_default();
        self.silence(bbs, cell, now).min(now.since(came))
    }

    /// Cells of which a BBS has heard nothing for long enough to lose them, where most others are there.
    pub(super) fn overdue(
        &self,
        bbs: Life,
        present: &[CellId],
        (now, calm_since): (Timestamp, Timestamp),
    ) -> Vec<CellId> {
        // Who missed a heartbeat may count as silent.
        if self.is_mass(bbs, present, now, SILENCE / 3) {
            return vec![];
        }
        // What hindered the BBS counts for no cell.
        let silence = |cell: &CellId| self.nothing(bbs, cell, now).min(now.since(calm_since));
        present.iter().filter(|cell| silence(cell) >= SILENCE).cloned().collect()
    }

    /// How long a BBS has heard nothing of a cell, while it leads.
    fn silence(&self, bbs: Life, cell: &CellId, now: Timestamp) -> Duration {
        let heard = self.heard.get(&(bbs, cell.clone())).map_or(Timestamp(0), |heard| heard.at);
        now.since(heard.max(self.leads.get(&bbs).copied().unwrap_or_default()))
    }
}
