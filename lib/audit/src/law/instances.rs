//! Rules for events of instances and evacuating instances (docs/internals/model/process.md, "Processes and
//! instances").

use std::time::Duration;

use machines::actual::{Actual, State, Step};
use schemas::actual::{self, Command, StopReason, UnclaimReason};
use schemas::container::Instance;
use schemas::crash::Restart;
use schemas::evacuating::{self, RemovalReason};
use schemas::stamp::Actor;
use schemas::{Decision, Place};

use super::draft::DraftProcess;
use super::{Violation, rollouts};
use crate::Kind;

/// Minimum run time after which a crash restarts the crash count at 1.
const STABLE_RUN_TIME: Duration = Duration::from_secs(300);

/// Checks an event of an instance.
pub(super) fn check_instance(
    process: &DraftProcess<'_>,
    place: &Place,
    event: &actual::Event,
    decision: &Decision,
) -> Option<Violation> {
    let before = process.actual(place);
    let why = match event {
        actual::Event::Created { .. } => before.map(|_| "the instance already exists".to_owned()),
        actual::Event::Claimed { by, placement, .. } => {
            let command = Command::Claim { placement: placement.clone() };
            check_step(before, &command, by, Step::Claim).or_else(|| check_own_cell(by, decision))
        }
        actual::Event::Started { by, net, isolation, .. } => {
            let command = Command::Start { net: net.clone(), isolation: *isolation };
            if let Some(other) = before.filter(|lrp| lrp.is_running()).and_then(Actual::holder)
                && other != by
            {
                let what = format!(
                    "{}: container {} started while container {} is RUNNING",
                    place_text(place),
                    by.instance_guid,
                    other.instance_guid
                );
                return Some((Kind::InvariantViolated, what));
            }
            check_step(before, &command, by, Step::Start).or_else(|| check_own_cell(by, decision))
        }
        actual::Event::ExecStarted { by, .. } => {
            let runs = before.is_some_and(|lrp| lrp.keeps_running() && lrp.holder() == Some(by));
            (!runs).then(|| {
                format!("a program was started in container {}, which is not RUNNING here", by.instance_guid)
            })
        }
        actual::Event::Crashed { by, reason, exit_status, crash_count, .. } => {
            let command = Command::Crash { reason: reason.clone(), exit_status: *exit_status };
            check_step(before, &command, by, Step::Crash)
                .or_else(|| check_own_cell(by, decision))
                .or_else(|| check_crash_count(before, *crash_count, decision))
        }
        actual::Event::PlacementFailed { .. } => {
            let unclaimed = before.is_some_and(Actual::is_unclaimed);
            (!unclaimed).then(|| "only the placement of an UNCLAIMED instance can fail".to_owned())
        }
        actual::Event::Unclaimed { cause, .. } => check_unclaimed(before, *cause, decision),
        actual::Event::StopRequested { cause, .. } => {
            if let Some(wrong) = rollouts::check_minimum_running(process, place, *cause, decision) {
                return Some(wrong);
            }
            let held = before.is_some_and(|lrp| lrp.holder().is_some() && !lrp.is_stopping());
            (!held).then(|| "no container to stop".to_owned())
        }
        actual::Event::Removed { cause, .. } => check_removed(before, *cause, decision),
    };
    why.map(|why| (Kind::Illegal, format!("{} is {}: {why}", place_text(place), state_name(before))))
}

/// Checks an event of an evacuating instance.
pub(super) fn twin(
    process: &DraftProcess<'_>,
    event: &evacuating::Event,
    decision: &Decision,
) -> Option<Violation> {
    let (place, why) = match event {
        evacuating::Event::Set { place, by, net, expires_at } => {
            let command = evacuating::Command::Set { net: net.clone(), expires_at: *expires_at };
            let (actual, twin) = (process.actual(place), process.evacuating_instance(place));
            let refused = machines::evacuating::decide(actual, twin, &command, by, place).err();
            let refused = refused.map(|refusal| refusal.message);
            (place, refused.or_else(|| check_own_cell(by, decision)))
        }
        evacuating::Event::Removed { place, cause } => {
            let why = match (process.evacuating_instance(place), cause) {
                (None, _) => Some("no evacuating record to remove".to_owned()),
                (Some(twin), RemovalReason::Expired) if decision.at < twin.expires_at => {
                    Some(format!("the evacuating record does not expire before {}", twin.expires_at))
                }
                (Some(twin), RemovalReason::Removed) => check_own_cell(&twin.by, decision),
                (Some(_), RemovalReason::Replaced) => check_replacement(process, place, decision),
                (Some(twin), RemovalReason::Expired | RemovalReason::CellLost) => {
                    check_not_a_cell(&twin.by, decision)
                }
            };
            (place, why)
        }
    };
    why.map(|why| (Kind::Illegal, format!("{}: {why}", place_text(place))))
}

/// Checks that the state machine accepts this step. Returns the reason if the step is refused.
fn check_step(before: Option<&Actual>, command: &Command, by: &Instance, step: Step) -> Option<String> {
    match machines::actual::decide(before, command, by) {
        Ok(taken) if taken == step => None,
        Ok(taken) => Some(format!("the state machine decides {taken:?}, not {step:?}")),
        Err(refusal) => Some(refusal.message),
    }
}

/// Checks that the actor is the cell of the container.
fn check_own_cell(by: &Instance, decision: &Decision) -> Option<String> {
    let own = matches!(&decision.actor, Actor::Cell(cell) if *cell == by.cell_id);
    (!own).then(|| format!("{} cannot report a container on cell {}", decision.actor, by.cell_id))
}

/// Checks that the actor is not a cell. A cell decides neither that another cell is lost nor that an
/// evacuating record has expired.
fn check_not_a_cell(by: &Instance, decision: &Decision) -> Option<String> {
    match &decision.actor {
        Actor::Cell(cell) => Some(format!("cell {cell} cannot give up container {}", by.instance_guid)),
        Actor::Client { .. } | Actor::Operator(_) | Actor::Auctioneer(_) | Actor::Bbs(_) => None,
    }
}

/// Checks that the actor is a cell with another container at the same index. An evacuating record is replaced
/// only in this case.
fn check_replacement(process: &DraftProcess<'_>, place: &Place, decision: &Decision) -> Option<String> {
    let is_own = |by: &Instance| matches!(&decision.actor, Actor::Cell(cell) if *cell == by.cell_id);
    let here = |other: &Place| other.index == place.index;
    let runs = process.instances().any(|(other, lrp)| here(other) && lrp.holder().is_some_and(is_own));
    let evacuates = process.twins().any(|(other, twin)| other != place && here(other) && is_own(&twin.by));
    let what =
        || format!("{} has no container at the index that replaces the evacuating one", decision.actor);
    (!runs && !evacuates).then(what)
}

fn check_crash_count(before: Option<&Actual>, count: u32, decision: &Decision) -> Option<String> {
    let stable = |lrp: &&Actual| lrp.is_running() && decision.at.since(lrp.since) >= STABLE_RUN_TIME;
    let stored = before.filter(|lrp| !stable(lrp)).map_or(0, |lrp| lrp.crash_count);
    let what = || format!("expected crash count {} after {stored}, found {count}", stored + 1);
    (count != stored + 1).then(what)
}

fn check_unclaimed(before: Option<&Actual>, cause: UnclaimReason, decision: &Decision) -> Option<String> {
    let Some(lrp) = before else { return Some("no instance to unclaim".to_owned()) };
    let legal = match (cause, &lrp.state) {
        (UnclaimReason::Crash, State::Crashed { restart }) => {
            *restart == Restart::Immediate && lrp.since == decision.at
        }
        (UnclaimReason::Restart, State::Crashed { .. }) => {
            lrp.delayed_until().is_none_or(|until| until <= decision.at)
        }
        (
            UnclaimReason::CellLost | UnclaimReason::Evacuation,
            State::Claimed { stopping, .. } | State::Running { stopping, .. },
        ) => {
            if let Some(why) = lrp.holder().and_then(|by| check_unclaim_actor(by, cause, decision)) {
                return Some(why);
            }
            !stopping
        }
        (
            UnclaimReason::Crash | UnclaimReason::Restart,
            State::Unclaimed { .. } | State::Claimed { .. } | State::Running { .. },
        )
        | (
            UnclaimReason::CellLost | UnclaimReason::Evacuation,
            State::Unclaimed { .. } | State::Crashed { .. },
        ) => false,
    };
    (!legal).then(|| format!("cannot be unclaimed with cause {cause:?}"))
}

/// Checks that the actor may unclaim the container for this cause.
fn check_unclaim_actor(by: &Instance, cause: UnclaimReason, decision: &Decision) -> Option<String> {
    match cause {
        UnclaimReason::Evacuation => check_own_cell(by, decision),
        UnclaimReason::CellLost => check_not_a_cell(by, decision),
        UnclaimReason::Crash | UnclaimReason::Restart => None,
    }
}

fn check_removed(before: Option<&Actual>, cause: StopReason, decision: &Decision) -> Option<String> {
    let Some(lrp) = before else { return Some("no instance to remove".to_owned()) };
    let held = lrp.holder().is_some();
    let said = lrp.holder().and_then(|by| match cause {
        StopReason::Stopped | StopReason::Crashed | StopReason::Evacuated => check_own_cell(by, decision),
        StopReason::CellLost => check_not_a_cell(by, decision),
        StopReason::Removed
        | StopReason::Scale
        | StopReason::CellUnfit
        | StopReason::Retired
        | StopReason::Superseded
        | StopReason::Undesired
        | StopReason::Replaced
        | StopReason::RolloutFailed
        | StopReason::Preempted => None,
    });
    if said.is_some() {
        return said;
    }
    let legal = match cause {
        StopReason::Stopped => held,
        StopReason::Crashed => held && lrp.is_stopping(),
        // An instance that a cell holds is stopped first.
        StopReason::Removed
        | StopReason::Scale
        | StopReason::CellUnfit
        | StopReason::Retired
        | StopReason::Superseded
        | StopReason::Undesired => !held,
        StopReason::Preempted => false,
        StopReason::CellLost | StopReason::Evacuated | StopReason::Replaced | StopReason::RolloutFailed => {
            true
        }
    };
    (!legal).then(|| format!("cannot be removed with cause {cause:?}"))
}

/// Returns the text of a slot for messages.
pub(super) fn place_text(place: &Place) -> String {
    format!("index {} of definition {}", place.index, place.definition_id)
}

fn state_name(before: Option<&Actual>) -> &'static str {
    before.map_or("absent", Actual::state_name)
}
