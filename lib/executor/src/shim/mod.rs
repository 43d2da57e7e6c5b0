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

mod carry;
mod exec;
mod life;
mod log;
mod output;
mod perform;
mod reaper;
mod signals;
mod transfer;

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::poll::{PollFd, PollFlags, PollTimeout};
use rustix::fs::Mode;
use rustix::io::Errno;
use schemas::isolation::Wall;
use tokio::net::unix::pipe;
use tokio::runtime::Builder;
use tokio::task::LocalSet;

use crate::folder::{Folder, Spec, Status};
use crate::isolation;
use crate::{cgroup, opened, processes};

/// Is set where a shim was started without huge pages, and what it starts is to have them: the allocator reads it before the
/// shim's first line.
pub(crate) const WITHOUT_HUGE_PAGES: &str = "MIMALLOC_ALLOW_THP";

/// Size of the file of complaints at which it starts again, in bytes.
const COMPLAINTS_BYTES: i64 = 64 * 1024;

/// The first descriptor that is not a standard stream.
const FIRST_INHERITED: i32 = 3;

/// Runs the container of a folder that an executor made, to its end. This process should do nothing else, and have
/// no children: its standard input and output are the pipes of that executor. An isolated container takes more programs than
/// one, and `stage` says which this is: whoever starts it first gives none.
///
/// It ends with failure if it could not do so and write down how the container ended; the reason is on the standard
/// error.
#[must_use]
pub fn run(container_dir: &Path, stage: Option<&OsStr>) -> ExitCode {
    let end = match stage.and_then(OsStr::to_str) {
        None => begin(container_dir),
        Some(isolation::INIT) => live_inside(container_dir),
        Some(isolation::PROGRAM) => return isolation::become_program(),
        Some(other) => Err(io::Error::other(format!(
            "{other:?} is no stage of a shim: use none, {}, or {}",
            isolation::INIT,
            isolation::PROGRAM
        ))),
    };
    end.unwrap_or_else(|error| {
        complain(&error);
        ExitCode::FAILURE
    })
}

/// What the files of containers are not, unless their programs say otherwise: writable by others.
const UMASK: Mode = Mode::WGRP.union(Mode::WOTH);

/// Where a container lives.
struct Home {
    /// Its folder, as this program reaches it.
    folder: Folder,
    /// Its work directory, as its programs see it.
    work: PathBuf,
}

fn begin(container_dir: &Path) -> io::Result<ExitCode> {
    let folder = Folder::new(container_dir.canonicalize()?);
    detach()?;
    if !told_to_go_on()? {
        return Ok(ExitCode::SUCCESS);
    }
    let spec = folder.spec()?;
    confine(&spec);
    match spec.plan.as_ref().filter(|plan| isolation::leaves_host(plan)) {
        Some(plan) => isolation::lead(plan),
        None => live(spec, Home { work: folder.work(), folder }),
    }
}

/// Is the first process of a container that has its own namespaces.
fn live_inside(container_dir: &Path) -> io::Result<ExitCode> {
    rustix::process::chdir(container_dir)?;
    // It was started by another path than that of its program, and would be called by that.
    rustix::thread::set_name(c"shim")?;
    // Whoever is root in the container owns its folder, and nothing on the way there.
    let folder = Folder::new(PathBuf::from("."));
    let spec = folder.spec()?;
    let plan = spec.plan.as_ref().ok_or_else(|| io::Error::other("this container is not isolated"))?;
    isolation::enter(plan, &spec.recipe.instance_guid.to_string())?;
    let work =
        if plan.has(Wall::Files) { isolation::WORK.into() } else { std::env::current_dir()?.join("work") };
    live(spec, Home { folder, work })
}

fn live(mut spec: Spec, home: Home) -> io::Result<ExitCode> {
    opened::in_shim(&mut spec.recipe)?;
    let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
    LocalSet::new().block_on(&runtime, life::live(home, spec)).map(|()| ExitCode::SUCCESS)
}

/// Waits until the executor has written the spec, and says so by the first order. `false` if the executor is gone: then
/// nobody wants the container.
fn told_to_go_on() -> io::Result<bool> {
    let (orders, events) = (io::stdin(), io::stdout());
    loop {
        let mut ends = [
            PollFd::new(orders.as_fd(), PollFlags::POLLIN),
            // Without a reader that is an error, which is always reported.
            PollFd::new(events.as_fd(), PollFlags::empty()),
        ];
        match nix::poll::poll(&mut ends, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        // An end of the orders is one, too: the shim was started by hand.
        match rustix::io::read(&orders, &mut [0; 1]) {
            Ok(_) => return Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let gone = |flags: PollFlags| flags.contains(PollFlags::POLLERR);
        if ends[1].revents().is_some_and(gone) {
            return Ok(false);
        }
    }
}

/// Leaves the session, the directory, the descriptors and the umask of the rep, and becomes the parent of all orphans below.
fn detach() -> io::Result<()> {
    // Of a rep that lets nobody else read its files, no user of a container could enter the folders that are made for it.
    rustix::process::umask(UMASK);
    close_fds::set_fds_cloexec(FIRST_INHERITED, &[]);
    match rustix::process::setsid() {
        // Who leads a group, as when started by hand, has what a session is for here.
        Ok(_) | Err(Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    rustix::process::chdir("/")?;
    Ok(())
}

/// Takes the marks and the share of the container upon itself, from where all that it starts inherits them. What can't
/// be had is complained of: then the other marks must do.
fn confine(spec: &Spec) {
    let try_to = |what: &str, done: io::Result<()>| {
        if let Err(error) = done {
            complain(&format!("cannot {what}: {error}"));
        }
    };
    let marked = processes::mark_self(&spec.recipe.instance_guid.to_string());
    try_to("mark the processes of the container by a limit", marked);
    if std::env::var_os(WITHOUT_HUGE_PAGES).is_some() {
        let given = nix::sys::prctl::set_thp_disable(false).map_err(io::Error::from);
        try_to("give the container huge pages", given);
    }
    if let Some(group) = &spec.cgroup {
        try_to("enter the control group of the container", cgroup::enter(group));
    }
    if let Some(plan) = &spec.plan {
        try_to("enter the groups that limit the container", plan.limits.enter());
    }
    if spec.nice > 0 {
        try_to("lower the priority of the container", be_nice(spec.nice));
    }
}

/// Raises the nice value of this program, and of its session where the scheduler shares the processor among sessions.
fn be_nice(by: i32) -> io::Result<()> {
    rustix::process::nice(by)?;
    match std::fs::write("/proc/self/autogroup", by.to_string()) {
        // There are no such groups here, or somebody else just changed one: the value of each process stands.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        other => other,
    }
}

/// Writes down how far the container came, and hints at it.
fn report(folder: &Folder, status: &Status) -> io::Result<()> {
    folder.write_status(status)?;
    hint()
}

/// Hints that there is something new to read in the folder.
fn hint() -> io::Result<()> {
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

/// Tells the executor what is wrong with the shim itself. If even that can't be written, there is nobody left to hear it.
pub(crate) fn complain(what: &dyn Display) {
    // What a container causes again and again must not fill the disk.
    let is_full = rustix::fs::fstat(io::stderr()).is_ok_and(|found| found.st_size > COMPLAINTS_BYTES);
    if is_full {
        rustix::fs::ftruncate(io::stderr(), 0).ok();
    }
    writeln!(io::stderr(), "{what}").ok();
}
