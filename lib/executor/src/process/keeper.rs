//! Keeper of one container: a task that creates or adopts the container, watches its shim (the program that
//! runs the container), records its result, and removes the container.

use std::fs;
use std::future::pending;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use schemas::container::{ContainerState, NetInfo, PortMapping, Recipe, RunResult};
use schemas::isolation::IsolationLayer;
use schemas::limits::{REASON_BYTES, truncate};
use schemas::names::InstanceGuid;

use super::carrier::{self, TransferService};
use super::is_self_test;
use super::link::{ShimLink, WaitingShim};
use super::prepare::{PrepareError, Prepared, check_free_space, prepare, remove_groups};
use super::shared::{Order, Shared, run_blocking};
use crate::cgroup::{self, Cgroups, Limits};
use crate::folder::{Folder, MARKER, Spec, Status};
use crate::isolation::Plan;
use crate::{clock, host, processes};

/// Time that a shim has to stop its container after the grace period. Afterwards the shim is killed.
const STOP_MARGIN: Duration = Duration::from_secs(10);
/// First delay between searches for processes that remain after the shim died. The delay doubles up to
/// `SWEEP_MAX_DELAY`.
const SWEEP_MIN_DELAY: Duration = Duration::from_millis(1);
/// Longest delay between searches for processes that remain after the shim died.
const SWEEP_MAX_DELAY: Duration = Duration::from_secs(1);

/// Maximum time that a container stays listed while its folder is removed.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Prefix of the failure reason of a container that could not be created.
pub(super) const NOT_CREATED_PREFIX: &str = "failed to create container";

/// Way in which a keeper obtains its container.
pub(super) enum Origin {
    /// Create a new container.
    Create(Box<Recipe>),
    /// Adopt a container that an earlier executor created.
    Adopt {
        /// Connection to the shim of the container. `None` if the shim is gone.
        link: Option<ShimLink>,
        /// Control group of the container, if it has one.
        cgroup: Option<PathBuf>,
        /// Isolation plan of the container, if it is isolated.
        plan: Option<Box<Plan>>,
    },
}

/// State of the keeper of one container.
pub(super) struct Keeper {
    shared: Arc<Shared>,
    guid: InstanceGuid,
    folder: Folder,
    ports: Vec<PortMapping>,
    cgroup: Option<PathBuf>,
    /// Control groups of version 1 that limit the container, in addition to `cgroup`.
    limits: Limits,
    /// Isolation plan of the container, if it is isolated.
    plan: Option<Box<Plan>>,
    /// Last logged result of the monitor: `true` if the monitor fails. `None` if no result is known.
    failing: Option<bool>,
    orders: watch::Receiver<Order>,
    /// Socket for the shim's transfer requests, if the recipe has any downloads or uploads.
    listener: Option<UnixListener>,
    /// Failure of the executor that stops the container. `None` if the executor did not fail.
    failure: Option<String>,
}

impl Keeper {
    pub(super) fn new(
        shared: Arc<Shared>,
        guid: InstanceGuid,
        ports: Vec<PortMapping>,
        orders: watch::Receiver<Order>,
    ) -> Self {
        let folder = shared.folder(guid);
        Self {
            shared,
            guid,
            folder,
            ports,
            cgroup: None,
            limits: Limits::default(),
            plan: None,
            failing: None,
            orders,
            listener: None,
            failure: None,
        }
    }

    /// Runs the container until it is deleted.
    pub(super) async fn run(mut self, begin: Origin) {
        let link = match begin {
            Origin::Create(recipe) => self.create(*recipe).await,
            Origin::Adopt { link, cgroup, plan } => {
                self.limits = plan.as_ref().map(|plan| plan.limits.clone()).unwrap_or_default();
                (self.cgroup, self.plan) = (cgroup, plan);
                link
            }
        };
        if let Some(link) = link {
            let carrying = self.start_transfers();
            self.watch(&link).await;
            drop(carrying);
            self.reap_shim(link).await;
        }
        self.finish().await;
        while self.current_order() < Order::Delete {
            self.wait_for_order().await;
        }
        let (shared, guid, folder) = (Arc::clone(&self.shared), self.guid, self.folder.clone());
        let (cgroup, plan) = (self.cgroup.take(), self.plan.take());
        let limits = std::mem::take(&mut self.limits);
        let left = run_blocking(move || {
            release_resources(&shared, guid, &folder, (cgroup.as_deref(), &limits), plan.as_deref())
        });
        let left = left.await;
        if let Some(left) = left {
            let trash = Arc::clone(&self.shared.trash);
            // If the removal of the folder takes too long, the container leaves the register while the
            // removal continues.
            drop(timeout(REMOVAL_TIMEOUT, run_blocking(move || trash.discard(&left))).await);
        }
        self.shared.unregister(self.guid, &self.ports);
    }

    /// Starts the transfer service. The service runs until the returned handle is dropped. `None` if the
    /// recipe has no downloads or uploads.
    fn start_transfers(&mut self) -> Option<AbortOnDropHandle<()>> {
        let listener = match self.listener.take() {
            Some(listener) => listener,
            // An earlier executor created the container, and the socket of that executor no longer exists.
            None => match self.folder.spec().and_then(|spec| carrier::listen(&self.folder, &spec.recipe)) {
                Ok(listener) => listener?,
                Err(error) => {
                    tracing::warn!(container = %self.guid, %error, "cannot start the transfer service of a container");
                    return None;
                }
            },
        };
        let carrier = TransferService::new(Arc::clone(&self.shared), self.guid, self.folder.clone());
        let guid = self.guid;
        Some(AbortOnDropHandle::new(tokio::spawn(async move {
            if let Err(error) = carrier.serve(listener).await {
                tracing::warn!(container = %guid, %error, "the transfer service of a container failed");
            }
        })))
    }

    /// Creates the folder and starts the shim. `None` if one of these steps failed, or if the container was
    /// stopped or deleted before the shim started.
    async fn create(&mut self, recipe: Recipe) -> Option<ShimLink> {
        let shared = Arc::clone(&self.shared);
        let permit = shared.creation_permits.acquire().await.expect("the semaphore is never closed");
        let prepared = self.shared.preparations.take(self.guid);
        let (shared, folder) = (Arc::clone(&self.shared), self.folder.clone());
        if self.current_order() > Order::Run {
            if let Some(prepared) = prepared {
                run_blocking(move || prepared.release(&shared)).await;
            }
            return None;
        }
        let made = run_blocking(move || {
            let prepared = prepared.map_or_else(|| prepare(&shared, &recipe), Ok)?;
            Ok(create(&shared, &folder, prepared, recipe))
        });
        let made: Result<Created, PrepareError> = made.await;
        drop(permit);
        let linked = made.map_err(|error| error.to_string()).and_then(|made| {
            (self.ports, self.cgroup, self.limits) = (made.ports, made.cgroup, made.limits);
            (self.plan, self.listener) = (made.plan, made.listener);
            made.started.and_then(WaitingShim::watch).map_err(|error| error.to_string())
        });
        linked.map_err(|why| self.failure = Some(format!("{NOT_CREATED_PREFIX}: {why}"))).ok()
    }

    /// Announces the states that the shim reports and forwards orders to it, until the shim is gone.
    async fn watch(&mut self, link: &ShimLink) {
        let mut kill_at = None;
        // State changes before the start of this watch sent no hint to this keeper.
        self.announce_status();
        self.log_health_change();
        loop {
            if self.current_order() > Order::Run && kill_at.is_none() {
                kill_at = Some(self.stop());
            }
            let overdue = async {
                match kill_at {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                hint = link.hint() => match hint {
                    Ok(true) => {
                        self.announce_status();
                        self.log_health_change();
                    }
                    Ok(false) => return,
                    Err(error) => {
                        self.failure = Some(format!("lost the connection to the shim: {error}"));
                        return;
                    }
                },
                () = next_order(&mut self.orders) => {}
                () = overdue => {
                    tracing::warn!(container = %self.guid, "killing a shim that did not stop its container in time");
                    self.sweep().await;
                    kill_at = Some(Instant::now() + STOP_MARGIN);
                }
            }
        }
    }

    /// Sends the stop order to the shim. Returns the deadline after which the shim is killed.
    fn stop(&mut self) -> Instant {
        let grace = match self.folder.spec() {
            Ok(spec) => Duration::from_millis(spec.recipe.grace_period_ms),
            Err(error) => {
                tracing::warn!(container = %self.guid, %error, "cannot read the grace period of a container");
                Duration::ZERO
            }
        };
        match self.folder.send_stop() {
            Ok(()) => Instant::now() + grace + STOP_MARGIN,
            Err(error) => {
                tracing::warn!(container = %self.guid, %error, "cannot reach a shim: killing it");
                Instant::now()
            }
        }
    }

    /// Reaps a shim that this program started.
    async fn reap_shim(&mut self, link: ShimLink) {
        if self.failure.is_some() {
            // The shim may still be alive. If it is killed, it remains a zombie until this program exits.
            return;
        }
        if let Err(error) = run_blocking(move || link.reap()).await {
            tracing::warn!(container = %self.guid, %error, "cannot wait for the end of a shim");
        }
    }

    /// Ensures that no process of the container runs, and records the result if the shim could not record it.
    async fn finish(&mut self) {
        if let Ok(Some(Status::Completed(result))) = self.folder.status() {
            return self.shared.announce(self.guid, ContainerState::Completed(result));
        }
        self.sweep().await;
        let failed =
            |reason: &str| RunResult::Failed { reason: truncate(reason, REASON_BYTES), exit_status: None };
        let result = match (self.current_order(), self.failure.take()) {
            (Order::Stop | Order::Delete, _) => RunResult::Stopped,
            (Order::Run, Some(trouble)) => failed(&trouble),
            (Order::Run, None) => failed(&self.shim_failure_reason()),
        };
        let (folder, status) = (self.folder.clone(), Status::Completed(result.clone()));
        let written = run_blocking(move || match folder.write_status(&status) {
            // The folder of the container was never created. A later executor does not find the container and
            // needs no result.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        });
        if let Err(error) = written.await {
            tracing::error!(container = %self.guid, %error, "cannot record the result of a container");
        }
        self.shared.announce(self.guid, ContainerState::Completed(result));
    }

    fn shim_failure_reason(&self) -> String {
        if self.limits.oom_kills() > 0 {
            // If the rep does not run as root, the shim is not exempt from the OOM killer. In this case, the
            // kernel kills the shim together with the programs.
            let memory_mb = self.folder.spec().map_or(0, |spec| spec.recipe.resources.memory_mb);
            return cgroup::out_of_memory_message(memory_mb);
        }
        let complaint = self.folder.last_shim_error();
        match complaint.as_str() {
            "" => match self.check_folder_writable() {
                Ok(()) => "the shim of the container ended unexpectedly".to_owned(),
                Err(error) => format!("the shim of the container ended unexpectedly: {error}"),
            },
            complaint => format!("the shim of the container ended unexpectedly: {complaint}"),
        }
    }

    /// Checks that the shim of this container can write to the container's folder.
    fn check_folder_writable(&self) -> io::Result<()> {
        check_free_space(&self.shared.settings.data)?;
        fs::metadata(self.folder.path()).map(drop)
    }

    /// Kills all processes that are in the control group of this container or have its mark, until no such
    /// process remains.
    async fn sweep(&self) {
        let mut pause = SWEEP_MIN_DELAY;
        loop {
            let (marker, cgroup) = (self.guid.to_string(), self.cgroup.clone());
            if run_blocking(move || kill_all(&marker, cgroup.as_deref())).await {
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(SWEEP_MAX_DELAY);
        }
    }

    /// Announces the state that is stored in the folder. COMPLETED is not announced here, but once the shim
    /// is gone.
    fn announce_status(&self) {
        let state = self.folder.status().and_then(|status| match status {
            None | Some(Status::Completed(_)) => Ok(None),
            Some(Status::Created) => Ok(Some(ContainerState::Created)),
            Some(Status::Running) => self.folder.spec().map(|spec| Some(ContainerState::Running(spec.net))),
        });
        match state {
            Ok(state) => state.into_iter().for_each(|state| self.shared.announce(self.guid, state)),
            Err(error) => {
                tracing::warn!(container = %self.guid, %error, "cannot read the state of a container");
            }
        }
    }

    /// Logs each change of the monitor's result.
    fn log_health_change(&mut self) {
        let health = match self.folder.health() {
            Ok(None) => return,
            Ok(Some(health)) => health,
            Err(error) => {
                tracing::warn!(container = %self.guid, %error, "cannot read the health of a container");
                return;
            }
        };
        let complaint = health.failure_summary();
        if self.failing.replace(complaint.is_some()) == Some(complaint.is_some()) {
            return;
        }
        let work =
            self.shared.get(self.guid).map_or_else(String::new, |container| container.work.to_string());
        let (cell, guid) = (&self.shared.settings.cell_id, self.guid);
        match complaint {
            Some(complaint) => tracing::info!(%cell, "{work} as {guid}: the monitor fails: {complaint}"),
            None => tracing::info!(%cell, "{work} as {guid}: the monitor succeeds"),
        }
    }

    fn current_order(&self) -> Order {
        *self.orders.borrow()
    }

    async fn wait_for_order(&mut self) {
        next_order(&mut self.orders).await;
    }
}

/// Waits for the next order.
async fn next_order(orders: &mut watch::Receiver<Order>) {
    // The register holds the sender until this keeper removes the container from the register.
    orders.changed().await.expect("the register holds the order of every kept container");
}

/// Container with at least some of its resources.
struct Created {
    ports: Vec<PortMapping>,
    cgroup: Option<PathBuf>,
    limits: Limits,
    plan: Option<Box<Plan>>,
    listener: Option<UnixListener>,
    started: io::Result<WaitingShim>,
}

/// Creates a prepared container: writes its spec and lets its shim continue. If this cell cannot run the
/// recipe, the spec is still written if possible, so that a later executor finds the result.
fn create(shared: &Shared, folder: &Folder, prepared: Prepared, recipe: Recipe) -> Created {
    let settings = &shared.settings;
    let Prepared { ports, cgroup, limits, listener, shim, .. } = prepared;
    let planned = shared.isolating.plan(settings, &shared.trash, &recipe, cgroup.as_deref());
    let (plan, planned) = match planned {
        Ok(plan) => (plan, Ok(())),
        Err(error) => (None, Err(error)),
    };
    let weighed = match &plan {
        Some(plan) => plan.has(IsolationLayer::Cpu),
        None => shared.cgroups.as_ref().is_some_and(Cgroups::has_weight),
    };
    let nice = if weighed { 0 } else { cgroup::nice_increment(recipe.cpu_weight) };
    let spec = Spec {
        recipe,
        cell_id: settings.cell_id.clone(),
        net: NetInfo { address: settings.address.as_str().into(), ports: ports.as_slice().into() },
        boot: host::boot_id(),
        cgroup: cgroup.clone(),
        plan,
        nice,
        log_bytes: settings.log_bytes,
        unhealthy_monitoring_interval: settings.unhealthy_monitoring_interval,
        healthy_monitoring_interval: settings.healthy_monitoring_interval,
    };
    let written = folder.write_spec(&spec).and(planned);
    let started = match (written, shim) {
        (Ok(()), shim) => shim.and_then(|shim| shim.proceed(folder)),
        (Err(error), Ok(shim)) => shim.end().and(Err(error)),
        (Err(error), Err(_)) => Err(error),
    };
    Created { ports, cgroup, limits, plan: spec.plan.map(Box::new), listener, started }
}

/// Releases the resources of a container and retains its log. Returns the path to which the container's
/// folder was moved in the trash.
fn release_resources(
    shared: &Shared,
    guid: InstanceGuid,
    folder: &Folder,
    (cgroup, limits): (Option<&Path>, &Limits),
    plan: Option<&Plan>,
) -> Option<PathBuf> {
    let settings = &shared.settings;
    remove_groups(shared, guid, cgroup, limits);
    shared.isolating.release(plan);
    if !is_self_test(&settings.cell_id, guid)
        && let Err(error) = shared.ended.retain(guid, &folder.log(), clock::system_time())
    {
        tracing::warn!(container = %guid, %error, "cannot retain the log of a container");
    }
    shared.ended.prune(clock::system_time());
    shared.trash.move_in(folder.path()).unwrap_or_else(|error| {
        tracing::warn!(container = %guid, %error, "cannot remove the folder of a container: retrying at the next start");
        None
    })
}

/// Kills all processes that are in the control group of a container or have its mark. Returns `true` if there
/// were no such processes.
fn kill_all(marker: &str, cgroup: Option<&Path>) -> bool {
    let empty = cgroup.is_none_or(|cgroup| {
        cgroup::kill(cgroup).unwrap_or_else(|error| {
            tracing::warn!(container = marker, %error, "cannot kill the control group of a container");
            true
        })
    });
    let processes = processes::marked(MARKER, marker);
    for process in &processes {
        if let Err(error) = process.signal(Signal::KILL) {
            tracing::warn!(container = marker, %error, "cannot kill a process of a container");
        }
    }
    empty && processes.is_empty()
}
