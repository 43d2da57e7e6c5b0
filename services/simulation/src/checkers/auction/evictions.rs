//! What an auctioneer wants stopped, judged by what it may believe: the room that it makes is enough, and none of it is
//! superfluous; and nothing that comes later takes it.

use std::time::Duration;

use machines::actual::State;
use machines::task;
use projections::{WorkRef, World};
use schemas::Timestamp;
use schemas::actual::StopReason;
use schemas::container::{Instance, WorkKey};
use schemas::definition::Placement;
use schemas::message::{Outcomes, PlacementOutcome};
use schemas::names::CellId;
use schemas::placement::awaited_cell;
use schemas::preemption::{Eviction, Preemptor};
use schemas::resources::Resources;

use super::known::{self, Times, name_of};
use super::order::{self, Turn};
use super::{Auction, is_compatible};
use crate::checkers::peace;
use crate::nodes::Life;
use crate::promises::Promise;

/// So long room is kept for sure for what it is made for.
const KEPT: Duration = Duration::from_secs(25);
/// So long the BBS has time to answer.
const UNANSWERED: Duration = Duration::from_millis(1_900);
/// What is said again within this time may be what was said before, and lasts no longer.
const SAID_AGAIN: Duration = Duration::from_secs(40);
/// So long after something was said of room for work that may be kept though nothing is said of it any more.
const GIVEN_UP: Duration = Duration::from_secs(90);
/// Most that is stopped for one piece of work.
const VICTIMS: usize = 8;

/// Work for which room is being made somewhere, as an auctioneer said.
#[derive(Clone, Debug)]
pub(super) struct Awaited {
    by: Life,
    work: WorkRef,
    attempt: Timestamp,
    cell: CellId,
    at: Times,
    /// Whether it was not given up meanwhile, for sure: that is not always said.
    lasts: bool,
}

impl Awaited {
    /// Who said so.
    pub(super) const fn by(&self) -> Life {
        self.by
    }

    /// Which.
    pub(super) const fn work(&self) -> &WorkRef {
        &self.work
    }
}

/// Takes down what an auctioneer says of room that is being made.
pub(super) fn said(awaited: &mut Vec<Awaited>, by: Life, outcomes: &[Outcomes], at: Times) {
    let each = outcomes.iter().flat_map(|one| &one.outcomes).flat_map(|outcome| match outcome {
        PlacementOutcome::Lrp { process_guid, outcome, .. } => {
            let each = outcome.unplaced.iter();
            each.map(|one| (known::lrp(process_guid, &one.place), one.attempt, one.error.as_str())).collect()
        }
        PlacementOutcome::Task { task_guid, epoch, unplaced } => {
            vec![(WorkRef::Task(task_guid.clone()), epoch.0, unplaced.error.as_str())]
        }
    });
    for (work, attempt, error) in each {
        let of_work = |known: &Awaited| known.by == by && (&known.work, known.attempt) == (&work, attempt);
        let before = awaited.iter().find(|known| of_work(known) && known.lasts).cloned();
        // What it says last holds. But what it gave up counts again when the log says later that something stops there for it.
        awaited.iter_mut().filter(|known| of_work(known)).for_each(|known| known.lasts = false);
        if let Some(cell) = awaited_cell(error) {
            awaited.retain(|known| !(of_work(known) && known.cell == cell));
            let same = before.filter(|known| known.cell == cell && is_younger(known.at, SAID_AGAIN, at));
            let at = same.map_or(at, |known| known.at);
            awaited.push(Awaited { by, work, attempt, cell, at, lasts: true });
        }
    }
}

/// What the BBS took is not given up after a moment. What it may not have taken is, and nothing is said of that where the log
/// says the same as before: whatever stops there later may stop for something else.
pub(super) fn doubt(awaited: &mut Vec<Awaited>, by: Life, world: &World, now: Times) {
    awaited.retain(|one| one.by != by || one.lasts || is_younger(one.at, GIVEN_UP, now));
    for one in awaited.iter_mut().filter(|one| one.by == by && one.lasts) {
        let error = peace::demands(world, &one.work).and_then(|(_, _, error)| error);
        let is_recorded = error.and_then(awaited_cell).as_ref() == Some(&one.cell);
        one.lasts = is_recorded || is_younger(one.at, UNANSWERED, now) || stops_for(world, one);
    }
}

/// Whether something was said within this time, by every clock.
fn is_younger(at: Times, age: Duration, now: Times) -> bool {
    now.0.since(at.0) < age && now.1.since(at.1) < age
}

/// The room that may be kept for work that waits: where, and how much.
pub(super) fn kept(world: &World, awaited: &[Awaited]) -> Vec<(WorkRef, CellId, Resources)> {
    let mut kept: Vec<(WorkRef, CellId, Resources)> = vec![];
    let mut keep = |work: &WorkRef, cell: &CellId| {
        let size = peace::demands(world, work).map(|(_, size, _)| size);
        if !kept.iter().any(|(known, on, _)| known == work && on == cell) {
            kept.extend(size.map(|size| (work.clone(), cell.clone(), size)));
        }
    };
    for work in world.pending_work().filter(|work| waits_since(world, work).is_some()) {
        awaited.iter().filter(|one| may_mean(&one.work, work)).for_each(|one| keep(work, &one.cell));
        let error = peace::demands(world, work).and_then(|(_, _, error)| error);
        error.and_then(awaited_cell).iter().for_each(|cell| keep(work, cell));
    }
    kept
}

/// Whether what stopped for one may count for the other: the reason names no definition, and no attempt.
fn may_mean(one: &WorkRef, other: &WorkRef) -> bool {
    match (one, other) {
        (WorkRef::Lrp(one), WorkRef::Lrp(other)) => {
            (&one.process_guid, one.place.index) == (&other.process_guid, other.place.index)
        }
        (WorkRef::Task(one), WorkRef::Task(other)) => one == other,
        (WorkRef::Lrp(_), WorkRef::Task(_)) | (WorkRef::Task(_), WorkRef::Lrp(_)) => false,
    }
}

/// Since when work waits for a place.
fn waits_since(world: &World, work: &WorkRef) -> Option<Timestamp> {
    match work {
        WorkRef::Lrp(key) => {
            let process = world.process(&key.process_guid)?;
            process.actual(&key.place).filter(|lrp| lrp.is_unclaimed()).map(|lrp| lrp.since)
        }
        WorkRef::Task(guid) => world.task(guid).filter(|task| task.is_pending()).map(|task| task.epoch.0),
    }
}

impl Auction<'_> {
    /// Work goes to a cell: if room is made there for something before it, that has room beside it.
    pub(super) fn keeps_room(
        &mut self,
        by: Life,
        awaited: &[Awaited],
        cell: &CellId,
        size: Resources,
        turn: &Turn,
    ) {
        let (world, now) = (self.siblings.world, self.siblings.now);
        let mut robbed = None;
        for one in awaited.iter().filter(|one| one.by == by && one.cell == *cell && one.lasts) {
            let given = self.siblings.known.was_given(&one.work, one.attempt);
            let waits = waits_since(world, &one.work) == Some(one.attempt) && is_younger(one.at, KEPT, now);
            let waits = waits && !given;
            let Some((_, needs, _)) = peace::demands(world, &one.work).filter(|_| waits) else {
                continue;
            };
            let first = order::turn(world, one.work.clone(), needs, one.attempt);
            let Some(seen) = self.cells.iter().find(|seen| seen.id == cell) else { continue };
            if first < *turn && !seen.free.1.minus(needs).fits(size) {
                robbed = Some(first);
            }
        }
        self.must(Promise::RoomKept, robbed.is_none(), || {
            format!("{turn:?} goes to {cell}, where room is made for {robbed:?}")
        });
    }

    /// What an auctioneer wants stopped.
    pub(super) fn evicted(&mut self, outcomes: &[Outcomes]) {
        let all: Vec<&Eviction> = outcomes.iter().flat_map(|one| &one.evictions).collect();
        let mut preemptors: Vec<&Preemptor> = all.iter().map(|one| &one.preemptor).collect();
        preemptors.dedup();
        let mut stopped: Vec<(CellId, Resources)> = vec![];
        for preemptor in preemptors {
            let victims: Vec<&Eviction> =
                all.iter().copied().filter(|one| one.preemptor == *preemptor).collect();
            let wrong = self.wrong_eviction(preemptor, &victims, &stopped);
            self.must(Promise::PreemptedForRoom, wrong.is_none(), || {
                format!("{preemptor} at {}: {victims:?}: {wrong:?}", preemptor.attempt)
            });
            for one in victims {
                let size = running(self.siblings.world, one).map(|(size, ..)| size);
                stopped.extend(size.map(|size| (one.by.cell_id.clone(), size)));
            }
        }
    }

    fn wrong_eviction(
        &self,
        preemptor: &Preemptor,
        victims: &[&Eviction],
        stopped: &[(CellId, Resources)],
    ) -> Option<String> {
        let world = self.siblings.world;
        let work = name_of(&preemptor.work);
        let cell = &victims.first()?.by.cell_id;
        let Some((constraint, size, _)) = peace::demands(world, &work) else {
            return Some("it is not there".into());
        };
        let waits = waits_since(world, &work) == Some(preemptor.attempt) && may_wait(world, &work);
        if !waits || peace::priority(world, &work) != preemptor.priority {
            return Some("it doesn't wait so".into());
        }
        let Some(seen) = self.cells.iter().find(|seen| seen.id == cell) else {
            return Some("the cell is not there".into());
        };
        let only = peace::only_cell(world, &work).is_none_or(|only| only == cell);
        if !only
            || !seen.open.1
            || !is_compatible(constraint, seen)
            || !self.has_place(&work, constraint, seen).1
        {
            return Some("the cell may not take it".into());
        }
        if victims.len() > VICTIMS || victims.iter().any(|one| one.by.cell_id != *cell) {
            return Some("there are too many, or on several cells".into());
        }
        let mut sizes = vec![];
        for one in victims {
            let Some((size, by, priority)) = running(world, one) else {
                return Some(format!("{} doesn't run", one.victim));
            };
            if by != one.by || u8::from(priority) + 10 > u8::from(preemptor.priority) {
                return Some(format!("{} of priority {priority} runs as {by:?}", one.victim));
            }
            sizes.push(size);
        }
        let comes = stopping(world).into_iter().filter(|(on, _)| on == cell);
        let others = stopped.iter().filter(|(on, _)| on == cell).cloned();
        let comes = comes.chain(others).fold(Resources::default(), |sum, (_, size)| sum.plus(size));
        let all = sizes.iter().fold(seen.free.1.plus(comes), |sum, size| sum.plus(*size));
        if !all.fits(size) {
            return Some(format!("{all:?} is not enough for {size:?}"));
        }
        // What others may have been promised of it is not for sure.
        let sure = stopping(world).into_iter().filter(|(on, _)| on == cell);
        let sure = sure.fold(seen.free.0, |sum, (_, size)| sum.plus(size)).minus(promised(self, cell, &work));
        let superfluous = (0..sizes.len()).find(|left_out| {
            let rest = sizes.iter().enumerate().filter(|(at, _)| at != left_out);
            rest.fold(sure, |sum, (_, size)| sum.plus(*size)).fits(size)
        });
        superfluous.map(|at| format!("{} is superfluous", victims[at].victim))
    }
}

/// What others than this work may have been promised on a cell: the work that waits there, whatever was said of it.
fn promised(auction: &Auction<'_>, cell: &CellId, but: &WorkRef) -> Resources {
    let world = auction.siblings.world;
    let others = world.pending_work().filter(|work| *work != but && waits_since(world, work).is_some());
    let may = others.filter_map(|work| {
        let (constraint, size, _) = peace::demands(world, work)?;
        let seen = auction.cells.iter().find(|seen| seen.id == cell)?;
        is_compatible(constraint, seen).then_some(size)
    });
    may.fold(Resources::default(), Resources::plus)
}

fn may_wait(world: &World, work: &WorkRef) -> bool {
    match work {
        WorkRef::Lrp(_) => true,
        WorkRef::Task(guid) => {
            world.task(guid).is_some_and(|task| task.definition.placement != Placement::Fail)
        }
    }
}

/// What something that is to stop takes, its container, and how urgent it is; none: it doesn't run, or stops already.
fn running(world: &World, one: &Eviction) -> Option<(Resources, Instance, schemas::priority::Priority)> {
    match &one.victim {
        WorkKey::Lrp { key, epoch } => {
            let process = world.process(&key.process_guid).filter(|process| process.epoch == *epoch)?;
            let desired = process.desired.as_ref()?;
            let by = match &process.actual(&key.place)?.state {
                State::Claimed { by, stopping: false } | State::Running { by, stopping: false, .. } => by,
                State::Claimed { .. }
                | State::Running { .. }
                | State::Unclaimed { .. }
                | State::Crashed { .. } => {
                    return None;
                }
            };
            let size = desired.definition(&key.place.definition_id)?.resources();
            Some((size, by.clone(), desired.priority))
        }
        WorkKey::Task { task_guid, epoch } => {
            let task = world.task(task_guid).filter(|task| task.epoch == *epoch)?;
            match &task.state {
                Some(task::State::Running { by }) => {
                    Some((task.definition.resources(), by.clone(), task.definition.priority))
                }
                Some(task::State::Pending { .. } | task::State::Completed(_) | task::State::Resolving(_))
                | None => None,
            }
        }
    }
}

/// Whether the log says that something stops on that cell for something more urgent, or that a task did.
fn stops_for(world: &World, one: &Awaited) -> bool {
    let of_instances = world.processes_from(None).flat_map(|process| process.slots.iter());
    let of_instances = of_instances.filter_map(|slot| slot.actual.as_ref());
    let mut stopping = of_instances.filter(|lrp| lrp.stop == Some(StopReason::Preempted));
    let instance = stopping.any(|lrp| lrp.holder().is_some_and(|by| by.cell_id == one.cell));
    let stopped = |task: &task::Task| match (&task.state, &one.work) {
        (Some(task::State::Completed(done) | task::State::Resolving(done)), work) => {
            let name = match work {
                WorkRef::Lrp(key) => key.to_string(),
                WorkRef::Task(guid) => format!("task {guid}"),
            };
            let for_it = |reason: &str| reason.starts_with(&format!("preempted by {name} ("));
            let failed = matches!(&done.outcome, schemas::task::Outcome::Failed { reason } if for_it(reason));
            failed && done.by.as_ref().is_some_and(|by| by.cell_id == one.cell)
        }
        (Some(task::State::Pending { .. } | task::State::Running { .. }) | None, _) => false,
    };
    instance || world.tasks_from(None).any(stopped)
}

/// What was asked to stop and is still there: where, and what it takes.
fn stopping(world: &World) -> Vec<(CellId, Resources)> {
    let mut all = vec![];
    for process in world.processes_from(None) {
        let Some(desired) = &process.desired else { continue };
        for slot in process.slots.iter() {
            let stops = slot.actual.as_ref().filter(|lrp| lrp.is_stopping());
            let by = stops.and_then(|lrp| lrp.holder());
            let size = desired.definition(&slot.place.definition_id).map(|definition| definition.resources());
            all.extend(by.zip(size).map(|(by, size)| (by.cell_id.clone(), size)));
        }
    }
    all
}
