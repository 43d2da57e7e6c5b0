//! The tie between the executor and one shim.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::io::Errno;
use tokio::net::unix::pipe::Receiver;

use crate::folder::{Folder, MARKER};
use crate::shim::WITHOUT_HUGE_PAGES;

/// What a container may inherit of the rep's environment.
const INHERITED: [&str; 3] = ["PATH", "LANG", "TZ"];

/// Has the allocator ask for no huge pages, and the kernel give none. A shim is small: clearing them was three quarters of the
/// work of starting one, and they were two fifths of its memory.
const NO_HUGE_PAGES: (&str, &str) = (WITHOUT_HUGE_PAGES, "0");

/// A shim that was started here, before its pipe is watched.
pub(super) struct Started {
    events: OwnedFd,
    child: Child,
}

/// A shim that may be alive.
pub(super) struct Link {
    events: Receiver,
    /// The shim as our child; none if an earlier rep started it.
    child: Option<Child>,
}

/// Starts the shim of a container, with the secrets that were opened for it. It waits for [`Started::go`], and ends with
/// this program until then. It has its ends of both pipes from birth, so
/// whoever opens the folder later sees at once whether it is alive.
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

/// Whether huge pages are given to this process. Who has none has none to give.
fn may_have_huge_pages() -> bool {
    nix::sys::prctl::get_thp_disable().is_ok_and(|disabled| !disabled)
}

impl Started {
    /// Has the shim go on: the spec of its container is written.
    pub(super) fn go(self, folder: &Folder) -> io::Result<Self> {
        match folder.order_start() {
            Ok(()) => Ok(self),
            Err(error) => self.end().and(Err(error)),
        }
    }

    /// Ends a shim that was not told to go on.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Begins to watch it.
    pub(super) fn link(self) -> io::Result<Link> {
        Ok(Link { events: Receiver::from_owned_fd(self.events)?, child: Some(self.child) })
    }
}

impl Link {
    /// The shim of an earlier rep's container; none if it is gone.
    pub(super) fn adopt(folder: &Folder) -> io::Result<Option<Self>> {
        let events = folder.events_to_read()?;
        // A pipe that never had a writer in our time is not reported as ended: it must be asked once.
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

    /// Waits for a hint that the state is worth reading; false if the shim is gone.
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

    /// Takes note of a shim's end, so that nothing is left of it in the process table. Blocks, though not for long:
    /// its pipe has ended already.
    pub(super) fn bury(self) -> io::Result<()> {
        if let Some(mut child) = self.child {
            child.wait()?;
        }
        Ok(())
    }
}

/// The search path with the folder of the shim's program behind it: what comes with this program is found by name.
fn path_with(program: &OsStr) -> Option<OsString> {
    let folder = Path::new(program).parent().filter(|folder| !folder.as_os_str().is_empty())?;
    let known = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&known).chain([folder.to_owned()]);
    std::env::join_paths(folders).ok()
}
