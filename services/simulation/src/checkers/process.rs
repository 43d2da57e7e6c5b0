//! Processes: decisions compared with containers and cells. The audit checks everything that the log contains.

use std::collections::BTreeSet;

use machines::actual::Actual;
use machines::process::{self, Process};
use schemas::actual::{self, StopReason, UnclaimReason};
use schemas::container::{Instance, WorkKey};
use schemas::crash::Restart;
use schemas::entry::Event;
use schemas::evacuating::{self, RemovalReason};
use schemas::names::InstanceGuid;
use schemas::stamp::Actor;
use schemas::{ActualLrpKey, Place};

use crate::checkers::{Notes, Scene};
use crate::coverage::Situation;
use crate::invariants::Invariant as I;

/// Containers of processes that the World does not record.
#[derive(Default)]
pub(super) struct Containers {
    /// Containers that their cells reported as ended.
    ended: BTreeSet<InstanceGuid>,
    /// Evacuating containers that another instance has replaced since, or need not replace.
    replaced: BTreeSet<InstanceGuid>,
}

/// Checks a decision about a process, and applies it to the process.
pub(super) fn check(process: &mut Process, own: &mut Containers, scene: &mut Scene<'_>, notes: &mut Notes) {
    for event in &scene.decision.events {
        match event {
            Event::Actual(event) => {
                for place in event.places().iter() {
                    check_instance(process, &place, event, own, scene, notes);
                }
            }
            Event::Evacuating(event) => check_evacuating(process, event, own, scene, notes),
            _ => {}
        }
        process::evolve(process, std::slice::from_ref(event), &scene.decision.stamp());
    }
    check_result(process, scene, notes);
    own.note_replaced(process);
}

/// Checks an event against the instance before it.
fn check_instance(
    process: &Process,
    place: &Place,
    event: &actual::Event,
    own: &mut Containers,
    scene: &mut Scene<'_>,
    notes: &mut Notes,
) {
    let before = process.actual(place);
    let holder = before.and_then(Actual::holder);
    let name = || ActualLrpKey::new(process.guid.clone(), place.clone()).with_definition();
    let wrong = |what: &str| format!("{} is {before:?}, and {event:?}: {what}", name());
    let desired_index = process.desired.as_ref().is_some_and(|desired| desired.desires_index(place.index));
    match event {
        actual::Event::Claimed { by, .. } | actual::Event::Started { by, .. } => {
            let starts = matches!(event, actual::Event::Started { .. });
            own.check_holder(process, place, by, starts, scene, notes);
            if starts && before.is_none() {
                notes.met(Situation::OrphanAdopted);
            }
        }
        actual::Event::Crashed { by, crash_count, .. } => {
            notes.check(I::OneContainer, scene.is_present(by), || wrong("the cell is absent"));
            notes.check(I::CrashCounted, !scene.truth.is_live(by.instance_guid), || {
                wrong("the container runs")
            });
            own.ended.insert(by.instance_guid);
            if *crash_count > 3 {
                notes.met(Situation::CrashLimit);
            }
        }
        actual::Event::Unclaimed { cause: UnclaimReason::CellLost, .. } => {
            notes.check(I::CellsLost, holder.is_some_and(|by| scene.is_lost(by)), || {
                wrong("the cell is present")
            });
        }
        actual::Event::StopRequested { cause, .. } | actual::Event::Removed { cause, .. } => {
            let removed = matches!(event, actual::Event::Removed { .. });
            let (invariant, right) = match cause {
                StopReason::Removed | StopReason::Scale => (I::StopHasCause, !process.is_desired(place)),
                StopReason::Undesired => {
                    notes.met(Situation::Undesired);
                    (I::StaleStopsNothing, !desired_index && scene.is_fresh(&process.domain))
                }
                StopReason::Replaced | StopReason::RolloutFailed => {
                    (I::StopHasCause, desired_index && !process.is_desired(place))
                }
                StopReason::CellLost if removed && holder.is_some() => {
                    (I::CellsLost, holder.is_some_and(|by| scene.is_lost(by)))
                }
                StopReason::Stopped | StopReason::Crashed => {
                    let by = holder.filter(|by| scene.is_by_cell_of(by));
                    own.ended.extend(by.map(|by| by.instance_guid));
                    (I::StopHasCause, by.is_some_and(|by| !scene.truth.is_live(by.instance_guid)))
                }
                StopReason::Preempted => {
                    notes.met(Situation::Preempted);
                    let by_auctioneer = matches!(scene.decision.actor, Actor::Auctioneer(_));
                    let on = scene.known.cluster().is_some_and(|cluster| cluster.preemption);
                    (I::StopHasCause, by_auctioneer && on)
                }
                StopReason::Retired
                | StopReason::Superseded
                | StopReason::CellUnfit
                | StopReason::CellLost
                | StopReason::Evacuated => (I::StopHasCause, true),
            };
            notes.check(invariant, right, || wrong("the cause does not hold"));
        }
        actual::Event::Created { .. }
        | actual::Event::ExecStarted { .. }
        | actual::Event::PlacementFailed { .. }
        | actual::Event::Unclaimed { .. } => {}
    }
}

fn check_evacuating(
    process: &Process,
    event: &evacuating::Event,
    own: &mut Containers,
    scene: &mut Scene<'_>,
    notes: &mut Notes,
) {
    match event {
        evacuating::Event::Set { place, by, .. } => {
            own.check_holder(process, place, by, true, scene, notes);
        }
        evacuating::Event::Removed { place, cause } => {
            let Some(record) = process.slot(place).and_then(|slot| slot.evacuating.as_deref()) else {
                return;
            };
            let by = &record.by;
            let wrong = || format!("{}/{}: {record:?} is removed: {cause:?}", process.guid, place.index);
            match cause {
                RemovalReason::CellLost => notes.check(I::CellsLost, scene.is_lost(by), wrong),
                RemovalReason::Replaced => notes.met(Situation::EvacuatingReplaced),
                RemovalReason::Expired => notes.met(Situation::EvacuatingExpired),
                RemovalReason::Removed => {
                    let over = record.expires_at <= scene.decision.at + 2 * scene.clock_slack;
                    let ended = !scene.truth.is_live(by.instance_guid);
                    let replaced =
                        own.replaced.contains(&by.instance_guid) || is_replaced(process, place, by);
                    notes.check(I::Evacuation, over || ended || replaced, wrong);
                }
            }
        }
    }
}

/// Returns `true` if an evacuating container is not needed any longer: another one runs in its place, or its
/// place has no instance or a crashed one.
fn is_replaced(process: &Process, place: &Place, by: &Instance) -> bool {
    let own = process.actual(place);
    let mut successors: Vec<&Actual> = own.into_iter().collect();
    if own.is_none() {
        successors.extend(process.actuals_at(place.index).map(|(_, lrp)| lrp));
    }
    let replaces = |lrp: &&Actual| match lrp.holder() {
        Some(holder) => lrp.is_running() && holder != by,
        None => !lrp.is_unclaimed(),
    };
    successors.is_empty() || successors.iter().any(replaces)
}

/// Checks the process after a decision.
fn check_result(process: &Process, scene: &Scene<'_>, notes: &mut Notes) {
    let guid = &process.guid;
    let instances = || process.slots.iter().filter_map(|slot| Some((&slot.place, slot.actual.as_ref()?)));
    let desires = |index| process.desired.as_ref().is_some_and(|desired| desired.desires_index(index));
    // An orphan, which no client ever desired, runs on until its domain is fresh.
    let kept = instances()
        .find(|(place, lrp)| process.scaled_by.is_some() && !desires(place.index) && !lrp.is_stopping());
    notes.check(I::StopHasCause, kept.is_none(), || format!("{guid}: {kept:?} is not desired and goes on"));
    let stuck = instances().find(|(place, lrp)| {
        lrp.restart_at() == Some(lrp.since)
            && matches!(lrp.state, machines::actual::State::Crashed { restart: Restart::Immediate })
            && lrp.since == scene.decision.at
            && process.is_desired(place)
    });
    notes.check(I::CrashCounted, stuck.is_none(), || format!("{guid}: {stuck:?} does not restart at once"));
}

impl Containers {
    /// Checks a container that gets a record, and records that the log claims its work.
    fn check_holder(
        &self,
        process: &Process,
        place: &Place,
        by: &Instance,
        must_have_started: bool,
        scene: &mut Scene<'_>,
        notes: &mut Notes,
    ) {
        let key = ActualLrpKey::new(process.guid.clone(), place.clone());
        let name = key.with_definition();
        let started = !must_have_started || scene.truth.has_started(by.instance_guid);
        notes.check(I::OneContainer, scene.is_present(by) && started, || {
            format!("{name}: the cell of {by:?} is absent, or the container never started")
        });
        notes.check(I::OneContainer, !self.ended.contains(&by.instance_guid), || {
            format!("{name}: {by:?} has ended")
        });
        let work = WorkKey::Lrp { key, epoch: process.epoch };
        let other = scene.truth.work(by.instance_guid).filter(|known| **known != work);
        notes.check(I::OneContainer, other.is_none(), || {
            format!("{work:?} is claimed by {by:?}, which runs {other:?}")
        });
        scene.truth.claimed(by.instance_guid, work);
    }

    fn note_replaced(&mut self, process: &Process) {
        for slot in process.slots.iter() {
            let by = slot.evacuating.as_ref().map(|record| &record.by);
            self.replaced
                .extend(by.filter(|by| is_replaced(process, &slot.place, by)).map(|by| by.instance_guid));
        }
    }
}
