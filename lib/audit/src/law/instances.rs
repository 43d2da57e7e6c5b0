//! What may happen to an instance and to its evacuating twin (docs/model.md, "Processes and instances").

use std::time::Duration;

use schemas::actual::{self, Actual, Command, Ended, State, Step, Unclaimed};
use schemas::container::Instance;
use schemas::crash::Restart;
use schemas::entry::Actor;
use schemas::evacuating::{self, Gone};
use schemas::{Decision, Place};

use super::draft::Drafted;
use super::{Wrong, rollouts};
use crate::Kind;

/// What ran so long before it crashed counts its crashes anew.
const STABLE: Duration = Duration::from_secs(300);

/// What is wrong with what happens to an instance.
pub(super) fn judge(
    process: &Drafted<'_>,
    place: &Place,
    event: &actual::Event,
    decision: &Decision,
) -> Option<Wrong> {
    let before = process.actual(place);
    let why = match event {
        actual::Event::Created { .. } => before.map(|_| "it is there already".to_owned()),
        actual::Event::Claimed { by, placement, .. } => {
            let command = Command::Claim { placement: placement.clone() };
            steps(before, &command, by, Step::Claim).or_else(|| speaks(by, decision))
        }
        actual::Event::Started { by, net, isolation, .. } => {
            let command = Command::Start { net: net.clone(), isolation: *isolation };
            if let Some(other) = before.filter(|lrp| lrp.is_running()).and_then(Actual::holder)
                && other != by
            {
                let what = format!(
                    "{}: container {} is said to run while container {} does",
                    name(place),
                    by.instance_guid,
                    other.instance_guid
                );
                return Some((Kind::Promise, what));
            }
            steps(before, &command, by, Step::Start).or_else(|| speaks(by, decision))
        }
        actual::Event::Entered { by, .. } => {
            let runs = before.is_some_and(|lrp| lrp.runs_on() && lrp.holder() == Some(by));
            (!runs).then(|| {
                format!("a program is run in container {}, which does not run there", by.instance_guid)
            })
        }
        actual::Event::Crashed { by, reason, exit_status, crash_count, .. } => {
            let command = Command::Crash { reason: reason.clone(), exit_status: *exit_status };
            steps(before, &command, by, Step::Crash)
                .or_else(|| speaks(by, decision))
                .or_else(|| miscounted(before, *crash_count, decision))
        }
        actual::Event::PlacementFailed { .. } => {
            let unclaimed = before.is_some_and(Actual::is_unclaimed);
            (!unclaimed).then(|| "only what is UNCLAIMED finds no place".to_owned())
        }
        actual::Event::Unclaimed { cause, .. } => unclaimed(before, *cause, decision),
        actual::Event::StopRequested { cause, .. } => {
            if let Some(wrong) = rollouts::too_few(process, place, *cause, decision) {
                return Some(wrong);
            }
            let held = before.is_some_and(|lrp| lrp.holder().is_some() && !lrp.is_stopping());
            (!held).then(|| "there is nothing to stop".to_owned())
        }
        actual::Event::Removed { cause, .. } => removed(before, *cause, decision),
    };
    why.map(|why| (Kind::Illegal, format!("{} is {}: {why}", name(place), state(before))))
}

/// What is wrong with what happens to an evacuating twin.
pub(super) fn twin(process: &Drafted<'_>, event: &evacuating::Event, decision: &Decision) -> Option<Wrong> {
    let (place, why) = match event {
        evacuating::Event::Set { place, by, net, expires_at } => {
            let command = evacuating::Command::Set { net: net.clone(), expires_at: *expires_at };
            let (actual, twin) = (process.actual(place), process.twin(place));
            let refused = evacuating::decide(actual, twin, &command, by, place).err();
            let refused = refused.map(|refusal| refusal.message);
            (place, refused.or_else(|| speaks(by, decision)))
        }
        evacuating::Event::Removed { place, cause } => {
            let why = match (process.twin(place), cause) {
                (None, _) => Some("there is no evacuating record to remove".to_owned()),
                (Some(twin), Gone::Expired) if decision.at < twin.expires_at => {
                    Some(format!("its evacuating record expires at {} only", twin.expires_at))
                }
                (Some(twin), Gone::Removed) => speaks(&twin.by, decision),
                (Some(_), Gone::Replaced) => replaces(process, place, decision),
                (Some(twin), Gone::Expired | Gone::CellLost) => cell_ends(&twin.by, decision),
            };
            (place, why)
        }
    };
    why.map(|why| (Kind::Illegal, format!("{}: {why}", name(place))))
}

/// Why the machine would not have taken this step.
fn steps(before: Option<&Actual>, command: &Command, by: &Instance, step: Step) -> Option<String> {
    match actual::decide(before, command, by) {
        Ok(taken) if taken == step => None,
        Ok(taken) => Some(format!("the machine would have answered {taken:?}, not {step:?}")),
        Err(refusal) => Some(refusal.message),
    }
}

/// Only a container's own cell speaks for it.
fn speaks(by: &Instance, decision: &Decision) -> Option<String> {
    let own = matches!(&decision.actor, Actor::Cell(cell) if *cell == by.cell_id);
    (!own).then(|| format!("{} speaks for a container on cell {}", decision.actor, by.cell_id))
}

/// A cell neither says that a container's cell is lost, nor that its time is over.
fn cell_ends(by: &Instance, decision: &Decision) -> Option<String> {
    match &decision.actor {
        Actor::Cell(cell) => {
            Some(format!("cell {cell} says that container {} is given up", by.instance_guid))
        }
        Actor::Client { .. } | Actor::Operator(_) | Actor::Auctioneer(_) | Actor::Bbs(_) => None,
    }
}

/// An evacuating record is replaced by what its cell says that it has at the same index.
fn replaces(process: &Drafted<'_>, place: &Place, decision: &Decision) -> Option<String> {
    let is_own = |by: &Instance| matches!(&decision.actor, Actor::Cell(cell) if *cell == by.cell_id);
    let here = |other: &Place| other.index == place.index;
    let runs = process.instances().any(|(other, lrp)| here(other) && lrp.holder().is_some_and(is_own));
    let evacuates = process.twins().any(|(other, twin)| other != place && here(other) && is_own(&twin.by));
    let what = || format!("{} has no container at the index that replaces it", decision.actor);
    (!runs && !evacuates).then(what)
}

fn miscounted(before: Option<&Actual>, count: u32, decision: &Decision) -> Option<String> {
    let stable = |lrp: &&Actual| lrp.is_running() && decision.at.since(lrp.since) >= STABLE;
    let stored = before.filter(|lrp| !stable(lrp)).map_or(0, |lrp| lrp.crash_count);
    let what = || format!("{} crashes are counted, and {count} follow {stored}", stored + 1);
    (count != stored + 1).then(what)
}

fn unclaimed(before: Option<&Actual>, cause: Unclaimed, decision: &Decision) -> Option<String> {
    let Some(lrp) = before else { return Some("there is nothing to unclaim".to_owned()) };
    let legal = match (cause, &lrp.state) {
        (Unclaimed::Crash, State::Crashed { restart }) => {
            *restart == Restart::AtOnce && lrp.since == decision.at
        }
        (Unclaimed::Restart, State::Crashed { .. }) => {
            lrp.waits_until().is_none_or(|until| until <= decision.at)
        }
        (
            Unclaimed::CellLost | Unclaimed::Evacuation,
            State::Claimed { stopping, .. } | State::Running { stopping, .. },
        ) => {
            if let Some(why) = lrp.holder().and_then(|by| given_up(by, cause, decision)) {
                return Some(why);
            }
            !stopping
        }
        (
            Unclaimed::Crash | Unclaimed::Restart,
            State::Unclaimed { .. } | State::Claimed { .. } | State::Running { .. },
        )
        | (Unclaimed::CellLost | Unclaimed::Evacuation, State::Unclaimed { .. } | State::Crashed { .. }) => {
            false
        }
    };
    (!legal).then(|| format!("it may not be unclaimed for {cause:?}"))
}

/// Why nobody may say that a container's cell gives it up.
fn given_up(by: &Instance, cause: Unclaimed, decision: &Decision) -> Option<String> {
    match cause {
        Unclaimed::Evacuation => speaks(by, decision),
        Unclaimed::CellLost => cell_ends(by, decision),
        Unclaimed::Crash | Unclaimed::Restart => None,
    }
}

fn removed(before: Option<&Actual>, cause: Ended, decision: &Decision) -> Option<String> {
    let Some(lrp) = before else { return Some("there is nothing to remove".to_owned()) };
    let held = lrp.holder().is_some();
    let said = lrp.holder().and_then(|by| match cause {
        Ended::Stopped | Ended::Crashed | Ended::Evacuated => speaks(by, decision),
        Ended::CellLost => cell_ends(by, decision),
        Ended::Removed
        | Ended::Scale
        | Ended::CellUnfit
        | Ended::Retired
        | Ended::Superseded
        | Ended::Undesired
        | Ended::Replaced
        | Ended::RolloutFailed
        | Ended::Preempted => None,
    });
    if said.is_some() {
        return said;
    }
    let legal = match cause {
        Ended::Stopped => held,
        Ended::Crashed => held && lrp.is_stopping(),
        // What holds a cell is asked to stop.
        Ended::Removed
        | Ended::Scale
        | Ended::CellUnfit
        | Ended::Retired
        | Ended::Superseded
        | Ended::Undesired => !held,
        Ended::Preempted => false,
        Ended::CellLost | Ended::Evacuated | Ended::Replaced | Ended::RolloutFailed => true,
    };
    (!legal).then(|| format!("it may not be removed for {cause:?}"))
}

/// A place as people read it.
pub(super) fn name(place: &Place) -> String {
    format!("index {} of definition {}", place.index, place.definition_id)
}

fn state(before: Option<&Actual>) -> &'static str {
    before.map_or("not there", Actual::state_name)
}
