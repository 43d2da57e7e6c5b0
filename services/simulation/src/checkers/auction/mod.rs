//! The auction: every choice judged again, from what its auctioneer had been told.
//!
//! An auctioneer knows the log as far as it was delivered to it, and what reps said and answered. From that two bounds of
//! what it may believe are kept: what is free of each cell and how many siblings are where, at least and at most. A choice
//! is wrong if another cell is better whatever of it is true; so is an error, or an explanation, that no bound allows.
//!
//! | the file | holds |
//! |---|---|
//! | `known` | what an auctioneer was told, and what it gave |
//! | `order` | whose turn it is |
//! | `evictions` | what is to stop, and for whom its room is kept |
//! | `rank` | how good a place is |
//! | `wishes` | how good it is by affinity and spread |
//! | this one | what is judged |

mod evictions;
pub(super) mod known;
mod order;
pub(super) mod rank;
mod wishes;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use projections::{WorkRef, World};
use schemas::container::WorkKey;
use schemas::message::{Heartbeat, Outcomes, Perform, PerformReply, PlacementOutcome, Work, WorkDefinition};
use schemas::names::CellId;
use schemas::placement::{
    Candidate, Eligibility, Explanation, INSUFFICIENT_RESOURCES, NO_COMPATIBLE_CELLS, ROOM_PENDING_SUFFIX,
    UNREACHABLE_CELLS,
};
use schemas::process::Outcome;
use schemas::resources::{CellClass, Constraint, Mismatch, Resources};
use schemas::rules::Rule;
use schemas::{Refusal, Timestamp};

use self::evictions::Awaited;
use self::known::{Bounds, Known, SILENT, Seen, Times, count, name_of};
use self::order::{Turn, Waiting};
use self::rank::{Merit, Siblings};
use super::Notes;
use crate::coverage::Situation;
use crate::nodes::Life;
use crate::promises::Promise;
use crate::{racks, walls};

/// Most candidates of an explanation (docs/internals/model/auction.md, "Auction").
const CANDIDATES: usize = 5;
/// What a rep refused is in the next auction, which is so soon. Later it may have been blocked without a word, which forgets who refused.
const AT_ONCE: Duration = Duration::from_millis(5);
/// Most cells of too little isolation that an error names.
const WEAK: usize = 3;
/// What a cell can lack, as errors and explanations name it.
const LACKS: [&str; 4] = ["containers", "disk", "memory", "ports"];

/// What every auctioneer was told.
pub(super) struct Auctions {
    /// Most work that cells may have and nobody claimed.
    outstanding: usize,
    known: BTreeMap<Life, Known>,
    /// When one last chose by a picture that was behind the log.
    behind: BTreeMap<Life, Timestamp>,
    /// Work for which room is being made.
    awaited: Vec<Awaited>,
}

/// Work that went to a cell, or found none.
enum Choice<'a> {
    Placed(&'a CellId, &'a Work, &'a Explanation),
    Failed(Failed<'a>),
}

struct Failed<'a> {
    work: WorkRef,
    attempt: Timestamp,
    constraint: &'a Constraint,
    size: Resources,
    error: &'a str,
    /// Of several indices the last one's.
    why: Option<&'a Explanation>,
}

/// One auction under way.
struct Auction<'a> {
    cells: Vec<Seen<'a>>,
    siblings: Siblings<'a>,
    /// The only cell that may take what is judged.
    only: Option<CellId>,
    /// What waits and finds no place in this auction.
    waiting: Vec<Waiting<'a>>,
    notes: Notes,
}

impl Auctions {
    /// Auctioneers that let cells have no more work than this which nobody claimed.
    pub(super) fn new(outstanding: usize) -> Self {
        Self { outstanding, known: BTreeMap::new(), behind: BTreeMap::new(), awaited: vec![] }
    }

    /// A heartbeat reaches an auctioneer.
    pub(super) fn hears(&mut self, life: Life, beat: &Heartbeat, at: Times) {
        self.known.entry(life).or_default().hears(beat, at);
    }

    /// An auctioneer folds what the log says of a cell.
    pub(super) fn recorded(&mut self, life: Life, cell: &CellId) {
        self.known.entry(life).or_default().recorded(cell);
    }

    /// What a rep answered, or that it didn't, reaches an auctioneer.
    pub(super) fn performed(
        &mut self,
        life: Life,
        of: (&CellId, u64),
        answer: Option<&Result<PerformReply, Refusal>>,
        now: Timestamp,
    ) {
        self.known.entry(life).or_default().answered(of, answer, now);
    }

    /// An auctioneer that is behind the log gave work away: nobody judges that, nor what it believes soon after.
    pub(super) fn is_behind(&mut self, life: Life, now: Timestamp, placed: &[(CellId, Perform)]) {
        let known = self.known.entry(life).or_default();
        placed.iter().for_each(|(cell, _)| known.muddle(cell, now));
        self.behind.insert(life, now);
    }

    /// An auctioneer that has folded `world` is done with a batch.
    pub(super) fn judge(
        &mut self,
        life: Life,
        world: &World,
        now: Times,
        (placed, unplaced): (&[(CellId, Perform)], &[Outcomes]),
    ) -> Notes {
        let known = self.known.entry(life).or_default();
        let terms = placed.iter().map(|(_, perform)| perform.id.term);
        let term = terms.chain(unplaced.iter().map(|one| one.term)).max();
        // What it kept room for in an earlier term it finds anew.
        let begins = term.is_some_and(|term| known.leads(term));
        self.awaited.retain(|one| !begins || one.by() != life);
        evictions::doubt(&mut self.awaited, life, world, now);
        let choices = in_order(world, placed, unplaced);
        known.tidy(world, now, |key| choices.iter().any(|choice| choice.is_about(key)));
        // What is given again is no choice of this auction: it goes where it is already.
        let again = |work: &Work| work.placement.is_none();
        give(known, world, placed, now, again);
        // What reps refused too often was told before the auction, and may have got room by it at once.
        let outcomes = || unplaced.iter().flat_map(|one| &one.outcomes);
        outcomes().filter(|outcome| !is_explained(outcome)).for_each(|outcome| known.told(outcome));
        let waiting = left_waiting(world, known, &choices);
        let mut auction = Auction { waiting, ..Auction::new(world, known, now) };
        let kept = evictions::kept(world, &self.awaited);
        auction.keep(&kept);
        // What is placed in this auction needs no room to be kept.
        let is_placed = |work: &WorkRef| choices.iter().any(|one| one.is_placed() && one.work() == *work);
        let awaited: Vec<Awaited> =
            self.awaited.iter().filter(|one| !is_placed(one.work())).cloned().collect();
        for choice in &choices {
            if let Choice::Placed(cell, work, _) = choice {
                let turn = choice.turn(world);
                auction.keeps_room(life, &awaited, cell, work.definition.resources(), &turn);
            }
            auction.judge(choice);
        }
        auction.evicted(unplaced);
        let waits = auction.waiting.len();
        let mut notes = auction.notes;
        evictions::said(&mut self.awaited, life, unplaced, now);
        give(known, world, placed, now, |work| !again(work));
        let unclaimed = known.unclaimed(world, now);
        notes.must(Promise::ClaimedBeforeMore, unclaimed <= self.outstanding, || {
            format!("{unclaimed} pieces of work are with cells and not claimed")
        });
        if waits > 0 && unclaimed == self.outstanding {
            notes.saw(Situation::WaitsForClaims);
        }
        outcomes().for_each(|outcome| known.told(outcome));
        let settled = self.behind.get(&life).is_none_or(|at| now.0.since(*at) > SILENT);
        if settled { notes } else { Notes::default() }
    }
}

/// Whether an auction found no place: reps that refuse give no explanation.
const fn is_explained(outcome: &PlacementOutcome) -> bool {
    match outcome {
        PlacementOutcome::Lrp { outcome, .. } => outcome.explanation.is_some(),
        PlacementOutcome::Task { unplaced, .. } => unplaced.explanation.is_some(),
    }
}

fn give(
    known: &mut Known,
    world: &World,
    placed: &[(CellId, Perform)],
    now: Times,
    which: impl Fn(&Work) -> bool,
) {
    for (cell, perform) in placed {
        for (at, work) in perform.work.iter().enumerate().filter(|(_, work)| which(work)) {
            known.give(world, (cell, perform.id.number, at), work, now);
        }
    }
}

/// What could have been placed in an auction that placed something, and was not.
fn left_waiting<'a>(world: &'a World, known: &Known, choices: &[Choice<'_>]) -> Vec<Waiting<'a>> {
    let is_placed = |choice: &&Choice<'_>| matches!(choice, Choice::Placed(..));
    let placed: BTreeSet<WorkRef> = choices.iter().filter(is_placed).map(Choice::work).collect();
    if placed.is_empty() {
        return vec![];
    }
    let mut waiting = order::waiting(world, known);
    waiting.retain(|one| !placed.contains(&one.turn.4));
    waiting
}

/// The choices of a batch as they had their turn.
fn in_order<'a>(
    world: &'a World,
    placed: &'a [(CellId, Perform)],
    unplaced: &'a [Outcomes],
) -> Vec<Choice<'a>> {
    let placed = placed.iter().flat_map(|(cell, perform)| perform.work.iter().map(move |work| (cell, work)));
    let placed =
        placed.filter_map(|(cell, work)| Some(Choice::Placed(cell, work, work.placement.as_deref()?)));
    let failed = unplaced.iter().flat_map(|one| &one.outcomes).flat_map(|outcome| failures(world, outcome));
    let mut choices: Vec<Choice<'_>> = placed.chain(failed.map(Choice::Failed)).collect();
    choices.sort_by_cached_key(|choice| choice.turn(world));
    choices
}

/// What of an outcome an auction found, of work that is still as it was judged. What has no explanation was refused so often
/// that it is not tried again: no auction found it.
fn failures<'a>(world: &'a World, outcome: &'a PlacementOutcome) -> Vec<Failed<'a>> {
    let failed = |work: WorkRef, attempt, error, why| {
        let (constraint, size, _) = super::peace::demands(world, &work)?;
        Some(Failed { work, attempt, constraint, size, error, why })
    };
    match outcome {
        PlacementOutcome::Lrp { process_guid, outcome, .. } => {
            let Outcome { unplaced, explanation: Some(why), .. } = outcome else { return vec![] };
            let last = unplaced.iter().max_by_key(|one| one.place.index).map(|one| &one.place);
            let each = unplaced.iter().filter_map(|one| {
                let why = (Some(&one.place) == last).then_some(&**why);
                failed(known::lrp(process_guid, &one.place), one.attempt, one.error.as_str(), why)
            });
            each.collect()
        }
        PlacementOutcome::Task { task_guid, epoch, unplaced } => {
            let Some(why) = &unplaced.explanation else { return vec![] };
            let work = WorkRef::Task(task_guid.clone());
            failed(work, epoch.0, unplaced.error.as_str(), Some(why)).into_iter().collect()
        }
    }
}

impl Choice<'_> {
    fn is_about(&self, key: &WorkKey) -> bool {
        match self {
            Self::Placed(_, work, _) => work.key == *key,
            Self::Failed(failed) => failed.work == name_of(key),
        }
    }

    const fn is_placed(&self) -> bool {
        matches!(self, Self::Placed(..))
    }

    fn work(&self) -> WorkRef {
        match self {
            Self::Placed(_, work, _) => name_of(&work.key),
            Self::Failed(failed) => failed.work.clone(),
        }
    }

    fn turn(&self, world: &World) -> Turn {
        let (work, size, since) = match self {
            Self::Placed(_, work, _) => (name_of(&work.key), work.definition.resources(), work.attempt),
            Self::Failed(failed) => (failed.work.clone(), failed.size, failed.attempt),
        };
        order::turn(world, work, size, since)
    }
}

impl<'a> Auction<'a> {
    fn new(world: &'a World, known: &'a Known, now: Times) -> Self {
        let cells = world.cells().filter(|(_, log)| log.present);
        let cells = cells.map(|(id, log)| known.sees(id, log, now)).collect();
        let siblings = Siblings { world, known, now, placed: vec![] };
        Self { cells, siblings, only: None, waiting: vec![], notes: Notes::default() }
    }

    /// Some room may be kept for what waits: nobody knows whether it is free.
    fn keep(&mut self, kept: &[(WorkRef, CellId, Resources)]) {
        for (_, cell, size) in kept {
            if let Some(seen) = self.cells.iter_mut().find(|seen| seen.id == cell) {
                seen.free.0 = seen.free.0.minus(*size);
            }
        }
    }

    /// The cells that may take what is judged.
    fn seen(&self) -> impl Iterator<Item = &Seen<'a>> + Clone {
        self.cells.iter().filter(|seen| self.only.as_ref().is_none_or(|only| only == seen.id))
    }

    fn must(&mut self, promise: Promise, holds: bool, otherwise: impl FnOnce() -> String) {
        self.notes.must(promise, holds, otherwise);
    }

    /// Whether a cell may have one more of what is judged, as far as siblings go: for sure, and perhaps.
    fn has_place(&self, work: &WorkRef, constraint: &Constraint, on: &Seen<'_>) -> Bounds<bool> {
        let WorkRef::Lrp(key) = work else { return same(true) };
        let limits = racks::limits(constraint, on.id);
        limits.iter().fold(same(true), |(sure, may), limit| {
            let there = self.siblings.within(&key.process_guid, limit);
            (sure && there.1 < limit.most, may && there.0 < limit.most)
        })
    }

    fn judge(&mut self, choice: &Choice<'_>) {
        self.only = super::peace::only_cell(self.siblings.world, &choice.work()).cloned();
        match choice {
            Choice::Placed(cell, work, why) => {
                self.by_priority(cell, &choice.turn(self.siblings.world));
                self.placed(cell, work, why);
                let size = work.definition.resources();
                if let Some(seen) = self.cells.iter_mut().find(|seen| seen.id == *cell) {
                    seen.free = (seen.free.0.minus(size), seen.free.1.minus(size));
                }
                if let WorkKey::Lrp { key, .. } = &work.key {
                    self.siblings.placed.push((key.process_guid.clone(), (*cell).clone()));
                }
            }
            Choice::Failed(failed) => self.failed(failed),
        }
    }

    /// Work went to a cell: nothing that waits, comes before it and fits there is left over.
    fn by_priority(&mut self, cell: &CellId, turn: &Turn) {
        let Some(seen) = self.cells.iter().find(|seen| seen.id == cell && seen.open.0) else { return };
        let robbed = self.waiting.iter().take_while(|one| one.turn < *turn).find(|one| {
            one.only.is_none_or(|only| only == cell)
                && is_compatible(one.constraint, seen)
                && seen.free.0.fits(one.size)
        });
        let robbed = robbed.map(|one| one.turn.clone());
        self.must(Promise::PlacedByPriority, robbed.is_none(), || {
            format!("{turn:?} goes to {cell}, where {robbed:?} waits and fits")
        });
    }

    /// Work went to a cell: it has room there, no other is better, and the explanation says so.
    fn placed(&mut self, cell: &CellId, work: &Work, why: &Explanation) {
        let (key, size, constraint) = (&work.key, work.definition.resources(), constraint_of(work));
        let Some(winner) = self.seen().find(|seen| seen.id == cell) else {
            let how = format!("{key} is given to {cell}, which is not present or may not take it");
            return self.must(Promise::BestPlace, false, || how);
        };
        let (open, free) = (winner.open.1, winner.free.1);
        let wanted = (key, size, constraint);
        let merit_of = |seen: &Seen<'_>| Merit::of(wanted, seen, (&self.cells, &self.siblings));
        let merit = merit_of(winner);
        let tried: BTreeMap<&CellId, Option<Timestamp>> = self.siblings.known.tried(work).collect();
        // Any other that has room is better than one that has just refused it. Where none had, that is forgotten.
        let now = self.siblings.now.0;
        let just_refused = tried.get(cell).copied().flatten().filter(|at| now.since(*at) < AT_ONCE);
        let had_room = |other: &Seen<'_>| just_refused.is_some_and(|at| other.heard < Some(at));
        let name = name_of(key);
        let place = |seen: &Seen<'_>| self.has_place(&name, constraint, seen);
        let able = |other: &&Seen<'_>| {
            let able = is_compatible(constraint, other) && other.open.0 && other.free.0.fits(size);
            able && place(other).0 && other.id != cell && !tried.contains_key(other.id)
        };
        let others = self.seen().filter(able).map(|other| (other, merit_of(other)));
        let others: Vec<(&Seen<'_>, Merit)> = others.collect();
        let better = others
            .iter()
            .find(|(other, theirs)| had_room(other) || theirs.is_better_than(&merit, other.id < cell))
            .map(|(other, _)| (other.id, other.free));
        let decisive = wishes::decisive((cell, &merit), &others);
        let told = why.eligibility.is_none()
            && why.best.first().is_some_and(|best| best.cell_id == *cell)
            && why.best.iter().all(|one| self.is_told(one, wanted))
            && self.are_all_told(why, (&name, constraint), size)
            && self.is_counted(why, constraint, size, &tried);
        let open = open && place(winner).1;
        let lacks = mismatch(constraint, winner).map(Mismatch::description);
        self.must(Promise::BestPlace, lacks.is_none(), || {
            format!("{key} is given to {cell}, which doesn't fit: {lacks:?}")
        });
        self.must(Promise::BestPlace, open && free.fits(size), || {
            format!("{key} of {size:?} is given to {cell}, which takes it: {open}, and has {free:?} free")
        });
        self.must(Promise::BestPlace, better.is_none(), || {
            let refused = if just_refused.is_some() { " and had just refused it" } else { "" };
            format!("{key} of {size:?} is given to {cell}, which has {free:?} free{refused}, and {better:?} was better")
        });
        self.must(Promise::ExplanationTrue, told, || format!("{key} is given to {cell} because of {why:?}"));
        decisive.into_iter().for_each(|situation| self.notes.saw(situation));
    }

    /// Whether a candidate is as good as it is said to be.
    fn is_told(&self, said: &Candidate, wanted: (&WorkKey, Resources, &Constraint)) -> bool {
        let Some(seen) = self.seen().find(|seen| *seen.id == said.cell_id) else { return false };
        let merit = Merit::of(wanted, seen, (&self.cells, &self.siblings));
        let within = |bounds: Bounds<u32>, said: u32| bounds.0 <= said && said <= bounds.1;
        let used = f64::from(said.used_permille);
        said.zone == seen.log.presence.zone
            && merit.spread.may_be(said.spread)
            && merit.affinity == said.affinity
            && within(merit.in_zone, said.siblings_in_zone)
            && within(merit.on_cell, said.siblings_on_cell)
            && (merit.load.0 * 1000.0 - 1.0..=merit.load.1 * 1000.0 + 1.0).contains(&used)
    }

    /// Whether all cells that could take the work are named, or as many as fit.
    fn are_all_told(
        &self,
        why: &Explanation,
        (work, constraint): (&WorkRef, &Constraint),
        size: Resources,
    ) -> bool {
        let able = |seen: &&Seen<'_>, open: bool, free: Resources| {
            is_compatible(constraint, seen) && open && free.fits(size)
        };
        let place = |seen: &Seen<'_>| self.has_place(work, constraint, seen);
        let least = self.seen().filter(|seen| able(seen, seen.open.0 && place(seen).0, seen.free.0)).count();
        let most = self.seen().filter(|seen| able(seen, seen.open.1 && place(seen).1, seen.free.1)).count();
        let named: BTreeSet<&CellId> = why.best.iter().map(|one| &one.cell_id).collect();
        named.len() == why.best.len() && (least.min(CANDIDATES)..=most.min(CANDIDATES)).contains(&named.len())
    }

    /// Whether the counts of an explanation are right: how many cells there are, and why so many are passed over.
    fn is_counted(
        &self,
        why: &Explanation,
        constraint: &Constraint,
        size: Resources,
        tried: &BTreeMap<&CellId, Option<Timestamp>>,
    ) -> bool {
        let said = |word: &str| why.rejected.get(word).copied().unwrap_or(0);
        let counts = |word: &str, is_so: &dyn Fn(&Seen<'_>) -> Bounds<bool>| {
            let all: Vec<Bounds<bool>> = self.seen().map(is_so).collect();
            let least = count(all.iter().filter(|so| so.0).count());
            (least..=count(all.iter().filter(|so| so.1).count())).contains(&said(word))
        };
        let unfit = |what| counts(what_word(what), &|seen| same(mismatch(constraint, seen) == Some(what)));
        let state = |word: &str, of: &dyn Fn(&Seen<'_>) -> Bounds<bool>| {
            counts(word, &|seen| if is_compatible(constraint, seen) { of(seen) } else { same(false) })
        };
        let lacking = |word: &str| {
            state(word, &|seen| {
                let lacks = |free| lacks(free, size).contains(word);
                (seen.open.0 && lacks(seen.free.1), seen.open.1 && lacks(seen.free.0))
            })
        };
        why.cells == count(self.seen().count())
            && unfit(Mismatch::Stack)
            && unfit(Mismatch::Tags)
            && unfit(Mismatch::Isolation)
            && state("evacuating", &|seen| seen.evacuating)
            && state("cordoned", &|seen| seen.cordoned)
            && state("unhealthy", &|seen| seen.unhealthy)
            && state("silent", &|seen| seen.silent)
            && LACKS.into_iter().all(lacking)
            && said("refused") <= count(tried.len())
    }

    /// Whether the classes of the cells that were tried are the right ones, and what they say nothing about.
    fn were_tried(&self, tried: &Eligibility, constraint: &Constraint) -> bool {
        let class = |seen: &Seen<'_>| CellClass::from_offer(&seen.log.presence.offer(seen.id));
        let (may, may_not): (Vec<&Seen<'_>>, Vec<&Seen<'_>>) =
            self.seen().partition(|seen| is_compatible(constraint, seen));
        let eligible: BTreeSet<CellClass> = may.into_iter().map(class).collect();
        let ineligible: BTreeSet<CellClass> = may_not.into_iter().map(class).collect();
        let escaped = constraint.rules.iter().flat_map(|rules| &rules.constraints).map(ToString::to_string);
        let escaped = escaped.filter(|rule| rule.starts_with("distinct_") || rule.starts_with("unique."));
        tried.observed_position == self.siblings.world.position()
            && tried.eligible.iter().eq(&eligible)
            && tried.ineligible.iter().eq(ineligible.difference(&eligible))
            && tried.unlisted == 0
            && tried.escaped.iter().cloned().eq(escaped)
    }

    /// Work found no cell: none had room, and the error names exactly what is lacking.
    fn failed(&mut self, failed: &Failed<'_>) {
        let Failed { work, attempt, constraint, size, error, why } = failed;
        let size = *size;
        // What reps refused again and again fails for their reason.
        if self.siblings.known.was_refused(work, *attempt) {
            return;
        }
        let able = |seen: &&Seen<'_>| {
            let open = is_compatible(constraint, seen) && seen.open.0 && seen.free.0.fits(size);
            open && self.has_place(work, constraint, seen).0
        };
        let room = self.seen().find(able).map(|seen| seen.id.clone());
        let right = self.is_right(error, (work, constraint), size);
        let counted = why.is_none_or(|why| {
            let tried = why.eligibility.as_deref();
            why.best.is_empty()
                && self.is_counted(why, constraint, size, &BTreeMap::new())
                && tried.is_some_and(|tried| self.were_tried(tried, constraint))
        });
        let cells = self.seen().filter(|seen| is_compatible(constraint, seen));
        let cells: Vec<String> =
            cells.map(|seen| format!("{} {:?} {:?}", seen.id, seen.open, seen.free)).collect();
        self.must(Promise::NoRoomSaid, room.is_none(), || {
            format!("{work:?} fails with {error:?}, and {room:?} has room for {size:?}: {cells:?}")
        });
        self.must(Promise::NoRoomSaid, right, || {
            format!("{work:?} of {size:?} fails with {error:?}: {cells:?}")
        });
        self.must(Promise::ExplanationTrue, counted, || format!("{work:?} fails because of {why:?}"));
    }

    /// Whether an error is the right one.
    fn is_right(&self, error: &str, (work, constraint): (&WorkRef, &Constraint), size: Resources) -> bool {
        let error = error.split_once(ROOM_PENDING_SUFFIX).map_or(error, |(error, _)| error);
        let (what, words) = error.split_once(": ").unwrap_or((error, ""));
        let has = |what| self.seen().any(|seen| mismatch(constraint, seen) == Some(what));
        let compatible = || self.seen().filter(|seen| is_compatible(constraint, seen));
        if compatible().next().is_none() {
            let rule = self.seen().find_map(|seen| rule_unmet(constraint, seen));
            if let Some(rule) = rule {
                return what == NO_COMPATIBLE_CELLS && words.starts_with(&format!("constraint {rule} ("));
            }
            // The nearest miss is named: a cell of too little isolation has the right stack and tags, one with other tags
            // the right stack.
            if has(Mismatch::Isolation) {
                return what == NO_COMPATIBLE_CELLS && self.are_weak(words, constraint);
            }
            let nearest = [Mismatch::Tags, Mismatch::Stack].into_iter().find(|what| has(*what));
            return what == NO_COMPATIBLE_CELLS && words == nearest.map_or("", what_word);
        }
        if what == UNREACHABLE_CELLS {
            let all = |sure: fn(&Seen<'_>) -> bool| compatible().all(sure);
            let said =
                if words == "cordoned" { all(|seen| seen.cordoned.1) } else { !all(|seen| seen.cordoned.0) };
            return said && matches!(words, "" | "cordoned") && !compatible().any(|seen| seen.open.0);
        }
        let place = |seen: &Seen<'_>| self.has_place(work, constraint, seen);
        let (crowded, words): (BTreeSet<&str>, BTreeSet<&str>) = words
            .split(", ")
            .filter(|word| !word.is_empty())
            .partition(|word| word.starts_with("constraint distinct_"));
        if what == NO_COMPATIBLE_CELLS {
            let full = compatible().filter(|seen| seen.open.0).all(|seen| !place(seen).0);
            return racks::is_limited(constraint) && full && !crowded.is_empty() && words.is_empty();
        }
        // What is named may be lacking everywhere; what surely is, is named.
        let may = |word: &&str| {
            let left = compatible().filter(|seen| seen.open.0 && place(seen).0);
            left.into_iter().all(|seen| lacks(seen.free.0, size).contains(*word))
        };
        let surely = |word: &&str| {
            let left = compatible().filter(|seen| seen.open.1 && place(seen).1);
            left.into_iter().all(|seen| lacks(seen.free.1, size).contains(*word))
        };
        what == INSUFFICIENT_RESOURCES
            && compatible().any(|seen| seen.open.1 && place(seen).1)
            && (crowded.is_empty() || racks::is_limited(constraint))
            && words.iter().all(may)
            && LACKS.iter().filter(|word| surely(word)).all(|word| words.contains(word))
    }

    /// Whether these are cells that keep their containers apart too little, and all others are counted:
    /// `isolation (c1 is none, c2 is degraded[landlock], and 3 more)`.
    fn are_weak(&self, words: &str, constraint: &Constraint) -> bool {
        let weak = self.seen().filter(|seen| mismatch(constraint, seen) == Some(Mismatch::Isolation));
        let weak: Vec<String> = weak.map(|seen| format!("{} is {}", seen.id, walls::of(seen.id))).collect();
        let more = weak.len().saturating_sub(WEAK);
        let more = (more > 0).then(|| format!("and {more} more"));
        let said: Vec<String> = weak.into_iter().take(WEAK).chain(more).collect();
        words == format!("isolation ({})", said.join(", "))
    }
}

/// What is certain.
const fn same(so: bool) -> Bounds<bool> {
    (so, so)
}

fn mismatch<'a>(constraint: &'a Constraint, seen: &Seen<'_>) -> Option<Mismatch<'a>> {
    match constraint.mismatch(&seen.log.presence.offer(seen.id)) {
        Some(what @ (Mismatch::Stack | Mismatch::Tags)) => Some(what),
        Some(Mismatch::Isolation | Mismatch::Rule(..)) | None
            if !walls::are_kept(&constraint.isolation, seen.id) =>
        {
            Some(Mismatch::Isolation)
        }
        Some(Mismatch::Isolation | Mismatch::Rule(..)) | None => {
            racks::unmet(constraint, seen.id).map(|rule| Mismatch::Rule(0, rule))
        }
    }
}

/// The constraint that keeps a cell from the work which has the right stack, tags and isolation.
fn rule_unmet<'a>(constraint: &'a Constraint, seen: &Seen<'_>) -> Option<&'a Rule> {
    match mismatch(constraint, seen)? {
        Mismatch::Rule(_, rule) => Some(rule),
        Mismatch::Stack | Mismatch::Tags | Mismatch::Isolation => None,
    }
}

fn is_compatible(constraint: &Constraint, seen: &Seen<'_>) -> bool {
    mismatch(constraint, seen).is_none()
}

const fn what_word(what: Mismatch<'_>) -> &'static str {
    match what {
        Mismatch::Stack => "stack",
        Mismatch::Tags => "tags",
        Mismatch::Isolation => "isolation",
        Mismatch::Rule(_, _) => "constraint",
    }
}

/// What is too little for work of this size.
fn lacks(free: Resources, size: Resources) -> BTreeSet<&'static str> {
    let short = [
        free.containers < size.containers,
        free.disk_mb < size.disk_mb,
        free.memory_mb < size.memory_mb,
        free.ports < size.ports,
    ];
    LACKS.into_iter().zip(short).filter(|(_, short)| *short).map(|(word, _)| word).collect()
}

fn constraint_of(work: &Work) -> &Constraint {
    match &work.definition {
        WorkDefinition::Lrp(definition) => &definition.constraint,
        WorkDefinition::Task(definition) => &definition.constraint,
    }
}
