//! Tests of the evacuation of a cell.

use std::time::Duration;

use machines::task::EVACUATION_TIMED_OUT;
use schemas::cell::Evacuation;
use schemas::container::{ContainerState, Instance};
use schemas::entry::Event;
use schemas::isolation::Isolation;
use schemas::message::{RepOrder, Report, Reports};
use schemas::stamp::Stamp;
use schemas::task::Outcome;
use schemas::{Position, actual, evacuating, process};

use rep::Input;

use crate::cell::Cell;
use crate::words::{self, STOPPED};

/// Makes the instance `web/0` run on another cell.
fn start_replacement(cell: &mut Cell) {
    let steps = vec![
        process::ReportStep::Actual(actual::Command::Start {
            net: words::net_info(9),
            isolation: Isolation::NONE,
        }),
        process::ReportStep::Evacuating(evacuating::Command::Remove),
    ];
    let report = process::Report {
        domain: words::domain(),
        place: fixtures::place(0, "web"),
        epoch: cell.bbs.processes["web"].epoch,
        by: Instance { instance_guid: words::guid(9), cell_id: words::cell_id("c2") },
        observed_at: cell.now,
        steps,
    };
    let report = Report::Lrp { process_guid: words::process_guid("web"), report };
    let reported = cell.bbs.report(
        &Reports { folder: schemas::names::FolderId(uuid::Uuid::nil()), reports: vec![report] },
        cell.now,
    );
    assert_eq!(reported.results[0].refused, None);
}

#[test]
fn empty_cell_exits_after_one_read() {
    let mut cell = Cell::open();
    cell.evacuate();
    assert_eq!(cell.take_story(), "read, exit");
    assert!(cell.answers[0].as_ref().unwrap().evacuating);
    assert_eq!(cell.rep.alarm(), None);
    assert_eq!(cell.rep.step(cell.now, Input::Tick), []);
}

#[test]
fn running_instance_stays_routable_until_replacement_runs() {
    let mut cell = Cell::open();
    let guid = cell.running("web");
    cell.evacuate();
    assert_eq!(cell.take_story(), "set /e+unclaim");
    assert_eq!(cell.bbs.state("web", 0), "UNCLAIMED");
    assert_eq!(cell.bbs.evacuating_instance("web", 0).unwrap().instance_guid, guid);
    let expires_at =
        cell.bbs.processes["web"].slots.iter().next().unwrap().evacuating.as_ref().unwrap().expires_at;
    assert_eq!(expires_at, cell.now + Duration::from_secs(600));
    cell.advance(Duration::from_secs(25));
    assert!(cell.take_story().split(", ").all(|word| word == "read"));
    assert!(cell.containers.contains_key(&guid));
    start_replacement(&mut cell);
    cell.advance(Duration::from_secs(10));
    // The replacement removed the evacuating record when it started.
    assert_eq!(cell.take_story(), "read, delete, read, exit");
    assert!(cell.exited);
    assert!(cell.containers.is_empty());
}

/// If another definition replaces the evacuating instance, the container of the evacuating instance stays
/// until the new instance runs.
#[test]
fn running_instance_stays_routable_until_other_definition_runs() {
    let mut cell = Cell::open();
    let guid = cell.running("web");
    cell.evacuate();
    cell.take_story();
    let [old, new] = ["web", "v2"].map(|definition| fixtures::place(0, definition));
    let by = Instance { instance_guid: words::guid(9), cell_id: words::cell_id("c2") };
    let decide = |cell: &mut Cell, events: &[actual::Event]| {
        let events: Vec<_> = events.iter().cloned().map(Event::Actual).collect();
        let process = cell.bbs.processes.get_mut("web").unwrap();
        let decision = schemas::names::DecisionId(uuid::Uuid::from_u64_pair(8, process.version));
        let stamp = Stamp::root(decision, cell.now);
        machines::process::evolve(process, &events, &stamp);
    };
    let removed = actual::Event::Removed { places: old.into(), cause: actual::StopReason::Replaced };
    let claimed = actual::Event::Claimed { place: new.clone(), by: by.clone(), placement: None };
    decide(&mut cell, &[removed, actual::Event::Created { places: new.clone().into() }, claimed]);
    cell.advance(Duration::from_secs(25));
    assert!(cell.take_story().split(", ").all(|word| word == "read"), "{:?}", cell.story);
    assert!(cell.containers.contains_key(&guid) && cell.bbs.evacuating_instance("web", 0).is_some());
    decide(
        &mut cell,
        &[actual::Event::Started { place: new, by, net: words::net_info(9), isolation: Isolation::NONE }],
    );
    cell.advance(Duration::from_secs(20));
    assert_eq!(cell.take_story(), "read, remove /e, delete, read, exit");
    assert!(cell.exited && cell.containers.is_empty() && cell.bbs.evacuating_instance("web", 0).is_none());
}

#[test]
fn evacuating_cell_refuses_work() {
    let mut cell = Cell::open();
    cell.running("web");
    cell.evacuate();
    cell.bbs.desire("api", 1, cell.now);
    let work = cell.bbs.work().into_iter().filter(|work| work.key == words::lrp_key("api", 0, cell.now));
    cell.perform(words::perform(2, work.collect()));
    let refused = &cell.performed.last().unwrap().as_ref().unwrap().refused;
    assert_eq!(*refused, [(0, "the cell is evacuating".to_owned())]);
    cell.advance(Duration::from_millis(200));
    assert!(cell.heartbeats.last().unwrap().evacuating);
}

#[test]
fn rep_restarted_during_evacuation_keeps_timeout_and_refuses_work() {
    for began in [true, false] {
        let mut cell = Cell::open();
        cell.running("web");
        let start = cell.now;
        if began {
            cell.evacuate();
            cell.bbs.evacuation = Evacuation::Started(start);
        } else {
            // The order did not reach the previous rep.
            cell.bbs.evacuation = Evacuation::Requested;
        }
        cell.advance(Duration::from_secs(100));
        cell.heartbeats.clear();
        cell.restart(7);
        assert!(cell.heartbeats.first().unwrap().evacuating, "the first heartbeat reports the evacuation");
        cell.bbs.desire("api", 1, cell.now);
        let work = cell.bbs.work().into_iter().filter(|work| work.key == words::lrp_key("api", 0, cell.now));
        cell.perform(words::perform(2, work.collect()));
        let refused = &cell.performed.last().unwrap().as_ref().unwrap().refused;
        assert_eq!(*refused, [(0, "the cell is evacuating".to_owned())]);
        let expires_at =
            cell.bbs.processes["web"].slots.iter().next().unwrap().evacuating.as_ref().unwrap().expires_at;
        let first = if began { start } else { cell.now };
        assert_eq!(expires_at, first + Duration::from_secs(600));
        cell.advance(Duration::from_secs(501));
        assert_eq!(cell.exited, began);
    }
}

#[test]
fn starting_rep_reads_records_no_older_than_its_registration() {
    let mut rep = rep::Rep::new(
        words::settings(),
        Position(7),
        words::incarnation(),
        schemas::names::IdGenerator::new(1),
    );
    rep.step(words::at(0), Input::Tick);
    rep.step(words::at(0), Input::Containers(vec![]));
    let asked = rep.step(words::at(0), Input::Turn);
    let [rep::Effect::AskRecords { records, .. }] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(records.at_least, Some(Position(7)));
}

#[test]
fn outdated_order_changes_nothing() {
    let at = |position| RepOrder { term: 1, position: Position(position) };
    let mut cell = Cell::open();
    cell.running("web");
    cell.bbs.position = 90;
    let evacuates = |cell: &Cell| cell.answers.last().unwrap().as_ref().unwrap().evacuating;
    cell.input(Input::Evacuate { requester: 1, order: at(50) });
    cell.input(Input::Uncordon { requester: 1, order: at(60) });
    assert!(!evacuates(&cell));
    cell.input(Input::Evacuate { requester: 1, order: at(50) });
    assert!(!evacuates(&cell), "an outdated order to evacuate is ignored");
    cell.input(Input::Evacuate { requester: 1, order: at(70) });
    cell.input(Input::Uncordon { requester: 1, order: at(60) });
    assert!(evacuates(&cell), "an outdated order to uncordon is ignored");
    // An order with a position beyond the end of the log is forged. The forged order outranks other orders
    // only for a short time.
    cell.input(Input::Evacuate { requester: 1, order: at(u64::MAX) });
    cell.input(Input::Uncordon { requester: 1, order: at(90) });
    assert!(evacuates(&cell));
    cell.advance(Duration::from_secs(11));
    let known = cell.bbs.position;
    cell.input(Input::Uncordon { requester: 1, order: at(known) });
    assert!(!evacuates(&cell));
}

#[test]
fn evacuation_unclaims_container_that_is_not_running() {
    let mut cell = Cell::open();
    cell.bbs.desire("web", 1, cell.now);
    cell.auction(1);
    let guid = cell.only();
    cell.set_container_state(guid, ContainerState::Created);
    cell.story.clear();
    cell.evacuate();
    assert_eq!(cell.take_story(), "read, unclaim, delete");
    assert_eq!(cell.bbs.state("web", 0), "UNCLAIMED");
    cell.advance(Duration::from_secs(2));
    assert_eq!(cell.take_story(), "read, exit");
}

#[test]
fn evacuation_unclaims_reservation_with_unanswered_claim() {
    let mut cell = Cell::open();
    cell.bbs.desire("web", 1, cell.now);
    let perform = Input::Perform { requester: 1, perform: words::perform(1, cell.bbs.work()) };
    words::step_prepared(&mut cell.rep, cell.now, perform);
    let sent = cell.rep.step(cell.now, Input::Turn);
    let [rep::Effect::Report { id, reports }] = sent.as_slice() else { panic!("{sent:?}") };
    let answer = cell.bbs.report(reports, cell.now);
    cell.evacuate();
    cell.input(Input::Reported { id: *id, answer: Some(Ok(answer)) });
    let told = cell.take_story();
    assert!(told.contains("unclaim"), "{told}");
    assert!(!told.contains("run"), "{told}");
    assert_eq!(cell.bbs.state("web", 0), "UNCLAIMED");
    cell.advance(Duration::from_secs(2));
    assert!(cell.exited);
}

#[test]
fn container_end_removes_evacuating_record() {
    for (state, told) in [(STOPPED, "remove /e, delete"), (words::failed("broken"), "remove /e, delete")] {
        let mut cell = Cell::open();
        let guid = cell.running("web");
        cell.evacuate();
        cell.story.clear();
        cell.set_container_state(guid, state);
        assert_eq!(cell.take_story(), told);
        assert_eq!(cell.bbs.evacuating_instance("web", 0), None);
        assert_eq!(cell.bbs.state("web", 0), "UNCLAIMED");
    }
}

#[test]
fn evacuation_waits_for_running_task() {
    let mut cell = Cell::open();
    let guid = cell.running_task("count");
    cell.evacuate();
    cell.advance(Duration::from_secs(300));
    assert!(cell.take_story().split(", ").all(|word| word == "read"));
    cell.set_container_state(guid, words::succeeded("42"));
    assert_eq!(cell.take_story(), "succeeded(42), delete");
    cell.advance(Duration::from_secs(2));
    assert!(cell.exited);
}

#[test]
fn evacuation_timeout_fails_tasks_and_deletes_containers() {
    let mut cell = Cell::open();
    let web = cell.running("web");
    cell.running_task("count");
    cell.evacuate();
    cell.advance(Duration::from_secs(599));
    assert_eq!(cell.bbs.evacuating_instance("web", 0).unwrap().instance_guid, web);
    cell.story.clear();
    cell.advance(Duration::from_secs(5));
    assert!(cell.exited);
    assert!(cell.containers.is_empty());
    assert_eq!(cell.bbs.evacuating_instance("web", 0), None);
    assert_eq!(cell.bbs.state("web", 0), "UNCLAIMED");
    let outcome = &cell.bbs.tasks["count"].completed().unwrap().outcome;
    assert_eq!(*outcome, Outcome::Failed { reason: EVACUATION_TIMED_OUT.into() });
    let told = cell.take_story();
    assert!(told.ends_with("exit"), "{told}");
}

#[test]
fn evacuating_cell_without_bbs_exits_after_timeout() {
    let mut cell = Cell::open();
    cell.running("web");
    cell.lose_messages = usize::MAX;
    cell.evacuate();
    cell.advance(Duration::from_secs(631));
    assert!(cell.exited);
    assert!(cell.containers.is_empty());
}

#[test]
fn restarted_rep_removes_evacuating_records_of_missing_containers() {
    let mut cell = Cell::open();
    cell.running("web");
    cell.evacuate();
    claim_replacement(&mut cell);
    let bbs = cell.bbs;
    let mut cell = Cell::unstarted(words::settings(), bbs, std::collections::BTreeMap::new());
    cell.now = words::at(60_000);
    cell.input(Input::Tick);
    assert_eq!(cell.bbs.evacuating_instance("web", 0), None);
    assert_eq!(cell.bbs.state("web", 0), "CLAIMED");
}

/// Makes another cell claim the instance `web/0`.
fn claim_replacement(cell: &mut Cell) {
    let report = process::Report {
        domain: words::domain(),
        place: fixtures::place(0, "web"),
        epoch: cell.bbs.processes["web"].epoch,
        by: Instance { instance_guid: words::guid(9), cell_id: words::cell_id("c2") },
        observed_at: cell.now,
        steps: vec![process::ReportStep::Actual(actual::Command::Claim { placement: None })],
    };
    let report = Report::Lrp { process_guid: words::process_guid("web"), report };
    cell.bbs.report(
        &Reports { folder: schemas::names::FolderId(uuid::Uuid::nil()), reports: vec![report] },
        cell.now,
    );
}
