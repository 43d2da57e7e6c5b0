//! Signs of life. A cell is lost only after a silence and an unanswered probe.

use std::collections::BTreeMap;
use std::time::Duration;

use projections::World;
use schemas::Timestamp;
use schemas::message::Heartbeat;
use schemas::names::{CellId, Incarnation};

use crate::checkers::Notes;
use crate::coverage::Situation;
use crate::invariants::Invariant as I;
use crate::shape::{Life, presence};

/// Forward steps of a clock that a BBS does not notice, twice.
fn unnoticed_steps() -> Duration {
    2 * presence().pause
}

/// Signs of life that each BBS received.
#[derive(Default)]
pub(super) struct Signs {
    leading_since: BTreeMap<Life, Timestamp>,
    last: BTreeMap<(Life, CellId), Sign>,
    /// Time of the last message of each cell, whether the BBS accepted it or not.
    received: BTreeMap<(Life, CellId), Timestamp>,
    probed: BTreeMap<(Life, CellId), Timestamp>,
    /// Current run of each cell's rep, and the greatest run so far. They differ after a clock was set back.
    runs: BTreeMap<CellId, (Incarnation, Incarnation)>,
}

/// Last sign of life of a cell that a BBS accepted.
struct Sign {
    at: Timestamp,
    run: Incarnation,
    sequence: u64,
}

impl Signs {
    /// Records that a BBS starts or stops leading. Earlier signs do not count.
    pub(super) fn leads(&mut self, bbs: Life, now: Timestamp) {
        self.leading_since.insert(bbs, now);
        self.last.retain(|(by, _), _| *by != bbs);
    }

    /// Records a heartbeat when the rep sends it.
    pub(super) fn sent(&mut self, beat: &Heartbeat) {
        let run = beat.presence.incarnation;
        let greatest = self.runs.get(&beat.cell_id).map_or(run, |(_, greatest)| run.max(*greatest));
        self.runs.insert(beat.cell_id.clone(), (run, greatest));
    }

    /// Records a heartbeat that reaches a BBS. The BBS ignores an older heartbeat of the same run, and a run
    /// that seems older than another one until a probe confirms that run.
    pub(super) fn received(&mut self, bbs: Life, beat: &Heartbeat, now: Timestamp) {
        self.received.insert((bbs, beat.cell_id.clone()), now);
        let run = beat.presence.incarnation;
        let known = self.last.get(&(bbs, beat.cell_id.clone())).filter(|known| known.run == run);
        let newer = known.is_none_or(|known| known.sequence <= beat.sequence);
        if newer && (known.is_some() || self.runs.get(&beat.cell_id) == Some(&(run, run))) {
            self.probe_answered(bbs, beat, now);
        }
    }

    /// Records the answer to a probe. A later heartbeat of the same run may have arrived before the answer.
    pub(super) fn probe_answered(&mut self, bbs: Life, beat: &Heartbeat, now: Timestamp) {
        let (run, key) = (beat.presence.incarnation, (bbs, beat.cell_id.clone()));
        let known = self.last.get(&key).filter(|known| known.run == run);
        let sequence = known.map_or(beat.sequence, |known| known.sequence.max(beat.sequence));
        self.last.insert(key, Sign { at: now, run, sequence });
    }

    pub(super) fn probed(&mut self, bbs: Life, cell: &CellId, now: Timestamp) {
        self.probed.insert((bbs, cell.clone()), now);
    }

    /// Checks that a BBS, which knows this World, may declare a cell lost.
    pub(super) fn loses(
        &self,
        bbs: Life,
        (lost, world): (&CellId, &World),
        (now, clock_slack): (Timestamp, Duration),
        notes: &mut Notes,
    ) {
        let limit = presence().silence;
        let silence = self.silence(bbs, lost, now);
        let probed = self.probed.get(&(bbs, lost.clone())).is_some_and(|at| now.since(*at) < silence);
        // If most cells fall silent together, the network is the probable cause.
        let present: Vec<&CellId> =
            world.cells().filter(|(_, cell)| cell.present).map(|(id, _)| id).collect();
        let silent = present.iter().filter(|cell| self.received_age(bbs, cell, now) >= limit).count();
        let together = silent >= 2 && silent * 2 > present.len();
        if together {
            notes.met(Situation::LostTogether);
        }
        let wait = if together { limit + presence().mass_loss_wait } else { limit };
        let long = silence + clock_slack.min(unnoticed_steps()) >= wait;
        notes.check(I::CellsLost, long && probed, || {
            format!("{lost} is lost after {silence:?} of silence; probed {probed}, {silent} of {present:?} are silent")
        });
    }

    /// Returns the cells of a World whose silence is long enough to declare them lost. Empty if most cells
    /// have missed a heartbeat.
    pub(super) fn overdue(
        &self,
        bbs: Life,
        world: &World,
        (now, calm_since): (Timestamp, Timestamp),
    ) -> Vec<CellId> {
        let limit = presence().silence;
        let present: Vec<&CellId> =
            world.cells().filter(|(_, cell)| cell.present).map(|(id, _)| id).collect();
        let missed = present.iter().filter(|cell| self.silence(bbs, cell, now) >= limit / 3).count();
        if missed >= 2 && missed * 2 > present.len() {
            return vec![];
        }
        // Silence counts only while no fault hinders the BBS.
        let age = |cell: &CellId| self.received_age(bbs, cell, now).min(now.since(calm_since));
        present.into_iter().filter(|cell| age(cell) >= limit).cloned().collect()
    }

    /// Returns the time since the last message of a cell, while the BBS leads.
    fn received_age(&self, bbs: Life, cell: &CellId, now: Timestamp) -> Duration {
        let received = self.received.get(&(bbs, cell.clone())).copied().unwrap_or_default();
        self.silence(bbs, cell, now).min(now.since(received))
    }

    /// Returns the time since the last accepted sign of life, while the BBS leads.
    fn silence(&self, bbs: Life, cell: &CellId, now: Timestamp) -> Duration {
        let last = self.last.get(&(bbs, cell.clone())).map_or(Timestamp(0), |sign| sign.at);
        now.since(last.max(self.leading_since.get(&bbs).copied().unwrap_or_default()))
    }
}
