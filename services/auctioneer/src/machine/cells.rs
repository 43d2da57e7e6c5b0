//! Free resources of each cell: the amount in the last heartbeat of its rep, less the work that was sent to
//! the rep after that heartbeat.
//!
//! An auctioneer hands out work in a message `Perform`. Each heartbeat contains the id of the last `Perform`
//! that it takes into account. The work of later `Perform` messages is subtracted from the free resources, so
//! no work is counted twice. The next heartbeat corrects any error, and a rep refuses work that does not fit.

use std::collections::{BTreeMap, BTreeSet};

use machines::cell;
use projections::World;
use schemas::Timestamp;
use schemas::message::{Heartbeat, PerformId};
use schemas::names::{CellId, Incarnation};
use schemas::resources::Resources;

use super::Settings;
use crate::auction::Item;
use crate::board::{Board, BoardCell, Standing, to_index, to_number};

/// Maximum number of stored early heartbeats. A heartbeat is early if the log does not contain its cell or
/// rep incarnation (run of the rep) yet.
pub const MAX_EARLY_HEARTBEATS: usize = 16_384;

/// State of all cells as this auctioneer knows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cells {
    term: u64,
    reps: BTreeMap<CellId, RepState>,
    /// Heartbeats that arrived before the log contained the cell.
    early_heartbeats: BTreeMap<CellId, HeartbeatState>,
    board: Board,
    /// `true` if the board (the table of cells for placement) must be rebuilt.
    stale: bool,
    /// Time at which the next cell becomes silent if it sends no heartbeat.
    stale_at: Option<Timestamp>,
    /// Cells that have more free resources than before or accept work again.
    roomier: BTreeSet<CellId>,
    /// Number of cells on the board without a current heartbeat.
    silent: usize,
    /// Time of the last heartbeat from any cell.
    last_heartbeat_at: Option<Timestamp>,
    /// End of the period in which this auctioneer itself may be the reason why cells are silent.
    doubt_until: Timestamp,
    /// End of the period in which placement waits for cells that have not reported their state.
    gather_until: Timestamp,
    /// Expiry times of hand-outs. The resources of an expired hand-out are no longer subtracted, even if no
    /// result has arrived.
    expiries: BTreeSet<(Timestamp, CellId, u64)>,
}

/// State of one cell.
#[derive(Clone, Debug, Default)]
struct RepState {
    heartbeat: Option<HeartbeatState>,
    /// `true` if the rep has not answered a `Perform` since its last heartbeat.
    unanswered: bool,
    /// Number of the last `Perform` in this term.
    number: u64,
    handed: BTreeMap<u64, HandOut>,
    /// Resources of the hand-outs that are not included in a heartbeat yet.
    reserved: Resources,
    /// `true` if the rep has refused work since its last heartbeat. The resources of the refused work may be
    /// free for other work; the next heartbeat shows the free resources.
    has_refused_work: bool,
}

/// Content of the last heartbeat.
#[derive(Clone, Debug)]
struct HeartbeatState {
    incarnation: Incarnation,
    sequence: u64,
    free: Resources,
    performed: PerformId,
    evacuating: bool,
    unhealthy: bool,
    at: Timestamp,
}

/// Work that was lost together with a rep: the item, the cell to which it was sent, and the id of the
/// `Perform`.
pub(crate) type LostWork = (Item, CellId, PerformId);

/// A `Perform` that was sent to a rep.
#[derive(Clone, Debug)]
struct HandOut {
    /// Items of the `Perform`. An item that the rep refused is replaced by `None`.
    work: Vec<Option<Item>>,
    answered: bool,
    included: bool,
    /// `true` if all of these items had been sent to the rep in an earlier `Perform`.
    again: bool,
}

impl HeartbeatState {
    fn new(heartbeat: &Heartbeat, at: Timestamp) -> Self {
        Self {
            incarnation: heartbeat.presence.incarnation,
            sequence: heartbeat.sequence,
            free: heartbeat.free,
            performed: heartbeat.performed,
            evacuating: heartbeat.evacuating,
            unhealthy: heartbeat.unhealthy.is_some(),
            at,
        }
    }
}

impl HandOut {
    fn resources(&self) -> Resources {
        let sizes = self.work.iter().flatten().map(|item| item.order.resources());
        sizes.fold(Resources::default(), Resources::plus)
    }
}

impl RepState {
    fn free(&self) -> Resources {
        self.heartbeat.as_ref().map_or(Resources::default(), |said| said.free.minus(self.reserved))
    }

    /// Returns the last heartbeat. `None` if the heartbeat is too old, or if the rep has left a later
    /// `Perform` unanswered.
    fn fresh_heartbeat(&self, now: Timestamp, settings: &Settings) -> Option<&HeartbeatState> {
        self.heartbeat.as_ref().filter(|said| now.since(said.at) < settings.cell_timeout && !self.unanswered)
    }

    fn standing(&self, log: &cell::Cell, now: Timestamp, settings: &Settings) -> Standing {
        let said = self.fresh_heartbeat(now, settings);
        if log.evacuating || log.evacuation_requested || said.is_some_and(|said| said.evacuating) {
            return Standing::Evacuating;
        }
        if log.cordoned {
            return Standing::Cordoned;
        }
        if log.unhealthy.is_some() || said.is_some_and(|said| said.unhealthy) {
            return Standing::Unhealthy;
        }
        if said.is_some() { Standing::Open } else { Standing::Silent }
    }

    /// Applies a heartbeat from the incarnation that the log names. A heartbeat is ignored if a newer
    /// heartbeat has already arrived. Returns `true` if the rep refused work since the previous heartbeat. In
    /// this case other work may fit, even if the free resources have not grown.
    fn apply_heartbeat(&mut self, said: HeartbeatState, term: u64) -> bool {
        if self.heartbeat.as_ref().is_some_and(|old| old.sequence >= said.sequence) {
            return false;
        }
        if said.performed.term == term {
            self.include(said.performed.number);
        }
        self.unanswered = false;
        self.heartbeat = Some(said);
        std::mem::take(&mut self.has_refused_work)
    }

    fn include(&mut self, number: u64) {
        for (_, handed) in self.handed.range_mut(..=number).filter(|(_, handed)| !handed.included) {
            self.reserved = self.reserved.minus(handed.resources());
            handed.included = true;
        }
        self.handed.retain(|_, handed| !(handed.included && handed.answered));
    }

    fn release(&mut self, size: Resources) {
        self.reserved = self.reserved.minus(size);
        self.has_refused_work = true;
    }

    /// Clears the state of a rep that disappeared or was replaced. Returns the work that was handed out to
    /// the rep.
    fn forget(&mut self) -> impl Iterator<Item = (Item, u64)> + use<> {
        self.heartbeat = None;
        self.unanswered = false;
        self.reserved = Resources::default();
        self.has_refused_work = false;
        let handed = std::mem::take(&mut self.handed);
        handed
            .into_iter()
            .flat_map(|(number, handed)| handed.work.into_iter().flatten().map(move |item| (item, number)))
    }
}

impl Cells {
    /// Starts a term without hand-outs. For one heartbeat interval, this auctioneer itself may be the reason
    /// why cells are silent.
    pub(crate) fn begin_term(&mut self, term: u64, now: Timestamp, settings: &Settings) {
        self.end_term();
        self.term = term;
        self.doubt_until = now + settings.heartbeat;
        self.gather_until = self.doubt_until;
    }

    /// Ends a term. Drops the term's hand-outs, because this auctioneer is no longer responsible for them.
    pub(crate) fn end_term(&mut self) {
        for room in self.reps.values_mut() {
            room.number = 0;
            room.reserved = Resources::default();
            room.handed.clear();
            room.unanswered = false;
            room.has_refused_work = false;
        }
        self.expiries.clear();
        self.roomier.clear();
        self.stale = true;
    }

    /// Returns the number of stored `Perform` messages.
    pub(crate) fn performs(&self) -> usize {
        self.reps.values().map(|room| room.handed.len()).sum()
    }

    /// Returns the number of cells with a state, and the number of cells with early heartbeats.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.reps.len(), self.early_heartbeats.len())
    }

    /// Returns the free resources of a cell on the board.
    pub(crate) fn free_on(&self, id: &CellId) -> Option<Resources> {
        self.board.number(id).map(|number| self.board.free(number))
    }

    pub(crate) const fn board(&mut self) -> &mut Board {
        &mut self.board
    }

    /// Records the heartbeat of a rep.
    pub(crate) fn record_heartbeat(
        &mut self,
        world: &World,
        heartbeat: &Heartbeat,
        now: Timestamp,
        settings: &Settings,
    ) {
        if self.last_heartbeat_at.is_some_and(|at| now.since(at) >= settings.cell_timeout) {
            self.doubt_until = self.doubt_until.max(now + settings.heartbeat);
        }
        self.last_heartbeat_at = Some(now);
        let said = HeartbeatState::new(heartbeat, now);
        let id = &heartbeat.cell_id;
        let known = |log: &&cell::Cell| log.present && log.presence.incarnation == said.incarnation;
        let Some(log) = world.cell(id).filter(known) else { return self.store_early(id, said) };
        let room = self.reps.entry(id.clone()).or_default();
        let news = room.apply_heartbeat(said, self.term);
        let (standing, free) = (room.standing(log, now, settings), room.free());
        match self.board.number(id).filter(|number| self.board.cell(*number).standing == standing) {
            Some(number) => {
                self.set_free(number, free);
                if news && standing == Standing::Open {
                    self.roomier.insert(id.clone());
                }
            }
            None => self.stale = true,
        }
    }

    fn store_early(&mut self, id: &CellId, said: HeartbeatState) {
        let full =
            self.early_heartbeats.len() >= MAX_EARLY_HEARTBEATS && !self.early_heartbeats.contains_key(id);
        let oldest = self.early_heartbeats.iter().min_by_key(|(_, said)| said.at).filter(|_| full);
        if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
            self.early_heartbeats.remove(&oldest);
        }
        let newer =
            |known: &HeartbeatState| known.incarnation != said.incarnation || known.sequence < said.sequence;
        if self.early_heartbeats.get(id).is_none_or(newer) {
            self.early_heartbeats.insert(id.clone(), said);
        }
    }

    /// Applies a changed cell record of the log. If the cell's rep disappeared or was replaced, returns the
    /// work that is lost with the rep.
    pub(crate) fn apply_record(
        &mut self,
        world: &World,
        id: &CellId,
        now: Timestamp,
        settings: &Settings,
    ) -> Vec<LostWork> {
        self.stale = true;
        let term = self.term;
        let room = self.reps.entry(id.clone()).or_default();
        let log = world.cell(id).filter(|log| log.present);
        let same =
            |said: &HeartbeatState| log.is_some_and(|log| said.incarnation == log.presence.incarnation);
        let mut lost = vec![];
        if !room.heartbeat.as_ref().is_some_and(same) {
            let items = room.forget();
            lost.extend(items.map(|(item, number)| (item, id.clone(), PerformId { term, number })));
        }
        if self.early_heartbeats.get(id).is_some_and(same)
            && let Some(said) = self.early_heartbeats.remove(id)
        {
            room.apply_heartbeat(said, term);
        }
        if log.is_some() && room.heartbeat.is_none() {
            self.doubt_until = self.doubt_until.max(now + settings.heartbeat);
        }
        lost
    }

    /// Records that work is sent to a cell, and returns the id of the `Perform`. The resources of repeated
    /// work are not subtracted, because the rep has already excluded them from the free resources in its
    /// heartbeat.
    pub(crate) fn record_hand_out(
        &mut self,
        id: &CellId,
        work: Vec<Item>,
        until: Timestamp,
        again: bool,
    ) -> PerformId {
        let room = self.reps.entry(id.clone()).or_default();
        room.number += 1;
        let work = work.into_iter().map(Some).collect();
        let handed = HandOut { work, answered: false, included: again, again };
        if !again {
            room.reserved = room.reserved.plus(handed.resources());
        }
        room.handed.insert(room.number, handed);
        self.expiries.insert((until, id.clone(), room.number));
        PerformId { term: self.term, number: room.number }
    }

    /// Returns the work of a `Perform`.
    pub(crate) fn work_of(&self, id: &CellId, perform: PerformId) -> impl Iterator<Item = &Item> {
        let room = self.reps.get(id).filter(|_| perform.term == self.term);
        let handed = room.and_then(|room| room.handed.get(&perform.number));
        handed.into_iter().flat_map(|handed| &handed.work).flatten()
    }

    /// Returns `true` if a heartbeat shows that the rep received this `Perform`.
    pub(crate) fn has_seen(&self, id: &CellId, perform: PerformId) -> bool {
        let said = self.reps.get(id).and_then(|room| room.heartbeat.as_ref());
        said.is_some_and(|said| said.performed >= perform)
    }

    /// Returns `true` if the last heartbeat of a rep is so recent that the rep is probably running.
    pub(crate) fn is_fresh(&self, id: &CellId, now: Timestamp, settings: &Settings) -> bool {
        let said = self.reps.get(id).and_then(|room| room.heartbeat.as_ref());
        said.is_some_and(|said| now.since(said.at) < settings.heartbeat * 3 / 2)
    }

    /// Returns `true` if a cell accepts work.
    pub(crate) fn is_open(&self, id: &CellId) -> bool {
        self.board.number(id).is_some_and(|number| self.board.cell(number).standing == Standing::Open)
    }

    /// Records that a rep accepted a `Perform`. `refused` contains the indexes of the items that the rep did
    /// not accept, with the reasons. Returns these items with their reasons.
    pub(crate) fn accept(
        &mut self,
        id: &CellId,
        perform: PerformId,
        refused: Vec<(u32, String)>,
    ) -> Vec<(Item, String)> {
        let term = self.term;
        let Some(room) = self.reps.get_mut(id).filter(|_| perform.term == term) else { return vec![] };
        let Some(handed) = room.handed.get_mut(&perform.number) else { return vec![] };
        handed.answered = true;
        let mut back = vec![];
        for (place, reason) in refused {
            let item = handed.work.get_mut(to_index(place)).and_then(Option::take);
            back.extend(item.map(|item| (item, reason)));
        }
        if handed.included {
            room.handed.remove(&perform.number);
        } else {
            back.iter().for_each(|(item, _)| room.release(item.order.resources()));
        }
        let free = room.free();
        if let Some(number) = self.board.number(id) {
            // The refused work did not fit on the cell, so the released resources do not count as additional
            // free resources.
            self.board.set_free(number, free);
        }
        back
    }

    /// Records that a `Perform` was refused as a whole. Returns its work.
    pub(crate) fn refused(&mut self, id: &CellId, perform: PerformId, reason: &str) -> Vec<(Item, String)> {
        let room = self.reps.get(id).and_then(|room| room.handed.get(&perform.number));
        let all = 0..room.map_or(0, |handed| to_number(handed.work.len()));
        self.accept(id, perform, all.map(|place| (place, reason.to_owned())).collect())
    }

    /// Records that a rep accepted no work of a `Perform` because it cannot evaluate the work now. The cell
    /// gets no work until its next heartbeat. Returns the work. The rep has not kept any of this work.
    pub(crate) fn postpone(
        &mut self,
        id: &CellId,
        perform: PerformId,
        now: Timestamp,
        settings: &Settings,
    ) -> Vec<Item> {
        let back = self.refused(id, perform, "");
        if let Some(room) = self.reps.get_mut(id).filter(|_| !back.is_empty()) {
            room.unanswered = true;
            self.stale = true;
            self.doubt_until = self.doubt_until.max(now + settings.heartbeat);
        }
        back.into_iter().map(|(item, _)| item).collect()
    }

    /// Records that a rep did not answer a `Perform`. The cell gets no work until its next heartbeat. Returns
    /// the work, which the rep may have received. Also returns `true` if all of this work had been sent to
    /// the rep in an earlier `Perform`.
    pub(crate) fn unanswered(
        &mut self,
        id: &CellId,
        perform: PerformId,
        now: Timestamp,
        settings: &Settings,
    ) -> (Vec<Item>, bool) {
        let term = self.term;
        let nothing = (vec![], false);
        let Some(room) = self.reps.get_mut(id).filter(|_| perform.term == term) else { return nothing };
        let Some(handed) = room.handed.get_mut(&perform.number) else { return nothing };
        handed.answered = true;
        let (work, again) = (handed.work.iter().flatten().cloned().collect(), handed.again);
        if handed.included {
            room.handed.remove(&perform.number);
        } else {
            room.unanswered = true;
            self.stale = true;
            self.doubt_until = self.doubt_until.max(now + settings.heartbeat);
        }
        (work, again)
    }

    /// Drops expired hand-outs.
    pub(crate) fn expire_hand_outs(&mut self, now: Timestamp) {
        while let Some((_, id, number)) = self.expiries.first().filter(|(at, _, _)| *at <= now).cloned() {
            self.expiries.pop_first();
            let Some(room) = self.reps.get_mut(&id) else { continue };
            let Some(handed) = room.handed.remove(&number) else { continue };
            if !handed.included {
                room.release(handed.resources());
            }
            let free = room.free();
            if let Some(number) = self.board.number(&id) {
                self.set_free(number, free);
            }
        }
    }

    /// Updates the board. Returns the cells that have more free resources than before or accept work again.
    pub(crate) fn refresh(&mut self, world: &World, now: Timestamp, settings: &Settings) -> BTreeSet<CellId> {
        if self.stale || self.stale_at.is_some_and(|at| at <= now) {
            self.set_up(world, now, settings);
        }
        if self.silent == 0 || self.gather_until <= now {
            self.gather_until = Timestamp(0);
        }
        std::mem::take(&mut self.roomier)
    }

    /// Returns `true` in two cases: this auctioneer itself may be the reason why a cell is silent, or cells
    /// had no time to appear yet. While the result is `true`, no work is reported as impossible to place.
    pub(crate) fn is_in_doubt(&self, now: Timestamp, settings: &Settings) -> bool {
        let unheard = self.last_heartbeat_at.is_some_and(|at| now.since(at) >= settings.cell_timeout);
        let early = self.board.is_empty() && now < self.doubt_until;
        early || self.silent > 0 && (unheard || now < self.doubt_until)
    }

    /// Returns the time until which placement must wait. A new leader places nothing before every present
    /// cell has reported its state, because it would otherwise underestimate the free resources. A silent
    /// cell delays placement no longer than until this time.
    pub(crate) fn gathers_until(&self, now: Timestamp) -> Option<Timestamp> {
        (self.silent > 0 && now < self.gather_until).then_some(self.gather_until)
    }

    /// Returns the time of the next check whether the state of the cells is in doubt.
    pub(crate) fn doubt_ends(&self, now: Timestamp, settings: &Settings) -> Timestamp {
        if now < self.doubt_until { self.doubt_until } else { now + settings.heartbeat }
    }

    fn set_free(&mut self, number: u32, free: Resources) {
        let before = self.board.free(number);
        self.board.set_free(number, free);
        let open = self.board.cell(number).standing == Standing::Open;
        if open && !before.fits(self.board.free(number)) {
            self.roomier.insert(self.board.cell(number).id.clone());
        }
    }

    fn set_up(&mut self, world: &World, now: Timestamp, settings: &Settings) {
        let present = world.cells().filter(|(_, log)| log.present);
        let cells = present.map(|(id, log)| {
            let room = self.reps.get(id);
            BoardCell {
                id: id.clone(),
                zone: log.presence.zone.clone(),
                stack: log.presence.stack.clone(),
                placement_tags: log.presence.placement_tags.clone(),
                attributes: log.presence.attributes.clone(),
                total: log.presence.total,
                free: room.map_or(Resources::default(), RepState::free),
                standing: room.unwrap_or(&RepState::default()).standing(log, now, settings),
            }
        });
        let old = std::mem::replace(&mut self.board, Board::new(cells));
        let open = |board: &Board, number: u32| board.cell(number).standing == Standing::Open;
        for (number, cell) in (0..).zip(self.board.cells()).filter(|(number, _)| open(&self.board, *number)) {
            let before = old.number(&cell.id).filter(|number| open(&old, *number));
            if before.is_none_or(|before| !old.free(before).fits(self.board.free(number))) {
                self.roomier.insert(cell.id.clone());
            }
        }
        let rooms = self.board.cells().iter().map(|cell| self.reps.get(&cell.id));
        let heard =
            |room: Option<&RepState>| room.is_some_and(|room| room.fresh_heartbeat(now, settings).is_some());
        self.silent = rooms.filter(|room| !heard(*room)).count();
        let heard =
            self.reps.values().filter(|room| !room.unanswered).filter_map(|room| room.heartbeat.as_ref());
        let heard = heard.map(|said| said.at + settings.cell_timeout).filter(|at| *at > now);
        self.stale_at = heard.min();
        self.stale = false;
    }
}
