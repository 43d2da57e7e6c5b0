//! `muster bench --rolling`: what an update costs whoever asks the instances that it replaces.
//!
//! First 20 real web servers, replaced one at a time, each new one beside the old one, while every instance that runs gets
//! requests at a steady pace from a router that knows what the log says and no more. What counts is that no request fails,
//! and how long it takes. Then 1,000 instances in memory, ten at a time.

mod load;
mod report;
mod router;
mod timeline;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Client;
use executor::process::Isolate;
use journal::{Journal, Sqlite};
use schemas::bus::Inbox;
use schemas::definition::DesiredLrp;
use schemas::names::{CellId, ClientName, Domain, ProcessGuid, Zone};
use schemas::resources::Resources;
use schemas::spec::{self, Item};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::load::Load;
use self::report::{Measured, Report};
use self::router::Router;
use super::{BenchArgs, BenchError, Outcome, Scratch, bar, bench_id};
use crate::error::ServiceError;
use crate::example_server::DRAIN_MS;
use crate::local::{Kind, Local, Own, Roles};
use crate::serve::Nats;

/// Real processes that are replaced.
const REAL: u32 = 20;
/// The cells that they run on.
const REAL_CELLS: u32 = 3;
/// Instances in memory that are replaced, and how many at once.
const IN_MEMORY: (u32, u32) = (1_000, 10);
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long requests go on before the update begins and after it ended.
const AROUND: Duration = Duration::from_millis(500);

/// Runs both parts. The journals are embedded ones, of its own.
///
/// # Errors
/// Why a cluster can't be had, or what did not happen in time.
pub(super) async fn run(
    nats: Option<Nats>,
    args: &BenchArgs,
    stop: CancellationToken,
) -> Result<Outcome, ServiceError> {
    if nats.is_some() {
        return Err(BenchError::NeedsNoServer.into());
    }
    let folder = Scratch::new()?;
    let bar = bar();
    bar.set_message(format!("{REAL} real processes, one at a time"));
    let real = real(&folder.0.join("real"), args, &stop).await?;
    let (instances, at_once) = IN_MEMORY;
    bar.set_message(format!("{instances} instances in memory, {at_once} at a time"));
    let in_memory = in_memory(&folder.0.join("memory"), args, &stop).await?;
    bar.finish_and_clear();
    let report = Report { rate: args.rate, drain_ms: args.drain, cells: args.cells, real, in_memory };
    let text = if args.json { report.json() } else { report.table() };
    Ok(Outcome { text, failure: report.failure() })
}

/// A cluster of its own: everybody talks to everybody within this process.
struct Cluster {
    journal: Journal,
    bus: bus::InProcess,
    local: Local,
    client: Client,
}

impl Cluster {
    async fn start(folder: &Path) -> Result<Self, ServiceError> {
        let made = std::fs::create_dir_all(folder);
        made.map_err(|source| BenchError::Folder { path: folder.to_owned(), source })?;
        let journal = Journal::Sqlite(Sqlite::open(folder).await?);
        let bus = bus::InProcess::new();
        let id = bench_id()?;
        let (bbs, auctioneer) = (bus.bus(&Inbox::Bbs(id.clone()))?, bus.bus(&Inbox::Auctioneer(id))?);
        let local = Local::start(&journal, bbs, auctioneer, Duration::ZERO, Own::default())?;
        let (domain, name) = (Domain::new("bench")?, ClientName::new("router")?);
        let bus_of_client = bus.bus(&Inbox::Client(domain.clone(), name.clone()))?;
        let client = Client::over(bus_of_client, domain, name).map_err(BenchError::Asked)?;
        Ok(Self { journal, bus, local, client })
    }

    async fn add_cells(&mut self, cells: u32, total: Resources, kind: &Kind) -> Result<(), ServiceError> {
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
        let present = tokio::time::timeout(PATIENCE, present).await;
        Ok(present.map_err(|_| late("the cells appear"))?.map_err(BenchError::Asked)?)
    }

    async fn end(self) {
        self.local.end().await;
        self.journal.close().await;
    }
}

fn late(what: &str) -> BenchError {
    BenchError::Late { what: what.to_owned(), limit: PATIENCE }
}

async fn real(folder: &Path, args: &BenchArgs, stop: &CancellationToken) -> Result<Measured, ServiceError> {
    let mut cluster = Cluster::start(folder).await?;
    let measured = tokio::select! {
        measured = real_on(&mut cluster, folder, args) => measured,
        () = stop.cancelled() => Err(BenchError::Stopped.into()),
    };
    cluster.end().await;
    measured
}

async fn real_on(cluster: &mut Cluster, folder: &Path, args: &BenchArgs) -> Result<Measured, ServiceError> {
    let ports = crate::host::ports(&executor::process::HOST_PORTS) / REAL_CELLS;
    let total = Resources { memory_mb: 4_096, disk_mb: 4_096, containers: 2 * REAL, ports };
    cluster.add_cells(REAL_CELLS, total, &Kind::Process(folder.join("cells"), Isolate::Never)).await?;
    let program = std::env::current_exe().map_err(ServiceError::Program)?;
    let program = program.to_string_lossy();
    let lrp = |version: u32| {
        process(json!({
            "process_guid": "web", "domain": "bench", "instances": REAL, "memory_mb": 16, "disk_mb": 16,
            "ports": [8080], "env": {"VERSION": version.to_string(), DRAIN_MS: args.drain.to_string()},
            "action": {"run": {"path": program, "args": ["example-server"]}},
            "monitor": {"run": {"path": program, "args": ["example-server", "check"]}},
            "start_timeout_ms": 30_000, "update": {"parallelism": 1},
        }))
    };
    let load = (Arc::new(Load::new(args.rate)), Duration::from_millis(args.lag.into()));
    replace(&cluster.client, lrp(1)?, lrp(2)?, Some(load)).await.map_err(ServiceError::from)
}

async fn in_memory(
    folder: &Path,
    args: &BenchArgs,
    stop: &CancellationToken,
) -> Result<Measured, ServiceError> {
    let mut cluster = Cluster::start(folder).await?;
    let measured = tokio::select! {
        measured = in_memory_on(&mut cluster, args) => measured,
        () = stop.cancelled() => Err(BenchError::Stopped.into()),
    };
    cluster.end().await;
    measured
}

async fn in_memory_on(cluster: &mut Cluster, args: &BenchArgs) -> Result<Measured, ServiceError> {
    let (instances, at_once) = IN_MEMORY;
    let each = instances.div_ceil(args.cells) * 2 + 50;
    let mb = u64::from(each) * 64;
    let total = Resources { memory_mb: mb, disk_mb: mb, containers: each, ports: each };
    cluster.add_cells(args.cells, total, &Kind::Scripted).await?;
    let lrp = |version: u32| {
        process(json!({
            "process_guid": "many", "domain": "bench", "instances": instances, "memory_mb": 32, "disk_mb": 32,
            "ports": [8080], "env": {"VERSION": version.to_string()}, "action": {"run": {"path": "scripted"}},
            "update": {"parallelism": at_once},
        }))
    };
    replace(&cluster.client, lrp(1)?, lrp(2)?, None).await.map_err(ServiceError::from)
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

/// Desires a process, waits until it runs, and then until every instance of it runs what it is to run afterwards.
async fn replace(
    client: &Client,
    first: DesiredLrp,
    then: DesiredLrp,
    load: Option<(Arc<Load>, Duration)>,
) -> Result<Measured, BenchError> {
    let guid: ProcessGuid = first.process_guid.clone();
    let instances = first.instances;
    let desired = client.desire_lrp(first).await?;
    client.wait_for_lrp(&guid, desired.position, PATIENCE).await?;
    let (load, lag) = load.map_or((None, Duration::ZERO), |(load, lag)| (Some(load), lag));
    let mut router = Router::start(client, guid, load, lag).await?;
    router.go_on(AROUND).await?;
    let began = Instant::now();
    client.replace_lrp(then).await?;
    tokio::time::timeout(PATIENCE, router.until_replaced()).await.map_err(|_| late("the update ends"))??;
    let took = began.elapsed();
    router.go_on(AROUND).await?;
    let (timeline, requests) = router.end().await;
    Ok(Measured { instances, took, timeline, requests })
}
