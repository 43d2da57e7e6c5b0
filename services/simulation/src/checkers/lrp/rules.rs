//! What each event of an instance may do: the tables and the crash policy (docs/internals/model/process.md,
//! "Processes and instances" and "Crashes").

use std::time::Duration;

use schemas::actual::{self, StopReason, UnclaimReason};
use schemas::container::{Instance, NetInfo, RunResult};
use schemas::crash::Restart;
use schemas::entry::{Aggregate, Event};
use schemas::isolation::Isolation;
use schemas::placement::Explanation;
use schemas::policy::RestartPolicy;
use schemas::stamp::Actor;
use schemas::{Place, Position, desired};

use super::restarts::Fall;
use super::{Lrp, Next, P, Process, State, Wrong};
use crate::checkers::placing::Said;
use crate::checkers::rollouts::Part;
use crate::checkers::{Notes, Scene};
use crate::coverage::Situation;
use crate::walls;

impl Process {
    /// What an event does to an instance, and what is wrong with that.
    pub(super) fn next(
        &self,
        place: &Place,
        before: Option<&Lrp>,
        event: &actual::Event,
        scene: &Scene<'_>,
        notes: &mut Notes,
    ) -> Next {
        let at = scene.decision.at;
        let crashes = before.map_or(0, |lrp| lrp.crashes);
        let stopping = before.is_some_and(|lrp| lrp.stopping);
        let preempted = before.is_some_and(|lrp| lrp.preempted);
        let position = scene.position;
        let restarts = before.and_then(|lrp| lrp.restarts.clone());
        let enter = |state| {
            let restarts = restarts.clone();
            Some(Lrp { state, since: at, crashes, stopping, preempted, position, restarts })
        };
        match event {
            actual::Event::Created { .. } => {
                let state = State::Unclaimed { error: None };
                let (stopping, preempted) = (false, false);
                let fresh =
                    Lrp { state, since: at, crashes: 0, stopping, preempted, position, restarts: None };
                let wrong = before.map(|_| (P::OneEvacuating, "it is there already"));
                let unwanted = (!self.wants(place)).then_some((P::DesiredSound, "nobody wants it"));
                let soon =
                    self.comes_too_soon(place).then_some((P::StopsFirst, "something else is there still"));
                (Some(fresh), wrong.or(unwanted).or(soon))
            }
            actual::Event::Claimed { by, .. } => {
                if is_lost_now(by, scene) {
                    notes.saw(Situation::AbsentCellClaimed);
                }
                (enter(State::Claimed(by.clone())), wrong_claim(before, by, scene))
            }
            actual::Event::Started { by, net, isolation, .. } => {
                if before.is_none() {
                    notes.saw(Situation::OrphanAdopted);
                }
                if self.is_unwanted(place.index) {
                    notes.saw(Situation::UnwantedTold);
                } else if !self.wants_index(place.index) && !scene.log.is_fresh(&self.domain, scene.basis, at)
                {
                    notes.saw(Situation::StaleDomainKept);
                }
                let untrue = untrue_start(by, net, *isolation, scene);
                (enter(State::Running(by.clone())), wrong_start(before, by, scene).or(untrue))
            }
            actual::Event::ExecStarted { by, .. } => {
                notes.saw(Situation::ContainerEntered);
                (before.cloned(), wrong_entry(before, by))
            }
            actual::Event::Crashed { .. } => self.crashed(place, before, event, scene, notes),
            actual::Event::PlacementFailed { error, explanation, .. } => {
                self.failed(place, before, (error, explanation.as_deref()), scene, notes)
            }
            actual::Event::Unclaimed { cause, .. } => {
                let state = State::Unclaimed { error: None };
                let again = match cause {
                    UnclaimReason::Crash | UnclaimReason::Restart => Some(at),
                    UnclaimReason::CellLost | UnclaimReason::Evacuation => None,
                };
                let restarts = restarts.map(|restarts| restarts.into_iter().chain(again).collect());
                let (stopping, preempted) = (false, false);
                let after = Lrp { state, since: at, crashes, stopping, preempted, position, restarts };
                (Some(after), self.wrong_unclaim(place, before, *cause, scene, notes))
            }
            actual::Event::StopRequested { cause, .. } => {
                let preempted = *cause == StopReason::Preempted;
                let after = before.map(|lrp| Lrp { stopping: true, preempted, ..lrp.clone() });
                (after, self.wrong_stop(place, before, *cause, scene, notes))
            }
            actual::Event::Removed { cause, .. } => {
                (None, self.wrong_removal(place, before, *cause, scene, notes))
            }
        }
    }

    /// An instance could not be placed: an auctioneer found so, of this very attempt.
    fn failed(
        &self,
        place: &Place,
        before: Option<&Lrp>,
        (error, why): (&str, Option<&Explanation>),
        scene: &Scene<'_>,
        notes: &mut Notes,
    ) -> Next {
        notes.saw(if error.starts_with(schemas::placement::NO_COMPATIBLE_CELLS) {
            Situation::NoCompatibleCell
        } else {
            Situation::NoRoom
        });
        let Some(lrp) = before.filter(|lrp| lrp.is_unclaimed()) else {
            let wrong = (P::ErrorOnlyUnclaimed, "only what is UNCLAIMED has a placement error");
            return (before.cloned(), Some(wrong));
        };
        let state = State::Unclaimed { error: Some(error.to_owned()) };
        let work = match &scene.decision.aggregate {
            Aggregate::Process { guid, .. } => guid.as_str(),
            Aggregate::Task { .. }
            | Aggregate::Periodic { .. }
            | Aggregate::Parameterised { .. }
            | Aggregate::Domain(_)
            | Aggregate::Cell(_)
            | Aggregate::Cluster => "",
        };
        let said = Said { work, epoch: self.epoch, place: Some(place), attempt: Some(lrp.since), error };
        let unsaid = !scene.placing.was_said(&scene.decision.actor, &said, why);
        let wrong = unsaid.then_some((P::OutcomeIsJudged, "no auctioneer said so of this attempt"));
        (Some(Lrp { state, ..lrp.clone() }), wrong)
    }

    /// An instance crashed, and what follows from that is what the policy says that holds.
    fn crashed(
        &self,
        place: &Place,
        before: Option<&Lrp>,
        event: &actual::Event,
        scene: &Scene<'_>,
        notes: &mut Notes,
    ) -> Next {
        let actual::Event::Crashed { by, crash_count, reason, exit_status, restart, attempts, .. } = event
        else {
            return (before.cloned(), None);
        };
        if reason.contains("never healthy") {
            notes.saw(Situation::NeverHealthy);
        }
        if *crash_count > 3 {
            notes.saw(Situation::CrashLimit);
        }
        if let Restart::Never(_) = restart {
            notes.saw(Situation::RestartDeclined);
        }
        let known = before.and_then(|lrp| lrp.restarts.as_deref()).unwrap_or_default();
        let crashed = Lrp {
            state: State::Crashed(*restart),
            since: scene.decision.at,
            crashes: *crash_count,
            stopping: false,
            preempted: false,
            position: scene.position,
            restarts: attempts.map(|_| known.to_vec()),
        };
        let usual = RestartPolicy::default();
        let policy = self.wanted.as_ref().map_or(&usual, |wanted| &wanted.policies.restart);
        let fall = Fall {
            crashes: *crash_count,
            restarts: known,
            ran_since: before.filter(|lrp| lrp.is_running()).map(|lrp| lrp.since),
            exit_status: *exit_status,
            starts: self.starts(place),
            at: scene.decision.at,
        };
        let (right, counted) = fall.follows(policy);
        let wrong = (*restart != right).then_some((P::RestartsByPolicy, "another restart has to follow"));
        let wrong =
            wrong.or((*attempts != counted).then_some((P::AttemptsHold, "its restarts are counted wrongly")));
        let untrue = || untrue_crash(by, reason, *exit_status, scene);
        (Some(crashed), wrong_crash(before, by, *crash_count, scene).or_else(untrue).or(wrong))
    }

    fn wrong_unclaim(
        &self,
        place: &Place,
        before: Option<&Lrp>,
        cause: UnclaimReason,
        scene: &Scene<'_>,
        notes: &mut Notes,
    ) -> Wrong {
        let Some(lrp) = before else { return Some((P::StopHasCause, "there is no record")) };
        let at = scene.decision.at;
        let legal = match cause {
            UnclaimReason::Crash => {
                notes.saw(Situation::RestartedAtOnce);
                matches!(lrp.state, State::Crashed(Restart::Immediate)) && lrp.since == at
            }
            UnclaimReason::Restart => {
                notes.saw(Situation::RestartedAfterWait);
                self.restart_due(place, lrp).is_some_and(|due| due <= at)
            }
            UnclaimReason::CellLost => {
                notes.saw(Situation::InstanceLost);
                lrp.holder().is_some_and(|by| is_lost(by, scene)) && !lrp.stopping
            }
            UnclaimReason::Evacuation => lrp.holder().is_some_and(|by| speaks(by, scene)) && !lrp.stopping,
        };
        let promise = match cause {
            UnclaimReason::Crash => P::CrashCounted,
            UnclaimReason::Restart if lrp.declined().is_some() => P::RestartsByPolicy,
            UnclaimReason::Restart => P::RestartInTime,
            UnclaimReason::CellLost => P::LostOnlyIfAbsent,
            UnclaimReason::Evacuation => P::OwnCellSpeaks,
        };
        // What another definition starts in place of is removed instead.
        // On a cell that takes no new work it waits.
        let waits = self.wanted.as_ref().is_some_and(|wanted| wanted.is_closed(place.index));
        (!legal || !waits && !self.wants(place)).then_some((promise, "it may not be unclaimed"))
    }

    fn wrong_stop(
        &self,
        place: &Place,
        before: Option<&Lrp>,
        cause: StopReason,
        scene: &Scene<'_>,
        notes: &mut Notes,
    ) -> Wrong {
        if before.is_none_or(|lrp| lrp.holder().is_none() || lrp.stopping) {
            return Some((P::StopHasCause, "there is nothing to stop"));
        }
        let legal = match cause {
            StopReason::Removed => !self.wants_with(place, before),
            StopReason::Scale => !self.is_global() && !self.wants_with(place, before),
            StopReason::CellUnfit | StopReason::Evacuated | StopReason::CellLost => {
                let on = before.and_then(Lrp::holder).map(|by| &by.cell_id);
                self.left_for(place.index, on, scene) == Some(cause)
            }
            StopReason::Replaced | StopReason::RolloutFailed => {
                self.wants_index(place.index)
                    && !self.wants_with(place, before)
                    && (cause == StopReason::RolloutFailed) == self.is_given_up(place)
            }
            StopReason::Retired | StopReason::Superseded => true,
            StopReason::Preempted => self.may_be_preempted(place, scene),
            StopReason::Undesired => self.is_undesired(place.index, scene, notes),
            StopReason::Stopped | StopReason::Crashed => false,
        };
        let stops = (!legal).then_some((promise_of(cause), "it may not be stopped"));
        if cause == StopReason::Replaced
            && before.is_some_and(|lrp| lrp.hold() == Some(1))
            && !self.runs_at(place.index)
        {
            notes.saw(Situation::StoppedFirst);
        }
        let rolls = matches!(cause, StopReason::Replaced | StopReason::RolloutFailed);
        let replaced = rolls.then(|| self.wrong_replacement(place, before, scene.decision.at)).flatten();
        replaced.or(stops)
    }

    /// Something else gets its room: it is wanted, alone at its index, and no rollout replaces it.
    fn may_be_preempted(&self, place: &Place, scene: &Scene<'_>) -> bool {
        let alone = self.at(place.index).next().is_none();
        let evacuates = self.twins.keys().any(|twin| twin.index == place.index);
        let rolling = self.wanted.as_ref().and_then(super::Wanted::rolling);
        let turn = rolling.and_then(|roll| roll.turns.get(&place.index));
        let replaced = turn.is_some_and(|turn| matches!(turn.part, Part::Starts | Part::Leaves));
        let by_auctioneer = matches!(scene.decision.actor, Actor::Auctioneer(_));
        by_auctioneer && alone && !evacuates && !replaced && self.wants_index(place.index)
    }

    fn is_undesired(&self, index: u32, scene: &Scene<'_>, notes: &mut Notes) -> bool {
        notes.saw(Situation::Undesired);
        !self.wants_index(index) && scene.log.is_fresh(&self.domain, scene.basis, scene.decision.at)
    }

    fn wrong_removal(
        &self,
        place: &Place,
        before: Option<&Lrp>,
        cause: StopReason,
        scene: &Scene<'_>,
        notes: &mut Notes,
    ) -> Wrong {
        let Some(lrp) = before else { return Some((P::StopHasCause, "there is no record")) };
        let holder = lrp.holder();
        let ended = holder.is_some_and(|by| speaks(by, scene) && !scene.truth.is_live(by.instance_guid));
        let left = holder.is_none() && self.left_for(place.index, None, scene) == Some(cause);
        let legal = match cause {
            StopReason::Removed => holder.is_none() && !self.wants(place),
            StopReason::Scale => holder.is_none() && !self.is_global() && !self.wants(place),
            StopReason::CellUnfit => left,
            StopReason::Replaced | StopReason::RolloutFailed => {
                let leaves = holder.is_none_or(|by| is_lost(by, scene) || speaks(by, scene));
                leaves
                    && !lrp.stopping
                    && self.wants_index(place.index)
                    && !self.wants(place)
                    && (cause == StopReason::RolloutFailed) == self.is_given_up(place)
            }
            StopReason::Preempted => false,
            StopReason::Retired | StopReason::Superseded => holder.is_none(),
            StopReason::Undesired => holder.is_none() && self.is_undesired(place.index, scene, notes),
            StopReason::Stopped => ended,
            StopReason::Crashed => ended && lrp.stopping,
            StopReason::CellLost => {
                if lrp.stopping {
                    notes.saw(Situation::StopAfterCellDeath);
                }
                let lost = holder.is_some_and(|by| is_lost(by, scene));
                let cell_left = holder.is_some_and(|by| !scene.log.is_present(&by.cell_id, scene.basis))
                    && its_cell_left(place, scene);
                lost && (lrp.stopping || !self.wants(place)) || cell_left || left
            }
            StopReason::Evacuated => holder.is_some_and(|by| speaks(by, scene)) || left,
        };
        (!legal).then_some((promise_of(cause), "it may not be removed"))
    }
}

/// Whether the cell that a global process had at an index leaves with this decision.
fn its_cell_left(place: &Place, scene: &Scene<'_>) -> bool {
    scene.decision.events.iter().any(|event| {
        let Event::Desired(desired::Event::CellsChanged { removed: left, .. }) = event else { return false };
        left.contains(place.index)
    })
}

/// The promise that an end breaks which has no cause.
const fn promise_of(cause: StopReason) -> P {
    match cause {
        StopReason::Undesired => P::StaleStopsNothing,
        StopReason::CellLost => P::LostOnlyIfAbsent,
        StopReason::Removed
        | StopReason::Scale
        | StopReason::CellUnfit
        | StopReason::Retired
        | StopReason::Superseded
        | StopReason::Stopped
        | StopReason::Crashed
        | StopReason::Replaced
        | StopReason::RolloutFailed
        | StopReason::Preempted
        | StopReason::Evacuated => P::StopHasCause,
    }
}

/// Whether the decision was asked by the container's own cell.
pub(super) fn speaks(by: &Instance, scene: &Scene<'_>) -> bool {
    scene.decision.actor == Actor::Cell(by.cell_id.clone())
}

/// Whether a cell spoke that was present for whoever decided.
pub(crate) fn may_speak(by: &Instance, scene: &Scene<'_>) -> bool {
    speaks(by, scene) && scene.log.is_present(&by.cell_id, scene.basis)
}

/// Whether the container's cell was lost for whoever decided.
pub(crate) fn is_lost(by: &Instance, scene: &Scene<'_>) -> bool {
    matches!(scene.decision.actor, Actor::Bbs(_)) && !scene.log.is_present(&by.cell_id, scene.basis)
}

/// Whether the container's cell is lost in the log, whatever was known to whoever decided.
pub(crate) fn is_lost_now(by: &Instance, scene: &Scene<'_>) -> bool {
    !scene.log.is_present(&by.cell_id, Position(u64::MAX))
}

fn wrong_claim(before: Option<&Lrp>, by: &Instance, scene: &Scene<'_>) -> Wrong {
    if !may_speak(by, scene) {
        return Some((P::OwnCellSpeaks, "its cell may not claim"));
    }
    match before.map(|lrp| &lrp.state) {
        Some(State::Unclaimed { .. }) => None,
        Some(State::Running(holder)) if holder == by => None,
        Some(State::Running(_) | State::Claimed(_) | State::Crashed(_)) | None => {
            Some((P::OnlyUnclaimedClaimed, "it can't be claimed"))
        }
    }
}

fn wrong_start(before: Option<&Lrp>, by: &Instance, scene: &Scene<'_>) -> Wrong {
    if !may_speak(by, scene) {
        return Some((P::OwnCellSpeaks, "its cell may not start it"));
    }
    if !scene.truth.has_started(by.instance_guid) {
        return Some((P::RunsBeforeRunning, "its container never ran"));
    }
    match before.map(|lrp| &lrp.state) {
        Some(State::Running(holder)) if holder != by => Some((P::NeverStolen, "another container runs")),
        Some(State::Unclaimed { .. } | State::Claimed(_) | State::Running(_) | State::Crashed(_)) | None => {
            None
        }
    }
}

/// What is said of a container that runs and isn't so.
fn untrue_start(by: &Instance, net: &NetInfo, isolation: Isolation, scene: &Scene<'_>) -> Wrong {
    if scene.truth.net(by.instance_guid) != Some(net) {
        return Some((P::TellsTheTruth, "it was not reached there"));
    }
    (isolation != walls::of(&by.cell_id)).then_some((P::TellsTheTruth, "it is not kept apart so"))
}

fn wrong_entry(before: Option<&Lrp>, by: &Instance) -> Wrong {
    let runs_it = |lrp: &Lrp| matches!(&lrp.state, State::Running(holder) if holder == by);
    let runs = before.is_some_and(|lrp| runs_it(lrp) && !lrp.stopping);
    (!runs).then_some((P::TellsTheTruth, "its container does not run there"))
}

fn wrong_crash(before: Option<&Lrp>, by: &Instance, count: u32, scene: &Scene<'_>) -> Wrong {
    if !may_speak(by, scene) {
        return Some((P::OwnCellSpeaks, "its cell may not say so"));
    }
    if scene.truth.is_live(by.instance_guid) {
        return Some((P::CrashCounted, "its container lives"));
    }
    if before.is_some_and(|lrp| lrp.holder() != Some(by) || lrp.stopping) {
        return Some((P::CrashCounted, "it is not this container's"));
    }
    let stable = |lrp: &Lrp| {
        matches!(lrp.state, State::Running(_))
            && scene.decision.at.since(lrp.since) >= Duration::from_secs(300)
    };
    let stored = before.filter(|lrp| !stable(lrp)).map_or(0, |lrp| lrp.crashes);
    (count != stored + 1).then_some((P::CrashCounted, "the crashes are counted wrongly"))
}

/// A crash's reason and exit status are what the container said when it ended.
fn untrue_crash(by: &Instance, reason: &str, exit_status: Option<i32>, scene: &Scene<'_>) -> Wrong {
    let right = match scene.truth.result(by.instance_guid) {
        Some(RunResult::Failed { reason: why, exit_status: status }) => {
            why == reason && *status == exit_status
        }
        Some(RunResult::Succeeded { .. }) => reason == "exited" && exit_status == Some(0),
        Some(RunResult::Stopped) => reason == "exited" && exit_status.is_none(),
        None => false,
    };
    (!right).then_some((P::TellsTheTruth, "its container did not end so"))
}
