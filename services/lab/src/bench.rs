//! `muster-lab bench`: measures the whole system with in-memory containers.
//!
//! All figures come from a follower of the log. The time of an event is the time of its delivery to this
//! follower.

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
use host::local::{ContainerKind, Local, LocalConfig, RoleBus};
use host::serve::{Nats, parse_replicas};
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use journal::{Journal, Sqlite, StreamSettings};
use schemas::bus::Inbox;
use schemas::limits;
use schemas::names::{BadName, CellId, ClientName, Domain, ServiceId, Zone};
use schemas::resources::Resources;
use schemas::subject::{DEFAULT_SHARDS, MAX_SHARDS};
use text::words::number;
use tokio_util::sync::CancellationToken;

use cpu::CpuTime;
pub(crate) use error::BenchError;
use figures::{Figures, Step};
use load::{Annotator, Load};
use waits::LatencyProbe;
use watch::LogWatcher;

/// Default numbers of commands in flight.
const DEFAULT_IN_FLIGHT: [u32; 5] = [1, 8, 32, 128, 512];

/// Benchmark the whole system: real services, a real journal, containers in memory
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchArgs {
    /// Number of cells
    #[arg(long, default_value_t = 100, value_parser = number(2..=10_000_u32))]
    pub(crate) cells: u32,
    /// Processes desired for each number of commands in flight
    #[arg(long, default_value_t = 2_000, value_parser = number(0..=1_000_000_u32))]
    pub(crate) lrps: u32,
    /// Instances of each process
    #[arg(long, default_value_t = 1, value_parser = number(1..=10_000_u32))]
    pub(crate) instances: u32,
    /// Tasks desired for each number of commands in flight
    #[arg(long, default_value_t = 2_000, value_parser = number(0..=1_000_000_u32))]
    pub(crate) tasks: u32,
    /// Processes desired one at a time, and then crashed one at a time
    #[arg(long, default_value_t = 100, value_parser = number(0..=1_000_000_u32))]
    pub(crate) singles: u32,
    /// Also kill a cell and wait until its instances run elsewhere (about 20 s)
    #[arg(long)]
    pub(crate) cell_loss: bool,
    /// Also scale each process up by a tenth, list all instances page by page, and scale down again
    #[arg(long)]
    pub(crate) scale: bool,
    /// Instead, flood a cluster of separate processes from one client and measure the latency of another
    /// client
    #[arg(long)]
    pub(crate) flood: bool,
    /// Instead, replace 20 real web servers one at a time under load, and then 1,000 instances in memory.
    /// Exits with status 1 if a request failed
    #[arg(long, conflicts_with = "flood")]
    pub(crate) rolling: bool,
    /// With --rolling: requests per second to each web server
    #[arg(long, default_value_t = 20, value_parser = number(1..=1_000_u32))]
    pub(crate) rate: u32,
    /// With --rolling: time that a web server keeps answering after it is asked to stop, in milliseconds
    #[arg(long, default_value_t = 20, value_parser = number(0..=60_000_u32))]
    pub(crate) drain: u32,
    /// With --rolling: extra delay until the router learns that an instance is stopping, in milliseconds
    #[arg(long, default_value_t = 0, value_parser = number(0..=60_000_u32))]
    pub(crate) lag: u32,
    /// Commands in flight, over all clients: processes and tasks are measured with each of these numbers in
    /// turn
    #[arg(long, value_delimiter = ',', value_name = "N", default_values_t = DEFAULT_IN_FLIGHT, value_parser = number(1..=4_096_u32))]
    pub(crate) waiting: Vec<u32>,
    /// Number of shards of the log
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SHARDS, value_parser = number(1..=MAX_SHARDS))]
    pub(crate) shards: u16,
    /// NATS servers that must store every entry: 1, 3 or 5; more than 1 requires --nats with that many
    /// servers
    #[arg(long, default_value_t = 1, value_parser = parse_replicas)]
    pub(crate) replicas: usize,
    /// Monitoring addresses of the NATS servers, separated by commas: used to check that they sync every
    /// write
    #[arg(long, value_delimiter = ',', value_name = "URL")]
    pub(crate) monitoring: Vec<String>,
    /// Process ids of NATS servers on this machine, separated by commas: their processor time is measured as
    /// well
    #[arg(long, value_delimiter = ',', value_name = "PID")]
    pub(crate) server_pid: Vec<u32>,
    /// Print the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Result of a benchmark.
pub(crate) struct Outcome {
    /// Figures, as a table or JSON.
    pub(crate) text: String,
    /// Failure that the benchmark measured, such as failed requests. `None` if there was none.
    pub(crate) failure: Option<BenchError>,
}

/// Runs the benchmark and returns its figures.
///
/// # Errors
/// Returns an error if the cluster can't be started or an expected event does not occur in time.
pub(crate) async fn run(
    nats: Option<Nats>,
    args: BenchArgs,
    stop: CancellationToken,
) -> Result<Outcome, BenchError> {
    host::fingerprint::raise_open_file_limit();
    if args.flood {
        let text = Box::pin(flood::run(nats, args.json, stop)).await?;
        return Ok(Outcome { text, failure: None });
    }
    if args.rolling {
        return Box::pin(rolling::run(nats, &args, stop)).await;
    }
    let folder = TempFolder::new()?;
    let place = Backend::open(nats, &folder.0, &args).await?;
    let mut local = place.start(&args).await?;
    let load = Load::new(place.bus(&client_inbox()?).await?);
    let mut watch = LogWatcher::start(place.journal.clone());
    let figures = tokio::select! {
        figures = measure(&args, &mut local, &load, &mut watch, &place) => figures,
        () = stop.cancelled() => Err(BenchError::Stopped),
    };
    local.end().await;
    let mut figures = figures?;
    figures.record_limit(&limit::measure(&place.journal, figures.entry_bytes()).await?);
    Ok(Outcome { text: if args.json { figures.json() } else { figures.table() }, failure: None })
}

async fn measure(
    args: &BenchArgs,
    local: &mut Local,
    load: &Load,
    watch: &mut LogWatcher,
    place: &Backend,
) -> Result<Figures, BenchError> {
    let bar = progress_bar();
    let mut figures = Figures::new(args, &place.name);
    bar.set_message("waiting for the cells");
    watch.wait_for_cells(args.cells).await?;
    load.lift_quotas().await?;

    bar.set_message("one process at a time");
    for number in 0..args.singles {
        let guid = format!("single{number}");
        let asked = Instant::now();
        load.desire(&guid, 1).await?;
        let at = watch.wait_until_running(&guid, 0).await?;
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
        let at = watch.wait_until_replaced(&guid, 0, instance).await?;
        figures.crash.push(at.duration_since(crashed));
    }

    let annotator = Annotator::start(load.bus(), load::REQUEST_TIMEOUT).await?;
    for waiting in &args.waiting {
        let message = format!("{} processes of {} instances, {waiting} in flight", args.lrps, args.instances);
        bar.set_message(message);
        let step = measure_step(args, &load.with_limit(*waiting), watch, &annotator).await?;
        figures.steps.push(step);
    }

    let waits = LatencyProbe::begin(annotator);
    if args.scale {
        bar.set_message("scaling up by a tenth, listing all instances, scaling down");
        scale(args, load, watch, &mut figures).await?;
    }

    if args.cell_loss {
        bar.set_message("losing a cell");
        let lost =
            local.cells.first().cloned().ok_or_else(|| BenchError::NoHolder("the cells".to_owned()))?;
        let instances = watch.on_cell(&lost.id);
        let killed = Instant::now();
        lost.stop.cancel();
        for (guid, index, instance) in instances {
            let at = watch.wait_until_replaced(&guid, index, instance).await?;
            figures.cell_loss.push(at.duration_since(killed));
        }
    }

    figures.command = waits.end().await?;

    bar.set_message("auctions");
    figures.measure_placements(args.cells);
    figures.record_memory();
    bar.finish_and_clear();
    Ok(figures)
}

/// Desires processes, waits for them, and then desires tasks, with the given number of commands in flight
/// (sent, but not yet answered). At the same time, measures a client with little load.
async fn measure_step(
    args: &BenchArgs,
    load: &Load,
    watch: &LogWatcher,
    annotator: &Annotator,
) -> Result<Step, BenchError> {
    let mut step = Step::new(load.in_flight());
    let waits = LatencyProbe::begin(annotator.clone());
    let (before, spent) = (watch.counts(), CpuTime::read(&args.server_pid));
    let started = Instant::now();
    let wanted = u64::from(args.lrps) * u64::from(args.instances);
    let (asked, last) = tokio::join!(
        load.desire_many(args.lrps, args.instances),
        watch.wait_for_starts(before.started + wanted)
    );
    asked?;
    if let Some(last) = last? {
        let spent = CpuTime::read(&args.server_pid).since(spent);
        step.record_lrps(wanted, last.duration_since(started), (before, watch.counts()), spent);
    }
    let (before, spent) = (watch.counts(), CpuTime::read(&args.server_pid));
    let started = Instant::now();
    let wanted = u64::from(args.tasks);
    let (asked, last) =
        tokio::join!(load.desire_tasks(args.tasks), watch.wait_for_completions(before.completed + wanted));
    asked?;
    if let Some(last) = last? {
        let spent = CpuTime::read(&args.server_pid).since(spent);
        step.tasks(wanted, last.duration_since(started), spent);
    }
    step.command = waits.end().await?;
    Ok(step)
}

/// Scales each process up by a tenth, lists all instances, and scales down again.
async fn scale(
    args: &BenchArgs,
    load: &Load,
    watch: &LogWatcher,
    figures: &mut Figures,
) -> Result<(), BenchError> {
    let more = (args.instances / 10).max(1).min(limits::INSTANCES - args.instances);
    let (changed, before) = (u64::from(args.lrps) * u64::from(more), watch.counts());
    let began = Instant::now();
    load.scale_many(args.lrps, args.instances + more).await?;
    watch.wait_for_starts(before.started + changed).await?;
    figures.record_rate("scaled_up_per_second", changed, began.elapsed());
    let began = Instant::now();
    let listed = load.list_instances().await?;
    figures.record_rate("listed_per_second", listed, began.elapsed());
    let began = Instant::now();
    load.scale_many(args.lrps, args.instances).await?;
    watch.wait_for_removals(before.removed + changed).await?;
    figures.record_rate("scaled_down_per_second", changed, began.elapsed());
    Ok(())
}

fn progress_bar() -> ProgressBar {
    // The bar is also cleared if an error drops it, so that the error message has a line of its own.
    let bar = ProgressBar::new_spinner().with_finish(ProgressFinish::AndClear);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed_precise} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Journal and bus of the measured cluster.
struct Backend {
    journal: Journal,
    nats: Option<Nats>,
    in_process: bus::InProcess,
    name: String,
}

impl Backend {
    async fn open(nats: Option<Nats>, folder: &Path, args: &BenchArgs) -> Result<Self, BenchError> {
        let in_process = bus::InProcess::new();
        match nats {
            None if args.replicas > 1 => Err(BenchError::NoServers(args.replicas)),
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
                    return Err(BenchError::NotEmpty);
                }
                let name = match replicas {
                    1 => format!("JetStream, {}", journal.durability()),
                    several => format!("JetStream, {several} replicas, {}", journal.durability()),
                };
                Ok(Self { journal, nats: Some(nats), in_process, name })
            }
        }
    }

    async fn bus(&self, inbox: &Inbox) -> Result<Bus, BenchError> {
        match &self.nats {
            None => Ok(self.in_process.bus(inbox)?),
            Some(nats) => Ok(nats.bus(&format!("bench {inbox}"), inbox).await?),
        }
    }

    async fn start(&self, args: &BenchArgs) -> Result<Local, BenchError> {
        let id = bench_id()?;
        let bbs = self.bus(&Inbox::Bbs(id.clone())).await?;
        let auctioneer = self.bus(&Inbox::Auctioneer(id)).await?;
        let own = LocalConfig { shards: Some(args.shards), ..LocalConfig::default() };
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
            local.add_cell(id, (zone, BTreeMap::new()), total, &ContainerKind::Scripted, bus).await?;
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

/// Temporary folder that is removed when the benchmark ends.
struct TempFolder(PathBuf);

impl TempFolder {
    fn new() -> Result<Self, BenchError> {
        let path = std::env::temp_dir().join(format!("muster-bench-{}", std::process::id()));
        match std::fs::create_dir_all(&path) {
            Ok(()) => Ok(Self(path)),
            Err(source) => Err(BenchError::Folder { path, source }),
        }
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, "can't remove the folder of the benchmark");
        }
    }
}
