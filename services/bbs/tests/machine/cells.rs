//! Cells that are lost, or thought so.

use std::time::Duration;

use schemas::evaluation::{Status, Trigger};
use schemas::{Timestamp, actual};

use bbs::Input;

use crate::scene::{Fate, Scene};
use crate::words::{self, container, start};

const SECOND: Duration = Duration::from_secs(1);
const FIVE: [&str; 5] = ["c1", "c2", "c3", "c4", "c5"];

/// A cluster whose process has an instance on each of these cells, RUNNING.
fn running(bbss: usize, on: &[&str]) -> Scene {
    let mut scene = Scene::with(bbss, &FIVE);
    scene.client(0, words::lrp("web", u32::try_from(on.len()).unwrap()));
    let epoch = scene.epoch(0, "web");
    for (index, cell) in (0..).zip(on) {
        let by = container(u64::from(index), cell);
        scene.report(0, cell, words::of_lrp("web", index, epoch, by, start()));
        assert_eq!(scene.state(0, "web", index), "RUNNING");
    }
    scene
}

fn lose(scene: &mut Scene, cells: &[&str]) {
    scene.cells.retain(|cell, _| !cells.contains(&cell.as_str()));
}

/// How long after the first of these events the last of those came.
fn between(scene: &Scene, first: &str, last: &str) -> Duration {
    let time = |event| -> Vec<Timestamp> { scene.times(event) };
    time(last).into_iter().max().unwrap().since(time(first).into_iter().min().unwrap())
}

#[test]
fn what_was_on_a_lost_cell_is_placed_anew_at_once() {
    let mut scene = running(1, &["c1", "c2", "c1"]);
    lose(&mut scene, &["c1"]);
    scene.pass(25 * SECOND);
    assert_eq!(scene.probes, [words::cell_id("c1")], "it was asked first");
    assert_eq!([0, 1, 2].map(|index| scene.state(0, "web", index)), ["UNCLAIMED", "RUNNING", "UNCLAIMED"]);
    assert!(between(&scene, "cell.disappeared.v1", "actual.unclaimed.v1") < SECOND);
    let process = scene.bbs(0).world().process(&words::process_guid("web")).unwrap();
    let open = process.open_evaluation().unwrap();
    assert_eq!((open.trigger, &open.status), (Trigger::CellLost, &Status::Pending));
    assert_eq!(scene.bbs(0).world().found_by_convergence(), 0);
}

#[test]
fn the_next_leader_does_it_at_once_if_the_first_dies_on_having_said_so() {
    let mut scene = running(2, &["c1"]);
    scene.dies_after = Some((0, "disappeared.v1"));
    lose(&mut scene, &["c1"]);
    scene.pass(25 * SECOND);
    assert!(scene.bbs[0].is_none());
    assert_eq!(scene.state(1, "web", 0), "UNCLAIMED");
    let elected = scene.times("cluster.elected.v1").into_iter().max().unwrap();
    let unclaimed = scene.times("actual.unclaimed.v1")[0];
    assert!(unclaimed.since(elected) < SECOND, "{:?}", unclaimed.since(elected));
    let process = scene.bbs(1).world().process(&words::process_guid("web")).unwrap();
    assert_eq!(process.open_evaluation().unwrap().trigger, Trigger::CellLost);
}

#[test]
fn a_second_cell_that_is_lost_while_the_first_is_dealt_with_is_dealt_with_as_well() {
    let mut scene = running(1, &["c1", "c2"]);
    lose(&mut scene, &["c1"]);
    scene.pass(3 * SECOND);
    lose(&mut scene, &["c2"]);
    // What is decided about the first is on its way to the log when the second is lost.
    scene.fate.insert("muster.event.lrp", Fate::Held);
    while scene.times("cell.disappeared.v1").len() < 2 {
        scene.pass(SECOND / 10);
    }
    assert_eq!(scene.times("actual.unclaimed.v1").len(), 0);
    scene.fate.clear();
    scene.release(|bytes| bytes);
    assert_eq!([0, 1].map(|index| scene.state(0, "web", index)), ["UNCLAIMED"; 2]);
    assert!(scene.times("actual.unclaimed.v1").len() >= 2);
}

#[test]
fn a_claim_that_was_decided_before_its_cell_was_lost_is_taken_back_at_once() {
    let mut scene = Scene::with(1, &FIVE);
    scene.client(0, words::lrp("web", 1));
    let epoch = scene.epoch(0, "web");
    lose(&mut scene, &["c1"]);
    scene.pass(10 * SECOND);
    scene.fate.insert("muster.event.lrp", Fate::Held);
    let claim = actual::Command::Claim { placement: None };
    scene.report(0, "c1", words::of_lrp("web", 0, epoch, container(1, "c1"), claim));
    while scene.times("cell.disappeared.v1").is_empty() {
        scene.pass(SECOND / 10);
    }
    scene.fate.clear();
    scene.release(|bytes| bytes);
    assert_eq!(scene.times("actual.claimed.v1").len(), 1);
    assert_eq!(scene.state(0, "web", 0), "UNCLAIMED", "without waiting for convergence");
}

#[test]
fn a_task_on_a_lost_cell_has_failed() {
    let mut scene = Scene::with(1, &FIVE);
    scene.client(0, words::task("count", None));
    let epoch = scene.bbs(0).world().task(&words::task_guid("count")).unwrap().epoch;
    let begin = schemas::task::ReportStep::Start { placement: None };
    scene.report(0, "c1", words::of_task("count", epoch, container(1, "c1"), begin));
    lose(&mut scene, &["c1"]);
    scene.pass(20 * SECOND);
    assert_eq!(scene.task_state(0, "count"), "COMPLETED");
    assert!(between(&scene, "cell.disappeared.v1", "task.completed.v1") < SECOND);
}

#[test]
fn who_is_heard_before_it_is_written_down_is_not_lost() {
    let mut scene = running(1, &["c1"]);
    // Something else about the cell is on its way to the log, so that its loss waits.
    scene.fate.insert("muster.event.cell.c1", Fate::Held);
    let mut sick = words::heartbeat("c1", 1, 99);
    sick.unhealthy = Some("no disk".into());
    scene.input(0, Input::Heartbeat(sick));
    lose(&mut scene, &["c1"]);
    scene.pass(25 * SECOND);
    assert_eq!(scene.times("cell.disappeared.v1"), []);
    scene.cells.insert("c1".into(), (1, 100));
    scene.beat("c1");
    scene.fate.clear();
    scene.release(|bytes| bytes);
    scene.pass(SECOND);
    assert_eq!(scene.times("cell.unhealthy.v1").len(), 1);
    assert_eq!(scene.times("cell.disappeared.v1"), []);
    assert_eq!(scene.state(0, "web", 0), "RUNNING");
}

#[test]
fn a_loss_of_which_nobody_knows_is_not_written_again_when_the_cell_is_heard() {
    let mut scene = running(1, &["c1"]);
    lose(&mut scene, &["c1"]);
    scene.fate.insert("muster.event.cell.c1", Fate::Lost);
    scene.pass(25 * SECOND);
    scene.cells.insert("c1".into(), (1, 100));
    scene.beat("c1");
    scene.fate.clear();
    scene.pass(30 * SECOND);
    assert_eq!(scene.times("cell.disappeared.v1"), []);
    assert_eq!(scene.state(0, "web", 0), "RUNNING");
    // And when it is lost again, it is.
    lose(&mut scene, &["c1"]);
    scene.pass(25 * SECOND);
    assert_eq!(scene.state(0, "web", 0), "UNCLAIMED");
}

#[test]
fn a_loss_is_written_as_soon_as_the_journal_takes_it() {
    let mut scene = running(1, &["c1"]);
    lose(&mut scene, &["c1"]);
    scene.fate.insert("muster.event.cell.c1", Fate::Lost);
    scene.pass(40 * SECOND);
    assert_eq!(scene.state(0, "web", 0), "RUNNING");
    scene.fate.clear();
    scene.pass(SECOND);
    assert_eq!(scene.times("cell.disappeared.v1").len(), 1, "once, however often it was found");
    assert_eq!(scene.state(0, "web", 0), "UNCLAIMED");
}

#[test]
fn a_look_that_the_journal_refuses_is_taken_again_soon() {
    let mut scene = running(1, &["c1"]);
    lose(&mut scene, &["c1"]);
    scene.fate.insert("muster.event.lrp", Fate::Refused);
    while scene.times("cell.disappeared.v1").is_empty() {
        scene.pass(SECOND / 10);
    }
    assert_eq!(scene.state(0, "web", 0), "RUNNING");
    scene.fate.clear();
    scene.pass(2 * SECOND);
    assert_eq!(scene.state(0, "web", 0), "UNCLAIMED");
}

#[test]
fn most_cells_that_fall_silent_together_are_lost_a_minute_later() {
    let mut scene = running(1, &["c1"]);
    lose(&mut scene, &["c1", "c2", "c3"]);
    scene.pass(60 * SECOND);
    assert_eq!(scene.times("cell.disappeared.v1"), []);
    let told = scene.warned.iter().filter(|why| why.contains("3 cells fell silent together")).count();
    assert_eq!(told, 1, "{:?}", scene.warned);
    scene.pass(30 * SECOND);
    assert_eq!(scene.times("cell.disappeared.v1").len(), 3);
    assert_eq!(scene.state(0, "web", 0), "UNCLAIMED");
}

#[test]
fn who_can_not_be_heard_by_a_new_leader_that_hears_nobody_is_not_lost() {
    let mut scene = running(2, &["c1"]);
    scene.input(1, Input::Disconnected);
    scene.bbs[0] = None;
    lose(&mut scene, &FIVE);
    scene.pass(90 * SECOND);
    assert!(scene.bbs(1).leads());
    assert_eq!(scene.times("cell.disappeared.v1"), []);
    scene.input(1, Input::Reconnected);
    scene.cells.extend(FIVE[1..].iter().map(|cell| ((*cell).to_owned(), (1, 100))));
    scene.pass(25 * SECOND);
    assert_eq!(scene.times("cell.disappeared.v1").len(), 1);
}

#[test]
fn a_cell_that_is_sick_is_out_and_comes_back_when_it_is_well() {
    let mut scene = Scene::with(1, &FIVE);
    let mut beat = words::heartbeat("c1", 1, 50);
    beat.unhealthy = Some("no disk".into());
    scene.input(0, Input::Heartbeat(beat.clone()));
    assert!(!scene.bbs(0).world().cell(&words::cell_id("c1")).unwrap().healthy);
    beat.unhealthy = None;
    beat.sequence += 1;
    scene.input(0, Input::Heartbeat(beat));
    assert!(scene.bbs(0).world().cell(&words::cell_id("c1")).unwrap().healthy);
}

#[test]
fn a_rep_that_starts_with_an_earlier_clock_is_known_within_a_heartbeat() {
    let mut scene = Scene::with(1, &["c1"]);
    scene.cells.insert("c1".into(), (9, 0));
    scene.pass(6 * SECOND);
    let incarnation = |scene: &Scene| {
        scene.bbs(0).world().cell(&words::cell_id("c1")).unwrap().presence.incarnation.0.as_u64_pair().0
    };
    assert_eq!(incarnation(&scene), 9);
    scene.cells.insert("c1".into(), (5, 0));
    scene.pass(6 * SECOND);
    assert_eq!(incarnation(&scene), 5);
    assert_eq!(scene.times("cell.appeared.v1").len(), 3);
    // An old heartbeat of the run before is answered by a question, and changes nothing.
    scene.input(0, Input::Heartbeat(words::heartbeat("c1", 4, 99)));
    assert_eq!(incarnation(&scene), 5);
}
