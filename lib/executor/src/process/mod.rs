//! Real processes: an executor keeps the containers of one cell in one data folder.
//!
//! ```text
//!   data/lock                 held while the folder is open: one folder, one owner
//!   data/containers/<guid>/   one container, see `folder.rs`
//!   data/artifacts/           archives that were fetched for containers, see the crate artifacts
//!   data/ended/<guid>/        the log of a container that was deleted, for a while, see `ended.rs`
//!   data/unpacking/           images that are being unpacked
//!   data/trash/<guid>/        a deleted container on its way out, see `trash.rs`
//! ```
//!
//! Each container has a keeper, a task that alone changes its state (`keeper.rs`); [`Executor`] only passes orders to
//! it and reads what it wrote. Dropping an executor stops nothing: the containers run on for the next one.

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

/// Ports of the host that containers get unless the settings say otherwise. Below the range from which Linux takes the
/// ports of outgoing connections.
pub const HOST_PORTS: RangeInclusive<u16> = 20_000..=29_999;
/// Size of one log file unless the settings say otherwise, in bytes. Two are kept.
pub const LOG_BYTES: u64 = 1024 * 1024;
/// State changes that wait for their reader; beyond them only the newest state of each container is kept for it.
const EVENTS: usize = 256;
/// How long the container of a self test may take.
const SELF_TEST_LIMIT: Duration = Duration::from_secs(10);

/// Why a cell can't run containers.
#[derive(Debug, thiserror::Error)]
pub enum SelfTestError {
    /// The container failed, for the reason that it gives.
    #[error("{0}")]
    Failed(String),
    /// Something stopped the container.
    #[error("the container was stopped")]
    Stopped,
    /// The container went on for too long.
    #[error("the container did not end within {SELF_TEST_LIMIT:?}")]
    NotEnded,
    /// The container could not be deleted.
    #[error("the container was not deleted within {SELF_TEST_LIMIT:?}")]
    NotDeleted,
}

/// Where control groups for the containers are made, if that is possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Groups {
    /// Below the one that this program is in.
    Own,
    /// Below this one, which was given to us.
    Below(PathBuf),
    /// Nowhere.
    Never,
}

/// Whether containers are kept apart from the host and from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolate {
    /// They aren't: they run as this program's user and see what it sees.
    Never,
    /// As far as this host lets us.
    WhereItCan {
        /// The first id of the host that their users have, if this program is root; [`FIRST_ID`] unless there is a reason. Each
        /// container has [`IDS`] from there on for itself.
        first_id: u32,
    },
}

/// How an executor is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder that holds the containers. One executor at a time may have it.
    pub data: PathBuf,
    /// The cell whose containers these are.
    pub cell_id: CellId,
    /// The address by which others reach this host: given in `NetInfo` and `CF_INSTANCE_IP`.
    pub address: String,
    /// Ports of the host that containers may get; [`HOST_PORTS`] unless there is a reason.
    pub ports: RangeInclusive<u16>,
    /// The program that starts a shim and its first arguments, such as `[current_exe, "shim"]`; the folder of the
    /// container is added. It must call [`crate::shim::run`].
    pub shim: Vec<OsString>,
    /// Where control groups are made; [`Groups::Own`] unless there is a reason.
    pub groups: Groups,
    /// Whether containers are isolated; [`Isolate::Never`] unless it is said.
    pub isolate: Isolate,
    /// The file system that containers get which ask for none, or for the preloaded one of the stack: `oci:FOLDER[:TAG]` or the
    /// path of a folder; empty unless it is said: what programs need of the host's. Only where containers are isolated.
    pub root_fs: String,
    /// Folders below which definitions may name file systems; none unless it is said.
    pub images: Vec<PathBuf>,
    /// Files and folders of the host that isolated containers don't see, beside those that every cell hides and its data folder:
    /// keys and credentials.
    pub masked: Vec<PathBuf>,
    /// Size of one log file, in bytes; two are kept for each container. [`LOG_BYTES`] unless there is a reason.
    pub log_bytes: u64,
    /// Longest time between probes of a monitor before its first success; 0.5 s by default. The first ones follow each
    /// other sooner.
    pub unhealthy_monitoring_interval: Duration,
    /// Time between probes of a monitor afterwards; 30 s by default.
    pub healthy_monitoring_interval: Duration,
    /// What opens the secrets of a container when it begins; none by default.
    pub keys: Keys,
    /// Where what is fetched and sent for containers may come from and go to, and how much is kept: everywhere, and the usual
    /// limits, by default.
    pub artifacts: artifacts::Settings,
}

impl Settings {
    /// The usual settings.
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

/// The containers of one cell.
#[derive(Debug)]
pub struct Executor {
    shared: Arc<Shared>,
    /// The keepers and the forwarder of events; they end with the executor.
    tasks: Mutex<JoinSet<()>>,
    runtime: Handle,
    self_tests: AtomicU64,
    /// Held, never used: the lock on the data folder goes with it.
    _lock: OwnedFd,
}

impl Executor {
    /// Opens a data folder, made if there is none, and adopts the containers in it. Must be called within a tokio
    /// runtime, which keeps the containers from then on.
    ///
    /// The receiver gets each container whose state changed, as a hint: a reader that is slow gets only the newest
    /// state of each.
    ///
    /// # Errors
    /// `OpenError` if somebody else has the folder, or it can't be read and written.
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

    /// Every container, from INITIALIZING until it is deleted.
    #[must_use]
    pub fn list(&self) -> Vec<Container> {
        self.shared.list()
    }

    /// Prepares a container: takes what its creation needs of the host, and runs nothing of its recipe. Until it is run or
    /// discarded it is not listed. A guid that is prepared must not be prepared again.
    ///
    /// # Errors
    /// `PrepareError` if this cell can't create it. Then nothing of it is left.
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

    /// Gives back what was taken for a container that is not run.
    pub fn discard(&self, guid: InstanceGuid) {
        if let Some(prepared) = self.shared.preparations.take(guid) {
            let shared = Arc::clone(&self.shared);
            self.spawn(async move { blocking(move || prepared.undo(&shared)).await });
        }
    }

    /// The same of every container that is prepared.
    pub fn discard_all(&self) {
        for prepared in self.shared.preparations.take_all() {
            let shared = Arc::clone(&self.shared);
            self.spawn(async move { blocking(move || prepared.undo(&shared)).await });
        }
    }

    /// Creates a container and runs its recipe. It is INITIALIZING at once, then CREATED, RUNNING and COMPLETED; one
    /// that can't be created is COMPLETED with the reason. A guid that exists already is left as it is.
    pub fn run(&self, recipe: Recipe) {
        self.begin(recipe, false);
    }

    /// Stops a container: TERM to every process of it, KILL to what is left when its grace period is over. It is
    /// COMPLETED once nothing of it runs. Does nothing to one that is completed, or unknown.
    pub fn stop(&self, guid: InstanceGuid) {
        self.shared.order(guid, Order::Stop);
    }

    /// Deletes a container, stopping it first if need be. It is listed until nothing of it runs and its folder and
    /// ports are free. Its log stays for a while.
    pub fn delete(&self, guid: InstanceGuid) {
        self.shared.order(guid, Order::Delete);
    }

    /// Reads a container's log from the byte `from`, at most `limit` bytes and [`CHUNK_BYTES`]. What is older than
    /// the two files that are kept is skipped, and a line says so. The log of a deleted container is there for
    /// [`ENDED_TIME`], unless many others were deleted since.
    ///
    /// # Errors
    /// `LogError` if there is no such container, or its files can't be read.
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
                // Before its folder is made there is nothing to read; afterwards its log was removed.
                match self.shared.get(guid) {
                    Some(_) => Ok(LogChunk { next: from, ended: completed, ..LogChunk::default() }),
                    None => Err(LogError::Unknown(guid)),
                }
            }
            Err(error) => Err(LogError::Read(error)),
        }
    }

    /// What the monitor of a container found out; none: it has none, or that was not probed yet.
    ///
    /// # Errors
    /// `LogError` if there is no such container, or its folder can't be read.
    pub async fn health(&self, guid: InstanceGuid) -> Result<Option<MonitorHealth>, LogError> {
        if self.shared.get(guid).is_none() {
            return Err(LogError::Unknown(guid));
        }
        let folder = self.shared.folder(guid);
        blocking(move || folder.health()).await.map_err(LogError::Read)
    }

    /// What is at a path of a container's work directory: of a file bytes from the offset `from`, of a folder entries behind
    /// the first `from`; at most `limit` of them, and as many as an answer may have.
    ///
    /// # Errors
    /// `FilesError` if there is no such container or nothing to be shown.
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

    /// Runs one more program in a container, as those of its action are run, with the terminal that it asks for or with pipes.
    /// Nothing of its output gets into the container's log. It ends when its output is dropped, and with the container.
    ///
    /// # Errors
    /// `ExecError` if there is no such container, or it can't be run there.
    pub async fn exec(&self, guid: InstanceGuid, exec: &Exec) -> Result<(ExecInput, ExecOutput), ExecError> {
        if self.shared.get(guid).is_none() {
            return Err(ExecError::Unknown(guid));
        }
        exec::begin(self.shared.folder(guid).path(), exec).await
    }

    /// Whether this cell can run containers: runs `true` in one, to its end, and deletes it. It is neither listed nor
    /// told.
    ///
    /// # Errors
    /// Why it can't.
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

    /// Number of folders of deleted containers that could not be removed so far. Each is tried again every minute.
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

    /// Registers a container and gives it its keeper.
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

/// An error of a control group, which says so.
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

/// Whether a container was made by a self test. One that is found was cut short by the end of the program.
fn is_trial(cell_id: &CellId, guid: InstanceGuid) -> bool {
    guid.0.as_u64_pair().0 == fnv(cell_id.as_str())
}

/// What a self test runs. Its guid is made of the cell and a number, for it is not part of the cluster's history.
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
