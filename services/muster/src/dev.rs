//! `muster dev`: a cluster on this machine, without other software.
//!
//! One process runs a BBS, an auctioneer and cells with real containers, on the embedded journal. Other
//! terminals reach the cluster through the Unix socket in its data folder. Ctrl-C stops the whole cluster.

mod replay;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, InProcess, SocketServer};
use clap::Args;
use cli::{diff, watch};
use cli_base::failure::Failure;
use cli_base::file;
use cli_base::output::{Output, note};
use client::{Client, default_domain};
use host::error::ServiceError;
use host::local::{ContainerKind, Local, LocalConfig, RoleBus, end_leftovers};
use host::monitoring::MetricsRegistry;
use host::monitoring::projector::ProjectorMetrics;
use host::past::Cache;
use host::run_error::RunError;
use host::serve::{self, GivenAttributes, IsolationArg};
use host::telemetry_args::{MetricsArgs, TracesArgs};
use journal::{Journal, Sqlite};
use runtime::exit::Exit;
use runtime::folder::Folder;
use rustix::process::geteuid;
use schemas::bus::Inbox;
use schemas::definition::DesiredLrp;
use schemas::message::Ack;
use schemas::names::{CellId, ClientName, ServiceId, TaskGuid, Zone};
use schemas::query::CellState;
use schemas::resources::Resources;
use schemas::spec::Item;
use schemas::{Code, Position};
use secrets::{Key, Keys, Ring};
use text::chain;
use text::words::{InvalidValue, count, number};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Maximum number of containers on a cell of a local cluster.
const CONTAINERS_PER_CELL: u32 = 100;

/// Folder of the cells, in the data folder.
const CELLS_FOLDER: &str = "cells";
/// Folder of the snapshots of past states, in the data folder.
const SNAPSHOTS_FOLDER: &str = "past";

/// Polling interval and timeout while the cluster starts.
const READY_POLL: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(30));
/// Maximum time to wait for all cells before the items of the file are desired (created as processes or
/// tasks).
const CELLS_TIMEOUT: Duration = Duration::from_secs(5);

/// Run a whole cluster on this machine: cells with real processes, and the work described in a file
#[derive(Clone, Debug, Args)]
pub(crate) struct DevArgs {
    /// File with the work to desire at startup, TOML or JSON
    pub(crate) file: Option<PathBuf>,
    /// Number of cells, in two zones
    #[arg(long, default_value_t = 3, value_parser = number(1..=64_u32), allow_negative_numbers = true)]
    pub(crate) cells: u32,
    /// Attribute of the cells, for placement constraints, such as rack=r1, or c1:rack=r1 for one cell; may be
    /// repeated
    #[arg(long = "attribute", value_name = "[CELL:]NAME=VALUE", value_parser = parse_attributes)]
    pub(crate) attributes: Vec<CellAttributes>,
    /// Isolation of containers from this host and from each other, as in a cluster
    #[arg(long, value_enum, default_value_t = IsolationArg::None, env = "MUSTER_ISOLATION")]
    pub(crate) isolation: IsolationArg,
    /// Run the tasks of the file even if they already ran at an earlier start
    #[arg(long, requires = "file")]
    pub(crate) rerun: bool,
    /// Show events line by line, even on a terminal
    #[arg(long)]
    pub(crate) plain: bool,
    /// Show the content of this file, which muster export wrote, instead of running a cluster of its own
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "attributes"])]
    pub(crate) from_export: Option<PathBuf>,
    /// With --from-export: decide, place and run nothing
    #[arg(long, requires = "from_export")]
    pub(crate) paused: bool,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    #[command(flatten)]
    pub(crate) traces: TracesArgs,
}

/// Attributes of one cell, or of all cells if the id is `None`.
type CellAttributes = (Option<CellId>, GivenAttributes);

fn parse_attributes(text: &str) -> Result<CellAttributes, InvalidValue> {
    let (cell, rest) = match text.split_once(':') {
        // The value of an attribute may contain a colon.
        Some((cell, rest)) if !cell.contains('=') => (Some(cell), rest),
        Some(_) | None => (None, text),
    };
    let wrong = || InvalidValue::new("attribute", text, "[CELL:]NAME=VALUE, such as rack=r1 or c1:rack=r1");
    let cell = cell.map(CellId::new).transpose().map_err(|_| wrong())?;
    Ok((cell, serve::parse_attributes(rest).map_err(|_| wrong())?))
}

/// Data folder of a local cluster, and its lifetime.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    /// A folder that is kept for the next start.
    Kept(PathBuf),
    /// A folder that is cleared when the cluster stops.
    Scratch(PathBuf),
}

impl Data {
    fn open(&self) -> Result<Folder, Failure> {
        let owned = match self {
            Self::Kept(path) => Folder::own(path),
            Self::Scratch(path) => Folder::scratch(path),
        };
        owned.map_err(|error| failed(chain(&error)))
    }
}

fn failed(why: impl Into<String>) -> Failure {
    Failure::new(Exit::Failed, "Failed", why)
}

/// Runs a local cluster until it is stopped. The socket is in the data folder unless `socket` names another
/// path.
///
/// # Errors
/// The cluster cannot start, or fails.
pub(crate) async fn run(
    args: DevArgs,
    data: Data,
    socket: Option<PathBuf>,
    output: Output,
    stop: CancellationToken,
) -> Result<(), Failure> {
    if let Some(file) = &args.from_export {
        if !args.paused {
            let why = "an export can only be shown read-only: the cells of its cluster do not exist here, \
                       so a leader would declare them lost";
            return Err(Failure::usage(why).advise("show the export: --paused"));
        }
        let watching = args.metrics.open(None).await?;
        return Box::pin(replay::run(file, data, socket, watching, stop)).await;
    }
    // An invalid file is reported before anything is started.
    let items = match &args.file {
        Some(path) => file::read_items(path, Some(&default_domain()))?,
        None => vec![],
    };
    let watching = args.metrics.open(None).await?;
    host::fingerprint::raise_open_file_limit();
    let folder = data.open()?;
    let cells = folder.path().join(CELLS_FOLDER);
    if matches!(data, Data::Scratch(_)) {
        end_leftovers(&cells).await?;
        clear(&folder)?;
    }
    let journal = Sqlite::open_in(folder.clone()).await.map_err(|error| failed(chain(&error)))?;
    let journal = Journal::Sqlite(journal);
    let bus = InProcess::new();
    let socket = serve(&bus, socket.unwrap_or_else(|| folder.path().join(client::target::SOCKET_FILE)))?;
    let client = client(&bus)?;
    let heading = startup_lines(args.cells, socket.path(), &cells);
    heading.iter().for_each(|line| note(line));
    if geteuid().is_root() && args.isolation == IsolationArg::None {
        note(
            "warning: containers run as root without isolation and can do anything on this host; \
             use --isolation full",
        );
    }
    let shown = Display { heading, file: args.file.clone(), rerun: args.rerun, live: !args.plain };
    let begin = journal.end().await.map_err(|error| failed(chain(&error)))?;
    let mut local = start(&journal, &bus, &folder, (&watching, &args.traces))?;
    let tables = TableProjector::start(&journal, &folder, &watching);
    // The cells start after the BBS. If a cell started earlier, it would announce itself to the BBS only
    // after the next announcement interval.
    let mut result = tokio::select! {
        () = stop.cancelled() => Ok(()),
        why = local.failed() => Err(why.into()),
        why = wait_until_ready(&client) => why,
    };
    if result.is_ok() && !stop.is_cancelled() {
        result = add_cells(&mut local, &bus, &cells, &args).await.map_err(Failure::from);
    }
    if result.is_ok() {
        result = tokio::select! {
            () = stop.cancelled() => Ok(()),
            why = local.failed() => Err(why.into()),
            why = wait_for_cells(&client, args.cells) => why,
        };
    }
    if result.is_ok() {
        result = tokio::select! {
            () = stop.cancelled() => Ok(()),
            why = local.failed() => Err(why.into()),
            why = show(&client, begin, items, output, shown) => why,
        };
    }
    note("stopping all containers");
    drop(socket);
    local.end().await;
    tables.end().await;
    journal.close().await;
    clear(&folder)?;
    result
}

/// Returns lines that show the socket and the location of logs.
fn startup_lines(cells: u32, socket: &Path, folder: &Path) -> Vec<String> {
    vec![
        format!("cluster: {}, socket {}", count(cells.into(), "cell"), socket.display()),
        format!("logs: muster logs ID, or {}/CELL/containers/ID/log", folder.display()),
    ]
}

fn clear(folder: &Folder) -> Result<(), Failure> {
    folder
        .clear()
        .map_err(|error| failed(format!("can't clear the data folder {}: {error}", folder.path().display())))
}

/// Projector of the cluster's tables, in a file of the data folder. Errors of the projector are logged and
/// stop no other part.
struct TableProjector {
    running: JoinHandle<()>,
    stop: CancellationToken,
}

impl TableProjector {
    fn start(journal: &Journal, folder: &Folder, watching: &MetricsRegistry) -> Self {
        let (journal, stop) = (journal.clone(), CancellationToken::new());
        let watch = ProjectorMetrics::register(watching, journal.clone(), Arc::default(), stop.clone());
        let (ends, file) = (stop.clone(), folder.path().join(projector::FILE_NAME));
        let private = folder.private_file(projector::FILE_NAME);
        let running = tokio::spawn(async move {
            if let Err(error) = private {
                tracing::warn!("tables are disabled: {}", chain(&error));
            } else if let Err(why) = run_projector(journal, &file, &watch, ends).await {
                tracing::warn!("the tables in {} are no longer updated: {}", file.display(), chain(&why));
            }
        });
        Self { running, stop }
    }

    async fn end(self) {
        self.stop.cancel();
        if let Err(error) = self.running.await {
            tracing::warn!(%error, "the tables may be out of date");
        }
    }
}

/// Keeps the tables up to date. Tables of another journal are replaced at once. Two kinds of tables stay
/// readable until the new tables are built: tables of another program version, and tables with entries that
/// were quarantined later.
async fn run_projector(
    journal: Journal,
    file: &Path,
    watch: &ProjectorMetrics,
    stop: CancellationToken,
) -> Result<(), RunError> {
    use projector::Error::{
        AheadOfJournal, OtherCluster, OtherHistory, OtherMetadata, OtherShape, QuarantinedLater,
    };
    let url = projector::Url::Sqlite(file.to_owned());
    let mut ended = host::projector::run(journal.clone(), url.clone(), watch, stop.clone()).await;
    if let Err(RunError::Projector(OtherShape | QuarantinedLater { .. })) = &ended {
        ended = host::projector::rebuild(&journal, &url, &stop).await;
        if ended.is_ok() {
            ended = host::projector::run(journal.clone(), url.clone(), watch, stop.clone()).await;
        }
    }
    match ended {
        Err(RunError::Projector(
            OtherMetadata { .. } | OtherCluster { .. } | OtherHistory { .. } | AheadOfJournal { .. },
        )) => {
            projector::remove(file)?;
            host::projector::run(journal, url, watch, stop).await
        }
        ended => ended,
    }
}

/// Returns the keys for secrets of a local cluster. Creates the key file in the data folder if there is none.
fn open_keys(folder: &Folder) -> Result<Keys, ServiceError> {
    let file = folder.path().join(secrets::KEY_FILE_NAME);
    if !file.exists() {
        let key = Key::new(clock::key().map_err(ServiceError::Randomness)?, clock::now());
        Ring::from_key(key).create(&file)?;
    }
    Ok(Keys::from_file(&file)?)
}

/// Starts a BBS and an auctioneer.
fn start(
    journal: &Journal,
    bus: &InProcess,
    folder: &Folder,
    (watching, traces): (&MetricsRegistry, &TracesArgs),
) -> Result<Local, ServiceError> {
    let service = ServiceId::new("local")?;
    let (bbs, auctioneer) = (bus.bus(&Inbox::Bbs(service.clone()))?, bus.bus(&Inbox::Auctioneer(service))?);
    let cache = Some(Cache::with_default_spacing(folder.path().join(SNAPSHOTS_FOLDER)));
    let traces = traces.otlp.clone();
    let own =
        LocalConfig { keys: open_keys(folder)?, cache, watching: watching.clone(), traces, shards: None };
    Local::start(journal, bbs, auctioneer, Duration::ZERO, own)
}

async fn add_cells(
    local: &mut Local,
    bus: &InProcess,
    folder: &Path,
    args: &DevArgs,
) -> Result<(), ServiceError> {
    let cells = args.cells;
    let host = host::fingerprint::resources(folder);
    let share = |whole: u64| (whole / u64::from(cells)).max(1);
    // The cells share one range of ports.
    let ports = host::fingerprint::port_count(&executor::process::DEFAULT_HOST_PORTS) / cells;
    let (memory_mb, disk_mb) = (share(host.memory_mb), share(host.disk_mb));
    let total = Resources { memory_mb, disk_mb, containers: CONTAINERS_PER_CELL, ports };
    for number in 1..=cells {
        let id = CellId::new(&format!("c{number}"))?;
        let zone = Zone::new(if number % 2 == 1 { "z1" } else { "z2" })?;
        let bus = bus.bus(&Inbox::Rep(id.clone()))?;
        let of_cell = args.attributes.iter().filter(|(cell, _)| cell.as_ref().is_none_or(|cell| *cell == id));
        let given = of_cell.flat_map(|(_, given)| given.iter().cloned()).collect();
        let kind =
            ContainerKind::Process(folder.to_owned(), args.isolation.isolate(executor::process::FIRST_ID));
        local.add_cell(id, (zone, given), total, &kind, bus).await?;
    }
    Ok(())
}

fn serve(bus: &InProcess, path: PathBuf) -> Result<SocketServer, Failure> {
    Bus::InProcess(bus.clone()).serve_socket(&path).map_err(|error| failed(chain(&error)))
}

fn client(bus: &InProcess) -> Result<Client, Failure> {
    let name = ClientName::new("dev").map_err(ServiceError::from)?;
    let bus = bus.bus(&Inbox::Client(default_domain(), name.clone())).map_err(ServiceError::from)?;
    Ok(Client::with_bus(bus, default_domain(), name)?)
}

/// Options of the display.
struct Display {
    heading: Vec<String>,
    file: Option<PathBuf>,
    /// `true` to run tasks of the file even if the log already contains them.
    rerun: bool,
    live: bool,
}

/// Creates the items of the file, and shows events until the user quits or an error occurs.
async fn show(
    client: &Client,
    begin: Position,
    items: Vec<Item>,
    output: Output,
    mut shown: Display,
) -> Result<(), Failure> {
    let file = shown.file.take().unwrap_or_default();
    for item in items {
        let told = desire(client, item, &file, shown.rerun).await?;
        told.iter().for_each(|line| note(line));
        shown.heading.extend(told);
    }
    watch::show(client, client.events(begin), None, output, shown.live.then_some(shown.heading)).await
}

/// Waits until the cluster answers, because the services of this process are still starting.
async fn wait_until_ready(client: &Client) -> Result<(), Failure> {
    let begin = Instant::now();
    let impatient = client.clone().patience(READY_POLL.0);
    loop {
        match impatient.cluster().await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_transient() && begin.elapsed() < READY_POLL.1 => sleep(READY_POLL.0).await,
            Err(error) => return Err(Failure::from(error).while_doing("start the cluster")),
        }
    }
}

/// Waits until all cells are present, so that the first cell does not get all the work. Gives up after a
/// timeout: a cell that cannot start logs the reason itself.
async fn wait_for_cells(client: &Client, cells: u32) -> Result<(), Failure> {
    let begin = Instant::now();
    loop {
        let rows =
            client.cells().await.map_err(|error| Failure::from(error).while_doing("list the cells"))?.rows;
        let present = rows.iter().filter(|row| row.state == CellState::Present).count();
        if present >= usize::try_from(cells).unwrap_or(usize::MAX) || begin.elapsed() >= CELLS_TIMEOUT {
            return Ok(());
        }
        sleep(READY_POLL.0).await;
    }
}

/// Creates the process or task that an item describes. Existing objects are left unchanged, so a second start
/// with the same file continues the running work. Returns lines that describe how an existing object differs
/// from the file.
async fn desire(client: &Client, item: Item, file: &Path, rerun: bool) -> Result<Vec<String>, Failure> {
    let (what, done) = match item {
        Item::Lrp(lrp) => {
            let done = client.in_domain(lrp.domain.clone()).desire_lrp((*lrp).clone()).await;
            if already_exists(&done) {
                return differences(client, &lrp, file).await;
            }
            (format!("process {}", lrp.process_guid), done)
        }
        Item::Task(task) => {
            let what = format!("task {}", task.task_guid);
            if !rerun && is_in_log(client, &task.task_guid).await? {
                return Ok(vec![format!(
                    "{what} ran at an earlier start and is not run again (see --rerun)"
                )]);
            }
            let done = client.in_domain(task.domain.clone()).desire_task(*task).await;
            if already_exists(&done) {
                return Ok(vec![format!("{what} already exists and was not changed")]);
            }
            (what, done)
        }
        Item::Periodic(periodic) => {
            let what = format!("periodic task {}", periodic.periodic_guid);
            let done = client.in_domain(periodic.domain.clone()).desire_periodic(*periodic).await;
            if already_exists(&done) {
                return Ok(vec![format!(
                    "{what} already exists and was not changed; to update it: muster apply {}",
                    file.display()
                )]);
            }
            (what, done)
        }
        Item::Parameterised(desired) => {
            let what = format!("parameterised task {}", desired.parameterised_guid);
            let done = client.in_domain(desired.domain.clone()).desire_parameterised(*desired).await;
            if already_exists(&done) {
                return Ok(vec![format!(
                    "{what} already exists and was not changed; to update it: muster apply {}",
                    file.display()
                )]);
            }
            (what, done)
        }
        Item::Domain { domain, ttl_ms } => {
            let ttl = ttl_ms.map(Duration::from_millis);
            (format!("domain {domain}"), client.in_domain(domain).refresh_domain(ttl).await)
        }
    };
    done.map(|_| vec![]).map_err(|error| Failure::from(error).while_doing(format!("desire {what}")))
}

/// Returns `true` if the log contains a task with this guid. Tasks are deleted soon after they end, so the
/// list of existing tasks is not sufficient.
async fn is_in_log(client: &Client, guid: &TaskGuid) -> Result<bool, Failure> {
    let (entries, _) = client.history(Position(0), Some(&format!("task:{guid}"))).await?;
    Ok(!entries.is_empty())
}

fn already_exists(done: &Result<Ack, client::Error>) -> bool {
    done.as_ref().is_err_and(|error| error.code() == Some(Code::ResourceExists))
}

async fn differences(client: &Client, lrp: &DesiredLrp, file: &Path) -> Result<Vec<String>, Failure> {
    let compared = diff::compare(client, lrp, false).await?;
    let guid = &lrp.process_guid;
    Ok(match compared.differences.len() {
        0 => vec![format!("process {guid} already matches the file")],
        some => vec![format!(
            "process {guid} already exists and was not changed; {} from the file: muster apply --dry-run {}",
            if some == 1 { "1 field differs".to_owned() } else { format!("{some} fields differ") },
            file.display()
        )],
    })
}
