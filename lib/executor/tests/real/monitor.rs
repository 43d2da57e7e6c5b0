//! Tests of the monitor's decisions (docs/internals/model/containers.md, "Containers").

use std::time::Duration;

use executor::process::{LogError, Settings};
use schemas::container::{ContainerState, Recipe};
use schemas::limits::{PROBE_OUTPUT_LINES, PROBES_KEPT};

use crate::support::{Cell, eventually, lrp, processes_of, program, sh};

#[tokio::test]
async fn container_is_running_while_the_monitor_succeeds() {
    let mut cell = Cell::new().await;
    let action = sh("sleep 0.3; touch up; exec sleep 60");
    let guid = cell.run(Recipe {
        monitor: Some(program("test", &["-e", "up"])),
        start_timeout_ms: 20_000,
        ..lrp(action)
    });
    cell.wait_for_state(guid, |state| (*state == ContainerState::Created).then_some(())).await;
    cell.wait_until_running(guid).await;
    let work = cell.root.path().join(format!("data/containers/{guid}/work"));
    assert!(work.join("up").exists());
    std::fs::remove_file(work.join("up")).unwrap();
    assert_eq!(cell.wait_for_failure(guid).await, "Instance became unhealthy: Exited with status 1");
    assert!(processes_of(guid).is_empty());
    cell.delete_all().await;
}

#[tokio::test]
async fn first_probes_follow_quickly_despite_long_interval() {
    let pause = Duration::from_secs(600);
    let mut cell = Cell::with(|settings| Settings { unhealthy_monitoring_interval: pause, ..settings }).await;
    // The monitor fails three times before it succeeds.
    let monitor = sh("echo >>probes; test $(wc -l <probes) -gt 3");
    let guid = cell.run(Recipe { monitor: Some(monitor), ..lrp(sh("exec sleep 60")) });
    cell.wait_until_running(guid).await;
    cell.delete_all().await;
}

#[tokio::test]
async fn container_not_healthy_in_time_fails() {
    let mut cell = Cell::new().await;
    let guid = cell.run(Recipe {
        monitor: Some(sh("echo noise; exit 7")),
        start_timeout_ms: 200,
        ..lrp(sh("echo begun; exec sleep 60"))
    });
    assert_eq!(
        cell.wait_for_failure(guid).await,
        "Instance never healthy after 200ms: Exited with status 7: noise"
    );
    assert_eq!(cell.log(guid).await, ["OUT begun"], "the output of probes is not logged");
    let hanging =
        Recipe { monitor: Some(sh("exec sleep 60")), start_timeout_ms: 200, ..lrp(sh("exec sleep 60")) };
    let reason = cell.run_to_failure(hanging).await;
    assert_eq!(reason, "Instance never healthy after 200ms: the monitor did not end");
    cell.delete_all().await;
}

#[tokio::test]
async fn health_is_reported_during_probing_and_after_restart() {
    let mut cell = Cell::new().await;
    let monitor = "for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i; done; echo not yet >&2; test -e up";
    let guid = cell.run(Recipe { monitor: Some(sh(monitor)), ..lrp(sh("exec sleep 60")) });
    let plain = cell.run(lrp(sh("exec sleep 60")));
    let probed = async |cell: &Cell| cell.executor.health(guid).await.unwrap();
    eventually(async || probed(&cell).await.is_some_and(|health| health.failures > 4)).await;
    let health = probed(&cell).await.unwrap();
    assert!(!health.was_healthy);
    assert_eq!(health.last.len(), PROBES_KEPT);
    let last = health.last.last().unwrap();
    assert_eq!(last.failure.as_deref(), Some("Exited with status 1"));
    assert_eq!(last.output.len(), PROBE_OUTPUT_LINES, "{:?}", last.output);
    assert!(last.output.contains(&"line 10".to_owned()) && last.output.contains(&"not yet".to_owned()));
    assert_eq!(cell.executor.health(plain).await.unwrap(), None);

    let mut cell = cell.reopen_after(async {}).await;
    assert!(probed(&cell).await.unwrap().failures > 4);
    std::fs::write(cell.root.path().join(format!("data/containers/{guid}/work/up")), "").unwrap();
    cell.wait_until_running(guid).await;
    let health = probed(&cell).await.unwrap();
    assert!(health.was_healthy && health.failures == 0 && health.failure_summary().is_none(), "{health:?}");
    cell.executor.delete(guid);
    eventually(async || cell.get(guid).is_none()).await;
    assert!(matches!(cell.executor.health(guid).await, Err(LogError::Unknown(_))));
    cell.delete_all().await;
}

#[tokio::test]
async fn processes_left_by_a_probe_are_killed() {
    let mut cell = Cell::new().await;
    let monitor = sh("sleep 5550 & echo >>probes; test $(wc -l <probes) -gt 20");
    let guid = cell.run(Recipe { monitor: Some(monitor), ..lrp(sh("sleep 5551 & exec sleep 60")) });
    cell.wait_until_running(guid).await;
    let running = |name: &str| {
        let lines =
            processes_of(guid).into_iter().map(|pid| std::fs::read_to_string(format!("/proc/{pid}/cmdline")));
        lines.filter(|line| line.as_ref().is_ok_and(|line| line.contains(name))).count()
    };
    assert!(running("5550") <= 1, "{} of 21 are left", running("5550"));
    assert_eq!(running("5551"), 1, "processes of the action are not killed");
    cell.delete_all().await;
}

#[tokio::test]
async fn failing_action_fails_a_healthy_container() {
    let mut cell = Cell::new().await;
    let recipe = Recipe { monitor: Some(sh("exit 0")), ..lrp(sh("sleep 0.2; exit 5")) };
    let guid = cell.run(recipe);
    cell.wait_until_running(guid).await;
    assert_eq!(cell.wait_for_failure(guid).await, "Exited with status 5");
    cell.delete_all().await;
}

#[tokio::test]
async fn detached_action_stays_monitored() {
    let mut cell = Cell::new().await;
    let action = sh("setsid sh -c 'echo $$ > pid; exec sleep 60' & while [ ! -s pid ]; do sleep 0.01; done");
    let guid = cell.run(Recipe { monitor: Some(sh("kill -0 $(cat pid) 2>/dev/null")), ..lrp(action) });
    cell.wait_until_running(guid).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    cell.wait_until_running(guid).await;
    let pid = cell.root.path().join(format!("data/containers/{guid}/work/pid"));
    crate::support::kill(std::fs::read_to_string(pid).unwrap().trim().parse().unwrap());
    assert_eq!(cell.wait_for_failure(guid).await, "Instance became unhealthy: Exited with status 1");
    cell.delete_all().await;
}
