//! What auctioneers give and reps take: in the order of priority (Diego Dev Notes,
//! "Auction Work Prioritization"), from the newest term, and not while a cell evacuates.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use projections::WorkRef;
use schemas::container::{Epoch, Instance, WorkKey};
use schemas::entry::Actor;
use schemas::message::{Outcome, Outcomes, Perform, Performed};
use schemas::names::{CellId, ServiceId};
use schemas::placement::{Explanation, INSUFFICIENT_RESOURCES};
use schemas::resources::{Constraint, Resources};
use schemas::{Refusal, Timestamp};

use super::Scene;
use crate::nodes::{Life, Node, Shape, rep_of};
use crate::promises::{Broken, Promise};

/// The messages so far.
#[derive(Default)]
pub(super) struct Placing {
    /// What a rep was given, until it answers.
    given: BTreeMap<u64, Perform>,
    /// The highest term that a rep took work of.
    terms: BTreeMap<Life, u64>,
    /// Who said that it evacuates, and since when by its own clock.
    evacuating: BTreeMap<Life, Timestamp>,
    /// What auctioneers gave to cells, and why.
    orders: BTreeMap<(CellId, WorkKey), Vec<Option<Explanation>>>,
    /// What auctioneers found no place for, and why.
    outcomes: Vec<Found>,
    /// What was taken before: it may be answered again.
    taken: BTreeSet<(Life, WorkKey, Timestamp)>,
    /// What was given before: its place is taken already.
    placed: BTreeSet<(CellId, WorkKey, Timestamp)>,
}

/// What a placement error says, and of which attempt.
pub(super) struct Said<'a> {
    pub(super) work: &'a str,
    pub(super) epoch: Epoch,
    pub(super) index: Option<u32>,
    pub(super) attempt: Option<Timestamp>,
    pub(super) error: &'a str,
}

/// What an auctioneer said that it could not place.
struct Found {
    by: ServiceId,
    work: String,
    epoch: Epoch,
    index: Option<u32>,
    attempt: Option<Timestamp>,
    error: String,
    why: Option<Explanation>,
}

/// Work that found no room.
pub(super) struct Unplaced {
    pub(super) work: WorkRef,
    pub(super) constraint: Constraint,
    pub(super) size: Resources,
}

impl Placing {
    /// A rep gets work.
    pub(super) fn given(&mut self, requester: u64, perform: Perform) {
        self.given.insert(requester, perform);
    }

    /// A rep says that it evacuates.
    pub(super) fn evacuates(&mut self, rep: Life, clock: Timestamp) {
        self.evacuating.entry(rep).or_insert(clock);
    }

    /// Whether the evacuation of a container's cell ends then.
    pub(super) fn ends(&self, by: &Instance, at: Timestamp, scene: &Scene<'_>) -> bool {
        let ends = self.ends_of(&by.cell_id, scene.shape.evacuation);
        let near = |end: Timestamp| end.since(at).max(at.since(end)) <= scene.clock_slack;
        ends.into_iter().any(near)
    }

    /// Whether the time of an evacuation of a cell is over.
    pub(super) fn is_over(&self, cell: &CellId, scene: &Scene<'_>) -> bool {
        let ends = self.ends_of(cell, scene.shape.evacuation);
        ends.into_iter().any(|end| end <= scene.decision.at + scene.clock_slack)
    }

    fn ends_of(&self, cell: &CellId, time: Duration) -> Vec<Timestamp> {
        let rep = rep_of(cell);
        self.evacuating.iter().filter(|((node, _), _)| *node == rep).map(|(_, since)| *since + time).collect()
    }

    /// An auctioneer gives work to a cell.
    pub(super) fn gives(&mut self, cell: &CellId, perform: &Perform) {
        for work in &perform.work {
            let why = work.placement.as_deref().cloned();
            self.orders.entry((cell.clone(), work.key.clone())).or_default().push(why);
        }
    }

    /// Whether work was given to a cell, for this reason.
    pub(super) fn was_given(&self, cell: &CellId, work: &WorkKey, why: Option<&Explanation>) -> bool {
        let given = self.orders.get(&(cell.clone(), work.clone()));
        given.is_some_and(|reasons| reasons.iter().any(|reason| reason.as_ref() == why))
    }

    /// An auctioneer says what it could not place.
    pub(super) fn finds(&mut self, outcomes: &Outcomes) {
        for outcome in &outcomes.outcomes {
            let by = outcomes.id.clone();
            match outcome {
                Outcome::Lrp { process_guid, epoch, unplaced, explanation } => {
                    self.outcomes.extend(unplaced.iter().map(|one| Found {
                        by: by.clone(),
                        work: process_guid.to_string(),
                        epoch: *epoch,
                        index: Some(one.index),
                        attempt: Some(one.attempt),
                        error: one.error.clone(),
                        why: explanation.as_deref().cloned(),
                    }));
                }
                Outcome::Task { task_guid, epoch, error, explanation } => self.outcomes.push(Found {
                    by,
                    work: task_guid.to_string(),
                    epoch: *epoch,
                    index: None,
                    attempt: None,
                    error: error.clone(),
                    why: explanation.as_deref().cloned(),
                }),
            }
        }
    }

    /// Whether an auctioneer said that.
    pub(super) fn was_said(&self, actor: &Actor, said: &Said<'_>, why: Option<&Explanation>) -> bool {
        let Actor::Auctioneer(id) = actor else { return false };
        self.outcomes.iter().any(|found| {
            let same = (found.epoch, found.index, found.attempt) == (said.epoch, said.index, said.attempt);
            same && found.work == said.work
                && found.by == *id
                && found.error == said.error
                && found.why.as_ref() == why
        })
    }

    pub(super) fn is_evacuating(&self, rep: Life) -> bool {
        self.evacuating.contains_key(&rep)
    }

    /// A rep answers what it was given.
    pub(super) fn answered(
        &mut self,
        rep: Life,
        requester: u64,
        answer: &Result<Performed, Refusal>,
    ) -> Vec<Broken> {
        let Some((perform, performed)) = self.given.remove(&requester).zip(answer.as_ref().ok()) else {
            return vec![];
        };
        let mut broken = vec![];
        let highest = self.terms.entry(rep).or_default();
        if perform.id.term < *highest {
            let how = format!("{} takes work of term {}, it knows {highest}", rep.0, perform.id.term);
            broken.push(Broken { promise: Promise::StaleTermHarmless, how });
        }
        *highest = perform.id.term.max(*highest);
        let refused: BTreeSet<usize> =
            performed.refused.iter().filter_map(|(at, _)| usize::try_from(*at).ok()).collect();
        for (_, work) in perform.work.into_iter().enumerate().filter(|(at, _)| !refused.contains(at)) {
            let key = work.key.clone();
            let new = self.taken.insert((rep, work.key, work.attempt));
            if new && self.evacuating.contains_key(&rep) {
                let how = format!("{} takes {key} and evacuates", rep.0);
                broken.push(Broken { promise: Promise::EvacuatingTakesNothing, how });
            }
        }
        broken
    }

    /// In one batch nothing takes a place in which work would have fitted that comes before it.
    pub(super) fn out_of_order(
        &mut self,
        shape: Shape,
        placed: &[(CellId, Perform)],
        unplaced: &[Unplaced],
    ) -> Vec<Broken> {
        let all = placed.iter().flat_map(|(cell, perform)| perform.work.iter().map(move |work| (cell, work)));
        let mut broken = vec![];
        for (cell, work) in all {
            let again = !self.placed.insert((cell.clone(), work.key.clone(), work.attempt));
            let Node::Rep(at) = rep_of(cell) else { continue };
            let has = shape.cell(at);
            let robbed = |waits: &&Unplaced| {
                turn_of(&waits.work) < turn(&work.key)
                    && work.order.resources().fits(waits.size)
                    && waits.constraint.mismatch(&has.stack, &has.placement_tags).is_none()
            };
            if let Some(waits) = unplaced.iter().find(robbed).filter(|_| !again) {
                let how = format!("{} is on {cell}, and {:?} finds no room", work.key, waits.work);
                broken.push(Broken { promise: Promise::BatchOrder, how });
            }
        }
        broken
    }
}

/// Index 0, tasks, index 1, index 2...
const fn turn(key: &WorkKey) -> u32 {
    match key {
        WorkKey::Lrp { index: 0, .. } => 0,
        WorkKey::Task { .. } => 1,
        WorkKey::Lrp { index, .. } => index.saturating_add(1),
    }
}

const fn turn_of(work: &WorkRef) -> u32 {
    match work {
        WorkRef::Lrp(_, 0) => 0,
        WorkRef::Task(_) => 1,
        WorkRef::Lrp(_, index) => index.saturating_add(1),
    }
}

/// What an auctioneer says that there is no room for, each in the life that it knows.
pub(super) fn without_room(outcomes: &Outcomes) -> Vec<(WorkRef, Epoch)> {
    let names = outcomes.outcomes.iter().flat_map(|outcome| match outcome {
        Outcome::Lrp { process_guid, epoch, unplaced, .. } => {
            let short = unplaced.iter().filter(|one| one.error.starts_with(INSUFFICIENT_RESOURCES));
            short.map(|one| (WorkRef::Lrp(process_guid.clone(), one.index), *epoch)).collect::<Vec<_>>()
        }
        Outcome::Task { task_guid, epoch, error, .. } if error.starts_with(INSUFFICIENT_RESOURCES) => {
            vec![(WorkRef::Task(task_guid.clone()), *epoch)]
        }
        Outcome::Task { .. } => vec![],
    });
    names.collect()
}
