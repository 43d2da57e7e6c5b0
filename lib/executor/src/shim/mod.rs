//! The shim: the program that runs one container to its end, whoever else lives or dies.
//!
//! ```text
//!   orders (standard input) ──▶ ┌──────┐ ──▶ state.json, log/
//!                               │ shim │ ──▶ a hint on events (standard output), which ends when the shim does
//!                               └──┬───┘
//!                   setup, action, monitor, and whatever they start: all are its descendants
//! ```
//!
//! It has a session of its own and is the subreaper of all that it starts: a program that detaches itself becomes its
//! child. So it has no child exactly when nothing of the container runs, and only then it writes COMPLETED.

mod life;
mod log;
mod output;
mod perform;
mod reaper;

use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;

use rustix::io::Errno;
use tokio::net::unix::pipe;
use tokio::runtime::Builder;
use tokio::task::LocalSet;

use crate::folder::{Folder, Status};

/// Runs the container of a folder that an executor made, to its end. This process should do nothing else, and have
/// no children: its standard input and output are the pipes of that executor.
///
/// It ends with failure if it could not do so and write down how the container ended; the reason is on the standard
/// error.
#[must_use]
pub fn run(container_dir: &Path) -> ExitCode {
    match serve(container_dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn serve(container_dir: &Path) -> io::Result<()> {
    let folder = Folder::new(container_dir.canonicalize()?);
    detach()?;
    let spec = folder.spec()?;
    let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
    LocalSet::new().block_on(&runtime, life::live(folder, spec))
}

/// Leaves the session and the directory of the rep, and becomes the parent of all orphans below.
fn detach() -> io::Result<()> {
    match rustix::process::setsid() {
        // Who leads a group, as when started by hand, has what a session is for here.
        Ok(_) | Err(Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    rustix::process::chdir("/")?;
    Ok(())
}

/// Writes down how far the container came, and hints at it.
fn report(folder: &Folder, status: &Status) -> io::Result<()> {
    folder.write_status(status)?;
    match rustix::io::write(io::stdout(), b".") {
        // Nobody listens at present, or has many hints to read already: whoever comes reads the state.
        Ok(_) | Err(Errno::PIPE | Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Waits until somebody orders a stop.
async fn stop_ordered(orders: &pipe::Receiver) -> io::Result<()> {
    loop {
        orders.readable().await?;
        match orders.try_read(&mut [0; 64]) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// The pipe of orders, which is our standard input.
fn orders() -> io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)
}

/// Tells the executor what is wrong with the shim itself. If even that can't be written, there is nobody left to tell.
fn complain(what: &dyn Display) {
    writeln!(io::stderr(), "{what}").ok();
}
