//! `muster` as a running service and as a command.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use support::containers;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::error::{Failed, Result};

/// Timeout of a command. The slowest commands import, export and verify a log of a million entries.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(1_800);
/// Timeout for a service to stop gracefully.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// Executable of `muster`.
#[derive(Clone, Debug)]
pub struct Binary(PathBuf);

impl Binary {
    /// Returns the executable at this path.
    ///
    /// # Errors
    /// Returns an error if there is no such file.
    pub fn new(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        match path.canonicalize() {
            Ok(path) if path.is_file() => Ok(Self(path)),
            Ok(_) | Err(_) => {
                Err(Failed(format!("{} is not a file: build the program first", path.display())))
            }
        }
    }

    /// Returns the path of the executable.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn command(&self, url: &str, args: &[&str]) -> Command {
        let mut command = Command::from(support::program::muster(&self.0));
        command.args(args).env("MUSTER_NATS_URL", url).kill_on_drop(true);
        command
    }

    /// Runs a command until it exits, and returns its standard output.
    ///
    /// # Errors
    /// Returns an error if the command exits with another status than 0, or does not exit in time.
    pub async fn run(&self, url: &str, args: &[&str]) -> Result<String> {
        let line = args.join(" ");
        let ran = timeout(COMMAND_TIMEOUT, self.command(url, args).output()).await;
        let ran =
            ran.map_err(|_| Failed(format!("muster {line} did not exit within {COMMAND_TIMEOUT:?}")))?;
        let ran = ran.map_err(Failed::context(format!("muster {line}")))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if ran.status.success() {
            return Ok(text(&ran.stdout));
        }
        Err(Failed(format!("muster {line}: {}\n{}{}", ran.status, text(&ran.stdout), text(&ran.stderr))))
    }

    /// Starts a service with additional environment variables. Its output is appended to a file.
    ///
    /// # Errors
    /// Returns an error if the service does not start.
    pub fn start(
        &self,
        name: &str,
        url: &str,
        args: &[&str],
        variables: &[(&str, &str)],
        log: &Path,
    ) -> Result<RunningService> {
        let opened = File::options().create(true).append(true).open(log);
        let out = opened.map_err(Failed::context(log.display()))?;
        let err = out.try_clone().map_err(Failed::context(log.display()))?;
        let mut command = self.command(url, args);
        command.envs(variables.iter().copied());
        let child = command.stdout(Stdio::from(out)).stderr(Stdio::from(err)).spawn();
        let child = child.map_err(Failed::context(self.0.display()))?;
        Ok(RunningService { name: name.to_owned(), child })
    }
}

/// Service that runs until it is stopped. It is killed on drop.
#[derive(Debug)]
pub struct RunningService {
    name: String,
    child: Child,
}

impl RunningService {
    /// Returns the process id, or 0 if the service has exited.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.child.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or_default()
    }

    /// Returns the exit status, or `None` if the service is still running.
    ///
    /// # Errors
    /// Returns an error if the operating system does not report the status.
    pub fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().map_err(Failed::context(&self.name))
    }

    /// Sends a signal to the service.
    pub fn signal(&self, signal: Signal) {
        containers::signal(self.pid(), signal);
    }

    /// Kills the service with SIGKILL and waits until it has exited.
    ///
    /// # Errors
    /// Returns an error if the operating system does not allow it.
    pub async fn kill9(mut self) -> Result<()> {
        self.child.kill().await.map_err(Failed::context(&self.name))
    }

    /// Sends SIGTERM to the service, as a supervisor does, and waits until it has exited.
    ///
    /// # Errors
    /// Returns an error if the service does not exit in time, or exits with another status than 0.
    pub async fn stop(mut self) -> Result<()> {
        self.signal(Signal::TERM);
        match timeout(STOP_TIMEOUT, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(Failed(format!("{} after SIGTERM: {status}", self.name))),
            Ok(Err(error)) => Err(Failed(format!("{}: {error}", self.name))),
            Err(_) => {
                Err(Failed(format!("{} did not exit within {STOP_TIMEOUT:?} after SIGTERM", self.name)))
            }
        }
    }
}
