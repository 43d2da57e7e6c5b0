//! `muster bench`: the whole system with containers in memory, measured.
//!
//! Every figure is taken from the log as a follower sees it: a thing has happened when its event is delivered.

mod cpu;
mod error;
mod figures;
mod flood;
mod limit;
mod load;
mod rolling;
mod waits;
mod watch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bus::Bus;
use clap::Args;
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use journal::Journal;
use journal::{Sqlite, StreamSettings};
use schemas::bus::Inbox;
use schemas::limits;
use schemas::names::{BadName, CellId, ClientName, Domain, ServiceId, Zone};
use schemas::resources::Resources;
use schemas::subject::{DEFAULT_SHARDS, MAX_SHARDS};
use tokio_util::sync::CancellationToken;

use crate::cli::words::number;
use crate::error::ServiceError;
use crate::local::{Kind, Local, Own, Roles};
use crate::serve::{Nats, parse_replicas};
use cpu::Spent;
pub(crate) use error::BenchError;
use figures::{Figures, Step};
use load::{Annotator, Load};
use waits::Waits;
use watch::Watch;

/// Numbers of commands in flight that are measured by default.
const WAITING: [u32; 5] = [1, 8, 32, 128, 512];

/// Measure the whole system: real services, a real journal, containers in memory
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchArgs {
    /// Cells
    #[arg(long, default_value_t = 100, value_parser = number(2..=10_000_u32))]
    pub(crate) cells: u32,
    /// Processes that are desired for each number of commands in flight
    #[arg(long, default_value_t = 2_000, value_parser = number(0..=1_000_000_u32))]
    pub(crate) lrps: u32,
    /// Instances of each of them
    #[arg(long, default_value_t = 1, value_parser = number(1..=10_000_u32))]
    pub(crate) instances: u32,
    /// Tasks that are desired for each number of commands in flight
    #[arg(long, default_value_t = 2_000, value_parser = number(0..=1_000_000_u32))]
    pub(crate) tasks: u32,
    /// Processes that are desired one at a time, and then crashed one at a time
    #[arg(long, default_value_t = 100, value_parser = number(0..=1_000_000_u32))]
    pub(crate) singles: u32,
    /// Also kill a cell and wait until its instances run elsewhere, some 20 s
    #[arg(long)]
    pub(crate) cell_loss: bool,
    /// Also give each of the processes a tenth more instances, list all of them page by page, and take the tenth away again
    #[arg(long)]
    pub(crate) scale: bool,
    /// Instead, flood a cluster of separate processes by one client and measure how long another one waits
    #[arg(long)]
    pub(crate) flood: bool,
    /// Instead, replace 20 real web servers one at a time while requests go to all of them, and then 1,000 instances in
    /// memory. Ends with 1 if a request failed
    #[arg(long, conflicts_with = "flood")]
    pub(crate) rolling: bool,
    /// Of --rolling: requests a second to each web server
    #[arg(long, default_value_t = 20, value_parser = number(1..=1_000_u32))]
    pub(crate) rate: u32,
    /// Of --rolling: how long a web server goes on answering once it is asked to stop, in milliseconds
    #[arg(long, default_value_t = 20, value_parser = number(0..=60_000_u32))]
    pub(crate) drain: u32,
    /// Of --rolling: how much later than it could the router learns that an instance stops, in milliseconds
    #[arg(long, default_value_t = 0, value_parser = number(0..=60_000_u32))]
    pub(crate) lag: u32,
    /// Commands in flight, of all clients together: processes and tasks are desired with each of these numbers in turn
    #[arg(long, value_delimiter = ',', value_name = "N", default_values_t = WAITING, value_parser = number(1..=4_096_u32))]
    pub(crate) waiting: Vec<u32>,
    /// Shards of the log
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SHARDS, value_parser = number(1..=MAX_SHARDS))]
    pub(crate) shards: u16,
    /// NATS servers that must hold every entry: 1, 3 or 5; more than 1 needs --nats with that many servers
    #[arg(long, default_value_t = 1, value_parser = parse_replicas)]
    pub(crate) replicas: usize,
    /// Monitoring addresses of the NATS servers, separated by commas: used to check that they sync every write
    #[arg(long, value_delimiter = ',', value_name = "URL")]
    pub(crate) monitoring: Vec<String>,
    /// Processes of the NATS servers, separated by commas, if they run here: their processor time is measured, too
    #[arg(long, value_delimiter = ',', value_name = "PID")]
    pub(crate) server_pid: Vec<u32>,
    /// Print the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What a benchmark found out.
pub(crate) struct Outcome {
    /// Its figures.
    pub(crate) text: String,
    /// What ought not to have happened.
    pub(crate) failure: Option<BenchError>,
}

/// Runs the benchmark and says its figures.
///
/// # Errors
/// Why a cluster can't be had, or what did not happen in time.
pub(crate) async fn run(
    nats: Option<Nats>,
    args: BenchArgs,
    stop: CancellationToken,
) -> Result<Outcome, ServiceError> {
    crate::host::allow_many_files();
    if args.flood {
        let text = Box::pin(flood::run(nats, args.json, stop)).await?;
        return Ok(Outcome { text, failure: None });
    }
    if args.rolling {
        return Box::pin(rolling::run(nats, &args, stop)).await;
    }
    let folder = Scratch::new()?;
    let place = Place::open(nats, &folder.0, &args).await?;
    let mut local = place.start(&args).await?;
    let load = Load::new(place.bus(&client_inbox()?).await?);
    let mut watch = Watch::start(place.journal.clone());
    let figures = tokio::select! {
        figures = measure(&args, &mut local, &load, &mut watch, &place) => figures,
        () = stop.cancelled() => Err(BenchError::Stopped),
    };
    local.end().await;
    let mut figures = figures?;
    figures.limit(&limit::measure(&place.journal, figures.entry_bytes()).await?);
    Ok(Outcome { text: if args.json { figures.json() } else { figures.table() }, failure: None })
}

async fn measure(
    args: &BenchArgs,
    local: &mut Local,
    load: &Load,
    watch: &mut Watch,
    place: &Place,
) -> Result<Figures, BenchError> {
    let bar = bar();
    let mut figures = Figures::new(args, &place.name);
    bar.set_message("waiting for the cells");
    watch.cells_present(args.cells).await?;
    load.lift_quotas().await?;

    bar.set_message("one process at a time");
    for number in 0..args.singles {
        let guid = format!("single{number}");
        let asked = Instant::now();
        load.desire(&guid, 1).await?;
        let at = watch.running(&guid, 0).await?;
        figures.one_lrp.push(at.duration_since(asked));
    }

    bar.set_message("crashes, one at a time");
    for number in 0..args.singles {
        let guid = format!("single{number}");
        let unknown = || BenchError::NoHolder(format!("{guid}/0"));
        let (cell, instance) = watch.holder(&guid, 0).ok_or_else(unknown)?;
        let cell = local.cells.iter().find(|known| known.id == cell).ok_or_else(unknown)?;
        let crashed = Instant::now();
        cell.containers.crash(instance, "benchmark");
        let at = watch.running_as_another(&guid, 0, instance).await?;
        figures.crash.push(at.duration_since(crashed));
    }

    let annotator = Annotator::start(load.bus(), load::PATIENCE).await?;
    for waiting in &args.waiting {
        let message = format!("{} processes of {} instances, {waiting} in flight", args.lrps, args.instances);
        bar.set_message(message);
        let step = measure_step(args, &load.with(*waiting), watch, &annotator).await?;
        figures.steps.push(step);
    }

    let waits = Waits::begin(annotator);
    if args.scale {
        bar.set_message("a tenth more instances, all of them listed, a tenth less");
        scale(args, load, watch, &mut figures).await?;
    }

    if args.cell_loss {
        bar.set_message("a cell is lost");
        let lost = local.cells.first().cloned().ok_or_else(|| BenchError::NoHolder("anything".to_owned()))?;
        let instances = watch.on_cell(&lost.id);
        let killed = Instant::now();
        lost.stop.cancel();
        for (guid, index, instance) in instances {
            let at = watch.running_as_another(&guid, index, instance).await?;
            figures.cell_loss.push(at.duration_since(killed));
        }
    }

    figures.command = waits.end().await?;

    bar.set_message("auctions");
    figures.placements(args.cells);
    figures.memory();
    bar.finish_and_clear();
    Ok(figures)
}

/// Desires processes and then tasks, with so many commands in flight, beside a client that asks for little.
async fn measure_step(
    args: &BenchArgs,
    load: &Load,
    watch: &Watch,
    annotator: &Annotator,
) -> Result<Step, BenchError> {
    let mut step = Step::new(load.waiting());
    let waits = Waits::begin(annotator.clone());
    let (before, spent) = (watch.counts(), Spent::read(&args.server_pid));
    let started = Instant::now();
    let wanted = u64::from(args.lrps) * u64::from(args.instances);
    let (asked, last) =
        tokio::join!(load.desire_many(args.lrps, args.instances), watch.started(before.started + wanted));
    asked?;
    if let Some(last) = last? {
        let spent = Spent::read(&args.server_pid).since(spent);
        step.lrps(wanted, last.duration_since(started), (before, watch.counts()), spent);
    }
    let (before, spent) = (watch.counts(), Spent::read(&args.server_pid));
    let started = Instant::now();
    let wanted = u64::from(args.tasks);
    let (asked, last) = tokio::join!(load.tasks(args.tasks), watch.completed(before.completed + wanted));
    asked?;
    if let Some(last) = last? {
        let spent = Spent::read(&args.server_pid).since(spent);
        step.tasks(wanted, last.duration_since(started), spent);
    }
    step.command = waits.end().await?;
    Ok(step)
}

/// Gives each of many processes a tenth more instances, lists them, and takes the tenth away.
async fn scale(
    args: &BenchArgs,
    load: &Load,
    watch: &Watch,
    figures: &mut Figures,
) -> Result<(), BenchError> {
    let more = (args.instances / 10).max(1).min(limits::INSTANCES - args.instances);
    let (changed, before) = (u64::from(args.lrps) * u64::from(more), watch.counts());
    let began = Instant::now();
    load.scale_many(args.lrps, args.instances + more).await?;
    watch.started(before.started + changed).await?;
    figures.rate("scaled_up_per_second", changed, began.elapsed());
    let began = Instant::now();
    let listed = load.list_instances().await?;
    figures.rate("listed_per_second", listed, began.elapsed());
    let began = Instant::now();
    load.scale_many(args.lrps, args.instances).await?;
    watch.removed(before.removed + changed).await?;
    figures.rate("scaled_down_per_second", changed, began.elapsed());
    Ok(())
}

fn bar() -> ProgressBar {
    // Also when it is dropped by a failure: that has the line for itself.
    let bar = ProgressBar::new_spinner().with_finish(ProgressFinish::AndClear);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed_precise} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Where the cluster is.
struct Place {
    journal: Journal,
    nats: Option<Nats>,
    in_process: bus::InProcess,
    name: String,
}

impl Place {
    async fn open(nats: Option<Nats>, folder: &Path, args: &BenchArgs) -> Result<Self, ServiceError> {
        let in_process = bus::InProcess::new();
        match nats {
            None if args.replicas > 1 => Err(BenchError::NoServers(args.replicas).into()),
            None => {
                let sqlite = Sqlite::open(folder).await?;
                let name = "embedded journal, synchronous full".to_owned();
                Ok(Self { journal: Journal::Sqlite(sqlite), nats, in_process, name })
            }
            Some(nats) => {
                let BenchArgs { replicas, monitoring, .. } = args;
                let settings = StreamSettings {
                    replicas: *replicas,
                    monitoring: monitoring.clone(),
                    ..StreamSettings::default()
                };
                let journal = nats.journal("bench writer", &Inbox::BbsWriter(bench_id()?), &settings).await?;
                let end = journal.end().await?;
                if end.0 > 0 {
                    return Err(BenchError::NotEmpty.into());
                }
                let name = match replicas {
                    1 => format!("JetStream, {}", journal.durability()),
                    several => format!("JetStream, {several} replicas, {}", journal.durability()),
                };
                Ok(Self { journal, nats: Some(nats), in_process, name })
            }
        }
    }

    async fn bus(&self, inbox: &Inbox) -> Result<Bus, ServiceError> {
        match &self.nats {
            None => Ok(self.in_process.bus(inbox)?),
            Some(nats) => nats.bus(&format!("bench {inbox}"), inbox).await,
        }
    }

    async fn start(&self, args: &BenchArgs) -> Result<Local, ServiceError> {
        let id = bench_id()?;
        let bbs = self.bus(&Inbox::Bbs(id.clone())).await?;
        let auctioneer = self.bus(&Inbox::Auctioneer(id)).await?;
        let own = Own { shards: Some(args.shards), ..Own::default() };
        let mut local = Local::start(&self.journal, bbs, auctioneer, Duration::from_secs(60), own)?;
        let steps = args.waiting.len() as u64;
        let work = steps * (u64::from(args.lrps) * u64::from(args.instances) + u64::from(args.tasks))
            + u64::from(args.singles);
        let each = work.div_ceil(u64::from(args.cells)) * 2 + 50;
        let total = Resources {
            memory_mb: each * 64,
            disk_mb: each * 64,
            containers: u32::try_from(each).unwrap_or(u32::MAX),
            ports: u32::try_from(each).unwrap_or(u32::MAX),
        };
        for number in 0..args.cells {
            let id = CellId::new(&format!("c{number}"))?;
            let zone = Zone::new(&format!("z{}", number % 3))?;
            let bus = self.bus(&Inbox::Rep(id.clone())).await?;
            local.add_cell(id, (zone, BTreeMap::new()), total, &Kind::Scripted, bus).await?;
        }
        Ok(local)
    }
}

fn bench_id() -> Result<ServiceId, BadName> {
    ServiceId::new("bench")
}

fn client_inbox() -> Result<Inbox, BadName> {
    Ok(Inbox::Client(Domain::new("bench")?, ClientName::new("bench")?))
}

/// A folder that goes with the benchmark.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, BenchError> {
        let path = std::env::temp_dir().join(format!("muster-bench-{}", std::process::id()));
        match std::fs::create_dir_all(&path) {
            Ok(()) => Ok(Self(path)),
            Err(source) => Err(BenchError::Folder { path, source }),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, "the benchmark's folder is left");
        }
    }
}
