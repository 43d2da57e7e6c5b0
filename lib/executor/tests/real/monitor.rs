//! What the monitor decides (seed `003`).

use std::time::Duration;

use schemas::container::{ContainerState, Recipe};

use crate::support::{Cell, lrp, processes_of, program, sh};

#[tokio::test]
async fn it_is_running_once_the_monitor_succeeds() {
    let mut cell = Cell::new().await;
    let action = sh("sleep 0.3; touch up; exec sleep 60");
    let guid = cell.run(Recipe {
        monitor: Some(program("test", &["-e", "up"])),
        start_timeout_ms: 20_000,
        ..lrp(action)
    });
    cell.until(guid, |state| (*state == ContainerState::Created).then_some(())).await;
    cell.running(guid).await;
    let work = cell.root.path().join(format!("data/containers/{guid}/work"));
    assert!(work.join("up").exists());
    std::fs::remove_file(work.join("up")).unwrap();
    assert_eq!(cell.failure(guid).await, "Instance became unhealthy: Exited with status 1");
    assert!(processes_of(guid).is_empty());
    cell.end().await;
}

#[tokio::test]
async fn it_fails_if_it_is_never_healthy_in_time() {
    let mut cell = Cell::new().await;
    let guid = cell.run(Recipe {
        monitor: Some(sh("echo noise; exit 7")),
        start_timeout_ms: 200,
        ..lrp(sh("echo begun; exec sleep 60"))
    });
    assert_eq!(cell.failure(guid).await, "Instance never healthy after 200ms: Exited with status 7");
    assert_eq!(cell.log(guid).await, ["OUT begun"], "probes stay out of the log");
    let hanging =
        Recipe { monitor: Some(sh("exec sleep 60")), start_timeout_ms: 200, ..lrp(sh("exec sleep 60")) };
    let reason = cell.failure_of(hanging).await;
    assert_eq!(reason, "Instance never healthy after 200ms: the monitor did not end");
    cell.end().await;
}

#[tokio::test]
async fn an_action_that_fails_needs_no_monitor_to_say_so() {
    let mut cell = Cell::new().await;
    let recipe = Recipe { monitor: Some(sh("exit 0")), ..lrp(sh("sleep 0.2; exit 5")) };
    let guid = cell.run(recipe);
    cell.running(guid).await;
    assert_eq!(cell.failure(guid).await, "Exited with status 5");
    cell.end().await;
}

#[tokio::test]
async fn an_action_that_detached_itself_is_still_monitored() {
    let mut cell = Cell::new().await;
    let action = sh("setsid sh -c 'echo $$ > pid; exec sleep 60' & while [ ! -s pid ]; do sleep 0.01; done");
    let guid = cell.run(Recipe { monitor: Some(sh("kill -0 $(cat pid)")), ..lrp(action) });
    cell.running(guid).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    cell.running(guid).await;
    let pid = cell.root.path().join(format!("data/containers/{guid}/work/pid"));
    crate::support::kill(std::fs::read_to_string(pid).unwrap().trim().parse().unwrap());
    assert_eq!(cell.failure(guid).await, "Instance became unhealthy: Exited with status 1");
    cell.end().await;
}
