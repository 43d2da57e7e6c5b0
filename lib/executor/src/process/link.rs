//! Connection between the executor and one shim.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::io::Errno;
use tokio::net::unix::pipe::Receiver;

use crate::folder::{Folder, MARKER};
use crate::shim::ALLOW_THP_VARIABLE;

/// Variables of the rep's environment that a container may inherit.
const INHERITED_VARIABLES: [&str; 3] = ["PATH", "LANG", "TZ"];

/// Variable for huge pages: the allocator does not request them, and the kernel does not provide them. A shim
/// needs little memory. Clearing huge pages took three quarters of the time to start a shim, and huge pages
/// made up two fifths of a shim's memory.
const NO_HUGE_PAGES: (&str, &str) = (ALLOW_THP_VARIABLE, "0");

/// Newly started shim whose pipe is not watched yet.
pub(super) struct WaitingShim {
    events: OwnedFd,
    child: Child,
}

/// Connection to a shim, which may have ended.
pub(super) struct ShimLink {
    events: Receiver,
    /// Child process of the shim. `None` if an earlier rep started it.
    child: Option<Child>,
}

/// Starts the shim of a container, with the decrypted secrets in its environment. The shim waits for
/// [`WaitingShim::proceed`], and exits if this program exits earlier. The shim inherits its ends of both
/// pipes. An executor that opens the folder later can therefore detect immediately whether the shim is alive.
pub(super) fn start(
    shim: &[OsString],
    folder: &Folder,
    marker: &str,
    opened: Vec<(String, String)>,
) -> io::Result<WaitingShim> {
    let [program, args @ ..] = shim else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no shim program is configured"));
    };
    let events = folder.open_events_reader()?;
    let child = Command::new(program)
        .args(args)
        .arg(folder.path())
        .env_clear()
        .envs(
            INHERITED_VARIABLES
                .into_iter()
                .filter_map(|name| std::env::var_os(name).map(|value| (name, value))),
        )
        .envs(path_with_program_folder(program).map(|path| ("PATH", path)))
        .env(MARKER, marker)
        .envs(may_have_huge_pages().then_some(NO_HUGE_PAGES))
        .envs(opened)
        .stdin(Stdio::from(folder.open_orders_reader()?))
        .stdout(Stdio::from(folder.open_events_writer()?))
        .stderr(folder.open_shim_errors()?)
        .spawn()?;
    Ok(WaitingShim { events, child })
}

/// Returns `true` if this process may get huge pages. Its children inherit the setting.
fn may_have_huge_pages() -> bool {
    nix::sys::prctl::get_thp_disable().is_ok_and(|disabled| !disabled)
}

impl WaitingShim {
    /// Lets the shim continue. The caller must have written the spec of the container.
    pub(super) fn proceed(self, folder: &Folder) -> io::Result<Self> {
        match folder.send_start() {
            Ok(()) => Ok(self),
            Err(error) => self.end().and(Err(error)),
        }
    }

    /// Kills a shim that is still waiting.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Starts watching the shim's pipe.
    pub(super) fn watch(self) -> io::Result<ShimLink> {
        Ok(ShimLink { events: Receiver::from_owned_fd(self.events)?, child: Some(self.child) })
    }
}

impl ShimLink {
    /// Connects to the shim of a container that an earlier rep started. `None` if the shim is gone.
    pub(super) fn adopt(folder: &Folder) -> io::Result<Option<Self>> {
        let events = folder.open_events_reader()?;
        // If the pipe has had no writer since it was opened, its end is not reported as an event. The pipe
        // must therefore be read once.
        let mut hints = [0; 64];
        loop {
            match rustix::io::read(&events, &mut hints) {
                Ok(0) => return Ok(None),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(Self { events: Receiver::from_owned_fd(events)?, child: None }))
    }

    /// Waits for a hint that the state changed. Returns `false` if the shim is gone.
    pub(super) async fn hint(&self) -> io::Result<bool> {
        let mut hints = [0; 64];
        loop {
            self.events.readable().await?;
            match self.events.try_read(&mut hints) {
                Ok(count) => return Ok(count > 0),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reaps the shim. Blocks only briefly, because the end of the pipe means that the shim is about to exit.
    pub(super) fn reap(self) -> io::Result<()> {
        if let Some(mut child) = self.child {
            child.wait()?;
        }
        Ok(())
    }
}

/// Returns the search path with the folder of the shim's program appended. Programs that are shipped with the
/// shim are found by name in this folder.
fn path_with_program_folder(program: &OsStr) -> Option<OsString> {
    let folder = Path::new(program).parent().filter(|folder| !folder.as_os_str().is_empty())?;
    let known = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&known).chain([folder.to_owned()]);
    std::env::join_paths(folders).ok()
}
