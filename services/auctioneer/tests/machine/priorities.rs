//! Tests of priorities: work with a higher priority is placed first, after every event that makes waiting
//! work ready.

use auctioneer::Settings;
use schemas::definition::{DesiredLrp, DesiredLrpUpdate};
use schemas::message::Work;
use schemas::names::CellId;
use schemas::priority::Priority;
use schemas::process::Command;

use crate::scene::{Scene, definition, large_resources, mib, outcomes, performs};

impl Scene {
    pub(crate) fn desire_at(&mut self, process: &str, memory_mb: u64, priority: u8) {
        let lrp = fixtures::lrp_of(process, "d", 1, definition(memory_mb));
        let priority = Priority::new(priority).unwrap();
        self.decide(process, &Command::Desire(Box::new(DesiredLrp { priority, ..lrp })));
    }

    fn set_priority(&mut self, process: &str, priority: u8) {
        let update = DesiredLrpUpdate { priority: Priority::new(priority), ..DesiredLrpUpdate::default() };
        self.decide(process, &Command::Update(update));
    }

    /// Processes an `Input::Turn`, and returns the work sent to cells, in order.
    pub(crate) fn dispatched(&mut self) -> Vec<String> {
        let effects = self.turn();
        let given = performs(effects.clone()).into_iter().flat_map(|(_, perform)| perform.work);
        let given = given.map(|work| work.key.to_string()).collect();
        for (id, told) in outcomes(effects) {
            self.record_outcomes(id, told);
        }
        given
    }
}

/// Returns a full cell and four waiting instances of different priorities.
fn full() -> Scene {
    let mut scene = Scene::leading(&[("c1", "z1")]);
    scene.send_heartbeat("c1", mib(0), 0);
    scene.desire_at("common", 400, 50);
    scene.desire_at("least", 300, 1);
    scene.desire_at("most", 600, 100);
    scene.desire_at("alike", 300, 60);
    assert!(scene.dispatched().is_empty());
    assert_eq!(scene.counts().blocked, 4);
    scene
}

#[test]
fn new_room_goes_to_highest_priority() {
    let mut scene = full();
    scene.send_heartbeat("c1", mib(700), 0);
    assert_eq!(scene.dispatched(), ["most/0"]);
    scene.send_heartbeat("c1", mib(700), 1);
    assert_eq!(scene.dispatched(), ["alike/0", "common/0"], "larger work does not go first");
    assert_eq!(scene.counts().blocked, 1);
}

#[test]
fn fitting_work_goes_before_larger_work_of_higher_priority() {
    let mut scene = full();
    scene.send_heartbeat("c1", mib(350), 0);
    assert_eq!(scene.dispatched(), ["alike/0"]);
}

#[test]
fn priority_change_reorders_waiting_work() {
    let mut scene = full();
    scene.set_priority("least", 80);
    scene.set_priority("most", 2);
    assert!(scene.dispatched().is_empty(), "a new priority is not a reason to retry");
    scene.send_heartbeat("c1", mib(700), 0);
    assert_eq!(scene.dispatched(), ["least/0", "alike/0"]);
}

/// Returns a scene in which the limit of outstanding work is reached. Two instances wait. The first one was
/// made ready because resources on c0 became free.
fn scene_at_outstanding_limit() -> (Scene, Vec<(CellId, Work)>) {
    let mut scene = Scene::leading_many(20);
    let most = u32::try_from(Settings::default().outstanding).unwrap();
    scene.desire("p", most - 2, 1);
    let handed = performs(scene.turn());
    let handed = handed.into_iter().flat_map(|(cell, perform)| {
        perform.work.into_iter().map(move |work| (cell.clone(), work)).collect::<Vec<_>>()
    });
    let handed = handed.collect();
    scene.desire_at("first", 30_000, 90);
    scene.desire_at("second", 30_000, 80);
    assert!(scene.dispatched().is_empty());
    scene.desire("q", 2, 1);
    assert_eq!(scene.dispatched().len(), 2);
    scene.resize_cell("c0", large_resources(50_000));
    assert!(scene.dispatched().is_empty());
    assert_eq!(scene.counts().ready, 1);
    (scene, handed)
}

#[test]
fn room_of_removed_work_goes_to_next() {
    let (mut scene, handed) = scene_at_outstanding_limit();
    scene.decide("first", &Command::Remove);
    assert!(scene.dispatched().is_empty());
    scene.claim(handed[0].0.as_str(), &handed[0].1);
    assert_eq!(scene.dispatched(), ["second/0"]);
}

#[test]
fn lowered_priority_yields_room_to_next() {
    let (mut scene, handed) = scene_at_outstanding_limit();
    scene.set_priority("first", 70);
    assert!(scene.dispatched().is_empty());
    for (cell, work) in &handed[..2] {
        scene.claim(cell.as_str(), work);
    }
    assert_eq!(scene.dispatched(), ["second/0"]);
}

#[test]
fn priority_change_keeps_hand_out() {
    let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z1")]);
    scene.desire_at("web", 100, 50);
    assert_eq!(scene.dispatched(), ["web/0"]);
    scene.set_priority("web", 90);
    assert!(scene.dispatched().is_empty());
    assert_eq!(scene.counts().handed_out, 1);
}
