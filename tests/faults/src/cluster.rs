//! A cluster of real processes: servers, services, and the folder with all that lives in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::join_all;
use rustix::process::Signal;
use support::clock::Clock;
use support::containers;
use support::postgres::Postgres;
use support::server::NatsServer;
use tempfile::TempDir;
use tokio::task::block_in_place;

use crate::disk::Disk;
use crate::failed::{Failed, Result, so, until};
use crate::past;
use crate::program::{Binary, Program};
use crate::proxy::Proxy;

mod seen;

/// How long a cluster may take until somebody leads and all cells are present. A log of a million entries is folded first.
pub const READY: Duration = Duration::from_secs(300);
/// How long the containers of a cluster may take to end with it.
const EMPTIED: Duration = Duration::from_secs(30);
/// How many BBSs and how many auctioneers there are.
const PER_ROLE: usize = 2;
const BBSS: [&str; PER_ROLE] = ["bbs-1", "bbs-2"];
/// The auctioneers.
pub const AUCTIONEERS: [&str; PER_ROLE] = ["auctioneer-1", "auctioneer-2"];
/// The size of each disk of its own, in MiB. The streams of a run have to fit.
const DISK_MB: u64 = 768;
/// What each cell has, in MiB: more than all that the load desires.
const CELL_MB: &str = "4096";

/// What a cluster is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// NATS servers: 1 or 3.
    pub nodes: usize,
    /// Cells.
    pub cells: usize,
    /// Whether each server has a disk of its own.
    pub disks: bool,
    /// How many entries the log has before anything is started; 0: none.
    pub past: u64,
}

/// A cluster. Dropped, nothing of it is left but its folder, if that is kept.
#[derive(Debug)]
pub struct Cluster {
    shape: Shape,
    binaries: BTreeMap<String, Binary>,
    binary: Binary,
    programs: BTreeMap<String, Program>,
    proxies: BTreeMap<String, Proxy>,
    /// Wall clocks of the BBSs.
    clocks: BTreeMap<String, Clock>,
    postgres: Postgres,
    servers: Vec<NatsServer>,
    disks: Vec<Disk>,
    folder: TempDir,
}

impl Cluster {
    /// Starts the servers, and no service.
    ///
    /// # Errors
    /// There are no servers, or no disks; the message says what is needed.
    pub async fn servers(binary: Binary, shape: Shape) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("muster-faults-").tempdir();
        let folder = folder.map_err(Failed::at("a folder"))?;
        let nats = folder.path().join("nats");
        std::fs::create_dir_all(folder.path().join("ran")).map_err(Failed::at("a folder"))?;
        let mut disks = vec![];
        for node in 1..=if shape.disks { shape.nodes } else { 0 } {
            let image = folder.path().join(format!("disk-{node}.img"));
            disks.push(Disk::mount(&image, DISK_MB, &store_of(&nats, shape, node)).await?);
        }
        let servers = match shape.nodes {
            1 => NatsServer::start(&nats).await.map(|server| vec![server]),
            several => NatsServer::start_cluster(&nats, several).await,
        };
        let servers = servers.map_err(|error| Failed(error.to_string()))?;
        for node in 1..=disks.len() {
            let used = store_of(&nats, shape, node).join("jetstream");
            so(used.is_dir(), || format!("the server {node} doesn't use its disk: no {}", used.display()))?;
        }
        let postgres = block_in_place(Postgres::start).map_err(|error| Failed(error.to_string()))?;
        let mut proxies = BTreeMap::new();
        if let [server] = servers.as_slice() {
            for cell in 1..=shape.cells {
                proxies.insert(format!("rep-c{cell}"), Proxy::before(&server.url).await?);
            }
        }
        let mut clocks = BTreeMap::new();
        for name in BBSS {
            let clock = block_in_place(|| Clock::new(&folder.path().join("clocks").join(name)));
            clocks.insert(name.to_owned(), clock.map_err(Failed::at("a clock"))?);
        }
        let (binaries, programs) = (BTreeMap::new(), BTreeMap::new());
        let cluster =
            Self { shape, binaries, binary, programs, proxies, clocks, postgres, servers, disks, folder };
        if shape.past > 0 {
            cluster.import().await?;
        } else {
            cluster.muster(&["cluster", "found", "--replicas", &shape.nodes.to_string()]).await?;
        }
        Ok(cluster)
    }

    /// Gives the cluster its past.
    async fn import(&self) -> Result<()> {
        let path = self.folder.path().join("past.jsonl");
        block_in_place(|| past::write(&path, self.shape.past))?;
        let replicas = self.shape.nodes.to_string();
        self.muster(&["import", &path.display().to_string(), "--replicas", &replicas]).await?;
        std::fs::remove_file(&path).map_err(Failed::at(path.display()))
    }

    /// Takes from every service what it keeps to start quickly: each reads the whole log again.
    ///
    /// # Errors
    /// It can't be removed.
    pub fn forget_caches(&self) -> Result<()> {
        let cache = self.folder.path().join("cache");
        match std::fs::remove_dir_all(&cache) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Failed(format!("{}: {error}", cache.display())))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The names of all services, in the order in which they start.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let cells = (1..=self.shape.cells).map(|cell| format!("rep-c{cell}"));
        let others = BBSS.into_iter().chain(AUCTIONEERS).chain(["projector-1"]);
        others.map(str::to_owned).chain(cells).collect()
    }

    /// Starts all services that don't run.
    ///
    /// # Errors
    /// The program doesn't start.
    pub fn start_all(&mut self) -> Result<()> {
        let missing: Vec<_> =
            self.names().into_iter().filter(|name| !self.programs.contains_key(name)).collect();
        missing.iter().try_for_each(|name| self.start(name))
    }

    /// Starts a service.
    ///
    /// # Errors
    /// The program doesn't start.
    pub fn start(&mut self, name: &str) -> Result<()> {
        let folder = |what: &str| self.folder.path().join(what).display().to_string();
        let (replicas, cache) = (self.shape.nodes.to_string(), folder(&format!("cache/{name}")));
        let (data, database) = (folder(name), self.database());
        let monitoring = self.servers[0].monitoring.clone();
        let (kind, number) = name.split_once('-').unwrap_or((name, ""));
        let zone = number.replace('c', "z");
        let args: Vec<&str> = match kind {
            "bbs" => {
                vec!["bbs", "--monitoring", &monitoring, "--cache", &cache, "--replicas", &replicas]
            }
            "auctioneer" => vec!["auctioneer", "--cache", &cache],
            "projector" => vec!["projector", "--database", &database],
            "rep" => {
                let who = ["rep", "--cell", number, "--zone", &zone, "--data", &data];
                who.into_iter().chain(["--memory-mb", CELL_MB, "--disk-mb", CELL_MB]).collect()
            }
            other => return Err(Failed(format!("{other} is no service"))),
        };
        let url = self.proxies.get(name).map_or_else(|| self.url(), |proxy| proxy.url.clone());
        let log = self.log(name);
        let binary = self.binaries.get(name).unwrap_or(&self.binary);
        let variables = self.clocks.get(name).map(Clock::variables);
        let program =
            binary.start(name, &url, &args, variables.as_ref().map_or(&[], <[_; 2]>::as_slice), &log)?;
        self.programs.insert(name.to_owned(), program);
        Ok(())
    }

    /// Has a service run another build of the program from its next start on; none: that which is tried.
    pub fn run_with(&mut self, name: &str, binary: Option<Binary>) {
        match binary {
            Some(binary) => self.binaries.insert(name.to_owned(), binary),
            None => self.binaries.remove(name),
        };
    }

    /// Where the servers are reached.
    #[must_use]
    pub fn url(&self) -> String {
        self.servers.iter().map(|server| server.url.as_str()).collect::<Vec<_>>().join(",")
    }

    /// The database with the tables.
    #[must_use]
    pub fn database(&self) -> String {
        self.postgres.url("postgres", "postgres")
    }

    /// Where everything lives.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What it is made of.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Keeps the folder with all logs when the cluster goes; answers where that is.
    #[must_use]
    pub fn keep(&mut self) -> PathBuf {
        self.folder.disable_cleanup(true);
        self.folder.path().to_owned()
    }

    /// Runs a command of `muster`; answers its standard output.
    ///
    /// # Errors
    /// See [`Binary::ask`].
    pub async fn muster(&self, args: &[&str]) -> Result<String> {
        self.binary.ask(&self.url(), args).await
    }

    /// Starts the first so many servers again, side by side: one of several is well only when others are there.
    ///
    /// # Errors
    /// One doesn't start.
    pub async fn restart_servers(&mut self, nodes: usize) -> Result<()> {
        let started = join_all(self.servers.iter_mut().take(nodes).map(NatsServer::restart)).await;
        started.into_iter().try_for_each(|started| started.map_err(|error| Failed(error.to_string())))
    }

    /// Kills a service at once.
    ///
    /// # Errors
    /// It doesn't run.
    pub async fn kill9(&mut self, name: &str) -> Result<()> {
        self.take(name)?.kill9().await
    }

    /// Asks a service to end, and waits until it has.
    ///
    /// # Errors
    /// It doesn't run, or doesn't end well.
    pub async fn stop(&mut self, name: &str) -> Result<()> {
        self.take(name)?.stop().await
    }

    /// Sends a signal to a service.
    ///
    /// # Errors
    /// It doesn't run.
    pub fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        let program = self.programs.get(name).ok_or_else(|| Failed(format!("{name} doesn't run")))?;
        program.signal(signal);
        Ok(())
    }

    fn take(&mut self, name: &str) -> Result<Program> {
        self.programs.remove(name).ok_or_else(|| Failed(format!("{name} doesn't run")))
    }

    /// Where a service says what it says.
    fn log(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }

    /// The network of a rep.
    ///
    /// # Errors
    /// It has none of its own: with three servers it knows them all.
    pub fn network(&self, name: &str) -> Result<&Proxy> {
        self.proxies.get(name).ok_or_else(|| Failed(format!("{name} has no network of its own")))
    }

    /// A server.
    ///
    /// # Errors
    /// There are fewer.
    pub fn server(&mut self, node: usize) -> Result<&mut NatsServer> {
        self.servers.get_mut(node).ok_or_else(|| Failed(format!("there is no server {node}")))
    }

    /// The wall clock of a BBS.
    ///
    /// # Errors
    /// The name is not that of a BBS.
    pub fn clock(&self, name: &str) -> Result<&Clock> {
        self.clocks.get(name).ok_or_else(|| Failed(format!("{name} has no clock of its own")))
    }

    /// The disk of a server.
    ///
    /// # Errors
    /// It has none of its own.
    pub fn disk(&self, node: usize) -> Result<&Disk> {
        self.disks.get(node).ok_or_else(|| Failed(format!("the server {node} has no disk of its own")))
    }

    /// The database server.
    pub const fn postgres(&mut self) -> &mut Postgres {
        &mut self.postgres
    }

    /// Ends all services, and whatever runs in containers.
    async fn end(&mut self) -> Result<()> {
        self.programs.clear();
        let folder = self.folder.path().to_owned();
        until(EMPTIED, "nothing runs any more", async || {
            so(containers::kill_all(&folder), || format!("{:?}", containers::living_in(&folder)))
        })
        .await
    }

    /// Ends all of it, and waits until it has.
    ///
    /// # Errors
    /// Something doesn't end.
    pub async fn close(mut self) -> Result<()> {
        self.end().await?;
        for server in &mut self.servers {
            server.kill9().await.map_err(Failed::at("nats-server"))?;
        }
        Ok(())
    }
}

impl Drop for Cluster {
    /// A run that failed leaves nothing either.
    fn drop(&mut self) {
        self.programs.clear();
        containers::clear(self.folder.path(), EMPTIED);
        self.servers.clear();
    }
}

/// The folder of a server's store, as [`NatsServer`] has it.
fn store_of(nats: &Path, shape: Shape, node: usize) -> PathBuf {
    match shape.nodes {
        1 => nats.join("store"),
        _ => nats.join(format!("muster-{node}/store")),
    }
}
