//! Tests of single scenarios that random logs do not show as clearly.

use projections::{Change, Due, RETENTION, WorkRef, World, records};
use schemas::container::{Instance, NetInfo};
use schemas::crash::Restart;
use schemas::entry::Event;
use schemas::isolation::Isolation;
use schemas::message::{LrpRecord, LrpState, Record};
use schemas::resources::Resources;
use schemas::{ActualLrpKey, Place, Places, Position, Subject, Timestamp, actual, evacuating};

use crate::log::{
    Action, Log, ProcessAction, TaskAction, cell_id, definition_id, domain, fold, guid, instance, lrp,
    task_guid, write,
};

fn story(asks: impl IntoIterator<Item = Action>) -> Log {
    write(&asks.into_iter().map(|ask| vec![ask]).collect::<Vec<_>>())
}

fn desire(process: u8, instances: u8) -> Action {
    Action::Process(process, ProcessAction::Desire { domain: 0, instances, size: 3 })
}

/// Returns a report of an index's first container, such as a claim and a start.
fn report(process: u8, index: u8, steps: &[u8]) -> Action {
    Action::Process(process, ProcessAction::Report { index, container: 1, steps: steps.to_vec() })
}

fn index(process: u8, index: u32) -> WorkRef {
    WorkRef::Lrp(ActualLrpKey::new(guid(process), Place::new(index, definition_id(process))))
}

#[test]
fn entry_returns_each_change_once_in_order() {
    let mut log = Log::new();
    let mut world = log.world.clone();
    let known = log.entries.len();
    log.group(&[
        desire(1, 1),
        desire(0, 1),
        Action::Process(1, ProcessAction::Scale { instances: 2 }),
        desire(2, 1),
    ]);
    let told: Vec<_> =
        log.entries[known..].iter().map(|(position, entry)| world.fold(*position, entry)).collect();
    let on = |process| Subject::of_process(&guid(process), 2);
    let expected: Vec<_> = [on(0), on(1), on(2)]
        .into_iter()
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .map(|subject| {
            let order = [1, 0, 2].into_iter().filter(|process| on(*process) == subject);
            order.map(|process| Change::Process(guid(process))).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(told, expected);
}

#[test]
fn instance_is_in_set_of_its_state() {
    let world = story([desire(0, 2)]).world;
    assert_eq!(world.pending_work().collect::<Vec<_>>(), [&index(0, 0), &index(0, 1)]);
    let world = story([desire(0, 2), report(0, 0, &[0, 1])]).world;
    assert_eq!(world.pending_work().collect::<Vec<_>>(), [&index(0, 1)]);
    let cell = instance(0, 0, 1).cell_id;
    assert_eq!(world.on_cell(&cell).collect::<Vec<_>>(), [&index(0, 0)]);
    assert_eq!(world.used_on(&cell), lrp(0, 0, 1, 3).definition.resources());
    assert_eq!(world.used_on(&cell_id(9)), Resources::default());
    let world = story([
        desire(0, 2),
        report(0, 0, &[0, 1]),
        Action::Process(0, ProcessAction::Scale { instances: 0 }),
    ])
    .world;
    assert_eq!(world.stopping().collect::<Vec<_>>(), [&index(0, 0)]);
    assert_eq!(world.pending_work().count(), 0);
}

#[test]
fn container_keeps_resources_after_definition_is_removed() {
    let log = story([desire(0, 1), report(0, 0, &[0, 1]), Action::Process(0, ProcessAction::Remove)]);
    let cell = instance(0, 0, 1).cell_id;
    let takes = lrp(0, 0, 1, 3).definition.resources();
    assert_eq!(log.world.process(&guid(0)).unwrap().desired, None);
    assert_eq!(log.world.used_on(&cell), takes);
    let mut again = log;
    again.group(&[Action::Process(0, ProcessAction::Desire { domain: 0, instances: 1, size: 4 })]);
    assert_eq!(again.world.used_on(&cell), takes, "the container belongs to the earlier epoch");
    again.group(&[report(0, 0, &[4])]);
    assert_eq!(again.world.used_on(&cell), Resources::default());
    again.group(&[report(0, 0, &[0])]);
    assert_eq!(again.world.used_on(&cell), lrp(0, 0, 1, 4).definition.resources());
}

#[test]
fn gone_process_is_remembered_for_ten_minutes_of_subject_time() {
    let other = (0..3).find(|other| {
        *other != 0 && Subject::of_process(&guid(*other), 2) == Subject::of_process(&guid(0), 2)
    });
    let other = other.expect("of three processes on two subjects two share one");
    let mut log = story([desire(0, 1), Action::Process(0, ProcessAction::Remove)]);
    assert!(log.world.process(&guid(0)).is_some_and(machines::process::Process::is_gone));
    assert_eq!(log.world.counts().processes, 0);
    log.group(&[Action::Wait { seconds: 700 }, Action::Refresh { domain: 0, seconds: 60 }]);
    assert!(log.world.process(&guid(0)).is_some(), "the time of another subject does not count");
    let removed = log.world.process(&guid(0)).unwrap().changed_at;
    log.group(&[desire(other, 1)]);
    assert_eq!(log.world.process(&guid(0)), None);
    assert!(log.world.last_time(&Subject::of_process(&guid(0), 2)) >= removed + RETENTION);
}

#[test]
fn desired_again_process_continues_version() {
    let log = story([
        desire(0, 1),
        Action::Process(0, ProcessAction::Remove),
        Action::Wait { seconds: 700 },
        desire(0, 1),
    ]);
    let process = log.world.process(&guid(0)).expect("the process is desired");
    assert_eq!(process.version, 3);
    assert_eq!(log.world.counts().processes, 1);
}

#[test]
fn crashed_instance_is_due_at_restart_time() {
    let mut asks = vec![desire(0, 1)];
    for _ in 0..4 {
        asks.push(report(0, 0, &[0, 3]));
    }
    let world = story(asks).world;
    let due = world.next_due().expect("the fourth crash delays the restart");
    assert_eq!(world.due(Timestamp(due.0 - 1)), []);
    assert_eq!(world.due(due), [Due::Process(guid(0))]);
    assert_eq!(world.counts().instances.crashed, 1);
}

#[test]
fn work_found_by_convergence_is_counted_only_for_broken_log() {
    let cell = |steps: &[u8]| report(0, 0, steps);
    let lost = Action::CellLost { cell: 1 };
    let world = story([desire(0, 1), cell(&[0, 1]), lost, Action::Converge]).world;
    assert_eq!(world.counts().instances.unclaimed, 1, "its cell is lost");
    assert_eq!(world.found_by_convergence(), 0);
    // A stopping instance is lost and created again in the same decision.
    let retire = Action::Process(0, ProcessAction::Retire { index: 0 });
    let lost = Action::CellLost { cell: 1 };
    let world = story([desire(0, 1), cell(&[0, 1]), retire, lost, Action::Converge]).world;
    assert_eq!((world.counts().instances.unclaimed, world.found_by_convergence()), (1, 0));

    // The record of a desired index is missing in this log. Only a bug could cause this.
    let mut log = story([desire(0, 1)]);
    let (position, mut entry) = log.entries.pop().expect("the desire");
    entry.decisions[0].events.truncate(1);
    let mut world = fold(&log.entries);
    world.fold(position, &entry);
    assert_eq!(world.counts().instances.unclaimed, 0);
    let mut broken = Log::from(world);
    broken.group(&[Action::Converge]);
    assert_eq!(broken.world.counts().instances.unclaimed, 1);
    assert_eq!(broken.world.found_by_convergence(), 1);
}

#[test]
fn callback_is_pending_while_task_is_completed() {
    let desire = Action::Task(0, TaskAction::Desire { domain: 0, size: 4 });
    let end = Action::Task(0, TaskAction::Report { container: 0, step: 1 });
    let start = Action::Task(0, TaskAction::Report { container: 0, step: 0 });
    let world = story([desire.clone(), start.clone()]).world;
    assert_eq!(world.callbacks().count(), 0);
    assert_eq!(world.counts().tasks.running, 1);
    let world = story([desire.clone(), start.clone(), end.clone()]).world;
    assert_eq!(world.callbacks().collect::<Vec<_>>(), [&task_guid(0)]);
    let world = story([desire, start, end, Action::Task(0, TaskAction::Resolve { step: 1 })]).world;
    assert_eq!(world.callbacks().count(), 0);
    assert_eq!(world.counts().tasks.resolving, 1);
}

#[test]
fn processes_from_starts_after_guid() {
    let world = story([desire(2, 1), desire(0, 1), desire(1, 1)]).world;
    let from = |after: Option<u8>| -> Vec<_> {
        let after = after.map(guid);
        world.processes_from(after.as_ref()).map(|process| process.guid.clone()).collect()
    };
    assert_eq!(from(None), [guid(0), guid(1), guid(2)]);
    assert_eq!(from(Some(0)), [guid(1), guid(2)]);
    assert_eq!(from(Some(2)), []);
}

#[test]
fn domain_is_fresh_until_expiry() {
    let world = story([Action::Refresh { domain: 0, seconds: 60 }]).world;
    let at = world.domain(&domain(0)).expect("the domain was refreshed").refreshed_at;
    assert!(world.is_fresh(&domain(0), at));
    assert!(!world.is_fresh(&domain(0), Timestamp(at.0 + 60_000_000_000)));
    assert!(!world.is_fresh(&domain(1), at));
}

/// Returns the record of a slot of process 0.
fn slot_record(log: &Log, place: &Place) -> LrpRecord {
    let work = WorkRef::Lrp(ActualLrpKey::new(guid(0), place.clone()));
    match records::record(&log.world, &work) {
        Record::Lrp(record) => record,
        other @ (Record::Absent | Record::Task(_)) => panic!("{other:?}"),
    }
}

/// If a slot has only an evacuating instance, its record shows the replacement to the rep, even if the
/// replacement runs another definition.
#[test]
fn evacuating_slot_shows_replacement() {
    use actual::{Event as Lrp, StopReason};
    let [old, bad, new] = [1, 2, 0].map(|id| Place::new(0, definition_id(id)));
    let [own, wrong, next] = [0, 1, 2].map(|container| instance(0, 0, container));
    let started = |place: &Place, by: &Instance| {
        Event::Actual(Lrp::Started {
            place: place.clone(),
            by: by.clone(),
            net: NetInfo::default(),
            isolation: Isolation::NONE,
        })
    };
    let mut log = story([desire(0, 1)]);
    let removed = Lrp::Removed { places: new.clone().into(), cause: StopReason::Replaced };
    log.decide(0, vec![started(&old, &own), Event::Actual(removed)]);
    let (expires_at, net) = (Timestamp(u64::MAX), NetInfo::default());
    let set = evacuating::Event::Set { place: old.clone(), by: own.clone(), net, expires_at };
    log.decide(0, vec![Event::Evacuating(set)]);
    let state = |log: &Log| slot_record(log, &old).state;
    assert_eq!(state(&log), Some(LrpState::Running { by: own.clone(), stopping: false }), "its own");

    log.decide(
        0,
        vec![Event::Actual(Lrp::Removed { places: old.clone().into(), cause: StopReason::Replaced })],
    );
    assert_eq!(state(&log), None, "not claimed yet");
    // A stopping instance is a replacement only if no other instance exists.
    let places = || Places::from(bad.clone());
    log.decide(0, vec![started(&bad, &wrong)]);
    log.decide(0, vec![Event::Actual(Lrp::StopRequested { places: places(), cause: StopReason::Replaced })]);
    assert_eq!(state(&log), Some(LrpState::Running { by: wrong, stopping: true }));

    let running = Some(LrpState::Running { by: next.clone(), stopping: false });
    let (by, reason) = (next.clone(), "boom".to_owned());
    let (exit_status, crash_count, restart, attempts) = (None, 4, Restart::Immediate, None);
    let steps = [
        (Lrp::Created { places: new.clone().into() }, Some(LrpState::Unclaimed { placement_error: false })),
        (
            Lrp::Claimed { place: new.clone(), by: next.clone(), placement: None },
            Some(LrpState::Claimed { by: next.clone(), stopping: false }),
        ),
        (
            Lrp::Started {
                place: new.clone(),
                by: next.clone(),
                net: NetInfo::default(),
                isolation: Isolation::NONE,
            },
            running.clone(),
        ),
        (
            Lrp::Crashed { place: new.clone(), by, reason, exit_status, crash_count, restart, attempts },
            Some(LrpState::Crashed),
        ),
        (
            Lrp::Started {
                place: new.clone(),
                by: next,
                net: NetInfo::default(),
                isolation: Isolation::NONE,
            },
            running,
        ),
    ];
    for (event, expected) in steps {
        let told = format!("{event:?}");
        log.decide(0, vec![Event::Actual(event)]);
        let (record, other) = (slot_record(&log, &old), slot_record(&log, &new));
        assert_eq!((&record.state, record.evacuating.as_ref()), (&expected, Some(&own)), "{told}");
        assert_eq!(record.key.place, old);
        // The slot's record includes the times of the other slot. A change of the other slot therefore makes
        // older reports stale.
        assert_eq!((record.since, record.changed_at), (other.since, other.changed_at), "{told}");
        assert_eq!((other.state, other.evacuating), (expected, None), "{told}");
    }

    // Without an evacuating instance, an empty slot shows no other slot's state.
    let cause = evacuating::RemovalReason::Removed;
    log.decide(0, vec![Event::Evacuating(evacuating::Event::Removed { place: old.clone(), cause })]);
    let record = slot_record(&log, &old);
    assert_eq!((record.state, record.evacuating), (None, None));
}

#[test]
fn new_world_is_empty() {
    let world = World::new();
    assert_eq!((world.position(), world.shards(), world.cluster()), (Position(0), 4, None));
    assert_eq!(world.last_position(&Subject::Cluster), Position(0));
    assert_eq!(world.last_time(&Subject::Cluster), Timestamp(0));
}
