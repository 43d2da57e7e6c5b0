//! Services on a nats-server of their own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use schemas::Timestamp;
use serde_json::Value;
use support::server::{NatsServer, NoServer};
use tokio::runtime::Runtime;

use super::containers::{exactly, indices};
use super::place::{LIMIT, Place, eventually, so, within};
use super::plain::Plain;
use super::program::{Muster, Service};

/// Where servers are started and stopped.
pub(super) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// A nats-server in a place.
pub(crate) struct Server {
    server: Option<NatsServer>,
}

impl Server {
    pub(crate) fn start(place: &Place) -> Self {
        let server = RUNTIME.block_on(NatsServer::start(&place.path().join("nats"))).unwrap();
        Self { server: Some(server) }
    }

    /// The same, with more lines in its configuration.
    pub(crate) fn start_with(place: &Place, lines: &str) -> Self {
        let server = RUNTIME.block_on(NatsServer::start_with(&place.path().join("nats"), lines)).unwrap();
        Self { server: Some(server) }
    }

    /// A server with a configuration that is there, which listens at these addresses.
    pub(crate) fn configured(file: &Path, url: &str, monitoring: &str) -> Result<Self, NoServer> {
        let server = RUNTIME.block_on(NatsServer::start_configured(file, url, monitoring))?;
        Ok(Self { server: Some(server) })
    }

    fn get(&self) -> &NatsServer {
        self.server.as_ref().unwrap()
    }

    pub(crate) fn url(&self) -> String {
        self.get().url.clone()
    }

    /// Its monitoring address.
    pub(crate) fn monitoring(&self) -> String {
        self.get().monitoring.clone()
    }

    pub(crate) fn kill9(&mut self) {
        RUNTIME.block_on(self.server.as_mut().unwrap().kill9()).unwrap();
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn stop(&mut self) {
        RUNTIME.block_on(self.server.as_mut().unwrap().stop()).unwrap();
    }

    /// The folder of the stream's blocks in its store.
    pub(crate) fn blocks(&self) -> PathBuf {
        self.get().store().join("jetstream/$G/streams/MUSTER/msgs")
    }

    pub(crate) fn restart(&mut self) {
        RUNTIME.block_on(self.server.as_mut().unwrap().restart()).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let server = self.server.take();
        RUNTIME.block_on(async move { drop(server) });
    }
}

/// Services on a nats-server. Each is known by its name, as `bbs-1` or `rep-c1`.
pub(crate) struct Cluster {
    pub(crate) services: BTreeMap<String, Service>,
    pub(crate) server: Server,
    pub(crate) place: Place,
    /// When each service was killed.
    pub(crate) kills: BTreeMap<String, Vec<Timestamp>>,
}

impl Cluster {
    /// A server with a cluster that is founded, and no service.
    pub(crate) fn empty() -> Self {
        let cluster = Self::unfounded();
        cluster.found();
        cluster
    }

    /// A server without a log, and no service.
    pub(crate) fn unfounded() -> Self {
        let place = Place::new();
        let server = Server::start(&place);
        Self::on(place, server)
    }

    /// A server in this place, and no service.
    pub(crate) fn on(place: Place, server: Server) -> Self {
        Self { services: BTreeMap::new(), server, place, kills: BTreeMap::new() }
    }

    /// Founds the cluster.
    pub(crate) fn found(&self) {
        self.muster().ok("cluster found").tells(&["is founded"]);
    }

    /// A server with these services, started in this order, as soon as it takes commands.
    pub(crate) fn start(names: &[&str]) -> Self {
        let mut cluster = Self::empty();
        names.iter().for_each(|name| cluster.add(name));
        cluster.ready(names.iter().filter(|name| name.starts_with("rep")).count());
        cluster
    }

    /// Kills the server, and starts it again with nothing in its store.
    pub(crate) fn lose_log(&mut self) {
        self.server.kill9();
        std::fs::remove_dir_all(self.place.path().join("nats/store")).unwrap();
        self.server.restart();
        self.place.tell("the log is lost");
    }

    /// Starts a service, or starts it again.
    pub(crate) fn add(&mut self, name: &str) {
        self.add_with(name, &[]);
    }

    /// The same, with more options.
    pub(crate) fn add_with(&mut self, name: &str, options: &[&str]) {
        let monitoring = self.server.monitoring();
        let (kind, number) = name.split_once('-').unwrap();
        let data = self.place.path().join(name).display().to_string();
        let zone = format!("z{}", number.trim_start_matches('c'));
        let args: Vec<&str> = match kind {
            "bbs" => vec!["bbs", "--monitoring", &monitoring, "--callback-allow", "127.0.0.0/8"],
            "auctioneer" => vec!["auctioneer"],
            "rep" => {
                let size = ["--memory-mb", "1024", "--disk-mb", "1024"];
                let who = ["rep", "--cell", number, "--zone", &zone, "--data", &data];
                who.into_iter().chain(size).collect()
            }
            other => panic!("{other} is not a service"),
        };
        let args: Vec<&str> = args.into_iter().chain(options.iter().copied()).collect();
        self.spawn(name, &args);
    }

    /// Starts a service with these arguments.
    pub(crate) fn spawn(&mut self, name: &str, args: &[&str]) {
        self.spawn_with(name, args, &[]);
    }

    /// The same, with more variables.
    pub(crate) fn spawn_with(&mut self, name: &str, args: &[&str], variables: &[(&str, &str)]) {
        let log = self.place.path().join(format!("{name}.log"));
        let url = self.server.url();
        let variables = [&[("MUSTER_NATS_URL", url.as_str())], variables].concat();
        let service = Service::start(name, &log, args, &variables);
        self.place.tell(&format!("start {name}"));
        self.services.insert(name.to_owned(), service);
    }

    /// Commands to it.
    pub(crate) fn muster(&self) -> Muster {
        Muster::nats(&self.server.url())
    }

    /// A client that knows nothing of Muster.
    pub(crate) fn plain(&self, name: &str) -> Plain {
        Plain::connect(&self.server.url(), name)
    }

    /// A client that says that it has a role, as `rep.c1`.
    pub(crate) fn plain_as(&self, role: &str) -> Plain {
        Plain::connect_as(&self.server.url(), &format!("muster.inbox.{role}"))
    }

    /// Waits until somebody leads and so many cells are present.
    pub(crate) fn ready(&self, cells: usize) {
        eventually("the cluster is ready", || {
            let row = self.muster().try_json("cluster show")?;
            let led = !row["bbs"].is_null() && !row["auctioneer"].is_null();
            let present = row["cells"]["PRESENT"].as_u64().unwrap_or(0);
            so(led && present == cells as u64, || row.to_string())
        });
    }

    /// Kills a service at once.
    pub(crate) fn kill9(&mut self, name: &str) {
        self.kills.entry(name.to_owned()).or_default().push(clock::now());
        let service = self.services.remove(name).unwrap();
        self.place.tell(&format!("kill -9 {name} (pid {})", service.pid()));
        service.kill9();
    }

    /// The service that leads in a role, as its log says it: `bbs` or `auctioneer`.
    pub(crate) fn leader(&self, role: &str) -> String {
        eventually(&format!("a {role} leads"), || {
            let row = self.muster().try_json("cluster show")?;
            let id = row[role]["id"].as_str().ok_or_else(|| row.to_string())?.to_owned();
            let mut services = self.services.iter().filter(|(name, _)| name.starts_with(role));
            let found = services.find(|(_, service)| service.said().contains(&id));
            found.map(|(name, _)| name.clone()).ok_or_else(|| format!("{id} is none of ours"))
        })
    }

    /// Waits until exactly so many instances of each process run: as the log says, and as the operating system does.
    pub(crate) fn settles(&self, processes: &[(&str, usize)]) {
        self.settles_within(LIMIT, processes);
    }

    pub(crate) fn settles_within(&self, limit: Duration, processes: &[(&str, usize)]) {
        let works: Vec<String> =
            processes.iter().flat_map(|(process, count)| indices(process, *count)).collect();
        let works: Vec<&str> = works.iter().map(String::as_str).collect();
        within(limit, "exactly what is desired runs", || {
            for (process, count) in processes {
                let rows = self.muster().instances(process)?;
                let fine = rows.iter().filter(|row| row["state"] == "RUNNING" && row["stopping"] == false);
                so(rows.len() == *count && fine.count() == *count, || format!("{rows:#?}"))?;
            }
            exactly(self.place.path(), &works)
        });
    }

    /// Every entry of the log.
    pub(crate) fn log(&self) -> Vec<Value> {
        self.muster().json("events list").as_array().unwrap().clone()
    }
}
