//! Cell in a temporary folder that cleans up after itself.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use executor::process::{Executor, Settings};
use schemas::action::{Action, Group, Run, Secret, Variable};
use schemas::container::{Container, ContainerState, Epoch, NetInfo, Recipe, RunResult, WorkKey};
use schemas::names::{CellId, DefinitionId, Domain, InstanceGuid, ProcessGuid, TaskGuid};
use schemas::resources::Resources;
use schemas::{ActualLrpKey, Place, Position, Timestamp};
use tempfile::TempDir;
use tokio::sync::mpsc::Receiver;

/// Time limit for any step of these tests.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Cell under test.
pub(crate) struct Cell {
    pub(crate) root: TempDir,
    pub(crate) executor: Executor,
    events: Receiver<Container>,
    guids: BTreeSet<InstanceGuid>,
}

/// Returns the path of the program that starts shims.
pub(crate) fn shim() -> &'static str {
    env!("CARGO_BIN_EXE_executor-shim")
}

/// Returns the default settings of a test, with short intervals between probes.
pub(crate) fn settings(data: PathBuf) -> Settings {
    let cell_id = CellId::new("cell-1").unwrap();
    let settings = Settings::new(data, cell_id, "127.0.0.1", vec![shim().into(), "shim".into()]);
    Settings {
        unhealthy_monitoring_interval: Duration::from_millis(20),
        healthy_monitoring_interval: Duration::from_millis(100),
        ..settings
    }
}

impl Cell {
    pub(crate) async fn new() -> Self {
        Self::with(|settings| settings).await
    }

    pub(crate) async fn with(change: impl FnOnce(Settings) -> Settings) -> Self {
        // Use the same umask as the systemd unit of a rep, which makes files private.
        rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
        Self::at(tempfile::tempdir().unwrap(), change).await
    }

    /// Opens a cell whose data folder is in memory if possible, since some disks take milliseconds to remove
    /// a folder.
    pub(crate) async fn in_memory(change: impl FnOnce(Settings) -> Settings) -> Self {
        Self::at(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap(), change).await
    }

    async fn at(root: TempDir, change: impl FnOnce(Settings) -> Settings) -> Self {
        let (executor, events) = Executor::open(change(settings(root.path().join("data")))).await.unwrap();
        Self { root, executor, events, guids: BTreeSet::new() }
    }

    /// Drops the executor as if the rep had died, waits for `away`, and opens the data folder again.
    pub(crate) async fn reopen_after(self, away: impl Future<Output = ()>) -> Self {
        self.reopen_with(|settings| settings, away).await
    }

    /// Does the same as [`Self::reopen_after`], but opens the data folder with changed settings.
    pub(crate) async fn reopen_with(
        mut self,
        change: impl FnOnce(Settings) -> Settings,
        away: impl Future<Output = ()>,
    ) -> Self {
        // The executor in the field `executor` can only be dropped by replacing it with a different one.
        let spare = tempfile::tempdir().unwrap();
        let (other, _) = Executor::open(settings(spare.path().to_owned())).await.unwrap();
        drop(std::mem::replace(&mut self.executor, other));
        away.await;
        let data = self.root.path().join("data");
        (self.executor, self.events) = Executor::open(change(settings(data))).await.unwrap();
        self
    }

    pub(crate) fn run(&mut self, recipe: Recipe) -> InstanceGuid {
        let guid = recipe.instance_guid;
        self.guids.insert(guid);
        self.executor.run(recipe);
        guid
    }

    pub(crate) fn get(&self, guid: InstanceGuid) -> Option<Container> {
        self.executor.list().into_iter().find(|container| container.instance_guid == guid)
    }

    /// Waits until `wanted` returns a value for the state of a container.
    pub(crate) async fn wait_for_state<T>(
        &mut self,
        guid: InstanceGuid,
        wanted: impl Fn(&ContainerState) -> Option<T>,
    ) -> T {
        let found = async {
            loop {
                let container = self.get(guid).expect("the container is listed");
                if let Some(found) = wanted(&container.state) {
                    return found;
                }
                self.events.recv().await.expect("the executor reports changes");
            }
        };
        let found = tokio::time::timeout(TIMEOUT, found).await;
        found.unwrap_or_else(|_| panic!("{guid} stays {:?}", self.get(guid)))
    }

    pub(crate) async fn wait_until_completed(&mut self, guid: InstanceGuid) -> RunResult {
        self.wait_for_state(guid, |state| match state {
            ContainerState::Completed(result) => Some(result.clone()),
            ContainerState::Reserved
            | ContainerState::Initializing
            | ContainerState::Created
            | ContainerState::Running(_) => None,
        })
        .await
    }

    pub(crate) async fn wait_until_running(&mut self, guid: InstanceGuid) -> NetInfo {
        self.wait_for_state(guid, |state| match state {
            ContainerState::Running(net) => Some(net.clone()),
            ContainerState::Completed(result) => panic!("completed too early: {result:?}"),
            ContainerState::Reserved | ContainerState::Initializing | ContainerState::Created => None,
        })
        .await
    }

    /// Waits until a container has failed, and returns the reason.
    pub(crate) async fn wait_for_failure(&mut self, guid: InstanceGuid) -> String {
        match self.wait_until_completed(guid).await {
            RunResult::Failed { reason, .. } => reason,
            other @ (RunResult::Succeeded { .. } | RunResult::Stopped) => {
                panic!("{other:?} is not a failure")
            }
        }
    }

    /// Runs a recipe that must fail, and returns the reason.
    pub(crate) async fn run_to_failure(&mut self, recipe: Recipe) -> String {
        let guid = self.run(recipe);
        self.wait_for_failure(guid).await
    }

    /// Returns the log without the times of its lines.
    pub(crate) async fn log(&self, guid: InstanceGuid) -> Vec<String> {
        let chunk = self.executor.logs(guid, 0, usize::MAX).await.unwrap();
        chunk.text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
    }

    /// Waits until the log has a line that ends with `line`.
    pub(crate) async fn wait_for_line(&self, guid: InstanceGuid, line: &str) {
        eventually(async || self.log(guid).await.iter().any(|found| found.ends_with(line))).await;
    }

    /// Deletes all containers, and asserts that nothing remains.
    pub(crate) async fn delete_all(self) {
        tokio::time::timeout(TIMEOUT, self.executor.delete_all()).await.unwrap();
        assert_eq!(self.executor.list(), []);
        for guid in &self.guids {
            assert!(processes_of(*guid).is_empty());
        }
        for folder in ["containers", "trash"] {
            let folder = self.root.path().join("data").join(folder);
            eventually(async || std::fs::read_dir(&folder).unwrap().count() == 0).await;
        }
    }
}

impl Drop for Cell {
    /// Cleans up even if the test failed.
    fn drop(&mut self) {
        for guid in &self.guids {
            for pid in processes_of(*guid) {
                kill(pid);
            }
        }
    }
}

/// Waits until a condition holds.
pub(crate) async fn eventually(so: impl AsyncFn() -> bool) {
    let end = std::time::Instant::now() + TIMEOUT;
    while !so().await {
        assert!(std::time::Instant::now() < end, "timed out waiting for a condition");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Returns the processes with the mark of a container.
pub(crate) fn processes_of(guid: InstanceGuid) -> Vec<i32> {
    let mark = format!("MUSTER_INSTANCE_GUID={guid}");
    let names = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = names.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
    })
    .collect()
}

/// Returns the pid of a container's shim.
pub(crate) fn shim_of(guid: InstanceGuid) -> i32 {
    let is_shim = |pid: &i32| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(shim()) && line.contains("\0shim\0")
    };
    processes_of(guid).into_iter().find(is_shim).expect("the container has a shim")
}

pub(crate) fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    // The process may have ended already.
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
}

fn next_guid() -> InstanceGuid {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    InstanceGuid(uuid::Uuid::from_u64_pair(u64::from(std::process::id()), number))
}

pub(crate) fn sh(script: &str) -> Action {
    program("sh", &["-c", script])
}

pub(crate) fn program(path: &str, args: &[&str]) -> Action {
    let args = args.iter().map(|&arg| arg.to_owned()).collect();
    Action::Run(Run { path: path.to_owned(), args, ..Run::default() })
}

pub(crate) fn group<const N: usize>(actions: [Action; N]) -> Group {
    Group { actions: actions.into() }
}

pub(crate) fn variable(name: &str, value: &str) -> Variable {
    Variable { name: name.into(), value: Secret::Plain(value.into()) }
}

/// Returns the recipe of a long-running process.
pub(crate) fn lrp(action: Action) -> Recipe {
    let place = Place::new(3, DefinitionId::new("v2").unwrap());
    let key = ActualLrpKey::new(ProcessGuid::new("web").unwrap(), place);
    recipe(WorkKey::Lrp { key, epoch: Epoch(Timestamp(7)) }, action)
}

pub(crate) fn task(action: Action) -> Recipe {
    let work = WorkKey::Task { task_guid: TaskGuid::new("job").unwrap(), epoch: Epoch(Timestamp(7)) };
    recipe(work, action)
}

fn recipe(work: WorkKey, action: Action) -> Recipe {
    Recipe {
        instance_guid: next_guid(),
        work,
        domain: Domain::new("test").unwrap(),
        environment_variables: vec![],
        setup: None,
        action,
        monitor: None,
        start_timeout_ms: 0,
        grace_period_ms: 10_000,
        cpu_weight: 0,
        ports: vec![],
        result_file: String::new(),
        resources: Resources::for_container(16, 16, 0),
        sandbox: None,
        admitted_at: Position(7),
    }
}
