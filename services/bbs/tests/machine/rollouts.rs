//! Rollouts with requests of clients and reports of reps, including changes of the leader.

use std::time::Duration;

use bbs::Reply;
use machines::process::Process;
use schemas::container::Instance;
use schemas::definition::{Definition, DesiredLrpUpdate, Ports};
use schemas::entry::Event;
use schemas::message::{Ack, Report};
use schemas::names::DefinitionId;
use schemas::policy::{Policies, UpdatePolicy};
use schemas::process::{self, Purpose, RolloutControl};
use schemas::spec::ClientCommand;
use schemas::{Code, Place, Refusal, Timestamp, actual, rollout};

use crate::scene::Scene;
use crate::words::{self, container, process_guid, start};

const SECOND: Duration = Duration::from_secs(1);

fn id(name: &str) -> DefinitionId {
    DefinitionId::new(name).unwrap()
}

/// Returns an update to a definition with this much memory, a monitor time of 10 s and a delay of 5 s.
fn update(definition: &str, memory_mb: u64) -> ClientCommand {
    let of = UpdatePolicy { monitor_ms: 10_000, delay_ms: 5_000, ..UpdatePolicy::default_update() };
    let policies = Some(Policies { update: of, ..Policies::default() });
    let new = Definition { memory_mb, grace_period_ms: 0, ports: Ports::new(), ..fixtures::definition() };
    ClientCommand::LrpUpdate {
        process_guid: process_guid("web"),
        update: DesiredLrpUpdate { policies, ..DesiredLrpUpdate::default() },
        definition: Some((id(definition), new.into())),
    }
}

fn ask(scene: &mut Scene, node: usize, command: ClientCommand) -> Result<Ack, Refusal> {
    let requester = scene.client(node, command);
    match scene.answers.remove(&requester) {
        Some(Reply::Done(done)) => done,
        other => panic!("{other:?}"),
    }
}

/// Sends the report of a rep about a step of an instance. `number` identifies the container.
fn report(scene: &mut Scene, node: usize, place: &Place, number: u64, step: actual::Command) {
    let by: Instance = container(number, "c1");
    let report = process::Report {
        domain: words::domain(),
        place: place.clone(),
        epoch: scene.epoch(node, "web"),
        by,
        observed_at: Timestamp(u64::MAX),
        steps: vec![process::ReportStep::Actual(step)],
    };
    let report = Report::Lrp { process_guid: process_guid("web"), report };
    let requester = scene.report(node, "c1", report);
    let Some(Reply::Reported(Ok(reported))) = scene.answers.remove(&requester) else { panic!("no answer") };
    assert!(reported.results.iter().all(|result| result.refused.is_none()), "{reported:?}");
}

fn old(index: u32) -> Place {
    fixtures::place(index, "web")
}

fn new(index: u32) -> Place {
    Place::new(index, id("v2"))
}

fn web(scene: &Scene, node: usize) -> &Process {
    scene.bbs(node).world().process(&process_guid("web")).unwrap()
}

/// Returns a scene with two running instances of the first definition.
fn two_running_instances() -> Scene {
    let mut scene = Scene::with(2, &["c1"]);
    ask(&mut scene, 0, words::lrp("web", 2)).unwrap();
    for index in 0..2 {
        report(&mut scene, 0, &old(index), 10 + u64::from(index), start());
    }
    scene
}

/// Returns the events of the rollout, each with the second of its decision.
fn rollout_events(scene: &Scene, begin: Timestamp) -> Vec<(u64, String)> {
    let decisions = scene.decisions().into_iter().map(|(_, decision)| decision);
    let events = decisions.flat_map(|decision| {
        let told = decision.events.into_iter().filter_map(|event| match event {
            Event::Rollout(event) => {
                let indices: Option<Vec<u32>> = event.indices().map(|indices| indices.iter().collect());
                Some(format!("{} {indices:?}", Event::Rollout(event).type_name()))
            }
            Event::Desired(schemas::desired::Event::Pruned { definition_ids }) => {
                Some(format!("pruned {definition_ids:?}"))
            }
            Event::Desired(_)
            | Event::Actual(_)
            | Event::Evacuating(_)
            | Event::Evaluation(_)
            | Event::Task(_)
            | Event::Periodic(_)
            | Event::Parameterised(_)
            | Event::Domain(_)
            | Event::Cell(_)
            | Event::Cluster(_) => None,
        });
        let second = decision.at.since(begin).as_secs();
        told.map(|event| (second, event)).collect::<Vec<_>>()
    });
    events.collect()
}

/// Rolls out a definition with a fixed time for each step. The leader dies `leader_dies` seconds after the
/// update.
fn roll(leader_dies: Option<u64>) -> (Scene, Vec<(u64, String)>) {
    let mut scene = two_running_instances();
    let (begin, mut node) = (scene.now, 0);
    ask(&mut scene, 0, update("v2", 128)).unwrap();
    let mut pass_to = |scene: &mut Scene, second: u64| {
        let until = |at: u64| begin + Duration::from_secs(at);
        if let Some(dies) = leader_dies.filter(|dies| node == 0 && *dies < second) {
            scene.pass(until(dies).since(scene.now));
            scene.bbs[0] = None;
            node = 1;
        }
        scene.pass(until(second).since(scene.now));
        assert!(scene.bbs(node).leads());
        node
    };
    for index in 0..2 {
        let base = 40 * u64::from(index);
        let node = pass_to(&mut scene, base + 6);
        report(&mut scene, node, &new(index), 20 + u64::from(index), start());
        let node = pass_to(&mut scene, base + 24);
        assert!(
            web(&scene, node).actual(&old(index)).unwrap().is_stopping(),
            "the monitor time of 10 s has passed"
        );
        report(&mut scene, node, &old(index), 10 + u64::from(index), actual::Command::Remove);
    }
    let node = pass_to(&mut scene, 150);
    let desired = web(&scene, node).desired.as_deref().unwrap();
    assert_eq!(desired.definitions.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["v2"]);
    let told = rollout_events(&scene, begin);
    (scene, told)
}

#[test]
fn an_update_replaces_index_by_index_completes_and_is_pruned() {
    let (scene, told) = roll(None);
    let begun: Vec<&str> = told.iter().map(|(_, event)| event.as_str()).collect();
    assert_eq!(
        begun,
        [
            "rollout.started.v1 None",
            "rollout.indices_started.v1 Some([0])",
            "rollout.took_over.v1 Some([0])",
            "rollout.replaced.v1 Some([0])",
            "rollout.indices_started.v1 Some([1])",
            "rollout.took_over.v1 Some([1])",
            "rollout.replaced.v1 Some([1])",
            "rollout.completed.v1 None",
            r#"pruned [DefinitionId("web")]"#,
        ]
        .map(|event| event.replace(r#"DefinitionId("web")"#, &format!("{:?}", id("web"))))
    );
    let seconds: Vec<u64> = told.iter().map(|(second, _)| *second).collect();
    assert_eq!(seconds[..8], [0, 0, 16, 24, 29, 56, 64, 64], "the monitor takes 10 s, the delay 5 s");
    let stopped: Vec<&str> = scene.stops.iter().map(|(cell, _)| cell.as_str()).collect();
    assert!(stopped.len() >= 2, "the rep receives stop orders for replaced instances: {stopped:?}");
    let web = web(&scene, 0);
    assert!((0..2).all(|index| web.actual(&new(index)).unwrap().is_running()));
    assert_eq!(web.rollout.as_ref().unwrap().phase, rollout::Phase::Completed);
}

#[test]
fn takeover_during_rollout_does_not_change_its_events() {
    let (_, undisturbed) = roll(None);
    // The leader dies at different times: while the first index is placed, monitored or stopped, while the
    // next index waits or is monitored, and after the end of the rollout.
    for second in [2, 8, 18, 26, 42, 48, 66] {
        let (scene, told) = roll(Some(second));
        let followed = |told: &[(u64, String)]| told[..8].to_vec();
        assert_eq!(followed(&told), followed(&undisturbed), "the leader died after {second} s");
        assert_eq!(told.len(), undisturbed.len(), "the definition is pruned once");
        assert!(scene.warned.is_empty(), "{:?}", scene.warned);
    }
}

#[test]
fn standby_has_same_rollout_as_leader() {
    let mut scene = two_running_instances();
    ask(&mut scene, 0, update("v2", 128)).unwrap();
    scene.pass(SECOND);
    report(&mut scene, 0, &new(0), 20, start());
    let third = scene.start();
    for follower in [1, third] {
        assert_eq!(web(&scene, follower), web(&scene, 0));
        assert_eq!(scene.bbs(follower).world().next_due(), scene.bbs(0).world().next_due());
    }
    assert!(web(&scene, 0).next_due().is_some(), "the monitor is running");
}

#[test]
fn invalid_rollout_commands_are_refused_without_effect() {
    let mut scene = two_running_instances();
    let guid = || process_guid("web");
    let steer = |steer| ClientCommand::LrpSteer { process_guid: guid(), steer };
    let activate = |name: &str| ClientCommand::LrpActivate { process_guid: guid(), definition_id: id(name) };
    let before = scene.journal.len();
    let mut refused = |command| ask(&mut scene, 0, command).unwrap_err();
    for (command, code, why) in [
        (steer(RolloutControl::Pause), Code::InvalidStateTransition, "no rollout is under way"),
        (steer(RolloutControl::RollBack), Code::InvalidStateTransition, "no rollout is under way"),
        (activate("v9"), Code::ResourceNotFound, "the process has web"),
        (update("web", 999), Code::ResourceExists, "use another id"),
    ] {
        let refusal = refused(command);
        assert_eq!(refusal.code, code, "{refusal}");
        assert!(refusal.to_string().contains(why), "{refusal}");
    }
    let unknown =
        ClientCommand::LrpRestart { process_guid: process_guid("nobody"), purpose: Purpose::Restart };
    assert_eq!(refused(unknown).code, Code::ResourceNotFound);
    assert_eq!(scene.journal.len(), before, "nothing was decided");
}

#[test]
fn client_can_pause_resume_roll_back_and_remove() {
    let mut scene = two_running_instances();
    let steer = |steer| ClientCommand::LrpSteer { process_guid: process_guid("web"), steer };
    ask(&mut scene, 0, update("v2", 128)).unwrap();
    ask(&mut scene, 0, steer(RolloutControl::Pause)).unwrap();
    let decided = scene.decisions().len();
    ask(&mut scene, 0, steer(RolloutControl::Pause)).unwrap();
    assert_eq!(scene.decisions().len(), decided, "the rollout is already paused");
    let status = |scene: &Scene| web(scene, 0).rollout.as_ref().unwrap().status();
    assert_eq!(status(&scene), "paused");
    ask(&mut scene, 0, steer(RolloutControl::Resume)).unwrap();
    assert_eq!(status(&scene), "updating");
    ask(&mut scene, 0, steer(RolloutControl::RollBack)).unwrap();
    assert_eq!(status(&scene), "rollback_completed", "no new instance was running");
    assert_eq!(
        ask(&mut scene, 0, steer(RolloutControl::RollBack)).unwrap_err().code,
        Code::InvalidStateTransition
    );
    ask(&mut scene, 0, update("v3", 129)).unwrap();
    ask(&mut scene, 0, ClientCommand::LrpRemove { process_guid: process_guid("web") }).unwrap();
    let web = web(&scene, 0);
    assert!(
        web.rollout.is_none() && web.slots.iter().all(|slot| slot.actual.as_ref().unwrap().is_stopping())
    );
}
