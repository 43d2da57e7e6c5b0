//! Tests of the processor share of a container, and of the marks that identify its processes.

use std::path::PathBuf;
use std::time::Duration;

use executor::process::{Groups, Settings};
use schemas::container::{ContainerState, Recipe, RunResult};
use schemas::names::InstanceGuid;

use crate::support::{Cell, eventually, kill, lrp, processes_of, sh, shim_of};

/// Settings for both ways to track processes: with control groups if this host permits them, and without
/// control groups.
const GROUP_SETTINGS: [Groups; 2] = [Groups::Own, Groups::Never];
/// Script that starts a process with a hidden origin. The process has a separate session, environment and
/// directory, no parent, and no descriptor of the container.
const FUGITIVE_SCRIPT: &str =
    "(setsid env -i sh -c 'cd /; echo $$ >&3; exec sleep 600 3>&- >/dev/null 2>&1 </dev/null' 3>pid &)
    while [ ! -s pid ]; do sleep 0.01; done; echo ready; exec sleep 60";

async fn cell(groups: &Groups) -> Cell {
    Cell::with(|settings| Settings { groups: groups.clone(), ..settings }).await
}

/// Returns `true` if a process is running. A zombie does not count as running.
fn is_running(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

fn work(cell: &Cell, guid: InstanceGuid) -> PathBuf {
    cell.root.path().join(format!("data/containers/{guid}/work"))
}

/// Starts a container with a process that uses every known way to detach itself from the container.
async fn start_fugitive(cell: &mut Cell) -> (InstanceGuid, i32) {
    let guid = cell.run(lrp(sh(FUGITIVE_SCRIPT)));
    cell.wait_for_line(guid, "ready").await;
    let pid: i32 = std::fs::read_to_string(work(cell, guid).join("pid")).unwrap().trim().parse().unwrap();
    assert!(is_running(pid) && !processes_of(guid).contains(&pid), "its environment does not identify it");
    (guid, pid)
}

#[tokio::test]
async fn detached_process_is_killed_after_its_shim_was_killed() {
    for groups in GROUP_SETTINGS {
        let mut cell = cell(&groups).await;
        let (guid, pid) = start_fugitive(&mut cell).await;
        kill(shim_of(guid));
        assert_eq!(
            cell.wait_for_failure(guid).await,
            "the shim of the container ended unexpectedly",
            "{groups:?}"
        );
        assert!(!is_running(pid), "{groups:?}: the process outlives its container");
        cell.delete_all().await;
    }
}

#[tokio::test]
async fn detached_process_is_killed_after_shim_and_rep_were_killed() {
    for groups in GROUP_SETTINGS {
        let mut cell = cell(&groups).await;
        let (guid, pid) = start_fugitive(&mut cell).await;
        let shim = shim_of(guid);
        let mut cell = cell
            .reopen_with(|settings| Settings { groups: groups.clone(), ..settings }, async {
                kill(shim);
                eventually(async || !is_running(shim)).await;
                assert!(is_running(pid), "no shim or rep was left to kill it");
            })
            .await;
        assert_eq!(
            cell.wait_for_failure(guid).await,
            "the shim of the container ended unexpectedly",
            "{groups:?}"
        );
        assert!(!is_running(pid), "{groups:?}: the process outlives its container");
        cell.delete_all().await;
    }
}

#[tokio::test]
async fn detached_process_is_killed_by_stop() {
    for groups in GROUP_SETTINGS {
        let mut cell = cell(&groups).await;
        let (guid, pid) = start_fugitive(&mut cell).await;
        cell.executor.stop(guid);
        assert_eq!(cell.wait_until_completed(guid).await, RunResult::Stopped);
        assert!(!is_running(pid), "{groups:?}: the process outlives its container");
        cell.delete_all().await;
    }
}

/// Returns the nice value of a process.
fn nice(pid: &str) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(16).unwrap().parse().unwrap()
}

#[tokio::test]
async fn smaller_weight_raises_the_nice_value() {
    let mut cell = cell(&Groups::Never).await;
    let own = nice("self");
    for (cpu_weight, raised) in [(0, 0), (1024, 0), (512, 3), (102, 10), (1, 19)] {
        let guid = cell.run(Recipe { cpu_weight, ..lrp(sh("sleep 61 & echo ready; exec sleep 60")) });
        cell.wait_for_line(guid, "ready").await;
        eventually(async || processes_of(guid).len() == 3).await;
        for pid in processes_of(guid) {
            assert_eq!(nice(&pid.to_string()), (own + raised).min(19), "cpu_weight {cpu_weight}");
        }
    }
    cell.delete_all().await;
}

#[tokio::test]
async fn container_runs_without_control_group() {
    let nowhere = Groups::Below("/no/such/group".into());
    let mut cell = cell(&nowhere).await;
    let guid = cell.run(Recipe { cpu_weight: 512, ..lrp(sh("echo ready; exec sleep 60")) });
    cell.wait_for_line(guid, "ready").await;
    eventually(async || matches!(cell.get(guid).unwrap().state, ContainerState::Running(_))).await;
    assert_eq!(nice(&shim_of(guid).to_string()), (nice("self") + 3).min(19));
    tokio::time::sleep(Duration::from_millis(1)).await;
    cell.delete_all().await;
}
