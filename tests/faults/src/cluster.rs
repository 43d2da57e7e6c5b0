//! Cluster of real processes: servers, services, and the folder with their files.

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
use crate::error::{Failed, Result, ensure, poll_until};
use crate::long_log;
use crate::program::{Binary, RunningService};
use crate::proxy::Proxy;

mod observations;

/// Timeout until leaders are elected and all cells are present. This time includes folding a log of a million
/// entries.
pub const READY_TIMEOUT: Duration = Duration::from_secs(300);
/// Timeout for the containers of a cluster to end.
const END_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of BBSs, and number of auctioneers.
const PER_ROLE: usize = 2;
const BBSS: [&str; PER_ROLE] = ["bbs-1", "bbs-2"];
/// Names of the auctioneers.
pub const AUCTIONEERS: [&str; PER_ROLE] = ["auctioneer-1", "auctioneer-2"];
/// Size of each separate disk in MiB. The streams of a run must fit.
const DISK_MB: u64 = 768;
/// Memory and disk of each cell in MiB. Each value exceeds the needs of the whole load.
const CELL_MB: &str = "4096";

/// Composition of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of NATS servers: 1 or 3.
    pub nodes: usize,
    pub cells: usize,
    /// Each server has a disk of its own.
    pub disks: bool,
    /// Number of entries in the log before anything is started. Zero founds a new cluster.
    pub past: u64,
}

/// Cluster of real processes. Dropping a cluster ends its processes, and removes the folder unless
/// [`Cluster::keep`] was called.
#[derive(Debug)]
pub struct Cluster {
    shape: Shape,
    binaries: BTreeMap<String, Binary>,
    binary: Binary,
    programs: BTreeMap<String, RunningService>,
    proxies: BTreeMap<String, Proxy>,
    /// Wall clocks of the BBSs.
    clocks: BTreeMap<String, Clock>,
    postgres: Postgres,
    servers: Vec<NatsServer>,
    disks: Vec<Disk>,
    folder: TempDir,
}

impl Cluster {
    /// Starts the servers, but no service.
    ///
    /// # Errors
    /// Returns an error if the servers or disks can't be set up. The message names the requirements.
    pub async fn servers(binary: Binary, shape: Shape) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("muster-faults-").tempdir();
        let folder = folder.map_err(Failed::context("temporary folder"))?;
        let nats = folder.path().join("nats");
        std::fs::create_dir_all(folder.path().join("ran")).map_err(Failed::context("temporary folder"))?;
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
            ensure(used.is_dir(), || format!("server {node} does not use its disk: no {}", used.display()))?;
        }
        let postgres = block_in_place(Postgres::start).map_err(|error| Failed(error.to_string()))?;
        let mut proxies = BTreeMap::new();
        if let [server] = servers.as_slice() {
            for cell in 1..=shape.cells {
                proxies.insert(format!("rep-c{cell}"), Proxy::in_front_of(&server.url).await?);
            }
        }
        let mut clocks = BTreeMap::new();
        for name in BBSS {
            let clock = block_in_place(|| Clock::new(&folder.path().join("clocks").join(name)));
            clocks.insert(name.to_owned(), clock.map_err(Failed::context("wall clock"))?);
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

    /// Imports the past into the log.
    async fn import(&self) -> Result<()> {
        let path = self.folder.path().join("past.jsonl");
        block_in_place(|| long_log::write(&path, self.shape.past))?;
        let replicas = self.shape.nodes.to_string();
        self.muster(&["import", &path.display().to_string(), "--replicas", &replicas]).await?;
        std::fs::remove_file(&path).map_err(Failed::context(path.display()))
    }

    /// Removes the caches that speed up the start of services. Each service then reads the whole log again.
    ///
    /// # Errors
    /// Returns an error if the caches can't be removed.
    pub fn delete_caches(&self) -> Result<()> {
        let cache = self.folder.path().join("cache");
        match std::fs::remove_dir_all(&cache) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Failed(format!("{}: {error}", cache.display())))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Returns the names of all services in the order of their start.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let cells = (1..=self.shape.cells).map(|cell| format!("rep-c{cell}"));
        let others = BBSS.into_iter().chain(AUCTIONEERS).chain(["projector-1"]);
        others.map(str::to_owned).chain(cells).collect()
    }

    /// Starts all services that are not running.
    ///
    /// # Errors
    /// Returns an error if a program does not start.
    pub fn start_all(&mut self) -> Result<()> {
        let missing: Vec<_> =
            self.names().into_iter().filter(|name| !self.programs.contains_key(name)).collect();
        missing.iter().try_for_each(|name| self.start(name))
    }

    /// Starts a service.
    ///
    /// # Errors
    /// Returns an error if the program does not start.
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
            other => {
                return Err(Failed(format!(
                    "unknown service {other}: expected bbs, auctioneer, projector or rep"
                )));
            }
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

    /// Selects the build that a service runs from its next start on. `None` selects the build under test.
    pub fn select_binary(&mut self, name: &str, binary: Option<Binary>) {
        match binary {
            Some(binary) => self.binaries.insert(name.to_owned(), binary),
            None => self.binaries.remove(name),
        };
    }

    /// Returns the URLs of the servers, separated by commas.
    #[must_use]
    pub fn url(&self) -> String {
        self.servers.iter().map(|server| server.url.as_str()).collect::<Vec<_>>().join(",")
    }

    /// Returns the URL of the database with the tables.
    #[must_use]
    pub fn database(&self) -> String {
        self.postgres.url("postgres", "postgres")
    }

    /// Returns the folder with all files of the cluster.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the composition of the cluster.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Keeps the folder with all logs when the cluster is dropped. Returns its path.
    #[must_use]
    pub fn keep(&mut self) -> PathBuf {
        self.folder.disable_cleanup(true);
        self.folder.path().to_owned()
    }

    /// Runs a `muster` command and returns its standard output.
    ///
    /// # Errors
    /// Returns the same errors as [`Binary::run`].
    pub async fn muster(&self, args: &[&str]) -> Result<String> {
        self.binary.run(&self.url(), args).await
    }

    /// Restarts the first `nodes` servers concurrently, because a server of a group does not become healthy
    /// alone.
    ///
    /// # Errors
    /// Returns an error if a server does not start.
    pub async fn restart_servers(&mut self, nodes: usize) -> Result<()> {
        let started = join_all(self.servers.iter_mut().take(nodes).map(NatsServer::restart)).await;
        started.into_iter().try_for_each(|started| started.map_err(|error| Failed(error.to_string())))
    }

    /// Kills a service with SIGKILL.
    ///
    /// # Errors
    /// Returns an error if the service is not running.
    pub async fn kill9(&mut self, name: &str) -> Result<()> {
        self.take(name)?.kill9().await
    }

    /// Stops a service gracefully and waits until it has exited.
    ///
    /// # Errors
    /// Returns an error if the service is not running or exits with a failure.
    pub async fn stop(&mut self, name: &str) -> Result<()> {
        self.take(name)?.stop().await
    }

    /// Sends a signal to a service.
    ///
    /// # Errors
    /// Returns an error if the service is not running.
    pub fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        let program = self.programs.get(name).ok_or_else(|| Failed(format!("{name} is not running")))?;
        program.signal(signal);
        Ok(())
    }

    fn take(&mut self, name: &str) -> Result<RunningService> {
        self.programs.remove(name).ok_or_else(|| Failed(format!("{name} is not running")))
    }

    /// Returns the path of a service's log.
    fn log(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }

    /// Returns the network of a rep.
    ///
    /// # Errors
    /// Returns an error if the rep has no network of its own. With three servers, a rep connects to all
    /// servers directly.
    pub fn network(&self, name: &str) -> Result<&Proxy> {
        self.proxies.get(name).ok_or_else(|| Failed(format!("{name} has no network of its own")))
    }

    /// Returns a server by its index, from 0.
    ///
    /// # Errors
    /// Returns an error if there are fewer servers.
    pub fn server(&mut self, node: usize) -> Result<&mut NatsServer> {
        self.servers.get_mut(node).ok_or_else(|| Failed(format!("server {node} does not exist")))
    }

    /// Returns the wall clock of a BBS.
    ///
    /// # Errors
    /// Returns an error if the name is not that of a BBS.
    pub fn clock(&self, name: &str) -> Result<&Clock> {
        self.clocks.get(name).ok_or_else(|| Failed(format!("{name} has no clock of its own")))
    }

    /// Returns the disk of a server.
    ///
    /// # Errors
    /// Returns an error if the server has no disk of its own.
    pub fn disk(&self, node: usize) -> Result<&Disk> {
        self.disks.get(node).ok_or_else(|| Failed(format!("server {node} has no disk of its own")))
    }

    /// Returns the database server.
    pub const fn postgres(&mut self) -> &mut Postgres {
        &mut self.postgres
    }

    /// Ends all services and everything that runs in containers.
    async fn end_processes(&mut self) -> Result<()> {
        self.programs.clear();
        let folder = self.folder.path().to_owned();
        poll_until(END_TIMEOUT, "every container has ended", async || {
            ensure(containers::kill_all(&folder), || format!("{:?}", containers::processes_in(&folder)))
        })
        .await
    }

    /// Ends the whole cluster and waits until it has ended.
    ///
    /// # Errors
    /// Returns an error if a process does not end.
    pub async fn close(mut self) -> Result<()> {
        self.end_processes().await?;
        for server in &mut self.servers {
            server.kill9().await.map_err(Failed::context("nats-server"))?;
        }
        Ok(())
    }
}

impl Drop for Cluster {
    /// Also cleans up after a failed run.
    fn drop(&mut self) {
        self.programs.clear();
        containers::clear(self.folder.path(), END_TIMEOUT);
        self.servers.clear();
    }
}

/// Returns the folder of a server's store, which [`NatsServer`] determines.
fn store_of(nats: &Path, shape: Shape, node: usize) -> PathBuf {
    match shape.nodes {
        1 => nats.join("store"),
        _ => nats.join(format!("muster-{node}/store")),
    }
}
