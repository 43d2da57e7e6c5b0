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
    cell.pass(Duration::from_secs(1));
    cell.unprepared = fault();
    cell.bbs.desire("web", 1, cell.now);
    cell.bbs.desire_task("job", cell.now);
    cell.auction(1);
    let refused = &cell.performed[0].as_ref().unwrap().refused;
    assert_eq!(*refused, [(0, FULL.to_owned()), (1, FULL.to_owned())]);
    assert_eq!(cell.told(), "self-test", "nothing is claimed");
    assert_eq!(cell.discarded.len(), 2);
    assert_eq!((cell.bbs.state("web", 0), cell.state_of_task("job")), ("UNCLAIMED", "PENDING"));
    cell.pass(Duration::from_millis(200));
    assert_eq!(cell.heartbeats.last().unwrap().free, words::settings().total);
    assert!(cell.rep.books().values().all(|count| *count == 0), "{:?}", cell.rep.books());
    // Another cell starts both, or this cell once it can.
    cell.unprepared = None;
    cell.auction(2);
    assert_eq!((cell.bbs.state("web", 0), cell.state_of_task("job")), ("CLAIMED", "RUNNING"));
}

#[test]
fn three_quick_self_tests_follow_a_failed_preparation() {
    let mut cell = Cell::open();
    cell.pass(Duration::from_secs(1));
    cell.unprepared = fault();
    cell.bbs.desire("web", 1, cell.now);
    cell.auction(1);
    let failed = cell.now;
    for failures in 1..=3 {
        assert!(cell.told().contains("self-test"), "before failure {failures}");
        assert_eq!(cell.heartbeats.last().unwrap().unhealthy, None);
        cell.input(Input::SelfTested(Err("full".into())));
        cell.pass(Duration::from_secs(1));
    }
    assert_eq!(cell.heartbeats.last().unwrap().unhealthy.as_deref(), Some("full"));
    assert!(cell.now.since(failed) < Duration::from_secs(5), "within seconds");
    assert!(!cell.told().contains("self-test"), "then they are rare again");
    cell.pass(Duration::from_secs(30));
    assert_eq!(cell.told().matches("self-test").count(), 1);
    cell.unprepared = None;
    cell.input(Input::SelfTested(Ok(())));
    cell.auction(2);
    assert_eq!(cell.bbs.state("web", 0), "CLAIMED");
    cell.pass(Duration::from_millis(200));
    assert_eq!(cell.heartbeats.last().unwrap().unhealthy, None);
}

#[test]
fn failed_preparations_leave_cell_healthy_if_self_test_passes() {
    let mut cell = Cell::open();
    cell.unprepared = fault();
    cell.bbs.desire("web", 1, cell.now);
    for number in 1..20 {
        cell.auction(number);
        if cell.told().contains("self-test") {
            cell.input(Input::SelfTested(Ok(())));
        }
        cell.pass(Duration::from_millis(100));
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
    // A container that fails after its work was claimed does not bring it forward either: its image or its
    // secrets may be the cause.
    cell.unprepared = None;
    cell.auction(2);
    let guid = cell.only();
    cell.becomes(guid, words::failed("failed to create container: no such image"));
    cell.pass(Duration::from_secs(5));
    assert!(!cell.told().contains("self-test"));
}

#[test]
fn answer_to_auctioneer_does_not_wait_for_slow_preparation() {
    let mut cell = Cell::open();
    cell.slow_preparation = true;
    cell.bbs.desire("web", 2, cell.now);
    cell.auction(1);
    cell.pass(Duration::from_millis(900));
    assert!(cell.performed.is_empty());
    cell.pass(Duration::from_millis(200));
    assert_eq!(cell.performed[0].as_ref().unwrap().refused, [], "what is being prepared counts as taken");
    cell.auction(2);
    assert_eq!(cell.preparing.len(), 2, "what it has is not prepared twice");
    let mut late = cell.preparing.split_off(1);
    let ready = cell.preparations();
    cell.input(ready);
    assert_eq!(cell.told(), "claim, run");
    cell.preparing.append(&mut late);
    cell.unprepared = fault();
    let failed = cell.preparations();
    cell.input(failed);
    assert_eq!(cell.told(), "self-test");
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
