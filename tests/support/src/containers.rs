//! The processes of containers, as the operating system knows them: by their environment and their command lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::patience::LOOK;

/// The variable that every process of a container carries.
const MARKER: &str = "MUSTER_INSTANCE_GUID";
/// What a rep runs now and then to see whether its cell can run anything.
const SELF_TEST: &str = "task self-test";

/// A living process that has to do with a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its process id.
    pub pid: i32,
    /// What it is, for messages.
    pub line: String,
    /// The container that it belongs to.
    pub guid: Option<String>,
    /// What that runs: `web/0`, or `task greet`. None for a shim.
    pub work: Option<String>,
}

/// Every living process whose command line or environment names something in a folder.
///
/// # Panics
/// There is no `/proc`, or the folder's path is no text.
#[must_use]
pub fn living_in(folder: &Path) -> Vec<Process> {
    let folder = folder.to_str().expect("the path of a folder is text");
    let names = fs::read_dir("/proc").expect("/proc is there").flatten();
    let pids = names.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| look(pid, folder)).collect()
}

fn look(pid: i32, folder: &str) -> Option<Process> {
    let read = |name: &str| {
        let bytes = fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (line, environment) = (read("cmdline"), read("environ"));
    // A process that has ended and waits for its parent has neither.
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

/// What really runs in a folder: for each work its containers, each with its processes. The self-test of a rep is
/// nobody's work: it comes with each start of one and goes again.
#[must_use]
pub fn running_in(folder: &Path) -> BTreeMap<String, BTreeMap<String, BTreeSet<i32>>> {
    let mut running: BTreeMap<String, BTreeMap<String, BTreeSet<i32>>> = BTreeMap::new();
    for process in living_in(folder) {
        if let (Some(work), Some(guid)) = (process.work, process.guid)
            && work != SELF_TEST
        {
            running.entry(work).or_default().entry(guid).or_default().insert(process.pid);
        }
    }
    running
}

/// Fails unless exactly these instances really run, each in one container.
///
/// # Errors
/// What runs instead.
pub fn exactly(folder: &Path, works: &[&str]) -> Result<(), String> {
    let running = running_in(folder);
    let wanted: BTreeSet<&str> = works.iter().copied().collect();
    let found: BTreeSet<&str> = running.keys().map(String::as_str).collect();
    if wanted == found && running.values().all(|containers| containers.len() == 1) {
        return Ok(());
    }
    Err(format!("{running:?} runs"))
}

/// The names of the first instances of a process.
#[must_use]
pub fn indices(process: &str, count: usize) -> Vec<String> {
    (0..count).map(|index| format!("{process}/{index}")).collect()
}

/// Kills everything that lives in a folder. True: there was nothing.
#[must_use]
pub fn kill_all(folder: &Path) -> bool {
    let living = living_in(folder);
    living.iter().for_each(|process| signal(process.pid, Signal::KILL));
    living.is_empty()
}

/// Kills what lives in a folder until nothing does, as long as `limit`, and removes the control groups of its containers.
pub fn clear(folder: &Path, limit: Duration) {
    let end = Instant::now() + limit;
    while !kill_all(folder) && Instant::now() < end {
        sleep(LOOK);
    }
    remove_groups(folder);
}

/// Removes the control groups that the containers of a folder had, once nothing lives in it: who was killed could not.
pub fn remove_groups(folder: &Path) {
    for group in specs_in(folder).iter().flat_map(groups_of) {
        // Most were removed by who made them; the one above goes with the last.
        fs::remove_dir(&group).ok();
        group.parent().map(fs::remove_dir);
    }
}

/// What the containers of a folder are made of.
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

/// Sends a signal to a process that may have ended meanwhile.
pub fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        kill_process(pid, signal).ok();
    }
}
