//! Cells that are lost or appear to be lost.

use std::time::Duration;

use schemas::container::Epoch;
use schemas::evaluation::{Duty, Status, Trigger};
use schemas::isolation::Isolation;
use schemas::message::{Attach, Envelope, Heartbeat, Leave, Reports};
use schemas::query::{CellRow, CellState, Filter, Page};
use schemas::stamp::Actor;
use schemas::{Code, Timestamp, actual, cell};

use bbs::{ChangeRequest, Input, Query, Reply};

use crate::scene::{Fate, Scene};
use crate::words::{self, container, start};

const SECOND: Duration = Duration::from_secs(1);
const FIVE: [&str; 5] = ["c1", "c2", "c3", "c4", "c5"];

/// Returns a scene whose process has a RUNNING instance on each of these cells.
fn running(bbss: usize, on: &[&str]) -> Scene {
    let mut scene = Scene::with(bbss, &FIVE);
    scene.client(0, words::lrp("web", u32::try_from(on.len()).unwrap()));
    let epoch = scene.epoch(0, "web");
    for (index, cell) in (0..).zip(on) {
        let by = container(u64::from(index), cell);
        scene.report(0, cell, words::lrp_report("web", index, epoch, by, start()));
        assert_eq!(scene.state(0, "web", index), "RUNNING");
    }
    scene
}

fn lose(scene: &mut Scene, cells: &[&str]) {
    scene.cells.retain(|cell, _| !cells.contains(&cell.as_str()));
}

/// Returns the time between the first event of one type and the last event of another.
fn between(scene: &Scene, first: &str, last: &str) -> Duration {
    let time = |event| -> Vec<Timestamp> { scene.times(event) };
    time(last).into_iter().max().unwrap().since(time(first).into_iter().min().unwrap())
}

#[test]
fn instances_of_lost_cell_are_unclaimed_at_once() {
    let mut scene = running(1, &["c1", "c2", "c1"]);
    lose(&mut scene, &["c1"]);
    scene.pass(25 * SECOND);
    assert_eq!(scene.probes, [words::cell_id("c1")], "the cell is probed first");
    assert_eq!([0, 1, 2].map(|index| scene.state(0, "web", index)), ["UNCLAIMED", "RUNNING", "UNCLAIMED"]);
    assert!(between(&scene, "cell.disappeared.v1", "actual.unclaimed.v1") < SECOND);
    let process = scene.bbs(0).world().process(&words::process_guid("web")).unwrap();
    let open = process.open_evaluation(Duty::Place).unwrap();
    assert_eq!((open.trigger, &open.status), (Trigger::CellLost, &Status::Pending));
    assert_eq!(scene.bbs(0).world().found_by_convergence(), 0);
}

#[test]
fn next_leader_unclaims_instances_if_first_dies_after_recording_loss() {
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
    assert_eq!(process.open_evaluation(Duty::Place).unwrap().trigger, Trigger::CellLost);
}

#[test]
fn second_cell_lost_during_handling_of_first_is_handled() {
    let mut scene = running(1, &["c1", "c2"]);
    lose(&mut scene, &["c1"]);
    scene.pass(3 * SECOND);
    lose(&mut scene, &["c2"]);
    // The journal has not confirmed the loss of the first cell when the second cell is lost.
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
fn claim_decided_before_cell_loss_is_unclaimed_at_once() {
    let mut scene = Scene::with(1, &FIVE);
    scene.client(0, words::lrp("web", 1));
    let epoch = scene.epoch(0, "web");
    lose(&mut scene, &["c1"]);
    scene.pass(10 * SECOND);
    scene.fate.insert("muster.event.lrp", Fate::Held);
    let claim = actual::Command::Claim { placement: None };
    scene.report(0, "c1", words::lrp_report("web", 0, epoch, container(1, "c1"), claim));
    while scene.times("cell.disappeared.v1").is_empty() {
        scene.pass(SECOND / 10);
    }
    scene.fate.clear();
    scene.release(|bytes| bytes);
    assert_eq!(scene.times("actual.claimed.v1").len(), 1);
    assert_eq!(scene.state(0, "web", 0), "UNCLAIMED", "without waiting for convergence");
}

#[test]
fn stop_is_repeated_until_instance_ends() {
    let mut scene = running(1, &["c1"]);
    scene.client(0, words::scale("web", 0));
    assert_eq!(scene.stops.len(), 1);
    let stop = scene.stops[0].clone();
    assert_eq!(stop.0, words::cell_id("c1"));
    scene.pass(11 * SECOND);
    assert!(scene.stops.len() >= 3, "{:?}", scene.stops);
    assert!(scene.stops.iter().all(|again| *again == stop), "{:?}", scene.stops);
    let epoch = scene.epoch(0, "web");
    scene.report(0, "c1", words::lrp_report("web", 0, epoch, container(0, "c1"), actual::Command::Remove));
    scene.stops.clear();
    scene.pass(11 * SECOND);
    assert_eq!(scene.stops, []);
}

#[test]
fn successor_of_stopping_instance_is_stopped_at_once() {
    let mut scene = Scene::with(1, &FIVE);
    scene.client(0, words::lrp("web", 1));
    let epoch = scene.epoch(0, "web");
    let claim = actual::Command::Claim { placement: None };
    scene.report(0, "c1", words::lrp_report("web", 0, epoch, container(1, "c1"), claim));
    scene.client(0, words::scale("web", 0));
    assert_eq!(scene.stops.len(), 1);
    // Another container on c2 reports that it is running. It takes over the record, because the evacuation of
    // c2 has ended.
    scene.report(0, "c2", words::lrp_report("web", 0, epoch, container(2, "c2"), start()));
    let (cell, stop) = scene.stops.last().unwrap();
    assert_eq!((scene.stops.len(), cell), (2, &words::cell_id("c2")));
    assert_eq!(stop.containers[0].1, container(2, "c2").instance_guid);
}

#[test]
fn task_on_lost_cell_completes() {
    let mut scene = Scene::with(1, &FIVE);
    scene.client(0, words::task("count", None));
    let epoch = scene.bbs(0).world().task(&words::task_guid("count")).unwrap().epoch;
    let begin = schemas::task::ReportStep::Start { placement: None, isolation: Isolation::NONE };
    scene.report(0, "c1", words::task_report("count", epoch, container(1, "c1"), begin));
    lose(&mut scene, &["c1"]);
    scene.pass(20 * SECOND);
    assert_eq!(scene.task_state(0, "count"), "COMPLETED");
    assert!(between(&scene, "cell.disappeared.v1", "task.completed.v1") < SECOND);
}

#[test]
fn cell_with_heartbeat_before_recorded_loss_is_not_lost() {
    let mut scene = running(1, &["c1"]);
    // The journal has not confirmed another entry about the cell, so the loss of the cell waits.
    scene.fate.insert("muster.event.cell.c1", Fate::Held);
    let mut sick = words::heartbeat("c1", 1, 99);
    sick.unhealthy = Some("no disk".into());
    scene.input(0, Input::Heartbeat(sick));
    lose(&mut scene, &["c1"]);
    scene.pass(25 * SECOND);
    assert_eq!(scene.times("cell.disappeared.v1"), []);
    scene.cells.insert("c1".into(), (1, 100));
    scene.send_heartbeat("c1");
    scene.fate.clear();
    scene.release(|bytes| bytes);
    scene.pass(SECOND);
    assert_eq!(scene.times("cell.unhealthy.v1").len(), 1);
    assert_eq!(scene.times("cell.disappeared.v1"), []);
    assert_eq!(scene.state(0, "web", 0), "RUNNING");
}

#[test]
fn loss_with_unknown_outcome_is_dropped_after_heartbeat() {
    let mut scene = running(1, &["c1"]);
    lose(&mut scene, &["c1"]);
    scene.fate.insert("muster.event.cell.c1", Fate::Lost);
    scene.pass(25 * SECOND);
    scene.cells.insert("c1".into(), (1, 100));
    scene.send_heartbeat("c1");
    scene.fate.clear();
    scene.pass(30 * SECOND);
    assert_eq!(scene.times("cell.disappeared.v1"), []);
    assert_eq!(scene.state(0, "web", 0), "RUNNING");
    // A loss at a later time is recorded.
    lose(&mut scene, &["c1"]);
    scene.pass(25 * SECOND);
    assert_eq!(scene.state(0, "web", 0), "UNCLAIMED");
}

#[test]
fn loss_is_recorded_once_after_journal_recovers() {
    let mut scene = running(1, &["c1"]);
    lose(&mut scene, &["c1"]);
    scene.fate.insert("muster.event.cell.c1", Fate::Lost);
    scene.pass(40 * SECOND);
    assert_eq!(scene.state(0, "web", 0), "RUNNING");
    scene.fate.clear();
    scene.pass(SECOND);
    assert_eq!(scene.times("cell.disappeared.v1").len(), 1, "recorded once, however often it was detected");
    assert_eq!(scene.state(0, "web", 0), "UNCLAIMED");
}

#[test]
fn convergence_refused_by_journal_is_retried() {
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
fn mass_loss_is_recorded_after_wait() {
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
fn new_leader_without_heartbeats_does_not_declare_cells_lost() {
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
fn unhealthy_cell_recovers_with_healthy_heartbeat() {
    let mut scene = Scene::with(1, &FIVE);
    let mut beat = words::heartbeat("c1", 1, 50);
    beat.unhealthy = Some("no disk".into());
    scene.input(0, Input::Heartbeat(beat.clone()));
    assert!(scene.bbs(0).world().cell(&words::cell_id("c1")).unwrap().unhealthy.is_some());
    beat.unhealthy = None;
    beat.sequence += 1;
    scene.input(0, Input::Heartbeat(beat));
    assert!(scene.bbs(0).world().cell(&words::cell_id("c1")).unwrap().unhealthy.is_none());
}

#[test]
fn rep_with_earlier_clock_is_recorded_within_one_heartbeat() {
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
    // A delayed heartbeat of the previous incarnation causes a probe and changes nothing.
    scene.input(0, Input::Heartbeat(words::heartbeat("c1", 4, 99)));
    assert_eq!(incarnation(&scene), 5);
}

#[test]
fn delayed_heartbeat_does_not_change_next_leader() {
    let mut scene = Scene::with(2, &["c1", "c2"]);
    let mut now = words::heartbeat("c1", 1, 50);
    now.evacuating = true;
    scene.input(0, Input::Heartbeat(now.clone()));
    scene.cells.remove("c1");
    scene.bbs[0] = None;
    scene.pass(3 * SECOND);
    assert!(scene.bbs(1).leads());
    scene.other_reps.insert("c1".into(), now);
    // This heartbeat was sent before the evacuation, but is received after the next leader was elected.
    scene.input(1, Input::Heartbeat(words::heartbeat("c1", 1, 3)));
    assert_eq!(scene.probes, [words::cell_id("c1")], "the leader probes the cell");
    assert!(scene.bbs(1).world().cell(&words::cell_id("c1")).unwrap().evacuating);
    assert_eq!(scene.times("cell.resumed.v1"), []);
}

#[test]
fn overtaken_probe_response_is_not_news() {
    let mut scene = Scene::with(1, &["c1"]);
    let mut later = words::heartbeat("c1", 1, 50);
    later.evacuating = true;
    scene.input(0, Input::Heartbeat(later));
    let cell = words::cell_id("c1");
    // This response was sent before the evacuation started, but is received after a heartbeat that reported
    // the evacuation.
    scene.input(0, Input::ProbeResult { cell: cell.clone(), answer: Some(words::heartbeat("c1", 1, 49)) });
    // The response also does not turn an older heartbeat into a change.
    scene.input(0, Input::Heartbeat(words::heartbeat("c1", 1, 49)));
    assert!(scene.bbs(0).world().cell(&cell).unwrap().evacuating);
    assert_eq!(scene.times("cell.resumed.v1"), []);
}

#[test]
fn next_leader_records_news_from_probe_response() {
    let mut scene = Scene::with(2, &["c1", "c2"]);
    scene.cells.remove("c1");
    scene.bbs[0] = None;
    scene.pass(3 * SECOND);
    let mut beat = words::heartbeat("c1", 1, 50);
    beat.unhealthy = Some("no disk".into());
    scene.other_reps.insert("c1".into(), beat.clone());
    scene.input(1, Input::Heartbeat(beat));
    assert!(scene.bbs(1).world().cell(&words::cell_id("c1")).unwrap().unhealthy.is_some());
}

// ---- which rep acts for a cell ----------------------------------------------------------------------------

fn attach(scene: &mut Scene, cell: &str, folder: u64) -> Result<(), Code> {
    let attach = Attach { folder: words::folder(folder) };
    let asked = scene.ask(0, ChangeRequest::Attach { cell: words::cell_id(cell), attach });
    done(scene, asked)
}

fn done(scene: &Scene, asked: u64) -> Result<(), Code> {
    match &scene.answers[&asked] {
        Reply::Done(done) => done.clone().map(drop).map_err(|refusal| refusal.code),
        other @ (Reply::Reported(_) | Reply::Rows(_) | Reply::Records(_)) => panic!("{other:?}"),
    }
}

/// Returns a heartbeat of another rep that uses the same cell id.
fn intruder(sequence: u64) -> Heartbeat {
    let mut beat = words::heartbeat("c1", 50, sequence);
    beat.presence.folder = words::folder(2);
    beat
}

#[test]
fn second_rep_of_live_cell_is_refused() {
    let mut scene = Scene::with(1, &["c1"]);
    let before = scene.decisions().len();
    assert_eq!(attach(&mut scene, "c1", 2), Err(Code::CellTaken));
    assert_eq!(attach(&mut scene, "c1", 1), Ok(()), "a rep with the same folder may return at once");
    scene.input(0, Input::Heartbeat(intruder(1)));
    assert_eq!(scene.orders, [("dismiss", words::cell_id("c1"))]);
    let report = words::lrp_report("web", 0, Epoch(scene.now), container(1, "c1"), start());
    let reports = Reports { folder: words::folder(2), reports: vec![report] };
    let asked = scene.ask(0, ChangeRequest::Cell { cell: words::cell_id("c1"), reports });
    let Reply::Reported(Err(refusal)) = &scene.answers[&asked] else { panic!("not refused") };
    assert_eq!(refusal.code, Code::CellTaken);
    assert!(
        scene.warned.iter().any(|why| why.contains("another rep represents cell c1")),
        "{:?}",
        scene.warned
    );
    let leave = Leave { folder: words::folder(2), incarnation: intruder(1).presence.incarnation };
    let asked = scene.ask(0, ChangeRequest::Leave { cell: words::cell_id("c1"), leave });
    assert_eq!(done(&scene, asked), Err(Code::CellTaken));
    assert_eq!(scene.decisions().len(), before, "no report of the second rep is recorded");
}

/// A rep that is allowed to act receives the current position of the log. Later it ignores every BBS that has
/// read less of the log. The World, which is the state folded from the log, must therefore contain all
/// entries about the rep's cell.
#[test]
fn attach_succeeds_after_journal_confirms_cell() {
    let mut scene = Scene::with(1, &["c1"]);
    scene.is_unreadable = true;
    let attach = Attach { folder: words::folder(1) };
    let asked = scene.ask(0, ChangeRequest::Attach { cell: words::cell_id("c1"), attach });
    assert!(!scene.answers.contains_key(&asked), "the journal has not confirmed the state of the cell");
    scene.is_unreadable = false;
    scene.pass(SECOND);
    assert_eq!(done(&scene, asked), Ok(()));
}

#[test]
fn second_rep_takes_over_lost_cell() {
    let mut scene = Scene::with(1, &["c1"]);
    scene.cells.clear();
    // The other rep's response to a probe is not a response of the probed rep.
    scene.other_reps.insert("c1".into(), intruder(1));
    scene.pass(8 * SECOND);
    assert_eq!(attach(&mut scene, "c1", 2), Err(Code::CellTaken));
    scene.pass(12 * SECOND);
    assert_eq!(scene.times("cell.disappeared.v1").len(), 1);
    assert_eq!(attach(&mut scene, "c1", 2), Ok(()));
    scene.input(0, Input::Heartbeat(intruder(2)));
    assert_eq!(scene.bbs(0).world().cell(&words::cell_id("c1")).unwrap().presence.folder, words::folder(2));
    // From this point on, the first rep is refused.
    assert_eq!(attach(&mut scene, "c1", 1), Err(Code::CellTaken));
    scene.input(0, Input::Heartbeat(words::heartbeat("c1", 90, 1)));
    assert_eq!(scene.times("cell.appeared.v1").len(), 2);
}

#[test]
fn second_rep_takes_over_cell_during_mass_loss() {
    let mut scene = Scene::with(1, &FIVE);
    scene.cells.clear();
    scene.pass(25 * SECOND);
    assert_eq!(scene.times("cell.disappeared.v1"), [], "probably a network fault");
    assert_eq!(attach(&mut scene, "c1", 2), Ok(()));
}

// ---- commands of operators --------------------------------------------------------------------------------

fn operator(scene: &mut Scene, request: Option<&str>, command: cell::Command) -> Result<(), Code> {
    let request_id = request.map(|id| id.parse().unwrap());
    let envelope = Envelope { request_id, reason: Some("new disk".into()), ..Envelope::default() };
    let (client, cell) = ("ada".parse().unwrap(), words::cell_id("c1"));
    let asked = scene.ask(0, ChangeRequest::Operator { client, envelope, cell, command });
    done(scene, asked)
}

#[test]
fn evacuation_is_recorded_and_ordered_until_rep_evacuates() {
    let mut scene = Scene::with(2, &["c1"]);
    let evacuate = cell::Command::Evacuate;
    assert_eq!(operator(&mut scene, Some("r1"), evacuate), Ok(()));
    let (_, decision) = scene.decisions().pop().unwrap();
    assert_eq!(operator(&mut scene, Some("r1"), evacuate), Ok(()));
    assert_eq!(operator(&mut scene, Some("r2"), evacuate), Ok(()), "repeated request without change");
    assert_eq!(scene.times("cell.evacuation_requested.v1").len(), 1);
    assert_eq!(decision.actor, Actor::Operator("ada".parse().unwrap()));
    assert_eq!((decision.reason.as_deref(), decision.request_id.unwrap().as_str()), (Some("new disk"), "r1"));

    // The rep does not receive the order. The order is repeated with every heartbeat, even by the next
    // leader.
    let ordered = |scene: &Scene| scene.orders.iter().filter(|(order, _)| *order == "evacuate").count();
    assert_eq!(ordered(&scene), 1);
    scene.pass(6 * SECOND);
    assert_eq!(ordered(&scene), 2);
    scene.bbs[0] = None;
    scene.pass(20 * SECOND);
    assert!(scene.bbs(1).leads() && ordered(&scene) > 3, "{:?}", scene.orders);

    // The rep evacuates, so the order is not repeated.
    scene.cells.clear();
    let mut beat = words::heartbeat("c1", 1, 500);
    beat.evacuating = true;
    scene.input(1, Input::Heartbeat(beat.clone()));
    let before = scene.orders.len();
    beat.sequence += 1;
    scene.input(1, Input::Heartbeat(beat));
    assert_eq!(scene.orders.len(), before);
    assert!(scene.bbs(1).world().cell(&words::cell_id("c1")).unwrap().evacuating);
}

#[test]
fn uncordon_ends_evacuation() {
    let mut scene = Scene::with(1, &["c1"]);
    assert_eq!(operator(&mut scene, None, cell::Command::Evacuate), Ok(()));
    let mut beat = words::heartbeat("c1", 1, 500);
    beat.evacuating = true;
    scene.input(0, Input::Heartbeat(beat.clone()));
    assert_eq!(operator(&mut scene, None, cell::Command::Uncordon), Ok(()));
    assert_eq!(scene.orders.last(), Some(&("uncordon", words::cell_id("c1"))));
    beat.evacuating = false;
    beat.sequence += 1;
    scene.input(0, Input::Heartbeat(beat));
    let cell = scene.bbs(0).world().cell(&words::cell_id("c1")).unwrap();
    assert!(!cell.evacuating && !cell.evacuation_requested);
    assert_eq!(scene.times("cell.resumed.v1").len(), 1);
}

#[test]
fn evacuated_rep_leaves_and_cell_can_be_forgotten() {
    let mut scene = Scene::with(1, &["c1"]);
    assert_eq!(operator(&mut scene, None, cell::Command::Forget), Err(Code::InvalidStateTransition));
    assert_eq!(operator(&mut scene, None, cell::Command::Evacuate), Ok(()));
    scene.cells.clear();
    let mut beat = words::heartbeat("c1", 1, 500);
    beat.evacuating = true;
    scene.input(0, Input::Heartbeat(beat.clone()));
    let leave = Leave { folder: words::folder(1), incarnation: beat.presence.incarnation };
    let asked = scene.ask(0, ChangeRequest::Leave { cell: words::cell_id("c1"), leave });
    assert_eq!(done(&scene, asked), Ok(()));
    let cell = scene.bbs(0).world().cell(&words::cell_id("c1")).unwrap();
    assert_eq!(
        (cell.present, cell.absent_reason.as_deref(), cell.evacuation_requested),
        (false, Some("evacuated"), false)
    );
    // The cell stays absent after heartbeats that its rep sent before or after the cell left.
    beat.sequence -= 1;
    scene.input(0, Input::Heartbeat(beat));
    assert!(!scene.bbs(0).world().is_present(&words::cell_id("c1")));
    assert_eq!(operator(&mut scene, None, cell::Command::Evacuate), Err(Code::CellAbsent));
    assert_eq!(operator(&mut scene, None, cell::Command::Forget), Ok(()));
    assert!(scene.bbs(0).world().cell(&words::cell_id("c1")).is_none());
    assert_eq!(operator(&mut scene, None, cell::Command::Forget), Err(Code::ResourceNotFound));
    // The cell may return with a new incarnation.
    scene.cells.insert("c1".into(), (2, 0));
    scene.pass(6 * SECOND);
    assert!(scene.bbs(0).world().is_present(&words::cell_id("c1")));
}

#[test]
fn evacuation_survives_rep_restart_and_ends_with_cell_loss() {
    let mut scene = Scene::with(1, &["c1"]);
    assert_eq!(operator(&mut scene, None, cell::Command::Evacuate), Ok(()));
    let evacuating = |scene: &mut Scene, incarnation, sequence| {
        let mut beat = words::heartbeat("c1", incarnation, sequence);
        beat.evacuating = true;
        scene.input(0, Input::Heartbeat(beat));
    };
    let wanted =
        |scene: &Scene| scene.bbs(0).world().cell(&words::cell_id("c1")).unwrap().evacuation_requested;
    scene.cells.clear();
    evacuating(&mut scene, 1, 500);
    scene.input(0, Input::Heartbeat(words::heartbeat("c1", 2, 1)));
    assert!(wanted(&scene), "the evacuation continues");
    evacuating(&mut scene, 2, 2);
    scene.pass(25 * SECOND);
    assert!(!scene.bbs(0).world().is_present(&words::cell_id("c1")));
    scene.input(0, Input::Heartbeat(words::heartbeat("c1", 3, 1)));
    assert!(!wanted(&scene), "the loss of the cell ends the evacuation");
}

#[test]
fn cordon_survives_restart_and_loss_of_cell() {
    let mut scene = Scene::with(1, &["c1"]);
    let cordoned = |scene: &Scene| scene.bbs(0).world().cell(&words::cell_id("c1")).unwrap().cordoned;
    for _ in 0..2 {
        assert_eq!(operator(&mut scene, None, cell::Command::Cordon), Ok(()));
        assert!(cordoned(&scene));
    }
    assert_eq!(scene.times("cell.cordoned.v1").len(), 1);
    scene.cells.clear();
    scene.input(0, Input::Heartbeat(words::heartbeat("c1", 2, 1)));
    scene.pass(25 * SECOND);
    assert!(!scene.bbs(0).world().is_present(&words::cell_id("c1")) && cordoned(&scene));
    scene.input(0, Input::Heartbeat(words::heartbeat("c1", 3, 1)));
    assert!(scene.bbs(0).world().is_present(&words::cell_id("c1")) && cordoned(&scene));
    assert_eq!(operator(&mut scene, None, cell::Command::Uncordon), Ok(()));
    assert!(!cordoned(&scene) && scene.orders.is_empty(), "a cordon needs no order to the rep");
}

#[test]
fn leader_and_standby_report_age_of_last_heartbeat() {
    let mut scene = Scene::with(2, &["c1"]);
    scene.cells.clear();
    scene.pass(12 * SECOND);
    for node in 0..2 {
        let answer = scene.query(node, Query::Rows(projections::queries::Query::Cells(Filter::default())));
        let Reply::Rows(Ok(rows)) = answer else { panic!("no answer") };
        let page: Page<CellRow> = serde_json::from_str(&rows).unwrap();
        assert_eq!(page.rows[0].state, CellState::Silent);
        assert!(
            page.rows[0].heartbeat_ms_ago.is_some_and(|ago| (10_000..20_000).contains(&ago)),
            "{:?}",
            page.rows
        );
        assert_eq!(scene.cluster(node).cells, [(CellState::Silent, 1)].into());
    }
}
