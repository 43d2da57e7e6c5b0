//! Memory of the services: bounded by existing things.

use std::collections::BTreeMap;

use machines::evaluation::Evaluations;
use schemas::entry::Aggregate;
use schemas::evaluation::{Duty, Evaluation};
use schemas::limits::{KEPT_EVALUATIONS, REMEMBERED_REQUESTS};

use crate::checkers::{Checkers, Notes};
use crate::cluster::Cluster;
use crate::invariants::Invariant as I;
use crate::shape::Node;

impl Checkers {
    /// Checks how much a changed aggregate remembers.
    pub(super) fn check_remembered(&self, aggregate: &Aggregate, notes: &mut Notes) {
        let ended = |all: &Evaluations| all.iter().filter(|one| !one.status.is_open()).count();
        let remembered = match aggregate {
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
        let (requests, evaluations) = remembered.unwrap_or_default();
        let few = requests <= REMEMBERED_REQUESTS && evaluations <= KEPT_EVALUATIONS;
        notes.check(I::NothingKept, few, || {
            format!("{aggregate} remembers {requests} requests and {evaluations} evaluations")
        });
    }

    /// Returns the maximum size of a collection of a node, by the log and the cells.
    fn max_size(&self, collection: &str, leads: bool, containers: usize) -> usize {
        match collection {
            "subjects with a known end" => self.log.subjects(),
            // A delayed heartbeat of any cell may arrive.
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
            _ => 0,
        }
    }

    fn open_evaluations(&self, duty: impl Fn(&Evaluation) -> Option<Duty>) -> usize {
        let processes = self.world.processes_from(None).flat_map(|process| process.evaluations.iter());
        let tasks = self.world.tasks_from(None).flat_map(|task| task.evaluations.iter());
        processes.chain(tasks).filter(|one| duty(one).is_some()).count()
    }
}

impl Cluster {
    /// Returns the collections of nodes that are larger than the log and the cells justify.
    pub(super) fn oversized_collections(&self) -> BTreeMap<(Node, &'static str), String> {
        let mut oversized = BTreeMap::new();
        for node in self.all_nodes() {
            let place = self.place(node);
            let containers = match node {
                Node::Rep(cell) => self.cells[cell].list().len(),
                Node::Bbs(_) | Node::Auctioneer(_) => 0,
            };
            for (name, size) in place.remembered() {
                let max = self.checkers.max_size(name, place.leads(), containers);
                if size > max {
                    oversized
                        .insert((node, name), format!("{node} has {size} {name}, expected at most {max}"));
                }
            }
        }
        oversized
    }
}
