//! Executor of real processes. It runs the containers of one cell in one data folder.
//!
//! ```text
//!   data/lock                 locked by the executor that has the folder open, so that no other one opens it
//!   data/containers/<guid>/   one container, see `folder.rs`
//!   data/artifacts/           archives that were downloaded for containers, see the crate artifacts
//!   data/ended/<guid>/        retained log of a deleted container, see `ended.rs`
//!   data/unpacking/           images that are being unpacked
//!   data/trash/<guid>/        folder of a deleted container that is being removed, see `trash.rs`
//! ```
//!
//! Each container has a keeper (`keeper.rs`). The keeper is the only task that changes the container's state.
//! [`Executor`] sends orders to the keeper and reads the state. Containers keep running when an executor is
//! dropped. The next executor that opens the data folder adopts them.

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
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use schemas::action::{Action, Run};
use schemas::container::{Container, ContainerState, Epoch, PortMapping, Recipe, RunResult, WorkKey};
use schemas::exec::Exec;
use schemas::health::MonitorHealth;
use schemas::names::{CellId, Domain, InstanceGuid, TaskGuid};
use schemas::query::FileContent;
use schemas::resources::Resources;
use schemas::{Position, Timestamp};
use secrets::Keys;

pub use crate::cgroup::MAX_PROCESSES;
pub use crate::ids::{FIRST_ID, RANGE_LEN};
pub use ended::{ENDED_RETENTION, MAX_ENDED_BYTES, MAX_ENDED_LOGS};
pub use exec::{ExecError, ExecEvent, ExecInput, ExecOutput};
pub use files::FilesError;
pub use logs::{LogChunk, LogError, MAX_CHUNK_BYTES};
pub use open::OpenError;
pub use prepare::PrepareError;

pub(crate) use ports::fnv1a;

use keeper::{Keeper, Origin};
use shared::{Order, Shared, run_blocking};

/// Default range of host ports for containers. It is below the range that Linux uses for outgoing
/// connections.
pub const DEFAULT_HOST_PORTS: RangeInclusive<u16> = 20_000..=29_999;
/// Default size of one log file in bytes. Two files are kept per container.
pub const DEFAULT_LOG_BYTES: u64 = 1024 * 1024;
/// Capacity of the channel of state changes. If the receiver does not keep up, only the newest state of each
/// container is kept.
const EVENT_CAPACITY: usize = 256;
/// Time limit for each phase of a self test.
const SELF_TEST_TIMEOUT: Duration = Duration::from_secs(10);

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
    #[error("the container did not end within {SELF_TEST_TIMEOUT:?}")]
    NotCompleted,
    /// The container was not deleted in time.
    #[error("the container was not deleted within {SELF_TEST_TIMEOUT:?}")]
    NotDeleted,
}

/// Location of the control groups for containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Groups {
    /// Below the control group of this program.
    Own,
    /// Below this control group, which was delegated to this program.
    Below(PathBuf),
    /// No control groups.
    Never,
}

/// Isolation policy, which determines whether containers are isolated from the host and from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsolationPolicy {
    /// No isolation. Containers run as this program's user and see the whole host.
    Never,
    /// Best-effort isolation. Containers get every isolation layer that this host supports.
    BestEffort {
        /// First host id for the users of containers. Default: [`FIRST_ID`]. Each container has a range of
        /// [`RANGE_LEN`] ids. The setting applies only if this program runs as root.
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
    /// Host ports for containers. Default: [`DEFAULT_HOST_PORTS`].
    pub ports: RangeInclusive<u16>,
    /// Command that starts a shim, such as `[current_exe, "shim"]`: the program and its first arguments. The
    /// executor appends the path of the container's folder as the last argument. The program must call
    /// [`crate::shim::run`].
    pub shim: Vec<OsString>,
    /// Location of the control groups. Default: [`Groups::Own`].
    pub groups: Groups,
    /// Isolation policy. Default: [`IsolationPolicy::Never`].
    pub isolate: IsolationPolicy,
    /// Default root file system of isolated containers: `oci:FOLDER[:TAG]`, or the path of a folder. It
    /// applies to containers that request no root file system or the preloaded one of the stack. If the value
    /// is empty, which is the default, these containers see the folders of the host that programs need.
    pub root_fs: String,
    /// Folders with the file systems that definitions may select. Default: none.
    pub images: Vec<PathBuf>,
    /// Files and folders of the host that are hidden from isolated containers, in addition to the data folder
    /// and some folders of the host. Examples: keys and credentials.
    pub masked: Vec<PathBuf>,
    /// Size of one log file in bytes. Two files are kept per container. Default: [`DEFAULT_LOG_BYTES`].
    pub log_bytes: u64,
    /// Maximum interval between probes of a monitor before its first success. Default: 0.5 s. The first
    /// intervals are shorter.
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
            ports: DEFAULT_HOST_PORTS,
            shim,
            groups: Groups::Own,
            isolate: IsolationPolicy::Never,
            root_fs: String::new(),
            images: vec![],
            masked: vec![],
            log_bytes: DEFAULT_LOG_BYTES,
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
    /// The keepers of the containers, and the task that forwards state changes. These tasks end with the
    /// executor.
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
    /// The returned receiver gets each container whose state changed. A receiver that does not keep up gets
    /// only the newest state of each container.
    ///
    /// # Errors
    /// `OpenError` if another executor uses the folder, or if the folder cannot be read and written.
    pub async fn open(settings: Settings) -> Result<(Self, mpsc::Receiver<Container>), OpenError> {
        let opened = run_blocking(move || open::open(settings)).await?;
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
            let trial = is_self_test(&executor.shared.settings.cell_id, guid);
            executor.keep(found.container, found.ports, trial, found.begin);
            if trial {
                executor.delete(guid);
            }
        }
        let (sender, receiver) = mpsc::channel(EVENT_CAPACITY);
        executor.spawn(Arc::clone(&shared.trash).keep_empty());
        executor.spawn(async move { shared.forward_changes(sender).await });
        executor.detect_isolation().await;
        Ok((executor, receiver))
    }

    /// Returns every container that has reached INITIALIZING and is not deleted.
    #[must_use]
    pub fn list(&self) -> Vec<Container> {
        self.shared.list()
    }

    /// Prepares a container: reserves the host resources that it needs, but runs nothing of its recipe. The
    /// container is listed only after [`Executor::run`]. The caller must not prepare a guid that is already
    /// prepared.
    ///
    /// # Errors
    /// `PrepareError` if this cell cannot create the container. All reserved resources are then released.
    pub fn prepare(
        &self,
        recipe: Recipe,
    ) -> impl Future<Output = Result<(), PrepareError>> + Send + 'static + use<> {
        let (shared, guid) = (Arc::clone(&self.shared), recipe.instance_guid);
        shared.preparations.begin(guid);
        async move {
            let permit = shared.creation_permits.acquire().await.expect("the semaphore is never closed");
            if !shared.preparations.is_wanted(guid) {
                return Err(PrepareError::Discarded);
            }
            let preparing = Arc::clone(&shared);
            let kept = run_blocking(move || {
                let prepared = prepare::prepare(&preparing, &recipe)?;
                match preparing.preparations.finish(prepared) {
                    None => Ok(()),
                    Some(unwanted) => {
                        unwanted.release(&preparing);
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

    /// Releases the resources of a container that was prepared and will not be run.
    pub fn discard(&self, guid: InstanceGuid) {
        if let Some(prepared) = self.shared.preparations.take(guid) {
            let shared = Arc::clone(&self.shared);
            self.spawn(async move { run_blocking(move || prepared.release(&shared)).await });
        }
    }

    /// Releases the resources of every prepared container.
    pub fn discard_all(&self) {
        for prepared in self.shared.preparations.take_all() {
            let shared = Arc::clone(&self.shared);
            self.spawn(async move { run_blocking(move || prepared.release(&shared)).await });
        }
    }

    /// Creates a container and runs its recipe. The container is INITIALIZING immediately, and becomes
    /// CREATED, RUNNING and COMPLETED in this order. If the creation fails, the container becomes COMPLETED,
    /// and its result contains the reason. Does nothing if a container with this guid already exists.
    pub fn run(&self, recipe: Recipe) {
        self.start(recipe, false);
    }

    /// Stops a container: sends TERM to its processes, and KILL to the remaining processes after the grace
    /// period. The container is COMPLETED when all its processes have ended. Does nothing if the container is
    /// completed or unknown.
    pub fn stop(&self, guid: InstanceGuid) {
        self.shared.order(guid, Order::Stop);
    }

    /// Deletes a container, and stops it first if necessary. The container stays listed until all its
    /// processes have ended and its folder and ports are released. Its log is retained for a while.
    pub fn delete(&self, guid: InstanceGuid) {
        self.shared.order(guid, Order::Delete);
    }

    /// Reads a container's log from the byte `from`. Returns at most `limit` bytes, and never more than
    /// [`MAX_CHUNK_BYTES`]. Only two log files are retained. Older bytes are skipped, and an additional line
    /// reports the gap. The log of a deleted container is available for [`ENDED_RETENTION`], or for a shorter
    /// time if many other containers are deleted.
    ///
    /// # Errors
    /// `LogError` if there is no such container, or if its files cannot be read.
    pub async fn logs(&self, guid: InstanceGuid, from: u64, limit: usize) -> Result<LogChunk, LogError> {
        let completed = self.shared.get(guid).is_some_and(|container| is_completed(&container.state));
        let (log, kept) = (self.shared.folder(guid).log(), self.shared.ended.log_path(guid));
        let read = run_blocking(move || match logs::read(&log, from, limit, completed) {
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

    /// Returns the last health report of a container's monitor. `None` if the container has no monitor, or
    /// the monitor has not probed yet.
    ///
    /// # Errors
    /// `LogError` if there is no such container, or its folder cannot be read.
    pub async fn health(&self, guid: InstanceGuid) -> Result<Option<MonitorHealth>, LogError> {
        if self.shared.get(guid).is_none() {
            return Err(LogError::Unknown(guid));
        }
        let folder = self.shared.folder(guid);
        run_blocking(move || folder.health()).await.map_err(LogError::Read)
    }

    /// Reads a file in a container's work directory from the byte offset `from`. If the path is a folder,
    /// lists its entries without the first `from` ones. Returns at most `limit` bytes or entries, and never
    /// more than fit in one reply.
    ///
    /// # Errors
    /// `FilesError` if there is no such container, or if the path cannot be read.
    pub async fn files(
        &self,
        guid: InstanceGuid,
        path: String,
        from: u64,
        limit: Option<usize>,
    ) -> Result<FileContent, FilesError> {
        if self.shared.get(guid).is_none() {
            return Err(FilesError::Unknown(guid));
        }
        let work = self.shared.folder(guid).work();
        run_blocking(move || files::read(&work, &path, from, limit)).await
    }

    /// Runs an additional program in a container, in the same way as the programs of the container's action.
    /// The program gets a terminal if the request contains one, and pipes otherwise. Its output does not
    /// appear in the container's log. The program ends when the caller drops the returned output, or when the
    /// container ends.
    ///
    /// # Errors
    /// `ExecError` if there is no such container, or if the program cannot be run in it.
    pub async fn exec(&self, guid: InstanceGuid, exec: &Exec) -> Result<(ExecInput, ExecOutput), ExecError> {
        if self.shared.get(guid).is_none() {
            return Err(ExecError::Unknown(guid));
        }
        exec::start(self.shared.folder(guid).path(), exec).await
    }

    /// Tests that this cell can run containers: runs `true` in a container and deletes it. The container is
    /// neither listed nor reported as a state change.
    ///
    /// # Errors
    /// The reason that the cell cannot run containers.
    pub async fn self_test(&self) -> Result<(), SelfTestError> {
        let number = self.self_tests.fetch_add(1, Ordering::Relaxed);
        let recipe = self_test_recipe(&self.shared.settings.cell_id, number);
        let guid = recipe.instance_guid;
        self.start(recipe, true);
        let end = tokio::time::timeout(SELF_TEST_TIMEOUT, self.shared.wait_until_completed(guid)).await;
        self.delete(guid);
        let gone = tokio::time::timeout(SELF_TEST_TIMEOUT, self.shared.wait_until_gone(Some(guid))).await;
        match end {
            Ok(RunResult::Succeeded { .. }) => {}
            Ok(RunResult::Failed { reason, .. }) => return Err(SelfTestError::Failed(reason)),
            Ok(RunResult::Stopped) => return Err(SelfTestError::Stopped),
            Err(_) => return Err(SelfTestError::NotCompleted),
        }
        gone.map_err(|_| SelfTestError::NotDeleted)
    }

    /// Returns the number of folders of deleted containers that could not be removed yet. The removal of each
    /// folder is retried every minute.
    #[must_use]
    pub fn unremoved_folders(&self) -> u64 {
        self.shared.trash.failed_count()
    }

    /// Deletes every container, and waits until all containers are gone.
    pub async fn delete_all(&self) {
        for prepared in self.shared.preparations.take_all() {
            let shared = Arc::clone(&self.shared);
            run_blocking(move || prepared.release(&shared)).await;
        }
        for guid in self.shared.guids() {
            self.delete(guid);
        }
        self.shared.wait_until_gone(None).await;
    }

    fn start(&self, recipe: Recipe, hidden: bool) {
        let container = Container {
            instance_guid: recipe.instance_guid,
            work: recipe.work.clone(),
            domain: recipe.domain.clone(),
            resources: recipe.resources,
            admitted_at: recipe.admitted_at,
            isolation: self.isolation(),
            state: ContainerState::Initializing,
        };
        self.keep(container, vec![], hidden, Origin::Create(Box::new(recipe)));
    }

    /// Registers a container and starts its keeper.
    fn keep(&self, container: Container, ports: Vec<PortMapping>, hidden: bool, begin: Origin) {
        let guid = container.instance_guid;
        if let Some(orders) = self.shared.register(container, &ports, hidden) {
            let keeper = Keeper::new(Arc::clone(&self.shared), guid, ports, orders);
            self.spawn(keeper.run(begin));
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock();
        while let Some(ended) = tasks.try_join_next() {
            if let Err(error) = ended {
                tracing::error!(%error, "the keeper task of a container panicked");
            }
        }
        tasks.spawn_on(task, &self.runtime);
    }
}

/// Adds the control group as the context of an error.
fn cgroup_error(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot create the control group: {error}"))
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

/// Returns `true` if a self test created the container. Such a container at startup means that the program
/// exited during the self test.
fn is_self_test(cell_id: &CellId, guid: InstanceGuid) -> bool {
    guid.0.as_u64_pair().0 == fnv1a(cell_id.as_str())
}

/// Returns the recipe of a self test. The container is not part of the cluster's history. Its guid is
/// therefore computed from the cell and a number.
fn self_test_recipe(cell_id: &CellId, number: u64) -> Recipe {
    let own = u64::from(std::process::id());
    let guid = uuid::Uuid::from_u64_pair(fnv1a(cell_id.as_str()), own << 32 | (number & 0xffff_ffff));
    Recipe {
        instance_guid: InstanceGuid(guid),
        work: WorkKey::Task {
            task_guid: TaskGuid::new("self-test").expect("the name is valid"),
            epoch: Epoch(Timestamp(0)),
        },
        domain: Domain::new("self-test").expect("the name is valid"),
        environment_variables: vec![],
        setup: None,
        action: Action::Run(Run { path: "true".into(), ..Run::default() }),
        monitor: None,
        start_timeout_ms: 0,
        grace_period_ms: 0,
        cpu_weight: 0,
        ports: vec![],
        result_file: String::new(),
        resources: Resources::for_container(0, 0, 0),
        sandbox: None,
        admitted_at: Position(0),
    }
}
