//! Executor of real processes. It runs the containers of one cell in one data folder.
//!
//! ```text
//!   data/lock                 locked while the folder is open: one folder, one owner
//!   data/containers/<guid>/   one container, see `folder.rs`
//!   data/artifacts/           archives that were downloaded for containers, see the crate artifacts
//!   data/ended/<guid>/        retained log of a deleted container, see `ended.rs`
//!   data/unpacking/           images that are being unpacked
//!   data/trash/<guid>/        folder of a deleted container that is being removed, see `trash.rs`
//! ```
//!
//! Each container has a keeper, the only task that changes its state (`keeper.rs`). [`Executor`] sends orders
//! to it and reads the state. Dropping an executor stops no container: the next executor adopts them.

mod carrier;
mod ended;
mod exec;
mod files;
mod isolating;
mod keeper;
mod link;
mod logs;
mod open;
mod ports;
mod prepare;
mod shared;

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::fd::OwnedFd;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use schemas::action::{Action, Run};
use schemas::container::{Container, ContainerState, Epoch, PortMapping, Recipe, RunResult, WorkKey};
use schemas::exec::Exec;
use schemas::health::MonitorHealth;
use schemas::names::{CellId, Domain, InstanceGuid, TaskGuid};
use schemas::query::FoundFile;
use schemas::resources::Resources;
use schemas::{Position, Timestamp};
use secrets::Keys;

pub use crate::cgroup::PROCESSES;
pub use crate::ids::{FIRST_ID, IDS};
pub use ended::{ENDED_BYTES, ENDED_LOGS, ENDED_TIME};
pub use exec::{ExecError, ExecInput, ExecOutput, Said};
pub use files::FilesError;
pub use logs::{CHUNK_BYTES, LogChunk, LogError};
pub use open::OpenError;
pub use prepare::PrepareError;

pub(crate) use ports::fnv;

use keeper::{Begin, Keeper};
use shared::{Order, Shared, blocking};

/// Default range of host ports for containers. It is below the range that Linux uses for outgoing
/// connections.
pub const HOST_PORTS: RangeInclusive<u16> = 20_000..=29_999;
/// Default size of one log file in bytes. Two files are kept per container.
pub const LOG_BYTES: u64 = 1024 * 1024;
/// Capacity of the channel of state changes. If the reader falls behind, only the newest state of each
/// container is kept.
const EVENTS: usize = 256;
/// Time limit for each phase of a self test.
const SELF_TEST_LIMIT: Duration = Duration::from_secs(10);

/// Reason why a cell cannot run containers.
#[derive(Debug, thiserror::Error)]
pub enum SelfTestError {
    /// The container failed, for this reason.
    #[error("{0}")]
    Failed(String),
    /// The container was stopped.
    #[error("the container was stopped")]
    Stopped,
    /// The container did not complete in time.
    #[error("the container did not end within {SELF_TEST_LIMIT:?}")]
    NotEnded,
    /// The container was not deleted in time.
    #[error("the container was not deleted within {SELF_TEST_LIMIT:?}")]
    NotDeleted,
}

/// Location of the control groups for containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Groups {
    /// Below the group of this program.
    Own,
    /// Below this group, which was delegated to this program.
    Below(PathBuf),
    /// No control groups.
    Never,
}

/// Isolation policy: whether containers are isolated from the host and from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolate {
    /// No isolation. Containers run as this program's user and see the whole host.
    Never,
    /// Best-effort isolation: every layer that this host supports.
    WhereItCan {
        /// First host id for the users of containers, if this program is root. Default: [`FIRST_ID`]. Each
        /// container has a range of [`IDS`] ids.
        first_id: u32,
    },
}

/// Configuration of an executor.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Folder that holds the containers. Only one executor may use it at a time.
    pub data: PathBuf,
    /// Cell that runs the containers.
    pub cell_id: CellId,
    /// Address at which other hosts reach this host. It is published in `NetInfo` and `CF_INSTANCE_IP`.
    pub address: String,
    /// Host ports for containers. Default: [`HOST_PORTS`].
    pub ports: RangeInclusive<u16>,
    /// Program that starts a shim and its first arguments, such as `[current_exe, "shim"]`. The folder of the
    /// container is appended. The program must call [`crate::shim::run`].
    pub shim: Vec<OsString>,
    /// Location of the control groups. Default: [`Groups::Own`].
    pub groups: Groups,
    /// Isolation policy. Default: [`Isolate::Never`].
    pub isolate: Isolate,
    /// Root file system of containers that request none, or the preloaded one of the stack:
    /// `oci:FOLDER[:TAG]` or the path of a folder. Empty, the default, for the folders of the host that
    /// programs need. Used for isolated containers only.
    pub root_fs: String,
    /// Folders below which definitions may choose file systems. Default: none.
    pub images: Vec<PathBuf>,
    /// Files and folders of the host that are hidden from isolated containers, such as keys and credentials.
    /// The data folder and some folders of the host are always hidden.
    pub masked: Vec<PathBuf>,
    /// Size of one log file in bytes. Two files are kept per container. Default: [`LOG_BYTES`].
    pub log_bytes: u64,
    /// Longest interval between probes of a monitor before its first success. Default: 0.5 s. The first
    /// probes follow each other sooner.
    pub unhealthy_monitoring_interval: Duration,
    /// Interval between probes of a monitor after its first success. Default: 30 s.
    pub healthy_monitoring_interval: Duration,
    /// Keys that decrypt the secrets of a container when it starts. Default: none.
    pub keys: Keys,
    /// Permitted targets and limits of downloads and uploads. Default: all targets, with the default limits.
    pub artifacts: artifacts::Settings,
}

impl Settings {
    /// Returns the default configuration.
    #[must_use]
    pub fn new(data: PathBuf, cell_id: CellId, address: &str, shim: Vec<OsString>) -> Self {
        Self {
            data,
            cell_id,
            address: address.to_owned(),
            ports: HOST_PORTS,
            shim,
            groups: Groups::Own,
            isolate: Isolate::Never,
            root_fs: String::new(),
            images: vec![],
            masked: vec![],
            log_bytes: LOG_BYTES,
            unhealthy_monitoring_interval: Duration::from_millis(500),
            healthy_monitoring_interval: Duration::from_secs(30),
            keys: Keys::default(),
            artifacts: artifacts::Settings::default(),
        }
    }
}

/// Runs the containers of one cell.
#[derive(Debug)]
pub struct Executor {
    shared: Arc<Shared>,
    /// The keepers and the forwarder of state changes. They end with the executor.
    tasks: Mutex<JoinSet<()>>,
    runtime: Handle,
    self_tests: AtomicU64,
    /// Lock on the data folder, released on drop.
    _lock: OwnedFd,
}

impl Executor {
    /// Opens a data folder, creates it if necessary, and adopts the containers in it. Must be called within a
    /// tokio runtime, which runs the tasks of the executor.
    ///
    /// The receiver gets each container whose state changed. A slow reader gets only the newest state of each
    /// container.
    ///
    /// # Errors
    /// `OpenError` if another executor uses the folder, or it cannot be read and written.
    pub async fn open(settings: Settings) -> Result<(Self, mpsc::Receiver<Container>), OpenError> {
        let opened = blocking(move || open::open(settings)).await?;
        let found = opened.found;
        let shared = Arc::new(Shared::new(
            opened.settings,
            opened.ports,
            opened.trash,
            opened.ended,
            opened.cgroups,
            opened.isolating,
        ));
        let executor = Self {
            shared: Arc::clone(&shared),
            tasks: Mutex::new(JoinSet::new()),
            runtime: Handle::current(),
            self_tests: AtomicU64::new(0),
            _lock: opened.lock,
        };
        for found in found {
            let guid = found.container.instance_guid;
            let trial = is_trial(&executor.shared.settings.cell_id, guid);
            executor.keep(found.container, found.ports, trial, found.begin);
            if trial {
                executor.delete(guid);
            }
        }
        let (sender, receiver) = mpsc::channel(EVENTS);
        executor.spawn(Arc::clone(&shared.trash).keep_empty());
        executor.spawn(async move { shared.forward(sender).await });
        executor.try_isolation().await;
        Ok((executor, receiver))
    }

    /// Returns every container, from INITIALIZING until it is deleted.
    #[must_use]
    pub fn list(&self) -> Vec<Container> {
        self.shared.list()
    }

    /// Prepares a container: reserves the host resources for its creation, but runs nothing of its recipe. It
    /// is not listed until it is run. A guid that is prepared must not be prepared again.
    ///
    /// # Errors
    /// `PrepareError` if this cell cannot create it. All resources are released then.
    pub fn prepare(
        &self,
        recipe: Recipe,
    ) -> impl Future<Output = Result<(), PrepareError>> + Send + 'static + use<> {
        let (shared, guid) = (Arc::clone(&self.shared), recipe.instance_guid);
        shared.preparations.begin(guid);
        async move {
            let permit = shared.creating.acquire().await.expect("the semaphore is never closed");
            if !shared.preparations.is_wanted(guid) {
                return Err(PrepareError::Discarded);
            }
            let preparing = Arc::clone(&shared);
            let kept = blocking(move || {
                let prepared = prepare::prepare(&preparing, &recipe)?;
                match preparing.preparations.finish(prepared) {
                    None => Ok(()),
                    Some(unwanted) => {
                        unwanted.undo(&preparing);
                        Err(PrepareError::Discarded)
                    }
                }
            });
            let kept = kept.await;
            drop(permit);
            if kept.is_err() {
                shared.preparations.take(guid);
            }
            kept
        }
    }

    /// Releases the resources of a prepared container that is not run.
    pub fn discard(&self, guid: InstanceGuid) {
        if let Some(prepared) = self.shared.preparations.take(guid) {
            let shared = Arc::clone(&self.shared);
            self.spawn(async move { blocking(move || prepared.undo(&shared)).await });
        }
    }

    /// Releases the resources of every prepared container.
    pub fn discard_all(&self) {
        for prepared in self.shared.preparations.take_all() {
            let shared = Arc::clone(&self.shared);
            self.spawn(async move { blocking(move || prepared.undo(&shared)).await });
        }
    }

    /// Creates a container and runs its recipe. It is INITIALIZING at once, then CREATED, RUNNING and
    /// COMPLETED. If it cannot be created, it is COMPLETED with the reason. Does nothing if the guid already
    /// exists.
    pub fn run(&self, recipe: Recipe) {
        self.begin(recipe, false);
    }

    /// Stops a container: sends TERM to its processes, and KILL to those that remain after the grace period.
    /// It is COMPLETED once none of its processes runs. Does nothing if it is completed or unknown.
    pub fn stop(&self, guid: InstanceGuid) {
        self.shared.order(guid, Order::Stop);
    }

    /// Deletes a container, stopping it first if necessary. It is listed until none of its processes runs and
    /// its folder and ports are released. Its log is retained for a while.
    pub fn delete(&self, guid: InstanceGuid) {
        self.shared.order(guid, Order::Delete);
    }

    /// Reads a container's log from the byte `from`, at most `limit` bytes and [`CHUNK_BYTES`]. Bytes older
    /// than the two retained files are skipped, and a line reports that. The log of a deleted container is
    /// available for [`ENDED_TIME`], unless many other containers were deleted since.
    ///
    /// # Errors
    /// `LogError` if there is no such container, or its files cannot be read.
    pub async fn logs(&self, guid: InstanceGuid, from: u64, limit: usize) -> Result<LogChunk, LogError> {
        let completed = self.shared.get(guid).is_some_and(|container| is_completed(&container.state));
        let (log, kept) = (self.shared.folder(guid).log(), self.shared.ended.log(guid));
        let read = blocking(move || match logs::read(&log, from, limit, completed) {
            Err(error) if error.kind() == ErrorKind::NotFound => logs::read(&kept, from, limit, true),
            other => other,
        });
        match read.await {
            Ok(chunk) => Ok(chunk),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // A container without a folder has no log yet. The log of an unlisted container was removed.
                match self.shared.get(guid) {
                    Some(_) => Ok(LogChunk { next: from, ended: completed, ..LogChunk::default() }),
                    None => Err(LogError::Unknown(guid)),
                }
            }
            Err(error) => Err(LogError::Read(error)),
        }
    }

    /// Returns the health that the monitor of a container reported. `None` if it has no monitor, or the
    /// monitor has not probed yet.
    ///
    /// # Errors
    /// `LogError` if there is no such container, or its folder cannot be read.
    pub async fn health(&self, guid: InstanceGuid) -> Result<Option<MonitorHealth>, LogError> {
        if self.shared.get(guid).is_none() {
            return Err(LogError::Unknown(guid));
        }
        let folder = self.shared.folder(guid);
        blocking(move || folder.health()).await.map_err(LogError::Read)
    }

    /// Reads a file in a container's work directory from the byte offset `from`, or lists a folder after its
    /// first `from` entries. Returns at most `limit` bytes or entries, and no more than one reply may have.
    ///
    /// # Errors
    /// `FilesError` if there is no such container, or the path cannot be read.
    pub async fn files(
        &self,
        guid: InstanceGuid,
        path: String,
        from: u64,
        limit: Option<usize>,
    ) -> Result<FoundFile, FilesError> {
        if self.shared.get(guid).is_none() {
            return Err(FilesError::Unknown(guid));
        }
        let work = self.shared.folder(guid).work();
        blocking(move || files::read(&work, &path, from, limit)).await
    }

    /// Runs an additional program in a container, in the same way as those of its action, with a terminal if
    /// requested or with pipes. Its output does not appear in the container's log. The program ends when its
    /// output is dropped, or with the container.
    ///
    /// # Errors
    /// `ExecError` if there is no such container, or the program cannot be run there.
    pub async fn exec(&self, guid: InstanceGuid, exec: &Exec) -> Result<(ExecInput, ExecOutput), ExecError> {
        if self.shared.get(guid).is_none() {
            return Err(ExecError::Unknown(guid));
        }
        exec::begin(self.shared.folder(guid).path(), exec).await
    }

    /// Tests that this cell can run containers: runs `true` in a container and deletes it. The container is
    /// neither listed nor announced.
    ///
    /// # Errors
    /// The reason why the cell cannot run containers.
    pub async fn self_test(&self) -> Result<(), SelfTestError> {
        let number = self.self_tests.fetch_add(1, Ordering::Relaxed);
        let recipe = trial(&self.shared.settings.cell_id, number);
        let guid = recipe.instance_guid;
        self.begin(recipe, true);
        let end = tokio::time::timeout(SELF_TEST_LIMIT, self.shared.completed(guid)).await;
        self.delete(guid);
        let gone = tokio::time::timeout(SELF_TEST_LIMIT, self.shared.gone(Some(guid))).await;
        match end {
            Ok(RunResult::Succeeded { .. }) => {}
            Ok(RunResult::Failed { reason, .. }) => return Err(SelfTestError::Failed(reason)),
            Ok(RunResult::Stopped) => return Err(SelfTestError::Stopped),
            Err(_) => return Err(SelfTestError::NotEnded),
        }
        gone.map_err(|_| SelfTestError::NotDeleted)
    }

    /// Returns the number of folders of deleted containers that could not be removed yet. Each is retried
    /// every minute.
    #[must_use]
    pub fn unremoved(&self) -> u64 {
        self.shared.trash.resisting()
    }

    /// Deletes every container, and waits until they are gone.
    pub async fn end_all(&self) {
        for prepared in self.shared.preparations.take_all() {
            let shared = Arc::clone(&self.shared);
            blocking(move || prepared.undo(&shared)).await;
        }
        for guid in self.shared.guids() {
            self.delete(guid);
        }
        self.shared.gone(None).await;
    }

    fn begin(&self, recipe: Recipe, hidden: bool) {
        let container = Container {
            instance_guid: recipe.instance_guid,
            work: recipe.work.clone(),
            domain: recipe.domain.clone(),
            resources: recipe.resources,
            let_in_at: recipe.let_in_at,
            isolation: self.isolation(),
            state: ContainerState::Initializing,
        };
        self.keep(container, vec![], hidden, Begin::Create(Box::new(recipe)));
    }

    /// Registers a container and starts its keeper.
    fn keep(&self, container: Container, ports: Vec<PortMapping>, hidden: bool, begin: Begin) {
        let guid = container.instance_guid;
        if let Some(orders) = self.shared.register(container, &ports, hidden) {
            let keeper = Keeper::new(Arc::clone(&self.shared), guid, ports, orders);
            self.spawn(keeper.keep(begin));
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().expect("nobody panics while holding the tasks");
        while let Some(ended) = tasks.try_join_next() {
            if let Err(error) = ended {
                tracing::error!(%error, "the task that keeps a container panicked");
            }
        }
        tasks.spawn_on(task, &self.runtime);
    }
}

/// Adds to an error that it concerns a control group.
fn cgroup_failure(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot make the control group: {error}"))
}

const fn is_completed(state: &ContainerState) -> bool {
    match state {
        ContainerState::Completed(_) => true,
        ContainerState::Reserved
        | ContainerState::Initializing
        | ContainerState::Created
        | ContainerState::Running(_) => false,
    }
}

/// Returns `true` if a self test created the container. One found at startup was interrupted by the end of
/// the program.
fn is_trial(cell_id: &CellId, guid: InstanceGuid) -> bool {
    guid.0.as_u64_pair().0 == fnv(cell_id.as_str())
}

/// Returns the recipe of a self test. Its guid is made of the cell and a number, since it is not part of the
/// cluster's history.
fn trial(cell_id: &CellId, number: u64) -> Recipe {
    let own = u64::from(std::process::id());
    let guid = uuid::Uuid::from_u64_pair(fnv(cell_id.as_str()), own << 32 | (number & 0xffff_ffff));
    Recipe {
        instance_guid: InstanceGuid(guid),
        work: WorkKey::Task {
            task_guid: TaskGuid::new("self-test").expect("this is a name"),
            epoch: Epoch(Timestamp(0)),
        },
        domain: Domain::new("self-test").expect("this is a name"),
        environment_variables: vec![],
        setup: None,
        action: Action::Run(Run { path: "true".into(), ..Run::default() }),
        monitor: None,
        start_timeout_ms: 0,
        grace_period_ms: 0,
        cpu_weight: 0,
        ports: vec![],
        result_file: String::new(),
        resources: Resources::of_container(0, 0, 0),
        sandbox: None,
        let_in_at: Position(0),
    }
}
