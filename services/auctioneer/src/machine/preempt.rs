//! Room (free resources) for waiting work, made by preemption. Room has two sources: work that is already
//! stopping according to the log, and evictions that the auctioneer requests from the BBS. A victim is less
//! urgent work that is evicted.
//!
//! The log contains the stop requests and their reasons. The assignment of room to waiting work is kept in
//! memory only. A new leader derives this assignment from the log, and each assignment expires automatically.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use machines::actual::Actual;
use machines::cell::Cell;
use machines::cluster::Cluster;
use projections::{WorkRef, World};
use schemas::actual::{self, StopReason};
use schemas::container::{Instance, WorkKey};
use schemas::definition::Placement;
use schemas::entry::{Aggregate, Event};
use schemas::message::WorkDefinition;
use schemas::names::CellId;
use schemas::placement::{ROOM_PENDING_SUFFIX, awaited_cell};
use schemas::preemption::{self, Eviction, Preemptor};
use schemas::resources::Resources;
use schemas::stamp::Actor;
use schemas::{Decision, Place, Timestamp, limits};

use super::Auctioneer;
use super::open::{Shape, known_error, shape, work_ref};
use crate::auction::{Item, Reservation, Siblings};
use crate::plan::obstacles::{Obstacle, obstacle};
use crate::preempt::{CandidateCell, PendingWork, PreemptibleWork, choose};

/// Maximum number of waiting items for which one turn (a run of the auction) searches victims. Further items
/// wait for later turns.
const MAX_SEARCHES: usize = 50;

/// Work that is stopping, and the waiting work that gets its room.
#[derive(Default)]
struct RoomState {
    /// `true` if this auctioneer may request further evictions.
    may_evict: bool,
    /// Resources on each cell that stopping work will release.
    freeing: BTreeMap<CellId, Resources>,
    /// Cells on which work is being preempted.
    preempting: BTreeSet<CellId>,
    /// Number of preempted instances that have not ended yet.
    in_flight: usize,
    /// Room that is reserved for waiting work.
    reserved: BTreeMap<CellId, Vec<(WorkRef, Resources)>>,
    /// Work that may be stopped, for each inspected cell.
    running: BTreeMap<CellId, Arc<Vec<PreemptibleWork>>>,
    /// Shapes of work (size, constraint and process) for which no victims were found. Work is inspected in
    /// rank order, so later work of the same shape cannot find victims either.
    hopeless: BTreeSet<Shape>,
}

impl Auctioneer {
    fn is_preempting(&self) -> bool {
        self.world.cluster().is_some_and(|cluster: &Cluster| cluster.preemption)
    }

    /// Applies the current preemption setting. If preemption was enabled since the last call, blocked work
    /// becomes ready, because the auctioneer may now make room for this work.
    pub(super) fn follow_preemption(&mut self) {
        let is_on = self.is_preempting();
        let before = std::mem::replace(&mut self.preemption_enabled, is_on);
        if self.preemption_enabled && !before {
            self.open.wake_all();
        }
    }

    /// Applies a decision that may evict running work. The stopped work releases its resources regardless of
    /// the BBS's answer to the eviction request.
    pub(super) fn follow_eviction(&mut self, decision: &Decision) {
        // Any client can write such a reason. The room is assigned only if the decision comes from an
        // auctioneer.
        let (Actor::Auctioneer(_), Some(reason)) = (&decision.actor, &decision.reason) else { return };
        let Some(of) = preemption::parse_preemptor(reason) else { return };
        if let Some(cell) = stopping_cell(&self.world, decision).cloned() {
            self.open.eviction_recorded(&of, &cell, (self.now, self.now + self.settings.room_timeout));
        }
    }

    /// Applies the placement error of some work. The error may name a cell on which room is reserved for the
    /// work. If this auctioneer has already given up the room, it reserves the room again.
    pub(super) fn follow_error(&mut self, work: &WorkRef) {
        if let Some(cell) = known_error(&self.world, work).and_then(awaited_cell) {
            self.open.room_reported_late(work, cell, (self.now, self.now + self.settings.room_timeout));
        }
    }

    /// Ends the settling time of a new leader. The leader now knows all work that was stopped under its
    /// predecessor. Blocked work becomes ready, because cells may have room for it.
    pub(super) fn settle(&mut self, now: Timestamp) {
        if self.settles_until.take_if(|until| *until <= now).is_some() && self.is_preempting() {
            self.open.wake_all();
        }
    }

    /// Returns the reservations for waiting work.
    pub(super) fn reservations(&self, now: Timestamp) -> Vec<Reservation> {
        if !self.open.is_awaiting() {
            return vec![];
        }
        let making = self.preempting_cells();
        let awaiting = self.open.awaiting().filter(|(_, _, awaits)| is_wait_active(awaits, &making, now));
        let hold = |(_, item, (cell, _)): (&WorkRef, &Item, &(CellId, Timestamp))| Reservation {
            rank: item.rank.clone(),
            cell: cell.clone(),
            size: item.order.resources(),
        };
        awaiting.map(hold).collect()
    }

    /// Makes blocked work ready if it can use room on certain cells. These are the cells whose reservation
    /// has ended, or may end in this turn.
    pub(super) fn wake_for_released_room(&mut self, now: Timestamp) {
        if !self.open.is_awaiting() && self.last_reservations.is_empty() {
            return;
        }
        let making = self.preempting_cells();
        let awaiting = self.open.awaiting().filter(|(_, _, awaits)| is_wait_active(awaits, &making, now));
        let kept: BTreeSet<(WorkRef, CellId)> =
            awaiting.map(|(work, _, (cell, _))| (work.clone(), cell.clone())).collect();
        // The log may show the end of work before the cell's heartbeat does. The room is free only after the
        // next heartbeat.
        let told = now + self.settings.heartbeat * 2;
        let stops = kept.iter().filter(|(_, cell)| making.contains(cell));
        stops.for_each(|(work, _)| self.open.extend_wait(work, told));
        let before = std::mem::replace(&mut self.last_reservations, kept);
        let let_go = before.difference(&self.last_reservations).map(|(_, cell)| cell.clone());
        let cells: BTreeSet<CellId> = let_go.chain(self.open.awaiting_ready()).collect();
        self.wake_for(&cells);
    }

    /// Returns the cells on which work is being preempted.
    fn preempting_cells(&self) -> BTreeSet<CellId> {
        let preempted = stopping(&self.world).filter(|(_, _, why)| *why == Some(StopReason::Preempted));
        preempted.map(|(_, by, _)| by.cell_id.clone()).collect()
    }

    /// Appends the cell of the reserved room to a placement error. Every reservation is therefore visible in
    /// the log.
    pub(super) fn error_with_room(&self, now: Timestamp, work: &WorkRef, error: &str) -> String {
        let awaits = self
            .open
            .awaited_room(work)
            .filter(|awaits| is_wait_active(awaits, &self.preempting_cells(), now));
        let room = awaits.map(|(cell, _)| format!("{ROOM_PENDING_SUFFIX}{cell}")).unwrap_or_default();
        limits::truncate(error, limits::REASON_BYTES - room.len()) + &room
    }

    /// Makes room for work that no cell accepts, if preemption is on.
    pub(super) fn make_room<'a>(&mut self, now: Timestamp, failed: impl Iterator<Item = &'a Item>) {
        let may_choose = self.is_preempting() && !self.cells.is_in_doubt(now, &self.settings);
        let failed: Vec<&Item> = failed.filter(|item| may_wait(item)).collect();
        if failed.is_empty() || !may_choose && !self.open.is_awaiting() {
            return;
        }
        let siblings = self.siblings(failed.iter().copied());
        let mut scene = self.room_state(now);
        let mut searches = 0;
        for item in failed {
            let work = work_ref(&item.rank.key);
            // If the result of an eviction request is unknown and no work is being preempted on the cell,
            // choose victims again. The room stays reserved until the new choice.
            let is_settled = !may_choose || !self.open.is_eviction_unknown(&work);
            let known =
                self.open.awaited_room(&work).filter(|known| is_wait_active(known, &scene.preempting, now));
            let known = known.filter(|(cell, _)| is_settled || scene.preempting.contains(cell));
            let known =
                known.filter(|(cell, _)| !may_choose || self.world.cell(cell).is_some_and(takes_work));
            if known.is_some() || !may_choose {
                continue;
            }
            self.open.set_awaited_room(&work, None);
            // Work of the same shape that ranks later cannot find victims either.
            if searches >= MAX_SEARCHES || scene.hopeless.contains(&shape(item)) {
                continue;
            }
            searches += 1;
            if let Some(cell) = self.room_for(item, &siblings, &mut scene) {
                self.open.set_awaited_room(&work, Some((cell, now + self.settings.room_timeout)));
            }
        }
    }

    /// Returns the cell that will have room for some work after the victims have stopped. `None` if there is
    /// no such cell, or if work that stops for another reason frees enough room.
    fn room_for(&mut self, item: &Item, siblings: &Siblings, scene: &mut RoomState) -> Option<CellId> {
        let (work, size) = (work_ref(&item.rank.key), item.order.resources());
        let offers = self.offers(item, siblings, scene);
        if let Some(offer) = offers.iter().find(|offer| offer.free.fits(size)) {
            scene.reserve(&offer.cell, &work, size);
            return scene.preempting.contains(&offer.cell).then(|| offer.cell.clone());
        }
        if !scene.may_evict {
            return None;
        }
        let chosen = self.evict(item, &offers, scene);
        if chosen.is_none() {
            scene.hopeless.insert(shape(item));
        }
        chosen
    }

    /// Chooses the victims for some work and requests their eviction. Returns the cell of the victims.
    fn evict(&mut self, item: &Item, offers: &[CandidateCell], scene: &mut RoomState) -> Option<CellId> {
        let (work, size, priority) = (work_ref(&item.rank.key), item.order.resources(), item.rank.priority.0);
        let process = item.process().cloned();
        let chosen = choose(&PendingWork { priority, size, process }, offers)?;
        if scene.in_flight + chosen.victims.len() > limits::EVICTIONS {
            return None;
        }
        scene.in_flight += chosen.victims.len();
        scene.reserve(&chosen.cell, &work, size);
        if let Some(running) = scene.running.get_mut(&chosen.cell) {
            Arc::make_mut(running).retain(|one| !chosen.victims.contains(one));
        }
        let comes = scene.freeing.entry(chosen.cell.clone()).or_default();
        *comes = chosen.victims.iter().fold(*comes, |sum, one| sum.plus(one.size));
        let key = item.rank.key.clone();
        let preemptor = Preemptor { work: key, attempt: item.rank.since, priority };
        let eviction =
            |PreemptibleWork { key, by, .. }| Eviction { victim: key, by, preemptor: preemptor.clone() };
        self.outgoing.evict(work, chosen.victims.into_iter().map(eviction).collect());
        Some(chosen.cell)
    }

    /// Returns the work that is stopping, and the waiting work that gets its room.
    fn room_state(&self, now: Timestamp) -> RoomState {
        // A new leader requests no evictions at first. Work that its predecessor stopped may have ended in
        // the log, although the last heartbeat of the cell still includes this work.
        let mut scene = RoomState { may_evict: self.settles_until.is_none(), ..RoomState::default() };
        for (size, by, why) in stopping(&self.world) {
            let comes = scene.freeing.entry(by.cell_id.clone()).or_default();
            *comes = comes.plus(size);
            if why == Some(StopReason::Preempted) {
                scene.preempting.insert(by.cell_id.clone());
                scene.in_flight += 1;
            }
        }
        let awaiting =
            self.open.awaiting().filter(|(_, _, awaits)| is_wait_active(awaits, &scene.preempting, now));
        let held: Vec<_> = awaiting
            .map(|(work, item, (cell, _))| (cell.clone(), work.clone(), item.order.resources()))
            .collect();
        held.into_iter().for_each(|(cell, work, size)| scene.reserve(&cell, &work, size));
        scene
    }

    /// Returns the cells that could run some work if they had enough room. Each cell is returned with its
    /// free resources and its running work.
    fn offers(&mut self, item: &Item, siblings: &Siblings, scene: &mut RoomState) -> Vec<CandidateCell> {
        let siblings = item.process().and_then(|guid| siblings.get(guid));
        let work = work_ref(&item.rank.key);
        let board = &*self.cells.board();
        let mut offers = vec![];
        for (number, cell) in (0..).zip(board.cells()) {
            if item.only.as_ref().is_some_and(|only| *only != cell.id) {
                continue;
            }
            match obstacle(board, number, item, siblings) {
                None | Some(Obstacle::InsufficientFree(_)) => {}
                Some(
                    Obstacle::InstanceLimit(_)
                    | Obstacle::Unavailable { .. }
                    | Obstacle::InsufficientTotal(_)
                    | Obstacle::Incompatible(_),
                ) => {
                    continue;
                }
            }
            let world = &self.world;
            let running = scene.running.entry(cell.id.clone()).or_insert_with(|| running_on(world, &cell.id));
            let running = Arc::clone(running);
            let free = scene.free(&cell.id, board.free(number), &work);
            offers.push(CandidateCell { cell: cell.id.clone(), free, running });
        }
        offers
    }
}

impl RoomState {
    /// Reserves room for waiting work.
    fn reserve(&mut self, cell: &CellId, work: &WorkRef, size: Resources) {
        self.reserved.entry(cell.clone()).or_default().push((work.clone(), size));
    }

    /// Returns the resources that are free or will become free, less those that are reserved for other work.
    fn free(&self, cell: &CellId, free: Resources, work: &WorkRef) -> Resources {
        let comes = self.freeing.get(cell).copied().unwrap_or_default();
        let others = self.reserved.get(cell).into_iter().flatten().filter(|(of, _)| of != work);
        others.fold(free.plus(comes), |left, (_, size)| left.minus(*size))
    }
}

/// Returns `true` if work must keep waiting for room on a cell. This is the case if work is being preempted
/// on the cell or the waiting time has not ended.
fn is_wait_active((cell, until): &(CellId, Timestamp), making: &BTreeSet<CellId>, now: Timestamp) -> bool {
    now < *until || making.contains(cell)
}

/// Returns `true` if a cell accepts work according to the log. Work waits for room only on such cells.
const fn takes_work(cell: &Cell) -> bool {
    cell.present && !cell.cordoned && !cell.evacuation_requested && !cell.evacuating
}

/// Returns `true` if the work waits for room instead of failing at once.
fn may_wait(item: &Item) -> bool {
    match &item.order {
        WorkDefinition::Lrp(_) => true,
        WorkDefinition::Task(definition) => definition.placement != Placement::Fail,
    }
}

/// Returns the instances that were asked to stop and still exist, each with its size, its container and the
/// reason for the stop.
fn stopping(world: &World) -> impl Iterator<Item = (Resources, &Instance, Option<StopReason>)> {
    world.stopping().filter_map(|work| {
        let WorkRef::Lrp(key) = work else { return None };
        let process = world.process(&key.process_guid)?;
        let lrp = process.actual(&key.place)?;
        let size = process.desired.as_ref()?.definition(&key.place.definition_id)?.resources();
        Some((size, lrp.holder()?, lrp.stop))
    })
}

/// Returns the cell of the work that a decision stops.
fn stopping_cell<'a>(world: &'a World, decision: &Decision) -> Option<&'a CellId> {
    match &decision.aggregate {
        Aggregate::Process { guid, .. } => {
            let process = world.process(guid)?;
            let stopped = decision.events.iter().find_map(stopped_place)?;
            Some(&process.actual(&stopped)?.holder()?.cell_id)
        }
        Aggregate::Task { guid, .. } => Some(&world.task(guid)?.completed()?.by.as_ref()?.cell_id),
        Aggregate::Periodic { .. }
        | Aggregate::Parameterised { .. }
        | Aggregate::Domain(_)
        | Aggregate::Cell(_)
        | Aggregate::Cluster => None,
    }
}

/// Returns the slot (index and definition) of an instance that was asked to stop.
fn stopped_place(event: &Event) -> Option<Place> {
    let Event::Actual(actual::Event::StopRequested { places, .. }) = event else { return None };
    places.iter().next()
}

/// Returns the work on a cell that may be stopped for other work.
fn running_on(world: &World, cell: &CellId) -> Arc<Vec<PreemptibleWork>> {
    let on_cell = |work| running(world, work).filter(|one| one.by.cell_id == *cell);
    Arc::new(world.on_cell(cell).filter_map(on_cell).collect())
}

fn running(world: &World, work: &WorkRef) -> Option<PreemptibleWork> {
    match work {
        WorkRef::Lrp(key) => {
            let process = world.process(&key.process_guid)?;
            let desired = process.desired.as_ref()?;
            Some(PreemptibleWork {
                by: process.preemptible_instance(&key.place)?.clone(),
                priority: desired.priority,
                size: desired.definition(&key.place.definition_id)?.resources(),
                since: process.actual(&key.place).map(|lrp: &Actual| lrp.since)?,
                key: WorkKey::Lrp { key: key.clone(), epoch: process.epoch },
            })
        }
        WorkRef::Task(guid) => {
            let task = world.task(guid)?;
            Some(PreemptibleWork {
                by: task.preemptible_container()?.clone(),
                priority: task.definition.priority,
                size: task.definition.resources(),
                since: task.since,
                key: WorkKey::Task { task_guid: guid.clone(), epoch: task.epoch },
            })
        }
    }
}
