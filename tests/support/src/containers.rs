//! Processes of containers, as the operating system reports them. The environment and the command line of a
//! process show the container that it belongs to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::wait::POLL_INTERVAL;

/// Environment variable of every process of a container.
const MARKER: &str = "MUSTER_INSTANCE_GUID";
/// Task that a rep runs from time to time, to check that its cell can run containers.
const SELF_TEST: &str = "task self-test";

/// Running process that belongs to a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    pub pid: i32,
    /// Command line, for messages.
    pub line: String,
    /// Guid of the process's container.
    pub guid: Option<String>,
    /// Instance or task of the process's container, such as `web/0` or `task greet`. `None` for a shim.
    pub work: Option<String>,
}

/// Returns every running process that belongs to a folder: its command line contains the folder, or its
/// `HOME` is in the folder.
///
/// # Panics
/// Panics if `/proc` can't be read, or if the path of the folder is not UTF-8.
#[must_use]
pub fn processes_in(folder: &Path) -> Vec<Process> {
    let folder = folder.to_str().expect("the path of the folder is UTF-8");
    let names = fs::read_dir("/proc").expect("/proc is readable").flatten();
    let pids = names.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| read_process(pid, folder)).collect()
}

fn read_process(pid: i32, folder: &str) -> Option<Process> {
    let read = |name: &str| {
        let bytes = fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (line, environment) = (read("cmdline"), read("environ"));
    // A zombie has neither a command line nor an environment.
    if !line.contains(folder) && !environment.split('\0').any(|variable| is_home_in(variable, folder)) {
        return None;
    }
    let variables: BTreeMap<&str, &str> =
        environment.split('\0').filter_map(|variable| variable.split_once('=')).collect();
    let get = |name: &str| variables.get(name).map(|value| (*value).to_owned());
    let lrp = get("MUSTER_PROCESS_GUID").zip(get("MUSTER_INDEX"));
    let work = lrp.map(|(guid, index)| format!("{guid}/{index}"));
    let task = get("MUSTER_TASK_GUID").map(|guid| format!("task {guid}"));
    Some(Process { pid, line: line.replace('\0', " "), guid: get(MARKER), work: work.or(task) })
}

fn is_home_in(variable: &str, folder: &str) -> bool {
    variable.strip_prefix("HOME=").is_some_and(|home| home.starts_with(folder))
}

/// Returns the instances and tasks whose processes run in a folder, with their containers and processes. The
/// self-test of a rep is left out, because it runs briefly after each start of a rep.
#[must_use]
pub fn running_in(folder: &Path) -> BTreeMap<String, BTreeMap<String, BTreeSet<i32>>> {
    let mut running: BTreeMap<String, BTreeMap<String, BTreeSet<i32>>> = BTreeMap::new();
    for process in processes_in(folder) {
        if let (Some(work), Some(guid)) = (process.work, process.guid)
            && work != SELF_TEST
        {
            running.entry(work).or_default().entry(guid).or_default().insert(process.pid);
        }
    }
    running
}

/// Checks that processes of exactly these instances and tasks run, each in one container.
///
/// # Errors
/// Returns a description of the running containers if they differ from `works`.
pub fn expect_exactly(folder: &Path, works: &[&str]) -> Result<(), String> {
    let running = running_in(folder);
    let wanted: BTreeSet<&str> = works.iter().copied().collect();
    let found: BTreeSet<&str> = running.keys().map(String::as_str).collect();
    if wanted == found && running.values().all(|containers| containers.len() == 1) {
        return Ok(());
    }
    Err(format!("running containers: {running:?}"))
}

/// Returns the names of the first `count` instances of a process.
#[must_use]
pub fn indices(process: &str, count: usize) -> Vec<String> {
    (0..count).map(|index| format!("{process}/{index}")).collect()
}

/// Kills every process of a folder. Returns `true` if the folder had no processes.
#[must_use]
pub fn kill_all(folder: &Path) -> bool {
    let living = processes_in(folder);
    living.iter().for_each(|process| signal(process.pid, Signal::KILL));
    living.is_empty()
}

/// Kills the processes of a folder until none is left, for at most `limit`. Then removes the control groups
/// of the folder's containers.
pub fn clear(folder: &Path, limit: Duration) {
    let end = Instant::now() + limit;
    while !kill_all(folder) && Instant::now() < end {
        sleep(POLL_INTERVAL);
    }
    remove_groups(folder);
}

/// Removes the control groups of a folder's containers, because killed programs can't remove their groups.
/// The processes must have ended before.
pub fn remove_groups(folder: &Path) {
    for group in specs_in(folder).iter().flat_map(groups_of) {
        // The program that created a group has usually removed it. The parent group is removed with its last
        // child.
        fs::remove_dir(&group).ok();
        group.parent().map(fs::remove_dir);
    }
}

/// Returns the specifications of the containers in a folder.
fn specs_in(folder: &Path) -> Vec<Value> {
    let (mut open, mut specs) = (vec![folder.to_owned()], vec![]);
    while let Some(folder) = open.pop() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let folders = entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path());
        if folder.ends_with("containers") {
            let texts = folders.filter_map(|container| fs::read_to_string(container.join("spec.json")).ok());
            specs.extend(texts.filter_map(|text| serde_json::from_str::<Value>(&text).ok()));
        } else {
            open.extend(folders);
        }
    }
    specs
}

fn groups_of(spec: &Value) -> Vec<PathBuf> {
    let limiting = spec["plan"]["limits"]["groups"].as_array().into_iter().flatten();
    limiting.chain([&spec["cgroup"]]).filter_map(Value::as_str).map(PathBuf::from).collect()
}

/// Sends a signal to a process. The process may have ended already.
pub fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        kill_process(pid, signal).ok();
    }
}
