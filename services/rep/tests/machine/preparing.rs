//! Tests of the preparation of containers before their work is claimed.

use std::time::Duration;

use rep::{Input, Unprepared};

use crate::cell::Cell;
use crate::words;

const FULL: &str = "cannot create the container: No space left on device";

fn fault() -> Option<Unprepared> {
    Some(Unprepared { reason: FULL.into(), is_fault: true })
}

#[test]
fn work_whose_container_cannot_be_prepared_is_refused_and_never_claimed() {
    let mut cell = Cell::open();
    cell.advance(Duration::from_secs(1));
    cell.unprepared = fault();
    cell.bbs.desire("web", 1, cell.now);
    cell.bbs.desire_task("job", cell.now);
    cell.auction(1);
    let refused = &cell.performed[0].as_ref().unwrap().refused;
    assert_eq!(*refused, [(0, FULL.to_owned()), (1, FULL.to_owned())]);
    assert_eq!(cell.take_story(), "self-test", "no work is claimed");
    assert_eq!(cell.discarded.len(), 2);
    assert_eq!((cell.bbs.state("web", 0), cell.state_of_task("job")), ("UNCLAIMED", "PENDING"));
    cell.advance(Duration::from_millis(200));
    assert_eq!(cell.heartbeats.last().unwrap().free, words::settings().total);
    assert!(cell.rep.pending_counts().values().all(|count| *count == 0), "{:?}", cell.rep.pending_counts());
    // The instance and the task are started by another cell, or by this cell once it can create containers.
    cell.unprepared = None;
    cell.auction(2);
    assert_eq!((cell.bbs.state("web", 0), cell.state_of_task("job")), ("CLAIMED", "RUNNING"));
}

#[test]
fn three_quick_self_tests_follow_a_failed_preparation() {
    let mut cell = Cell::open();
    cell.advance(Duration::from_secs(1));
    cell.unprepared = fault();
    cell.bbs.desire("web", 1, cell.now);
    cell.auction(1);
    let failed = cell.now;
    for failures in 1..=3 {
        assert!(cell.take_story().contains("self-test"), "before failure {failures}");
        assert_eq!(cell.heartbeats.last().unwrap().unhealthy, None);
        cell.input(Input::SelfTested(Err("full".into())));
        cell.advance(Duration::from_secs(1));
    }
    assert_eq!(cell.heartbeats.last().unwrap().unhealthy.as_deref(), Some("full"));
    assert!(cell.now.since(failed) < Duration::from_secs(5), "within seconds");
    assert!(!cell.take_story().contains("self-test"), "further tests follow at the longer interval");
    cell.advance(Duration::from_secs(30));
    assert_eq!(cell.take_story().matches("self-test").count(), 1);
    cell.unprepared = None;
    cell.input(Input::SelfTested(Ok(())));
    cell.auction(2);
    assert_eq!(cell.bbs.state("web", 0), "CLAIMED");
    cell.advance(Duration::from_millis(200));
    assert_eq!(cell.heartbeats.last().unwrap().unhealthy, None);
}

#[test]
fn failed_preparations_leave_cell_healthy_if_self_test_passes() {
    let mut cell = Cell::open();
    cell.unprepared = fault();
    cell.bbs.desire("web", 1, cell.now);
    for number in 1..20 {
        cell.auction(number);
        if cell.take_story().contains("self-test") {
            cell.input(Input::SelfTested(Ok(())));
        }
        cell.advance(Duration::from_millis(100));
        assert_eq!(cell.heartbeats.last().unwrap().unhealthy, None);
    }
}

#[test]
fn only_cell_fault_triggers_early_self_test() {
    let mut cell = Cell::open();
    let reason = "no free host port in 20000-29999".to_owned();
    cell.unprepared = Some(Unprepared { reason: reason.clone(), is_fault: false });
    cell.bbs.desire("web", 1, cell.now);
    cell.auction(1);
    assert_eq!(cell.performed[0].as_ref().unwrap().refused, [(0, reason)]);
    // If a container fails after its work was claimed, the image or the secrets may be the reason. Such a
    // failure does not cause an early self-test either.
    cell.unprepared = None;
    cell.auction(2);
    let guid = cell.only();
    cell.set_container_state(guid, words::failed("failed to create container: no such image"));
    cell.advance(Duration::from_secs(5));
    assert!(!cell.take_story().contains("self-test"));
}

#[test]
fn answer_to_auctioneer_does_not_wait_for_slow_preparation() {
    let mut cell = Cell::open();
    cell.slow_preparation = true;
    cell.bbs.desire("web", 2, cell.now);
    cell.auction(1);
    cell.advance(Duration::from_millis(900));
    assert!(cell.performed.is_empty());
    cell.advance(Duration::from_millis(200));
    assert_eq!(cell.performed[0].as_ref().unwrap().refused, [], "work in preparation counts as accepted");
    cell.auction(2);
    assert_eq!(cell.preparing.len(), 2, "the second request prepares no work again");
    let mut late = cell.preparing.split_off(1);
    let ready = cell.preparations();
    cell.input(ready);
    assert_eq!(cell.take_story(), "claim, run");
    cell.preparing.append(&mut late);
    cell.unprepared = fault();
    let failed = cell.preparations();
    cell.input(failed);
    assert_eq!(cell.take_story(), "self-test");
    assert_eq!((cell.discarded.len(), cell.containers.len()), (1, 1));
}

#[test]
fn reservation_dropped_during_preparation_is_refused() {
    let mut cell = Cell::open();
    cell.slow_preparation = true;
    cell.bbs.desire("web", 1, cell.now);
    cell.auction(1);
    cell.evacuate();
    assert_eq!(cell.performed[0].as_ref().unwrap().refused.len(), 1);
    assert_eq!(cell.discarded.len(), 1);
    let late = cell.preparations();
    cell.input(late);
    assert_eq!(cell.bbs.state("web", 0), "UNCLAIMED");
}
