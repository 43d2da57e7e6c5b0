//! Connection between the executor and one shim.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::io::Errno;
use tokio::net::unix::pipe::Receiver;

use crate::folder::{Folder, MARKER};
use crate::shim::WITHOUT_HUGE_PAGES;

/// Variables of the rep's environment that a container may inherit.
const INHERITED: [&str; 3] = ["PATH", "LANG", "TZ"];

/// Variable that stops the allocator from requesting huge pages and the kernel from providing them. A shim is
/// small: clearing huge pages took three quarters of the time to start one, and they made up two fifths of
/// its memory.
const NO_HUGE_PAGES: (&str, &str) = (WITHOUT_HUGE_PAGES, "0");

/// Newly started shim whose pipe is not watched yet.
pub(super) struct Started {
    events: OwnedFd,
    child: Child,
}

/// Connection to a shim that may be alive.
pub(super) struct Link {
    events: Receiver,
    /// Child process of the shim. `None` if an earlier rep started it.
    child: Option<Child>,
}

/// Starts the shim of a container, with the decrypted secrets in its environment. The shim waits for
/// [`Started::go`], and exits if this program exits before. It inherits its ends of both pipes, so an
/// executor that opens the folder later sees at once whether the shim is alive.
pub(super) fn start(
    shim: &[OsString],
    folder: &Folder,
    marker: &str,
    opened: Vec<(String, String)>,
) -> io::Result<Started> {
    let [program, args @ ..] = shim else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no program is set to start a shim"));
    };
    let events = folder.events_to_read()?;
    let child = Command::new(program)
        .args(args)
        .arg(folder.path())
        .env_clear()
        .envs(INHERITED.into_iter().filter_map(|name| std::env::var_os(name).map(|value| (name, value))))
        .envs(path_with(program).map(|path| ("PATH", path)))
        .env(MARKER, marker)
        .envs(may_have_huge_pages().then_some(NO_HUGE_PAGES))
        .envs(opened)
        .stdin(Stdio::from(folder.orders_to_read()?))
        .stdout(Stdio::from(folder.events_to_write()?))
        .stderr(folder.complaints()?)
        .spawn()?;
    Ok(Started { events, child })
}

/// Returns `true` if this process may get huge pages. If they are disabled here, its children do not get any
/// either.
fn may_have_huge_pages() -> bool {
    nix::sys::prctl::get_thp_disable().is_ok_and(|disabled| !disabled)
}

impl Started {
    /// Lets the shim continue. The spec of its container must be written.
    pub(super) fn go(self, folder: &Folder) -> io::Result<Self> {
        match folder.order_start() {
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
    pub(super) fn link(self) -> io::Result<Link> {
        Ok(Link { events: Receiver::from_owned_fd(self.events)?, child: Some(self.child) })
    }
}

impl Link {
    /// Connects to the shim of an earlier rep's container. `None` if it is gone.
    pub(super) fn adopt(folder: &Folder) -> io::Result<Option<Self>> {
        let events = folder.events_to_read()?;
        // A pipe without a writer since it was opened is not reported as ended, so it must be read once.
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

    /// Reaps the shim. Blocks briefly: the shim is about to exit, since its pipe has ended.
    pub(super) fn bury(self) -> io::Result<()> {
        if let Some(mut child) = self.child {
            child.wait()?;
        }
        Ok(())
    }
}

/// Returns the search path with the folder of the shim's program appended, so that programs shipped with it
/// are found by name.
fn path_with(program: &OsStr) -> Option<OsString> {
    let folder = Path::new(program).parent().filter(|folder| !folder.as_os_str().is_empty())?;
    let known = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&known).chain([folder.to_owned()]);
    std::env::join_paths(folders).ok()
}
