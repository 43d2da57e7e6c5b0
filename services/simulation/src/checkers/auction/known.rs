//! What an auctioneer was told, and so what it may believe: at least and at most.
//!
//! What is free of a cell is what its rep said last, less what the auctioneer gave it since (docs/internals/model/rep.md, "Free resources"). Whether something is still on its way is not always to be known: then the bounds are apart.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use machines::cell;
use projections::{WorkRef, World};
use schemas::container::WorkKey;
use schemas::message::{Heartbeat, PerformReply, PlacementOutcome, Work};
use schemas::names::{CellId, Incarnation, ProcessGuid};
use schemas::resources::Resources;
use schemas::{ActualLrpKey, Place, Refusal, Timestamp};

/// A cell that was heard within this time, and answered, takes work (three heartbeats, docs/internals/model/auction.md); and one that was
/// not heard for this long takes none. Clocks and messages take their time in between.
const HEARD: Duration = Duration::from_secs(12);
pub(super) const SILENT: Duration = Duration::from_secs(20);
/// What was given to a rep this lately is still on its way; and it is for this long at most.
const ON_ITS_WAY: Duration = Duration::from_secs(8);
const FORGOTTEN: Duration = Duration::from_secs(120);
/// What reps refused too often is tried again after 60 s (docs/internals/model/auction.md), or when room appears.
const REFUSED: Duration = Duration::from_secs(65);

/// At least and at most; of what is true or false: surely and possibly.
pub(super) type Bounds<T> = (T, T);

/// The true time, and what the clock of the auctioneer shows.
pub(super) type Times = (Timestamp, Timestamp);

/// What one auctioneer was told, and what it gave.
#[derive(Default)]
pub(super) struct Known {
    term: u64,
    /// What each run of each cell's rep said last.
    said: BTreeMap<(CellId, Incarnation), Said>,
    /// The run that was heard last of each cell.
    last_run: BTreeMap<CellId, Incarnation>,
    /// When something was heard of a cell out of turn: nobody knows then what is believed of it.
    muddled: BTreeMap<CellId, Timestamp>,
    given: Vec<Given>,
    /// When a rep last refused something of a process, or a task.
    refusals: BTreeMap<String, Timestamp>,
}

/// The last heartbeat of a run of a rep, and what came after it.
#[derive(Clone, Copy, Debug)]
struct Said {
    sequence: u64,
    at: Times,
    free: Resources,
    evacuating: bool,
    unhealthy: bool,
    /// The last `Perform` of the auctioneer's own term that the rep has counted.
    counted: u64,
    /// Whether the rep left something unanswered since, or could not judge it.
    unanswered: bool,
}

/// A piece of work that was given to a cell.
struct Given {
    cell: CellId,
    /// The message, and the place in it.
    number: u64,
    place: usize,
    key: WorkKey,
    attempt: Timestamp,
    size: Resources,
    at: Times,
    /// The run of the rep that the log knew.
    incarnation: Option<Incarnation>,
    /// Whether anything else than "taken" came back, or may have.
    doubtful: bool,
    /// When the rep refused it.
    refused: Option<Timestamp>,
    /// Whether it was given again to a rep that had taken it: what is free is without it.
    again: bool,
    /// Whether it still waits for a place, and is not placed in this auction.
    waits: bool,
}

/// A cell as an auctioneer may see it.
pub(super) struct Seen<'a> {
    pub(super) id: &'a CellId,
    pub(super) log: &'a cell::Cell,
    /// When its rep was heard last.
    pub(super) heard: Option<Timestamp>,
    pub(super) free: Bounds<Resources>,
    pub(super) evacuating: Bounds<bool>,
    pub(super) cordoned: Bounds<bool>,
    pub(super) unhealthy: Bounds<bool>,
    pub(super) silent: Bounds<bool>,
    /// Whether it takes work: nothing of the above.
    pub(super) open: Bounds<bool>,
}

impl Known {
    pub(super) fn hears(&mut self, beat: &Heartbeat, at: Times) {
        let run = (beat.cell_id.clone(), beat.presence.incarnation);
        let last = self.last_run.insert(run.0.clone(), run.1);
        let before = self.said.get(&run);
        let old = before.is_some_and(|said| said.sequence >= beat.sequence);
        let late = before.is_some_and(|said| old && at.0.since(said.at.0) > HEARD / 4);
        if late || before.is_some() && last != Some(run.1) {
            self.muddled.insert(run.0.clone(), at.0);
        }
        if old {
            return;
        }
        let counted = if beat.performed.term == self.term { beat.performed.number } else { 0 };
        let said = Said {
            sequence: beat.sequence,
            at,
            free: beat.free,
            evacuating: beat.evacuating,
            unhealthy: beat.unhealthy.is_some(),
            counted: before.map_or(0, |said| said.counted).max(counted),
            unanswered: false,
        };
        self.said.insert(run, said);
    }

    /// The log says something of a cell: what its rep said and was given before may be forgotten.
    pub(super) fn recorded(&mut self, cell: &CellId) {
        self.given.iter_mut().filter(|given| given.cell == *cell).for_each(|given| given.doubtful = true);
        self.unheard(cell);
    }

    /// What a rep answered, or that it didn't.
    pub(super) fn answered(
        &mut self,
        (cell, number): (&CellId, u64),
        answer: Option<&Result<PerformReply, Refusal>>,
        now: Timestamp,
    ) {
        let performed = answer.and_then(|answer| answer.as_ref().ok());
        let refused: BTreeSet<usize> = performed.map_or_else(BTreeSet::new, |one| {
            one.refused.iter().filter_map(|(at, _)| usize::try_from(*at).ok()).collect()
        });
        if performed.is_some() && refused.is_empty() {
            return;
        }
        for given in self.given.iter_mut().filter(|given| given.cell == *cell && given.number == number) {
            given.doubtful = true;
            given.refused = refused.contains(&given.place).then_some(now);
            if given.refused.is_some() {
                self.refusals.insert(guid_of(&name_of(&given.key)), now);
            }
        }
        if performed.is_none() {
            self.unheard(cell);
        }
    }

    /// A cell may get nothing until it is heard again.
    fn unheard(&mut self, cell: &CellId) {
        let of_cell = self.said.iter_mut().filter(|((id, _), _)| id == cell);
        of_cell.for_each(|(_, said)| said.unanswered = true);
    }

    /// Nobody knows for a while what is believed of a cell.
    pub(super) fn muddle(&mut self, cell: &CellId, now: Timestamp) {
        self.muddled.insert(cell.clone(), now);
    }

    /// It leads in this term: what it gave before is another term's. Answers whether it didn't yet.
    pub(super) fn leads(&mut self, term: u64) -> bool {
        let begins = term != self.term;
        if begins {
            self.term = term;
            self.given.clear();
            self.said.values_mut().for_each(|said| said.counted = 0);
        }
        begins
    }

    /// Work went to a cell, in this message and at this place of it.
    pub(super) fn give(
        &mut self,
        world: &World,
        (cell, number, place): (&CellId, u64, usize),
        work: &Work,
        at: Times,
    ) {
        self.given.push(Given {
            cell: cell.clone(),
            number,
            place,
            key: work.key.clone(),
            attempt: work.attempt,
            size: work.definition.resources(),
            at,
            incarnation: world.cell(cell).map(|log| log.presence.incarnation),
            doubtful: false,
            refused: None,
            again: work.placement.is_none(),
            waits: true,
        });
    }

    /// Forgets what is long over, and notes what still waits; `judged` is what is placed now.
    pub(super) fn tidy(&mut self, world: &World, now: Times, judged: impl Fn(&WorkKey) -> bool) {
        for given in &mut self.given {
            given.waits = is_open(world, &given.key, given.attempt);
        }
        self.given.retain(|given| given.waits || given.is_younger(FORGOTTEN, now));
        self.refusals.retain(|_, at| now.0.since(*at) < REFUSED);
        self.given.iter_mut().for_each(|given| given.waits &= !judged(&given.key));
    }

    /// The cells to which this attempt was given before, with the time at which each refused it.
    pub(super) fn tried<'a>(
        &'a self,
        work: &'a Work,
    ) -> impl Iterator<Item = (&'a CellId, Option<Timestamp>)> {
        let same = |one: &&Given| one.key == work.key && one.attempt == work.attempt;
        self.given.iter().filter(same).map(|one| (&one.cell, one.refused))
    }

    /// What has no place is told: with the next room that appears it is tried anew, wherever it was refused before.
    pub(super) fn told(&mut self, outcome: &PlacementOutcome) {
        let mut anew = |work: &WorkRef, attempt: Timestamp| {
            let same = |one: &&mut Given| name_of(&one.key) == *work && one.attempt == attempt;
            self.given.iter_mut().filter(same).for_each(|one| one.refused = None);
        };
        match outcome {
            PlacementOutcome::Lrp { process_guid, outcome, .. } => {
                let each = outcome.unplaced.iter();
                each.for_each(|one| anew(&lrp(process_guid, &one.place), one.attempt));
            }
            PlacementOutcome::Task { task_guid, epoch, .. } => {
                anew(&WorkRef::Task(task_guid.clone()), epoch.0);
            }
        }
    }

    /// Whether a cell was given this attempt, and may have it.
    pub(super) fn was_given(&self, work: &WorkRef, attempt: Timestamp) -> bool {
        self.given.iter().any(|one| name_of(&one.key) == *work && one.attempt == attempt)
    }

    /// Whether a rep may have refused this attempt: then it may have failed for that reason.
    pub(super) fn was_refused(&self, work: &WorkRef, attempt: Timestamp) -> bool {
        let same = |one: &Given| name_of(&one.key) == *work && one.attempt == attempt;
        self.given.iter().any(|one| same(one) && one.doubtful)
    }

    /// Whether something of the same evaluation may wait because reps refused it too often.
    pub(super) fn may_be_put_off(&self, work: &WorkRef) -> bool {
        self.refusals.contains_key(&guid_of(work))
    }

    /// How much work surely is with cells, and not claimed.
    pub(super) fn unclaimed(&self, world: &World, now: Times) -> usize {
        let run = |cell: &CellId| world.cell(cell).map(|log| log.presence.incarnation);
        let there = self.given.iter().filter(|one| one.waits);
        let there = there.filter(|one| run(&one.cell).is_some_and(|run| one.is_on_its_way(run, now)));
        there.map(|one| &one.key).collect::<BTreeSet<&WorkKey>>().len()
    }

    /// How many instances of a process are on their way to a cell.
    pub(super) fn on_its_way(
        &self,
        guid: &ProcessGuid,
        (cell, run): (&CellId, Option<Incarnation>),
        now: Times,
    ) -> Bounds<u32> {
        let mut last: BTreeMap<&Place, &Given> = BTreeMap::new();
        for one in self.given.iter().filter(|one| one.waits) {
            if let WorkKey::Lrp { key, .. } = &one.key
                && key.process_guid == *guid
            {
                last.insert(&key.place, one);
            }
        }
        let there: Vec<&Given> = last.into_values().filter(|one| one.cell == *cell).collect();
        let sure = |one: &&&Given| run.is_some_and(|run| one.is_on_its_way(run, now));
        (count(there.iter().filter(sure).count()), count(there.len()))
    }

    /// What is free of a cell: all that was given and not counted is taken from it, or what surely is on its way.
    fn free(&self, cell: &CellId, run: Incarnation, said: &Said, now: Times) -> Bounds<Resources> {
        let uncounted = |one: &&Given| one.cell == *cell && !one.again && one.number > said.counted;
        let uncounted = self.given.iter().filter(uncounted);
        let most = uncounted.clone().fold(Resources::default(), |sum, one| sum.plus(one.size));
        let sure = uncounted.filter(|one| one.is_on_its_way(run, now));
        let least = sure.fold(Resources::default(), |sum, one| sum.plus(one.size));
        (said.free.minus(most), said.free.minus(least))
    }

    /// A cell as it may be seen.
    pub(super) fn sees<'a>(&self, id: &'a CellId, log: &'a cell::Cell, now: Times) -> Seen<'a> {
        let run = log.presence.incarnation;
        let muddled = self.muddled.get(id).is_some_and(|at| now.0.since(*at) < SILENT);
        let said = self.said.get(&(id.clone(), run));
        // Who hears of two runs at once may have lost what one of them said.
        let confused = self
            .said
            .iter()
            .any(|((of, other), said)| of == id && *other != run && now.0.since(said.at.0) < SILENT);
        let heard = said.map_or((false, false), |said| said.is_heard(now));
        let heard = if muddled { (false, true) } else { (heard.0 && !confused, heard.1) };
        let says = |what: &dyn Fn(&Said) -> bool| {
            let told = said.is_some_and(what);
            (told && heard.0, told && heard.1 || muddled)
        };
        let either = |known: bool, said: Bounds<bool>| (known || said.0, known || said.1);
        let evacuating = either(log.evacuating || log.evacuation_requested, says(&|said| said.evacuating));
        let cordoned = (log.cordoned && !evacuating.1, log.cordoned && !evacuating.0);
        let sick = either(log.unhealthy.is_some(), says(&|said| said.unhealthy));
        let closed = (evacuating.0 || cordoned.0, evacuating.1 || cordoned.1);
        let unhealthy = (sick.0 && !closed.1, sick.1 && !closed.0);
        let other = (closed.0 || unhealthy.0, closed.1 || unhealthy.1);
        let free = said.filter(|_| !muddled).map(|said| self.free(id, run, said, now));
        Seen {
            id,
            log,
            heard: said.map(|said| said.at.0),
            free: free.unwrap_or((Resources::default(), log.presence.total)),
            evacuating,
            cordoned,
            unhealthy,
            silent: (!heard.1 && !other.1, !heard.0 && !other.0),
            open: (heard.0 && !other.1, heard.1 && !other.0),
        }
    }
}

impl Said {
    /// Whether it counts, as far as silence goes.
    fn is_heard(&self, now: Times) -> Bounds<bool> {
        let age = (now.0.since(self.at.0), now.1.since(self.at.1));
        let lately = age.0 < HEARD && age.1 < HEARD;
        let long_ago = age.0 > SILENT && age.1 > SILENT;
        (lately && !self.unanswered, !long_ago)
    }
}

impl Given {
    fn is_younger(&self, age: Duration, now: Times) -> bool {
        now.0.since(self.at.0) < age && now.1.since(self.at.1) < age
    }

    fn is_on_its_way(&self, run: Incarnation, now: Times) -> bool {
        self.is_younger(ON_ITS_WAY, now) && !self.doubtful && self.incarnation == Some(run)
    }
}

/// Whether work waits for a place, in this attempt.
fn is_open(world: &World, key: &WorkKey, attempt: Timestamp) -> bool {
    match key {
        WorkKey::Lrp { key: ActualLrpKey { process_guid, place }, epoch } => {
            let process = world.process(process_guid).filter(|process| process.epoch == *epoch);
            process.is_some_and(|process| {
                let lrp = process.actual(place).filter(|lrp| lrp.is_unclaimed() && lrp.since == attempt);
                lrp.is_some() && process.is_desired(place)
            })
        }
        WorkKey::Task { task_guid, epoch } => {
            world.task(task_guid).is_some_and(|task| task.epoch == *epoch && task.is_pending())
        }
    }
}

pub(in crate::checkers) fn name_of(key: &WorkKey) -> WorkRef {
    match key {
        WorkKey::Lrp { key, .. } => WorkRef::Lrp(key.clone()),
        WorkKey::Task { task_guid, .. } => WorkRef::Task(task_guid.clone()),
    }
}

/// The name of an instance of a process.
pub(in crate::checkers) fn lrp(guid: &ProcessGuid, place: &Place) -> WorkRef {
    WorkRef::Lrp(ActualLrpKey::new(guid.clone(), place.clone()))
}

pub(super) fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The name of the process or the task.
fn guid_of(work: &WorkRef) -> String {
    match work {
        WorkRef::Lrp(key) => format!("process {}", key.process_guid),
        WorkRef::Task(guid) => format!("task {guid}"),
    }
}
