//! Tests of the path from an auction to RUNNING with every effect, and of repeated messages.

use schemas::cell::Evacuation;
use schemas::cluster::Terms;
use schemas::container::{ContainerState, Instance};
use schemas::isolation::Isolation;
use schemas::message::{LrpRecord, PerformReply, Record, Report, ReportResult, Reports, ReportsReply};
use schemas::names::{IdGenerator, InstanceGuid};
use schemas::query::RecordsAnswer;
use schemas::{Position, Timestamp, actual, process};

use rep::reconcile::Row;
use rep::reconcile::lrp::{Container, Lrp};
use rep::{Effect, Input, Rep};

use crate::cell::Cell;
use crate::small_bbs::SmallBbs;
use crate::words::{self, at, perform};

/// Processes an input. Returns the effects without heartbeats and log messages. Other tests cover these two
/// effects.
fn step(rep: &mut Rep, now: Timestamp, input: Input) -> Vec<Effect> {
    let mut effects = words::step_prepared(rep, now, input);
    effects.retain(|effect| !matches!(effect, Effect::Heartbeat(_) | Effect::Log { .. }));
    effects
}

fn empty_records() -> RecordsAnswer {
    RecordsAnswer {
        position: Position(0),
        terms: Terms::default(),
        evacuation: Evacuation::None,
        records: vec![],
    }
}

fn started() -> Rep {
    let mut rep = Rep::new(words::settings(), Position(0), words::incarnation(), IdGenerator::new(1));
    let asked = step(&mut rep, at(0), Input::Tick);
    assert_eq!(asked, [Effect::ListContainers, Effect::SelfTest]);
    assert_eq!(step(&mut rep, at(0), Input::Containers(vec![])), []);
    let asked = step(&mut rep, at(0), Input::Turn);
    let [Effect::AskRecords { id, records }] = asked.as_slice() else { panic!("{asked:?}") };
    assert!(records.work.is_empty());
    let answer = empty_records();
    assert_eq!(step(&mut rep, at(0), Input::Records { id: *id, answer: Some(Ok(answer)) }), []);
    rep
}

fn reported(guid: InstanceGuid, observed_at: Timestamp, step: actual::Command) -> Reports {
    let by = Instance { instance_guid: guid, cell_id: words::cell_id("c1") };
    let report = process::Report {
        domain: words::domain(),
        place: fixtures::place(0, "web"),
        epoch: schemas::container::Epoch(at(0)),
        by,
        observed_at,
        steps: vec![process::ReportStep::Actual(step)],
    };
    Reports {
        folder: schemas::names::FolderId(uuid::Uuid::nil()),
        reports: vec![Report::Lrp { process_guid: words::process_guid("web"), report }],
    }
}

#[test]
fn accepted_work_is_claimed_run_and_started() {
    let mut bbs = SmallBbs::default();
    bbs.desire("web", 1, at(0));
    let mut rep = started();
    let work = bbs.work();

    // The auctioneer gets its answer before any other effect.
    let input = Input::Perform { requester: 4, perform: perform(1, work) };
    let answer = Ok(PerformReply { refused: vec![] });
    assert_eq!(step(&mut rep, at(1), input), [Effect::AnswerPerform { requester: 4, answer }]);

    // The rep needs no read of the record first, because the auctioneer sent the record.
    let sent = step(&mut rep, at(1), Input::Turn);
    let [Effect::Report { id, reports }] = sent.as_slice() else { panic!("{sent:?}") };
    let answer = bbs.report(reports, at(2));
    let guid = bbs.holder("web", 0).unwrap().instance_guid;
    assert_eq!(*reports, reported(guid, at(0), actual::Command::Claim { placement: None }));
    assert_eq!(bbs.state("web", 0), "CLAIMED");

    let run = step(&mut rep, at(2), Input::Reported { id: *id, answer: Some(Ok(answer)) });
    let [Effect::Run(recipe)] = run.as_slice() else { panic!("{run:?}") };
    assert_eq!(recipe.instance_guid, guid);
    assert_eq!(recipe.action, *words::definition().action);
    assert_eq!(recipe.ports, [8080]);
    assert_eq!(step(&mut rep, at(2), Input::Turn), []);

    let says = |state| Input::Container(words::container(guid, words::lrp_key("web", 0, at(0)), state));
    assert_eq!(step(&mut rep, at(3), says(ContainerState::Initializing)), []);
    assert_eq!(step(&mut rep, at(3), says(ContainerState::Created)), []);
    assert_eq!(step(&mut rep, at(3), says(ContainerState::Running(words::net_info(1)))), []);
    let sent = step(&mut rep, at(3), Input::Turn);
    let [Effect::Report { id, reports }] = sent.as_slice() else { panic!("{sent:?}") };
    let mut want =
        reported(guid, at(2), actual::Command::Start { net: words::net_info(1), isolation: Isolation::NONE });
    if let Report::Lrp { report, .. } = &mut want.reports[0] {
        report.steps.push(process::ReportStep::Evacuating(schemas::evacuating::Command::Remove));
    }
    assert_eq!(*reports, want);
    let answer = bbs.report(reports, at(4));
    assert_eq!(bbs.state("web", 0), "RUNNING");
    assert_eq!(step(&mut rep, at(4), Input::Reported { id: *id, answer: Some(Ok(answer)) }), []);
    assert_eq!(step(&mut rep, at(4), Input::Turn), []);
}

#[test]
fn applied_rows_are_counted() {
    let mut cell = Cell::open();
    let guid = cell.running("web");
    cell.set_container_state(guid, words::failed("oom"));
    let met: Vec<String> = cell.rep.applied_rows().keys().map(Row::to_string).collect();
    let expected = [
        "RESERVED container, UNCLAIMED",
        "INITIALIZING container, CLAIMED α",
        "CREATED container, CLAIMED α",
        "RUNNING container, CLAIMED α",
        "RUNNING container, RUNNING α",
        "COMPLETED (crashed) container, RUNNING α",
    ];
    assert_eq!(met, expected);
    let row = Row::Lrp(Container::Reserved, Lrp::Unclaimed);
    assert_eq!(cell.rep.applied_rows().get(&row), Some(&1), "an applied row is counted once");
}

#[test]
fn task_is_started_run_and_completed() {
    let mut cell = Cell::open();
    cell.bbs.desire_task("count", cell.now);
    cell.auction(1);
    assert_eq!(cell.take_story(), "start task, run");
    let guid = cell.only();
    cell.set_container_state(guid, ContainerState::Created);
    cell.set_container_state(guid, ContainerState::Running(words::net_info(1)));
    assert_eq!(cell.take_story(), "");
    cell.set_container_state(guid, words::succeeded("42"));
    assert_eq!(cell.take_story(), "succeeded(42), delete");
    assert_eq!(cell.state_of_task("count"), "COMPLETED");
    assert!(cell.warnings.is_empty(), "{:?}", cell.warnings);
}

#[test]
fn crash_is_reported_with_reason_before_deletion() {
    let mut cell = Cell::open();
    let guid = cell.running("web");
    cell.set_container_state(guid, words::failed("exited with status 3"));
    assert_eq!(cell.take_story(), "crash(exited with status 3), delete");
    assert_eq!(cell.bbs.state("web", 0), "UNCLAIMED");
}

#[test]
fn instance_that_exits_successfully_counts_as_crashed() {
    let mut cell = Cell::open();
    let guid = cell.running("web");
    cell.set_container_state(guid, words::succeeded(""));
    assert_eq!(cell.take_story(), "crash(exited), delete");
}

#[test]
fn message_contains_at_most_500_reports() {
    let mut rep = {
        let settings = rep::Settings {
            total: schemas::resources::Resources {
                memory_mb: 1 << 20,
                disk_mb: 1 << 20,
                containers: 2_000,
                ports: 2_000,
            },
            ..words::settings()
        };
        let mut rep = Rep::new(settings, Position(0), words::incarnation(), IdGenerator::new(1));
        step(&mut rep, at(0), Input::Tick);
        step(&mut rep, at(0), Input::Containers(vec![]));
        let asked = step(&mut rep, at(0), Input::Turn);
        let [Effect::AskRecords { id, .. }] = asked.as_slice() else { panic!("{asked:?}") };
        let answer = empty_records();
        step(&mut rep, at(0), Input::Records { id: *id, answer: Some(Ok(answer)) });
        rep
    };
    for number in 0..3 {
        let work =
            (0..250).map(|index| words::lrp_work(words::lrp_key("web", number * 250 + index, at(0)), at(0)));
        let perform = perform(u64::from(number), work.collect());
        step(&mut rep, at(1), Input::Perform { requester: 1, perform });
    }
    let sizes: Vec<usize> = step(&mut rep, at(1), Input::Turn)
        .iter()
        .map(|effect| if let Effect::Report { reports, .. } = effect { reports.reports.len() } else { 0 })
        .collect();
    assert_eq!(sizes.iter().sum::<usize>(), 750);
    assert!(sizes.iter().all(|size| *size <= 500), "{sizes:?}");
    assert!(sizes.len() <= 3, "{sizes:?}");
}

#[test]
fn repeated_messages_are_handled_once() {
    let mut bbs = SmallBbs::default();
    bbs.desire("web", 1, at(0));
    let mut rep = started();
    let work = bbs.work();
    let perform = || Input::Perform { requester: 1, perform: perform(1, work.clone()) };
    let taken = [Effect::AnswerPerform { requester: 1, answer: Ok(PerformReply { refused: vec![] }) }];
    assert_eq!(step(&mut rep, at(1), perform()), taken);
    assert_eq!(step(&mut rep, at(1), perform()), taken);

    let sent = step(&mut rep, at(1), Input::Turn);
    let [Effect::Report { id, reports }] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!(reports.reports.len(), 1);
    assert_eq!(step(&mut rep, at(1), perform()), taken);
    assert_eq!(step(&mut rep, at(1), Input::Turn), []);

    let answer = bbs.report(reports, at(2));
    let again = bbs.report(reports, at(2));
    assert_eq!(again.results[0].refused, None);
    let reported = |answer| Input::Reported { id: *id, answer: Some(Ok(answer)) };
    assert_eq!(step(&mut rep, at(2), reported(answer)).len(), 1);
    assert_eq!(step(&mut rep, at(2), reported(again)), []);
    assert_eq!(step(&mut rep, at(2), Input::Reported { id: *id, answer: None }), []);
    assert_eq!(step(&mut rep, at(2), perform()), taken);
    assert_eq!(step(&mut rep, at(2), Input::Turn), []);

    let guid = bbs.holder("web", 0).unwrap().instance_guid;
    let running = || {
        let state = ContainerState::Running(words::net_info(1));
        Input::Container(words::container(guid, words::lrp_key("web", 0, at(0)), state))
    };
    step(&mut rep, at(3), running());
    step(&mut rep, at(3), running());
    let sent = step(&mut rep, at(3), Input::Turn);
    let [Effect::Report { reports, .. }] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!(reports.reports.len(), 1);
    // A late event does not revert the state.
    let late = words::container(guid, words::lrp_key("web", 0, at(0)), ContainerState::Created);
    assert_eq!(step(&mut rep, at(3), Input::Container(late)), []);
    assert_eq!(step(&mut rep, at(3), Input::Turn), []);
}

#[test]
fn refused_claim_drops_reservation() {
    let mut bbs = SmallBbs::default();
    bbs.desire("web", 1, at(0));
    let mut rep = started();
    step(&mut rep, at(1), Input::Perform { requester: 1, perform: perform(1, bbs.work()) });
    let sent = step(&mut rep, at(1), Input::Turn);
    let [Effect::Report { id, reports }] = sent.as_slice() else { panic!("{sent:?}") };
    // Another cell claimed the instance first.
    let mut other = reports.clone();
    if let Report::Lrp { report, .. } = &mut other.reports[0] {
        report.by = Instance { instance_guid: words::guid(9), cell_id: words::cell_id("c2") };
    }
    bbs.report(&other, at(1));
    let answer = bbs.report(reports, at(2));
    assert!(answer.results[0].refused.is_some());
    let dropped = step(&mut rep, at(2), Input::Reported { id: *id, answer: Some(Ok(answer)) });
    assert!(matches!(dropped.as_slice(), [Effect::Discard(_)]), "{dropped:?}");
    assert_eq!(step(&mut rep, at(2), Input::Turn), []);
    let probe =
        Input::State { requester: 1, order: schemas::message::RepOrder { term: 1, position: Position(0) } };
    let answered = step(&mut rep, at(2), probe);
    let [Effect::AnswerState { answer: Ok(heartbeat), .. }] = answered.as_slice() else {
        panic!("{answered:?}")
    };
    assert_eq!(heartbeat.free, words::settings().total);
}

#[test]
fn incomplete_answer_counts_as_no_answer() {
    let mut bbs = SmallBbs::default();
    bbs.desire("web", 1, at(0));
    let mut rep = started();
    step(&mut rep, at(1), Input::Perform { requester: 1, perform: perform(1, bbs.work()) });
    let sent = step(&mut rep, at(1), Input::Turn);
    let [Effect::Report { id, .. }] = sent.as_slice() else { panic!("{sent:?}") };
    let answer =
        ReportsReply { position: Position(1), terms: Terms::default(), results: Vec::<ReportResult>::new() };
    assert_eq!(step(&mut rep, at(2), Input::Reported { id: *id, answer: Some(Ok(answer)) }), []);
    assert_eq!(step(&mut rep, at(1_100), Input::Tick), []);
    let sent = step(&mut rep, at(1_100), Input::Turn);
    assert!(matches!(sent.as_slice(), [Effect::Report { .. }]), "{sent:?}");
    let without = bbs.lrp(&words::process_guid("web"), &fixtures::place(7, "web"));
    assert!(matches!(without, Record::Lrp(LrpRecord { state: None, evacuating: None, .. })), "{without:?}");
}
