//! `muster dev`: a cluster on this machine, with nothing else to install.
//!
//! One process: a BBS, an auctioneer and cells with real containers, on the embedded journal. Other terminals reach it
//! by the Unix socket in its data folder. Ctrl-C ends all of it.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bus::Bus;
use bus::{InProcess, SocketServer};
use clap::Args;
use client::Client;
use journal::Journal;
use journal::Sqlite;
use runtime::folder::Folder;
use schemas::names::{CellId, ClientName, Domain, Zone};
use schemas::resources::Resources;
use schemas::spec::Item;
use schemas::{Code, Position};
use tokio_util::sync::CancellationToken;

use crate::cli::output::{Output, note};
use crate::cli::{file, watch};
use crate::host;
use crate::local::{Kind, Local, Roles, end_leftovers};
use crate::serve::chain;

/// Containers that a cell of a local cluster takes.
const CONTAINERS: u32 = 100;

/// Run a whole cluster here: cells with real processes, and what a file desires
#[derive(Clone, Debug, Args)]
pub(crate) struct DevArgs {
    /// What to desire at the start, TOML or JSON
    pub(crate) file: Option<PathBuf>,
    /// Cells, in two zones
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) cells: u32,
    /// Show events line by line, also on a terminal
    #[arg(long)]
    pub(crate) plain: bool,
}

/// Where a local cluster keeps what it has, and whether that outlives it.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    /// In this folder, for the next start.
    Kept(PathBuf),
    /// In this folder, until it ends.
    Scratch(PathBuf),
}

impl Data {
    fn path(&self) -> &Path {
        match self {
            Self::Kept(path) | Self::Scratch(path) => path,
        }
    }
}

/// Runs a local cluster until it is told to stop.
///
/// # Errors
/// Why it can't start or go on.
pub(crate) async fn run(
    args: DevArgs,
    data: Data,
    output: Output,
    stop: CancellationToken,
) -> Result<(), String> {
    // A spec that can't be read is told before anything is started.
    let domain = Domain::new("default").map_err(|error| error.to_string())?;
    let items = match &args.file {
        Some(path) => file::items(path, Some(&domain)).map_err(|failure| failure.text(false))?,
        None => vec![],
    };
    host::allow_many_files();
    let folder = Folder::own(data.path()).map_err(|error| chain(&error))?;
    let cells = data.path().join("cells");
    if matches!(data, Data::Scratch(_)) {
        end_leftovers(&cells).await?;
        clear(data.path())?;
    }
    let journal = Sqlite::open_in(folder).await.map_err(|error| chain(&error))?;
    let journal = Journal::Sqlite(journal);
    let bus = InProcess::new();
    let mut local = start(&journal, &bus, &cells, args.cells).await?;
    let socket = serve(&bus, data.path())?;
    note(&format!("cluster: {} cells, socket {}", args.cells, socket.path().display()));

    let client = client(&bus, domain)?;
    let begin = journal.end().await.map_err(|error| error.to_string())?;
    let result = tokio::select! {
        () = stop.cancelled() => Ok(()),
        why = local.failed() => Err(why),
        why = show(&client, items, begin, output, args.plain) => why,
    };
    note("stopping: ending every container");
    drop(socket);
    local.end().await;
    journal.close().await;
    if matches!(data, Data::Scratch(_)) {
        clear(data.path())?;
    }
    result
}

async fn start(journal: &Journal, bus: &InProcess, folder: &Path, cells: u32) -> Result<Local, String> {
    let (bbs, auctioneer) = (bus.bus("bbs.local")?, bus.bus("auctioneer.local")?);
    let mut local = Local::start(journal, bbs, auctioneer, Duration::ZERO)?;
    let host = host::resources(folder);
    let share = |whole: u64| (whole / u64::from(cells)).max(1);
    // The cells take their ports from one range.
    let ports = host::ports(&executor::process::HOST_PORTS) / cells;
    let (memory_mb, disk_mb) = (share(host.memory_mb), share(host.disk_mb));
    let total = Resources { memory_mb, disk_mb, containers: CONTAINERS, ports };
    for number in 1..=cells {
        let id = CellId::new(&format!("c{number}")).map_err(|error| error.to_string())?;
        let zone = Zone::new(if number % 2 == 1 { "z1" } else { "z2" }).map_err(|error| error.to_string())?;
        let bus = bus.bus(&format!("rep.{id}"))?;
        local.add_cell(id, zone, total, &Kind::Process(folder.to_owned()), bus).await?;
    }
    Ok(local)
}

fn serve(bus: &InProcess, folder: &Path) -> Result<SocketServer, String> {
    let path = folder.join(client::target::SOCKET);
    Bus::InProcess(bus.clone()).serve_socket(&path).map_err(|error| error.to_string())
}

fn client(bus: &InProcess, domain: Domain) -> Result<Client, String> {
    let name = ClientName::new("dev").map_err(|error| error.to_string())?;
    let bus = bus.bus(&format!("client.{domain}.{name}"))?;
    Client::over(bus, domain, name).map_err(|error| error.to_string())
}

/// Desires what the file says, and shows what becomes of it; ends only when that fails.
async fn show(
    client: &Client,
    items: Vec<Item>,
    begin: Position,
    output: Output,
    plain: bool,
) -> Result<(), String> {
    let live = !plain && std::io::stdout().is_terminal();
    let showing = async {
        let shown = watch::show(client, client.events(begin), None, output, live).await;
        shown.map_err(|failure| failure.text(false))
    };
    tokio::try_join!(desire(client, items), showing).map(|_| ())
}

/// What exists already is left as it is: a second start with the same file goes on with what is running.
async fn desire(client: &Client, items: Vec<Item>) -> Result<(), String> {
    for item in items {
        let (what, done) = match item {
            Item::Lrp(lrp) => {
                let domain = client.in_domain(lrp.domain.clone());
                (format!("process {}", lrp.process_guid), domain.publish_lrp(*lrp).await)
            }
            Item::Task(task) => {
                let domain = client.in_domain(task.domain.clone());
                (format!("task {}", task.task_guid), domain.desire_task(*task).await)
            }
            Item::Domain { domain, ttl_ms } => {
                let ttl = ttl_ms.map(Duration::from_millis);
                (format!("domain {domain}"), client.in_domain(domain).refresh_domain(ttl).await)
            }
        };
        match done {
            Ok(_) => {}
            Err(client::Error::Refused(refusal)) if refusal.code == Code::ResourceExists => {
                note(&format!("{what} exists already"));
            }
            Err(error) => return Err(format!("{what}: {error}")),
        }
    }
    Ok(())
}

/// Removes what an ended cluster left in a folder that nobody else owns: only what a local cluster makes.
fn clear(folder: &Path) -> Result<(), String> {
    let cells = folder.join("cells");
    let failed =
        |error: std::io::Error| format!("the data folder {} can't be cleared: {error}", folder.display());
    match std::fs::remove_dir_all(&cells) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    let files = std::fs::read_dir(folder).map_err(failed)?;
    for file in files.flatten() {
        let name = file.file_name();
        if name.to_str().is_some_and(|name| name.starts_with("journal.db")) {
            std::fs::remove_file(file.path()).map_err(failed)?;
        }
    }
    Ok(())
}
