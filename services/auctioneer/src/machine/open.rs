//! The open work: what the log says is to be placed, and how far this auctioneer is with it.
//!
//! Derived: every piece stands for an UNCLAIMED index or a PENDING task of the World, comes with the record and goes
//! with it. So it is bounded by the World, and there is no second queue to lose.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use projections::{WorkRef, World};
use schemas::actual;
use schemas::container::WorkKey;
use schemas::evaluation::{Duty, Evaluation, Trigger};
use schemas::message::PerformId;
use schemas::names::{CellId, Domain, EvaluationId, ProcessGuid};
use schemas::preemption::StoppedFor;
use schemas::rank::Rank;
use schemas::resources::{Constraint, Resources};
use schemas::task;
use schemas::{ActualLrpKey, Timestamp};

use crate::auction::Item;
use crate::board::BoardCell;

/// One piece of open work.
#[derive(Clone, Debug)]
struct Piece {
    item: Item,
    domain: Domain,
    stage: Stage,
    attempt: Attempt,
    /// The last auction that it was in.
    round: u64,
    /// How often the rep that took it was asked again.
    asked_again: u8,
    /// The placement error that the BBS last got, and when.
    reported: Option<(Timestamp, String)>,
    /// The BBS did not accept its outcome: nothing is reported of it before this time.
    quiet_until: Timestamp,
    /// Where room is made for it, and until when it waits for that.
    awaits: Option<(CellId, Timestamp)>,
    /// Whether the BBS makes it.
    asked: Asked,
    /// The cell for whose room it was made ready; none: for none.
    woken_for: Option<CellId>,
}

/// What is known of what the BBS was asked to stop for a piece of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Asked {
    /// It was asked, or something stopped there already.
    #[default]
    Sent,
    /// It didn't answer, or refused.
    Unanswered,
    /// The log says that something stops for the work.
    Recorded,
}

/// The evaluation that stands for a piece of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// Which; none: none does, which convergence sees to.
    pub(crate) evaluation: Option<EvaluationId>,
    /// The how manieth delivery it is.
    pub(crate) delivery: u32,
    /// It is scheduled no sooner than then.
    until: Option<Timestamp>,
    /// Whether it is to be placed: then the BBS waits for an answer.
    pub(crate) is_pending: bool,
    /// Whether it waits because reps refused it too often.
    pub(crate) after_refusals: bool,
}

impl Attempt {
    fn of(evaluation: Option<&Evaluation>) -> Self {
        evaluation.map_or_else(Self::default, |one| Self {
            evaluation: Some(one.id),
            delivery: one.delivery,
            until: one.wait.until(),
            is_pending: one.duty() == Some(Duty::Place),
            after_refusals: one.trigger == Trigger::Attempts,
        })
    }

    /// Whether this is to be scheduled anew, or no sooner than another time.
    fn is_news(&self, before: &Self) -> bool {
        let again = self.evaluation == before.evaluation && self.delivery != before.delivery;
        again || self.until != before.until
    }
}

/// How far an auctioneer is with a piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// Its evaluation waits until then.
    Waiting { until: Timestamp },
    /// To be placed in the next auction.
    Ready,
    /// In the auction that is under way.
    Auctioned,
    /// Given to a cell, which said that it took it or said nothing yet. If nothing more is heard until then, the cell
    /// is asked again, or the work is ready again.
    HandedOut { cell: CellId, id: PerformId, until: Timestamp, taken: bool },
    /// No cell takes it; it is tried again then, or when capacity appears.
    Blocked { again: Timestamp },
}

/// Work that the same cells take.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shape {
    constraint: Constraint,
    size: Resources,
    /// The only cell that may take it; none: any.
    only: Option<CellId>,
    /// Whose it is, if a cell takes it or not by how many of that are where.
    of: Option<ProcessGuid>,
}

/// All open work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Open {
    pieces: BTreeMap<WorkRef, Piece>,
    ready: BTreeSet<Rank>,
    /// How many pieces are handed out.
    handed_out: usize,
    blocked: BTreeMap<Shape, BTreeSet<Rank>>,
    /// When what is handed out or blocked is ready again.
    timers: BTreeSet<(Timestamp, WorkRef)>,
    /// What is blocked because nothing was called impossible in doubt.
    withheld: BTreeSet<WorkRef>,
    /// What waits for room that is being made for it.
    awaiting: BTreeSet<WorkRef>,
    /// The cells with room for which something was made ready that is not any more, or not as urgent: without an auction.
    unused: BTreeSet<CellId>,
}

/// The name of work in the World.
pub(crate) fn work_ref(key: &WorkKey) -> WorkRef {
    match key {
        WorkKey::Lrp { key, .. } => WorkRef::Lrp(key.clone()),
        WorkKey::Task { task_guid, .. } => WorkRef::Task(task_guid.clone()),
    }
}

/// The work at this place of the World, if there is some.
fn look(world: &World, work: &WorkRef) -> Option<(Item, Domain, Attempt)> {
    match work {
        WorkRef::Lrp(key) => {
            let process = world.process(&key.process_guid)?;
            let item = Item::of_place(process, &key.place)?;
            let evaluation = process.actual(&key.place).and_then(|lrp| process.evaluation_of(lrp));
            Some((item, process.domain.clone(), Attempt::of(evaluation.as_ref())))
        }
        WorkRef::Task(guid) => {
            let task = world.task(guid)?;
            let item = Item::of_task(task)?;
            Some((item, task.domain.clone(), Attempt::of(task.open_evaluation().as_ref())))
        }
    }
}

/// The placement error that the log shows.
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

impl Open {
    /// All work of a World.
    pub(crate) fn of(world: &World) -> Self {
        let mut open = Self::default();
        for work in world.work() {
            open.refresh(world, work);
        }
        open
    }

    /// How many pieces there are, and how many of them are blocked.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.pieces.len(), self.blocked.values().map(BTreeSet::len).sum())
    }

    /// How many timers there are, and how much is withheld, or waits for room that is being made.
    pub(crate) fn noted(&self) -> (usize, usize, usize) {
        (self.timers.len(), self.withheld.len(), self.awaiting.len())
    }

    /// How many pieces wait for the next auction.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// How many pieces cells were given and have not claimed.
    pub(crate) const fn handed_out(&self) -> usize {
        self.handed_out
    }

    /// When something is ready again.
    pub(crate) fn next_timer(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// The domain of a piece.
    pub(crate) fn domain(&self, work: &WorkRef) -> Option<&Domain> {
        self.pieces.get(work).map(|piece| &piece.domain)
    }

    /// The piece that this hand-out is about, if it still waits for it.
    pub(crate) fn handed(&self, item: &Item, (to, perform): (&CellId, PerformId)) -> Option<WorkRef> {
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

    /// The cells that pieces of a process were given to, one for each piece.
    pub(crate) fn handed_out_of<'a>(&'a self, guid: &'a ProcessGuid) -> impl Iterator<Item = &'a CellId> {
        self.of_process(guid).filter_map(|(_, piece)| match &piece.stage {
            Stage::HandedOut { cell, .. } => Some(cell),
            Stage::Waiting { .. } | Stage::Ready | Stage::Auctioned | Stage::Blocked { .. } => None,
        })
    }

    /// Takes over what the World says of one piece. The same attempt stays where it is, unless its evaluation is delivered
    /// again, or later, and no cell has it. Answers the evaluation of one that is gone, or another one.
    pub(crate) fn refresh(&mut self, world: &World, work: &WorkRef) -> Option<EvaluationId> {
        let found = look(world, work);
        let known = self.pieces.get_mut(work);
        let before = known.as_ref().and_then(|piece| piece.attempt.evaluation);
        if let (Some(piece), Some((item, _, attempt))) = (known, &found)
            && piece.item.rank.is_same_attempt(&item.rank)
        {
            let is_news = attempt.is_news(&piece.attempt);
            piece.attempt = *attempt;
            self.rank_anew(work, &item.rank);
            // What a cell was given is on its way there all the same: its own timer tells when that took too long.
            if is_news && !self.is_handed_out(work) {
                self.begin(work);
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
                asked_again: 0,
                reported: None,
                quiet_until: Timestamp(0),
                awaits: None,
                asked: Asked::default(),
                woken_for: None,
            };
            self.pieces.insert(work.clone(), piece);
            self.begin(work);
        }
        before
    }

    /// Somebody may have changed the priority of a piece: it waits where it did, at another place in the order.
    fn rank_anew(&mut self, work: &WorkRef, rank: &Rank) {
        let Some(piece) = self.pieces.get_mut(work).filter(|piece| piece.item.rank != *rank) else { return };
        let before = std::mem::replace(&mut piece.item.rank, rank.clone());
        let waiting = match &piece.stage {
            Stage::Ready => {
                self.unused.extend(piece.woken_for.take());
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

    /// A piece is in the next auction, or in the first after its evaluation's wait.
    fn begin(&mut self, work: &WorkRef) {
        let until = self.pieces.get(work).and_then(|piece| piece.attempt.until);
        let Some(until) = until else { return self.make_ready(work) };
        self.leave(work);
        if let Some(piece) = self.pieces.get_mut(work) {
            piece.stage = Stage::Waiting { until };
            self.timers.insert((until, work.clone()));
        }
    }

    /// Somebody wants what is of an evaluation tried again now.
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

    /// The evaluation that stands for a piece.
    pub(crate) fn attempt(&self, work: &WorkRef) -> Attempt {
        self.pieces.get(work).map(|piece| piece.attempt).unwrap_or_default()
    }

    /// Takes over what the World says of every piece of a process.
    pub(crate) fn refresh_process(&mut self, world: &World, guid: &ProcessGuid) {
        let known: Vec<WorkRef> = self.of_process(guid).map(|(work, _)| work.clone()).collect();
        for work in known {
            self.refresh(world, &work);
        }
    }

    /// The pieces of a process.
    fn of_process<'a>(&'a self, guid: &'a ProcessGuid) -> impl Iterator<Item = (&'a WorkRef, &'a Piece)> {
        let of_process = |work: &WorkRef| match work {
            WorkRef::Lrp(key) => key.process_guid == *guid,
            WorkRef::Task(_) => false,
        };
        let first = WorkRef::Lrp(ActualLrpKey::least_of(guid.clone()));
        self.pieces.range(first..).take_while(move |(work, _)| of_process(work))
    }

    /// Takes what is ready for this auction, at most this much: what has its turn first.
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

    /// A piece is to be placed in the next auction.
    pub(crate) fn make_ready(&mut self, work: &WorkRef) {
        self.leave(work);
        if let Some(piece) = self.pieces.get_mut(work) {
            piece.stage = Stage::Ready;
            piece.woken_for = None;
            piece.asked_again = 0;
            self.ready.insert(piece.item.rank.clone());
        }
    }

    /// A piece was given to a cell.
    pub(crate) fn hand_out(&mut self, work: &WorkRef, cell: CellId, id: PerformId, until: Timestamp) {
        self.leave(work);
        if let Some(piece) = self.pieces.get_mut(work) {
            piece.stage = Stage::HandedOut { cell, id, until, taken: false };
            self.handed_out += 1;
            self.timers.insert((until, work.clone()));
        }
    }

    /// No cell takes a piece: whoever refused it may be asked again the next time.
    pub(crate) fn block(&mut self, work: &WorkRef, again: Timestamp) {
        self.leave(work);
        if let Some(piece) = self.pieces.get_mut(work) {
            piece.stage = Stage::Blocked { again };
            piece.item.refused_by.clear();
            self.timers.insert((again, work.clone()));
            self.blocked.entry(shape(&piece.item)).or_default().insert(piece.item.rank.clone());
        }
    }

    /// No cell is known to take a piece, and that may be this auctioneer's own fault: it is blocked, and nothing is said.
    pub(crate) fn withhold(&mut self, work: &WorkRef, again: Timestamp) {
        self.block(work, again);
        self.withheld.insert(work.clone());
    }

    /// There is no doubt any more: what was withheld is tried again, if it is still blocked.
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

    /// The next auction prefers another cell for a piece.
    pub(crate) fn avoid(&mut self, work: &WorkRef, cell: &CellId) {
        if let Some(piece) = self.pieces.get_mut(work) {
            piece.item.refused_by.insert(cell.clone());
        }
    }

    /// The auction in which a piece was last.
    pub(crate) fn round(&self, work: &WorkRef) -> u64 {
        self.pieces.get(work).map_or(0, |piece| piece.round)
    }

    /// Whether only one cell may take a piece.
    pub(crate) fn has_only_cell(&self, work: &WorkRef) -> bool {
        self.pieces.get(work).is_some_and(|piece| piece.item.only.is_some())
    }

    /// The BBS gets the outcome that a piece can't be placed, unless it got that within `lately`. Answers what was judged.
    pub(crate) fn report(
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

    /// The BBS didn't accept the outcome of a piece: if it is still blocked, it is tried again at `again`.
    pub(crate) fn not_accepted(&mut self, work: &WorkRef, again: Timestamp) {
        if let Some(piece) = self.pieces.get_mut(work) {
            piece.reported = None;
            piece.quiet_until = again;
        }
        if self.is_blocked(work) {
            self.block(work, again);
        }
    }

    /// Until when nothing is reported of a piece, because the BBS did not accept its last outcome.
    pub(crate) fn quiet_until(&self, work: &WorkRef) -> Timestamp {
        self.pieces.get(work).map_or(Timestamp(0), |piece| piece.quiet_until)
    }

    /// Room is being made for a piece on a cell; none: no longer.
    pub(crate) fn set_awaits(&mut self, work: &WorkRef, awaits: Option<(CellId, Timestamp)>) {
        let Some(piece) = self.pieces.get_mut(work) else { return };
        if awaits.is_some() {
            self.awaiting.insert(work.clone());
        } else {
            self.awaiting.remove(work);
        }
        piece.awaits = awaits;
        piece.asked = Asked::Sent;
    }

    /// The BBS didn't answer, or refused what was to make room for a piece.
    pub(crate) fn doubt_awaits(&mut self, work: &WorkRef) {
        let sent = |piece: &&mut Piece| piece.asked == Asked::Sent;
        if let Some(piece) = self.pieces.get_mut(work).filter(sent) {
            piece.asked = Asked::Unanswered;
        }
    }

    /// The log says that something stops on a cell for a piece: whatever the BBS answers, its room comes. If no piece that
    /// may be meant waits there, the first of them that waits nowhere does so, until then.
    pub(crate) fn stops_for(&mut self, of: &StoppedFor, cell: &CellId, (now, until): (Timestamp, Timestamp)) {
        let meant = self.meant(of);
        let waits_there = |work: &&WorkRef| self.awaits(work).is_some_and(|(known, _)| known == cell);
        let mut there: Vec<WorkRef> = meant.iter().filter(waits_there).cloned().collect();
        if there.is_empty() {
            let idle = meant.into_iter().filter(|work| !self.is_awaiting_room(work, now));
            there.extend(idle.min_by_key(|work| self.pieces.get(work).map(|piece| &piece.item.rank)));
        }
        for work in there {
            if !self.is_awaiting_room(&work, now) {
                self.set_awaits(&work, Some((cell.clone(), until)));
            }
            if let Some(piece) = self.pieces.get_mut(&work) {
                piece.asked = Asked::Recorded;
            }
        }
    }

    /// The log says only now that room is made for a piece, which was given up meanwhile: it is kept until then, and the
    /// next auction judges the piece anew and says so.
    pub(crate) fn said_late(&mut self, work: &WorkRef, cell: CellId, (now, until): (Timestamp, Timestamp)) {
        if self.is_awaiting_room(work, now) {
            return;
        }
        self.set_awaits(work, Some((cell, until)));
        if let Some(piece) = self.pieces.get_mut(work) {
            piece.asked = Asked::Unanswered;
            piece.reported = None;
        }
        if self.is_blocked(work) {
            self.make_ready(work);
        }
    }

    /// Whether room is being made for a piece, and the time for that is not over.
    fn is_awaiting_room(&self, work: &WorkRef, now: Timestamp) -> bool {
        self.awaits(work).is_some_and(|(_, until)| now < *until)
    }

    /// The pieces that may be meant by what something stops for, which names no definition.
    fn meant(&self, of: &StoppedFor) -> Vec<WorkRef> {
        match of {
            StoppedFor::Task(guid) => vec![WorkRef::Task(guid.clone())],
            StoppedFor::Instance(guid, index) => {
                let works = self.of_process(guid).map(|(work, _)| work);
                let meant = |work: &&WorkRef| match work {
                    WorkRef::Lrp(key) => key.place.index == *index,
                    WorkRef::Task(_) => false,
                };
                works.filter(meant).cloned().collect()
            }
        }
    }

    /// Whether nobody knows that anything stops for a piece.
    pub(crate) fn is_doubtful(&self, work: &WorkRef) -> bool {
        self.pieces.get(work).is_some_and(|piece| piece.asked == Asked::Unanswered)
    }

    /// A piece for which something stops waits at least so long: its room is there when its rep says so.
    pub(crate) fn await_at_least(&mut self, work: &WorkRef, until: Timestamp) {
        let awaits = self.pieces.get_mut(work).and_then(|piece| piece.awaits.as_mut());
        if let Some((_, known)) = awaits {
            *known = until.max(*known);
        }
    }

    /// Where room is being made for a piece, and until when it waits for that.
    pub(crate) fn awaits(&self, work: &WorkRef) -> Option<&(CellId, Timestamp)> {
        self.pieces.get(work)?.awaits.as_ref()
    }

    /// Whether room is being made for anything.
    pub(crate) fn is_awaiting(&self) -> bool {
        !self.awaiting.is_empty()
    }

    /// What waits for room that is being made for it, and for nothing else.
    pub(crate) fn awaiting(&self) -> impl Iterator<Item = (&WorkRef, &Item, &(CellId, Timestamp))> {
        let pieces = self.awaiting.iter().filter_map(|work| Some((work, self.pieces.get(work)?)));
        pieces.filter_map(|(work, piece)| match &piece.stage {
            Stage::Ready | Stage::Auctioned | Stage::Blocked { .. } => {
                Some((work, &piece.item, piece.awaits.as_ref()?))
            }
            Stage::HandedOut { .. } | Stage::Waiting { .. } => None,
        })
    }

    /// The cells on which room is being made for what is in the next auction: it may be placed, there or elsewhere.
    pub(crate) fn awaiting_ready(&self) -> BTreeSet<CellId> {
        let pieces = self.awaiting.iter().filter_map(|work| self.pieces.get(work));
        let ready = pieces.filter(|piece| piece.stage == Stage::Ready);
        ready.filter_map(|piece| piece.awaits.as_ref().map(|(cell, _)| cell.clone())).collect()
    }

    /// Everything that is blocked is in the next auction.
    pub(crate) fn wake_all(&mut self) {
        let blocked: Vec<WorkRef> = self.blocked.values().flatten().map(|rank| work_ref(&rank.key)).collect();
        blocked.iter().for_each(|work| self.make_ready(work));
    }

    /// The cell took a piece.
    pub(crate) fn took(&mut self, work: &WorkRef) {
        if let Some(Piece { stage: Stage::HandedOut { taken, .. }, .. }) = self.pieces.get_mut(work) {
            *taken = true;
        }
    }

    /// Makes ready whose time has come. Answers what a cell took, or `seen` says that its rep saw, and is to be asked
    /// about: at most so often, and only who is there to be asked.
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
                    if piece.asked_again < most && is_there(cell) {
                        piece.asked_again += 1;
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
            // Its evaluation may have been delivered again meanwhile, to be scheduled later.
            if piece.attempt.until.is_some_and(|until| until > now) {
                self.begin(&work);
            } else {
                self.make_ready(&work);
            }
        }
        asked
    }

    /// Makes ready what waits for a cell like this one: of each shape as much as has room there, in order.
    pub(crate) fn wake_for(&mut self, cell: &BoardCell, free: Resources, most: usize) {
        let fits = |shape: &&Shape| {
            shape.only.as_ref().is_none_or(|only| *only == cell.id)
                && free.fits(shape.size)
                && shape.constraint.mismatch(&cell.offer()).is_none()
        };
        let shapes: Vec<Shape> = self.blocked.keys().filter(fits).cloned().collect();
        for shape in shapes {
            let room = how_often(free, shape.size).min(most);
            let ranks = self.blocked.get(&shape).into_iter().flatten().take(room);
            for work in ranks.map(|rank| work_ref(&rank.key)).collect::<Vec<_>>() {
                self.make_ready(&work);
                if let Some(piece) = self.pieces.get_mut(&work) {
                    piece.woken_for = Some(cell.id.clone());
                }
            }
        }
    }

    /// The cells that have room for which nothing is ready any more, or nothing as urgent: it is news again for what waits.
    pub(crate) fn take_unused(&mut self) -> BTreeSet<CellId> {
        std::mem::take(&mut self.unused)
    }

    /// An instance of a process left: what waits because of how many of that are where may have its place now.
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

    /// Takes a piece out of the index of its stage.
    fn leave(&mut self, work: &WorkRef) {
        let Some(piece) = self.pieces.get(work) else { return };
        match &piece.stage {
            Stage::Ready => {
                self.ready.remove(&piece.item.rank);
                self.unused.extend(piece.woken_for.clone());
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

/// What the same cells take.
pub(crate) fn shape(item: &Item) -> Shape {
    let constraint = item.constraint().clone();
    let of = item.process().filter(|_| counts_siblings(item)).cloned();
    Shape { constraint, size: item.order.resources(), only: item.only.clone(), of }
}

/// Whether a cell takes it or not by how many of its process are where.
fn counts_siblings(item: &Item) -> bool {
    item.constraint().rules.as_ref().is_some_and(|rules| rules.distinct().next().is_some())
}

/// How often work of this size fits.
fn how_often(free: Resources, size: Resources) -> usize {
    let times = |free: u64, size: u64| free.checked_div(size).unwrap_or(u64::MAX);
    let memory = times(free.memory_mb, size.memory_mb);
    let disk = times(free.disk_mb, size.disk_mb);
    let containers = times(free.containers.into(), size.containers.into());
    let ports = times(free.ports.into(), size.ports.into());
    usize::try_from(memory.min(disk).min(containers).min(ports)).unwrap_or(usize::MAX)
}
