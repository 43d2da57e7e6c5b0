//! Shim: the program that runs one container until it ends, independently of the rep.
//!
//! ```text
//!   orders (standard input) ──▶ ┌──────┐ ──▶ state.json, log/
//!                               │ shim │ ──▶ a hint on events (standard output), which ends when the shim does
//!                               └──┬───┘
//!                   setup, action, monitor, and their descendants: all are descendants of the shim
//! ```
//!
//! The shim has a session of its own and is the subreaper of its descendants, so a program that detaches
//! itself becomes its child. It therefore has no child exactly when nothing of the container runs. Only then
//! it writes COMPLETED.

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

/// Environment variable of a shim that was started without huge pages although its programs may use them. The
/// allocator reads it before `main` starts.
pub(crate) const WITHOUT_HUGE_PAGES: &str = "MIMALLOC_ALLOW_THP";

/// Maximum size of the file with the shim's errors, in bytes. The file is truncated beyond it.
const COMPLAINTS_BYTES: i64 = 64 * 1024;

/// First descriptor that is not a standard stream.
const FIRST_INHERITED: i32 = 3;

/// Runs the container of a folder that an executor created, until it ends. This process should do nothing
/// else and have no children. Its standard input and output are the executor's pipes. An isolated container
/// requires several programs, and `stage` selects one of them. The executor passes none.
///
/// It fails if it could not run the container and record its result. The reason is written to standard error.
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

/// Umask of a container's programs, unless they change it: files are not writable by group and others.
const UMASK: Mode = Mode::WGRP.union(Mode::WOTH);

/// Folders of a container.
struct Home {
    /// Folder of the container, as this program reaches it.
    folder: Folder,
    /// Work directory of the container, as its programs see it.
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

/// Runs as the first process of a container with namespaces of its own.
fn live_inside(container_dir: &Path) -> io::Result<ExitCode> {
    rustix::process::chdir(container_dir)?;
    // The name would otherwise be that of the path it was started by, not that of its program.
    rustix::thread::set_name(c"shim")?;
    // Root of the container owns the folder, but has no access to the folders above it.
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

/// Waits for the first order, which the executor sends after it wrote the spec. Returns `false` if the
/// executor is gone, since the container is not needed then.
fn told_to_go_on() -> io::Result<bool> {
    let (orders, events) = (io::stdin(), io::stdout());
    loop {
        let mut ends = [
            PollFd::new(orders.as_fd(), PollFlags::POLLIN),
            // A pipe without a reader is an error condition, which is always reported.
            PollFd::new(events.as_fd(), PollFlags::empty()),
        ];
        match nix::poll::poll(&mut ends, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        // The end of the pipe counts as an order, too. It occurs if the shim was started by hand.
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

/// Leaves the rep's session, directory, descriptors and umask, and becomes the subreaper of its descendants.
fn detach() -> io::Result<()> {
    // With the umask of a rep that makes its files private, users of a container could not enter the folders
    // that are created for it.
    rustix::process::umask(UMASK);
    close_fds::set_fds_cloexec(FIRST_INHERITED, &[]);
    match rustix::process::setsid() {
        // A process group leader, as when the shim is started by hand, does not need a session.
        Ok(_) | Err(Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    rustix::process::chdir("/")?;
    Ok(())
}

/// Applies the container's mark, groups and priority to this program. All programs that it starts inherit
/// them. A failure is logged, and the remaining settings still apply.
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

/// Raises the nice value of this program, and that of its autogroup if the scheduler divides the processor
/// among sessions.
fn be_nice(by: i32) -> io::Result<()> {
    rustix::process::nice(by)?;
    match std::fs::write("/proc/self/autogroup", by.to_string()) {
        // Autogroups are not available, or another process just changed one. The nice values of the processes
        // still apply.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        other => other,
    }
}

/// Writes the state of the container, and hints at it.
fn report(folder: &Folder, status: &Status) -> io::Result<()> {
    folder.write_status(status)?;
    hint()
}

/// Sends a hint that the folder has changed.
fn hint() -> io::Result<()> {
    match rustix::io::write(io::stdout(), b".") {
        // The executor is gone, or has many unread hints. It reads the state in both cases.
        Ok(_) | Err(Errno::PIPE | Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Waits for a stop order.
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

/// Opens the pipe of orders, which is standard input.
fn orders() -> io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)
}

/// Logs an error of the shim itself for the executor. A failure to write it is ignored.
pub(crate) fn complain(what: &dyn Display) {
    // Errors that a container causes repeatedly must not fill the disk.
    let is_full = rustix::fs::fstat(io::stderr()).is_ok_and(|found| found.st_size > COMPLAINTS_BYTES);
    if is_full {
        rustix::fs::ftruncate(io::stderr(), 0).ok();
    }
    writeln!(io::stderr(), "{what}").ok();
}
