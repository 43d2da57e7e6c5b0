//! The rows of the table by which a rollout goes from state to state (docs/internals/simulation.md, "Rollout transitions"): which
//! of them a run met, read off the log and what was so before each event. It judges nothing.

use std::collections::BTreeMap;

use machines::actual::Actual;
use machines::desired::Desired;
use machines::process::{self, Process};
use machines::rollout::Rollout;
use projections::World;
use schemas::actual::{self, UnclaimReason};
use schemas::entry::{Aggregate, Event};
use schemas::names::ProcessGuid;
use schemas::policy::FailureAction;
use schemas::rollout::{self, Kind, PauseReason, Phase};
use schemas::stamp::Actor;
use schemas::{Decision, Entry, Place, desired};

use super::Notes;
use crate::coverage::Situation as S;

/// Notes the rows that an entry meets, before it is folded into the World.
pub(super) fn of_entry(world: &World, entry: &Entry, notes: &mut Notes) {
    let mut copies: BTreeMap<&ProcessGuid, Process> = BTreeMap::new();
    for decision in &entry.decisions {
        let Aggregate::Process { guid, domain, epoch } = &decision.aggregate else { continue };
        let process = copies.entry(guid).or_insert_with(|| {
            let known = world.process(guid).cloned();
            known.unwrap_or_else(|| Process::new(guid.clone(), domain.clone(), *epoch))
        });
        for event in &decision.events {
            of_event(process, event, decision).into_iter().for_each(|row| notes.saw(row));
            process::evolve(process, std::slice::from_ref(event), &decision.stamp());
        }
    }
}

/// A process that is desired, and the rollout that is under way, before an event.
#[derive(Clone, Copy)]
struct Before<'a> {
    process: &'a Process,
    desired: &'a Desired,
    rolling: Option<&'a Rollout>,
}

fn of_event(process: &Process, event: &Event, decision: &Decision) -> Option<S> {
    let desired = process.desired.as_deref()?;
    let rolling = process.rollout.as_deref().and_then(Rollout::active);
    let before = Before { process, desired, rolling };
    match event {
        Event::Rollout(event) => before.rollout(event, decision),
        Event::Desired(event) => before.desired(event),
        Event::Actual(event) => before.instance(event),
        Event::Evacuating(_)
        | Event::Evaluation(_)
        | Event::Task(_)
        | Event::Periodic(_)
        | Event::Parameterised(_)
        | Event::Domain(_)
        | Event::Cell(_)
        | Event::Cluster(_) => None,
    }
}

impl Before<'_> {
    fn rollout(self, event: &rollout::Event, decision: &Decision) -> Option<S> {
        if let rollout::Event::Started { kind, target, .. } = event {
            let known = self.desired.healthy_definition_id.as_ref() == Some(target);
            return Some(self.start(*kind, known, decision));
        }
        let rolling = self.rolling?;
        let back = rolling.kind == Kind::Rollback;
        match event {
            rollout::Event::IndicesStarted { indices } => {
                let at_once = u64::from(rolling.policy.max_parallel_indices(self.desired.instances));
                let retried = indices.iter().any(|index| rolling.stalled.contains_key(&index));
                let unknown = self.desired.healthy_definition_id.is_none() && indices.len() > at_once;
                retried.then_some(S::RowTriedAgain).or(unknown.then_some(S::RowNothingToProtect))
            }
            rollout::Event::TookOver { .. } => {
                let proves =
                    |event: &Event| matches!(event, Event::Desired(desired::Event::HealthyChanged { .. }));
                Some(if decision.events.iter().any(proves) { S::RowProved } else { S::RowTookOver })
            }
            rollout::Event::Stalled { index, .. } => {
                let crashed = rolling.failed.contains(index);
                let serves = self
                    .there(*index)
                    .any(|(place, lrp)| place.definition_id != rolling.target && lrp.keeps_running());
                (!crashed).then_some(S::RowTooLate).or(serves.then_some(S::RowGivenUpBeside))
            }
            rollout::Event::Paused { cause: PauseReason::Requested, .. } => Some(S::RowAskedToPause),
            rollout::Event::Paused { cause: PauseReason::Failures, .. } if back => Some(S::RowRollbackPaused),
            rollout::Event::Paused { cause: PauseReason::Failures, .. } => Some(S::RowFailuresPause),
            rollout::Event::Resumed {} if back => Some(S::RowRollbackGoesOn),
            rollout::Event::Resumed {} => Some(S::RowResumed),
            // Notes of it are taken where rollouts are judged.
            rollout::Event::Completed {} if back => None,
            rollout::Event::Completed {} if rolling.policy.monitor_ms > 0 => Some(S::RowCompletedWatched),
            rollout::Event::Completed {} => Some(S::RowCompletedAtOnce),
            rollout::Event::Started { .. }
            | rollout::Event::FellBack { .. }
            | rollout::Event::Replaced { .. }
            | rollout::Event::Failed { .. }
            | rollout::Event::Paused { cause: PauseReason::Canary, .. } => None,
        }
    }

    /// One begins, to what is known to work or not.
    fn start(self, kind: Kind, known: bool, decision: &Decision) -> S {
        let asked = matches!(decision.actor, Actor::Client { .. });
        match self.rolling {
            None if known => S::RowBeginsKnown,
            None => S::RowBeginsUnknown,
            Some(_) if kind == Kind::Rollback && !asked => S::RowFailuresRollBack,
            Some(old) => match (old.kind, old.phase) {
                (Kind::Rollback, Phase::Paused) => S::RowRollbackGoesOn,
                (Kind::Update, Phase::Paused) => S::RowPausedReplaced,
                (Kind::Update | Kind::Rollback, Phase::Rolling | Phase::Completed) => S::RowReplaced,
            },
        }
    }

    fn desired(self, event: &desired::Event) -> Option<S> {
        self.rolling?;
        match event {
            desired::Event::Updated(update) => {
                let instances = update.instances?;
                Some(if instances > self.desired.instances { S::RowScaledUp } else { S::RowScaledDown })
            }
            desired::Event::Removed {} => Some(S::RowRemoved),
            desired::Event::Desired(_)
            | desired::Event::DefinitionAdded { .. }
            | desired::Event::Activated { .. }
            | desired::Event::HealthyChanged { .. }
            | desired::Event::Pruned { .. }
            | desired::Event::CellsChanged { .. } => None,
        }
    }

    fn instance(self, event: &actual::Event) -> Option<S> {
        let rolling = self.rolling?;
        let known = self.desired.healthy_definition_id.as_ref();
        let proven = known == Some(&rolling.target);
        let holds = rolling.policy.failure_action == FailureAction::Hold;
        match event {
            actual::Event::Crashed { place, .. } if rolling.starts(place) && holds => {
                Some(if proven { S::RowKnownHolds } else { S::RowUnknownHolds })
            }
            actual::Event::PlacementFailed { places, .. } => {
                let starts = places.iter().any(|place| rolling.starts(&place));
                (starts && !proven).then_some(S::RowUnknownUnplaced)
            }
            actual::Event::Unclaimed { places, cause: UnclaimReason::Crash | UnclaimReason::Restart } => {
                let other = places.iter().any(|place| rolling.replacement_step(place.index).is_none());
                let known = other && known == Some(&places.definition_id);
                known.then_some(if proven { S::RowOtherIsTarget } else { S::RowOtherRestarts })
            }
            actual::Event::Created { places } => {
                let refills = places.iter().any(|place| rolling.stalled.contains_key(&place.index));
                (refills && !proven && known == Some(&places.definition_id)).then_some(S::RowGivenUpRefilled)
            }
            actual::Event::Crashed { .. }
            | actual::Event::Claimed { .. }
            | actual::Event::Started { .. }
            | actual::Event::ExecStarted { .. }
            | actual::Event::Unclaimed {
                cause: UnclaimReason::CellLost | UnclaimReason::Evacuation, ..
            }
            | actual::Event::StopRequested { .. }
            | actual::Event::Removed { .. } => None,
        }
    }

    fn there(&self, index: u32) -> impl Iterator<Item = (&Place, &Actual)> {
        let at_index = self.process.slots.iter().filter(move |slot| slot.place.index == index);
        at_index.filter_map(|slot| Some((&slot.place, slot.actual.as_ref()?)))
    }
}
