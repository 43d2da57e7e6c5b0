//! Causes of decisions. The audit checks that a cause is in the log; this checker, that it concerns the decision.

use std::collections::BTreeMap;

use machines::process::{Process, Slot};
use projections::World;
use schemas::Decision;
use schemas::actual::{self, StopReason};
use schemas::entry::{Aggregate, Event};
use schemas::names::{CellId, DecisionId};
use schemas::preemption::is_preempted;
use schemas::stamp::Actor;
use schemas::{desired, evacuating, task};

use crate::checkers::Notes;
use crate::checkers::launches::desires_launched_task;
use crate::invariants::Invariant as I;

/// Aggregate of each decision.
#[derive(Default)]
pub(super) struct Causes(BTreeMap<DecisionId, Aggregate>);

impl Causes {
    /// Checks the cause of a decision before the World folds it.
    pub(super) fn check(&mut self, decision: &Decision, world: &World, notes: &mut Notes) {
        let about = decision.cause.map(|cause| self.0.get(&cause));
        let right = match (&decision.actor, about) {
            (Actor::Client { .. }, None) => true,
            // The task of a client's launch names the launch.
            (Actor::Client { .. }, Some(_)) => desires_launched_task(decision),
            // A cell that reports an unknown container starts a chain, and so does convergence.
            (Actor::Cell(_) | Actor::Operator(_) | Actor::Bbs(_) | Actor::Auctioneer(_), None) => true,
            (_, Some(None)) => false,
            (_, Some(Some(about))) => Self::concerns(about, decision, world),
        };
        notes.check(I::CausesTrue, right, || {
            format!(
                "a decision of {} about {} names a decision about {about:?}",
                decision.actor, decision.aggregate
            )
        });
        self.0.insert(decision.id, decision.aggregate.clone());
    }

    fn concerns(about: &Aggregate, decision: &Decision, world: &World) -> bool {
        if about.to_string() == decision.aggregate.to_string() {
            return true;
        }
        match about {
            Aggregate::Cell(cell) => match &decision.aggregate {
                Aggregate::Process { guid, .. } => {
                    changes_cells(decision)
                        || world.process(guid).is_some_and(|process| is_on(process, decision, cell))
                }
                Aggregate::Task { guid, .. } => {
                    world.task(guid).and_then(|task| task.holder()).is_some_and(|by| by.cell_id == *cell)
                }
                _ => false,
            },
            Aggregate::Periodic { .. } | Aggregate::Parameterised { .. } => desires_launched_task(decision),
            Aggregate::Process { .. } | Aggregate::Task { .. } => is_preemption(decision),
            Aggregate::Domain(_) | Aggregate::Cluster => false,
        }
    }
}

/// Returns `true` if a decision changes the cells of a global process.
fn changes_cells(decision: &Decision) -> bool {
    decision.events.iter().any(|event| matches!(event, Event::Desired(desired::Event::CellsChanged { .. })))
}

/// Returns `true` if a container of the process is on the cell, before the decision or in one of its events.
fn is_on(process: &Process, decision: &Decision, cell: &CellId) -> bool {
    let holds = process.slots.iter().flat_map(Slot::holders).any(|by| by.cell_id == *cell);
    let sets = |event: &Event| matches!(event, Event::Evacuating(evacuating::Event::Set { by, .. }) if by.cell_id == *cell);
    holds || decision.events.iter().any(sets)
}

/// Returns `true` if a decision stops work to make room for more urgent work.
fn is_preemption(decision: &Decision) -> bool {
    decision.events.iter().any(|event| match event {
        Event::Actual(actual::Event::StopRequested { cause, .. }) => *cause == StopReason::Preempted,
        Event::Task(task::Event::Completed { outcome: task::Outcome::Failed { reason }, .. }) => {
            is_preempted(reason)
        }
        _ => false,
    })
}
