//! Timers: leader heartbeats, elections, due times, convergence, silent cells.

use election::Duty;
use machines::task::{self, Task};
use projections::Due;
use schemas::cluster;
use schemas::container::Epoch;
use schemas::definition::Overlap;
use schemas::message::LeaderHeartbeat;
use schemas::names::{ClusterId, TaskGuid};
use schemas::subject::Subject;

use super::{Bbs, STOP_RETRY_INTERVAL};
use crate::aggregates::{ClusterCommand, Order};
use crate::command::AggregateCommand;
use crate::convergence;
use crate::effect::Effect;

impl Bbs {
    /// Performs everything that is due.
    pub(super) fn tick(&mut self) {
        self.forward_ready_queries();
        for subject in self.shards.due_reads(self.now) {
            self.confirmations.request_read(&subject);
        }
        self.refuse_unconfirmed();
        if !self.log.is_caught_up() {
            return;
        }
        self.follow_leader();
        self.tick_appends();
        let should_yield = self.clocks.should_yield(self.now);
        match self.leadership.duty(should_yield, self.now) {
            Duty::None => {}
            Duty::Heartbeat => self.emit(Effect::LeaderHeartbeat(self.heartbeat_message(false))),
            Duty::Campaign(term) => self.campaign(term),
        }
        if self.leads() {
            self.tick_leading();
        }
    }

    fn heartbeat_message(&self, steps_down: bool) -> LeaderHeartbeat {
        let (id, term) = (self.settings.id.clone(), self.leadership.term());
        LeaderHeartbeat { id, term, position: self.world().position(), steps_down }
    }

    /// Returns the last heartbeat of a leader that stops. After this heartbeat, a standby takes over at once.
    /// `None` if this BBS does not lead.
    #[must_use]
    pub fn final_heartbeat(&self) -> Option<LeaderHeartbeat> {
        self.standing().leads.then(|| self.heartbeat_message(true))
    }

    /// Queues the election of this BBS. If the log is empty, the BBS also founds the cluster, or does nothing
    /// if it must not found a cluster.
    pub(super) fn campaign(&mut self, term: u64) {
        if self.shards.holds(&Subject::Cluster, |_| true) {
            return;
        }
        let found = match (self.world().cluster(), self.settings.founding_shards) {
            (Some(_), _) => None,
            (None, Some(shards)) => Some((ClusterId(self.ids.next(self.shown)), shards)),
            (None, None) => return,
        };
        let id = self.settings.id.clone();
        let command = ClusterCommand::Lead { role: cluster::Role::Bbs, id, term, found };
        self.enqueue_own(AggregateCommand::Cluster(command));
    }

    fn tick_leading(&mut self) {
        let latest = self.times().latest();
        if self.world().next_due().is_some_and(|due| due <= latest) {
            self.converge_due(convergence::expired_timers(self.world(), self.times()));
        }
        if let Some(behind) = self.convergence.next_slice(self.now) {
            let most = self.settings.slice_len;
            let (due, next) = convergence::slice(self.world(), self.times(), behind.as_ref(), most);
            self.convergence.finish_slice(next);
            self.converge_due(due);
        }
        if self.convergence.are_stops_due(self.now, STOP_RETRY_INTERVAL) {
            self.repeat_stops();
        }
        for lease in self.leases.take_expired(self.now) {
            self.queue_unanswered(lease);
        }
        for (guid, epoch) in self.callbacks.due(self.now) {
            self.start_callback(&guid, epoch);
        }
        self.check_cells();
    }

    fn converge_due(&mut self, due: Vec<Due>) {
        for due in due {
            if self.awaits_reports(&due) {
                continue;
            }
            if self.convergence.queue_unless_in_flight(&due) {
                self.enqueue_own(AggregateCommand::converge(due));
            }
        }
    }

    /// Returns `true` if a launch would be skipped because of an earlier task that may have ended while no
    /// BBS led.
    fn awaits_reports(&self, due: &Due) -> bool {
        let Due::Periodic(guid) = due else { return false };
        let known = self.world().periodic(guid).and_then(|known| known.desired.as_ref());
        self.now < self.reports_until
            && known.is_some_and(|desired| desired.overlap == Overlap::Skipped)
            && self.world().launched_by(guid).any(Task::is_live)
    }

    /// Starts a callback. Marks a COMPLETED task RESOLVING first. For a task that is already RESOLVING,
    /// repeats the call.
    fn start_callback(&mut self, guid: &TaskGuid, epoch: Epoch) {
        let task = self.world().task(guid).filter(|task| task.epoch == epoch);
        match task.and_then(|task| task.state.as_ref()) {
            Some(task::State::Completed(_)) => {
                let command = schemas::task::Command::BeginResolving;
                self.enqueue_own(AggregateCommand::Task(Order::new(guid.clone(), command)));
            }
            Some(task::State::Resolving(_)) => self.send_callback(guid, epoch),
            Some(task::State::Pending { .. } | task::State::Running { .. }) | None => {
                self.callbacks.forget(guid);
            }
        }
    }
}
