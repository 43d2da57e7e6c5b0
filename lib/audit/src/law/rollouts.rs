//! Rules for events of the desired state and of rollouts (docs/internals/model/definitions-and-rollouts.md,
//! "Rollouts").

use std::collections::BTreeSet;

use machines::actual::Actual;
use machines::rollout::Rollout;
use schemas::actual::StopReason;
use schemas::rollout::{self, Phase, Stage};
use schemas::{Decision, Place, desired};

use super::Violation;
use super::draft::DraftProcess;
use super::instances::place_text;
use crate::Kind;

/// Checks an event of the desired state.
pub(super) fn desired(process: &DraftProcess<'_>, event: &desired::Event) -> Option<Violation> {
    let known = process.desired.as_ref();
    let defined = |id| known.is_some_and(|desired| desired.definition(id).is_some());
    let why = match event {
        desired::Event::Desired(_) => known.map(|_| "the process is already desired".to_owned()),
        desired::Event::Updated(_) | desired::Event::CellsChanged { .. } => {
            known.is_none().then(|| "the process is not desired".to_owned())
        }
        desired::Event::DefinitionAdded { definition_id, .. } => {
            defined(definition_id).then(|| format!("the process already has definition {definition_id}"))
        }
        desired::Event::Activated { definition_id } | desired::Event::HealthyChanged { definition_id } => {
            (!defined(definition_id)).then(|| format!("the process has no definition {definition_id}"))
        }
        desired::Event::Pruned { definition_ids } => {
            let needed = known.and_then(|desired| {
                let healthy = desired.healthy_definition_id.as_ref();
                definition_ids.iter().find(|id| **id == desired.active_definition_id || Some(*id) == healthy)
            });
            needed.map(|id| format!("definition {id} is the active or the healthy one"))
        }
        // A removed process may still have instances that reps reported.
        desired::Event::Removed {} => {
            let nothing = known.is_none() && process.instances().next().is_none();
            nothing.then(|| "the process is not desired".to_owned())
        }
    };
    why.map(|why| (Kind::Illegal, why))
}

/// Checks an event of a rollout.
pub(super) fn check_rollout(process: &DraftProcess<'_>, event: &rollout::Event) -> Option<Violation> {
    let illegal = |why: &str| Some((Kind::Illegal, why.to_owned()));
    let Some(desired) = &process.desired else { return illegal("rollout of a process that is not desired") };
    if let rollout::Event::Started { target, .. } = event {
        let right = desired.active_definition_id == *target && desired.definition(target).is_some();
        return if right { None } else { illegal("the target of the rollout is not the active definition") };
    }
    let Some(rollout) = process.rollout.as_ref().and_then(Rollout::active) else {
        return illegal("no rollout is under way");
    };
    let stage = |index: &u32| rollout.steps.get(index).map(|step| step.stage);
    let turn = |index: &u32| matches!(stage(index), Some(Stage::Starting | Stage::Leaving));
    let right = match event {
        rollout::Event::Started { .. } => true,
        rollout::Event::IndicesStarted { indices } => {
            rollout.phase == Phase::Rolling && !indices.iter().any(|index| turn(&index))
        }
        rollout::Event::FellBack { index }
        | rollout::Event::TookOver { index }
        | rollout::Event::Failed { index, .. }
        | rollout::Event::Stalled { index, .. } => stage(index) == Some(Stage::Starting),
        rollout::Event::Replaced { index, .. } => stage(index) == Some(Stage::Leaving),
        rollout::Event::Paused { .. } => rollout.phase == Phase::Rolling,
        rollout::Event::Resumed {} => rollout.phase == Phase::Paused,
        rollout::Event::Completed {} => true,
    };
    if right {
        return None;
    }
    let what = format!("the rollout is in phase {:?}: invalid event {event:?}", rollout.phase);
    Some((Kind::Illegal, what))
}

/// Checks that enough other instances run if a rollout stops an instance.
pub(super) fn check_minimum_running(
    process: &DraftProcess<'_>,
    place: &Place,
    cause: StopReason,
    decision: &Decision,
) -> Option<Violation> {
    if !matches!(cause, StopReason::Replaced | StopReason::RolloutFailed) {
        return None;
    }
    let desired = process.desired.as_ref()?;
    let rollout = process.rollout.as_ref().and_then(Rollout::active)?;
    let stops = process.actual(place).filter(|lrp| lrp.keeps_running())?;
    // An instance whose first report is in this decision did not count before.
    if stops.since == decision.at || desired.definition(&place.definition_id).is_none() {
        return None;
    }
    let serves = |(other, lrp): &(&Place, &Actual)| {
        *other != place && desired.desires_index(other.index) && (lrp.keeps_running() || lrp.is_kept_down())
    };
    let running: BTreeSet<u32> = process.instances().filter(serves).map(|(other, _)| other.index).collect();
    if running.contains(&place.index) {
        return None;
    }
    let least = desired.policies.required_running(&rollout.policy, desired.instances);
    let few = u32::try_from(running.len()).is_ok_and(|running| running < least);
    let what = format!(
        "a rollout stops {}: {} others run, expected at least {least}",
        place_text(place),
        running.len()
    );
    few.then_some((Kind::InvariantViolated, what))
}
