//! Tests of the loss of a cell, and of an outage of the server during which every cell is silent.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::dev::sleeper;
use crate::support::containers::{processes_in, signal};
use crate::support::test_dir::ensure;
use crate::support::{Cluster, eventually};

/// Timeout until all instances and tasks of a lost cell run elsewhere. A cell is lost after 15 s of silence
/// and a failed probe. The machine may be busy.
const REPLACEMENT_TIMEOUT: Duration = Duration::from_secs(90);
/// Duration of the outage. It is longer than the silence before a probe plus the duration of the probe.
const OUTAGE: Duration = Duration::from_secs(19);

/// Returns the events of a kind in the log.
fn events(cluster: &Cluster, kind: &str) -> Vec<Value> {
    let log = cluster.entries();
    let decisions = log.iter().flat_map(|entry| entry["entry"]["known"]["decisions"].as_array().unwrap());
    let events = decisions.flat_map(|decision| decision["events"].as_array().unwrap());
    events.filter(|event| event.to_string().contains(kind)).cloned().collect()
}

#[test]
fn work_of_lost_cells_runs_elsewhere() {
    let cells = ["rep-c1", "rep-c2", "rep-c3", "rep-c4", "rep-c5"];
    let mut cluster = Cluster::start(&[&["bbs-1", "auctioneer-1"][..], &cells[..]].concat());
    let muster = cluster.muster();
    let file = cluster.place.write_file("web.toml", sleeper("web", 5));
    muster.ok(&format!("apply {}", file.display()));
    for cell in ["c1", "c2", "c3", "c4", "c5"] {
        let task = format!(
            "task_guid = \"on-{cell}\"\ndomain = \"shop\"\naction.run = {{ path = \"sleep\", args = [\"100000\"] }}\n"
        );
        let file = cluster.place.write_file("task.toml", task);
        muster.ok(&format!("run --detach {}", file.display()));
    }
    let task_on = |cell: &str| {
        eventually(&format!("a task runs on {cell}"), || {
            let rows = muster.try_json("task list")?;
            let found = rows.as_array().unwrap().iter().find(|row| row["cell_id"] == cell);
            found.map(|row| row["task_guid"].as_str().unwrap().to_owned()).ok_or_else(|| rows.to_string())
        })
    };
    let (lost_task, left_task) = (task_on("c2"), task_on("c3"));
    let hit: Vec<Value> = muster.instances("web").unwrap().into_iter().filter(is_on_lost_cell).collect();
    assert_eq!(hit.len(), 2, "one instance on each cell");

    // One host fails completely. On another host, only the rep fails. The containers on this host keep
    // running, but no rep observes them.
    cluster.kill9("rep-c2");
    for process in processes_in(&cluster.place.path().join("rep-c2")) {
        signal(process.pid, Signal::KILL);
    }
    cluster.kill9("rep-c3");
    cluster.place.print_event("killed every container of c2");
    let killed = Instant::now();
    let replaced =
        crate::support::test_dir::wait_within(REPLACEMENT_TIMEOUT, "all instances run elsewhere", || {
            let rows = muster.instances("web")?;
            let fine = rows.iter().all(|row| row["state"] == "RUNNING" && !is_on_lost_cell(row));
            ensure(rows.len() == 5 && fine, || format!("{rows:#?}")).map(|()| killed.elapsed())
        });
    cluster.place.print_event(&format!("the instances of two lost cells ran elsewhere after {replaced:.1?}"));
    assert!(replaced > Duration::from_secs(10), "the cells were lost too early: {replaced:?}");

    for cell in ["c2", "c3"] {
        assert_eq!(muster.json(&format!("cell show {cell}"))["state"], "ABSENT");
        assert!(muster.json(&format!("history cell {cell}")).to_string().contains("disappeared.v1"));
    }
    for task in [&lost_task, &left_task] {
        let row = muster.json(&format!("task show {task}"));
        assert_eq!(row["failure_reason"], "cell disappeared before completion", "{row}");
    }
    let index = hit[0]["index"].as_u64().unwrap();
    muster.ok(&format!("why web/{index}")).expect_output(&["its cell disappeared"]);

    // Both reps return. Their containers still exist, but other containers have taken over the instances and
    // tasks.
    cluster.start_service("rep-c2");
    cluster.start_service("rep-c3");
    cluster.wait_until_ready(5);
    eventually("the containers of a returned cell have ended", || {
        let left = processes_in(&cluster.place.path().join("rep-c3"));
        let left: Vec<_> = left.iter().filter(|process| process.guid.is_some()).collect();
        ensure(left.is_empty(), || format!("{left:?}"))
    });
    muster.ok("task list");
    let rows = muster.instances("web").unwrap();
    assert_eq!(rows.len(), 5);
    for task in ["on-c1", "on-c2", "on-c3", "on-c4", "on-c5"]
        .iter()
        .filter(|task| ![lost_task.as_str(), left_task.as_str()].contains(*task))
    {
        muster.ok(&format!("task cancel {task}"));
    }
    cluster.wait_until_settled(&[("web", 5)]);
}

fn is_on_lost_cell(row: &Value) -> bool {
    row["cell_id"] == "c2" || row["cell_id"] == "c3"
}

#[test]
fn evacuated_rep_exits_with_empty_cell() {
    let mut cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1", "rep-c2"]);
    let muster = cluster.muster();
    let file = cluster.place.write_file("web.toml", sleeper("web", 4));
    muster.ok(&format!("apply {}", file.display()));
    muster.exits(3, "cell evacuate c9");
    muster.ok("cell evacuate c1 --reason maintenance");
    let rep = cluster.services.remove("rep-c1").unwrap();
    assert_eq!(rep.wait().code(), Some(10), "a rep exits when its evacuated cell is empty");
    cluster.place.print_event("c1 is evacuated");
    assert_eq!(processes_in(&cluster.place.path().join("rep-c1")), []);
    cluster.wait_until_settled(&[("web", 4)]);
    let rows = muster.instances("web").unwrap();
    assert!(rows.iter().all(|row| row["cell_id"] == "c2" && row["crash_count"] == 0), "{rows:#?}");
    // A restarted rep accepts work again.
    cluster.start_service("rep-c1");
    cluster.wait_until_ready(2);
    muster.ok("lrp scale web=6");
    let rows = muster.instances("web").unwrap();
    assert_eq!(rows.iter().filter(|row| row["cell_id"] == "c1").count(), 2, "{rows:#?}");
}

#[test]
fn server_outage_loses_no_cell() {
    let mut cluster = Cluster::empty();
    cluster.start_service_with("bbs-1", &["--mass-loss-wait", "0"]);
    ["auctioneer-1", "rep-c1", "rep-c2"].iter().for_each(|name| cluster.start_service(name));
    cluster.wait_until_ready(2);
    let file = cluster.place.write_file("web.toml", sleeper("web", 2));
    cluster.muster().ok(&format!("apply {}", file.display()));
    let before = cluster.muster().instances("web").unwrap();

    cluster.place.print_event("kill -9 nats-server");
    cluster.server.kill9();
    std::thread::sleep(OUTAGE);
    cluster.server.restart();
    cluster.place.print_event("nats-server is restarted");
    cluster.muster().ok("lrp scale web=3 --timeout 60s");
    cluster.wait_until_settled(&[("web", 3)]);
    assert_eq!(events(&cluster, "disappeared.v1"), [] as [Value; 0]);
    let after = cluster.muster().instances("web").unwrap();
    assert_eq!(after[..2], before, "no instance was moved");
}
