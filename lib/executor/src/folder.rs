//! Folder of one container. The executor and the shim (the process that supervises the container) communicate
//! through the files in this folder. The files outlive both programs.
//!
//! | the file | who writes it | holds |
//! |---|---|---|
//! | `spec.json` | executor | recipe and ports; a folder without this file is incomplete |
//! | `state.json` | shim; the executor if the shim died | lifecycle state |
//! | `monitor.json` | shim | health reported by the monitor |
//! | `orders`, `events` | | the named pipes between the executor and the shim |
//! | `rep` | executor | the socket for the shim's requests to download and upload, if the recipe has any |
//! | `shim` | shim | the socket for requests to run an additional program |
//! | `log/` | shim | output, in files named after the offset of their first byte |
//! | `work/` | the container | its work directory |
//! | `shim.err` | shim | errors of the shim itself |

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

/// Environment variable that identifies every process of a container. Its value is the instance guid.
pub(crate) const MARKER: &str = "MUSTER_INSTANCE_GUID";
/// Maximum number of bytes read from a file of the folder. Every spec and every result is far smaller.
const MAX_FILE_BYTES: u64 = 8 * 1024 * 1024;
/// Number of bytes read from the end of `shim.err`.
const ERROR_TAIL_BYTES: usize = 512;

/// Specification of a container. The shim reads the specification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) recipe: Recipe,
    pub(crate) cell_id: CellId,
    /// Address and ports of the container.
    pub(crate) net: NetInfo,
    /// Boot id of the host when the spec was written. `None` if unknown.
    pub(crate) boot: Option<String>,
    /// Control group of the container. `None` if no group could be created.
    pub(crate) cgroup: Option<PathBuf>,
    /// Isolation of the container. `None` if it is not isolated.
    pub(crate) plan: Option<Plan>,
    /// Difference between the nice value of the shim and that of the rep.
    pub(crate) nice: i32,
    /// Size of one log file, in bytes.
    pub(crate) log_bytes: u64,
    /// Interval between probes of the monitor before the first success.
    pub(crate) unhealthy_monitoring_interval: Duration,
    /// Interval between probes of the monitor after the first success.
    pub(crate) healthy_monitoring_interval: Duration,
}

/// State of a container, as stored in its folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// The shim is up. Setup, action and monitor are starting.
    Created,
    /// The action runs. If the container has a monitor, the monitor has reported the container as healthy.
    Running,
    /// No process of the container runs.
    Completed(RunResult),
}

/// Folder of one container.
#[derive(Clone, Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Returns the folder at `path`, which need not exist.
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the container's work directory.
    pub(crate) fn work(&self) -> PathBuf {
        self.0.join("work")
    }

    /// Returns the path of the folder that contains the log files.
    pub(crate) fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// Creates the folder with its pipes. Only the owner of the folder may read it, since the spec contains
    /// the environment.
    pub(crate) fn make(&self) -> io::Result<()> {
        for path in [self.0.clone(), self.work(), self.log()] {
            DirBuilder::new().mode(0o700).create(path)?;
        }
        for name in ["orders", "events"] {
            rustix::fs::mkfifoat(rustix::fs::CWD, self.0.join(name), Mode::RUSR | Mode::WUSR)?;
        }
        Ok(())
    }

    /// Writes the spec. A folder with a spec counts as a container.
    pub(crate) fn write_spec(&self, spec: &Spec) -> io::Result<()> {
        self.replace("spec.json", &serde_json::to_vec(spec)?, false)
    }

    pub(crate) fn spec(&self) -> io::Result<Spec> {
        Ok(serde_json::from_slice(&read(&self.0.join("spec.json"))?)?)
    }

    /// Writes the state of the container. Syncs a successful result to the disk, because a lost result could
    /// not be determined again. The other states need no sync: after a reboot of the host, none of its
    /// containers runs.
    pub(crate) fn write_status(&self, status: &Status) -> io::Result<()> {
        let sync = match status {
            Status::Created | Status::Running => false,
            Status::Completed(RunResult::Succeeded { .. }) => true,
            Status::Completed(RunResult::Failed { .. } | RunResult::Stopped) => false,
        };
        self.replace("state.json", &serde_json::to_vec(status)?, sync)
    }

    /// Reads the state of the container. `None` if its shim never started.
    pub(crate) fn status(&self) -> io::Result<Option<Status>> {
        match read(&self.0.join("state.json")) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the health that the monitor reported.
    pub(crate) fn write_health(&self, health: &MonitorHealth) -> io::Result<()> {
        self.replace("monitor.json", &serde_json::to_vec(health)?, false)
    }

    /// Reads the health that the monitor reported. `None` if the monitor never probed.
    pub(crate) fn health(&self) -> io::Result<Option<MonitorHealth>> {
        match read(&self.0.join("monitor.json")) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the read end of the pipe on which the shim signals events.
    pub(crate) fn open_events_reader(&self) -> io::Result<OwnedFd> {
        self.open_pipe("events", OFlags::RDONLY)
    }

    /// Opens the write end of the pipe on which the shim signals events. Fails if no process reads the pipe.
    pub(crate) fn open_events_writer(&self) -> io::Result<OwnedFd> {
        self.open_pipe("events", OFlags::WRONLY)
    }

    /// Opens the pipe on which the shim receives orders. The pipe is opened for reading and writing, so that
    /// the shim does not receive an end of file when a rep exits.
    pub(crate) fn open_orders_reader(&self) -> io::Result<OwnedFd> {
        self.open_pipe("orders", OFlags::RDWR)
    }

    /// Notifies the shim that the spec is written.
    pub(crate) fn send_start(&self) -> io::Result<()> {
        File::from(self.open_pipe("orders", OFlags::WRONLY)?).write_all(b"g")
    }

    /// Orders the shim to stop its container. A missing shim is not an error. A full pipe is not an error
    /// either, because the pipe already holds many stop orders.
    pub(crate) fn send_stop(&self) -> io::Result<()> {
        let result =
            self.open_pipe("orders", OFlags::WRONLY).and_then(|pipe| File::from(pipe).write_all(b"s"));
        match result {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            other => other,
        }
    }

    /// Opens the file to which the shim writes its own errors.
    pub(crate) fn open_shim_errors(&self) -> io::Result<File> {
        OpenOptions::new().append(true).create(true).mode(0o600).open(self.0.join("shim.err"))
    }

    /// Returns the last error that the shim wrote. Empty if the shim wrote none.
    pub(crate) fn last_shim_error(&self) -> String {
        let bytes = read(&self.0.join("shim.err")).unwrap_or_default();
        let tail = &bytes[bytes.len().saturating_sub(ERROR_TAIL_BYTES)..];
        let text = String::from_utf8_lossy(tail);
        text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
    }

    fn open_pipe(&self, name: &str, access: OFlags) -> io::Result<OwnedFd> {
        let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::open(self.0.join(name), flags, Mode::empty())?)
    }

    /// Replaces a file atomically.
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

/// Reads a file written by an executor or shim.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = vec![];
    File::open(path)?.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_replaced_atomically_and_missing_status_is_none() {
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
    fn stop_order_without_shim_succeeds() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::new(root.path().join("c"));
        folder.make().unwrap();
        folder.send_stop().unwrap();
    }
}
