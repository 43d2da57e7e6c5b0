//! Tests of the removal of containers' files.

use std::fs;
use std::path::Path;

use executor::process::{Executor, FIRST_ID, IsolationPolicy, Settings};

use crate::support::{Cell, eventually, lrp, program, settings, sh, task};

/// Script that nests folders so deeply that a recursive removal would cause a stack overflow. The nested
/// folders are below folders with long names and folders without permissions.
pub(crate) const NEST_SCRIPT: &str = "for (1..30) { $n = q(l) x 200; mkdir $n; chdir $n } mkdir q(closed), 0;
    for (1..16000) { mkdir q(d); chdir q(d) or die }";

fn with_isolation(settings: Settings) -> Settings {
    Settings { isolate: IsolationPolicy::BestEffort { first_id: FIRST_ID }, ..settings }
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

#[tokio::test]
async fn deeply_nested_folders_are_removed_after_deletion() {
    for change in [std::convert::identity, with_isolation] {
        let mut cell = Cell::in_memory(change).await;
        let guid = cell.run(task(program("perl", &["-e", NEST_SCRIPT])));
        cell.wait_until_completed(guid).await;
        cell.executor.delete(guid);
        eventually(async || cell.get(guid).is_none()).await;
        eventually(async || is_empty(&cell.root.path().join("data/trash"))).await;
        assert_eq!(cell.executor.unremoved_folders(), 0);
        cell.delete_all().await;
    }
}

#[tokio::test]
async fn damaged_container_folders_do_not_prevent_startup() {
    let mut cell = Cell::in_memory(std::convert::identity).await;
    let mut guids = vec![];
    let spoil = [
        "rm ../events && mkdir ../events",
        "rm ../orders ../events && ln -s . ../events",
        "echo '{' > ../spec.json",
        "mkdir -p ../../../ended/00000000-0000-4000-8000-000000000000/log && touch ../../../ended/00000000-0000-4000-8000-000000000001",
    ];
    for script in spoil {
        let guid = cell.run(lrp(sh(&format!("{script}; echo done; exec sleep 1000"))));
        cell.wait_for_line(guid, "done").await;
        guids.push(guid);
    }
    let data = cell.root.path().join("data");
    let mut cell = cell.reopen_after(async {}).await;
    for guid in &guids[..3] {
        assert!(cell.get(*guid).is_none(), "a damaged folder is not a container");
        eventually(async || crate::support::processes_of(*guid).is_empty()).await;
    }
    cell.wait_until_running(guids[3]).await;
    eventually(async || is_empty(&data.join("trash"))).await;
    cell.delete_all().await;
}

#[tokio::test]
async fn trash_is_emptied_in_the_background_after_startup() {
    let root = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let trash = root.path().join("data/trash");
    fs::create_dir_all(trash.join("old")).unwrap();
    let nested =
        std::process::Command::new("perl").args(["-e", NEST_SCRIPT]).current_dir(trash.join("old")).status();
    assert!(nested.unwrap().success());
    let (executor, _events) = Executor::open(settings(root.path().join("data"))).await.unwrap();
    executor.self_test().await.unwrap();
    eventually(async || is_empty(&trash)).await;
}
