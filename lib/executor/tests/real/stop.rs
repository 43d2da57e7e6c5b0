//! Tests of stopping a container with its whole process tree.

use std::time::{Duration, Instant};

use schemas::container::{Recipe, RunResult};

use crate::support::{Cell, TIMEOUT, eventually, kill, lrp, processes_of, sh, shim_of};

#[tokio::test]
async fn stop_sends_term_first() {
    let mut cell = Cell::new().await;
    let guid = cell.run(lrp(sh("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done")));
    cell.wait_for_line(guid, "ready").await;
    cell.executor.stop(guid);
    assert_eq!(cell.wait_until_completed(guid).await, RunResult::Stopped);
    assert!(cell.log(guid).await.contains(&"OUT bye".to_owned()));
    assert!(processes_of(guid).is_empty());
    cell.delete_all().await;
}

#[tokio::test]
async fn process_that_ignores_term_is_killed_after_grace_period() {
    let mut cell = Cell::new().await;
    let script = "trap '' TERM; echo ready; while :; do sleep 0.05; done";
    let guid = cell.run(Recipe { grace_period_ms: 400, ..lrp(sh(script)) });
    cell.wait_for_line(guid, "ready").await;
    let begun = Instant::now();
    cell.executor.stop(guid);
    assert_eq!(cell.wait_until_completed(guid).await, RunResult::Stopped);
    assert!(begun.elapsed() >= Duration::from_millis(400), "killed within its grace period");
    assert!(processes_of(guid).is_empty());
    cell.delete_all().await;
}

#[tokio::test]
async fn stop_ends_detached_daemons() {
    let mut cell = Cell::new().await;
    let daemon = "trap \"\" TERM; echo daemon; while :; do sleep 0.05; done";
    let script = format!("(setsid sh -c '{daemon}' &) ; (setsid env -i sleep 67 &) ; exec sleep 60");
    let guid = cell.run(Recipe { grace_period_ms: 200, ..lrp(sh(&script)) });
    cell.wait_for_line(guid, "daemon").await;
    let work = format!("/data/containers/{guid}/work");
    let in_work = || {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let places = entries.filter_map(|entry| std::fs::read_link(entry.path().join("cwd")).ok());
        places.filter(|place| place.to_string_lossy().contains(&work)).count()
    };
    eventually(async || in_work() >= 3).await;
    cell.executor.stop(guid);
    assert_eq!(cell.wait_until_completed(guid).await, RunResult::Stopped);
    assert!(processes_of(guid).is_empty());
    assert_eq!(in_work(), 0, "processes without a mark are killed, too");
    cell.delete_all().await;
}

#[tokio::test]
async fn delete_stops_container_and_leaves_only_its_log() {
    let mut cell = Cell::new().await;
    let guid = cell.run(Recipe {
        ports: vec![1],
        ..lrp(sh("mkdir -p a/b; touch a/b/c; chmod 0 a/b; echo ready; exec sleep 60"))
    });
    cell.wait_for_line(guid, "ready").await;
    cell.executor.delete(guid);
    eventually(async || cell.get(guid).is_none()).await;
    assert!(processes_of(guid).is_empty());
    assert!(!cell.root.path().join(format!("data/containers/{guid}")).exists());
    assert_eq!(cell.log(guid).await, ["OUT ready"], "only its log is left");
    cell.delete_all().await;
}

#[tokio::test]
async fn stop_during_creation_is_not_lost() {
    let mut cell = Cell::new().await;
    let guids: Vec<_> = (0..8).map(|_| cell.run(lrp(sh("exec sleep 60")))).collect();
    for (at, &guid) in guids.iter().enumerate() {
        tokio::time::sleep(Duration::from_millis(u64::try_from(at).unwrap() / 2)).await;
        cell.executor.stop(guid);
        cell.executor.stop(guid);
    }
    for guid in guids {
        assert_eq!(cell.wait_until_completed(guid).await, RunResult::Stopped);
    }
    cell.delete_all().await;
}

#[tokio::test]
async fn killed_shim_fails_container_and_its_tree_is_killed() {
    let mut cell = Cell::new().await;
    let guid = cell.run(lrp(sh("(setsid sleep 63 &); sleep 62 & exec sleep 60")));
    cell.wait_until_running(guid).await;
    eventually(async || processes_of(guid).len() == 4).await;
    let begun = Instant::now();
    kill(shim_of(guid));
    assert_eq!(cell.wait_for_failure(guid).await, "the shim of the container ended unexpectedly");
    println!("a killed shim was reported after {:?}", begun.elapsed());
    assert!(processes_of(guid).is_empty());
    cell.delete_all().await;
}

#[tokio::test]
async fn killed_shim_during_stop_counts_as_stopped() {
    let mut cell = Cell::new().await;
    let guid = cell.run(lrp(sh("trap '' TERM; echo ready; while :; do sleep 0.05; done")));
    cell.wait_for_line(guid, "ready").await;
    cell.executor.stop(guid);
    tokio::time::sleep(Duration::from_millis(20)).await;
    kill(shim_of(guid));
    let stopped = tokio::time::timeout(TIMEOUT, cell.wait_until_completed(guid)).await.unwrap();
    assert_eq!(stopped, RunResult::Stopped);
    assert!(processes_of(guid).is_empty());
    cell.delete_all().await;
}
