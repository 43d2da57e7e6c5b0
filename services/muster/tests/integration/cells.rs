//! Cells: their resources, their reps, and their evacuation.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::dev::sleeper;
use crate::support::containers::processes_in;
use crate::support::test_dir::{ensure, wait_within};
use crate::support::{Cluster, eventually};

/// Returns a process whose instances need one port each.
fn listener(name: &str, instances: usize) -> String {
    format!("{}ports = [8080]\n", sleeper(name, instances))
}

/// Returns two adjacent free ports. Ports 20000 to 29999 belong to other cells of these tests, and the system
/// assigns ports from 32768. Both ranges are avoided.
fn two_ports() -> String {
    let pairs: Vec<u16> = (30_000..32_766).step_by(2).collect();
    let begin = usize::try_from(std::process::id()).unwrap() % pairs.len();
    let free = |port: u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok();
    let mut from = pairs[begin..].iter().chain(&pairs[..begin]);
    let first = from.find(|port| free(**port) && free(**port + 1)).expect("two adjacent free ports");
    format!("{first}-{}", first + 1)
}

#[test]
fn host_ports_are_a_resource_of_the_cell() {
    let mut cluster = Cluster::start(&["bbs-1", "auctioneer-1"]);
    cluster.start_service_with("rep-c1", &["--ports", &two_ports()]);
    cluster.wait_until_ready(1);
    let (first, second) = (
        cluster.place.write_file("first.toml", listener("first", 2)),
        cluster.place.write_file("second.toml", listener("second", 1)),
    );
    cluster.muster().ok(&format!("apply {}", first.display()));
    let said = cluster.muster().exits(6, &format!("apply {}", second.display()));
    said.expect_output(&["second/0 is not placed: insufficient resources: ports"]);
    let rows = cluster.muster().instances("second").unwrap();
    assert_eq!((&rows[0]["state"], &rows[0]["crash_count"]), (&"UNCLAIMED".into(), &0.into()));
    cluster.muster().ok("cell show c1").expect_output(&["2/2"]);

    // The instance is placed as soon as a port is free.
    cluster.muster().ok("lrp scale first=1");
    cluster.muster().wait_until_running("second", 1);
    eventually("the cell is full again", || {
        let cell = cluster.muster().try_json("cell show c1")?;
        ensure(cell["used"]["ports"] == 2, || cell.to_string())
    });
    let crashed = cluster.entries().iter().any(|entry| entry.to_string().contains("crashed.v1"));
    assert!(!crashed, "no instance crashed");
}

/// Returns a process whose monitor fails until the file `up` exists.
fn unhealthy(name: &str, up: &std::path::Path) -> String {
    format!(
        "{}cpu_weight = 512\nmonitor.run = {{ path = \"sh\", args = [\"-c\", \"echo no {up} yet; test -e {up}\"] }}\n",
        sleeper(name, 1),
        up = up.display()
    )
}

#[test]
fn failing_monitor_is_reported_and_log_outlives_instance() {
    let mut cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let up = cluster.place.path().join("up");
    let file = cluster.place.write_file("sick.toml", unhealthy("sick", &up));
    let why = format!("Exited with status 1: no {} yet", up.display());
    let said = cluster.muster().exits(8, &format!("apply {} --timeout 4s", file.display()));
    said.expect_output(&[&format!("sick/0 is not healthy yet: {why}")]);
    let row = cluster.muster().json("instance show sick/0");
    assert_eq!(row["health"]["was_healthy"], false, "{row}");
    cluster.muster().ok("instance show sick/0").expect_output(&["monitor", "failed ", "| no "]);
    let guid = row["instance_guid"].as_str().unwrap().to_owned();
    cluster
        .services
        .get_mut("rep-c1")
        .unwrap()
        .wait_for_log(&format!("sick/0 as {guid}: the monitor fails: {why}"));

    std::fs::write(&up, "").unwrap();
    cluster.muster().wait_until_running("sick", 1);
    let rep = cluster.services.get_mut("rep-c1").unwrap();
    rep.wait_for_log(&format!("starts sick/0 as {guid}"));
    rep.wait_for_log(&format!("sick/0 as {guid}: the monitor succeeds"));
    cluster.muster().ok("lrp delete sick");
    cluster.services.get_mut("rep-c1").unwrap().wait_for_log(&format!("stops sick/0 as {guid}"));

    let file = cluster.place.write_file(
        "said.toml",
        "process_guid = \"said\"\ndomain = \"shop\"\nmemory_mb = 8\n\
         action.run = { path = \"sh\", args = [\"-c\", \"grep THP_enabled /proc/self/status; echo last words; exec sleep 100000\"] }\n",
    );
    cluster.muster().ok(&format!("apply {}", file.display()));
    let guid = cluster.muster().json("instance show said/0")["instance_guid"].as_str().unwrap().to_owned();
    cluster.muster().ok("lrp delete said");
    eventually("the instance is gone", || {
        let rows = cluster.muster().instances("said")?;
        ensure(rows.is_empty(), || format!("{rows:?}"))
    });
    // A shim runs without huge pages, but its container may still use them.
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let huge_pages = own.lines().find(|line| line.starts_with("THP_enabled")).unwrap_or_default();
    cluster.muster().ok(&format!("logs {guid}")).expect_output(&["OUT last words", huge_pages]);
    cluster.muster().exits(3, "logs 00000000-0000-0000-0000-000000000001").expect_output(&["for a day"]);
}

#[test]
fn second_rep_of_a_present_cell_is_refused() {
    let mut cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let file = cluster.place.write_file("web.toml", sleeper("web", 2));
    cluster.muster().ok(&format!("apply {}", file.display()));
    cluster.wait_until_settled(&[("web", 2)]);
    let before = cluster.muster().instances("web").unwrap();

    // The same options with another data folder.
    let data = cluster.place.path().join("other").display().to_string();
    let size = ["--memory-mb", "1024", "--disk-mb", "1024"];
    let who = ["rep", "--cell", "c1", "--zone", "z1", "--data", &data];
    cluster.spawn("second", &who.into_iter().chain(size).collect::<Vec<_>>());
    cluster.services.get_mut("second").unwrap().wait_for_log("another rep represents cell c1");
    cluster.services.get_mut("bbs-1").unwrap().wait_for_log("another rep represents cell c1");
    assert_eq!(cluster.muster().instances("web").unwrap(), before, "no instance was moved");
    cluster.wait_until_settled(&[("web", 2)]);

    // The first rep may restart at once in its own folder.
    cluster.kill9("rep-c1");
    cluster.start_service("rep-c1");
    cluster.wait_until_ready(1);
    cluster.wait_until_settled(&[("web", 2)]);
    let appeared = |cluster: &Cluster| {
        let folder = |entry: &serde_json::Value| {
            let events = &entry["entry"]["known"]["decisions"][0]["events"][0];
            events["cell"]["appeared.v1"]["folder"].as_str().map(str::to_owned)
        };
        cluster.entries().iter().filter_map(folder).collect::<Vec<_>>()
    };
    wait_within(Duration::from_secs(20), "the first rep is attached to the cell again", || {
        let folders = appeared(&cluster);
        ensure(folders.len() >= 2, || format!("{folders:?}"))
    });
    let folders = appeared(&cluster);
    assert!(folders.iter().all(|folder| *folder == folders[0]), "{folders:?}");

    // When the first rep is lost, the second rep takes over the cell.
    cluster.kill9("rep-c1");
    wait_within(Duration::from_secs(60), "the second rep is attached to the cell", || {
        let folders = appeared(&cluster);
        ensure(folders.last() != folders.first(), || format!("{folders:?}"))
    });
}

#[test]
fn cell_is_evacuated_uncordoned_and_forgotten() {
    let mut cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let file = cluster.place.write_file("web.toml", sleeper("web", 2));
    cluster.muster().ok(&format!("apply {}", file.display()));
    cluster.wait_until_settled(&[("web", 2)]);

    // No other cell can take the instances. The evacuation continues until an operator cancels it, and the
    // instances stay.
    let before = cluster.muster().instances("web").unwrap();
    let slow = ["cell", "evacuate", "c1", "--wait", "--timeout", "2s", "--reason", "new disk"];
    cluster.muster().run(&slow).expect_status(8);
    eventually("the cell evacuates", || {
        let cell = cluster.muster().try_json("cell show c1")?;
        ensure(cell["state"] == "EVACUATING", || cell.to_string())
    });
    cluster.muster().exits(4, "cell delete c1");
    cluster.muster().ok("cell uncordon c1");
    cluster.wait_until_ready(1);
    cluster.wait_until_settled(&[("web", 2)]);
    let guids =
        |rows: &[serde_json::Value]| rows.iter().map(|row| row["instance_guid"].clone()).collect::<Vec<_>>();
    assert_eq!(guids(&cluster.muster().instances("web").unwrap()), guids(&before));
    let log = cluster.entries();
    let asked = log.iter().map(ToString::to_string).find(|entry| entry.contains("evacuation_requested.v1"));
    let asked = asked.unwrap();
    assert!(asked.contains("new disk") && asked.contains("operator"), "{asked}");

    // A completed task stays visible for a while and does not delay an evacuation.
    let task = "task_guid = \"done\"\ndomain = \"shop\"\nmemory_mb = 8\naction.run = { path = \"true\" }\n";
    let task = cluster.place.write_file("task.toml", task);
    cluster.muster().ok(&format!("run {}", task.display()));

    // With a second cell, all instances move, and the rep exits with the evacuated status.
    let stubborn = "process_guid = \"stubborn\"\ndomain = \"shop\"\nmemory_mb = 8\ngrace_period_ms = 2000\n\
         action.run = { path = \"sh\", args = [\"-c\", \"trap '' TERM; exec sleep 100000\"] }\n";
    let file = cluster.place.write_file("stubborn.toml", stubborn);
    cluster.muster().ok(&format!("apply {}", file.display()));
    cluster.start_service("rep-c2");
    cluster.wait_until_ready(2);
    cluster
        .muster()
        .ok("cell evacuate c1 --wait --timeout 60s")
        .expect_output(&["its containers have ended"]);
    let left = processes_in(&cluster.place.path().join("rep-c1"));
    assert!(left.is_empty(), "containers that stop slowly are gone as well: {left:?}");
    let rep = cluster.services.remove("rep-c1").unwrap();
    assert_eq!(rep.wait().code(), Some(10));
    let cell = cluster.muster().json("cell show c1");
    assert_eq!((&cell["state"], &cell["absent_reason"]), (&"ABSENT".into(), &"evacuated".into()));
    cluster.wait_until_settled(&[("stubborn", 1), ("web", 2)]);
    cluster.muster().ok("cell delete c1");
    cluster.muster().exits(3, "cell show c1");
}

#[test]
fn evacuated_rep_exits_after_its_last_container() {
    let mut cluster = Cluster::start(&["bbs-1", "auctioneer-1"]);
    cluster.start_service_with("rep-c1", &["--evacuation-timeout", "1"]);
    cluster.wait_until_ready(1);
    let stubborn = "process_guid = \"stubborn\"\ndomain = \"shop\"\nmemory_mb = 8\ngrace_period_ms = 45000\n\
         action.run = { path = \"sh\", args = [\"-c\", \"trap '' TERM; while :; do sleep 1; done\"] }\n";
    let file = cluster.place.write_file("stubborn.toml", stubborn);
    cluster.muster().ok(&format!("apply {}", file.display()));
    cluster.wait_until_settled(&[("stubborn", 1)]);
    // No other cell can take the instance, so it is stopped after the evacuation timeout. The stop takes
    // longer than the rep's time limit for updating its records.
    cluster.muster().ok("cell evacuate c1");
    let rep = cluster.services.remove("rep-c1").unwrap();
    assert_eq!(rep.wait_for(Duration::from_secs(120)).code(), Some(10));
    let left = processes_in(&cluster.place.path().join("rep-c1"));
    assert!(left.is_empty(), "{left:?}");
    let containers = cluster.place.path().join("rep-c1/containers");
    let folders = std::fs::read_dir(&containers).map_or(0, Iterator::count);
    assert_eq!(folders, 0, "{}", containers.display());
}

/// Folder with its own small file system, unmounted on drop.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts the file system. Returns `None` if the permission to mount is missing.
    fn mount(at: PathBuf) -> Option<Self> {
        std::fs::create_dir_all(&at).unwrap();
        let options = ["-t", "tmpfs", "-o", "size=6m,mode=700", "tmpfs"];
        let mounted = Command::new("mount").args(options).arg(&at).stderr(Stdio::null()).status().unwrap();
        mounted.success().then_some(Self(at))
    }

    fn fill(&self) {
        let mut file = std::fs::File::create(self.0.join("filler")).unwrap();
        while file.write_all(&[7; 4096]).is_ok() {}
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.0).status().unwrap();
    }
}

/// Checks that a cell without the ability to create containers returns its work, and the work runs on another
/// cell. No crash is counted and no task is lost. The cell becomes UNHEALTHY within 20 s.
fn assert_work_is_returned(cluster: &mut Cluster, why: &str) {
    let task = |number: usize| {
        format!(
            "[[task]]\ntask_guid = \"t{number}\"\ndomain = \"shop\"\nmemory_mb = 8\naction.run = {{ path = \"true\" }}\n"
        )
    };
    let tasks = cluster.place.write_file("tasks.toml", (0..4).map(task).collect::<String>());
    cluster.muster().ok(&format!("run {}", tasks.display()));
    let web = cluster.place.write_file("web.toml", sleeper("web", 3));
    cluster.muster().ok(&format!("apply {}", web.display()));
    let rows = cluster.muster().wait_until_running("web", 3);
    for row in &rows {
        assert_eq!((&row["crash_count"], &row["cell_id"]), (&0.into(), &"c2".into()), "{row}");
    }
    cluster.services.get_mut("rep-c1").unwrap().wait_for_log(&format!("failed to create container: {why}"));
    let unhealthy = |cluster: &Cluster| {
        let cell = cluster.muster().try_json("cell show c1")?;
        ensure(cell["state"] == "UNHEALTHY", || cell.to_string())
    };
    wait_within(Duration::from_secs(20), "the cell is UNHEALTHY", || unhealthy(cluster));
    cluster.muster().exits(11, "status").expect_output(&["cell c1 is UNHEALTHY"]);
    cluster.muster().ok("cell list").expect_output(&["UNHEALTHY"]);
    cluster.muster().ok("events list").expect_output(&[why]);
}

#[test]
fn cell_without_data_folder_attracts_no_work() {
    let mut cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1", "rep-c2"]);
    let folder = |name: &str| cluster.place.path().join(name);
    let (data, away) = (folder("rep-c1"), folder("away"));
    std::fs::rename(&data, &away).unwrap();
    assert_work_is_returned(&mut cluster, "No such file or directory");
    std::fs::rename(away, data).unwrap();
}

#[test]
fn cell_with_a_full_disk_attracts_no_work() {
    let mut cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c2"]);
    let Some(disk) = SmallDisk::mount(cluster.place.path().join("rep-c1")) else { return };
    cluster.start_service("rep-c1");
    cluster.wait_until_ready(2);
    disk.fill();
    assert_work_is_returned(&mut cluster, "No space left on device");
    cluster.kill9("rep-c1");
}
