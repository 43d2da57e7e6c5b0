//! Causes of decisions, and the stop of an instance that a scale-down removed during a cell loss.

use std::time::Duration;

use schemas::actual::{self, StopReason};
use schemas::entry::{Aggregate, Event};
use schemas::isolation::Isolation;
use schemas::names::DecisionId;
use schemas::spec::ClientCommand;
use schemas::{Decision, task};

use bbs::Input;
use bbs::callbacks::CallbackResult;

use crate::scene::Scene;
use crate::words::{self, container, start};

const SECOND: Duration = Duration::from_secs(1);
const THREE: [&str; 3] = ["c1", "c2", "c3"];

fn retire(index: u32) -> ClientCommand {
    ClientCommand::LrpRetire { process_guid: words::process_guid("web"), index, definition_id: None }
}

fn report(scene: &mut Scene, index: u32, number: u64, cell: &str, step: actual::Command) {
    let epoch = scene.epoch(0, "web");
    scene.report(0, cell, words::lrp_report("web", index, epoch, container(number, cell), step));
}

/// Returns the newest decision with an event of this type.
fn last(scene: &Scene, event: &str) -> Decision {
    let has = |decision: &Decision| decision.events.iter().any(|one| one.type_name() == event);
    let decided = scene.decisions().into_iter().map(|(_, decision)| decision).filter(has).last();
    decided.unwrap_or_else(|| panic!("no {event}"))
}

/// Returns the cause of a decision, and the first decision of its chain.
fn cause_and_correlation(decision: &Decision) -> (Option<DecisionId>, DecisionId) {
    (decision.cause, decision.correlation)
}

fn after(cause: &Decision) -> (Option<DecisionId>, DecisionId) {
    (Some(cause.id), cause.correlation)
}

fn crash() -> actual::Command {
    actual::Command::Crash { reason: "boom".into(), exit_status: None }
}

#[test]
fn each_index_has_its_own_chain() {
    let mut scene = Scene::with(1, &THREE);
    scene.client(0, words::lrp("web", 1));
    let desired = last(&scene, "desired.desired.v1");
    report(&mut scene, 0, 10, "c1", start());
    assert_eq!(cause_and_correlation(&last(&scene, "actual.started.v1")), after(&desired));
    scene.client(0, words::scale("web", 2));
    let scaled = last(&scene, "desired.updated.v1");
    assert_eq!(cause_and_correlation(&scaled), (None, scaled.id), "a client's command starts a chain");
    report(&mut scene, 1, 11, "c2", start());
    assert_eq!(cause_and_correlation(&last(&scene, "actual.started.v1")), after(&scaled));
    // The chain of causes at index 0 does not include the scale command.
    report(&mut scene, 0, 10, "c1", crash());
    let crashed = last(&scene, "actual.crashed.v1");
    assert_eq!(cause_and_correlation(&crashed), after(&desired));
    report(&mut scene, 0, 12, "c3", start());
    assert_eq!(cause_and_correlation(&last(&scene, "actual.started.v1")), after(&crashed));
    scene.client(0, retire(0));
    let retired = last(&scene, "actual.stop_requested.v1");
    report(&mut scene, 0, 12, "c3", actual::Command::Remove);
    let removed = last(&scene, "actual.removed.v1");
    assert_eq!(
        cause_and_correlation(&removed),
        after(&retired),
        "the stop request is the cause of the removal"
    );
    report(&mut scene, 0, 13, "c1", actual::Command::Claim { placement: None });
    assert_eq!(cause_and_correlation(&last(&scene, "actual.claimed.v1")), after(&removed));
}

#[test]
fn lost_cell_and_due_restart_are_causes_of_their_effects() {
    let mut scene = Scene::with(1, &THREE);
    scene.client(0, words::lrp("web", 4));
    for (index, cell) in [(0, "c1"), (1, "c2"), (2, "c1")] {
        report(&mut scene, index, index.into(), cell, start());
    }
    for number in 10..14 {
        report(&mut scene, 3, number, "c3", start());
        report(&mut scene, 3, number, "c3", crash());
    }
    let crashed = last(&scene, "actual.crashed.v1");
    scene.cells.retain(|cell, _| cell == "c3");
    scene.pass(200 * SECOND);
    let unclaimed = scene.decisions().into_iter().map(|(_, decision)| decision).filter(|decision| {
        let unclaims = |event: &Event| matches!(event, Event::Actual(actual::Event::Unclaimed { .. }));
        matches!(decision.aggregate, Aggregate::Process { .. }) && decision.events.iter().any(unclaims)
    });
    let causes: Vec<_> = unclaimed.skip(3).map(|decision| cause_and_correlation(&decision)).collect();
    let lost: Vec<Decision> = scene
        .decisions()
        .into_iter()
        .map(|(_, decision)| decision)
        .filter(|decision| decision.events.iter().any(|event| event.type_name() == "cell.disappeared.v1"))
        .collect();
    assert_eq!(lost.len(), 2);
    let expected = [after(&crashed), after(&lost[0]), after(&lost[1])];
    assert!(expected.iter().all(|cause| causes.contains(cause)), "{causes:?}: expected {expected:?}");
    assert_eq!(causes.len(), 3, "one decision per cause, whatever its indices");
}

#[test]
fn task_decisions_form_one_causal_chain() {
    let mut scene = Scene::with(1, &THREE);
    scene.client(0, words::task("job", Some("http://owner/")));
    let desired = last(&scene, "task.desired.v1");
    let epoch = scene.bbs(0).world().task(&words::task_guid("job")).unwrap().epoch;
    let by = container(1, "c1");
    let started = task::ReportStep::Start { placement: None, isolation: Isolation::NONE };
    scene.report(0, "c1", words::task_report("job", epoch, by, started));
    assert_eq!(cause_and_correlation(&last(&scene, "task.started.v1")), after(&desired));
    scene.client(0, ClientCommand::TaskCancel { task_guid: words::task_guid("job") });
    let cancelled = last(&scene, "task.completed.v1");
    assert_eq!(cause_and_correlation(&cancelled), (None, cancelled.id));
    scene.pass(SECOND);
    let resolving = last(&scene, "task.resolving.v1");
    assert_eq!(cause_and_correlation(&resolving), after(&cancelled));
    let called = CallbackResult::Answered(200);
    scene.input(0, Input::CallResult { task: words::task_guid("job"), epoch, called });
    scene.pass(SECOND);
    assert_eq!(cause_and_correlation(&last(&scene, "task.deleted.v1")), after(&resolving));
}

#[test]
fn instance_scaled_away_during_cell_loss_stops_when_cell_returns() {
    let mut scene = Scene::with(1, &THREE);
    scene.client(0, words::lrp("web", 2));
    report(&mut scene, 0, 10, "c1", start());
    report(&mut scene, 1, 11, "c2", start());
    scene.cells.remove("c2");
    scene.pass(30 * SECOND);
    assert_eq!(scene.state(0, "web", 1), "UNCLAIMED");
    scene.client(0, words::scale("web", 1));
    let scaled = last(&scene, "desired.updated.v1");
    scene.cells.insert("c2".into(), (1, 10));
    scene.send_heartbeat("c2");
    assert!(scene.stops.is_empty());
    report(&mut scene, 1, 11, "c2", start());
    let started = last(&scene, "actual.started.v1");
    let stop =
        actual::Event::StopRequested { places: fixtures::place(1, "web").into(), cause: StopReason::Scale };
    assert!(started.events.contains(&Event::Actual(stop)), "{:?}", started.events);
    assert_eq!(cause_and_correlation(&started), after(&scaled));
    let told: Vec<&str> = scene.stops.iter().map(|(cell, _)| cell.as_str()).collect();
    assert_eq!(told, ["c2"], "its rep receives the order at once");
}
