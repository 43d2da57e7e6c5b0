//! One turn of the leading auctioneer: an auction of the ready work. The results are sent to the reps and the
//! BBS.

use std::collections::{BTreeMap, BTreeSet};

use machines::process::Process;
use schemas::container::WorkKey;
use schemas::message::{LeaseTarget, Perform, Work};
use schemas::names::{CellId, ProcessGuid};
use schemas::placement::Explanation;
use schemas::{Timestamp, limits};

use super::open::work_ref;
use super::{Auctioneer, Effect, size};
use crate::auction::{Item, Siblings, auction_with_reservations};

/// Items of work for one cell, each with its explanation.
type Batch = Vec<(Item, Option<Explanation>)>;
type Batches = BTreeMap<CellId, Batch>;

impl Auctioneer {
    /// Places the ready work. The cost depends on how much work has changed, not on the total amount of work.
    pub(super) fn act(&mut self, now: Timestamp, term: u64) -> Vec<Effect> {
        let again = self.wake(now);
        let mut effects = self.hand_out(now, again, true);
        let gathers = self.cells.gathers_until(now).is_some();
        let items = if gathers { vec![] } else { self.take_ready(now) };
        let (mut batches, mut failed) = (Batches::new(), vec![]);
        if !items.is_empty() {
            self.deeds.auctions += 1;
            self.deeds.work += items.len() as u64;
            let (siblings, holds) = (self.siblings(&items), self.reservations(now));
            self.cells.board().set_position(self.world.position());
            for verdict in auction_with_reservations(self.cells.board(), items, &siblings, holds) {
                match verdict.place {
                    Ok(cell) => {
                        batches.entry(cell).or_default().push((verdict.item, Some(verdict.explanation)));
                    }
                    Err(error) => failed.push((verdict.item, error, verdict.explanation)),
                }
            }
        }
        self.deeds.placed += batches.values().map(|batch| batch.len() as u64).sum::<u64>();
        self.deeds.unplaced += failed.len() as u64;
        effects.extend(self.hand_out(now, batches, false));
        self.report_failures(now, failed);
        effects.extend(self.send(now, term));
        effects
    }

    /// Reports work that no cell accepts. If preemption is on, room (free resources) is made for this work
    /// first. No room is made for work that cannot be reported yet.
    fn report_failures(&mut self, now: Timestamp, mut failed: Vec<(Item, String, Explanation)>) {
        failed.retain(|(item, _, _)| !self.defer_report(now, &work_ref(&item.rank.key)));
        self.make_room(now, failed.iter().map(|(item, _, _)| item));
        for (item, error, explanation) in failed {
            self.fail(now, &work_ref(&item.rank.key), (error, Some(explanation)), false);
        }
    }

    /// Takes ready work for an auction and acquires leases for its evaluations.
    fn take_ready(&mut self, now: Timestamp) -> Vec<Item> {
        self.round += 1;
        let items = self.open.take(self.places_next(), self.round);
        for item in &items {
            let attempt = self.open.attempt(&work_ref(&item.rank.key));
            let of = || match &item.rank.key {
                WorkKey::Lrp { key, epoch } => LeaseTarget::Process(key.process_guid.clone(), *epoch),
                WorkKey::Task { task_guid, epoch } => LeaseTarget::Task(task_guid.clone(), *epoch),
            };
            if let Some(evaluation) = attempt.evaluation {
                self.leases.acquire(evaluation, of, attempt.delivery, attempt.is_pending.then_some(now));
            }
        }
        items
    }

    /// Makes work ready if its timer has fired or if room for it has appeared. Returns work that reps
    /// accepted and have not claimed. This work must be sent to the same reps again. A rep that still has the
    /// reservation confirms it, so this work needs no other room.
    fn wake(&mut self, now: Timestamp) -> Batches {
        self.cells.expire_hand_outs(now);
        self.settle(now);
        let roomier = self.cells.refresh(&self.world, now, &self.settings);
        let unused = self.open.take_unused();
        self.wake_for(roomier.union(&unused));
        if !self.cells.is_in_doubt(now, &self.settings) {
            self.open.release_withheld();
        }
        let mut again = Batches::new();
        let seen = |cell: &CellId, id| self.cells.has_seen(cell, id);
        let is_there = |cell: &CellId| self.cells.is_fresh(cell, now, &self.settings);
        for (cell, item) in self.open.wake_due(now, self.settings.max_repeats, seen, is_there) {
            if self.cells.is_open(&cell) {
                again.entry(cell).or_default().push((item, None));
            } else {
                self.open.make_ready(&work_ref(&item.rank.key));
            }
        }
        self.wake_for_released_room(now);
        again
    }

    /// Makes work ready that can use the free room on these cells. Cells that accept no work are skipped.
    pub(super) fn wake_for<'a>(&mut self, cells: impl IntoIterator<Item = &'a CellId>) {
        for id in cells {
            let is_open = self.cells.is_open(id);
            let board = self.cells.board();
            if let Some(number) = board.number(id).filter(|_| is_open) {
                self.open.wake_for(board.cell(number), board.free(number), self.settings.batch);
            }
        }
    }

    /// Returns the cells with instances of the processes in a batch. These are the instances that stay
    /// according to the log, and the instances that this auctioneer has handed out to a cell.
    pub(super) fn siblings<'a>(&self, items: impl IntoIterator<Item = &'a Item>) -> Siblings {
        let guids: BTreeSet<ProcessGuid> = items.into_iter().filter_map(Item::process).cloned().collect();
        let siblings = guids.into_iter().map(|guid| {
            let mut on: BTreeMap<CellId, u32> = BTreeMap::new();
            let staying = self.world.process(&guid).into_iter().flat_map(Process::retained_containers);
            for cell in staying.map(|by| &by.cell_id).chain(self.open.handed_out_of(&guid)) {
                *on.entry(cell.clone()).or_default() += 1;
            }
            (guid, on)
        });
        siblings.filter(|(_, on)| !on.is_empty()).collect()
    }

    /// Sends work to reps, in as few messages per cell as possible.
    fn hand_out(&mut self, now: Timestamp, batches: Batches, again: bool) -> Vec<Effect> {
        let mut orders = size::OrderSizes::default();
        let mut effects = vec![];
        for (cell, batch) in batches {
            let (mut message, mut bytes) = (vec![], 0);
            for (item, why) in batch {
                let more = orders.work_bytes(&item.order, why.as_ref());
                if message.len() >= limits::BATCH
                    || (bytes + more > size::MAX_MESSAGE_BYTES && !message.is_empty())
                {
                    effects.push(self.perform(now, &cell, std::mem::take(&mut message), again));
                    bytes = 0;
                }
                message.push((item, why));
                bytes += more;
            }
            effects.push(self.perform(now, &cell, message, again));
        }
        effects
    }

    fn perform(&mut self, now: Timestamp, cell: &CellId, batch: Batch, again: bool) -> Effect {
        let until = now + self.settings.hand_out_timeout;
        let items = batch.iter().map(|(item, _)| item.clone()).collect();
        let id = self.cells.record_hand_out(cell, items, until, again);
        let mut message = Vec::with_capacity(batch.len());
        for (item, why) in batch {
            let work = work_ref(&item.rank.key);
            let Some(domain) = self.open.domain(&work) else { continue };
            message.push(Work {
                key: item.rank.key,
                attempt: item.rank.since,
                domain: domain.clone(),
                definition: item.order,
                placement: why.map(Box::new),
            });
            self.open.hand_out(&work, cell.clone(), id, until);
        }
        Effect::Perform { cell: cell.clone(), perform: Perform { id, work: message } }
    }

    fn send(&mut self, now: Timestamp, term: u64) -> Vec<Effect> {
        let leases = self.leases.take_due(now, self.settings.lease);
        let (effects, late) = self.outgoing.send((&self.id, term), leases);
        self.retry_outcomes(now, late);
        effects
    }
}
