//! Tests of priorities: urgent work goes first, whatever wakes the waiting work.

use auctioneer::Settings;
use schemas::definition::{DesiredLrp, DesiredLrpUpdate};
use schemas::message::Work;
use schemas::names::CellId;
use schemas::process::Command;
use schemas::rank::Priority;

use crate::scene::{Scene, definition, mib, outcomes, performs, roomy};

impl Scene {
    pub(crate) fn desire_at(&mut self, process: &str, memory_mb: u64, priority: u8) {
        let lrp = fixtures::lrp_of(process, "d", 1, definition(memory_mb));
        let priority = Priority::new(priority).unwrap();
        self.decide(process, &Command::Desire(Box::new(DesiredLrp { priority, ..lrp })));
    }

    fn prefer(&mut self, process: &str, priority: u8) {
        let update = DesiredLrpUpdate { priority: Priority::new(priority), ..DesiredLrpUpdate::default() };
        self.decide(process, &Command::Update(update));
    }

    /// Takes a turn and returns the work sent to cells, in order.
    pub(crate) fn given(&mut self) -> Vec<String> {
        let effects = self.turn();
        let given = performs(effects.clone()).into_iter().flat_map(|(_, perform)| perform.work);
        let given = given.map(|work| work.key.to_string()).collect();
        for (id, told) in outcomes(effects) {
            self.record_outcomes(id, told);
        }
        given
    }
}

/// Returns a cell without free room and four waiting instances of different priorities.
fn full() -> Scene {
    let mut scene = Scene::leading(&[("c1", "z1")]);
    scene.beat("c1", mib(0), 0);
    scene.desire_at("usual", 400, 50);
    scene.desire_at("least", 300, 1);
    scene.desire_at("most", 600, 100);
    scene.desire_at("alike", 300, 60);
    assert!(scene.given().is_empty());
    assert_eq!(scene.counts().blocked, 4);
    scene
}

#[test]
fn new_room_goes_to_highest_priority() {
    let mut scene = full();
    scene.beat("c1", mib(700), 0);
    assert_eq!(scene.given(), ["most/0"]);
    scene.beat("c1", mib(700), 1);
    assert_eq!(scene.given(), ["alike/0", "usual/0"], "what is larger doesn't go first any more");
    assert_eq!(scene.counts().blocked, 1);
}

#[test]
fn fitting_work_goes_before_larger_work_of_higher_priority() {
    let mut scene = full();
    scene.beat("c1", mib(350), 0);
    assert_eq!(scene.given(), ["alike/0"]);
}

#[test]
fn priority_change_reorders_waiting_work() {
    let mut scene = full();
    scene.prefer("least", 80);
    scene.prefer("most", 2);
    assert!(scene.given().is_empty(), "it is no reason to try anew");
    scene.beat("c1", mib(700), 0);
    assert_eq!(scene.given(), ["least/0", "alike/0"]);
}

/// Returns a scene in which the limit of outstanding work is reached. Two instances wait, and the first was
/// made ready for room on c0.
fn busy() -> (Scene, Vec<(CellId, Work)>) {
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
    assert!(scene.given().is_empty());
    scene.desire("q", 2, 1);
    assert_eq!(scene.given().len(), 2);
    scene.enlarge("c0", roomy(50_000));
    assert!(scene.given().is_empty());
    assert_eq!(scene.counts().ready, 1);
    (scene, handed)
}

#[test]
fn room_of_removed_work_goes_to_next() {
    let (mut scene, handed) = busy();
    scene.decide("first", &Command::Remove);
    assert!(scene.given().is_empty());
    scene.claim(handed[0].0.as_str(), &handed[0].1);
    assert_eq!(scene.given(), ["second/0"]);
}

#[test]
fn lowered_priority_yields_room_to_next() {
    let (mut scene, handed) = busy();
    scene.prefer("first", 70);
    assert!(scene.given().is_empty());
    for (cell, work) in &handed[..2] {
        scene.claim(cell.as_str(), work);
    }
    assert_eq!(scene.given(), ["second/0"]);
}

#[test]
fn priority_change_keeps_hand_out() {
    let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z1")]);
    scene.desire_at("web", 100, 50);
    assert_eq!(scene.given(), ["web/0"]);
    scene.prefer("web", 90);
    assert!(scene.given().is_empty());
    assert_eq!(scene.counts().handed_out, 1);
}
