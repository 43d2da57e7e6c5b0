//! Keeper of one container: a task that creates or adopts it, watches its shim, records its end, and removes
//! it.

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
use schemas::isolation::Wall;
use schemas::limits::{REASON_BYTES, cut};
use schemas::names::InstanceGuid;

use super::carrier::{self, Carrier};
use super::is_trial;
use super::link::{Link, Started};
use super::prepare::{PrepareError, Prepared, check_room, prepare, remove_groups};
use super::shared::{Order, Shared, blocking};
use crate::cgroup::{self, Cgroups, Limits};
use crate::folder::{Folder, MARKER, Spec, Status};
use crate::isolation::Plan;
use crate::{clock, host, processes};

/// Time beyond the grace period within which a shim must stop its container. After that the shim is killed.
const STOP_SLACK: Duration = Duration::from_secs(10);
/// First delay between searches for remaining processes of a dead shim. It doubles up to the longest delay.
const SWEEP_PAUSE: Duration = Duration::from_millis(1);
/// Longest delay between these searches.
const SWEEP_LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Maximum time that a container stays listed while its folder is removed.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(5);
/// Prefix of the failure reason of a container that could not be created.
pub(super) const NOT_CREATED: &str = "failed to create container";

/// Way in which a keeper gets its container.
pub(super) enum Begin {
    /// Create a new container.
    Create(Box<Recipe>),
    /// Adopt a container of an earlier executor.
    Adopt {
        /// Connection to its shim. `None` if the shim is gone.
        link: Option<Link>,
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
    /// Limiting groups in addition to its control group.
    limits: Limits,
    /// Isolation plan of the container, if it is isolated.
    plan: Option<Box<Plan>>,
    /// Last reported result of the monitor: `true` if it fails. `None` if unknown.
    failing: Option<bool>,
    orders: watch::Receiver<Order>,
    /// Socket for the shim's transfer requests, if the recipe has any downloads or uploads.
    listener: Option<UnixListener>,
    /// Failure of the executor, rather than of the container, that ends the container.
    trouble: Option<String>,
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
            trouble: None,
        }
    }

    /// Runs the container until it is deleted.
    pub(super) async fn keep(mut self, begin: Begin) {
        let link = match begin {
            Begin::Create(recipe) => self.create(*recipe).await,
            Begin::Adopt { link, cgroup, plan } => {
                self.limits = plan.as_ref().map(|plan| plan.limits.clone()).unwrap_or_default();
                (self.cgroup, self.plan) = (cgroup, plan);
                link
            }
        };
        if let Some(link) = link {
            let carrying = self.carry();
            self.watch(&link).await;
            drop(carrying);
            self.bury(link).await;
        }
        self.settle().await;
        while self.order() < Order::Delete {
            self.ordered().await;
        }
        let (shared, guid, folder) = (Arc::clone(&self.shared), self.guid, self.folder.clone());
        let (cgroup, plan) = (self.cgroup.take(), self.plan.take());
        let limits = std::mem::take(&mut self.limits);
        let left =
            blocking(move || leave(&shared, guid, &folder, (cgroup.as_deref(), &limits), plan.as_deref()));
        let left = left.await;
        if let Some(left) = left {
            let trash = Arc::clone(&self.shared.trash);
            // If removal takes long, the container is dropped from the register while the removal continues.
            drop(timeout(REMOVAL_PATIENCE, blocking(move || trash.discard(&left))).await);
        }
        self.shared.forget(self.guid, &self.ports);
    }

    /// Starts the transfer service, which runs until the returned handle is dropped. `None` if the recipe has
    /// no downloads or uploads.
    fn carry(&mut self) -> Option<AbortOnDropHandle<()>> {
        let listener = match self.listener.take() {
            Some(listener) => listener,
            // An earlier executor created the container, and its socket ended with it.
            None => match self.folder.spec().and_then(|spec| carrier::listen(&self.folder, &spec.recipe)) {
                Ok(listener) => listener?,
                Err(error) => {
                    tracing::warn!(container = %self.guid, %error, "nothing can be fetched or sent for a container");
                    return None;
                }
            },
        };
        let carrier = Carrier::new(Arc::clone(&self.shared), self.guid, self.folder.clone());
        let guid = self.guid;
        Some(AbortOnDropHandle::new(tokio::spawn(async move {
            if let Err(error) = carrier.serve(listener).await {
                tracing::warn!(container = %guid, %error, "nothing more is fetched or sent for a container");
            }
        })))
    }

    /// Creates the folder and starts the shim. `None` if that failed, or if the container was stopped or
    /// deleted before.
    async fn create(&mut self, recipe: Recipe) -> Option<Link> {
        let shared = Arc::clone(&self.shared);
        let permit = shared.creating.acquire().await.expect("the semaphore is never closed");
        let prepared = self.shared.preparations.take(self.guid);
        let (shared, folder) = (Arc::clone(&self.shared), self.folder.clone());
        if self.order() > Order::Run {
            if let Some(prepared) = prepared {
                blocking(move || prepared.undo(&shared)).await;
            }
            return None;
        }
        let made = blocking(move || {
            let prepared = prepared.map_or_else(|| prepare(&shared, &recipe), Ok)?;
            Ok(create(&shared, &folder, prepared, recipe))
        });
        let made: Result<Made, PrepareError> = made.await;
        drop(permit);
        let linked = made.map_err(|error| error.to_string()).and_then(|made| {
            (self.ports, self.cgroup, self.limits) = (made.ports, made.cgroup, made.limits);
            (self.plan, self.listener) = (made.plan, made.listener);
            made.started.and_then(Started::link).map_err(|error| error.to_string())
        });
        linked.map_err(|why| self.trouble = Some(format!("{NOT_CREATED}: {why}"))).ok()
    }

    /// Announces the states that the shim reports and forwards orders to it, until the shim is gone.
    async fn watch(&mut self, link: &Link) {
        let mut kill_at = None;
        // State changes before the pipe was watched gave no hint.
        self.tell_status();
        self.tell_health();
        loop {
            if self.order() > Order::Run && kill_at.is_none() {
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
                        self.tell_status();
                        self.tell_health();
                    }
                    Ok(false) => return,
                    Err(error) => {
                        self.trouble = Some(format!("lost the shim: {error}"));
                        return;
                    }
                },
                () = ordered(&mut self.orders) => {}
                () = overdue => {
                    tracing::warn!(container = %self.guid, "kills a shim that does not stop its container");
                    self.sweep().await;
                    kill_at = Some(Instant::now() + STOP_SLACK);
                }
            }
        }
    }

    /// Sends the stop order to the shim, and returns the deadline after which the shim is killed.
    fn stop(&mut self) -> Instant {
        let grace = match self.folder.spec() {
            Ok(spec) => Duration::from_millis(spec.recipe.grace_period_ms),
            Err(error) => {
                tracing::warn!(container = %self.guid, %error, "cannot read the grace period of a container");
                Duration::ZERO
            }
        };
        match self.folder.order_stop() {
            Ok(()) => Instant::now() + grace + STOP_SLACK,
            Err(error) => {
                tracing::warn!(container = %self.guid, %error, "cannot reach a shim, so it is killed");
                Instant::now()
            }
        }
    }

    /// Reaps a shim that this program started.
    async fn bury(&mut self, link: Link) {
        if self.trouble.is_some() {
            // The shim may be alive. When it is killed, its zombie remains until this program exits.
            return;
        }
        if let Err(error) = blocking(move || link.bury()).await {
            tracing::warn!(container = %self.guid, %error, "cannot wait for the end of a shim");
        }
    }

    /// Ensures that no process runs, and records the result if the shim could not.
    async fn settle(&mut self) {
        if let Ok(Some(Status::Completed(result))) = self.folder.status() {
            return self.shared.announce(self.guid, ContainerState::Completed(result));
        }
        self.sweep().await;
        let failed =
            |reason: &str| RunResult::Failed { reason: cut(reason, REASON_BYTES), exit_status: None };
        let result = match (self.order(), self.trouble.take()) {
            (Order::Stop | Order::Delete, _) => RunResult::Stopped,
            (Order::Run, Some(trouble)) => failed(&trouble),
            (Order::Run, None) => failed(&self.end_of_shim()),
        };
        let (folder, status) = (self.folder.clone(), Status::Completed(result.clone()));
        let written = blocking(move || match folder.write_status(&status) {
            // The container was never created, so a later executor does not need its result.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        });
        if let Err(error) = written.await {
            tracing::error!(container = %self.guid, %error, "cannot write down how a container ended");
        }
        self.shared.announce(self.guid, ContainerState::Completed(result));
    }

    fn end_of_shim(&self) -> String {
        if self.limits.kills() > 0 {
            // Without root the shim is not exempt from the OOM killer, which kills it with its programs.
            let memory_mb = self.folder.spec().map_or(0, |spec| spec.recipe.resources.memory_mb);
            return cgroup::out_of_memory(memory_mb);
        }
        let complaint = self.folder.last_complaint();
        match complaint.as_str() {
            "" => match self.check_folder() {
                Ok(()) => "the shim of the container ended unexpectedly".to_owned(),
                Err(error) => format!("the shim of the container ended unexpectedly: {error}"),
            },
            complaint => format!("the shim of the container ended unexpectedly: {complaint}"),
        }
    }

    /// Checks that a shim can write to the folder of this container.
    fn check_folder(&self) -> io::Result<()> {
        check_room(&self.shared.settings.data)?;
        fs::metadata(self.folder.path()).map(drop)
    }

    /// Kills all processes in the control group of this container or with its mark, until none remain.
    async fn sweep(&self) {
        let mut pause = SWEEP_PAUSE;
        loop {
            let (marker, cgroup) = (self.guid.to_string(), self.cgroup.clone());
            if blocking(move || kill_all(&marker, cgroup.as_deref())).await {
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(SWEEP_LONGEST_PAUSE);
        }
    }

    /// Announces the state in the folder, except for the end, which is announced once the shim is gone.
    fn tell_status(&self) {
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

    /// Logs when the result of the monitor changes.
    fn tell_health(&mut self) {
        let health = match self.folder.health() {
            Ok(None) => return,
            Ok(Some(health)) => health,
            Err(error) => {
                tracing::warn!(container = %self.guid, %error, "cannot read what a monitor found out");
                return;
            }
        };
        let complaint = health.complaint();
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

    fn order(&self) -> Order {
        *self.orders.borrow()
    }

    async fn ordered(&mut self) {
        ordered(&mut self.orders).await;
    }
}

/// Waits for the next order.
async fn ordered(orders: &mut watch::Receiver<Order>) {
    // The register holds the sender until this keeper removes the container from it.
    orders.changed().await.expect("the register holds the order of every kept container");
}

/// Container whose creation succeeded at least in part.
struct Made {
    ports: Vec<PortMapping>,
    cgroup: Option<PathBuf>,
    limits: Limits,
    plan: Option<Box<Plan>>,
    listener: Option<UnixListener>,
    started: io::Result<Started>,
}

/// Creates a prepared container: writes its spec and lets its shim continue. If possible, the spec is written
/// even if the recipe cannot be run here, so that a later executor finds the result.
fn create(shared: &Shared, folder: &Folder, prepared: Prepared, recipe: Recipe) -> Made {
    let settings = &shared.settings;
    let Prepared { ports, cgroup, limits, listener, shim, .. } = prepared;
    let planned = shared.isolating.plan(settings, &shared.trash, &recipe, cgroup.as_deref());
    let (plan, planned) = match planned {
        Ok(plan) => (plan, Ok(())),
        Err(error) => (None, Err(error)),
    };
    let weighed = match &plan {
        Some(plan) => plan.has(Wall::Cpu),
        None => shared.cgroups.as_ref().is_some_and(Cgroups::weighs),
    };
    let nice = if weighed { 0 } else { cgroup::nice_of(recipe.cpu_weight) };
    let spec = Spec {
        recipe,
        cell_id: settings.cell_id.clone(),
        net: NetInfo { address: settings.address.as_str().into(), ports: ports.as_slice().into() },
        boot: host::boot(),
        cgroup: cgroup.clone(),
        plan,
        nice,
        log_bytes: settings.log_bytes,
        unhealthy_monitoring_interval: settings.unhealthy_monitoring_interval,
        healthy_monitoring_interval: settings.healthy_monitoring_interval,
    };
    let written = folder.write_spec(&spec).and(planned);
    let started = match (written, shim) {
        (Ok(()), shim) => shim.and_then(|shim| shim.go(folder)),
        (Err(error), Ok(shim)) => shim.end().and(Err(error)),
        (Err(error), Err(_)) => Err(error),
    };
    Made { ports, cgroup, limits, plan: spec.plan.map(Box::new), listener, started }
}

/// Releases the resources of a container and retains its log. Returns its folder in the trash.
fn leave(
    shared: &Shared,
    guid: InstanceGuid,
    folder: &Folder,
    (cgroup, limits): (Option<&Path>, &Limits),
    plan: Option<&Plan>,
) -> Option<PathBuf> {
    let settings = &shared.settings;
    remove_groups(shared, guid, cgroup, limits);
    shared.isolating.release(plan);
    if !is_trial(&settings.cell_id, guid)
        && let Err(error) = shared.ended.keep(guid, &folder.log(), clock::wall())
    {
        tracing::warn!(container = %guid, %error, "cannot keep the log of a container");
    }
    shared.ended.prune(clock::wall());
    shared.trash.take(folder.path()).unwrap_or_else(|error| {
        tracing::warn!(container = %guid, %error, "cannot remove what a container left; tries again at the next start");
        None
    })
}

/// Kills all processes in the control group of a container or with its mark. Returns `true` if there were
/// none.
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
