//! Room for waiting work: work that stops anyway according to the log, and evictions requested from the BBS.
//!
//! The log contains the stop requests and their reasons. The assignment of the resulting room to waiting work
//! is kept in memory only: a new leader derives it from the log, and it expires automatically.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use projections::{WorkRef, World};
use schemas::actual::{self, Actual, Ended};
use schemas::cell::Cell;
use schemas::cluster::Cluster;
use schemas::container::{Instance, WorkKey};
use schemas::definition::Placement;
use schemas::entry::{Actor, Aggregate, Event};
use schemas::message::Order;
use schemas::names::CellId;
use schemas::placement::{AWAITS, awaited_cell};
use schemas::preemption::{self, Eviction, Preemptor};
use schemas::resources::Resources;
use schemas::{Decision, Place, Timestamp, limits};

use super::Auctioneer;
use super::open::{Shape, known_error, shape, work_ref};
use crate::auction::{Hold, Item, Siblings};
use crate::plan::lacks::{Keeps, keeps};
use crate::preempt::{Offer, Running, Waiting, choose};

/// Maximum number of pieces for which victims are searched in one turn. The others wait for later turns.
const SEARCHES: usize = 50;

/// Work that stops, and the work that waits for its room.
#[derive(Default)]
struct Scene {
    /// `true` if further evictions are allowed.
    may_evict: bool,
    /// Room that will be freed by work that was asked to stop.
    comes: BTreeMap<CellId, Resources>,
    /// Cells on which work is being preempted.
    making: BTreeSet<CellId>,
    /// Number of preempted instances that have not ended.
    in_flight: usize,
    /// Room that is reserved for waiting work.
    held: BTreeMap<CellId, Vec<(WorkRef, Resources)>>,
    /// Work that may be stopped, on each cell that was inspected.
    running: BTreeMap<CellId, Arc<Vec<Running>>>,
    /// Shapes for which no victims were found. Work is inspected in rank order, so later work of the same
    /// shape has no better chance.
    hopeless: BTreeSet<Shape>,
}

impl Auctioneer {
    fn is_preempting(&self) -> bool {
        self.world.cluster().is_some_and(|cluster: &Cluster| cluster.preemption)
    }

    /// Follows the preemption setting. If preemption was enabled, blocked work may have room now.
    pub(super) fn follow_preemption(&mut self) {
        let is_on = self.is_preempting();
        let before = std::mem::replace(&mut self.preempts, is_on);
        if self.preempts && !before {
            self.open.wake_all();
        }
    }

    /// Follows a decision that may stop work for waiting work. The room will come, whatever the BBS answered.
    pub(super) fn follow_eviction(&mut self, decision: &Decision) {
        // Any client can write such a reason. Only the reason of an auctioneer assigns the room.
        let (Actor::Auctioneer(_), Some(reason)) = (&decision.actor, &decision.reason) else { return };
        let Some(of) = preemption::stopped_for(reason) else { return };
        if let Some(cell) = stopped_on(&self.world, decision).cloned() {
            self.open.stops_for(&of, &cell, (self.now, self.now + self.settings.patience));
        }
    }

    /// Follows a placement error. The log may show reserved room only after this auctioneer gave it up.
    pub(super) fn follow_error(&mut self, work: &WorkRef) {
        if let Some(cell) = known_error(&self.world, work).and_then(awaited_cell) {
            self.open.said_late(work, cell, (self.now, self.now + self.settings.patience));
        }
    }

    /// Ends the settling time of a new leader. It then knows all work that was stopped before, and blocked
    /// work may have room.
    pub(super) fn settle(&mut self, now: Timestamp) {
        if self.settles_until.take_if(|until| *until <= now).is_some() && self.is_preempting() {
            self.open.wake_all();
        }
    }

    /// Returns the reservations for waiting work.
    pub(super) fn holds(&self, now: Timestamp) -> Vec<Hold> {
        if !self.open.is_awaiting() {
            return vec![];
        }
        let making = self.making();
        let awaiting = self.open.awaiting().filter(|(_, _, awaits)| lasts(awaits, &making, now));
        let hold = |(_, item, (cell, _)): (&WorkRef, &Item, &(CellId, Timestamp))| Hold {
            rank: item.rank.clone(),
            cell: cell.clone(),
            size: item.order.resources(),
        };
        awaiting.map(hold).collect()
    }

    /// Wakes work that waits for room on cells whose reservation has ended or may end with this turn.
    pub(super) fn wake_for_what_is_let_go(&mut self, now: Timestamp) {
        if !self.open.is_awaiting() && self.kept.is_empty() {
            return;
        }
        let making = self.making();
        let awaiting = self.open.awaiting().filter(|(_, _, awaits)| lasts(awaits, &making, now));
        let kept: BTreeSet<(WorkRef, CellId)> =
            awaiting.map(|(work, _, (cell, _))| (work.clone(), cell.clone())).collect();
        // Room that ended in the log is free only once the next heartbeat reports it.
        let told = now + self.settings.heartbeat * 2;
        let stops = kept.iter().filter(|(_, cell)| making.contains(cell));
        stops.for_each(|(work, _)| self.open.await_at_least(work, told));
        let before = std::mem::replace(&mut self.kept, kept);
        let let_go = before.difference(&self.kept).map(|(_, cell)| cell.clone());
        let cells: BTreeSet<CellId> = let_go.chain(self.open.awaiting_ready()).collect();
        self.wake_for(&cells);
    }

    /// Returns the cells on which work is being preempted.
    fn making(&self) -> BTreeSet<CellId> {
        let preempted = stopping(&self.world).filter(|(_, _, why)| *why == Some(Ended::Preempted));
        preempted.map(|(_, by, _)| by.cell_id.clone()).collect()
    }

    /// Appends to a placement error the cell on which room is reserved. Every reservation is thus visible in
    /// the log.
    pub(super) fn with_room(&self, now: Timestamp, work: &WorkRef, error: &str) -> String {
        let awaits = self.open.awaits(work).filter(|awaits| lasts(awaits, &self.making(), now));
        let room = awaits.map(|(cell, _)| format!("{AWAITS}{cell}")).unwrap_or_default();
        limits::cut(error, limits::REASON_BYTES - room.len()) + &room
    }

    /// Makes room for work that no cell accepts, if preemption is on.
    pub(super) fn make_room<'a>(&mut self, now: Timestamp, failed: impl Iterator<Item = &'a Item>) {
        let may_choose = self.is_preempting() && !self.cells.is_in_doubt(now, &self.settings);
        let failed: Vec<&Item> = failed.filter(|item| may_wait(item)).collect();
        if failed.is_empty() || !may_choose && !self.open.is_awaiting() {
            return;
        }
        let siblings = self.siblings(failed.iter().copied());
        let mut scene = self.scene(now);
        let mut searches = 0;
        for item in failed {
            let work = work_ref(&item.rank.key);
            // If the result of a request is unknown and nothing stops, victims are chosen again. Until then
            // the room stays reserved.
            let is_settled = !may_choose || !self.open.is_doubtful(&work);
            let known = self.open.awaits(&work).filter(|known| lasts(known, &scene.making, now));
            let known = known.filter(|(cell, _)| is_settled || scene.making.contains(cell));
            let known =
                known.filter(|(cell, _)| !may_choose || self.world.cell(cell).is_some_and(takes_work));
            if known.is_some() || !may_choose {
                continue;
            }
            self.open.set_awaits(&work, None);
            // Work of the same shape that ranks later has no further victims to choose from.
            if searches >= SEARCHES || scene.hopeless.contains(&shape(item)) {
                continue;
            }
            searches += 1;
            if let Some(cell) = self.room_for(item, &siblings, &mut scene) {
                self.open.set_awaits(&work, Some((cell, now + self.settings.patience)));
            }
        }
    }

    /// Returns the cell that has room for some work once the victims have stopped. `None` if there is no such
    /// cell, or if other work that stops frees enough room.
    fn room_for(&mut self, item: &Item, siblings: &Siblings, scene: &mut Scene) -> Option<CellId> {
        let (work, size) = (work_ref(&item.rank.key), item.order.resources());
        let offers = self.offers(item, siblings, scene);
        if let Some(offer) = offers.iter().find(|offer| offer.free.fits(size)) {
            scene.hold(&offer.cell, &work, size);
            return scene.making.contains(&offer.cell).then(|| offer.cell.clone());
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

    /// Chooses the victims for some work. Returns their cell.
    fn evict(&mut self, item: &Item, offers: &[Offer], scene: &mut Scene) -> Option<CellId> {
        let (work, size, priority) = (work_ref(&item.rank.key), item.order.resources(), item.rank.priority.0);
        let process = item.process().cloned();
        let chosen = choose(&Waiting { priority, size, process }, offers)?;
        if scene.in_flight + chosen.victims.len() > limits::EVICTIONS {
            return None;
        }
        scene.in_flight += chosen.victims.len();
        scene.hold(&chosen.cell, &work, size);
        if let Some(running) = scene.running.get_mut(&chosen.cell) {
            Arc::make_mut(running).retain(|one| !chosen.victims.contains(one));
        }
        let comes = scene.comes.entry(chosen.cell.clone()).or_default();
        *comes = chosen.victims.iter().fold(*comes, |sum, one| sum.plus(one.size));
        let key = item.rank.key.clone();
        let preemptor = Preemptor { work: key, attempt: item.rank.since, priority };
        let eviction = |Running { key, by, .. }| Eviction { victim: key, by, preemptor: preemptor.clone() };
        self.outgoing.evict(work, chosen.victims.into_iter().map(eviction).collect());
        Some(chosen.cell)
    }

    /// Returns the work that stops and the work that waits for its room.
    fn scene(&self, now: Timestamp) -> Scene {
        // Work stopped under the previous leader may have ended in the log while the last heartbeat of its
        // cell still includes it.
        let mut scene = Scene { may_evict: self.settles_until.is_none(), ..Scene::default() };
        for (size, by, why) in stopping(&self.world) {
            let comes = scene.comes.entry(by.cell_id.clone()).or_default();
            *comes = comes.plus(size);
            if why == Some(Ended::Preempted) {
                scene.making.insert(by.cell_id.clone());
                scene.in_flight += 1;
            }
        }
        let awaiting = self.open.awaiting().filter(|(_, _, awaits)| lasts(awaits, &scene.making, now));
        let held: Vec<_> = awaiting
            .map(|(work, item, (cell, _))| (cell.clone(), work.clone(), item.order.resources()))
            .collect();
        held.into_iter().for_each(|(cell, work, size)| scene.hold(&cell, &work, size));
        scene
    }

    /// Returns the cells that would run some work if they had room, with their free resources and their
    /// running work.
    fn offers(&mut self, item: &Item, siblings: &Siblings, scene: &mut Scene) -> Vec<Offer> {
        let siblings = item.process().and_then(|guid| siblings.get(guid));
        let work = work_ref(&item.rank.key);
        let board = &*self.cells.board();
        let mut offers = vec![];
        for (number, cell) in (0..).zip(board.cells()) {
            if item.only.as_ref().is_some_and(|only| *only != cell.id) {
                continue;
            }
            match keeps(board, number, item, siblings) {
                None | Some(Keeps::Taken(_)) => {}
                Some(Keeps::Crowded(_) | Keeps::Closed { .. } | Keeps::Small(_) | Keeps::Incompatible(_)) => {
                    continue;
                }
            }
            let world = &self.world;
            let running = scene.running.entry(cell.id.clone()).or_insert_with(|| running_on(world, &cell.id));
            let running = Arc::clone(running);
            let free = scene.free(&cell.id, board.free(number), &work);
            offers.push(Offer { cell: cell.id.clone(), free, running });
        }
        offers
    }
}

impl Scene {
    /// Reserves room for waiting work.
    fn hold(&mut self, cell: &CellId, work: &WorkRef, size: Resources) {
        self.held.entry(cell.clone()).or_default().push((work.clone(), size));
    }

    /// Returns the resources that are free or will be, less those reserved for other work.
    fn free(&self, cell: &CellId, free: Resources, work: &WorkRef) -> Resources {
        let comes = self.comes.get(cell).copied().unwrap_or_default();
        let others = self.held.get(cell).into_iter().flatten().filter(|(of, _)| of != work);
        others.fold(free.plus(comes), |left, (_, size)| left.minus(*size))
    }
}

/// Returns `true` if work keeps waiting for room that is made for it: work stops there, or the time is not
/// over.
fn lasts((cell, until): &(CellId, Timestamp), making: &BTreeSet<CellId>, now: Timestamp) -> bool {
    now < *until || making.contains(cell)
}

/// Returns `true` if a cell accepts work according to the log. No work waits for room on other cells.
const fn takes_work(cell: &Cell) -> bool {
    cell.present && !cell.cordoned && !cell.evacuation_wanted && !cell.evacuating
}

/// Returns `true` if the work will still exist once room is made for it.
fn may_wait(item: &Item) -> bool {
    match &item.order {
        Order::Lrp(_) => true,
        Order::Task(definition) => definition.placement != Placement::Fail,
    }
}

/// Returns the instances that were asked to stop and still exist: their size, their container and the cause.
fn stopping(world: &World) -> impl Iterator<Item = (Resources, &Instance, Option<Ended>)> {
    world.stopping().filter_map(|work| {
        let WorkRef::Lrp(key) = work else { return None };
        let process = world.process(&key.process_guid)?;
        let lrp = process.actual(&key.place)?;
        let size = process.desired.as_ref()?.definition(&key.place.definition_id)?.resources();
        Some((size, lrp.holder()?, lrp.stop))
    })
}

/// Returns the cell on which a decision stops work.
fn stopped_on<'a>(world: &'a World, decision: &Decision) -> Option<&'a CellId> {
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

/// Returns the place of an instance that was asked to stop.
fn stopped_place(event: &Event) -> Option<Place> {
    let Event::Actual(actual::Event::StopRequested { places, .. }) = event else { return None };
    places.iter().next()
}

/// Returns the work that runs on a cell and may be stopped for other work.
fn running_on(world: &World, cell: &CellId) -> Arc<Vec<Running>> {
    let on_cell = |work| running(world, work).filter(|one| one.by.cell_id == *cell);
    Arc::new(world.on_cell(cell).filter_map(on_cell).collect())
}

fn running(world: &World, work: &WorkRef) -> Option<Running> {
    match work {
        WorkRef::Lrp(key) => {
            let process = world.process(&key.process_guid)?;
            let desired = process.desired.as_ref()?;
            Some(Running {
                by: preemption::instance(process, &key.place)?.clone(),
                priority: desired.priority,
                size: desired.definition(&key.place.definition_id)?.resources(),
                since: process.actual(&key.place).map(|lrp: &Actual| lrp.since)?,
                key: WorkKey::Lrp { key: key.clone(), epoch: process.epoch },
            })
        }
        WorkRef::Task(guid) => {
            let task = world.task(guid)?;
            Some(Running {
                by: preemption::task(task)?.clone(),
                priority: task.definition.priority,
                size: task.definition.resources(),
                since: task.since,
                key: WorkKey::Task { task_guid: guid.clone(), epoch: task.epoch },
            })
        }
    }
}
