//! Number of allocations per decision: the thread that decides should spend its time on decisions.

use schemas::actual;

use crate::requests::{ask, scale};
use crate::scene::Scene;
use crate::words::{self, container};

/// Returns the number of allocations in the steps of the BBS during an action: the decision, its entry, and the
/// application of the entry.
fn allocations(scene: &mut Scene, run: impl FnOnce(&mut Scene)) -> u64 {
    let before = scene.allocations;
    run(scene);
    scene.allocations - before
}

#[test]
fn decisions_allocate_little() {
    let mut scene = Scene::with(1, &["c1"]);
    // The first decisions fill tables that grow.
    for name in ["a", "b", "c"] {
        ask(&mut scene, "ci", name, words::lrp(name, 1)).unwrap();
    }
    let desire = allocations(&mut scene, |scene| {
        ask(scene, "ci", "r1", words::lrp("web", 1)).unwrap();
    });
    let report = |scene: &mut Scene, step| {
        let epoch = scene.epoch(0, "web");
        scene.report(0, "c1", words::lrp_report("web", 0, epoch, container(1, "c1"), step));
    };
    let start = allocations(&mut scene, |scene| report(scene, words::start()));
    let crash = actual::Command::Crash { reason: "exited with status 1".into(), exit_status: Some(1) };
    let crash = allocations(&mut scene, |scene| report(scene, crash));
    let scale = allocations(&mut scene, |scene| {
        ask(scene, "ci", "r2", scale(100)).unwrap();
    });
    let task = allocations(&mut scene, |scene| {
        ask(scene, "ci", "r3", words::task("count", None)).unwrap();
    });
    let (counts, limits) = ([desire, start, crash, scale, task], [75, 70, 90, 360, 65]);
    let is_within = counts.iter().zip(limits).all(|(count, limit)| *count <= limit);
    assert!(is_within, "desire, start, crash, scale, task: {counts:?}, at most {limits:?}");
}
