//! Presence of cells, detected by their heartbeats (docs/internals/model/cells.md, "Cells").
//!
//! A cell is lost after 15 s of silence and one unanswered probe. Time in which the BBS itself was paused,
//! disconnected or not leading does not count as silence. If more than half of the cells, and at least two,
//! fall silent together, the probable cause is the network. The silent cells then count as lost only after
//! another minute.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::Timestamp;
use schemas::message::Heartbeat;
use schemas::names::{CellId, FolderId, Incarnation};

/// Timeouts of the presence detection.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Silence after which a cell is probed.
    pub silence: Duration,
    /// Additional time before silent cells count as lost if most cells are silent. A network fault is then
    /// the probable cause.
    pub mass_loss_wait: Duration,
    /// Maximum time between two calls of [`Presence::check`]. If more time passes, the BBS is assumed to have
    /// been paused.
    pub pause: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            silence: Duration::from_secs(15),
            mass_loss_wait: Duration::from_secs(60),
            pause: Duration::from_secs(3),
        }
    }
}

/// Time for which the BBS remembers a cell that the log does not record as present. Within this time, the BBS
/// recognises delayed heartbeats of that cell.
const ABSENT_CELL_RETENTION: Duration = Duration::from_mins(10);

/// The leader's record of the last sign of life of each cell: a heartbeat or a response to a probe.
#[derive(Clone, Debug)]
pub struct Presence {
    settings: Config,
    watches: BTreeMap<CellId, Watch>,
    silences: Silences,
    /// `true` if the next [`Presence::check`] must inspect all cells, even if no cell is due.
    changed: bool,
    looked_at: Timestamp,
    /// Highest number of missing cells reported during the current mass loss; `None` outside of a mass loss.
    mass_loss: Option<usize>,
    is_disconnected: bool,
}

/// Index of the present cells by the time of their last sign of life. With this index, the cost of a
/// heartbeat does not depend on the number of cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Silences {
    /// Cells without a probe, sorted by the time of their last sign of life.
    quiet: BTreeSet<(Timestamp, CellId)>,
    /// Number of cells with a probe in flight or unanswered.
    probed: usize,
}

/// State of a cell in [`Silences`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    /// The log does not record the cell as present.
    Absent,
    /// No probe was sent since the cell's last sign of life. The value is the time of that sign of life.
    Quiet(Timestamp),
    /// A probe is in flight or unanswered.
    Probed,
}

impl Silences {
    fn change(&mut self, cell: &CellId, before: Silence, after: Silence) {
        if before == after {
            return;
        }
        match before {
            Silence::Absent => {}
            Silence::Quiet(heard) => drop(self.quiet.remove(&(heard, cell.clone()))),
            Silence::Probed => self.probed -= 1,
        }
        match after {
            Silence::Absent => {}
            Silence::Quiet(heard) => drop(self.quiet.insert((heard, cell.clone()))),
            Silence::Probed => self.probed += 1,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Watch {
    heard: Timestamp,
    incarnation: Option<Incarnation>,
    /// Data folder of the rep that sent the last sign of life; `None` if no sign of life was received.
    folder: Option<FolderId>,
    sequence: u64,
    probe: Probe,
    /// `true` if the log records the cell as present. The silence of absent cells is ignored.
    present: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    None,
    InFlight,
    Unanswered,
}

/// Evaluation of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeartbeatVerdict {
    /// The cell is alive.
    Alive,
    /// The heartbeat is older than another one that the BBS has already received.
    Old,
    /// The heartbeat may be a delayed copy, so the cell must be probed.
    ///
    /// There are two cases:
    ///
    /// - The incarnation of the heartbeat seems older than the known one. This also happens if the rep's
    ///   clock was set back before the rep started.
    /// - This leader has not received a heartbeat of the known incarnation before, and the content differs
    ///   from the log.
    Doubtful,
}

/// Actions that result from [`Presence::check`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actions {
    pub probe: Vec<CellId>,
    /// Cells that are lost.
    pub lost: Vec<CellId>,
    /// Number of missing cells. `None` unless a mass loss has just started or spread.
    pub mass_loss: Option<usize>,
}

impl Presence {
    /// Returns a record without any cells.
    #[must_use]
    pub fn new(settings: Config) -> Self {
        Self {
            settings,
            watches: BTreeMap::new(),
            silences: Silences::default(),
            changed: true,
            looked_at: Timestamp(0),
            mass_loss: None,
            is_disconnected: false,
        }
    }

    /// Returns `true` during a mass loss: most cells are silent together, so silent cells do not count as
    /// lost yet.
    #[must_use]
    pub const fn guards_mass_loss(&self) -> bool {
        self.mass_loss.is_some()
    }

    /// Returns the number of cells that are watched or remembered.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.watches.len()
    }

    /// Starts the detection when this BBS begins to lead. Signs of life before this time do not count.
    pub fn start_leading(&mut self, now: Timestamp) {
        self.watches.clear();
        self.silences = Silences::default();
        self.changed = true;
        self.reset(now);
    }

    /// Restarts all periods of silence at `now`.
    pub fn reset(&mut self, now: Timestamp) {
        for (cell, watch) in &mut self.watches {
            let before = watch.silence();
            watch.heard = watch.heard.max(now);
            watch.probe = Probe::None;
            self.silences.change(cell, before, watch.silence());
        }
        self.looked_at = now;
        self.mass_loss = None;
    }

    /// Stops counting silence until [`Presence::reconnected`] is called, because a disconnected BBS receives
    /// no heartbeats.
    pub const fn disconnected(&mut self) {
        self.is_disconnected = true;
    }

    /// Resumes counting silence. All periods of silence restart at `now`.
    pub fn reconnected(&mut self, now: Timestamp) {
        self.is_disconnected = false;
        self.reset(now);
    }

    /// Handles a heartbeat. `known` is the last incarnation of the rep in the log. `news` is `true` if the
    /// heartbeat differs from the log.
    pub fn handle_heartbeat(
        &mut self,
        beat: &Heartbeat,
        known: Option<Incarnation>,
        news: bool,
        now: Timestamp,
    ) -> HeartbeatVerdict {
        let incarnation = beat.presence.incarnation;
        self.change(&beat.cell_id, now, |watch| {
            if watch.incarnation.or(known).is_some_and(|known| incarnation < known) {
                return HeartbeatVerdict::Doubtful;
            }
            if news && watch.incarnation.is_none() && known == Some(incarnation) {
                // The sequence number of the last heartbeat is unknown, because only the previous leader
                // received that heartbeat.
                (watch.heard, watch.probe) = (now, Probe::None);
                return HeartbeatVerdict::Doubtful;
            }
            if watch.has_later_than(beat) {
                return HeartbeatVerdict::Old;
            }
            watch.record(beat, now);
            HeartbeatVerdict::Alive
        })
    }

    /// Changes the record of a cell. Creates the record if it does not exist.
    fn change<R>(&mut self, cell: &CellId, now: Timestamp, change: impl FnOnce(&mut Watch) -> R) -> R {
        let watch = self.watches.entry(cell.clone()).or_insert(Watch::since(now));
        let before = watch.silence();
        let changed = change(watch);
        self.silences.change(cell, before, watch.silence());
        changed
    }

    /// Records a heartbeat without evaluating it.
    pub fn record_heartbeat(&mut self, beat: &Heartbeat, now: Timestamp) {
        self.change(&beat.cell_id, now, |watch| watch.record(beat, now));
    }

    /// Handles the response to a probe. The incarnation that responds is the live one.
    ///
    /// Returns `false` if a later heartbeat of that incarnation arrived before the response. The response is
    /// then still a sign of life, but its content is outdated.
    pub fn handle_probe_response(&mut self, beat: &Heartbeat, now: Timestamp) -> bool {
        self.change(&beat.cell_id, now, |watch| {
            let overtaken = watch.has_later_than(beat);
            if overtaken {
                (watch.heard, watch.probe) = (now, Probe::None);
            } else {
                watch.record(beat, now);
            }
            !overtaken
        })
    }

    /// Records that a probe was not answered.
    pub fn handle_probe_timeout(&mut self, cell: &CellId) {
        if let Some(watch) = self.watches.get_mut(cell)
            && watch.probe == Probe::InFlight
        {
            watch.probe = Probe::Unanswered;
            self.changed = true;
        }
    }

    /// Records that the set of present cells in the log may have changed since the last [`Presence::check`].
    pub const fn cells_changed(&mut self) {
        self.changed = true;
    }

    /// Returns `true` if a cell was silent for too long and did not answer a probe.
    #[must_use]
    pub fn is_silent(&self, cell: &CellId) -> bool {
        self.watches.get(cell).is_some_and(|watch| watch.probe == Probe::Unanswered)
    }

    /// Returns the data folder of the rep that acts for a cell; `None` if no rep gave a recent sign of life.
    #[must_use]
    pub fn acting_rep(&self, cell: &CellId, now: Timestamp) -> Option<FolderId> {
        let watch = self.watches.get(cell)?;
        watch.folder.filter(|_| now.since(watch.heard) < self.settings.silence)
    }

    /// Returns the time of a cell's last sign of life. `None` if this BBS has received no sign of life since
    /// it began to lead.
    #[must_use]
    pub fn last_sign_of_life(&self, cell: &CellId) -> Option<Timestamp> {
        self.watches.get(cell).filter(|watch| watch.folder.is_some()).map(|watch| watch.heard)
    }

    /// Removes a cell whose rep has left.
    pub fn forget(&mut self, cell: &CellId) {
        if let Some(watch) = self.watches.remove(cell) {
            self.silences.change(cell, watch.silence(), Silence::Absent);
            self.changed = true;
        }
    }

    /// Returns the time at which the next cell may have been silent for too long.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        if self.is_disconnected {
            return None;
        }
        let probed = (self.silences.probed > 0).then(|| self.looked_at + Duration::from_secs(1));
        probed.into_iter().chain(self.first_silence()).min()
    }

    /// Returns the time at which the first cell without a probe will have been silent for too long.
    fn first_silence(&self) -> Option<Timestamp> {
        self.silences.quiet.first().map(|(heard, _)| *heard + self.settings.silence)
    }

    /// Checks the cells that the log records as present. A BBS calls this function after every input. For
    /// speed, the function inspects the cells only if a cell is due or the set of cells may have changed.
    pub fn check<'a>(&mut self, present: impl Iterator<Item = &'a CellId>, now: Timestamp) -> Actions {
        if self.is_disconnected {
            self.looked_at = now;
            return Actions::default();
        }
        if now.since(self.looked_at) > self.settings.pause {
            self.reset(now);
        }
        self.looked_at = now;
        if !self.changed && !self.is_due(now) {
            return Actions::default();
        }
        self.changed = false;
        self.watch_present(present, now);
        let mut look = Actions::default();
        for (cell, watch) in self.watches.iter_mut().filter(|(_, watch)| watch.present) {
            if now.since(watch.heard) < self.settings.silence {
                continue;
            }
            match watch.probe {
                Probe::None => {
                    self.silences.change(cell, watch.silence(), Silence::Probed);
                    watch.probe = Probe::InFlight;
                    look.probe.push(cell.clone());
                }
                Probe::InFlight => {}
                Probe::Unanswered => look.lost.push(cell.clone()),
            }
        }
        self.guard_mass_loss(&mut look, now);
        look
    }

    /// Returns `true` if a cell was silent for too long, if a cell is probed, or if a mass loss may be over.
    fn is_due(&self, now: Timestamp) -> bool {
        self.mass_loss.is_some()
            || self.silences.probed > 0
            || self.first_silence().is_some_and(|silent| silent <= now)
    }

    /// Watches the present cells. Removes absent cells after [`ABSENT_CELL_RETENTION`].
    fn watch_present<'a>(&mut self, present: impl Iterator<Item = &'a CellId>, now: Timestamp) {
        let present: BTreeSet<&CellId> = present.collect();
        for (cell, watch) in &mut self.watches {
            let before = watch.silence();
            watch.present = present.contains(cell);
            self.silences.change(cell, before, watch.silence());
        }
        for cell in present {
            if !self.watches.contains_key(cell) {
                self.change(cell, now, |watch| watch.present = true);
            }
        }
        self.watches.retain(|_, watch| watch.present || now.since(watch.heard) < ABSENT_CELL_RETENTION);
    }

    /// Delays losses while most cells are missing. A missing cell then counts as lost only after
    /// `mass_loss_wait` of additional silence.
    ///
    /// The additional silence is measured for each cell separately, so a cell that falls silent later gets
    /// the full time. Even if the network fails for all cells at once, the cells sent their last heartbeats
    /// at different times. To detect such a fault early, this function counts a cell as missing after half of
    /// the normal silence.
    fn guard_mass_loss(&mut self, look: &mut Actions, now: Timestamp) {
        let quiet = |watch: &&Watch| now.since(watch.heard) >= self.settings.silence / 2;
        let present = || self.watches.values().filter(|watch| watch.present);
        let missing = present().filter(quiet).count();
        if missing < 2 || missing * 2 <= present().count() {
            return self.end_mass_loss(look);
        }
        let long = self.settings.silence + self.settings.mass_loss_wait;
        let believed =
            |cell: &CellId| self.watches.get(cell).is_some_and(|watch| now.since(watch.heard) >= long);
        let silent = look.lost.len();
        look.lost.retain(believed);
        if look.lost.len() < silent {
            let told = self.mass_loss.unwrap_or(0);
            look.mass_loss = Some(missing).filter(|missing| *missing > told);
            self.mass_loss = Some(told.max(missing));
        }
    }

    /// Ends a mass loss because most cells are present. The cells that are still silent may be about to
    /// return, so they are probed again.
    fn end_mass_loss(&mut self, look: &mut Actions) {
        if self.mass_loss.take().is_some() {
            for cell in look.lost.drain(..) {
                if let Some(watch) = self.watches.get_mut(&cell) {
                    watch.probe = Probe::InFlight;
                }
                look.probe.push(cell);
            }
        }
    }
}

impl Watch {
    const fn silence(&self) -> Silence {
        match (self.present, self.probe) {
            (false, _) => Silence::Absent,
            (true, Probe::None) => Silence::Quiet(self.heard),
            (true, Probe::InFlight | Probe::Unanswered) => Silence::Probed,
        }
    }

    const fn since(now: Timestamp) -> Self {
        Self { heard: now, incarnation: None, folder: None, sequence: 0, probe: Probe::None, present: false }
    }

    const fn record(&mut self, beat: &Heartbeat, now: Timestamp) {
        *self = Self {
            heard: now,
            incarnation: Some(beat.presence.incarnation),
            folder: Some(beat.presence.folder),
            sequence: beat.sequence,
            probe: Probe::None,
            present: self.present,
        };
    }

    /// Returns `true` if a later heartbeat of the same incarnation has already arrived.
    fn has_later_than(&self, beat: &Heartbeat) -> bool {
        self.incarnation == Some(beat.presence.incarnation) && beat.sequence < self.sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(count: usize) -> Vec<CellId> {
        (0..count).map(|at| CellId::new(&format!("c{at}")).unwrap()).collect()
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn quiet_until(presence: &mut Presence, cells: &[CellId], seconds: u64) -> Actions {
        let mut look = Actions::default();
        for second in 0..=seconds {
            look = presence.check(cells.iter(), at(second));
            for cell in look.probe.clone() {
                presence.handle_probe_timeout(&cell);
            }
            if !look.lost.is_empty() {
                break;
            }
        }
        look
    }

    #[test]
    fn silent_cell_with_unanswered_probe_is_lost() {
        let cells = cells(1);
        let mut presence = Presence::new(Config::default());
        assert_eq!(quiet_until(&mut presence, &cells, 14), Actions::default());
        assert_eq!(presence.check(cells.iter(), at(15)).probe, cells);
        assert_eq!(presence.check(cells.iter(), at(16)), Actions::default(), "the probe is still in flight");
        presence.handle_probe_timeout(&cells[0]);
        assert_eq!(presence.check(cells.iter(), at(17)).lost, cells);
    }

    #[test]
    fn silence_index_matches_watches_and_skipped_check_misses_nothing() {
        let cells = cells(9);
        let mut presence = Presence::new(Config::default());
        // A pseudo-random number generator.
        let mut state = 1_u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut present = &cells[..];
        for second in 0..3_000 {
            let cell = &cells[usize::try_from(draw(9)).unwrap()];
            match draw(12) {
                0..=3 => {
                    if let absent @ 0..10 = usize::try_from(draw(40)).unwrap() {
                        present = &cells[absent.min(cells.len())..];
                        presence.cells_changed();
                    }
                    let mut full = presence.clone();
                    full.cells_changed();
                    let look = full.check(present.iter(), at(second));
                    assert_eq!(
                        presence.check(present.iter(), at(second)),
                        look,
                        "the skipped check had nothing due"
                    );
                }
                4..=6 => presence.change(cell, at(second), |watch| watch.heard = at(second)),
                7 => presence.change(cell, at(second), |watch| watch.probe = Probe::None),
                8..=9 => presence.handle_probe_timeout(cell),
                10 => presence.forget(cell),
                _ => presence.reset(at(second.saturating_sub(9))),
            }
            let mut expected = Silences::default();
            for (cell, watch) in &presence.watches {
                expected.change(cell, Silence::Absent, watch.silence());
            }
            assert_eq!(presence.silences, expected, "after {second} s");
        }
    }

    #[test]
    fn pause_of_bbs_does_not_count_as_silence() {
        let cells = cells(1);
        let mut presence = Presence::new(Config::default());
        quiet_until(&mut presence, &cells, 10);
        assert_eq!(presence.check(cells.iter(), at(100)), Actions::default());
        assert_eq!(presence.check(cells.iter(), at(102)), Actions::default());
        // The probe was in flight during the pause, so its failure does not count either.
        let mut presence = Presence::new(Config::default());
        quiet_until(&mut presence, &cells, 14);
        assert_eq!(presence.check(cells.iter(), at(15)).probe, cells);
        presence.check(cells.iter(), at(100));
        presence.handle_probe_timeout(&cells[0]);
        assert!(!presence.is_silent(&cells[0]));
        assert_eq!(presence.next_due(), Some(at(115)));
    }

    #[test]
    fn disconnected_bbs_loses_no_cell() {
        let cells = cells(1);
        let mut presence = Presence::new(Config::default());
        quiet_until(&mut presence, &cells, 10);
        presence.disconnected();
        for second in 11..60 {
            assert_eq!(presence.check(cells.iter(), at(second)), Actions::default());
        }
        presence.reconnected(at(60));
        assert_eq!(presence.check(cells.iter(), at(62)), Actions::default());
        assert_eq!(presence.next_due(), Some(at(75)));
    }

    #[test]
    fn mass_loss_is_confirmed_after_wait() {
        let cells = cells(4);
        let mut presence = Presence::new(Config::default());
        quiet_until(&mut presence, &cells, 15);
        assert!(!presence.guards_mass_loss());
        assert_eq!(presence.check(cells.iter(), at(16)).mass_loss, Some(4));
        assert!(presence.guards_mass_loss());
        let mut lost = vec![];
        for second in 17..=75 {
            assert_eq!(lost, []);
            let look = presence.check(cells.iter(), at(second));
            assert_eq!(look.mass_loss, None, "reported once");
            lost = look.lost;
        }
        assert_eq!(lost, cells);
    }

    #[test]
    fn mass_loss_wait_is_measured_per_cell() {
        let cells = cells(5);
        let (first, second) = cells.split_at(3);
        let mut presence = Presence::new(Config::default());
        let mut lost = BTreeMap::new();
        for now in 0..=140 {
            if now <= 60 {
                second.iter().for_each(|cell| {
                    presence.handle_heartbeat(&beat(cell, 1, now), None, false, at(now));
                });
            }
            let present: Vec<CellId> =
                cells.iter().filter(|cell| !lost.contains_key(*cell)).cloned().collect();
            presence.cells_changed();
            let look = presence.check(present.iter(), at(now));
            look.probe.iter().for_each(|cell| presence.handle_probe_timeout(cell));
            lost.extend(look.lost.into_iter().map(|cell| (cell, now)));
        }
        let when = |cells: &[CellId]| cells.iter().map(|cell| lost[cell]).collect::<Vec<_>>();
        assert_eq!((when(first), when(second)), (vec![75; 3], vec![135; 2]));
    }

    #[test]
    fn forgotten_cell_has_no_record() {
        let cells = cells(1);
        let mut presence = Presence::new(Config::default());
        presence.handle_heartbeat(&beat(&cells[0], 1, 9), None, false, at(1));
        assert!(
            presence.acting_rep(&cells[0], at(2)).is_some()
                && presence.last_sign_of_life(&cells[0]).is_some()
        );
        presence.forget(&cells[0]);
        assert_eq!(
            (presence.acting_rep(&cells[0], at(2)), presence.last_sign_of_life(&cells[0])),
            (None, None)
        );
        assert_eq!(
            presence.handle_heartbeat(&beat(&cells[0], 1, 1), None, false, at(3)),
            HeartbeatVerdict::Alive
        );
    }

    fn beat(cell: &CellId, incarnation: u64, sequence: u64) -> Heartbeat {
        fixtures::heartbeat(cell.as_str(), incarnation, sequence)
    }

    /// Simulates cells that each send a heartbeat every 5 s. The cells are staggered by 1.5 s. The network
    /// fails after `fails` seconds.
    fn staggered(presence: &mut Presence, cells: &[CellId], fails: u64, until: u64) -> Vec<Actions> {
        let mut looks = vec![];
        for half in 0..=until * 2 {
            let now = Timestamp::from_millis(half * 500);
            for (number, cell) in (0..).zip(cells) {
                if half < fails * 2 && half % 10 == number * 3 {
                    presence.handle_heartbeat(&beat(cell, 1, half), None, false, now);
                }
            }
            let look = presence.check(cells.iter(), now);
            look.probe.iter().for_each(|cell| presence.handle_probe_timeout(cell));
            looks.push(look);
        }
        looks
    }

    #[test]
    fn staggered_silence_counts_as_mass_loss() {
        let cells = cells(3);
        let mut presence = Presence::new(Config::default());
        let looks = staggered(&mut presence, &cells, 20, 75);
        assert!(looks.iter().all(|look| look.lost.is_empty()), "{looks:?}");
        assert_eq!(looks.iter().filter_map(|look| look.mass_loss).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn silent_cell_is_probed_again_after_mass_loss_ends() {
        let cells = cells(3);
        let mut presence = Presence::new(Config::default());
        staggered(&mut presence, &cells, 20, 50);
        let (back, away) = cells.split_at(2);
        for cell in back {
            assert_eq!(
                presence.handle_heartbeat(&beat(cell, 1, 999), None, false, at(51)),
                HeartbeatVerdict::Alive
            );
        }
        let look = presence.check(cells.iter(), at(51));
        assert_eq!((look.probe.as_slice(), look.lost.len()), (away, 0));
        assert_eq!(presence.check(cells.iter(), at(52)), Actions::default(), "the probe is in flight");
        presence.handle_probe_timeout(&away[0]);
        assert_eq!(presence.check(cells.iter(), at(53)).lost, away);
    }

    #[test]
    fn single_silent_cell_of_many_is_lost_without_wait() {
        let all = cells(3);
        let mut presence = Presence::new(Config::default());
        let mut lost = vec![];
        for second in 0..20 {
            all[1..].iter().for_each(|cell| {
                presence.handle_heartbeat(&beat(cell, 1, second), None, false, at(second));
            });
            let look = presence.check(all.iter(), at(second));
            look.probe.iter().for_each(|cell| presence.handle_probe_timeout(cell));
            lost.extend(look.lost.into_iter().map(|cell| (second, cell)));
            if !lost.is_empty() {
                break;
            }
        }
        assert_eq!(lost, [(16, all[0].clone())]);
    }

    #[test]
    fn delayed_heartbeat_is_old_after_cell_is_gone() {
        let cells = cells(1);
        let mut presence = Presence::new(Config::default());
        presence.check(cells.iter(), at(0));
        assert_eq!(
            presence.handle_heartbeat(&beat(&cells[0], 2, 7), None, false, at(1)),
            HeartbeatVerdict::Alive
        );
        presence.cells_changed();
        presence.check([].iter(), at(2));
        assert_eq!(
            presence.handle_heartbeat(&beat(&cells[0], 2, 6), None, false, at(3)),
            HeartbeatVerdict::Old
        );
        assert_eq!(
            presence.handle_heartbeat(&beat(&cells[0], 1, 99), None, false, at(3)),
            HeartbeatVerdict::Doubtful
        );
        assert_eq!(
            presence.handle_heartbeat(&beat(&cells[0], 3, 1), None, false, at(3)),
            HeartbeatVerdict::Alive
        );
        assert_eq!(presence.next_due(), None, "a cell that is not present has no deadline");
    }

    #[test]
    fn rep_with_earlier_incarnation_is_accepted_after_probe() {
        let cells = cells(1);
        let mut presence = Presence::new(Config::default());
        presence.check(cells.iter(), at(0));
        presence.handle_heartbeat(&beat(&cells[0], 2, 7), None, false, at(1));
        let later = beat(&cells[0], 1, 1);
        assert_eq!(presence.handle_heartbeat(&later, None, false, at(2)), HeartbeatVerdict::Doubtful);
        presence.handle_probe_response(&later, at(3));
        assert_eq!(
            presence.handle_heartbeat(&beat(&cells[0], 1, 2), None, false, at(4)),
            HeartbeatVerdict::Alive
        );
        // A new leader reads the incarnation from the log.
        let mut fresh = Presence::new(Config::default());
        let known = Some(Incarnation(uuid::Uuid::from_u64_pair(2, 0)));
        assert_eq!(fresh.handle_heartbeat(&later, known, false, at(2)), HeartbeatVerdict::Doubtful);
    }
}
