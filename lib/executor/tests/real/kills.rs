//! Tests in which a program that runs containers is killed at arbitrary times, and tests of the process state
//! that containers inherit from that program.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use schemas::container::{ContainerState, Recipe, RunResult};

use crate::support::{Cell, eventually, lrp, sh, shim, shim_of, task};

/// Starts a program that runs containers (a host) with a shell script. In the script, `$0` is the program and
/// `$1` is the data folder.
fn start_host(script: &str, data: &Path) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", script, shim()]).arg(data);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "open\n");
    child
}

fn send_recipe(child: &mut Child, recipe: &Recipe) {
    let mut line = serde_json::to_vec(recipe).unwrap();
    line.push(b'\n');
    child.stdin.as_mut().unwrap().write_all(&line).unwrap();
}

/// Returns the control groups of the containers of these recipes, if the groups are at the usual mount
/// points.
fn groups_of(recipes: &[Recipe]) -> Vec<PathBuf> {
    let names: Vec<String> = recipes.iter().map(|recipe| recipe.instance_guid.to_string()).collect();
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/muster.slice"];
    let bases = roots.iter().filter_map(|root| std::fs::read_dir(root).ok()).flatten().flatten();
    let groups = bases.flat_map(|base| names.iter().map(move |name| base.path().join(name)));
    groups.filter(|group| group.exists()).collect()
}

/// If the spec of a container was written before its host was killed, the next host runs the container
/// exactly once, and the container succeeds. All other containers are unknown to the next host, and have
/// never run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_killed_during_creation_loses_no_container() {
    let mut unknown = 0;
    for round in 0..24 {
        let cell = Cell::new().await;
        let (data, said) = (cell.root.path().join("kept"), cell.root.path().join("said"));
        let mut child = start_host("exec $0 host $1", &data);
        let recipes: Vec<Recipe> =
            (0..8).map(|number| task(sh(&format!("echo {number} >> {}", said.display())))).collect();
        recipes.iter().for_each(|recipe| send_recipe(&mut child, recipe));
        drop(child.stdin.take());
        std::thread::sleep(Duration::from_micros(300 * round));
        child.kill().unwrap();
        child.wait().unwrap();

        let (next, _changes) =
            executor::process::Executor::open(crate::support::settings(data)).await.unwrap();
        let ended = |state: &ContainerState| matches!(state, ContainerState::Completed(_));
        eventually(async || next.list().iter().all(|container| ended(&container.state))).await;
        let known = next.list();
        for container in &known {
            let done = ContainerState::Completed(RunResult::Succeeded { result: String::new() });
            assert_eq!(container.state, done, "round {round}");
        }
        unknown += recipes.len() - known.len();
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        for line in std::fs::read_to_string(&said).unwrap_or_default().lines() {
            *times.entry(line.to_owned()).or_default() += 1;
        }
        assert!(times.values().all(|&count| count == 1), "round {round}: {times:?}");
        assert_eq!(times.len(), known.len(), "round {round}");
        next.delete_all().await;
        assert_eq!(groups_of(&recipes), Vec::<PathBuf>::new(), "round {round}: a control group is left");
        cell.delete_all().await;
    }
    println!("{unknown} of {} containers had not started when their host was killed", 24 * 8);
}

/// A host that was killed while it removed a container, or that failed to remove a control group, leaves a
/// stray control group. The next host that opens the folder removes the group and kills its processes. Other
/// containers continue.
#[tokio::test]
async fn stray_control_group_is_removed_by_the_next_host() {
    let mut cell = Cell::new().await;
    let recipe = lrp(sh("exec sleep 600"));
    let guid = cell.run(recipe.clone());
    cell.wait_until_running(guid).await;
    let pid = shim_of(guid);
    let groups = groups_of(&[recipe]);
    let strays: Vec<PathBuf> = groups.iter().map(|group| group.with_file_name("stray")).collect();
    let mut programs = vec![];
    for stray in &strays {
        std::fs::create_dir_all(stray.join("below")).unwrap();
        let program = Command::new("sleep").arg("600").spawn().unwrap();
        std::fs::write(stray.join("below/cgroup.procs"), program.id().to_string()).unwrap();
        programs.push(program);
    }

    let cell = cell.reopen_after(async {}).await;
    assert!(strays.iter().all(|stray| !stray.exists()), "{strays:?}");
    assert!(groups.iter().all(|group| group.exists()), "{groups:?}");
    for mut program in programs {
        assert!(!program.wait().unwrap().success(), "the host was killed");
    }
    assert_eq!(shim_of(guid), pid, "a recorded container keeps running");
    cell.delete_all().await;
}

#[tokio::test]
async fn inherited_descriptors_do_not_reach_containers() {
    let cell = Cell::new().await;
    let data = cell.root.path().join("kept");
    std::fs::write(cell.root.path().join("secret"), "x").unwrap();
    let secret = cell.root.path().join("secret");
    let script = format!("exec 9<{}; exec $0 host $1", secret.display());
    let mut child = start_host(&script, &data);
    let has = |pid: u32| std::fs::read_link(format!("/proc/{pid}/fd/9")).ok();
    assert_eq!(has(child.id()).unwrap(), secret.canonicalize().unwrap(), "the host has the descriptor");
    let recipe = task(sh("for fd in /proc/self/fd/*; do readlink $fd; done; exec sleep 0.1"));
    let guid = recipe.instance_guid;
    send_recipe(&mut child, &recipe);
    drop(child.stdin.take());
    let state = data.join(format!("containers/{guid}/state.json"));
    let completed = || std::fs::read_to_string(&state).unwrap_or_default().contains("completed");
    eventually(async || completed()).await;
    child.kill().unwrap();
    child.wait().unwrap();

    let (next, _changes) = executor::process::Executor::open(crate::support::settings(data)).await.unwrap();
    let log = next.logs(guid, 0, usize::MAX).await.unwrap().text;
    // The shell opened the folder `/proc/self/fd` itself in order to list it.
    let strange: Vec<&str> = log
        .lines()
        .filter(|line| !["pipe:[", "/dev/null", "/proc/"].iter().any(|known| line.contains(known)))
        .collect();
    assert!(log.contains("/dev/null") && strange.is_empty(), "{log}");
    assert!(!log.contains("secret"), "{log}");
    next.delete_all().await;
    cell.delete_all().await;
}

/// A rep that a script started in the background has ignored signals. The systemd unit of a rep sets a umask
/// that makes its files private. Containers must inherit neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ignored_signals_and_umask_are_not_inherited() {
    let cell = Cell::new().await;
    let data = cell.root.path().join("kept");
    let mut child = start_host("trap '' HUP INT QUIT USR1; umask 077; exec $0 host $1", &data);
    let recipe = task(sh("umask; grep SigIgn /proc/self/status"));
    let guid = recipe.instance_guid;
    send_recipe(&mut child, &recipe);
    drop(child.stdin.take());
    let log = data.join(format!("containers/{guid}/log"));
    let said = || {
        let files = std::fs::read_dir(&log).into_iter().flatten().flatten();
        files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect::<String>()
    };
    eventually(async || said().contains("SigIgn")).await;
    let mask = said().rsplit('\t').next().and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Only signals up to 31 are compared. Higher signals are real-time signals, and the C library reserves
    // two of them.
    assert_eq!(mask.unwrap() & 0x7fff_ffff, 0, "{}", said());
    assert!(said().contains("OUT 0022\n"), "{}", said());
    child.kill().unwrap();
    child.wait().unwrap();
    let (next, _changes) = executor::process::Executor::open(crate::support::settings(data)).await.unwrap();
    next.delete_all().await;
    cell.delete_all().await;
}
