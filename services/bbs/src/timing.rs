//! Time: beats, elections, timers, convergence, silent cells.

use std::collections::BTreeMap;

use election::Duty;
use projections::WorkRef;
use schemas::container::Epoch;
use schemas::entry::Actor;
use schemas::message::Beat;
use schemas::names::{ClusterId, TaskGuid};
use schemas::subject::Subject;
use schemas::{Timestamp, cluster, task};

use crate::converge;
use crate::machine::{Bbs, Effect, STOP_AGAIN};
use crate::shard::Command;

impl Bbs {
    pub(crate) fn tick(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        self.answer_waiting(now, out);
        let retries: Vec<Subject> = self
            .retry_at
            .iter()
            .filter(|(_, due)| **due <= now)
            .map(|(subject, _)| subject.clone())
            .collect();
        for subject in retries {
            self.retry_at.remove(&subject);
            self.confirmations.want(&subject);
        }
        self.give_up_confirming(now, out);
        if !self.caught_up {
            return;
        }
        self.follow_leader(now, out);
        match self.election.duty(now) {
            Duty::Beat if self.leading => {
                let (id, term) = (self.settings.id.clone(), self.election.term());
                out.push(Effect::Beat(Beat { id, term, position: self.world.position() }));
            }
            Duty::None | Duty::Beat => {}
            Duty::Campaign(term) => self.campaign(term),
        }
        if self.leading {
            self.tick_leading(now, out);
        }
    }

    /// Has it written that this BBS leads; in a journal without a cluster, that one is founded.
    fn campaign(&mut self, term: u64) {
        let campaigning = self.shards.get(&Subject::Cluster);
        if campaigning.is_some_and(|shard| shard.flight.is_some() || !shard.queue.is_empty()) {
            return;
        }
        let found = self.world.cluster().is_none().then(|| {
            let id = ClusterId(self.ids.next(self.shown));
            (id, self.settings.shards)
        });
        let id = self.settings.id.clone();
        self.enqueue_own(Command::Lead { role: cluster::Role::Bbs, id, term, found });
    }

    pub(crate) fn tick_leading(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        if self.world.next_due().is_some_and(|due| due <= self.shown) {
            for suspect in converge::timers(&self.world, self.shown) {
                self.look_at_due(suspect);
            }
        }
        if self.converge_at <= now {
            self.converge_at = now + converge::INTERVAL;
            for suspect in converge::everything(&self.world, self.shown) {
                self.look_at_due(suspect);
            }
        }
        if self.stop_at <= now {
            self.stop_at = now + STOP_AGAIN;
            self.stop_again(out);
        }
        for (guid, epoch) in self.callbacks.due(now) {
            self.begin_call(now, &guid, epoch, out);
        }
        self.look_at_cells(now, out);
    }

    pub(crate) fn stop_again(&self, out: &mut Vec<Effect>) {
        let mut stops = BTreeMap::new();
        for work in self.world.stopping() {
            if let WorkRef::Lrp(guid, index) = work {
                self.gather_stop(guid, *index, &mut stops);
            }
        }
        self.send_stops(stops, out);
    }

    /// A COMPLETED task is marked RESOLVING first; one that is RESOLVING already is called again.
    pub(crate) fn begin_call(
        &mut self,
        now: Timestamp,
        guid: &TaskGuid,
        epoch: Epoch,
        out: &mut Vec<Effect>,
    ) {
        let state =
            self.world.task(guid).filter(|task| task.epoch == epoch).and_then(|task| task.state.as_ref());
        match state {
            Some(task::State::Completed(_)) => {
                self.enqueue_own(Command::Task(guid.clone(), Box::new(task::Command::BeginResolving)));
            }
            Some(task::State::Resolving(_)) => {
                let me = Actor::Bbs(self.settings.id.clone());
                self.call(guid, epoch, &me, out);
            }
            Some(task::State::Pending { .. } | task::State::Running { .. }) | None => {
                self.callbacks.came_back(guid, now);
                self.callbacks.forget(guid);
            }
        }
    }

    pub(crate) fn look_at_cells(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        let present = self.world.cells().filter(|(_, cell)| cell.present).map(|(id, _)| id);
        let look = self.presence.look(present, now);
        if let Some(count) = look.mass {
            let why = format!(
                "{count} cells fell silent together: probably the network, waiting before it is believed"
            );
            out.push(Effect::Warn(why));
        }
        for cell in look.probe {
            out.push(Effect::Probe(cell, self.election.term()));
        }
        for cell in look.lost {
            self.lose(cell);
        }
    }
}
