//! `muster-lab bench --rolling`: measures the effect of an update on the clients of the updated process.
//!
//! In the first part, 20 real web servers are replaced one at a time. Each new server starts beside the old
//! one. A router that knows only the log sends requests at a steady pace to every running instance. The
//! results are the number of failed requests, which must be zero, and the latencies. In the second part,
//! 1,000 in-memory instances are replaced, ten at a time.

mod load;
mod report;
mod router;
mod timeline;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Client;
use executor::process::IsolationPolicy;
use host::error::ServiceError;
use host::example_server::DRAIN_MS;
use host::local::{ContainerKind, Local, LocalConfig, RoleBus};
use host::serve::Nats;
use journal::{Journal, Sqlite};
use schemas::bus::Inbox;
use schemas::definition::DesiredLrp;
use schemas::names::{CellId, ClientName, Domain, ProcessGuid, Zone};
use schemas::resources::Resources;
use schemas::spec::{self, Item};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::load::Load;
use self::report::{Report, RolloutFigures};
use self::router::Router;
use super::{BenchArgs, BenchError, Outcome, TempFolder, bench_id, progress_bar};

/// Number of real processes that are replaced.
const REAL_INSTANCES: u32 = 20;
/// Number of cells that run the real processes.
const REAL_CELLS: u32 = 3;
/// Number of in-memory instances that are replaced, and number of concurrent replacements.
const IN_MEMORY: (u32, u32) = (1_000, 10);
/// Timeout of each step.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Duration of the requests before the update, and again after the update.
const MARGIN: Duration = Duration::from_millis(500);

/// Runs both parts, each on its own embedded journal.
///
/// # Errors
/// Returns an error if a cluster can't be started or an expected event does not occur in time.
pub(super) async fn run(
    nats: Option<Nats>,
    args: &BenchArgs,
    stop: CancellationToken,
) -> Result<Outcome, BenchError> {
    if nats.is_some() {
        return Err(BenchError::NeedsNoServer);
    }
    let folder = TempFolder::new()?;
    let bar = progress_bar();
    bar.set_message(format!("{REAL_INSTANCES} real processes, one at a time"));
    let real = measure_real(&folder.0.join("real"), args, &stop).await?;
    let (instances, at_once) = IN_MEMORY;
    bar.set_message(format!("{instances} instances in memory, {at_once} at a time"));
    let in_memory = measure_in_memory(&folder.0.join("memory"), args, &stop).await?;
    bar.finish_and_clear();
    let report = Report { rate: args.rate, drain_ms: args.drain, cells: args.cells, real, in_memory };
    let text = if args.json { report.json() } else { report.table() };
    Ok(Outcome { text, failure: report.failure() })
}

/// Separate cluster whose parts communicate within this process.
struct Cluster {
    journal: Journal,
    bus: bus::InProcess,
    local: Local,
    client: Client,
}

impl Cluster {
    async fn start(folder: &Path) -> Result<Self, BenchError> {
        let made = std::fs::create_dir_all(folder);
        made.map_err(|source| BenchError::Folder { path: folder.to_owned(), source })?;
        let journal = Journal::Sqlite(Sqlite::open(folder).await?);
        let bus = bus::InProcess::new();
        let id = bench_id()?;
        let (bbs, auctioneer) = (bus.bus(&Inbox::Bbs(id.clone()))?, bus.bus(&Inbox::Auctioneer(id))?);
        let local = Local::start(&journal, bbs, auctioneer, Duration::ZERO, LocalConfig::default())?;
        let (domain, name) = (Domain::new("bench")?, ClientName::new("router")?);
        let bus_of_client = bus.bus(&Inbox::Client(domain.clone(), name.clone()))?;
        let client = Client::with_bus(bus_of_client, domain, name).map_err(BenchError::Asked)?;
        Ok(Self { journal, bus, local, client })
    }

    async fn add_cells(
        &mut self,
        cells: u32,
        total: Resources,
        kind: &ContainerKind,
    ) -> Result<(), BenchError> {
        for number in 0..cells {
            let id = CellId::new(&format!("c{number}"))?;
            let zone = Zone::new(&format!("z{}", number % 3))?;
            let bus = self.bus.bus(&Inbox::Rep(id.clone()))?;
            self.local.add_cell(id, (zone, BTreeMap::new()), total, kind, bus).await?;
        }
        let wanted = usize::try_from(cells).unwrap_or(usize::MAX);
        let present = async {
            while self.client.cells().await?.rows.len() < wanted {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        };
        let present = tokio::time::timeout(TIMEOUT, present).await;
        present.map_err(|_| timeout_error("the cells"))?.map_err(BenchError::Asked)
    }

    async fn end(self) {
        self.local.end().await;
        self.journal.close().await;
    }
}

fn timeout_error(what: &str) -> BenchError {
    BenchError::Timeout { what: what.to_owned(), limit: TIMEOUT }
}

async fn measure_real(
    folder: &Path,
    args: &BenchArgs,
    stop: &CancellationToken,
) -> Result<RolloutFigures, BenchError> {
    let mut cluster = Cluster::start(folder).await?;
    let measured = tokio::select! {
        measured = measure_real_on(&mut cluster, folder, args) => measured,
        () = stop.cancelled() => Err(BenchError::Stopped),
    };
    cluster.end().await;
    measured
}

async fn measure_real_on(
    cluster: &mut Cluster,
    folder: &Path,
    args: &BenchArgs,
) -> Result<RolloutFigures, BenchError> {
    let ports = host::fingerprint::port_count(&executor::process::DEFAULT_HOST_PORTS) / REAL_CELLS;
    let total = Resources { memory_mb: 4_096, disk_mb: 4_096, containers: 2 * REAL_INSTANCES, ports };
    cluster
        .add_cells(REAL_CELLS, total, &ContainerKind::Process(folder.join("cells"), IsolationPolicy::Never))
        .await?;
    let program = std::env::current_exe().map_err(ServiceError::Program)?;
    let program = program.to_string_lossy();
    let lrp = |version: u32| {
        process(json!({
            "process_guid": "web", "domain": "bench", "instances": REAL_INSTANCES, "memory_mb": 16, "disk_mb": 16,
            "ports": [8080], "env": {"VERSION": version.to_string(), DRAIN_MS: args.drain.to_string()},
            "action": {"run": {"path": program, "args": ["example-server"]}},
            "monitor": {"run": {"path": program, "args": ["example-server", "check"]}},
            "start_timeout_ms": 30_000, "update": {"parallelism": 1},
        }))
    };
    let load = (Arc::new(Load::new(args.rate)), Duration::from_millis(args.lag.into()));
    replace(&cluster.client, lrp(1)?, lrp(2)?, Some(load)).await
}

async fn measure_in_memory(
    folder: &Path,
    args: &BenchArgs,
    stop: &CancellationToken,
) -> Result<RolloutFigures, BenchError> {
    let mut cluster = Cluster::start(folder).await?;
    let measured = tokio::select! {
        measured = measure_in_memory_on(&mut cluster, args) => measured,
        () = stop.cancelled() => Err(BenchError::Stopped),
    };
    cluster.end().await;
    measured
}

async fn measure_in_memory_on(cluster: &mut Cluster, args: &BenchArgs) -> Result<RolloutFigures, BenchError> {
    let (instances, at_once) = IN_MEMORY;
    let each = instances.div_ceil(args.cells) * 2 + 50;
    let mb = u64::from(each) * 64;
    let total = Resources { memory_mb: mb, disk_mb: mb, containers: each, ports: each };
    cluster.add_cells(args.cells, total, &ContainerKind::Scripted).await?;
    let lrp = |version: u32| {
        process(json!({
            "process_guid": "many", "domain": "bench", "instances": instances, "memory_mb": 32, "disk_mb": 32,
            "ports": [8080], "env": {"VERSION": version.to_string()}, "action": {"run": {"path": "scripted"}},
            "update": {"parallelism": at_once},
        }))
    };
    replace(&cluster.client, lrp(1)?, lrp(2)?, None).await
}

fn process(value: Value) -> Result<DesiredLrp, BenchError> {
    let refused = |source| BenchError::Refused { subject: "the benchmark's process".to_owned(), source };
    let items = spec::document(value).map_err(refused)?;
    let lrps = items.into_iter().find_map(|item| match item {
        Item::Lrp(lrp) => Some(*lrp),
        Item::Task(_) | Item::Periodic(_) | Item::Parameterised(_) | Item::Domain { .. } => None,
    });
    lrps.ok_or_else(|| BenchError::NoHolder("the benchmark's process".to_owned()))
}

/// Desires a process, waits until it runs, updates it, and waits until every index is replaced.
async fn replace(
    client: &Client,
    first: DesiredLrp,
    then: DesiredLrp,
    load: Option<(Arc<Load>, Duration)>,
) -> Result<RolloutFigures, BenchError> {
    let guid: ProcessGuid = first.process_guid.clone();
    let instances = first.instances;
    let desired = client.desire_lrp(first).await?;
    client.wait_for_lrp(&guid, desired.position, TIMEOUT).await?;
    let (load, lag) = load.map_or((None, Duration::ZERO), |(load, lag)| (Some(load), lag));
    let mut router = Router::start(client, guid, load, lag).await?;
    router.run_for(MARGIN).await?;
    let began = Instant::now();
    client.replace_lrp(then).await?;
    tokio::time::timeout(TIMEOUT, router.run_until_replaced())
        .await
        .map_err(|_| timeout_error("the update"))??;
    let took = began.elapsed();
    router.run_for(MARGIN).await?;
    let (timeline, requests) = router.end().await;
    Ok(RolloutFigures { instances, took, timeline, requests })
}
