//! What is more urgent goes first, whatever wakes what waits.

use schemas::definition::{DesiredLrp, DesiredLrpUpdate};
use schemas::process::Command;
use schemas::rank::Priority;

use crate::scene::{Scene, definition, mib, outcomes, performs};

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

    /// Takes a turn: the processes of which something is given to a cell, in the order in which it is.
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

/// One cell without room, and what waits for it: of three kinds.
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
fn room_that_appears_is_for_the_most_urgent() {
    let mut scene = full();
    scene.beat("c1", mib(700), 0);
    assert_eq!(scene.given(), ["most/0"]);
    scene.beat("c1", mib(700), 1);
    assert_eq!(scene.given(), ["alike/0", "usual/0"], "what is larger doesn't go first any more");
    assert_eq!(scene.counts().blocked, 1);
}

#[test]
fn what_fits_goes_though_what_is_more_urgent_does_not_fit() {
    let mut scene = full();
    scene.beat("c1", mib(350), 0);
    assert_eq!(scene.given(), ["alike/0"]);
}

#[test]
fn another_priority_moves_what_waits() {
    let mut scene = full();
    scene.prefer("least", 80);
    scene.prefer("most", 2);
    assert!(scene.given().is_empty(), "it is no reason to try anew");
    scene.beat("c1", mib(700), 0);
    assert_eq!(scene.given(), ["least/0", "alike/0"]);
}

#[test]
fn another_priority_leaves_alone_what_a_cell_was_given() {
    let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z1")]);
    scene.desire_at("web", 100, 50);
    assert_eq!(scene.given(), ["web/0"]);
    scene.prefer("web", 90);
    assert!(scene.given().is_empty());
    assert_eq!(scene.counts().handed_out, 1);
}
