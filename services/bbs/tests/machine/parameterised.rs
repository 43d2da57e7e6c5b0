//! Parameterised tasks: a dispatch and its task in one entry, waiting dispatches, and keys that are repeated
//! at another BBS.

use schemas::Entry;
use schemas::definition::{DesiredParameterised, Overflow, PayloadRule};
use schemas::entry::Event;
use schemas::evaluation::Trigger;
use schemas::names::{DispatchKey, ParameterisedGuid, TaskGuid};
use schemas::parameterised::{self, Dispatch};
use schemas::spec::ClientCommand;

use crate::scene::Scene;
use crate::words;

fn guid() -> ParameterisedGuid {
    ParameterisedGuid::new("mill").unwrap()
}

pub(crate) fn template(concurrency: Option<u32>) -> DesiredParameterised {
    DesiredParameterised {
        parameterised_guid: guid(),
        domain: words::domain(),
        payload: PayloadRule::Optional,
        required_parameters: [].into(),
        optional_parameters: [].into(),
        concurrency,
        overflow: Overflow::Queued,
        definition: fixtures::task_definition().into(),
    }
}

pub(crate) fn dispatch(key: Option<&str>) -> ClientCommand {
    let key = key.map(|key| DispatchKey::new(key).unwrap());
    let dispatch = Box::new(Dispatch { key, ..Dispatch::default() });
    ClientCommand::ParameterisedDispatch { parameterised_guid: guid(), dispatch }
}

/// Returns a scene with this many BBSs and one parameterised task.
fn scene(bbss: usize, concurrency: Option<u32>) -> Scene {
    let mut scene = Scene::with(bbss, &["c1"]);
    scene.client(0, ClientCommand::ParameterisedDesire(Box::new(template(concurrency))));
    scene
}

/// Returns the numbers of all launches. After each launch, the same entry must create the launched task.
fn launched_numbers(scene: &Scene) -> Vec<u64> {
    let mut found = vec![];
    for entry in scene.journal.iter().filter_map(|stored| Entry::decode(&stored.bytes).ok()) {
        for (at, decision) in entry.decisions.iter().enumerate() {
            for event in decision.events.iter().filter_map(Event::as_parameterised) {
                let parameterised::Event::Launched { number, task_guid } = event else { continue };
                let desired = &entry.decisions[at + 1];
                assert_eq!(desired.cause, Some(decision.id), "the launch is the cause");
                assert_eq!(desired.aggregate.subject(4), decision.aggregate.subject(4));
                assert_eq!(*task_guid, guid().dispatched_task_guid(*number).unwrap());
                found.push(*number);
            }
        }
    }
    found
}

fn cancel(scene: &mut Scene, number: u64) {
    let task_guid: TaskGuid = guid().dispatched_task_guid(number).unwrap();
    scene.client(0, ClientCommand::TaskCancel { task_guid });
}

#[test]
fn dispatches_with_same_key_launch_one_task() {
    let mut scene = scene(1, None);
    for _ in 0..3 {
        scene.client(0, dispatch(Some("k")));
    }
    assert_eq!(launched_numbers(&scene), [2]);
    let task = scene.bbs(0).world().task(&guid().dispatched_task_guid(2).unwrap()).unwrap();
    assert_eq!(task.evaluations.to_vec()[0].trigger, Trigger::Desire);
    scene.client(0, dispatch(None));
    scene.client(0, dispatch(None));
    assert_eq!(launched_numbers(&scene).len(), 3, "dispatches without a key are never repeats");
}

#[test]
fn waiting_dispatch_launches_when_task_ends_or_concurrency_grows() {
    let mut scene = scene(1, Some(1));
    for _ in 0..5 {
        scene.client(0, dispatch(None));
    }
    assert_eq!(launched_numbers(&scene), [2]);
    cancel(&mut scene, 2);
    assert_eq!(launched_numbers(&scene), [2, 3], "the launch follows at once");
    scene.client(0, ClientCommand::ParameterisedUpdate(Box::new(template(Some(3)))));
    assert_eq!(launched_numbers(&scene), [2, 3, 4, 5]);
    scene.client(0, ClientCommand::ParameterisedRemove { parameterised_guid: guid() });
    cancel(&mut scene, 3);
    assert_eq!(launched_numbers(&scene), [2, 3, 4, 5], "a waiting dispatch was withdrawn");
}

#[test]
fn waiting_dispatch_is_launched_by_next_leader() {
    let mut scene = scene(2, Some(1));
    scene.client(0, dispatch(None));
    scene.client(0, dispatch(None));
    scene.dies_after = Some((0, "completed.v1"));
    cancel(&mut scene, 2);
    scene.pass(std::time::Duration::from_secs(60));
    assert!(scene.bbs(1).leads());
    assert_eq!(launched_numbers(&scene), [2, 3]);
}

#[test]
fn removed_parameterised_task_is_remembered_while_its_tasks_exist() {
    let mut scene = scene(1, None);
    scene.client(0, dispatch(None));
    scene.client(0, ClientCommand::ParameterisedRemove { parameterised_guid: guid() });
    // A PENDING task expires after 30 minutes. Before its expiry, the numbering continues.
    scene.pass(std::time::Duration::from_secs(25 * 60));
    scene.client(0, ClientCommand::ParameterisedDesire(Box::new(template(None))));
    scene.client(0, dispatch(None));
    assert_eq!(launched_numbers(&scene), [2, 5]);
}
