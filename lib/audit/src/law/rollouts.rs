//! Rules for events of the desired state and of rollouts (docs/internals/model/definitions-and-rollouts.md,
//! "Rollouts").

use std::collections::{BTreeMap, BTreeSet};

use machines::actual::Actual;
use machines::desired::Desired;
use machines::rollout::Rollout;
use schemas::actual::StopReason;
use schemas::rollout::{self, Phase, Stage, Step};
use schemas::{Decision, Indices, Place, Timestamp, desired};

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
pub(super) fn check_rollout(
    process: &DraftProcess<'_>,
    event: &rollout::Event,
    decision: &Decision,
) -> Option<Violation> {
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
        let started =
            if let rollout::Event::IndicesStarted { indices } = event { Some(indices) } else { None };
        let is_completed = matches!(event, rollout::Event::Completed {});
        return started
            .and_then(|indices| check_parallelism(process, (desired, rollout), indices, decision.at))
            .or_else(|| is_completed.then(|| check_completed(process, desired, rollout)).flatten());
    }
    let what = format!("the rollout is in phase {:?}: invalid event {event:?}", rollout.phase);
    Some((Kind::Illegal, what))
}

/// Checks that the policy allows the rollout to replace these indices too. Without a healthy definition, all
/// indices without a running instance may start at once.
fn check_parallelism(
    process: &DraftProcess<'_>,
    (desired, rollout): (&Desired, &Rollout),
    indices: &Indices,
    now: Timestamp,
) -> Option<Violation> {
    let rested = |step: &Step| matches!(step.stage, Stage::Resting(until) if until <= now);
    let busy = rollout.steps.values().filter(|step| !rested(step)).count() as u64;
    let limit = u64::from(rollout.policy.max_parallel_indices(desired.instances));
    let runs = |(place, lrp): (&Place, &Actual)| {
        place.definition_id != rollout.target && indices.contains(place.index) && lrp.keeps_running()
    };
    let all_idle = desired.healthy_definition_id.is_none() && !process.instances().any(runs);
    let started = indices.len();
    let what = format!("the rollout replaces {} indices at once: expected at most {limit}", busy + started);
    (busy + started > limit && !all_idle).then_some((Kind::InvariantViolated, what))
}

/// Checks that each index runs only the target of a completed rollout. If the target is healthy, an instance
/// that its restart policy keeps down is sufficient.
fn check_completed(process: &DraftProcess<'_>, desired: &Desired, rollout: &Rollout) -> Option<Violation> {
    let healthy = desired.healthy_definition_id.as_ref() == Some(&rollout.target);
    let mut replaced = BTreeMap::new();
    for (place, lrp) in process.instances() {
        let declined = healthy && lrp.no_restart_reason().is_some();
        let right = place.definition_id == rollout.target && (lrp.keeps_running() || declined);
        *replaced.entry(place.index).or_insert(true) &= right;
    }
    let index = desired.rolling_indices().find(|index| !replaced.get(index).is_some_and(|right| *right))?;
    let what = format!("the rollout is completed, but index {index} does not run its target alone");
    Some((Kind::InvariantViolated, what))
}

/// Checks that no index has more than two instances that go on, while a rollout is active. Evacuating
/// instances count. Instances of an unknown definition do not count.
pub(super) fn check_at_most_two(process: &DraftProcess<'_>) -> Option<Violation> {
    let desired = process.desired.as_ref()?;
    process.rollout.as_ref().and_then(Rollout::active)?;
    let known = |place: &Place| desired.definition(&place.definition_id).is_some();
    let mut live: BTreeMap<u32, u32> = BTreeMap::new();
    let instances = process.instances().filter(|(place, lrp)| known(place) && !lrp.is_stopping());
    let twins = process.twins().filter(|(place, twin)| {
        known(place) && process.actual(place).and_then(Actual::holder) != Some(&twin.by)
    });
    for place in instances.map(|(place, _)| place).chain(twins.map(|(place, _)| place)) {
        *live.entry(place.index).or_default() += 1;
    }
    let (index, count) =
        live.into_iter().find(|(index, count)| *count > 2 && desired.desires_index(*index))?;
    Some((Kind::InvariantViolated, format!("index {index} has {count} instances during a rollout")))
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
