//! What is remembered: of each thing no more than is said, and nothing of what is gone.

use std::collections::BTreeMap;

use machines::evaluation::Evaluations;
use schemas::entry::Aggregate;
use schemas::evaluation::{Duty, Evaluation};

use super::{Checkers, Notes};
use crate::cluster::Cluster;
use crate::nodes::Node;
use crate::promises::Promise as P;

/// docs/reference/limits.md: requests that a process, task or domain remembers; ended evaluations that a process or task keeps.
const REQUESTS: usize = 32;
pub(super) const EVALUATIONS: usize = 8;

impl Checkers {
    /// What just changed remembers no more than it may.
    pub(super) fn remembers(&self, aggregate: &Aggregate, notes: &mut Notes) {
        let ended = |all: &Evaluations| all.iter().filter(|one| !one.status.is_open()).count();
        let kept = match aggregate {
            Aggregate::Process { guid, .. } => {
                self.world.process(guid).map(|known| (known.requests.len(), ended(&known.evaluations)))
            }
            Aggregate::Task { guid, .. } => {
                self.world.task(guid).map(|known| (known.requests.len(), ended(&known.evaluations)))
            }
            Aggregate::Periodic { guid, .. } => {
                self.world.periodic(guid).map(|known| (known.requests.len(), 0))
            }
            Aggregate::Parameterised { guid, .. } => {
                self.world.parameterised(guid).map(|known| (known.requests.len(), 0))
            }
            Aggregate::Domain(domain) => self.world.domain(domain).map(|known| (known.requests.len(), 0)),
            Aggregate::Cell(_) | Aggregate::Cluster => None,
        };
        let (requests, evaluations) = kept.unwrap_or_default();
        notes.must(P::NothingKept, requests <= REQUESTS && evaluations <= EVALUATIONS, || {
            format!("{aggregate:?} remembers {requests} requests and {evaluations} evaluations")
        });
    }

    /// How much a node may remember under a name, as the log and the cells are now.
    fn may_remember(&self, what: &str, leads: bool, containers: usize) -> usize {
        match what {
            "subjects with a known end" => self.log.subjects(),
            // A heartbeat of any cell may come again, whatever became of it.
            "watched cells" | "known cells" | "cells not in the log yet" => self.shape.cells,
            "outstanding callbacks" if leads => self.world.callbacks().count(),
            "work items" | "timers of work items" | "work items awaiting room" if leads => {
                self.world.pending_work().count()
            }
            "leased evaluations" if leads => self.open_evaluations(Evaluation::duty),
            "evaluations leased by the auctioneer" if leads => {
                self.open_evaluations(|one| one.duty().filter(|duty| *duty == Duty::Place))
            }
            "containers" | "work items on the cell" => containers,
            // What it withholds is under way.
            _ => 0,
        }
    }
}

impl Checkers {
    /// How many evaluations stand for something of this kind.
    fn open_evaluations(&self, of: impl Fn(&Evaluation) -> Option<Duty>) -> usize {
        let processes = self.world.processes_from(None).flat_map(|process| process.evaluations.iter());
        let tasks = self.world.tasks_from(None).flat_map(|task| task.evaluations.iter());
        processes.chain(tasks).filter(|one| of(one).is_some()).count()
    }
}

impl Cluster {
    /// What nodes remember more of than there is.
    pub(super) fn kept_for_nothing(&self) -> BTreeMap<(Node, &'static str), String> {
        let mut kept = BTreeMap::new();
        for node in self.all_nodes() {
            let place = self.place(node);
            let containers = match node {
                Node::Rep(cell) => self.cells[cell].list().len(),
                Node::Bbs(_) | Node::Auctioneer(_) => 0,
            };
            for (what, count) in place.remembered() {
                let most = self.checkers.may_remember(what, place.leads(), containers);
                if count > most {
                    let how = format!("{node} remembers {count} {what}, and there are {most}");
                    kept.insert((node, what), how);
                }
            }
        }
        kept
    }
}
