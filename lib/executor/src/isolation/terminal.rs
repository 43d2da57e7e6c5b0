//! Terminals for programs. If the container has its own file system, the terminal is created in that file
//! system, so that programs can open it by name.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use schemas::exec::TerminalSize;
use schemas::isolation::IsolationLayer;

use super::outer::with_operation;
use super::plan::Plan;
use super::tree;

/// Pseudoterminal.
pub(crate) struct Pty {
    /// End of the terminal that the client uses.
    pub(crate) controller: OwnedFd,
    /// End of the terminal that the programs use.
    pub(crate) terminal: OwnedFd,
}

impl Pty {
    /// Creates a terminal for the container in this folder.
    pub(crate) fn open(folder: &Path, plan: Option<&Plan>, size: TerminalSize) -> io::Result<Self> {
        let make = || {
            let outer = match plan {
                Some(plan) if plan.has(IsolationLayer::Files) => {
                    let maker = folder.join(tree::ROOT).join("dev/pts/ptmx");
                    rustix::fs::open(maker, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?
                }
                Some(_) | None => openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?,
            };
            unlockpt(&outer)?;
            let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
            let inner = ioctl_tiocgptpeer(&outer, flags)?;
            resize(&outer, size)?;
            Ok(Self { controller: outer, terminal: inner })
        };
        make().map_err(|error| with_operation("create a terminal", error))
    }
}

/// Sets the size of a terminal. The kernel notifies the programs that use it.
pub(crate) fn resize(terminal: impl AsFd, TerminalSize { rows, columns }: TerminalSize) -> io::Result<()> {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(tcsetwinsize(terminal, size)?)
}
