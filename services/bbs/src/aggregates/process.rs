//! Processes.

use machines::process::{self, Process};
use projections::Due;
use schemas::container::Epoch;
use schemas::definition::Mode;
use schemas::entry::{Aggregate, Event};
use schemas::names::{CellId, Domain, ProcessGuid};
use schemas::preemption::Eviction;
use schemas::process::Command;
use schemas::quota::Usage;
use schemas::subject::Subject;
use schemas::{Decision, Origin, Refusal, desired};

use super::{Order, State, Target};
use crate::scratch::Scratch;

impl Target for Order<ProcessGuid, Command> {
    fn name(&self) -> String {
        format!("process {}", self.key)
    }

    fn subject(&self, shards: u16) -> Subject {
        Subject::of_process(&self.key, shards)
    }

    fn state<'s>(&self, scratch: &'s Scratch<'_>) -> State<'s> {
        scratch.process(&self.key).map_or_else(State::default, |process| State {
            version: process.version,
            epoch: Some(process.epoch),
            domain: (!process.is_gone()).then_some(&process.domain),
            requests: Some(&process.requests),
            last_decision: Some(process.last_decision),
            decided: scratch.changed.processes.contains_key(&self.key),
        })
    }

    fn decide(&self, scratch: &Scratch<'_>) -> Result<Vec<Event>, Refusal> {
        let (world, process) = (scratch.world, scratch.process(&self.key));
        let context = process::Context {
            now: scratch.at,
            is_fresh: process.is_some_and(|process| scratch.is_fresh(&process.domain)),
            is_present: &|cell: &CellId| world.is_present(cell),
            is_known: &|cell: &CellId| world.cell(cell).is_some(),
            for_each_cell: &|visit: process::CellVisitor<'_>| world.visit_numbered(visit),
        };
        process::decide(process, &self.command, context)
    }

    fn aggregate(&self, scratch: &Scratch<'_>, events: &[Event]) -> Aggregate {
        let desired =
            if let Command::Desire(desired) = &*self.command { Some(&desired.domain) } else { None };
        let known = scratch.process(&self.key).map(|known| (&known.domain, known.epoch));
        let report = if let Command::Report(report) = &*self.command { Some(report) } else { None };
        let known = known.or_else(|| report.map(|report| (&report.domain, report.epoch)));
        let (domain, epoch) = scratch.epoch(desired, events, known);
        Aggregate::Process { guid: self.key.clone(), domain, epoch }
    }

    fn origin(&self, scratch: &Scratch<'_>, events: &[Event]) -> Origin {
        process::origin(scratch.process(&self.key), &self.command, events)
    }

    fn growth(&self, scratch: &Scratch<'_>, event: &Event) -> Usage {
        if let Event::Desired(desired::Event::Desired(lrp)) = event {
            let instances = if lrp.mode == Mode::Global { 0 } else { u64::from(lrp.instances) };
            return Usage { instances, processes_and_tasks: 1 };
        }
        let Event::Desired(desired::Event::Updated(update)) = event else { return Usage::default() };
        let desired = scratch.process(&self.key).and_then(|process| process.desired.as_ref());
        let now = desired.map_or(0, |desired| desired.instances);
        let more = update.instances.unwrap_or(now).saturating_sub(now);
        Usage { instances: u64::from(more), processes_and_tasks: 0 }
    }

    fn convergence(&self) -> Option<Due> {
        matches!(*self.command, Command::Converge).then(|| Due::Process(self.key.clone()))
    }

    fn eviction(&self) -> Option<&Eviction> {
        if let Command::Evict(eviction) = &*self.command { Some(eviction) } else { None }
    }

    fn targets_evaluation(&self) -> bool {
        matches!(*self.command, Command::Fail(_) | Command::Unanswered { .. } | Command::Retry(_))
    }
}

impl Scratch<'_> {
    pub(super) fn evolve_process(
        &mut self,
        guid: &ProcessGuid,
        domain: &Domain,
        epoch: Epoch,
        decision: &Decision,
    ) {
        let world = self.world;
        let process = self.changed.processes.entry(guid.clone()).or_insert_with(|| {
            let known = world.process(guid).cloned();
            known.unwrap_or_else(|| Process::new(guid.clone(), domain.clone(), epoch))
        });
        process::evolve(process, &decision.events, &decision.stamp());
    }
}
