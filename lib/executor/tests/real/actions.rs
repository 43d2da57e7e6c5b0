//! Tests of each kind of action.

use schemas::action::{Action, EmitProgress, Run, Timeout, Try};
use schemas::container::{Recipe, RunResult};

use crate::support::{Cell, group, processes_of, sh, task, variable};

const DONE: RunResult = RunResult::Succeeded { result: String::new() };

#[tokio::test]
async fn run_uses_its_own_folder_and_environment() {
    let mut cell = Cell::new().await;
    let action = Action::Run(Run {
        path: "sh".into(),
        args: vec!["-c".into(), "echo $A $B; basename $PWD; echo bad >&2".into()],
        dir: "inner".into(),
        env: vec![variable("B", "own")],
        ..Run::default()
    });
    let guid = cell.run(Recipe {
        setup: Some(sh("mkdir inner")),
        environment_variables: vec![variable("A", "shared"), variable("B", "hidden")],
        ..task(action)
    });
    assert_eq!(cell.wait_until_completed(guid).await, DONE);
    let mut log = cell.log(guid).await;
    log.sort();
    assert_eq!(log, ["ERR bad", "OUT inner", "OUT shared own"]);
    let quiet = Action::Run(Run {
        path: "echo".into(),
        args: vec!["x".into()],
        suppress_log_output: true,
        ..Run::default()
    });
    let guid = cell.run(task(quiet));
    assert_eq!(cell.wait_until_completed(guid).await, DONE);
    assert_eq!(cell.log(guid).await, Vec::<String>::new());
    cell.delete_all().await;
}

#[tokio::test]
async fn serial_stops_at_the_first_failure_and_try_swallows_it() {
    let mut cell = Cell::new().await;
    let serial = Action::Serial(group([sh("echo 1"), sh("echo 2; exit 9"), sh("echo 3")]));
    let guid = cell.run(task(serial.clone()));
    assert_eq!(cell.wait_for_failure(guid).await, "Exited with status 9");
    assert_eq!(cell.log(guid).await, ["OUT 1", "OUT 2"]);
    let guid =
        cell.run(task(Action::Serial(group([Action::Try(Try { action: Box::new(serial) }), sh("echo 4")]))));
    assert_eq!(cell.wait_until_completed(guid).await, DONE);
    assert_eq!(cell.log(guid).await, ["OUT 1", "OUT 2", "OUT 4"]);
    cell.delete_all().await;
}

#[tokio::test]
async fn parallel_waits_for_all_and_reports_every_failure() {
    let mut cell = Cell::new().await;
    let action = Action::Parallel(group([sh("exit 1"), sh("sleep 0.2; echo late"), sh("exit 2")]));
    let guid = cell.run(task(action));
    assert_eq!(cell.wait_for_failure(guid).await, "Exited with status 1; Exited with status 2");
    assert_eq!(cell.log(guid).await, ["OUT late"]);
    cell.delete_all().await;
}

#[tokio::test]
async fn codependent_group_ends_with_its_first_action() {
    let mut cell = Cell::new().await;
    let other = sh("trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.01; done");
    let first = sh("sleep 0.3");
    let guid = cell.run(task(Action::Codependent(group([first, other]))));
    assert_eq!(cell.wait_for_failure(guid).await, "Codependent step exited");
    assert!(cell.log(guid).await.contains(&"OUT told".to_owned()));
    let failing = Action::Codependent(group([sh("exec sleep 60"), sh("exit 6")]));
    assert_eq!(cell.run_to_failure(task(failing)).await, "Exited with status 6");
    cell.delete_all().await;
}

#[tokio::test]
async fn a_timeout_interrupts_the_whole_tree_of_its_action() {
    let mut cell = Cell::new().await;
    let stubborn = sh("trap '' TERM; sleep 61 & echo up; while :; do sleep 0.05; done");
    let limited = Action::Timeout(Timeout { action: Box::new(stubborn), timeout_ms: 200 });
    let then = Action::Serial(group([Action::Try(Try { action: Box::new(limited.clone()) }), sh("echo on")]));
    let guid = cell.run(Recipe { grace_period_ms: 100, ..task(then) });
    assert_eq!(cell.wait_until_completed(guid).await, DONE);
    assert_eq!(cell.log(guid).await, ["OUT up", "OUT on"]);
    let guid = cell.run(Recipe { grace_period_ms: 100, ..task(limited) });
    assert_eq!(cell.wait_for_failure(guid).await, "exceeded 200ms timeout");
    assert!(processes_of(guid).is_empty());
    let in_time = Action::Timeout(Timeout { action: Box::new(sh("exit 8")), timeout_ms: 20_000 });
    assert_eq!(cell.run_to_failure(task(in_time)).await, "Exited with status 8");
    cell.delete_all().await;
}

#[tokio::test]
async fn progress_messages_are_logged() {
    let mut cell = Cell::new().await;
    let progress = |script: &str| {
        Action::EmitProgress(EmitProgress {
            action: Box::new(sh(script)),
            start_message: "starting".into(),
            success_message: "well done".into(),
            failure_message_prefix: "went wrong".into(),
            log_source: String::new(),
        })
    };
    let guid = cell.run(task(progress("echo work")));
    assert_eq!(cell.wait_until_completed(guid).await, DONE);
    assert_eq!(cell.log(guid).await, ["OUT starting", "OUT work", "OUT well done"]);
    let guid = cell.run(task(progress("exit 2")));
    assert_eq!(cell.wait_for_failure(guid).await, "Exited with status 2");
    assert_eq!(cell.log(guid).await, ["OUT starting", "ERR went wrong: Exited with status 2"]);
    cell.delete_all().await;
}
