//! A cell that is lost, and a server that is away for so long that every cell is silent.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::dev::sleeper;
use crate::support::containers::{living_in, signal};
use crate::support::place::so;
use crate::support::{Cluster, eventually};

/// Silence is believed after 15 s and a probe; then everything starts elsewhere. Machines are busy.
const REPLACED: Duration = Duration::from_secs(90);
/// Longer than the silence after which a cell is probed, and the probe.
const AWAY: Duration = Duration::from_secs(19);

/// The events of a kind in the log.
fn events(cluster: &Cluster, kind: &str) -> Vec<Value> {
    let log = cluster.log();
    let decisions = log.iter().flat_map(|entry| entry["entry"]["known"]["decisions"].as_array().unwrap());
    let events = decisions.flat_map(|decision| decision["events"].as_array().unwrap());
    events.filter(|event| event.to_string().contains(kind)).cloned().collect()
}

#[test]
fn what_ran_on_a_lost_cell_runs_elsewhere() {
    let cells = ["rep-c1", "rep-c2", "rep-c3", "rep-c4", "rep-c5"];
    let mut cluster = Cluster::start(&[&["bbs-1", "auctioneer-1"][..], &cells[..]].concat());
    let muster = cluster.muster();
    let file = cluster.place.file("web.toml", sleeper("web", 5));
    muster.ok(&format!("lrp desire {}", file.display()));
    for cell in ["c1", "c2", "c3", "c4", "c5"] {
        let task = format!(
            "task_guid = \"on-{cell}\"\ndomain = \"shop\"\naction.run = {{ path = \"sleep\", args = [\"100000\"] }}\n"
        );
        let file = cluster.place.file("task.toml", task);
        muster.ok(&format!("task run {}", file.display()));
    }
    let task_on = |cell: &str| {
        eventually("a task runs there", || {
            let rows = muster.try_json("task list")?;
            let found = rows.as_array().unwrap().iter().find(|row| row["cell_id"] == cell);
            found.map(|row| row["task_guid"].as_str().unwrap().to_owned()).ok_or_else(|| rows.to_string())
        })
    };
    let (lost_task, left_task) = (task_on("c2"), task_on("c3"));
    let hit: Vec<Value> = muster.instances("web").unwrap().into_iter().filter(is_hit).collect();
    assert_eq!(hit.len(), 2, "one on each cell");

    // One host dies; on another one only the rep does, and its containers run on, out of sight.
    cluster.kill9("rep-c2");
    for process in living_in(&cluster.place.path().join("rep-c2")) {
        signal(process.pid, Signal::KILL);
    }
    cluster.kill9("rep-c3");
    cluster.place.tell("and every container of c2");
    let killed = Instant::now();
    let replaced = crate::support::place::within(REPLACED, "everything runs elsewhere", || {
        let rows = muster.instances("web")?;
        let fine = rows.iter().all(|row| row["state"] == "RUNNING" && !is_hit(row));
        so(rows.len() == 5 && fine, || format!("{rows:#?}")).map(|()| killed.elapsed())
    });
    cluster.place.tell(&format!("what ran on two lost cells ran elsewhere after {replaced:.1?}"));
    assert!(replaced > Duration::from_secs(10), "nobody is lost so soon: {replaced:?}");

    for cell in ["c2", "c3"] {
        assert_eq!(muster.json(&format!("cell show {cell}"))["state"], "ABSENT");
        assert!(muster.json(&format!("history cell {cell}")).to_string().contains("disappeared.v1"));
    }
    for task in [&lost_task, &left_task] {
        let row = muster.json(&format!("task show {task}"));
        assert_eq!(row["failure_reason"], "cell disappeared before completion", "{row}");
    }
    let index = hit[0]["index"].as_u64().unwrap();
    muster.ok(&format!("why web/{index}")).tells(&["its cell disappeared"]);

    // Both come back: what they still have is not wanted any more.
    cluster.add("rep-c2");
    cluster.add("rep-c3");
    cluster.ready(5);
    eventually("the tasks of a lost cell are ended", || {
        let left = living_in(&cluster.place.path().join("rep-c3"));
        let left: Vec<_> = left.iter().filter(|process| process.guid.is_some()).collect();
        so(left.is_empty(), || format!("{left:?}"))
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
    cluster.settles(&[("web", 5)]);
}

fn is_hit(row: &Value) -> bool {
    row["cell_id"] == "c2" || row["cell_id"] == "c3"
}

#[test]
fn a_cell_that_is_evacuated_ends_empty() {
    let mut cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1", "rep-c2"]);
    let muster = cluster.muster();
    let file = cluster.place.file("web.toml", sleeper("web", 4));
    muster.ok(&format!("lrp desire {}", file.display()));
    muster.exits(3, "cell evacuate c9");
    muster.ok("cell evacuate c1 --reason maintenance");
    let rep = cluster.services.remove("rep-c1").unwrap();
    assert_eq!(rep.wait().code(), Some(10), "a rep ends by itself when its cell is empty");
    cluster.place.tell("c1 is evacuated");
    assert_eq!(living_in(&cluster.place.path().join("rep-c1")), []);
    cluster.settles(&[("web", 4)]);
    let rows = muster.instances("web").unwrap();
    assert!(rows.iter().all(|row| row["cell_id"] == "c2" && row["crash_count"] == 0), "{rows:#?}");
    // Started again it takes work again.
    cluster.add("rep-c1");
    cluster.ready(2);
    muster.ok("lrp scale web=6");
    let rows = muster.instances("web").unwrap();
    assert_eq!(rows.iter().filter(|row| row["cell_id"] == "c1").count(), 2, "{rows:#?}");
}

#[test]
fn a_server_that_is_away_loses_no_cell() {
    let mut cluster = Cluster::empty();
    cluster.add_with("bbs-1", &["--mass-loss-wait", "0"]);
    ["auctioneer-1", "rep-c1", "rep-c2"].iter().for_each(|name| cluster.add(name));
    cluster.ready(2);
    let file = cluster.place.file("web.toml", sleeper("web", 2));
    cluster.muster().ok(&format!("lrp desire {}", file.display()));
    let before = cluster.muster().instances("web").unwrap();

    cluster.place.tell("kill -9 nats-server");
    cluster.server.kill9();
    std::thread::sleep(AWAY);
    cluster.server.restart();
    cluster.place.tell("nats-server is there again");
    cluster.muster().ok("lrp scale web=3 --timeout 60s");
    cluster.settles(&[("web", 3)]);
    assert_eq!(events(&cluster, "disappeared.v1"), [] as [Value; 0]);
    let after = cluster.muster().instances("web").unwrap();
    assert_eq!(after[..2], before, "nothing was moved");
}
