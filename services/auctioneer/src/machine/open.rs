//! Open work: the work that the log requires to be placed, and its progress.
//!
//! This state is derived from the World (the state folded from the log). Each piece of open work stands for
//! an UNCLAIMED index or a PENDING task of the World. It disappears when that record changes or is removed.
//! The World therefore bounds the number of pieces, and there is no second queue that could be lost.
//!
//! Room means free resources on a cell. A piece is handed out if it was sent to a cell and the log does not
//! yet show that the cell claimed it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use machines::rank::Rank;
use machines::{actual, task};
use projections::{WorkRef, World};
use schemas::container::WorkKey;
use schemas::evaluation::{Duty, Evaluation, Trigger};
use schemas::message::PerformId;
use schemas::names::{CellId, Domain, EvaluationId, ProcessGuid};
use schemas::preemption::PreemptedBy;
use schemas::resources::{Constraint, Resources};
use schemas::{ActualLrpKey, Timestamp};

use crate::auction::Item;
use crate::board::BoardCell;

/// Piece of open work.
#[derive(Clone, Debug)]
struct Piece {
    item: Item,
    domain: Domain,
    stage: Stage,
    attempt: Attempt,
    /// The last auction that contained the piece.
    round: u64,
    /// Number of times that the piece was sent again to the rep that accepted it.
    repeats: u8,
    /// Placement error last reported to the BBS, with the time of the report.
    reported: Option<(Timestamp, String)>,
    /// End of a pause in reports about the piece. The pause starts when the BBS does not accept an outcome.
    quiet_until: Timestamp,
    /// Cell on which room (free resources) is being made for the piece, and the end of the wait for this
    /// room.
    awaited_room: Option<(CellId, Timestamp)>,
    /// Status of the eviction that makes room on the cell in `awaited_room`.
    asked: EvictionStatus,
    /// Cell whose free room made the piece ready. `None` if the piece is ready for another reason.
    woken_for: Option<CellId>,
}

/// Status of an eviction that the auctioneer requested from the BBS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EvictionStatus {
    /// The request was sent. The status is the same if no request is needed because other work on the cell
    /// stops.
    #[default]
    Sent,
    /// The BBS refused the request or did not answer it.
    Unanswered,
    /// The log contains a stop request for work that makes room for this piece.
    Recorded,
}

/// Evaluation that stands for a piece of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// `None` until convergence creates an evaluation.
    pub(crate) evaluation: Option<EvaluationId>,
    /// Number of times that the evaluation was delivered.
    pub(crate) delivery: u32,
    /// Earliest time at which the work may be placed.
    until: Option<Timestamp>,
    /// `true` if the work is to be placed and the BBS waits for an answer.
    pub(crate) is_pending: bool,
    /// `true` if the evaluation waits because reps refused its work too often.
    pub(crate) after_refusals: bool,
}

impl Attempt {
    fn from_evaluation(evaluation: Option<&Evaluation>) -> Self {
        evaluation.map_or_else(Self::default, |one| Self {
            evaluation: Some(one.id),
            delivery: one.delivery,
            until: one.wait.until(),
            is_pending: one.duty() == Some(Duty::Place),
            after_refusals: one.trigger == Trigger::Attempts,
        })
    }

    /// Returns `true` if the evaluation was delivered again or its wait ends at a different time. The work
    /// must then be scheduled again.
    fn needs_rescheduling(&self, before: &Self) -> bool {
        let again = self.evaluation == before.evaluation && self.delivery != before.delivery;
        again || self.until != before.until
    }
}

/// Stage of a piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// The evaluation waits until this time.
    Waiting { until: Timestamp },
    /// The next auction places the piece.
    Ready,
    /// The current auction contains the piece.
    Auctioned,
    /// The piece was sent to a cell. If its record does not change before `until`, the piece is sent again or
    /// becomes ready.
    HandedOut { cell: CellId, id: PerformId, until: Timestamp, taken: bool },
    /// No cell accepts the piece. It is tried again at the time `again`, or earlier if capacity appears.
    Blocked { again: Timestamp },
}

/// Properties that decide which cells accept work.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shape {
    constraint: Constraint,
    size: Resources,
    /// The only cell that may run the work. `None` allows every cell.
    only: Option<CellId>,
    /// Process of the work. `None` if no constraint of the work counts the instances of its process.
    process: Option<ProcessGuid>,
}

/// Index of all open work.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenWork {
    pieces: BTreeMap<WorkRef, Piece>,
    ready: BTreeSet<Rank>,
    /// Number of pieces that are handed out.
    handed_out: usize,
    blocked: BTreeMap<Shape, BTreeSet<Rank>>,
    /// Times at which pieces that are handed out, blocked or waiting become ready.
    timers: BTreeSet<(Timestamp, WorkRef)>,
    /// Pieces that are blocked and were not reported, because the state of the cells was in doubt.
    withheld: BTreeSet<WorkRef>,
    /// Pieces that wait for room on a cell where work is stopped for them.
    awaiting: BTreeSet<WorkRef>,
    /// Cells whose free room made a piece ready and is still unused. The piece was removed, left the queue or
    /// changed its rank before the next auction.
    unused_room: BTreeSet<CellId>,
}

/// Returns the reference of work in the World.
pub(crate) fn work_ref(key: &WorkKey) -> WorkRef {
    match key {
        WorkKey::Lrp { key, .. } => WorkRef::Lrp(key.clone()),
        WorkKey::Task { task_guid, .. } => WorkRef::Task(task_guid.clone()),
    }
}

/// Returns the item, domain and evaluation of some work in the World. `None` if this work does not wait to be
/// placed.
fn find_work(world: &World, work: &WorkRef) -> Option<(Item, Domain, Attempt)> {
    match work {
        WorkRef::Lrp(key) => {
            let process = world.process(&key.process_guid)?;
            let item = Item::of_place(process, &key.place)?;
            let evaluation = process.actual(&key.place).and_then(|lrp| process.evaluation_for(lrp));
            Some((item, process.domain.clone(), Attempt::from_evaluation(evaluation.as_ref())))
        }
        WorkRef::Task(guid) => {
            let task = world.task(guid)?;
            let item = Item::of_task(task)?;
            Some((item, task.domain.clone(), Attempt::from_evaluation(task.open_evaluation().as_ref())))
        }
    }
}

/// Returns the placement error of some work in the log.
pub(crate) fn known_error<'a>(world: &'a World, work: &WorkRef) -> Option<&'a str> {
    match work {
        WorkRef::Lrp(key) => match &world.process(&key.process_guid)?.actual(&key.place)?.state {
            actual::State::Unclaimed { placement_error } => placement_error.as_deref(),
            actual::State::Claimed { .. } | actual::State::Running { .. } | actual::State::Crashed { .. } => {
                None
            }
        },
        WorkRef::Task(guid) => match world.task(guid)?.state.as_ref()? {
            task::State::Pending { placement_error } => placement_error.as_deref(),
            task::State::Running { .. } | task::State::Completed(_) | task::State::Resolving(_) => None,
        },
    }
}

impl OpenWork {
    /// Collects all open work of a World.
    pub(crate) fn from_world(world: &World) -> Self {
        let mut open = Self::default();
        for work in world.pending_work() {
            open.refresh(world, work);
        }
        open
    }

    /// Returns the number of all pieces and the number of blocked pieces.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.pieces.len(), self.blocked.values().map(BTreeSet::len).sum())
    }

    /// Returns the numbers of timers, of withheld pieces, and of pieces that wait for room.
    pub(crate) fn bookkeeping_counts(&self) -> (usize, usize, usize) {
        (self.timers.len(), self.withheld.len(), self.awaiting.len())
    }

    /// Returns the number of pieces for the next auction.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Returns the number of pieces that were sent to cells and not claimed.
    pub(crate) const fn handed_out(&self) -> usize {
        self.handed_out
    }

    /// Returns the time at which the next piece becomes ready.
    pub(crate) fn next_timer(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Returns the domain of a piece.
    pub(crate) fn domain(&self, work: &WorkRef) -> Option<&Domain> {
        self.pieces.get(work).map(|piece| &piece.domain)
    }

    /// Returns the work that was sent with this `Perform`. `None` if the piece has changed since then, or no
    /// longer waits for the result of this `Perform`.
    pub(crate) fn handed_out_piece(
        &self,
        item: &Item,
        (to, perform): (&CellId, PerformId),
    ) -> Option<WorkRef> {
        let work = work_ref(&item.rank.key);
        let piece = self.pieces.get(&work).filter(|piece| piece.item.rank.is_same_attempt(&item.rank))?;
        match &piece.stage {
            Stage::HandedOut { cell, id, .. } if cell == to && *id == perform => Some(work),
            Stage::HandedOut { .. }
            | Stage::Waiting { .. }
            | Stage::Ready
            | Stage::Auctioned
            | Stage::Blocked { .. } => None,
        }
    }

    /// Returns the cells to which pieces of a process are handed out. A cell occurs once per piece.
    pub(crate) fn handed_out_of<'a>(&'a self, guid: &'a ProcessGuid) -> impl Iterator<Item = &'a CellId> {
        self.of_process(guid).filter_map(|(_, piece)| match &piece.stage {
            Stage::HandedOut { cell, .. } => Some(cell),
            Stage::Waiting { .. } | Stage::Ready | Stage::Auctioned | Stage::Blocked { .. } => None,
        })
    }

    /// Updates one piece from the World. A piece of the same attempt keeps its stage, with one exception: if
    /// its evaluation was delivered again or postponed, the piece is scheduled again. The exception does not
    /// apply to a piece that is handed out to a cell. Returns the evaluation of the previous piece if that
    /// piece was removed or replaced.
    pub(crate) fn refresh(&mut self, world: &World, work: &WorkRef) -> Option<EvaluationId> {
        let found = find_work(world, work);
        let known = self.pieces.get_mut(work);
        let before = known.as_ref().and_then(|piece| piece.attempt.evaluation);
        if let (Some(piece), Some((item, _, attempt))) = (known, &found)
            && piece.item.rank.is_same_attempt(&item.rank)
        {
            let is_news = attempt.needs_rescheduling(&piece.attempt);
            piece.attempt = *attempt;
            self.update_rank(work, &item.rank);
            // Work that is handed out may still arrive at its cell. Its own timer detects a delay.
            if is_news && !self.is_handed_out(work) {
                self.schedule(work);
            }
            return None;
        }
        self.remove(work);
        if let Some((item, domain, attempt)) = found {
            let stage = Stage::Auctioned;
            let piece = Piece {
                item,
                domain,
                attempt,
                stage,
                round: 0,
                repeats: 0,
                reported: None,
                quiet_until: Timestamp(0),
                awaited_room: None,
                asked: EvictionStatus::default(),
                woken_for: None,
            };
            self.pieces.insert(work.clone(), piece);
            self.schedule(work);
        }
        before
    }

    /// Updates the rank of a piece whose priority changed. The piece keeps its stage.
    fn update_rank(&mut self, work: &WorkRef, rank: &Rank) {
        let Some(piece) = self.pieces.get_mut(work).filter(|piece| piece.item.rank != *rank) else { return };
        let before = std::mem::replace(&mut piece.item.rank, rank.clone());
        let waiting = match &piece.stage {
            Stage::Ready => {
                self.unused_room.extend(piece.woken_for.take());
                Some(&mut self.ready)
            }
            Stage::Blocked { .. } => self.blocked.get_mut(&shape(&piece.item)),
            Stage::Waiting { .. } | Stage::Auctioned | Stage::HandedOut { .. } => None,
        };
        if let Some(waiting) = waiting {
            waiting.remove(&before);
            waiting.insert(rank.clone());
        }
    }

    /// Makes a piece ready. If its evaluation waits, the piece becomes ready at the end of this wait.
    fn schedule(&mut self, work: &WorkRef) {
        let until = self.pieces.get(work).and_then(|piece| piece.attempt.until);
        let Some(until) = until else { return self.make_ready(work) };
        self.leave(work);
        if let Some(piece) = self.pieces.get_mut(work) {
            piece.stage = Stage::Waiting { until };
            self.timers.insert((until, work.clone()));
        }
    }

    /// Makes the blocked work of an evaluation ready, because a client requested a retry.
    pub(crate) fn retry(&mut self, world: &World, guid: &ProcessGuid, evaluation: EvaluationId) {
        self.refresh_process(world, guid);
        let meant = |piece: &Piece| piece.attempt.evaluation == Some(evaluation);
        let all: Vec<WorkRef> =
            self.of_process(guid).filter(|(_, piece)| meant(piece)).map(|(work, _)| work.clone()).collect();
        all.iter().filter(|work| self.is_blocked(work)).cloned().collect::<Vec<_>>().iter().for_each(
            |work| {
                self.make_ready(work);
            },
        );
    }

    /// Returns the evaluation that stands for a piece.
    pub(crate) fn attempt(&self, work: &WorkRef) -> Attempt {
        self.pieces.get(work).map(|piece| piece.attempt).unwrap_or_default()
    }

    /// Updates every piece of a process from the World.
    pub(crate) fn refresh_process(&mut self, world: &World, guid: &ProcessGuid) {
        let known: Vec<WorkRef> = self.of_process(guid).map(|(work, _)| work.clone()).collect();
        for work in known {
            self.refresh(world, &work);
        }
    }

    /// Returns the pieces of a process.
    fn of_process<'a>(&'a self, guid: &'a ProcessGuid) -> impl Iterator<Item = (&'a WorkRef, &'a Piece)> {
        let of_process = |work: &WorkRef| match work {
            WorkRef::Lrp(key) => key.process_guid == *guid,
            WorkRef::Task(_) => false,
        };
        let first = WorkRef::Lrp(ActualLrpKey::lower_bound(guid.clone()));
        self.pieces.range(first..).take_while(move |(work, _)| of_process(work))
    }

    /// Takes at most `most` ready pieces for this auction, in rank order.
    pub(crate) fn take(&mut self, most: usize, round: u64) -> Vec<Item> {
        let mut items = vec![];
        while items.len() < most
            && let Some(rank) = self.ready.pop_first()
        {
            if let Some(piece) = self.pieces.get_mut(&work_ref(&rank.key)) {
                piece.stage = Stage::Auctioned;
                piece.round = round;
                items.push(piece.item.clone());
            }
        }
        items
    }

    /// Schedules a piece for the next auction.
    pub(crate) fn make_ready(&mut self, work: &WorkRef) {
        self.leave(work);
        if let Some(piece) = self.pieces.get_mut(work) {
            piece.stage = Stage::Ready;
            piece.woken_for = None;
            piece.repeats = 0;
            self.ready.insert(piece.item.rank.clone());
        }
    }

    /// Records that a piece was sent to a cell.
    pub(crate) fn hand_out(&mut self, work: &WorkRef, cell: CellId, id: PerformId, until: Timestamp) {
        self.leave(work);
        if let Some(piece) = self.pieces.get_mut(work) {
            piece.stage = Stage::HandedOut { cell, id, until, taken: false };
            self.handed_out += 1;
            self.timers.insert((until, work.clone()));
        }
    }

    /// Blocks a piece that no cell accepts. The next attempt treats cells that refused the piece like all
    /// other cells.
    pub(crate) fn block(&mut self, work: &WorkRef, again: Timestamp) {
        self.leave(work);
        if let Some(piece) = self.pieces.get_mut(work) {
            piece.stage = Stage::Blocked { again };
            piece.item.refused_by.clear();
            self.timers.insert((again, work.clone()));
            self.blocked.entry(shape(&piece.item)).or_default().insert(piece.item.rank.clone());
        }
    }

    /// Blocks a piece without a report, because this auctioneer itself may be the reason why no cell accepts
    /// it.
    pub(crate) fn withhold(&mut self, work: &WorkRef, again: Timestamp) {
        self.block(work, again);
        self.withheld.insert(work.clone());
    }

    /// Makes the withheld pieces that are still blocked ready. Call this function once the state of the cells
    /// is no longer in doubt.
    pub(crate) fn release_withheld(&mut self) {
        for work in std::mem::take(&mut self.withheld) {
            if self.is_blocked(&work) {
                self.make_ready(&work);
            }
        }
    }

    fn is_blocked(&self, work: &WorkRef) -> bool {
        self.pieces.get(work).is_some_and(|piece| matches!(piece.stage, Stage::Blocked { .. }))
    }

    fn is_handed_out(&self, work: &WorkRef) -> bool {
        self.pieces.get(work).is_some_and(|piece| matches!(piece.stage, Stage::HandedOut { .. }))
    }

    /// Makes the next auction prefer cells other than `cell` for a piece.
    pub(crate) fn avoid(&mut self, work: &WorkRef, cell: &CellId) {
        if let Some(piece) = self.pieces.get_mut(work) {
            piece.item.refused_by.insert(cell.clone());
        }
    }

    /// Returns the number of the last auction that contained a piece.
    pub(crate) fn round(&self, work: &WorkRef) -> u64 {
        self.pieces.get(work).map_or(0, |piece| piece.round)
    }

    /// Returns `true` if only one cell may run a piece.
    pub(crate) fn has_only_cell(&self, work: &WorkRef) -> bool {
        self.pieces.get(work).is_some_and(|piece| piece.item.only.is_some())
    }

    /// Records a report that a piece cannot be placed, and returns the item of the piece. `None` if the same
    /// error was already reported within the last `lately`.
    pub(crate) fn record_report(
        &mut self,
        work: &WorkRef,
        error: &str,
        now: Timestamp,
        lately: Duration,
    ) -> Option<Item> {
        let piece = self.pieces.get_mut(work)?;
        let reported = |(at, known): &(Timestamp, String)| known == error && now.since(*at) < lately;
        if piece.reported.as_ref().is_some_and(reported) {
            return None;
        }
        piece.reported = Some((now, error.to_owned()));
        Some(piece.item.clone())
    }

    /// Records that the BBS did not accept the outcome of a piece. If the piece is still blocked, it is tried
    /// again at the time `again`.
    pub(crate) fn outcome_rejected(&mut self, work: &WorkRef, again: Timestamp) {
        if let Some(piece) = self.pieces.get_mut(work) {
            piece.reported = None;
            piece.quiet_until = again;
        }
        if self.is_blocked(work) {
            self.block(work, again);
        }
    }

    /// Returns the end of the pause in reports about a piece. The pause starts when the BBS does not accept
    /// an outcome.
    pub(crate) fn quiet_until(&self, work: &WorkRef) -> Timestamp {
        self.pieces.get(work).map_or(Timestamp(0), |piece| piece.quiet_until)
    }

    /// Sets or clears the cell on which room is being made for a piece.
    pub(crate) fn set_awaited_room(&mut self, work: &WorkRef, awaits: Option<(CellId, Timestamp)>) {
        let Some(piece) = self.pieces.get_mut(work) else { return };
        if awaits.is_some() {
            self.awaiting.insert(work.clone());
        } else {
            self.awaiting.remove(work);
        }
        piece.awaited_room = awaits;
        piece.asked = EvictionStatus::Sent;
    }

    /// Records that the BBS refused the eviction for a piece or did not answer the request.
    pub(crate) fn eviction_unanswered(&mut self, work: &WorkRef) {
        let sent = |piece: &&mut Piece| piece.asked == EvictionStatus::Sent;
        if let Some(piece) = self.pieces.get_mut(work).filter(sent) {
            piece.asked = EvictionStatus::Unanswered;
        }
    }

    /// Records that the log contains a stop request for work on a cell, made for a piece. The room of that
    /// work will become free, even if the BBS refused the eviction or did not answer. If no matching piece
    /// waits for room on this cell, another matching piece gets the room until the given time. This is the
    /// first piece in rank order that waits for no room.
    pub(crate) fn eviction_recorded(
        &mut self,
        of: &PreemptedBy,
        cell: &CellId,
        (now, until): (Timestamp, Timestamp),
    ) {
        let meant = self.matching_pieces(of);
        let waits_there = |work: &&WorkRef| self.awaited_room(work).is_some_and(|(known, _)| known == cell);
        let mut there: Vec<WorkRef> = meant.iter().filter(waits_there).cloned().collect();
        if there.is_empty() {
            let idle = meant.into_iter().filter(|work| !self.is_awaiting_room(work, now));
            there.extend(idle.min_by_key(|work| self.pieces.get(work).map(|piece| &piece.item.rank)));
        }
        for work in there {
            if !self.is_awaiting_room(&work, now) {
                self.set_awaited_room(&work, Some((cell.clone(), until)));
            }
            if let Some(piece) = self.pieces.get_mut(&work) {
                piece.asked = EvictionStatus::Recorded;
            }
        }
    }

    /// Records room for a piece. Call this function if this auctioneer gave up the room before the log named
    /// it. The room is reserved until the given time, and the next auction places the piece or reports it
    /// again.
    pub(crate) fn room_reported_late(
        &mut self,
        work: &WorkRef,
        cell: CellId,
        (now, until): (Timestamp, Timestamp),
    ) {
        if self.is_awaiting_room(work, now) {
            return;
        }
        self.set_awaited_room(work, Some((cell, until)));
        if let Some(piece) = self.pieces.get_mut(work) {
            piece.asked = EvictionStatus::Unanswered;
            piece.reported = None;
        }
        if self.is_blocked(work) {
            self.make_ready(work);
        }
    }

    /// Returns `true` if room is being made for a piece, and the wait for this room has not ended.
    fn is_awaiting_room(&self, work: &WorkRef, now: Timestamp) -> bool {
        self.awaited_room(work).is_some_and(|(_, until)| now < *until)
    }

    /// Returns the pieces that may be the beneficiary of a stop request in the log. The log names the index
    /// of a process but no definition, so several pieces may match.
    fn matching_pieces(&self, of: &PreemptedBy) -> Vec<WorkRef> {
        match of {
            PreemptedBy::Task(guid) => vec![WorkRef::Task(guid.clone())],
            PreemptedBy::Instance(guid, index) => {
                let works = self.of_process(guid).map(|(work, _)| work);
                let meant = |work: &&WorkRef| match work {
                    WorkRef::Lrp(key) => key.place.index == *index,
                    WorkRef::Task(_) => false,
                };
                works.filter(meant).cloned().collect()
            }
        }
    }

    /// Returns `true` if it is unknown whether any work stops for a piece, for example because the BBS did
    /// not answer the eviction request.
    pub(crate) fn is_eviction_unknown(&self, work: &WorkRef) -> bool {
        self.pieces.get(work).is_some_and(|piece| piece.asked == EvictionStatus::Unanswered)
    }

    /// Extends the time that a piece waits for room. Stopped work frees its room only when the rep of the
    /// cell reports this in a heartbeat.
    pub(crate) fn extend_wait(&mut self, work: &WorkRef, until: Timestamp) {
        let awaits = self.pieces.get_mut(work).and_then(|piece| piece.awaited_room.as_mut());
        if let Some((_, known)) = awaits {
            *known = until.max(*known);
        }
    }

    /// Returns the cell on which room is being made for a piece, and the end of the wait.
    pub(crate) fn awaited_room(&self, work: &WorkRef) -> Option<&(CellId, Timestamp)> {
        self.pieces.get(work)?.awaited_room.as_ref()
    }

    /// Returns `true` if room is being made for any piece.
    pub(crate) fn is_awaiting(&self) -> bool {
        !self.awaiting.is_empty()
    }

    /// Returns the pieces for which room is being made. Pieces that are handed out or wait for their
    /// evaluation are left out.
    pub(crate) fn awaiting(&self) -> impl Iterator<Item = (&WorkRef, &Item, &(CellId, Timestamp))> {
        let pieces = self.awaiting.iter().filter_map(|work| Some((work, self.pieces.get(work)?)));
        pieces.filter_map(|(work, piece)| match &piece.stage {
            Stage::Ready | Stage::Auctioned | Stage::Blocked { .. } => {
                Some((work, &piece.item, piece.awaited_room.as_ref()?))
            }
            Stage::HandedOut { .. } | Stage::Waiting { .. } => None,
        })
    }

    /// Returns the cells on which room is being made for pieces of the next auction. These pieces may be
    /// placed there or elsewhere.
    pub(crate) fn awaiting_ready(&self) -> BTreeSet<CellId> {
        let pieces = self.awaiting.iter().filter_map(|work| self.pieces.get(work));
        let ready = pieces.filter(|piece| piece.stage == Stage::Ready);
        ready.filter_map(|piece| piece.awaited_room.as_ref().map(|(cell, _)| cell.clone())).collect()
    }

    /// Makes every blocked piece ready.
    pub(crate) fn wake_all(&mut self) {
        let blocked: Vec<WorkRef> = self.blocked.values().flatten().map(|rank| work_ref(&rank.key)).collect();
        blocked.iter().for_each(|work| self.make_ready(work));
    }

    /// Records that the cell accepted a piece.
    pub(crate) fn mark_accepted(&mut self, work: &WorkRef) {
        if let Some(Piece { stage: Stage::HandedOut { taken, .. }, .. }) = self.pieces.get_mut(work) {
            *taken = true;
        }
    }

    /// Makes the pieces whose timers have fired ready. Returns the pieces that must be sent again to the same
    /// cell. Such a piece was accepted by its cell, or `seen` shows that the rep of the cell received it. A
    /// piece is sent again at most `most` times, and only if `is_there` returns `true` for the cell.
    pub(crate) fn wake_due(
        &mut self,
        now: Timestamp,
        most: u8,
        seen: impl Fn(&CellId, PerformId) -> bool,
        is_there: impl Fn(&CellId) -> bool,
    ) -> Vec<(CellId, Item)> {
        let mut asked = vec![];
        while let Some((_, work)) = self.timers.first().filter(|(at, _)| *at <= now).cloned() {
            self.timers.pop_first();
            let Some(piece) = self.pieces.get_mut(&work) else { continue };
            match &piece.stage {
                Stage::HandedOut { cell, id, taken, .. } if *taken || seen(cell, *id) => {
                    if piece.repeats < most && is_there(cell) {
                        piece.repeats += 1;
                        asked.push((cell.clone(), piece.item.clone()));
                        continue;
                    }
                    piece.item.refused_by.insert(cell.clone());
                }
                Stage::HandedOut { .. }
                | Stage::Waiting { .. }
                | Stage::Blocked { .. }
                | Stage::Ready
                | Stage::Auctioned => {}
            }
            // While the piece waited for its timer, the evaluation may have been delivered again with a later
            // time.
            if piece.attempt.until.is_some_and(|until| until > now) {
                self.schedule(&work);
            } else {
                self.make_ready(&work);
            }
        }
        asked
    }

    /// Makes the blocked pieces that this cell accepts ready. For each shape, as many pieces become ready as
    /// fit in the free resources, in rank order.
    pub(crate) fn wake_for(&mut self, cell: &BoardCell, free: Resources, most: usize) {
        let fits = |shape: &&Shape| {
            shape.only.as_ref().is_none_or(|only| *only == cell.id)
                && free.fits(shape.size)
                && shape.constraint.mismatch(&cell.offer()).is_none()
        };
        let shapes: Vec<Shape> = self.blocked.keys().filter(fits).cloned().collect();
        for shape in shapes {
            let room = fit_count(free, shape.size).min(most);
            let ranks = self.blocked.get(&shape).into_iter().flatten().take(room);
            for work in ranks.map(|rank| work_ref(&rank.key)).collect::<Vec<_>>() {
                self.make_ready(&work);
                if let Some(piece) = self.pieces.get_mut(&work) {
                    piece.woken_for = Some(cell.id.clone());
                }
            }
        }
    }

    /// Returns and clears the cells with unused room. On these cells, the piece that the room made ready is
    /// gone or has a different rank.
    pub(crate) fn take_unused(&mut self) -> BTreeSet<CellId> {
        std::mem::take(&mut self.unused_room)
    }

    /// Makes blocked pieces of a process ready after one of its instances ended. Only pieces whose
    /// constraints count the instances of the process are affected.
    pub(crate) fn wake_crowded(&mut self, guid: &ProcessGuid) {
        let waits =
            |piece: &Piece| matches!(piece.stage, Stage::Blocked { .. }) && counts_siblings(&piece.item);
        let crowded = self.of_process(guid).filter(|(_, piece)| waits(piece));
        for work in crowded.map(|(work, _)| work.clone()).collect::<Vec<_>>() {
            self.make_ready(&work);
        }
    }

    fn remove(&mut self, work: &WorkRef) {
        self.leave(work);
        self.awaiting.remove(work);
        self.pieces.remove(work);
    }

    /// Removes a piece from the index of its stage.
    fn leave(&mut self, work: &WorkRef) {
        let Some(piece) = self.pieces.get(work) else { return };
        match &piece.stage {
            Stage::Ready => {
                self.ready.remove(&piece.item.rank);
                self.unused_room.extend(piece.woken_for.clone());
            }
            Stage::Auctioned => {}
            Stage::HandedOut { until, .. } => {
                self.handed_out -= 1;
                self.timers.remove(&(*until, work.clone()));
            }
            Stage::Waiting { until } => {
                self.timers.remove(&(*until, work.clone()));
            }
            Stage::Blocked { again } => {
                self.timers.remove(&(*again, work.clone()));
                let shape = shape(&piece.item);
                if let Some(ranks) = self.blocked.get_mut(&shape) {
                    ranks.remove(&piece.item.rank);
                    if ranks.is_empty() {
                        self.blocked.remove(&shape);
                    }
                }
            }
        }
    }
}

/// Returns the shape of an item.
pub(crate) fn shape(item: &Item) -> Shape {
    let constraint = item.constraint().clone();
    let of = item.process().filter(|_| counts_siblings(item)).cloned();
    Shape { constraint, size: item.order.resources(), only: item.only.clone(), process: of }
}

/// Returns `true` if a constraint of the work counts the instances of its process.
fn counts_siblings(item: &Item) -> bool {
    item.constraint().rules.as_ref().is_some_and(|rules| rules.distinct().next().is_some())
}

/// Returns how many times work of this size fits into the free resources.
fn fit_count(free: Resources, size: Resources) -> usize {
    let times = |free: u64, size: u64| free.checked_div(size).unwrap_or(u64::MAX);
    let memory = times(free.memory_mb, size.memory_mb);
    let disk = times(free.disk_mb, size.disk_mb);
    let containers = times(free.containers.into(), size.containers.into());
    let ports = times(free.ports.into(), size.ports.into());
    usize::try_from(memory.min(disk).min(containers).min(ports)).unwrap_or(usize::MAX)
}
