//! Tests of stop orders for instances and of the cancellation of tasks.

use std::time::Duration;

use schemas::container::ContainerState;
use schemas::message::Stop;
use schemas::refusal::Code;
use schemas::{process, task};

use rep::{Effect, Input};

use crate::cell::Cell;
use crate::words::{self, STOPPED};

#[test]
fn instance_is_stopped_gracefully_and_then_removed() {
    let mut cell = Cell::open();
    let guid = cell.running("web");
    cell.bbs.process("web", &process::Command::Remove, cell.now).unwrap();
    cell.stop(guid);
    cell.stop(guid);
    assert_eq!(cell.take_story(), "stop");
    cell.set_container_state(guid, STOPPED);
    assert_eq!(cell.take_story(), "remove, delete");
    assert_eq!(cell.bbs.state("web", 0), "-");
}

#[test]
fn lost_stop_order_is_repaired_by_next_poll() {
    let mut cell = Cell::open();
    let guid = cell.running("web");
    cell.bbs.process("web", &process::Command::Remove, cell.now).unwrap();
    cell.advance(Duration::from_secs(30));
    assert_eq!(cell.take_story(), "read, stop");
    cell.set_container_state(guid, STOPPED);
    assert_eq!(cell.take_story(), "remove, delete");
}

#[test]
fn reservation_with_stop_order_never_runs() {
    let mut cell = Cell::open();
    cell.bbs.desire("web", 1, cell.now);
    let perform = Input::Perform { requester: 1, perform: words::perform(1, cell.bbs.work()) };
    words::step_prepared(&mut cell.rep, cell.now, perform);
    let sent = cell.rep.step(cell.now, Input::Turn);
    let [Effect::Report { id, reports }] = sent.as_slice() else { panic!("{sent:?}") };
    let answer = cell.bbs.report(reports, cell.now);
    let guid = cell.bbs.holder("web", 0).unwrap().instance_guid;
    // The BBS has recorded the claim, but the rep has not received the answer yet.
    cell.bbs.process("web", &process::Command::Remove, cell.now).unwrap();
    let key = words::lrp_key("web", 0, words::at(0));
    cell.input(Input::Stop(Stop { term: 1, containers: vec![(key, guid)] }));
    cell.input(Input::Reported { id: *id, answer: Some(Ok(answer)) });
    assert_eq!(cell.take_story(), "remove");
    assert!(cell.containers.is_empty());
    assert_eq!(cell.bbs.state("web", 0), "-");
}

#[test]
fn claim_answered_with_stop_never_runs() {
    let mut cell = Cell::open();
    cell.bbs.desire("web", 1, cell.now);
    cell.lose_answers = 1;
    cell.auction(1);
    assert_eq!(cell.take_story(), "claim");
    // The order to stop is lost. The answer to the repeated claim is the first message that contains the
    // order.
    cell.bbs.process("web", &process::Command::Remove, cell.now).unwrap();
    cell.advance(Duration::from_secs(1));
    assert_eq!(cell.take_story(), "claim, remove");
    assert!(cell.containers.is_empty());
    assert_eq!(cell.bbs.state("web", 0), "-");
}

#[test]
fn order_for_other_epoch_or_from_earlier_leader_is_ignored() {
    let mut cell = Cell::open();
    let guid = cell.running("web");
    let other = words::lrp_key("web", 0, words::at(5));
    cell.input(Input::Stop(Stop { term: 2, containers: vec![(other, guid)] }));
    cell.stop(guid);
    assert_eq!(cell.take_story(), "");
    cell.evacuate();
    let refused = cell.answers.last().unwrap().as_ref().unwrap_err();
    assert_eq!(refused.code, Code::StaleTerm);
}

#[test]
fn cancelled_task_is_read_and_deleted() {
    let mut cell = Cell::open();
    let guid = cell.running_task("count");
    cell.bbs.task("count", &task::Command::Cancel, cell.now).unwrap();
    let work = cell.containers[&guid].work.clone();
    cell.input(Input::Cancel(Stop { term: 1, containers: vec![(work, guid)] }));
    assert_eq!(cell.take_story(), "read, delete");
    assert!(cell.containers.is_empty());
    assert_eq!(cell.state_of_task("count"), "COMPLETED");
}

#[test]
fn lost_cancellation_is_repaired_by_next_poll() {
    let mut cell = Cell::open();
    cell.running_task("count");
    cell.bbs.task("count", &task::Command::Cancel, cell.now).unwrap();
    cell.advance(Duration::from_secs(30));
    assert_eq!(cell.take_story(), "read, delete");
}

/// The gap described in Diego Dev Notes, "Cancelling Tasks": a task is cancelled, resolved and created again
/// under the same guid before the rep notices the cancellation.
#[test]
fn reused_guid_keeps_epochs_apart() {
    let mut cell = Cell::open();
    let old = cell.running_task("count");
    let later = cell.now + Duration::from_secs(1);
    cell.bbs.task("count", &task::Command::Cancel, later).unwrap();
    cell.bbs.task("count", &task::Command::Resolve, later).unwrap();
    cell.bbs.desire_task("count", later);
    cell.now = later;
    cell.auction(2);
    assert_eq!(cell.take_story(), "start task, run");
    let new = *cell.containers.keys().find(|guid| **guid != old).unwrap();
    assert_eq!(cell.bbs.tasks["count"].holder().unwrap().instance_guid, new);
    // A late duplicate of the first epoch's cancellation does not affect the second epoch.
    let work = cell.containers[&old].work.clone();
    cell.input(Input::Cancel(Stop { term: 1, containers: vec![(work, new)] }));
    assert_eq!(cell.take_story(), "");
    // The result of the old container is not an outcome of the new task.
    cell.set_container_state(old, words::succeeded("old"));
    assert_eq!(cell.take_story(), "succeeded(old), delete");
    assert_eq!(cell.state_of_task("count"), "RUNNING");
    cell.set_container_state(new, ContainerState::Running(words::net_info(1)));
    cell.set_container_state(new, words::succeeded("new"));
    assert_eq!(cell.take_story(), "succeeded(new), delete");
    assert_eq!(cell.state_of_task("count"), "COMPLETED");
}

#[test]
fn container_of_earlier_epoch_is_deleted_by_poll() {
    let mut cell = Cell::open();
    let old = cell.running_task("count");
    cell.bbs.task("count", &task::Command::Cancel, cell.now).unwrap();
    cell.bbs.task("count", &task::Command::Resolve, cell.now).unwrap();
    cell.bbs.desire_task("count", cell.now + Duration::from_secs(1));
    cell.advance(Duration::from_secs(30));
    assert_eq!(cell.take_story(), "read, delete");
    assert!(!cell.containers.contains_key(&old));
    assert_eq!(cell.state_of_task("count"), "PENDING");
}
