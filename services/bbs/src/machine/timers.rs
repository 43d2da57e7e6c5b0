//! Time: beats, elections, due times, convergence, silent cells.

use election::Duty;
use schemas::container::Epoch;
use schemas::message::Beat;
use schemas::names::{ClusterId, TaskGuid};
use schemas::subject::Subject;
use schemas::{cluster, task};

use super::{Bbs, STOP_AGAIN};
use crate::command::AggregateCommand;
use crate::convergence;
use crate::effect::Effect;

impl Bbs {
    /// Does what is due.
    pub(super) fn tick(&mut self) {
        self.answer_waiting();
        for subject in self.shards.due_reads(self.now) {
            self.confirmations.want(&subject);
        }
        self.give_up_confirming();
        if !self.log.is_caught_up() {
            return;
        }
        self.follow_leader();
        match self.leadership.duty(self.now) {
            Duty::None => {}
            Duty::Beat => {
                let (id, term) = (self.settings.id.clone(), self.leadership.term());
                self.emit(Effect::Beat(Beat { id, term, position: self.world().position() }));
            }
            Duty::Campaign(term) => self.campaign(term),
        }
        if self.leads() {
            self.tick_leading();
        }
    }

    /// Has it written that this BBS leads; in a journal without a cluster, that one is founded.
    fn campaign(&mut self, term: u64) {
        if self.shards.holds(&Subject::Cluster, |_| true) {
            return;
        }
        let found = self.world().cluster().is_none().then(|| {
            let id = ClusterId(self.ids.next(self.shown));
            (id, self.settings.shards)
        });
        let id = self.settings.id.clone();
        self.enqueue_own(AggregateCommand::Lead { role: cluster::Role::Bbs, id, term, found });
    }

    fn tick_leading(&mut self) {
        if self.world().next_due().is_some_and(|due| due <= self.shown) {
            self.converge_due(convergence::timers(self.world(), self.shown));
        }
        if let Some(behind) = self.convergence.sweeps(self.now) {
            let most = self.settings.sweep;
            let (due, next) = convergence::slice(self.world(), self.shown, behind.as_ref(), most);
            self.convergence.swept(next);
            self.converge_due(due);
        }
        if self.convergence.repeats_stops(self.now, STOP_AGAIN) {
            self.stop_again();
        }
        for lease in self.leases.take_ended(self.now) {
            self.unanswered(lease);
        }
        for (guid, epoch) in self.callbacks.due(self.now) {
            self.begin_call(&guid, epoch);
        }
        self.look_at_cells();
    }

    fn converge_due(&mut self, due: Vec<projections::Due>) {
        for due in due {
            if self.convergence.queue_unless_in_flight(&due) {
                self.enqueue_own(AggregateCommand::converge(due));
            }
        }
    }

    /// A COMPLETED task is marked RESOLVING first; one that is RESOLVING already is called again.
    fn begin_call(&mut self, guid: &TaskGuid, epoch: Epoch) {
        let task = self.world().task(guid).filter(|task| task.epoch == epoch);
        match task.and_then(|task| task.state.as_ref()) {
            Some(task::State::Completed(_)) => {
                let command = Box::new(task::Command::BeginResolving);
                self.enqueue_own(AggregateCommand::Task(guid.clone(), command));
            }
            Some(task::State::Resolving(_)) => self.call(guid, epoch),
            Some(task::State::Pending { .. } | task::State::Running { .. }) | None => {
                self.callbacks.forget(guid);
            }
        }
    }
}
