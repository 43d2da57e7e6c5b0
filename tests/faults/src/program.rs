//! `muster`: as a service that runs, and as a command that answers.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use support::containers;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::failed::{Failed, Result};

/// How long a command may take at the most: a log of a million entries is imported, exported, verified.
const ENDS: Duration = Duration::from_secs(1_800);
/// How long a service may take to stop by itself.
const STOPS: Duration = Duration::from_secs(60);

/// The program that is tried.
#[derive(Clone, Debug)]
pub struct Binary(PathBuf);

impl Binary {
    /// The program at this path.
    ///
    /// # Errors
    /// There is none.
    pub fn new(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        match path.canonicalize() {
            Ok(path) if path.is_file() => Ok(Self(path)),
            Ok(_) | Err(_) => Err(Failed(format!("{} is no program: build it first", path.display()))),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn command(&self, url: &str, args: &[&str]) -> Command {
        let mut command = Command::from(support::program::muster(&self.0));
        command.args(args).env("MUSTER_NATS_URL", url).kill_on_drop(true);
        command
    }

    /// Runs a command to its end; answers its standard output.
    ///
    /// # Errors
    /// It ends with another status than 0, or not at all.
    pub async fn ask(&self, url: &str, args: &[&str]) -> Result<String> {
        let line = args.join(" ");
        let ran = timeout(ENDS, self.command(url, args).output()).await;
        let ran = ran.map_err(|_| Failed(format!("muster {line} does not end within {ENDS:?}")))?;
        let ran = ran.map_err(Failed::at(format!("muster {line}")))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if ran.status.success() {
            return Ok(text(&ran.stdout));
        }
        Err(Failed(format!("muster {line}: {}\n{}{}", ran.status, text(&ran.stdout), text(&ran.stderr))))
    }

    /// Starts a service with more environment variables. Its output is appended to a file.
    ///
    /// # Errors
    /// It doesn't start.
    pub fn start(
        &self,
        name: &str,
        url: &str,
        args: &[&str],
        variables: &[(&str, &str)],
        log: &Path,
    ) -> Result<Program> {
        let opened = File::options().create(true).append(true).open(log);
        let out = opened.map_err(Failed::at(log.display()))?;
        let err = out.try_clone().map_err(Failed::at(log.display()))?;
        let mut command = self.command(url, args);
        command.envs(variables.iter().copied());
        let child = command.stdout(Stdio::from(out)).stderr(Stdio::from(err)).spawn();
        let child = child.map_err(Failed::at(self.0.display()))?;
        Ok(Program { name: name.to_owned(), child })
    }
}

/// A service that runs until it is told to stop. Dropped, it is killed.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
}

impl Program {
    /// Its process id; 0 if it has ended.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.child.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or_default()
    }

    /// How it ended, if it did by itself.
    ///
    /// # Errors
    /// The operating system doesn't say.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().map_err(Failed::at(&self.name))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        containers::signal(self.pid(), signal);
    }

    /// Kills it at once, and waits for its end.
    ///
    /// # Errors
    /// The operating system doesn't let us.
    pub async fn kill9(mut self) -> Result<()> {
        self.child.kill().await.map_err(Failed::at(&self.name))
    }

    /// Asks it to end, as a supervisor does, and waits until it has.
    ///
    /// # Errors
    /// It doesn't, or with another status than 0.
    pub async fn stop(mut self) -> Result<()> {
        self.signal(Signal::TERM);
        match timeout(STOPS, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(Failed(format!("{} was asked to end, and did with {status}", self.name))),
            Ok(Err(error)) => Err(Failed(format!("{}: {error}", self.name))),
            Err(_) => Err(Failed(format!("{} does not end within {STOPS:?} of being asked to", self.name))),
        }
    }
}
