//! What may happen to what is desired of a process, and to its rollout (docs/model.md, "Rollouts").

use std::collections::BTreeSet;

use schemas::Decision;
use schemas::Place;
use schemas::actual::{Actual, Ended};
use schemas::desired;
use schemas::rollout::{self, Phase, Rollout, Stage};

use super::Wrong;
use super::draft::Drafted;
use super::instances::name;
use crate::Kind;

/// What is wrong with what happens to the desired side.
pub(super) fn desired(process: &Drafted<'_>, event: &desired::Event) -> Option<Wrong> {
    let known = process.desired.as_ref();
    let defined = |id| known.is_some_and(|desired| desired.definition(id).is_some());
    let why = match event {
        desired::Event::Desired(_) => known.map(|_| "it is desired already".to_owned()),
        desired::Event::Updated(_) | desired::Event::CellsChanged { .. } => {
            known.is_none().then(|| "nobody desires it".to_owned())
        }
        desired::Event::DefinitionAdded { definition_id, .. } => {
            defined(definition_id).then(|| format!("it has definition {definition_id} already"))
        }
        desired::Event::Activated { definition_id } | desired::Event::HealthyChanged { definition_id } => {
            (!defined(definition_id)).then(|| format!("it has no definition {definition_id}"))
        }
        desired::Event::Pruned { definition_ids } => {
            let needed = known.and_then(|desired| {
                let healthy = desired.healthy_definition_id.as_ref();
                definition_ids.iter().find(|id| **id == desired.active_definition_id || Some(*id) == healthy)
            });
            needed.map(|id| format!("it still needs definition {id}"))
        }
        // What reps told of may be removed, too.
        desired::Event::Removed {} => {
            let nothing = known.is_none() && process.instances().next().is_none();
            nothing.then(|| "nobody desires it".to_owned())
        }
    };
    why.map(|why| (Kind::Illegal, why))
}

/// What is wrong with what happens to a rollout.
pub(super) fn judge(process: &Drafted<'_>, event: &rollout::Event) -> Option<Wrong> {
    let illegal = |why: &str| Some((Kind::Illegal, why.to_owned()));
    let Some(desired) = &process.desired else { return illegal("a rollout of what nobody desires") };
    if let rollout::Event::Started { target, .. } = event {
        let right = desired.active_definition_id == *target && desired.definition(target).is_some();
        return if right { None } else { illegal("a rollout to what isn't its active definition") };
    }
    let Some(rollout) = process.rollout.as_ref().and_then(Rollout::under_way) else {
        return illegal("no rollout is under way");
    };
    let stage = |index: &u32| rollout.steps.get(index).map(|step| step.stage);
    let turn = |index: &u32| matches!(stage(index), Some(Stage::Starting | Stage::Leaving));
    let right = match event {
        rollout::Event::Started { .. } => true,
        rollout::Event::Begun { indices } => {
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
    let what = format!("a rollout in phase {:?} doesn't come to this: {event:?}", rollout.phase);
    Some((Kind::Illegal, what))
}

/// A rollout stops what runs only where enough others run without it.
pub(super) fn too_few(
    process: &Drafted<'_>,
    place: &Place,
    cause: Ended,
    decision: &Decision,
) -> Option<Wrong> {
    if !matches!(cause, Ended::Replaced | Ended::RolloutFailed) {
        return None;
    }
    let desired = process.desired.as_ref()?;
    let rollout = process.rollout.as_ref().and_then(Rollout::under_way)?;
    let stops = process.actual(place).filter(|lrp| lrp.runs_on())?;
    // What is told of only now did not count before.
    if stops.since == decision.at || desired.definition(&place.definition_id).is_none() {
        return None;
    }
    let serves = |(other, lrp): &(&Place, &Actual)| {
        *other != place && desired.has(other.index) && (lrp.runs_on() || lrp.is_done())
    };
    let running: BTreeSet<u32> = process.instances().filter(serves).map(|(other, _)| other.index).collect();
    if running.contains(&place.index) {
        return None;
    }
    let least = desired.policies.running_at_least(&rollout.policy, desired.instances);
    let few = u32::try_from(running.len()).is_ok_and(|running| running < least);
    let what =
        format!("a rollout stops {}: {} run without it, and {least} have to", name(place), running.len());
    few.then_some((Kind::Promise, what))
}
