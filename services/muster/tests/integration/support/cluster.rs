//! Services on a nats-server of their own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use schemas::Timestamp;
use serde_json::Value;
use support::server::{NatsServer, NoServer};
use tokio::runtime::Runtime;

use super::containers::{expect_exactly, indices};
use super::plain::PlainClient;
use super::program::{Muster, Service};
use super::test_dir::{TIMEOUT, TestDir, ensure, eventually, wait_within};

/// Runtime that starts and stops servers.
pub(super) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// nats-server with its data in a test's folder.
pub(crate) struct Server {
    server: Option<NatsServer>,
}

impl Server {
    pub(crate) fn start(place: &TestDir) -> Self {
        let server = RUNTIME.block_on(NatsServer::start(&place.path().join("nats"))).unwrap();
        Self { server: Some(server) }
    }

    /// Starts a server with additional configuration lines.
    pub(crate) fn start_with(place: &TestDir, lines: &str) -> Self {
        let server = RUNTIME.block_on(NatsServer::start_with(&place.path().join("nats"), lines)).unwrap();
        Self { server: Some(server) }
    }

    /// Starts a server with an existing configuration, which listens at these addresses.
    pub(crate) fn start_configured(file: &Path, url: &str, monitoring: &str) -> Result<Self, NoServer> {
        let server = RUNTIME.block_on(NatsServer::start_configured(file, url, monitoring))?;
        Ok(Self { server: Some(server) })
    }

    fn get(&self) -> &NatsServer {
        self.server.as_ref().unwrap()
    }

    pub(crate) fn url(&self) -> String {
        self.get().url.clone()
    }

    pub(crate) fn monitoring(&self) -> String {
        self.get().monitoring.clone()
    }

    pub(crate) fn kill9(&mut self) {
        RUNTIME.block_on(self.server.as_mut().unwrap().kill9()).unwrap();
    }

    /// Stops the server gracefully and waits until it has exited.
    pub(crate) fn stop(&mut self) {
        RUNTIME.block_on(self.server.as_mut().unwrap().stop()).unwrap();
    }

    /// Returns the folder of the stream's blocks in the store.
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

/// Services on a nats-server. Each has a name, such as `bbs-1` or `rep-c1`.
pub(crate) struct Cluster {
    pub(crate) services: BTreeMap<String, Service>,
    pub(crate) server: Server,
    pub(crate) place: TestDir,
    /// Times at which each service was killed.
    pub(crate) kills: BTreeMap<String, Vec<Timestamp>>,
}

impl Cluster {
    /// Starts a server with a founded cluster and no service.
    pub(crate) fn empty() -> Self {
        let cluster = Self::unfounded();
        cluster.found();
        cluster
    }

    /// Starts a server without a log and without a service.
    pub(crate) fn unfounded() -> Self {
        let place = TestDir::new();
        let server = Server::start(&place);
        Self::on(place, server)
    }

    /// Returns a cluster on this server, without a service.
    pub(crate) fn on(place: TestDir, server: Server) -> Self {
        Self { services: BTreeMap::new(), server, place, kills: BTreeMap::new() }
    }

    pub(crate) fn found(&self) {
        self.muster().ok("cluster found").expect_output(&["is founded"]);
    }

    /// Starts a server and these services, in this order. Returns when the cluster accepts commands.
    pub(crate) fn start(names: &[&str]) -> Self {
        let mut cluster = Self::empty();
        names.iter().for_each(|name| cluster.start_service(name));
        cluster.wait_until_ready(names.iter().filter(|name| name.starts_with("rep")).count());
        cluster
    }

    /// Kills the server and restarts it with an empty store.
    pub(crate) fn lose_log(&mut self) {
        self.server.kill9();
        std::fs::remove_dir_all(self.place.path().join("nats/store")).unwrap();
        self.server.restart();
        self.place.print_event("the log is lost");
    }

    /// Starts or restarts a service.
    pub(crate) fn start_service(&mut self, name: &str) {
        self.start_service_with(name, &[]);
    }

    /// Starts or restarts a service with additional options.
    pub(crate) fn start_service_with(&mut self, name: &str, options: &[&str]) {
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

    /// Starts a service with these arguments and additional environment variables.
    pub(crate) fn spawn_with(&mut self, name: &str, args: &[&str], variables: &[(&str, &str)]) {
        let log = self.place.path().join(format!("{name}.log"));
        let url = self.server.url();
        let variables = [&[("MUSTER_NATS_URL", url.as_str())], variables].concat();
        let service = Service::start(name, &log, args, &variables);
        self.place.print_event(&format!("start {name}"));
        self.services.insert(name.to_owned(), service);
    }

    /// Returns the command line of this cluster.
    pub(crate) fn muster(&self) -> Muster {
        Muster::nats(&self.server.url())
    }

    /// Connects a plain NATS client.
    pub(crate) fn plain(&self, name: &str) -> PlainClient {
        PlainClient::connect(&self.server.url(), name)
    }

    /// Connects a plain NATS client with the inbox of a role, such as `rep.c1`.
    pub(crate) fn plain_as(&self, role: &str) -> PlainClient {
        PlainClient::connect_as(&self.server.url(), &format!("muster.inbox.{role}"))
    }

    /// Waits until leaders are elected and exactly this number of cells is present.
    pub(crate) fn wait_until_ready(&self, cells: usize) {
        eventually("the cluster is ready", || {
            let row = self.muster().try_json("cluster show")?;
            let led = !row["bbs"].is_null() && !row["auctioneer"].is_null();
            let present = row["cells"]["PRESENT"].as_u64().unwrap_or(0);
            ensure(led && present == cells as u64, || row.to_string())
        });
    }

    /// Kills a service with SIGKILL.
    pub(crate) fn kill9(&mut self, name: &str) {
        self.kills.entry(name.to_owned()).or_default().push(clock::now());
        let service = self.services.remove(name).unwrap();
        self.place.print_event(&format!("kill -9 {name} (pid {})", service.pid()));
        service.kill9();
    }

    /// Returns the name of the leading service of a role, `bbs` or `auctioneer`. Its log contains the id of
    /// the leader.
    pub(crate) fn leader(&self, role: &str) -> String {
        eventually(&format!("a {role} leads"), || {
            let row = self.muster().try_json("cluster show")?;
            let id = row[role]["id"].as_str().ok_or_else(|| row.to_string())?.to_owned();
            let mut services = self.services.iter().filter(|(name, _)| name.starts_with(role));
            let found = services.find(|(_, service)| service.log().contains(&id));
            found
                .map(|(name, _)| name.clone())
                .ok_or_else(|| format!("no service of this test has the id {id}"))
        })
    }

    /// Waits until exactly this number of instances of each process runs, according to both the log and the
    /// operating system.
    pub(crate) fn wait_until_settled(&self, processes: &[(&str, usize)]) {
        self.wait_until_settled_within(TIMEOUT, processes);
    }

    pub(crate) fn wait_until_settled_within(&self, limit: Duration, processes: &[(&str, usize)]) {
        let works: Vec<String> =
            processes.iter().flat_map(|(process, count)| indices(process, *count)).collect();
        let works: Vec<&str> = works.iter().map(String::as_str).collect();
        wait_within(limit, "exactly the desired instances run", || {
            for (process, count) in processes {
                let rows = self.muster().instances(process)?;
                let fine = rows.iter().filter(|row| row["state"] == "RUNNING" && row["stopping"] == false);
                ensure(rows.len() == *count && fine.count() == *count, || format!("{rows:#?}"))?;
            }
            expect_exactly(self.place.path(), &works)
        });
    }

    /// Returns every entry of the log.
    pub(crate) fn entries(&self) -> Vec<Value> {
        self.muster().json("events list").as_array().unwrap().clone()
    }
}
