//! Life cycle of a task, with all its timers.

use std::time::Duration;

use bbs::callbacks::CallbackResult;
use bbs::{Input, Query, Reply};
use machines::task;
use schemas::container::{Epoch, WorkKey};
use schemas::isolation::Isolation;
use schemas::query::{Filter, ShowAnswer, StatusRow};
use schemas::spec::ClientCommand;
use schemas::task::{Outcome, ReportStep};

use crate::scene::Scene;
use crate::words::{self, container};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn epoch(scene: &Scene) -> Epoch {
    scene.bbs(0).world().task(&words::task_guid("count")).unwrap().epoch
}

/// Returns a scene with a task that runs in container 1 on c1.
fn running(callback: Option<&str>) -> Scene {
    let mut scene = Scene::with(1, &["c1"]);
    scene.client(0, words::task("count", callback));
    let begin = ReportStep::Start { placement: None, isolation: Isolation::NONE };
    let report = words::task_report("count", epoch(&scene), container(1, "c1"), begin);
    scene.report(0, "c1", report);
    assert_eq!(scene.task_state(0, "count"), "RUNNING");
    scene
}

fn complete(scene: &mut Scene) {
    let outcome = Outcome::Succeeded { result: "42".into() };
    let report =
        words::task_report("count", epoch(scene), container(1, "c1"), ReportStep::Complete { outcome });
    scene.report(0, "c1", report);
}

/// A control character takes six bytes of JSON. A result that makes the decision too large must not be
/// refused forever.
#[test]
fn task_with_oversized_result_completes_as_failed() {
    let limit = schemas::limits::TASK_RESULT_BYTES;
    for (result, right) in [("\u{1}".repeat(limit), false), ("x".repeat(limit), true)] {
        let mut scene = running(None);
        let outcome = Outcome::Succeeded { result };
        let step = ReportStep::Complete { outcome };
        let report = words::task_report("count", epoch(&scene), container(1, "c1"), step);
        scene.report(0, "c1", report);
        assert_eq!(scene.task_state(0, "count"), "COMPLETED");
        let task = scene.bbs(0).world().task(&words::task_guid("count")).unwrap();
        match &task.completed().unwrap().outcome {
            Outcome::Succeeded { .. } => assert!(right),
            Outcome::Failed { reason } => {
                assert!(!right);
                assert!(reason.starts_with("result takes 307202 bytes as JSON"), "{reason}");
            }
        }
    }
}

/// Returns the number of repeated callbacks in the status.
fn repeated(scene: &mut Scene) -> u64 {
    let answer = scene.query(0, Query::Rows(projections::Query::Status(Filter::default())));
    let Reply::Rows(Ok(rows)) = answer else { panic!("no answer") };
    serde_json::from_str::<ShowAnswer<StatusRow>>(&rows).unwrap().row.callbacks_retried
}

#[test]
fn unstarted_task_expires_and_is_deleted() {
    let mut scene = Scene::with(1, &["c1"]);
    scene.client(0, words::task("count", None));
    scene.pass(task::PENDING_TIMEOUT - SECOND);
    assert_eq!(scene.task_state(0, "count"), "PENDING");
    scene.pass(2 * SECOND);
    assert_eq!(scene.task_state(0, "count"), "COMPLETED");
    scene.pass(task::COMPLETED_RETENTION - 2 * SECOND);
    assert_eq!(scene.task_state(0, "count"), "COMPLETED");
    scene.pass(2 * SECOND);
    assert_eq!(scene.task_state(0, "count"), "-");
}

#[test]
fn completion_callback_is_repeated_until_final_response() {
    let mut scene = running(Some("http://owner"));
    complete(&mut scene);
    scene.pass(SECOND / 100);
    assert_eq!(scene.task_state(0, "count"), "RESOLVING");
    assert_eq!(scene.calls.len(), 1, "the callback is sent at once");
    assert_eq!(scene.bbs(0).pending_work()["callbacks in flight"], 1);
    let called =
        |called| Input::CallResult { task: words::task_guid("count"), epoch: Epoch::default(), called };
    scene.input(0, called(CallbackResult::Answered(200)));
    assert_eq!(scene.task_state(0, "count"), "RESOLVING", "an answer for another epoch has no effect");
    let epoch = epoch(&scene);
    let called = |called| Input::CallResult { task: words::task_guid("count"), epoch, called };
    for (calls, failed) in
        [(1, CallbackResult::Answered(503)), (2, CallbackResult::Failed("timed out".into()))]
    {
        assert_eq!(scene.calls.len(), calls);
        scene.input(0, called(failed));
        assert_eq!(repeated(&mut scene), 1, "the status shows it");
        scene.pass(3 * SECOND);
    }
    assert_eq!(scene.calls.len(), 3);
    scene.input(0, called(CallbackResult::Answered(404)));
    assert_eq!(scene.task_state(0, "count"), "COMPLETED", "the callback was rejected");
    assert_eq!(repeated(&mut scene), 0);
    assert_eq!(scene.times("task.callback_tried.v1").len(), 3, "each call is in the log");
    scene.pass(MINUTE);
    assert_eq!(
        (scene.calls.len(), scene.task_state(0, "count")),
        (3, "COMPLETED"),
        "the callback is not repeated"
    );
    scene.pass(2 * MINUTE);
    assert_eq!((scene.calls.len(), scene.task_state(0, "count")), (3, "-"));
    assert!(scene.bbs(0).pending_work().values().all(|left| *left == 0), "{:?}", scene.bbs(0).pending_work());
}

#[test]
fn lost_callback_is_repeated_until_task_is_deleted() {
    let mut scene = running(Some("http://owner"));
    complete(&mut scene);
    scene.pass(SECOND / 100);
    assert_eq!(scene.calls.len(), 1);
    scene.pass(task::RESOLVING_TIMEOUT + SECOND);
    assert_eq!(scene.times("task.demoted.v1").len(), 1, "a call without result for 30 s is abandoned");
    scene.pass(task::CALLBACK_RETRY_INTERVAL);
    assert_eq!(scene.calls.len(), 2, "the callback is repeated 30 s later");
    scene.pass(MINUTE);
    assert_eq!(
        scene.task_state(0, "count"),
        "-",
        "the task is deleted two minutes after its first completion"
    );
}

#[test]
fn callback_refused_by_journal_is_retried() {
    let mut scene = running(Some("http://owner"));
    scene.refused = Some("resolving.v1");
    complete(&mut scene);
    scene.pass(SECOND / 2);
    assert_eq!((scene.calls.len(), scene.task_state(0, "count")), (0, "COMPLETED"));
    scene.refused = None;
    scene.pass(2 * SECOND);
    assert_eq!((scene.calls.len(), scene.task_state(0, "count")), (1, "RESOLVING"));
}

#[test]
fn next_leader_sends_missing_callback() {
    let mut scene = Scene::with(2, &["c1"]);
    scene.client(0, words::task("count", Some("http://owner")));
    let begin = ReportStep::Start { placement: None, isolation: Isolation::NONE };
    let report = words::task_report("count", epoch(&scene), container(1, "c1"), begin);
    scene.report(0, "c1", report);
    scene.dies_after = Some((0, "completed.v1"));
    complete(&mut scene);
    assert_eq!(scene.calls, []);
    scene.pass(5 * SECOND);
    assert_eq!(scene.calls.len(), 1);
    assert_eq!(scene.calls[0].0, 1);
}

#[test]
fn cancel_order_names_container_of_cancelled_task() {
    let mut scene = running(None);
    let life = epoch(&scene);
    scene.client(0, ClientCommand::TaskCancel { task_guid: words::task_guid("count") });
    assert_eq!(scene.task_state(0, "count"), "COMPLETED");
    let key = WorkKey::Task { task_guid: words::task_guid("count"), epoch: life };
    let (cell, cancel) = &scene.cancels[0];
    assert_eq!(*cell, words::cell_id("c1"));
    assert_eq!(cancel.containers, [(key, container(1, "c1").instance_guid)]);
    // The next task with this name runs in another container. Reports of the first container do not apply to
    // the new task.
    scene.client(0, ClientCommand::TaskResolve { task_guid: words::task_guid("count") });
    scene.client(0, words::task("count", None));
    let begin = ReportStep::Start { placement: None, isolation: Isolation::NONE };
    scene.report(0, "c1", words::task_report("count", life, container(1, "c1"), begin.clone()));
    assert_eq!(scene.task_state(0, "count"), "PENDING");
    let (now, two) = (epoch(&scene), container(2, "c1"));
    scene.report(0, "c1", words::task_report("count", now, two.clone(), begin));
    let outcome = Outcome::Failed { reason: "killed".into() };
    let step = ReportStep::Complete { outcome };
    scene.report(0, "c1", words::task_report("count", now, container(1, "c1"), step));
    assert_eq!(scene.task_state(0, "count"), "RUNNING");
    let task = scene.bbs(0).world().task(&words::task_guid("count")).unwrap();
    assert_eq!(task.holder(), Some(&two));
}
