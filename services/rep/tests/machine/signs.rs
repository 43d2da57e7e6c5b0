//! Tests of heartbeats, self-tests and terms.

use std::time::Duration;

use schemas::cluster::Terms;
use schemas::container::ContainerState;
use schemas::message::{Perform, PerformId, Stop};
use schemas::refusal::Code;

use rep::Input;

use crate::cell::Cell;
use crate::words;

#[test]
fn heartbeats_follow_interval_and_changes() {
    let mut cell = Cell::open();
    cell.heartbeats.clear();
    cell.advance(Duration::from_secs(20));
    assert_eq!(cell.heartbeats.len(), 4);
    assert!(cell.heartbeats.is_sorted_by(|one, two| one.sequence < two.sequence));
    cell.heartbeats.clear();
    cell.advance(Duration::from_secs(1));
    cell.bbs.desire("web", 5, cell.now);
    cell.auction(3);
    // The last heartbeat was sent a second before the change, so the change is reported immediately.
    assert_eq!(cell.heartbeats.len(), 1);
    let heartbeat = &cell.heartbeats[0];
    assert_eq!(heartbeat.free.memory_mb, 500);
    assert_eq!(heartbeat.starting, 5);
    assert_eq!(heartbeat.performed, PerformId { term: 1, number: 3 });
    // Further changes within 200 ms are reported together.
    for guid in cell.containers.keys().copied().collect::<Vec<_>>() {
        cell.set_container_state(guid, words::failed("broken"));
    }
    assert_eq!(cell.heartbeats.len(), 1);
    cell.advance(Duration::from_millis(200));
    assert_eq!(cell.heartbeats.len(), 2);
    assert_eq!(cell.heartbeats[1].free, words::settings().total);
}

#[test]
fn room_freed_between_heartbeats_triggers_heartbeat() {
    let mut cell = Cell::open();
    cell.heartbeats.clear();
    cell.bbs.desire("web", 8, cell.now);
    cell.auction(1);
    assert_eq!(cell.containers.len(), 8);
    // Changes within 200 ms are reported together.
    for guid in cell.containers.keys().copied().collect::<Vec<_>>() {
        cell.set_container_state(guid, words::failed("broken"));
    }
    cell.advance(Duration::from_millis(200));
    assert_eq!(cell.heartbeats.len(), 1);
    assert_eq!(cell.heartbeats[0].free, words::settings().total);
}

#[test]
fn election_triggers_heartbeat() {
    let mut cell = Cell::open();
    cell.advance(Duration::from_secs(1));
    cell.heartbeats.clear();
    cell.input(Input::Elected);
    assert_eq!(cell.heartbeats.len(), 1);
    cell.input(Input::Elected);
    cell.input(Input::Elected);
    assert_eq!(cell.heartbeats.len(), 1, "changes in quick succession are reported together");
    cell.advance(Duration::from_millis(200));
    assert_eq!(cell.heartbeats.len(), 2);
}

#[test]
fn clock_jumps_do_not_interrupt_heartbeats() {
    let mut cell = Cell::open();
    let guid = cell.running("web");
    for seconds in [-30_i64, 3_600, -3_600] {
        cell.heartbeats.clear();
        let step = Duration::from_secs(seconds.unsigned_abs());
        cell.now = if seconds < 0 { cell.now - step } else { cell.now + step };
        // If a process slept until the alarm, the clock shows a different time.
        cell.input(Input::Turn);
        cell.advance(Duration::from_secs(31));
        assert!((6..=8).contains(&cell.heartbeats.len()), "{seconds} s: {}", cell.heartbeats.len());
        assert!(cell.take_story().contains("read"), "polls continue, too");
    }
    assert_eq!(cell.bbs.holder("web", 0).unwrap().instance_guid, guid);
}

#[test]
fn cell_is_unhealthy_from_third_failed_self_test_until_success() {
    let mut cell = Cell::open();
    cell.advance(Duration::from_secs(600));
    for failures in 1..=3 {
        assert!(cell.story.contains(&"self-test".to_owned()), "before failure {failures}");
        cell.story.clear();
        assert_eq!(cell.heartbeats.last().unwrap().unhealthy, None);
        cell.input(Input::SelfTested(Err("no disk".into())));
        cell.advance(Duration::from_secs(30));
    }
    assert_eq!(cell.heartbeats.last().unwrap().unhealthy.as_deref(), Some("no disk"));
    cell.bbs.desire("web", 1, cell.now);
    cell.auction(1);
    let refused = &cell.performed[0].as_ref().unwrap().refused;
    assert_eq!(*refused, [(0, "the cell is unhealthy: no disk".to_owned())]);
    cell.input(Input::SelfTested(Ok(())));
    cell.advance(Duration::from_millis(200));
    assert_eq!(cell.heartbeats.last().unwrap().unhealthy, None);
    cell.auction(2);
    assert_eq!(cell.bbs.state("web", 0), "CLAIMED");
}

#[test]
fn auctioneer_of_lower_term_is_refused() {
    let mut cell = Cell::open();
    let perform = |term| Perform { id: PerformId { term, number: 1 }, work: vec![] };
    cell.bbs.terms.auctioneer = 2;
    cell.advance(Duration::from_secs(31));
    for term in [2, 1, 2, 3, 2] {
        cell.perform(perform(term));
    }
    let refused: Vec<bool> = cell.performed.iter().map(Result::is_err).collect();
    assert_eq!(refused, [false, true, false, false, true]);
    assert_eq!(cell.performed[1].as_ref().unwrap_err().code, Code::StaleTerm);
}

#[test]
fn forged_term_does_not_block_real_leader() {
    let perform = |term, number| Perform { id: PerformId { term, number }, work: vec![] };
    for forged in [u64::MAX, 1 << 63, 7, 6] {
        let mut cell = Cell::open();
        cell.bbs.terms = Terms { bbs: 5, auctioneer: 5 };
        cell.advance(Duration::from_secs(31));
        let ask = |cell: &mut Cell, term| {
            cell.perform(perform(term, 1));
            let order = cell.order(term);
            cell.input(Input::Evacuate { requester: 1, order });
            [cell.performed.pop().unwrap().map(drop), cell.answers.pop().unwrap().map(drop)]
        };
        cell.input(Input::Stop(Stop { term: forged, containers: vec![] }));
        cell.perform(perform(forged, 9));
        let order = cell.order(forged);
        cell.input(Input::State { requester: 1, order });
        assert!(cell.answers.pop().unwrap().is_ok(), "a state request is answered in any term");
        let refused = cell.performed.pop().unwrap().err().map(|refusal| refusal.code);
        assert_eq!(refused, (forged > 6).then_some(Code::Unavailable), "{forged}");
        if forged == 6 {
            // A new leader may have been elected at this moment, so the rep accepts the term for some
            // seconds.
            let codes = ask(&mut cell, 5).map(|answer| answer.unwrap_err().code);
            assert_eq!(codes, [Code::StaleTerm; 2]);
            cell.advance(Duration::from_secs(15));
        }
        cell.perform(perform(5, 1));
        assert!(cell.performed.pop().unwrap().is_ok(), "{forged}");
        cell.advance(Duration::from_secs(6));
        assert_eq!(cell.heartbeats.last().unwrap().performed, PerformId { term: 5, number: 1 });
        // The rep does not accept the forged term again before the log names this term.
        cell.perform(perform(forged, 10));
        assert!(cell.performed.pop().unwrap().is_err());
        assert!(ask(&mut cell, 5).iter().all(Result::is_ok));
    }
}

#[test]
fn leader_of_skipped_term_is_obeyed_after_bbs_answer() {
    let perform = |term| Perform { id: PerformId { term, number: 1 }, work: vec![] };
    let mut cell = Cell::open();
    cell.bbs.terms = Terms { bbs: 3, auctioneer: 4 };
    cell.perform(perform(4));
    assert_eq!(cell.performed.pop().unwrap().unwrap_err().code, Code::Unavailable);
    cell.advance(Duration::from_secs(1));
    cell.perform(perform(4));
    assert!(cell.performed.pop().unwrap().is_ok(), "the rep has read the terms from the BBS");
    cell.perform(perform(3));
    assert_eq!(cell.performed.pop().unwrap().unwrap_err().code, Code::StaleTerm);
}

#[test]
fn probe_is_answered_with_cell_state() {
    let mut cell = Cell::open();
    cell.running("web");
    let order = cell.order(1);
    cell.input(Input::State { requester: 1, order });
    let heartbeat = cell.answers[0].as_ref().unwrap();
    assert_eq!(heartbeat.free.memory_mb, 900);
    assert_eq!(heartbeat.cell_id, words::cell_id("c1"));
    assert_eq!(heartbeat.presence.incarnation, words::incarnation());
}

#[test]
fn running_containers_do_not_count_as_starting() {
    let mut cell = Cell::open();
    cell.bbs.desire("web", 3, cell.now);
    cell.auction(1);
    let guid = *cell.containers.keys().next().unwrap();
    cell.set_container_state(guid, ContainerState::Running(words::net_info(1)));
    cell.advance(Duration::from_secs(6));
    assert_eq!(cell.heartbeats.last().unwrap().starting, 2);
}
