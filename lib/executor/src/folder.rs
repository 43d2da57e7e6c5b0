//! The folder of one container: what the executor and the shim tell each other, and what outlives both.
//!
//! | the file | who writes it | holds |
//! |---|---|---|
//! | `spec.json` | executor | what to run, on which ports; a folder without it is half-written |
//! | `state.json` | shim; the executor if the shim died | how far it came |
//! | `monitor.json` | shim | what its monitor found out |
//! | `orders`, `events` | | the named pipes between the two |
//! | `rep` | executor | the socket by which the shim has something be fetched and sent; only where that is asked for |
//! | `shim` | shim | the socket by which it is asked to run one more program |
//! | `log/` | shim | output, in files named after the offset of their first byte |
//! | `work/` | the container | its work directory |
//! | `shim.err` | shim | what the shim itself has to complain about |

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use schemas::container::{NetInfo, Recipe, RunResult};
use schemas::health::MonitorHealth;
use schemas::names::CellId;

use crate::isolation::Plan;

/// The name of the variable by which every process of a container is known: its value is the instance guid.
pub(crate) const MARKER: &str = "MUSTER_INSTANCE_GUID";
/// Largest file of its own that an executor reads back, in bytes: far above any spec or result.
const FILE_BYTES: u64 = 8 * 1024 * 1024;
/// How much of the end of `shim.err` is read, in bytes.
const COMPLAINT_BYTES: usize = 512;

/// What a shim needs to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// What to run.
    pub(crate) recipe: Recipe,
    /// The cell that it runs on.
    pub(crate) cell_id: CellId,
    /// Where it is reached.
    pub(crate) net: NetInfo,
    /// Which start of the host this was written in; none: unknown.
    pub(crate) boot: Option<String>,
    /// The control group that it runs in; none: none could be made.
    pub(crate) cgroup: Option<PathBuf>,
    /// How it is kept apart; none: it isn't.
    pub(crate) plan: Option<Plan>,
    /// By how much its processes are nicer than the rep.
    pub(crate) nice: i32,
    /// Size of one log file, in bytes.
    pub(crate) log_bytes: u64,
    /// Time between probes of the monitor before the first success.
    pub(crate) unhealthy_monitoring_interval: Duration,
    /// Time between probes of the monitor afterwards.
    pub(crate) healthy_monitoring_interval: Duration,
}

/// How far a container came, as its folder has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// The shim is up; setup, action and monitor are starting.
    Created,
    /// The action runs and, if there is a monitor, it is healthy.
    Running,
    /// Nothing of it runs.
    Completed(RunResult),
}

/// The folder of one container.
#[derive(Clone, Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// The folder at `path`, which need not exist.
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The work directory of the container.
    pub(crate) fn work(&self) -> PathBuf {
        self.0.join("work")
    }

    /// The folder of the log files.
    pub(crate) fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// Makes the folder with its pipes. Only its owner may look inside: the spec holds the environment.
    pub(crate) fn make(&self) -> io::Result<()> {
        for path in [self.0.clone(), self.work(), self.log()] {
            DirBuilder::new().mode(0o700).create(path)?;
        }
        for name in ["orders", "events"] {
            rustix::fs::mkfifoat(rustix::fs::CWD, self.0.join(name), Mode::RUSR | Mode::WUSR)?;
        }
        Ok(())
    }

    /// Writes the spec. From here on the folder is a container.
    pub(crate) fn write_spec(&self, spec: &Spec) -> io::Result<()> {
        self.replace("spec.json", &serde_json::to_vec(spec)?, false)
    }

    /// What to run.
    pub(crate) fn spec(&self) -> io::Result<Spec> {
        Ok(serde_json::from_slice(&read(&self.0.join("spec.json"))?)?)
    }

    /// Writes how far the container came. A task's end is synced to the disk, for nobody can find out again what it
    /// was; all else is told well enough by the fact that nothing runs after the host came back.
    pub(crate) fn write_status(&self, status: &Status) -> io::Result<()> {
        let sync = match status {
            Status::Created | Status::Running => false,
            Status::Completed(RunResult::Succeeded { .. }) => true,
            Status::Completed(RunResult::Failed { .. } | RunResult::Stopped) => false,
        };
        self.replace("state.json", &serde_json::to_vec(status)?, sync)
    }

    /// How far the container came; none if no shim ever came up.
    pub(crate) fn status(&self) -> io::Result<Option<Status>> {
        match read(&self.0.join("state.json")) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes what the monitor found out.
    pub(crate) fn write_health(&self, health: &MonitorHealth) -> io::Result<()> {
        self.replace("monitor.json", &serde_json::to_vec(health)?, false)
    }

    /// What the monitor found out; none if it was never probed.
    pub(crate) fn health(&self) -> io::Result<Option<MonitorHealth>> {
        match read(&self.0.join("monitor.json")) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The pipe on which the shim gives hints, as their reader.
    pub(crate) fn events_to_read(&self) -> io::Result<OwnedFd> {
        self.pipe("events", OFlags::RDONLY)
    }

    /// The same as their writer; fails if nobody reads.
    pub(crate) fn events_to_write(&self) -> io::Result<OwnedFd> {
        self.pipe("events", OFlags::WRONLY)
    }

    /// The pipe on which the shim takes orders. It is opened for both directions, so that it does not end when a rep
    /// does.
    pub(crate) fn orders_to_read(&self) -> io::Result<OwnedFd> {
        self.pipe("orders", OFlags::RDWR)
    }

    /// Tells the shim that the spec is written.
    pub(crate) fn order_start(&self) -> io::Result<()> {
        File::from(self.pipe("orders", OFlags::WRONLY)?).write_all(b"g")
    }

    /// Asks the shim to stop its container. A shim that is gone has nothing to stop, and a pipe that is full holds the
    /// order many times: both are fine.
    pub(crate) fn order_stop(&self) -> io::Result<()> {
        let result = self.pipe("orders", OFlags::WRONLY).and_then(|pipe| File::from(pipe).write_all(b"s"));
        match result {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            other => other,
        }
    }

    /// Where the shim writes what it has to complain about.
    pub(crate) fn complaints(&self) -> io::Result<File> {
        OpenOptions::new().append(true).create(true).mode(0o600).open(self.0.join("shim.err"))
    }

    /// The last thing that the shim complained about; empty if nothing.
    pub(crate) fn last_complaint(&self) -> String {
        let bytes = read(&self.0.join("shim.err")).unwrap_or_default();
        let tail = &bytes[bytes.len().saturating_sub(COMPLAINT_BYTES)..];
        let text = String::from_utf8_lossy(tail);
        text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
    }

    fn pipe(&self, name: &str, access: OFlags) -> io::Result<OwnedFd> {
        let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::open(self.0.join(name), flags, Mode::empty())?)
    }

    /// Replaces a file whole or not at all.
    fn replace(&self, name: &str, bytes: &[u8], sync: bool) -> io::Result<()> {
        let (new, path) = (self.0.join(format!("{name}.new")), self.0.join(name));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        if sync {
            file.sync_all()?;
        }
        fs::rename(&new, &path)?;
        if sync {
            File::open(&self.0)?.sync_all()?;
        }
        Ok(())
    }
}

/// A whole file of ours.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = vec![];
    File::open(path)?.take(FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_replaced_whole_and_a_missing_one_is_none() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::new(root.path().join("c"));
        folder.make().unwrap();
        assert_eq!(folder.status().unwrap(), None);
        for status in [Status::Created, Status::Completed(RunResult::Succeeded { result: "5".into() })] {
            folder.write_status(&status).unwrap();
            assert_eq!(folder.status().unwrap(), Some(status));
        }
        fs::write(root.path().join("c/state.json"), "{\"comp").unwrap();
        assert!(folder.status().is_err());
    }

    #[test]
    fn an_order_to_nobody_is_no_error() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::new(root.path().join("c"));
        folder.make().unwrap();
        folder.order_stop().unwrap();
    }
}
