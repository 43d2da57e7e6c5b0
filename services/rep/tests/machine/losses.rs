//! Tests of lost, refused and late messages and answers. Also tests disagreements between records and
//! containers.

use std::time::Duration;

use schemas::container::{ContainerState, Instance};
use schemas::isolation::Isolation;
use schemas::message::{PerformReply, Report, Reports};
use schemas::refusal::{Code, Refusal};
use schemas::{actual, process};

use rep::reconcile::{Holder, Row, task};
use rep::{Effect, Input};

use crate::cell::Cell;
use crate::words;

const SECOND: Duration = Duration::from_secs(1);

/// Makes another cell report on `web/0`.
pub(crate) fn report_from_other_cell(cell: &mut Cell, container: u64, step: actual::Command) {
    let report = process::Report {
        domain: words::domain(),
        place: fixtures::place(0, "web"),
        epoch: cell.bbs.processes["web"].epoch,
        by: Instance { instance_guid: words::guid(container), cell_id: words::cell_id("c2") },
        observed_at: cell.now,
        steps: vec![process::ReportStep::Actual(step)],
    };
    let report = Report::Lrp { process_guid: words::process_guid("web"), report };
    let reported = cell.bbs.report(
        &Reports { folder: schemas::names::FolderId(uuid::Uuid::nil()), reports: vec![report] },
        cell.now,
    );
    assert_eq!(reported.results[0].refused, None);
}

#[test]
fn lost_claim_is_repeated_after_one_second() {
    let mut cell = Cell::open();
    cell.bbs.desire("web", 1, cell.now);
    cell.lose_messages = 2;
    cell.auction(1);
    assert_eq!(cell.take_story(), "claim");
    let books = [
        ("pending record reads", 0),
        ("unsettled reports", 1),
        ("queued reports", 0),
        ("unanswered requests of auctioneers", 0),
        ("reservations", 1),
    ];
    assert_eq!(cell.rep.pending_counts(), books.into());
    cell.advance(SECOND);
    assert_eq!(cell.take_story(), "claim");
    cell.advance(SECOND);
    assert_eq!(cell.take_story(), "");
    cell.advance(SECOND);
    assert_eq!(cell.take_story(), "claim, run");
    assert!(cell.rep.pending_counts().values().all(|left| *left == 0), "{:?}", cell.rep.pending_counts());
}

#[test]
fn claim_with_lost_answer_is_repeated_and_runs_once() {
    let mut cell = Cell::open();
    cell.bbs.desire("web", 1, cell.now);
    cell.lose_answers = 1;
    cell.auction(1);
    cell.advance(SECOND);
    assert_eq!(cell.take_story(), "claim, claim, run");
    assert_eq!(cell.containers.len(), 1);
}

#[test]
fn report_on_changed_record_is_judged_again() {
    let mut cell = Cell::open();
    cell.bbs.desire("web", 1, cell.now);
    cell.auction(1);
    let guid = cell.only();
    cell.set_container_state(guid, ContainerState::Created);
    cell.take_story();
    cell.advance(SECOND);
    cell.bbs.process("web", &process::Command::Retire { index: 0, definition_id: None }, cell.now).unwrap();
    cell.set_container_state(guid, ContainerState::Running(words::net_info(1)));
    // The first report is refused and returns the current record. The rep stops the container and reports
    // again.
    assert_eq!(cell.take_story(), "start+remove /e, stop, start+remove /e");
    assert_eq!(cell.bbs.state("web", 0), "RUNNING");
}

#[test]
fn task_with_recorded_start_runs_after_repeated_answer() {
    let mut cell = Cell::open();
    cell.bbs.desire_task("count", cell.now);
    cell.lose_answers = 1;
    cell.auction(1);
    // The report is refused for now. The returned record names this container as RUNNING, although the
    // container has not been started yet.
    cell.bbs.lost_cells.insert(words::cell_id("c1"));
    cell.advance(SECOND);
    assert_eq!(cell.take_story(), "start task, start task, read");
    assert_eq!(cell.state_of_task("count"), "RUNNING");
    let row = Row::Task(task::Container::Reserved, task::Task::Running(Holder::Alpha));
    assert!(!cell.rep.applied_rows().contains_key(&row));
    cell.bbs.lost_cells.clear();
    cell.advance(2 * SECOND);
    assert!(cell.rep.applied_rows().contains_key(&row), "a row without steps");
    assert!(cell.take_story().ends_with("start task, run"), "{:?}", cell.story);
}

#[test]
fn claim_of_dropped_reservation_is_not_repeated() {
    let mut cell = Cell::open();
    cell.bbs.desire("web", 1, cell.now);
    cell.slow_answers = 1;
    cell.lose_messages = 1;
    cell.auction(1);
    assert_eq!(cell.take_story(), "claim");
    // The reservation expires before the missing answer is detected.
    cell.advance(Duration::from_secs(61));
    cell.deliver_delayed();
    cell.advance(Duration::from_secs(10));
    assert!(!cell.take_story().contains("claim"));
    assert_eq!(cell.bbs.state("web", 0), "UNCLAIMED");
}

#[test]
fn completed_container_is_kept_until_bbs_answers() {
    let mut cell = Cell::open();
    let guid = cell.running_task("count");
    cell.lose_messages = usize::MAX;
    cell.set_container_state(guid, words::succeeded("42"));
    cell.advance(Duration::from_secs(90));
    assert_eq!(cell.containers.len(), 1);
    assert_eq!(cell.state_of_task("count"), "RUNNING");
    cell.lose_messages = 0;
    cell.advance(Duration::from_secs(16));
    assert_eq!(cell.containers.len(), 0);
    assert_eq!(cell.state_of_task("count"), "COMPLETED");
    let told = cell.take_story();
    assert!(told.contains("succeeded(42), delete"), "{told}");
}

#[test]
fn crash_with_lost_answer_counts_once() {
    let mut cell = Cell::open();
    let guid = cell.running("web");
    cell.lose_answers = 1;
    cell.set_container_state(guid, words::failed("broken"));
    assert_eq!(cell.take_story(), "crash(broken)");
    cell.advance(SECOND);
    // The second report is refused because the record names no container. The table then deletes the
    // container.
    assert_eq!(cell.take_story(), "crash(broken), delete");
    assert_eq!(cell.bbs.processes["web"].actual(&fixtures::place(0, "web")).unwrap().crash_count, 1);
}

#[test]
fn report_refused_by_standby_bbs_is_repeated() {
    let mut cell = Cell::open();
    let guid = cell.running("web");
    let mut crashed = cell.containers[&guid].clone();
    crashed.state = words::failed("broken");
    let says = Input::Container(crashed);
    cell.rep.step(cell.now, says);
    let sent = cell.rep.step(cell.now, Input::Turn);
    let [Effect::Report { id, .. }] = sent.as_slice() else { panic!("{sent:?}") };
    let refusal = Refusal::new(Code::Unavailable, "the BBS is starting");
    cell.input(Input::Reported { id: *id, answer: Some(Err(refusal)) });
    assert_eq!(cell.take_story(), "");
    cell.advance(SECOND);
    assert_eq!(cell.take_story(), "crash(broken), delete");
}

#[test]
fn running_container_is_deleted_only_after_reading_its_record() {
    let mut cell = Cell::open();
    cell.bbs.desire("web", 1, cell.now);
    cell.auction(1);
    let guid = cell.only();
    // The cell is declared lost, and another cell takes over. Only afterwards is the container RUNNING.
    cell.bbs.lost_cells.insert(words::cell_id("c1"));
    cell.bbs.process("web", &process::Command::Converge, cell.now).unwrap();
    report_from_other_cell(
        &mut cell,
        9,
        actual::Command::Start { net: words::net_info(9), isolation: Isolation::NONE },
    );
    cell.bbs.lost_cells.clear();
    cell.story.clear();
    cell.set_container_state(guid, ContainerState::Running(words::net_info(1)));
    // The start is refused, and the returned record requires the deletion of the container. The rep reads the
    // record again before the deletion.
    assert_eq!(cell.take_story(), "start+remove /e, read, delete");
    assert!(cell.containers.is_empty());
    assert_eq!(cell.bbs.holder("web", 0).unwrap().cell_id, words::cell_id("c2"));
}

#[test]
fn running_container_stays_if_record_cannot_be_read() {
    let mut cell = Cell::open();
    cell.bbs.desire("web", 1, cell.now);
    cell.auction(1);
    let guid = cell.only();
    cell.bbs.lost_cells.insert(words::cell_id("c1"));
    cell.bbs.process("web", &process::Command::Converge, cell.now).unwrap();
    report_from_other_cell(
        &mut cell,
        9,
        actual::Command::Start { net: words::net_info(9), isolation: Isolation::NONE },
    );
    cell.bbs.lost_cells.clear();
    cell.story.clear();
    let mut running = cell.containers[&guid].clone();
    running.state = ContainerState::Running(words::net_info(1));
    cell.rep.step(cell.now, Input::Container(running));
    let sent = cell.rep.step(cell.now, Input::Turn);
    let [Effect::Report { id, reports }] = sent.as_slice() else { panic!("{sent:?}") };
    let answer = cell.bbs.report(reports, cell.now);
    // Before the refusal arrives, the other container crashes permanently, so the record in the refusal is
    // outdated.
    cell.lose_messages = 1;
    cell.input(Input::Reported { id: *id, answer: Some(Ok(answer)) });
    assert_eq!(cell.take_story(), "read");
    report_from_other_cell(
        &mut cell,
        9,
        actual::Command::Crash { reason: "broken".into(), exit_status: None },
    );
    cell.advance(SECOND);
    assert_eq!(cell.take_story(), "read, start");
    assert_eq!(cell.bbs.holder("web", 0).unwrap().instance_guid, guid);
}

#[test]
fn running_container_without_record_creates_one() {
    let mut cell = Cell::open();
    let guid = cell.running("web");
    cell.bbs.processes.clear();
    cell.advance(Duration::from_secs(30));
    assert_eq!(cell.take_story(), "read, start");
    assert_eq!(cell.bbs.holder("web", 0).unwrap().instance_guid, guid);
    assert!(cell.containers.contains_key(&guid));
}

#[test]
fn vanished_container_is_removed_from_record() {
    let mut cell = Cell::open();
    let guid = cell.running("web");
    let task = cell.running_task("count");
    cell.containers.remove(&guid);
    cell.containers.remove(&task);
    cell.advance(Duration::from_secs(30));
    let told = cell.take_story();
    assert!(told.contains("remove") && told.contains("failed(task container does not exist)"), "{told}");
    assert_eq!(cell.bbs.state("web", 0), "UNCLAIMED");
    assert_eq!(cell.state_of_task("count"), "COMPLETED");
}

#[test]
fn report_on_vanished_container_is_repeated_until_next_poll() {
    let vanished = |lost: usize| {
        let mut cell = Cell::open();
        let guid = cell.running("web");
        cell.containers.remove(&guid);
        cell.lose_reports = lost;
        cell.advance(Duration::from_secs(30));
        cell
    };
    let mut cell = vanished(1);
    assert_eq!((cell.take_story().as_str(), cell.bbs.state("web", 0)), ("remove, read", "RUNNING"));
    cell.advance(SECOND);
    assert_eq!((cell.take_story().as_str(), cell.bbs.state("web", 0)), ("remove", "UNCLAIMED"));
    let mut cell = vanished(usize::MAX);
    cell.advance(Duration::from_secs(120));
    let story = cell.take_story();
    let said = story.split("read").map(|round| round.matches("remove").count()).max();
    assert_eq!(said, Some(5), "{story}");
}

#[test]
fn list_requested_before_start_does_not_end_container() {
    let mut cell = Cell::open();
    cell.now = cell.now + Duration::from_secs(30);
    let listed = cell.rep.step(cell.now, Input::Tick);
    assert!(listed.contains(&Effect::ListContainers));
    cell.bbs.desire("web", 1, cell.now);
    cell.auction(1);
    cell.input(Input::Containers(vec![]));
    assert_eq!(cell.take_story(), "claim, run, read");
    assert_eq!(cell.bbs.state("web", 0), "CLAIMED");
    let guid = cell.only();
    cell.set_container_state(guid, ContainerState::Running(words::net_info(1)));
    assert_eq!(cell.bbs.state("web", 0), "RUNNING");
}

#[test]
fn second_list_waits_for_first() {
    let mut cell = Cell::open();
    cell.now = cell.now + Duration::from_secs(30);
    let ask = |cell: &mut Cell| cell.rep.step(cell.now, Input::Tick).contains(&Effect::ListContainers);
    assert!(ask(&mut cell));
    cell.bbs.desire("web", 1, cell.now);
    cell.auction(1);
    let guid = cell.only();
    // The executor is slow. Its answer shows the state from before the start of the container.
    cell.advance(Duration::from_secs(60));
    assert!(!ask(&mut cell));
    cell.input(Input::Containers(vec![]));
    assert_eq!(cell.bbs.holder("web", 0).unwrap().instance_guid, guid);
    // Only the next list shows the current state.
    cell.containers.clear();
    cell.advance(Duration::from_secs(31));
    assert_eq!(cell.bbs.state("web", 0), "UNCLAIMED");
}

#[test]
fn cell_declared_lost_sends_heartbeat_and_polls() {
    let mut cell = Cell::open();
    let guid = cell.running("web");
    let before = cell.heartbeats.len();
    cell.bbs.lost_cells.insert(words::cell_id("c1"));
    cell.bbs.process("web", &process::Command::Converge, cell.now).unwrap();
    cell.advance(Duration::from_secs(30));
    assert_eq!(cell.bbs.state("web", 0), "UNCLAIMED");
    assert!(cell.heartbeats.len() > before + 6, "the refusal asks for another heartbeat");
    cell.bbs.lost_cells.clear();
    cell.advance(Duration::from_secs(20));
    assert_eq!(cell.bbs.holder("web", 0).unwrap().instance_guid, guid);
    assert_eq!(cell.bbs.state("web", 0), "RUNNING");
}

#[test]
fn work_running_on_returned_cell_is_reported_without_new_container() {
    let mut cell = Cell::open();
    let guid = cell.running("web");
    cell.advance(SECOND);
    cell.bbs.lost_cells.insert(words::cell_id("c1"));
    cell.bbs.process("web", &process::Command::Converge, cell.now).unwrap();
    assert_eq!(cell.bbs.state("web", 0), "UNCLAIMED");
    cell.bbs.lost_cells.clear();
    cell.auction(2);
    assert_eq!(*cell.performed.last().unwrap(), Ok(PerformReply { refused: vec![] }));
    cell.advance(SECOND);
    assert_eq!((cell.take_story().as_str(), cell.only()), ("read, start", guid));
    assert_eq!(cell.bbs.holder("web", 0).unwrap().instance_guid, guid);
}

#[test]
fn container_of_earlier_epoch_is_deleted_before_its_record() {
    let mut cell = Cell::open();
    let guid = cell.running("web");
    cell.slow_deletion = true;
    let later = cell.now + SECOND;
    cell.bbs.process("web", &process::Command::Remove, later).unwrap();
    cell.bbs.desire("web", 1, later);
    assert_eq!(cell.bbs.holder("web", 0).unwrap().instance_guid, guid);
    cell.advance(Duration::from_secs(30));
    assert_eq!(cell.take_story(), "read, stop, delete");
    // The record is kept while processes of the container are running.
    cell.advance(Duration::from_secs(5));
    assert_eq!(cell.bbs.holder("web", 0).unwrap().instance_guid, guid);
    assert_eq!(cell.take_story(), "");
    cell.containers.clear();
    cell.advance(SECOND);
    assert_eq!(cell.take_story(), "remove");
    assert_eq!(cell.bbs.state("web", 0), "UNCLAIMED");
}

#[test]
fn container_of_earlier_epoch_is_deleted_without_record() {
    let mut cell = Cell::open();
    cell.bbs.desire("web", 1, cell.now);
    cell.auction(1);
    let guid = cell.only();
    // The record is lost with the cell, and the next epoch has no instance.
    cell.bbs.lost_cells.insert(words::cell_id("c1"));
    cell.bbs.process("web", &process::Command::Remove, cell.now).unwrap();
    cell.bbs.process("web", &process::Command::Converge, cell.now).unwrap();
    cell.bbs.desire("web", 0, cell.now + SECOND);
    cell.bbs.lost_cells.clear();
    assert_eq!(cell.bbs.state("web", 0), "-");
    cell.story.clear();
    cell.set_container_state(guid, ContainerState::Running(words::net_info(1)));
    assert_eq!(cell.take_story(), "start+remove /e, read, delete");
    assert_eq!(cell.bbs.state("web", 0), "-");
    let refused = format!("the report about web/0 as {guid} was refused: StaleEpoch");
    assert!(cell.infos.iter().any(|line| line.starts_with(&refused)), "{:?}", cell.infos);
}

#[test]
fn container_is_deleted_if_index_belongs_to_another_cell() {
    let mut cell = Cell::open();
    let guid = cell.running("web");
    // The cell was declared lost and its record was removed. After its return, the index waits for another
    // cell.
    cell.bbs.lost_cells.insert(words::cell_id("c1"));
    cell.bbs.process("web", &process::Command::Converge, cell.now).unwrap();
    cell.bbs.lost_cells.clear();
    cell.bbs.foreign_indices.insert(0);
    assert_eq!(cell.bbs.state("web", 0), "UNCLAIMED");
    cell.story.clear();
    cell.advance(Duration::from_secs(40));
    assert!(cell.take_story().ends_with("delete"), "{:?}", cell.story);
    assert!(cell.containers.is_empty());
    assert_eq!(cell.bbs.state("web", 0), "UNCLAIMED");
    let refused = format!("the report about web/0 as {guid} was refused: ActualLRPCannotBeStarted");
    assert!(cell.infos.iter().any(|line| line.starts_with(&refused)), "{:?}", cell.infos);
}

#[test]
fn unclaimed_reservation_is_dropped_after_one_minute() {
    let mut cell = Cell::open();
    cell.bbs.desire("web", 1, cell.now);
    cell.lose_messages = usize::MAX;
    cell.auction(1);
    cell.advance(Duration::from_secs(59));
    assert_eq!(cell.heartbeats.last().unwrap().free.memory_mb, 900);
    cell.advance(Duration::from_secs(2));
    assert_eq!(cell.heartbeats.last().unwrap().free, words::settings().total);
}

#[test]
fn claim_recorded_after_dropped_reservation_is_reverted() {
    let mut cell = Cell::open();
    cell.bbs.desire("web", 1, cell.now);
    cell.lose_answers = usize::MAX;
    cell.auction(1);
    assert_eq!(cell.bbs.state("web", 0), "CLAIMED");
    cell.advance(Duration::from_secs(61));
    cell.lose_answers = 0;
    cell.advance(Duration::from_secs(30));
    assert_eq!(cell.bbs.state("web", 0), "UNCLAIMED");
    assert!(cell.containers.is_empty());
}

#[test]
fn postponed_reports_are_sent_within_one_second_of_election() {
    let mut cell = Cell::open();
    let guid = cell.running("web");
    let job = cell.running_task("job");
    // No BBS leads for a minute.
    cell.lose_reports = usize::MAX;
    cell.set_container_state(guid, words::failed("broken"));
    cell.set_container_state(job, words::succeeded("42"));
    cell.advance(SECOND * 60);
    cell.lose_reports = 0;
    cell.story.clear();
    cell.input(Input::Elected);
    assert_eq!(cell.take_story(), "", "each cell waits for its slot");
    cell.advance(SECOND);
    let told = cell.take_story();
    assert!(told.contains("crash(broken)") && told.contains("succeeded(42)"), "{told}");
    assert!(cell.rep.pending_counts().values().all(|count| *count == 0), "{:?}", cell.rep.pending_counts());
}

#[test]
fn report_unanswered_at_election_is_repeated_after_one_second() {
    let mut cell = Cell::open();
    let guid = cell.running("web");
    cell.lose_reports = usize::MAX;
    cell.set_container_state(guid, words::failed("broken"));
    cell.advance(SECOND * 20);
    // The next answer is delayed. The election happens before the answer arrives.
    cell.slow_answers = usize::MAX;
    while !cell.delayed_answers.iter().any(|held| matches!(held, Input::Reported { .. })) {
        cell.advance(SECOND);
    }
    cell.input(Input::Elected);
    cell.slow_answers = 0;
    cell.lose_reports = 0;
    cell.story.clear();
    cell.deliver_delayed();
    cell.advance(SECOND);
    assert!(cell.take_story().contains("crash(broken)"));
}
