//! Leases of evaluations by the auctioneer, and evaluations that the auctioneer never answers.

use schemas::evaluation::{self, Duty, Evaluation};
use schemas::message::{Lease, LeaseTarget};
use schemas::names::DecisionId;
use schemas::{process, task};

use super::Bbs;
use crate::aggregates::Order;
use crate::command::{AggregateCommand, QueuedCommand, Requester};

impl Bbs {
    /// Records a lease. The lease is ignored if its evaluation is not open in this World (the state folded
    /// from the log).
    pub(super) fn record_lease(&mut self, lease: Lease, term: u64) {
        let world = self.log.world();
        let known = match &lease.target {
            LeaseTarget::Process(guid, _) => world.process(guid).map(|process| &process.evaluations),
            LeaseTarget::Task(guid, _) => world.task(guid).map(|task| &task.evaluations),
        };
        let is_open = |one: &Evaluation| {
            one.id == lease.evaluation && one.duty() == Some(Duty::Place) && one.delivery == lease.delivery
        };
        if known.is_some_and(|known| known.iter().any(|one| is_open(&one)))
            && self.leases.renew(&lease, term, self.now)
        {
            self.queue_unanswered(lease);
        }
    }

    /// Queues the decision which records that an evaluation was never answered.
    pub(super) fn queue_unanswered(&mut self, lease: Lease) {
        let Lease { evaluation, delivery, target } = lease;
        let (command, epoch) = match target {
            LeaseTarget::Process(guid, epoch) => {
                let command = process::Command::Unanswered { evaluation, delivery };
                (AggregateCommand::Process(Order::new(guid, command)), epoch)
            }
            LeaseTarget::Task(guid, epoch) => {
                let command = task::Command::Unanswered { evaluation, delivery };
                (AggregateCommand::Task(Order::new(guid, command)), epoch)
            }
        };
        let queued = QueuedCommand::new(Requester::Own, self.me(), command);
        self.enqueue(QueuedCommand { epoch: Some(epoch), ..queued });
    }

    /// Drops the lease of an evaluation that is settled or delivered again.
    pub(super) fn follow_evaluation(&mut self, event: &evaluation::Event, decision: DecisionId) {
        match event {
            evaluation::Event::Redelivered { .. }
            | evaluation::Event::Completed { .. }
            | evaluation::Event::Failed { .. }
            | evaluation::Event::Canceled { .. } => self.leases.settle(event.evaluation(decision)),
            evaluation::Event::Created { .. }
            | evaluation::Event::Joined { .. }
            | evaluation::Event::DelayChanged { .. }
            | evaluation::Event::Due { .. }
            | evaluation::Event::Blocked { .. }
            | evaluation::Event::Retried { .. } => {}
        }
    }
}
