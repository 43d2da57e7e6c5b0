//! What is free of each cell: what its rep said last, less what was handed out since.
//!
//! A heartbeat says after which `Perform` it was written, so a hand-out is subtracted until a heartbeat includes it, and
//! never twice. The next heartbeat corrects whatever is wrong here, and a rep refuses what doesn't fit.

use std::collections::{BTreeMap, BTreeSet};

use projections::World;
use schemas::message::{Heartbeat, PerformId};
use schemas::names::{CellId, Incarnation};
use schemas::resources::Resources;
use schemas::{Timestamp, cell};

use super::Settings;
use crate::auction::Item;
use crate::board::{Board, BoardCell, Standing, at, count};

/// Most heartbeats kept of cells, or of incarnations of them, that the log doesn't know yet.
pub const EARLY_HEARTBEATS: usize = 16_384;

/// The cells as this auctioneer knows them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cells {
    term: u64,
    rooms: BTreeMap<CellId, Room>,
    /// Heartbeats that came before the log named the cell.
    early: BTreeMap<CellId, Said>,
    board: Board,
    /// Whether the board has to be set up anew.
    stale: bool,
    /// When a cell that says nothing more becomes silent.
    stale_at: Option<Timestamp>,
    /// Cells of which more is free than before, or that take work again.
    roomier: BTreeSet<CellId>,
    /// Cells on the board that were not heard.
    silent: usize,
    /// When anybody was last heard.
    heard_at: Option<Timestamp>,
    /// Until then silence may be this auctioneer's own fault.
    doubt_until: Timestamp,
    /// Until then work waits for cells that have not told their state in this term or before it.
    gather_until: Timestamp,
    /// When a hand-out is no longer subtracted, whatever became of it.
    expiries: BTreeSet<(Timestamp, CellId, u64)>,
}

/// What is known of one cell.
#[derive(Clone, Debug, Default)]
struct Room {
    said: Option<Said>,
    /// Whether its rep left a `Perform` unanswered since.
    unanswered: bool,
    /// The number of its last `Perform` in this term.
    number: u64,
    handed: BTreeMap<u64, Handed>,
    /// What the hand-outs take that no heartbeat includes.
    taken: Resources,
    /// Whether it refused work since: what that was to take may be free for other work, as the next heartbeat says.
    gave_back: bool,
}

/// What a heartbeat says.
#[derive(Clone, Debug)]
struct Said {
    incarnation: Incarnation,
    sequence: u64,
    free: Resources,
    performed: PerformId,
    evacuating: bool,
    unhealthy: bool,
    at: Timestamp,
}

/// Work that a rep took with it: to which cell it was given, and with which `Perform`.
pub(crate) type Lost = (Item, CellId, PerformId);

/// One `Perform`.
#[derive(Clone, Debug)]
struct Handed {
    /// The work; none: the rep refused it.
    work: Vec<Option<Item>>,
    answered: bool,
    included: bool,
    /// Whether the rep was given all of it before.
    again: bool,
}

impl Said {
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

impl Handed {
    fn takes(&self) -> Resources {
        let sizes = self.work.iter().flatten().map(|item| item.order.resources());
        sizes.fold(Resources::default(), Resources::plus)
    }
}

impl Room {
    fn free(&self) -> Resources {
        self.said.as_ref().map_or(Resources::default(), |said| said.free.minus(self.taken))
    }

    /// What it said, unless that is long ago or it didn't answer since.
    fn heard(&self, now: Timestamp, settings: &Settings) -> Option<&Said> {
        self.said.as_ref().filter(|said| now.since(said.at) < settings.silence && !self.unanswered)
    }

    fn standing(&self, log: &cell::Cell, now: Timestamp, settings: &Settings) -> Standing {
        let said = self.heard(now, settings);
        if log.evacuating || log.evacuation_wanted || said.is_some_and(|said| said.evacuating) {
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

    /// Takes in a heartbeat of the incarnation that the log knows; one that comes late changes nothing. Answers whether
    /// it speaks of room that is no more than what was known, and news all the same.
    fn hear(&mut self, said: Said, term: u64) -> bool {
        if self.said.as_ref().is_some_and(|old| old.sequence >= said.sequence) {
            return false;
        }
        if said.performed.term == term {
            self.include(said.performed.number);
        }
        self.unanswered = false;
        self.said = Some(said);
        std::mem::take(&mut self.gave_back)
    }

    fn include(&mut self, number: u64) {
        for (_, handed) in self.handed.range_mut(..=number).filter(|(_, handed)| !handed.included) {
            self.taken = self.taken.minus(handed.takes());
            handed.included = true;
        }
        self.handed.retain(|_, handed| !(handed.included && handed.answered));
    }

    fn give_back(&mut self, size: Resources) {
        self.taken = self.taken.minus(size);
        self.gave_back = true;
    }

    /// Forgets what the rep said and was given: it is gone, or another one.
    fn forget(&mut self) -> impl Iterator<Item = (Item, u64)> + use<> {
        self.said = None;
        self.unanswered = false;
        self.taken = Resources::default();
        self.gave_back = false;
        let handed = std::mem::take(&mut self.handed);
        handed
            .into_iter()
            .flat_map(|(number, handed)| handed.work.into_iter().flatten().map(move |item| (item, number)))
    }
}

impl Cells {
    /// Begins a term: nothing is handed out, and silence may be this auctioneer's own fault.
    pub(crate) fn begin(&mut self, term: u64, now: Timestamp, settings: &Settings) {
        self.end();
        self.term = term;
        self.doubt_until = now + settings.heartbeat;
        self.gather_until = self.doubt_until;
    }

    /// Ends a term: what was handed out is somebody else's.
    pub(crate) fn end(&mut self) {
        for room in self.rooms.values_mut() {
            room.number = 0;
            room.taken = Resources::default();
            room.handed.clear();
            room.unanswered = false;
            room.gave_back = false;
        }
        self.expiries.clear();
        self.roomier.clear();
        self.stale = true;
    }

    /// How many `Perform`s are kept.
    pub(crate) fn performs(&self) -> usize {
        self.rooms.values().map(|room| room.handed.len()).sum()
    }

    /// Of how many cells something is known, and of how many that the log doesn't name.
    pub(crate) fn known(&self) -> (usize, usize) {
        (self.rooms.len(), self.early.len())
    }

    /// What is free of a cell on the board.
    pub(crate) fn free_on(&self, id: &CellId) -> Option<Resources> {
        self.board.number(id).map(|number| self.board.free(number))
    }

    /// The board.
    pub(crate) const fn board(&mut self) -> &mut Board {
        &mut self.board
    }

    /// A rep says what it has.
    pub(crate) fn hear(&mut self, world: &World, heartbeat: &Heartbeat, now: Timestamp, settings: &Settings) {
        if self.heard_at.is_some_and(|at| now.since(at) >= settings.silence) {
            self.doubt_until = self.doubt_until.max(now + settings.heartbeat);
        }
        self.heard_at = Some(now);
        let said = Said::new(heartbeat, now);
        let id = &heartbeat.cell_id;
        let known = |log: &&cell::Cell| log.present && log.presence.incarnation == said.incarnation;
        let Some(log) = world.cell(id).filter(known) else { return self.keep_early(id, said) };
        let room = self.rooms.entry(id.clone()).or_default();
        let news = room.hear(said, self.term);
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

    fn keep_early(&mut self, id: &CellId, said: Said) {
        let full = self.early.len() >= EARLY_HEARTBEATS && !self.early.contains_key(id);
        let oldest = self.early.iter().min_by_key(|(_, said)| said.at).filter(|_| full);
        if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
            self.early.remove(&oldest);
        }
        let newer = |known: &Said| known.incarnation != said.incarnation || known.sequence < said.sequence;
        if self.early.get(id).is_none_or(newer) {
            self.early.insert(id.clone(), said);
        }
    }

    /// The log says something of a cell. Answers the work that its rep took with it.
    pub(crate) fn recorded(
        &mut self,
        world: &World,
        id: &CellId,
        now: Timestamp,
        settings: &Settings,
    ) -> Vec<Lost> {
        self.stale = true;
        let term = self.term;
        let room = self.rooms.entry(id.clone()).or_default();
        let log = world.cell(id).filter(|log| log.present);
        let same = |said: &Said| log.is_some_and(|log| said.incarnation == log.presence.incarnation);
        let mut lost = vec![];
        if !room.said.as_ref().is_some_and(same) {
            let items = room.forget();
            lost.extend(items.map(|(item, number)| (item, id.clone(), PerformId { term, number })));
        }
        if self.early.get(id).is_some_and(same)
            && let Some(said) = self.early.remove(id)
        {
            room.hear(said, term);
        }
        if log.is_some() && room.said.is_none() {
            self.doubt_until = self.doubt_until.max(now + settings.heartbeat);
        }
        lost
    }

    /// Work was given to a cell: names the `Perform`. Of work that the rep took before, what it says is free is the rest.
    pub(crate) fn hand(&mut self, id: &CellId, work: Vec<Item>, until: Timestamp, again: bool) -> PerformId {
        let room = self.rooms.entry(id.clone()).or_default();
        room.number += 1;
        let work = work.into_iter().map(Some).collect();
        let handed = Handed { work, answered: false, included: again, again };
        if !again {
            room.taken = room.taken.plus(handed.takes());
        }
        room.handed.insert(room.number, handed);
        self.expiries.insert((until, id.clone(), room.number));
        PerformId { term: self.term, number: room.number }
    }

    /// The work of a `Perform`.
    pub(crate) fn work_of(&self, id: &CellId, perform: PerformId) -> impl Iterator<Item = &Item> {
        let room = self.rooms.get(id).filter(|_| perform.term == self.term);
        let handed = room.and_then(|room| room.handed.get(&perform.number));
        handed.into_iter().flat_map(|handed| &handed.work).flatten()
    }

    /// Whether a heartbeat says that the rep saw this `Perform`.
    pub(crate) fn has_seen(&self, id: &CellId, perform: PerformId) -> bool {
        let said = self.rooms.get(id).and_then(|room| room.said.as_ref());
        said.is_some_and(|said| said.performed >= perform)
    }

    /// Whether a rep was heard so lately that it should be there.
    pub(crate) fn is_fresh(&self, id: &CellId, now: Timestamp, settings: &Settings) -> bool {
        let said = self.rooms.get(id).and_then(|room| room.said.as_ref());
        said.is_some_and(|said| now.since(said.at) < settings.heartbeat * 3 / 2)
    }

    /// Whether a cell takes work.
    pub(crate) fn is_open(&self, id: &CellId) -> bool {
        self.board.number(id).is_some_and(|number| self.board.cell(number).standing == Standing::Open)
    }

    /// A rep took a `Perform`, all of it but the places named. Answers the work at those places, with the reasons.
    pub(crate) fn performed(
        &mut self,
        id: &CellId,
        perform: PerformId,
        refused: Vec<(u32, String)>,
    ) -> Vec<(Item, String)> {
        let term = self.term;
        let Some(room) = self.rooms.get_mut(id).filter(|_| perform.term == term) else { return vec![] };
        let Some(handed) = room.handed.get_mut(&perform.number) else { return vec![] };
        handed.answered = true;
        let mut back = vec![];
        for (place, reason) in refused {
            let item = handed.work.get_mut(at(place)).and_then(Option::take);
            back.extend(item.map(|item| (item, reason)));
        }
        if handed.included {
            room.handed.remove(&perform.number);
        } else {
            back.iter().for_each(|(item, _)| room.give_back(item.order.resources()));
        }
        let free = room.free();
        if let Some(number) = self.board.number(id) {
            // What was refused had no room: this is not news of room.
            self.board.set_free(number, free);
        }
        back
    }

    /// A `Perform` was refused as a whole. Answers its work.
    pub(crate) fn refused(&mut self, id: &CellId, perform: PerformId, reason: &str) -> Vec<(Item, String)> {
        let room = self.rooms.get(id).and_then(|room| room.handed.get(&perform.number));
        let all = 0..room.map_or(0, |handed| count(handed.work.len()));
        self.performed(id, perform, all.map(|place| (place, reason.to_owned())).collect())
    }

    /// A rep took nothing of a `Perform` and can't judge it now: it gets nothing until it is heard again. Answers the work,
    /// which it certainly doesn't have.
    pub(crate) fn not_now(
        &mut self,
        id: &CellId,
        perform: PerformId,
        now: Timestamp,
        settings: &Settings,
    ) -> Vec<Item> {
        let back = self.refused(id, perform, "");
        if let Some(room) = self.rooms.get_mut(id).filter(|_| !back.is_empty()) {
            room.unanswered = true;
            self.stale = true;
            self.doubt_until = self.doubt_until.max(now + settings.heartbeat);
        }
        back.into_iter().map(|(item, _)| item).collect()
    }

    /// A rep didn't answer: it gets nothing until it is heard again. Answers the work that it may or may not have, and
    /// whether it was given that before.
    pub(crate) fn unanswered(
        &mut self,
        id: &CellId,
        perform: PerformId,
        now: Timestamp,
        settings: &Settings,
    ) -> (Vec<Item>, bool) {
        let term = self.term;
        let nothing = (vec![], false);
        let Some(room) = self.rooms.get_mut(id).filter(|_| perform.term == term) else { return nothing };
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

    /// Forgets hand-outs whose time is over.
    pub(crate) fn expire(&mut self, now: Timestamp) {
        while let Some((_, id, number)) = self.expiries.first().filter(|(at, _, _)| *at <= now).cloned() {
            self.expiries.pop_first();
            let Some(room) = self.rooms.get_mut(&id) else { continue };
            let Some(handed) = room.handed.remove(&number) else { continue };
            if !handed.included {
                room.give_back(handed.takes());
            }
            let free = room.free();
            if let Some(number) = self.board.number(&id) {
                self.set_free(number, free);
            }
        }
    }

    /// Brings the board up to date, and answers the cells of which more is free than before.
    pub(crate) fn refresh(&mut self, world: &World, now: Timestamp, settings: &Settings) -> BTreeSet<CellId> {
        if self.stale || self.stale_at.is_some_and(|at| at <= now) {
            self.set_up(world, now, settings);
        }
        if self.silent == 0 || self.gather_until <= now {
            self.gather_until = Timestamp(0);
        }
        std::mem::take(&mut self.roomier)
    }

    /// Whether the silence of a cell may be this auctioneer's own fault, or no cell had the time to appear: then nothing
    /// is called impossible.
    pub(crate) fn is_in_doubt(&self, now: Timestamp, settings: &Settings) -> bool {
        let unheard = self.heard_at.is_some_and(|at| now.since(at) >= settings.silence);
        let early = self.board.is_empty() && now < self.doubt_until;
        early || self.silent > 0 && (unheard || now < self.doubt_until)
    }

    /// Until when work waits, if it does: a new leader places nothing before every cell that the log calls present has told
    /// its state, for it would place by less than what is there. A silent cell hinders nobody for long.
    pub(crate) fn gathers_until(&self, now: Timestamp) -> Option<Timestamp> {
        (self.silent > 0 && now < self.gather_until).then_some(self.gather_until)
    }

    /// When to look again whether there is doubt.
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
            let room = self.rooms.get(id);
            BoardCell {
                id: id.clone(),
                zone: log.presence.zone.clone(),
                stack: log.presence.stack.clone(),
                placement_tags: log.presence.placement_tags.clone(),
                attributes: log.presence.attributes.clone(),
                total: log.presence.total,
                free: room.map_or(Resources::default(), Room::free),
                standing: room.unwrap_or(&Room::default()).standing(log, now, settings),
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
        let rooms = self.board.cells().iter().map(|cell| self.rooms.get(&cell.id));
        let heard = |room: Option<&Room>| room.is_some_and(|room| room.heard(now, settings).is_some());
        self.silent = rooms.filter(|room| !heard(*room)).count();
        let heard = self.rooms.values().filter(|room| !room.unanswered).filter_map(|room| room.said.as_ref());
        let heard = heard.map(|said| said.at + settings.silence).filter(|at| *at > now);
        self.stale_at = heard.min();
        self.stale = false;
    }
}
