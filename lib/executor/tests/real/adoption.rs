//! Tests of containers that outlive the rep.

use std::time::Duration;

use executor::process::{Executor, OpenError};
use schemas::container::{ContainerState, Recipe, RunResult};

use crate::support::{Cell, eventually, kill, lrp, processes_of, settings, sh, shim_of, task};

#[tokio::test]
async fn second_executor_on_a_data_folder_is_refused() {
    let cell = Cell::new().await;
    let second = Executor::open(settings(cell.root.path().join("data"))).await;
    let error = second.expect_err("the folder is in use");
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    assert!(error.to_string().starts_with("the containers of "), "{error}");
    cell.delete_all().await;
}

#[tokio::test]
async fn running_container_is_adopted_with_ports_and_log() {
    let mut cell = Cell::new().await;
    let script = "echo $PORT; echo ready; while [ ! -e go ]; do sleep 0.01; done; echo went; exec sleep 60";
    let guid = cell.run(Recipe { ports: vec![8080], ..lrp(sh(script)) });
    let net = cell.wait_until_running(guid).await;
    cell.wait_for_line(guid, "ready").await;
    let before = cell.get(guid).unwrap();
    let shim = shim_of(guid);

    let work = cell.root.path().join(format!("data/containers/{guid}/work"));
    let mut cell = cell.reopen_after(async { std::fs::write(work.join("go"), "").unwrap() }).await;
    assert_eq!(cell.get(guid).unwrap(), before);
    assert_eq!(shim_of(guid), shim);
    cell.wait_for_line(guid, "went").await;
    assert_eq!(cell.log(guid).await[0], format!("OUT {}", net.ports[0].host_port));
    let other = cell.run(Recipe { ports: vec![8080], ..lrp(sh("exec sleep 60")) });
    assert_ne!(cell.wait_until_running(other).await.ports, net.ports);
    cell.executor.stop(guid);
    assert_eq!(cell.wait_until_completed(guid).await, RunResult::Stopped);
    cell.delete_all().await;
}

#[tokio::test]
async fn container_that_ended_without_executor_is_adopted_with_result() {
    let mut cell = Cell::new().await;
    let wait = "while [ ! -e go ]; do sleep 0.01; done";
    let good = cell.run(Recipe { result_file: "out".into(), ..task(sh(&format!("{wait}; echo 5 > out"))) });
    let bad = cell.run(lrp(sh(&format!("{wait}; exit 5"))));
    cell.wait_until_running(good).await;
    cell.wait_until_running(bad).await;
    let containers = cell.root.path().join("data/containers");
    let away = async {
        for guid in [good, bad] {
            std::fs::write(containers.join(guid.to_string()).join("work/go"), "").unwrap();
            eventually(async || processes_of(guid).is_empty()).await;
        }
    };
    let mut cell = cell.reopen_after(away).await;
    assert_eq!(cell.wait_until_completed(good).await, RunResult::Succeeded { result: "5\n".into() });
    assert_eq!(cell.wait_for_failure(bad).await, "Exited with status 5");
    // The result is reported again after each restart, until the container is deleted.
    let mut cell = cell.reopen_after(async {}).await;
    assert_eq!(cell.wait_for_failure(bad).await, "Exited with status 5");
    cell.delete_all().await;
}

#[tokio::test]
async fn shim_killed_before_adoption_fails_the_container() {
    let mut cell = Cell::new().await;
    let guid = cell.run(lrp(sh("sleep 62 & exec sleep 60")));
    cell.wait_until_running(guid).await;
    eventually(async || processes_of(guid).len() == 3).await;
    let shim = shim_of(guid);
    let mut cell = cell.reopen_after(async { kill(shim) }).await;
    assert_eq!(cell.wait_for_failure(guid).await, "the shim of the container ended unexpectedly");
    assert!(processes_of(guid).is_empty());
    cell.delete_all().await;
}

#[tokio::test]
async fn shim_killed_after_adoption_fails_the_container() {
    let mut cell = Cell::new().await;
    let guid = cell.run(lrp(sh("exec sleep 60")));
    cell.wait_until_running(guid).await;
    let mut cell = cell.reopen_after(async {}).await;
    assert!(matches!(cell.get(guid).unwrap().state, ContainerState::Running(_)));
    kill(shim_of(guid));
    assert_eq!(cell.wait_for_failure(guid).await, "the shim of the container ended unexpectedly");
    cell.delete_all().await;
}

#[tokio::test]
async fn half_written_folders_are_removed_at_startup() {
    let cell = Cell::new().await;
    let data = cell.root.path().join("data");
    let away = async {
        for name in
            ["not-a-guid", "0198c0de-0000-7000-8000-000000000001", "0198c0de-0000-7000-8000-000000000002"]
        {
            std::fs::create_dir_all(data.join("containers").join(name).join("work")).unwrap();
        }
        let spoiled = data.join("containers/0198c0de-0000-7000-8000-000000000002/spec.json");
        std::fs::write(spoiled, "{\"recipe\":").unwrap();
        std::fs::write(data.join("containers/stray"), "").unwrap();
        std::fs::create_dir_all(data.join("trash/old/work")).unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    let cell = cell.reopen_after(away).await;
    assert_eq!(cell.executor.list(), []);
    cell.delete_all().await;
}
