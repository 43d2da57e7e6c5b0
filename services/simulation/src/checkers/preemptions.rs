//! Preemption: what is stopped so that something more urgent has room, as the log tells it.

use std::collections::BTreeMap;
use std::time::Duration;

use projections::World;
use schemas::actual::{self, StopReason};
use schemas::cell;
use schemas::container::{Instance, WorkKey};
use schemas::entry::{Aggregate, Event};
use schemas::evaluation::{self, InitialStatus, Trigger};
use schemas::message::Outcomes;
use schemas::names::InstanceGuid;
use schemas::preemption::{Eviction, Preemptor};
use schemas::priority::Priority;
use schemas::stamp::Actor;
use schemas::task::{self, Outcome};
use schemas::{Decision, Position, Timestamp};

use super::Notes;
use super::log::Log;
use crate::coverage::Situation;
use crate::promises::Promise as P;

/// How a task fails that is stopped for something more urgent.
const PREEMPTED: &str = "preempted by ";

/// What auctioneers wanted stopped, and what was.
#[derive(Default)]
pub(super) struct Preemptions {
    said: BTreeMap<InstanceGuid, Vec<Preemptor>>,
    /// For each attempt to place something what was stopped for it.
    stopped: BTreeMap<(WorkKey, Timestamp), Vec<Stopped>>,
}

/// So long nothing that was stopped for work comes back to where it was, and is stopped for it again.
const KEPT: Duration = Duration::from_secs(20);

/// Something that was stopped.
struct Stopped {
    name: String,
    by: Instance,
    actor: Actor,
    at: Timestamp,
}

impl Preemptions {
    /// An auctioneer wants something stopped.
    pub(super) fn says(&mut self, outcomes: &Outcomes) {
        for Eviction { by, preemptor, .. } in &outcomes.evictions {
            self.said.entry(by.instance_guid).or_default().push(preemptor.clone());
        }
    }

    /// A decision that was made on the log up to `basis`, in a World that doesn't hold it yet.
    pub(super) fn decided(
        &mut self,
        decision: &Decision,
        (world, log): (&World, &Log),
        basis: Position,
        notes: &mut Notes,
    ) {
        for (by, name, priority) in stopped(decision, world) {
            notes.saw(Situation::Preempted);
            notes.must(P::PreemptedOnlyIfOn, log.is_preempting(basis), || {
                format!("{name} is stopped on {}, and preemption is off at {basis}", by.cell_id)
            });
            let evaluated = decision.events.iter().any(says_so);
            notes.must(P::PreemptionEvaluated, evaluated, || {
                format!("{name} is stopped, and its evaluations are {:?}", decision.events)
            });
            let reason = decision.reason.as_deref().unwrap_or_default();
            let Some(preemptor) = self.said(&by, reason).cloned() else {
                let how = format!("{name} is stopped because of {reason:?}, and no auctioneer wanted that");
                notes.broken(P::PreemptedLower, how);
                continue;
            };
            let lower = u8::from(priority) + 10 <= u8::from(preemptor.priority);
            notes.must(P::PreemptedLower, lower && !is_same(decision, &preemptor), || {
                format!("{name} of priority {priority} is {preemptor}")
            });
            let known = self.stopped.entry((preemptor.work.clone(), preemptor.attempt)).or_default();
            // Another auctioneer finds anew what the room was for.
            let same = |one: &&Stopped| {
                one.name == name && one.by.cell_id == by.cell_id && one.actor == decision.actor
            };
            let last = known.iter().filter(same).map(|one| one.at).max();
            let again = last.filter(|last| decision.at.since(*last) < KEPT);
            notes.must(P::PreemptedOnce, again.is_none(), || {
                format!("{name} is stopped again on {}, as at {again:?}: {preemptor}", by.cell_id)
            });
            known.push(Stopped { name, by, actor: decision.actor.clone(), at: decision.at });
        }
        self.places(decision, notes);
        if let Aggregate::Cell(cell) = &decision.aggregate
            && decision.events.iter().any(opens_or_closes)
        {
            // Room on a cell that takes no work is given up: when it takes some again, that is anybody's.
            self.stopped.values_mut().for_each(|known| known.retain(|one| one.by.cell_id != *cell));
        }
    }

    /// For what an auctioneer wanted a container stopped, in these words.
    fn said(&self, by: &Instance, reason: &str) -> Option<&Preemptor> {
        let all = self.said.get(&by.instance_guid).into_iter().flatten();
        all.rev().find(|preemptor| preemptor.to_string() == reason)
    }

    /// The work for which a decision stops something: what an auctioneer called so, if it called several so.
    pub(super) fn of(&self, decision: &Decision, world: &World) -> Vec<WorkKey> {
        let by = stopped(decision, world).into_iter().next().map(|(by, ..)| by);
        let all = by.and_then(|by| self.said.get(&by.instance_guid)).into_iter().flatten();
        let named = all.filter(|preemptor| decision.reason.as_ref() == Some(&preemptor.to_string()));
        named.map(|preemptor| preemptor.work.clone()).collect()
    }

    /// What something was stopped for is placed.
    fn places(&self, decision: &Decision, notes: &mut Notes) {
        let waited = |key: &WorkKey| self.stopped.keys().any(|(work, _)| work == key);
        for event in &decision.events {
            if placed(event, &decision.aggregate).is_some_and(|key| waited(&key)) {
                notes.saw(Situation::PreemptorPlaced);
            }
        }
    }
}

/// Whether a cell takes work again, or none any more.
const fn opens_or_closes(event: &Event) -> bool {
    matches!(
        event,
        Event::Cell(
            cell::Event::Appeared(_)
                | cell::Event::Cordoned {}
                | cell::Event::Uncordoned {}
                | cell::Event::EvacuationRequested {}
                | cell::Event::Evacuating {}
                | cell::Event::Resumed {}
                | cell::Event::Left {}
                | cell::Event::Disappeared { .. }
        )
    )
}

/// What an event says that a cell has.
fn placed(event: &Event, aggregate: &Aggregate) -> Option<WorkKey> {
    if let (Event::Actual(actual::Event::Claimed { place, .. }), Aggregate::Process { guid, epoch, .. }) =
        (event, aggregate)
    {
        let key = schemas::ActualLrpKey::new(guid.clone(), place.clone());
        return Some(WorkKey::Lrp { key, epoch: *epoch });
    }
    if let (Event::Task(task::Event::Started { .. }), Aggregate::Task { guid, epoch, .. }) =
        (event, aggregate)
    {
        return Some(WorkKey::Task { task_guid: guid.clone(), epoch: *epoch });
    }
    None
}

/// What a decision stops for something more urgent: its container, what it is called, and how urgent it is.
fn stopped(decision: &Decision, world: &World) -> Vec<(Instance, String, Priority)> {
    decision.events.iter().flat_map(|event| stopped_by(event, &decision.aggregate, world)).collect()
}

fn stopped_by(event: &Event, aggregate: &Aggregate, world: &World) -> Vec<(Instance, String, Priority)> {
    if let Event::Actual(actual::Event::StopRequested { places, cause: StopReason::Preempted }) = event
        && let Aggregate::Process { guid, .. } = aggregate
    {
        let process = world.process(guid);
        let desired = process.and_then(|process| process.desired.as_ref());
        let priority = desired.map(|desired| desired.priority).unwrap_or_default();
        let of_place = |place: schemas::Place| {
            let by = process?.actual(&place)?.holder()?.clone();
            Some((by, format!("{guid}/{}", place.index), priority))
        };
        return places.iter().filter_map(of_place).collect();
    }
    if let Event::Task(task::Event::Completed { by: Some(by), outcome: Outcome::Failed { reason }, .. }) =
        event
        && let Aggregate::Task { guid, .. } = aggregate
        && reason.starts_with(PREEMPTED)
    {
        let priority = world.task(guid).map(|task| task.definition.priority).unwrap_or_default();
        return vec![(by.clone(), format!("task {guid}"), priority)];
    }
    vec![]
}

/// Whether an evaluation says that something more urgent is the cause.
fn says_so(event: &Event) -> bool {
    if let Event::Evaluation(
        // What takes its place at once, as a rollout may have it, is to be placed.
        evaluation::Event::Created {
            trigger,
            initial_status: InitialStatus::Complete { stopped: 1 } | InitialStatus::Pending,
            ..
        }
        | evaluation::Event::Joined { trigger, .. },
    ) = event
    {
        *trigger == Trigger::Preemption
    } else {
        false
    }
}

/// Whether a decision is about the process that gets the room.
fn is_same(decision: &Decision, preemptor: &Preemptor) -> bool {
    if let (Aggregate::Process { guid, .. }, WorkKey::Lrp { key, .. }) =
        (&decision.aggregate, &preemptor.work)
    {
        *guid == key.process_guid
    } else {
        false
    }
}
