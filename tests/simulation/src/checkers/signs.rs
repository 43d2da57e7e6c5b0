//! Signs of life: a cell is lost only after a silence, and after it was asked in vain; and many at once only after
//! another wait, for that is probably the network.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::Timestamp;
use schemas::message::Heartbeat;
use schemas::names::{CellId, Incarnation};

use super::Notes;
use crate::nodes::{Life, MASS_LOSS_WAIT};
use crate::promises::Promise as P;

/// How long a cell is silent at least before it is taken for lost.
const SILENCE: Duration = Duration::from_secs(15);

/// So much of it may be a clock that was set forward: less than a pause, which a BBS would notice, and maybe twice.
const UNNOTICED: Duration = Duration::from_secs(6);

/// What each BBS heard and asked.
#[derive(Default)]
pub(super) struct Signs {
    leads: BTreeMap<Life, Timestamp>,
    heard: BTreeMap<(Life, CellId), Heard>,
    probed: BTreeMap<(Life, CellId), Timestamp>,
    /// When a BBS got any heartbeat of a cell last, of whatever run: it may have believed it.
    any: BTreeMap<(Life, CellId), Timestamp>,
    /// When a BBS believed last that most cells are lost: those that follow are of the same loss.
    believed: BTreeMap<Life, Timestamp>,
    /// The runs of each cell's rep: the one that lives, and the greatest of all. They differ if its clock was set back.
    runs: BTreeMap<CellId, (Incarnation, Incarnation)>,
}

/// What a BBS heard of a cell.
struct Heard {
    /// When, in order.
    at: Vec<Timestamp>,
    /// The run of the rep that was heard last, and the number of its heartbeat.
    run: Incarnation,
    sequence: u64,
}

impl Signs {
    /// A BBS leads from now on: nothing that it heard before counts.
    pub(super) fn leads(&mut self, bbs: Life, now: Timestamp) {
        self.leads.insert(bbs, now);
        self.heard.retain(|(by, _), _| *by != bbs);
        self.any.retain(|(by, _), _| *by != bbs);
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
        self.any.insert((bbs, beat.cell_id.clone()), now);
        let run = beat.presence.incarnation;
        let known = self.heard.get(&(bbs, beat.cell_id.clone()));
        let same = known.filter(|known| known.run == run);
        let newer = same.is_none_or(|known| known.sequence <= beat.sequence);
        let believed = same.is_some() || self.runs.get(&beat.cell_id) == Some(&(run, run));
        if newer && believed {
            self.answered(bbs, beat, now);
        }
    }

    /// A BBS hears that its probe was answered.
    pub(super) fn answered(&mut self, bbs: Life, beat: &Heartbeat, now: Timestamp) {
        let (run, sequence) = (beat.presence.incarnation, beat.sequence);
        let first = Heard { at: vec![], run, sequence };
        let heard = self.heard.entry((bbs, beat.cell_id.clone())).or_insert(first);
        heard.at.push(now);
        (heard.run, heard.sequence) = (run, sequence);
    }

    /// A BBS asks a cell whether it is there.
    pub(super) fn probes(&mut self, bbs: Life, cell: &CellId, now: Timestamp) {
        self.probed.insert((bbs, cell.clone()), now);
    }

    /// A BBS takes a cell for lost, to which these are present.
    pub(super) fn loses(
        &mut self,
        bbs: Life,
        lost: &CellId,
        present: &[CellId],
        (now, clock_slack): (Timestamp, Duration),
        notes: &mut Notes,
    ) {
        let silence = self.silence(bbs, lost, now);
        let unnoticed = clock_slack.min(UNNOTICED);
        let long = silence + unnoticed >= SILENCE;
        notes.must(P::LostInTime, long, || format!("{lost} was silent for {silence:?}"));
        let asked = self.probed.get(&(bbs, lost.clone())).is_some_and(|asked| now.since(*asked) < silence);
        notes.must(P::LostInTime, asked, || format!("{lost} was not asked since it fell silent"));
        // Of one that was never heard only the log tells, and since then it may be silent.
        let surely = |cell: &CellId| {
            let any = self.any.get(&(bbs, cell.clone()))?;
            Some(self.silence(bbs, cell, now).min(now.since(*any)))
        };
        let long = SILENCE / 2 + unnoticed;
        let silent = present.iter().filter_map(surely).filter(|silence| *silence >= long).count();
        if silent < 2 || silent * 2 <= present.len() {
            return;
        }
        // Some were silent a while ago already. How many were most then is another matter: others have come since.
        let before = now - MASS_LOSS_WAIT + unnoticed;
        let was_silent = |cell: &CellId| self.silence(bbs, cell, before) + unnoticed >= SILENCE / 2;
        let cells: BTreeSet<&CellId> = self.runs.keys().chain(present).collect();
        let waited = cells.into_iter().filter(|cell| was_silent(cell)).count() >= 2;
        let goes_on = self.believed.get(&bbs).is_some_and(|at| now.since(*at) < SILENCE + MASS_LOSS_WAIT);
        notes.must(P::LostInTime, waited || goes_on, || {
            format!("{lost} is lost as soon as {silent} of {} cells are silent", present.len())
        });
        self.believed.insert(bbs, now);
    }

    /// How long a BBS had heard nothing of a cell at a moment, while it led.
    fn silence(&self, bbs: Life, cell: &CellId, at: Timestamp) -> Duration {
        let heard = self.heard.get(&(bbs, cell.clone()));
        let heard = heard.and_then(|heard| heard.at.iter().rev().find(|time| **time <= at));
        let led = self.leads.get(&bbs).copied().unwrap_or_default();
        at.since(led.max(heard.copied().unwrap_or_default()))
    }
}
