//! Periodic tasks: launches, the BBS that performs them, and takeover by another BBS.

use std::time::Duration;

use schemas::definition::{DesiredPeriodic, Overlap};
use schemas::entry::Event;
use schemas::evaluation::Trigger;
use schemas::names::{PeriodicGuid, TaskGuid};
use schemas::periodic::{self, LaunchReason, SkipReason};
use schemas::schedule::Schedule;
use schemas::spec::{ClientCommand, PeriodicAction};
use schemas::{Entry, Timestamp};

use crate::scene::Scene;
use crate::words;

const MINUTE: Duration = Duration::from_secs(60);

fn guid() -> PeriodicGuid {
    PeriodicGuid::new("clock").unwrap()
}

pub(crate) fn desire(overlap: Overlap) -> ClientCommand {
    ClientCommand::PeriodicDesire(Box::new(DesiredPeriodic {
        periodic_guid: guid(),
        domain: words::domain(),
        schedule: Schedule::new("* * * * *", "Europe/Berlin").unwrap(),
        overlap,
        definition: fixtures::task_definition().into(),
    }))
}

/// Returns a scene with this many BBSs and a periodic task that is due each minute.
fn scene(bbss: usize, overlap: Overlap) -> Scene {
    let mut scene = Scene::with(bbss, &["c1"]);
    scene.client(0, desire(overlap));
    scene
}

/// Returns all launches, each with the task that the same entry creates.
fn launches(scene: &Scene) -> Vec<(Timestamp, LaunchReason, TaskGuid)> {
    let mut found = vec![];
    for entry in scene.journal.iter().filter_map(|stored| Entry::decode(&stored.bytes).ok()) {
        for (at, decision) in entry.decisions.iter().enumerate() {
            for event in decision.events.iter().filter_map(Event::as_periodic) {
                let periodic::Event::Launched { due, task_guid, reason, .. } = event else { continue };
                let desired = &entry.decisions[at + 1];
                assert_eq!(desired.cause, Some(decision.id), "the launch is the cause");
                assert_eq!((desired.correlation, &desired.actor), (decision.correlation, &decision.actor));
                assert_eq!(desired.aggregate.subject(4), decision.aggregate.subject(4));
                found.push((*due, *reason, task_guid.clone()));
            }
        }
    }
    found
}

/// Returns the ends of the last `count` complete minutes.
fn minutes(scene: &Scene, count: u64) -> Vec<Timestamp> {
    let last = scene.now.seconds() / 60 * 60;
    (0..count).rev().map(|ago| Timestamp::from_seconds(last - 60 * ago)).collect()
}

#[test]
fn each_minute_launches_one_task_with_an_evaluation_of_its_own() {
    let mut scene = scene(2, Overlap::Allowed);
    scene.pass(MINUTE * 3);
    let dues: Vec<Timestamp> = launches(&scene).into_iter().map(|(due, ..)| due).collect();
    assert_eq!(dues, minutes(&scene, 3));
    for (due, reason, task_guid) in launches(&scene) {
        assert_eq!(
            (reason, task_guid.clone()),
            (LaunchReason::Due, guid().scheduled_task_guid(due).unwrap())
        );
        let task = scene.bbs(1).world().task(&task_guid).unwrap();
        assert_eq!(task.evaluations.to_vec()[0].trigger, Trigger::Periodic);
    }
}

#[test]
fn recorded_launch_is_not_repeated_after_leader_dies() {
    let mut scene = scene(2, Overlap::Allowed);
    scene.dies_after = Some((0, "launched.v1"));
    scene.pass(MINUTE * 4);
    assert!(scene.bbs(1).leads());
    let dues: Vec<Timestamp> = launches(&scene).into_iter().map(|(due, ..)| due).collect();
    assert_eq!(dues, minutes(&scene, 4), "one launch per minute under any leader");
}

#[test]
fn after_a_downtime_one_launch_catches_up() {
    let mut scene = scene(1, Overlap::Allowed);
    scene.bbs[0] = None;
    scene.pass(MINUTE * 30);
    scene.restart(0);
    scene.pass(Duration::from_secs(5));
    let [(due, LaunchReason::CatchUp, _)] = launches(&scene)[..] else { panic!("{:?}", launches(&scene)) };
    assert_eq!([due], minutes(&scene, 1)[..]);
    let skipped =
        scene.decisions().into_iter().flat_map(|(_, decision)| decision.events).find_map(|event| match event
            .as_periodic(
        )? {
            periodic::Event::Skipped { count, reason: SkipReason::Missed, .. } => Some(*count),
            periodic::Event::Skipped { .. }
            | periodic::Event::Desired { .. }
            | periodic::Event::Updated { .. }
            | periodic::Event::Launched { .. }
            | periodic::Event::Queued { .. }
            | periodic::Event::Paused {}
            | periodic::Event::Resumed { .. }
            | periodic::Event::Removed {} => None,
        });
    assert_eq!(skipped, Some(29));
}

#[test]
fn queued_launch_follows_end_of_previous_task_at_once() {
    let mut scene = scene(1, Overlap::Queued);
    scene.pass(MINUTE * 3);
    let [(_, _, first)] = &launches(&scene)[..] else { panic!("expected one launch") };
    scene.client(0, ClientCommand::TaskCancel { task_guid: first.clone() });
    let all = launches(&scene);
    assert_eq!((all.len(), all[1].1), (2, LaunchReason::Queued), "the launch follows at once");
    scene.client(0, ClientCommand::PeriodicAction { periodic_guid: guid(), ask: PeriodicAction::Pause });
    scene.client(0, ClientCommand::TaskCancel { task_guid: all[1].2.clone() });
    scene.pass(MINUTE * 3);
    assert_eq!(launches(&scene).len(), 2, "no launch while paused");
}

#[test]
fn launch_after_an_outage_waits_for_the_report_that_the_task_before_ended() {
    for is_reported in [true, false] {
        let mut scene = scene(1, Overlap::Skipped);
        scene.pass(MINUTE);
        let [(_, _, first)] = &launches(&scene)[..] else { panic!("{:?}", launches(&scene)) };
        let first = first.clone();
        scene.bbs[0] = None;
        scene.pass(MINUTE * 5);
        scene.restart(0);
        while !scene.bbs(0).leads() {
            scene.pass(Duration::from_millis(100));
        }
        assert_eq!(launches(&scene).len(), 1);
        if is_reported {
            scene.pass(Duration::from_millis(900));
            scene.client(0, ClientCommand::TaskCancel { task_guid: first });
        }
        scene.pass(Duration::from_secs(3));
        let reasons: Vec<LaunchReason> =
            launches(&scene).into_iter().skip(1).map(|(_, why, _)| why).collect();
        let expected = if is_reported { &[LaunchReason::CatchUp][..] } else { &[] };
        assert_eq!(reasons, expected, "reported: {is_reported}");
    }
}
