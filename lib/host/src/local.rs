//! A whole cluster in this process: a BBS, an auctioneer and cells. The caller passes the journal and the
//! bus.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, BusError};
use executor::process::IsolationPolicy;
use journal::Journal;
use schemas::attributes::{AttributeName, Attributes};
use schemas::bus::Inbox;
use schemas::limits::DEFAULT_HISTORY_SHOWN;
use schemas::names::{CellId, Stack, Zone};
use schemas::resources::Resources;
use schemas::subject::DEFAULT_SHARDS;
use secrets::Keys;
use text::chain;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::callback::allow::Allowed;
use super::containers::Containers;
use super::drive::INPUT_CAPACITY;
use super::error::ServiceError;
use super::monitoring::MetricsRegistry;
use super::monitoring::auctioneer::AuctioneerMetrics;
use super::monitoring::bbs::BbsMetrics;
use super::monitoring::rep::RepMetrics;
use super::otlp::Collector;
use super::past::Cache;
use super::run_error::RunError;
use super::serve::{identity, shim_command};
use super::{auctioneer, bbs, driver, fingerprint, home, rep, transfers};

/// Interval of health checks until a container of a local cluster is healthy. The interval is short because a
/// user is waiting and the containers are few.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);

/// Kind of containers on the cells.
#[derive(Clone, Debug)]
pub enum ContainerKind {
    /// Real processes with this isolation. Each cell has a separate subfolder of this folder.
    Process(PathBuf, IsolationPolicy),
    /// Simulated containers in memory, which behave as their recipes specify.
    Scripted,
}

/// Source of bus connections for the roles. Each role receives replies at a separate inbox.
pub trait RoleBus {
    /// Returns a bus connection whose replies arrive at this inbox.
    fn bus(&self, inbox: &Inbox) -> Result<Bus, BusError>;
}

impl RoleBus for bus::InProcess {
    fn bus(&self, inbox: &Inbox) -> Result<Bus, BusError> {
        Ok(Bus::InProcess(self.with_inbox(&inbox.to_string())?))
    }
}

/// Settings of a local cluster, in addition to its journal and bus.
#[derive(Debug, Default)]
pub struct LocalConfig {
    /// Keys that seal and open secrets.
    pub keys: Keys,
    /// Cache for snapshots of the past. `None` disables queries about the past.
    pub cache: Option<Cache>,
    /// Metrics and monitoring of the services.
    pub watching: MetricsRegistry,
    /// Collector for the spans of decisions. `None` if spans are not collected.
    pub traces: Option<Collector>,
    /// Number of shards of a newly founded cluster. `None` selects the default.
    pub shards: Option<u16>,
}

/// Running local cluster.
pub struct Local {
    services: JoinSet<Result<(), RunError>>,
    stop: CancellationToken,
    reps: CancellationToken,
    /// Keys that seal and open secrets.
    keys: Keys,
    watching: MetricsRegistry,
    pub cells: Vec<Cell>,
}

/// Cell of a running cluster.
#[derive(Clone, Debug)]
pub struct Cell {
    pub id: CellId,
    pub containers: Containers,
    /// Token that stops only the rep of this cell.
    pub stop: CancellationToken,
}

impl Local {
    /// Starts a BBS and an auctioneer.
    ///
    /// # Errors
    /// A service cannot be created.
    pub fn start(
        journal: &Journal,
        bbs_bus: Bus,
        auctioneer_bus: Bus,
        mass_loss_wait: Duration,
        own: LocalConfig,
    ) -> Result<Self, ServiceError> {
        let presence = ::bbs::presence::Config { mass_loss_wait, ..::bbs::presence::Config::default() };
        let (cache, watching) = (own.cache.clone(), own.watching.clone());
        let mut local = Self::with_bbs(journal, bbs_bus, presence, true, own)?;
        let (id, _) = identity("auctioneer")?;
        let stop = local.stop.clone();
        let lines = (journal.clone(), auctioneer_bus);
        let watched = (lines.1.clone(), lines.0.clone());
        let watch = AuctioneerMetrics::register(&watching, watched, Arc::default(), stop.clone());
        local.services.spawn(auctioneer::run((id, fingerprint::program()), lines, cache, watch, stop));
        Ok(local)
    }

    /// Starts a BBS that answers queries from the journal. The cluster makes no decisions, places no work and
    /// runs no containers.
    ///
    /// # Errors
    /// The system provides no randomness for the name of the BBS.
    pub fn start_read_only(journal: &Journal, bus: Bus, own: LocalConfig) -> Result<Self, ServiceError> {
        Self::with_bbs(journal, bus, ::bbs::presence::Config::default(), false, own)
    }

    fn with_bbs(
        journal: &Journal,
        bus: Bus,
        presence: ::bbs::presence::Config,
        may_lead: bool,
        own: LocalConfig,
    ) -> Result<Self, ServiceError> {
        let LocalConfig { keys, cache, watching, traces, shards } = own;
        let stop = CancellationToken::new();
        let reps = stop.child_token();
        let mut services = JoinSet::new();
        let (id, seed) = identity("bbs")?;
        let settings = ::bbs::Config {
            id,
            // An empty journal means that the cluster is new, because the journal and the cells are always
            // created and deleted together.
            founding_shards: may_lead.then_some(shards.unwrap_or(DEFAULT_SHARDS)),
            presence,
            durability: journal.durability().to_string(),
            history_limit: DEFAULT_HISTORY_SHOWN,
            program: fingerprint::program(),
            slice_len: ::bbs::SLICE_LEN,
            bytes_in_flight: schemas::limits::BYTES_IN_FLIGHT,
            may_lead,
        };
        let lines =
            driver::Connections { traces, ..driver::Connections::in_process(journal.clone(), bus, cache) };
        // The whole cluster and its clients are on this host, so callbacks to this host are allowed.
        let own = bbs::SharedResources::new(keys.clone(), Allowed::with_loopback())?;
        let watched = (lines.bus.clone(), journal.clone());
        let watch = BbsMetrics::register(&watching, watched, Arc::default(), stop.clone());
        services.spawn(bbs::run(settings, seed, (lines, own), watch, stop.clone()));
        Ok(Self { services, stop, reps, keys, watching, cells: vec![] })
    }

    /// Adds a cell.
    ///
    /// # Errors
    /// The containers of the cell cannot be opened.
    pub async fn add_cell(
        &mut self,
        id: CellId,
        (zone, given): (Zone, BTreeMap<AttributeName, String>),
        total: Resources,
        kind: &ContainerKind,
        bus: Bus,
    ) -> Result<(), ServiceError> {
        let (inputs, receiver) = mpsc::channel(INPUT_CAPACITY);
        let containers = match kind {
            ContainerKind::Scripted => Containers::scripted(inputs.clone()),
            ContainerKind::Process(folder, isolate) => {
                let mut settings = executor::process::Settings::new(
                    folder.join(id.as_str()),
                    id.clone(),
                    "127.0.0.1",
                    shim_command()?,
                );
                settings.unhealthy_monitoring_interval = PROBE_INTERVAL;
                settings.keys = self.keys.clone();
                settings.isolate = *isolate;
                // Hides the cluster's folder from the containers, because the folder contains the cluster's
                // keys and socket.
                settings.masked = folder.parent().map(Path::to_owned).into_iter().collect();
                settings.artifacts.judge = transfers::judge(transfers::Reach::AlsoThisHost);
                Containers::process(settings, inputs.clone()).await?
            }
        };
        let stack = Stack::new("linux")?;
        let (_, seed) = identity("rep")?;
        let folder = match kind {
            ContainerKind::Process(folder, _) => home::folder_id(&folder.join(id.as_str()))?,
            ContainerKind::Scripted => home::new_folder_id()?,
        };
        let mut settings = ::rep::Settings::new(id.clone(), folder, zone, stack, total);
        settings.attributes = match kind {
            ContainerKind::Process(..) => fingerprint::attributes(given, containers.isolation())?,
            ContainerKind::Scripted => Attributes::new(given)?,
        };
        let stop = self.reps.child_token();
        let channel = (inputs, receiver);
        let watch = RepMetrics::begin(&self.watching, id.clone(), bus.clone(), Arc::default());
        watch.set_backend(&containers);
        let running = rep::run(settings, seed, (bus, containers.clone(), None), channel, watch, stop.clone());
        self.services.spawn(async move { running.await.map(drop).map_err(RunError::from) });
        self.cells.push(Cell { id, containers, stop });
        Ok(())
    }

    /// Waits until a service fails, and returns the reason.
    pub async fn failed(&mut self) -> ServiceError {
        loop {
            match self.services.join_next().await {
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(ended))) => return ended.into(),
                Some(Err(error)) => return ServiceError::Panicked(error),
                None => return ServiceError::AllEnded,
            }
        }
    }

    /// Stops the cluster and all its containers. The reps stop first. Desired work therefore stays desired,
    /// and the end of a container does not count as a crash.
    pub async fn end(mut self) {
        self.reps.cancel();
        let ends: Vec<_> = self
            .cells
            .iter()
            .map(|cell| {
                let containers = cell.containers.clone();
                tokio::spawn(async move { containers.end_all().await })
            })
            .collect();
        for end in ends {
            if let Err(error) = end.await {
                tracing::warn!(%error, "some containers of a cell may still be running");
            }
        }
        self.stop.cancel();
        while let Some(ended) = self.services.join_next().await {
            if let Ok(Err(why)) = ended {
                tracing::warn!("a service failed while stopping: {}", chain(&why));
            }
        }
    }
}

/// Stops the containers of an earlier run in a folder. The containers are still running because the earlier
/// run was killed.
///
/// # Errors
/// The folder of a cell cannot be opened.
pub async fn end_leftovers(folder: &Path) -> Result<(), ServiceError> {
    let Ok(cells) = std::fs::read_dir(folder) else { return Ok(()) };
    for cell in cells.flatten() {
        let name = cell.file_name();
        let Some(id) = name.to_str().and_then(|name| CellId::new(name).ok()) else { continue };
        let settings = executor::process::Settings::new(cell.path(), id, "127.0.0.1", shim_command()?);
        let (executor, _changes) = executor::process::Executor::open(settings).await?;
        Arc::new(executor).delete_all().await;
    }
    Ok(())
}
