//! Shim: the program that runs one container, independently of the rep, until the container ends.
//!
//! ```text
//!   orders (standard input) ──▶ ┌──────┐ ──▶ state.json, log/
//!                               │ shim │ ──▶ a hint on events (standard output), which ends when the shim does
//!                               └──┬───┘
//!                   setup, action, monitor, and their descendants: all are descendants of the shim
//! ```
//!
//! The shim has a session of its own and is the subreaper of its descendants. If a program detaches itself,
//! it becomes a child of the shim. Therefore the shim has no child if and only if no process of the container
//! runs. The shim writes COMPLETED only when it has no child.

mod actions;
mod exec;
mod lifecycle;
mod log;
mod output;
mod reaper;
mod signals;
mod transfer;
mod transfer_client;

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::poll::{PollFd, PollFlags, PollTimeout};
use rustix::fs::Mode;
use rustix::io::Errno;
use schemas::isolation::IsolationLayer;
use tokio::net::unix::pipe;
use tokio::runtime::Builder;
use tokio::task::LocalSet;

use crate::folder::{Folder, Spec, Status};
use crate::isolation;
use crate::{cgroup, processes, shim_secrets};

/// Environment variable of a shim that was started without huge pages. The container's programs may still use
/// huge pages. The allocator reads the variable before `main` starts.
pub(crate) const ALLOW_THP_VARIABLE: &str = "MIMALLOC_ALLOW_THP";

/// Maximum size of the file with the shim's errors, in bytes. A larger file is truncated.
const MAX_ERROR_FILE_BYTES: i64 = 64 * 1024;

/// First descriptor that is not a standard stream.
const FIRST_NON_STDIO_FD: i32 = 3;

/// Runs the container of a folder that an executor created, until the container ends. This process should do
/// nothing else and have no children. Its standard input and output are the executor's pipes. An isolated
/// container requires several programs. `stage` selects one of these programs. The executor passes no
/// `stage`.
///
/// Returns a failure if the container could not be run or its result could not be recorded. In these cases,
/// the reason is written to standard error.
#[must_use]
pub fn run(container_dir: &Path, stage: Option<&OsStr>) -> ExitCode {
    let end = match stage.and_then(OsStr::to_str) {
        None => start(container_dir),
        Some(isolation::INIT) => run_init(container_dir),
        Some(isolation::PROGRAM) => return isolation::run_program(),
        Some(other) => Err(io::Error::other(format!(
            "invalid shim stage {other:?}: expected none, {}, or {}",
            isolation::INIT,
            isolation::PROGRAM
        ))),
    };
    end.unwrap_or_else(|error| {
        log_error(&error);
        ExitCode::FAILURE
    })
}

/// Umask of a container's programs, unless they change it: files are not writable by group and others.
const UMASK: Mode = Mode::WGRP.union(Mode::WOTH);

/// Folders of a container.
struct ContainerPaths {
    /// Folder of the container, as this program reaches it.
    folder: Folder,
    /// Work directory of the container, as its programs see it.
    work: PathBuf,
}

fn start(container_dir: &Path) -> io::Result<ExitCode> {
    let folder = Folder::new(container_dir.canonicalize()?);
    detach()?;
    if !wait_for_start_order()? {
        return Ok(ExitCode::SUCCESS);
    }
    let spec = folder.spec()?;
    apply_confinement(&spec);
    match spec.plan.as_ref().filter(|plan| isolation::leaves_host(plan)) {
        Some(plan) => isolation::run_outer(plan),
        None => run_container(spec, ContainerPaths { work: folder.work(), folder }),
    }
}

/// Runs as the first process of a container that has its own namespaces.
fn run_init(container_dir: &Path) -> io::Result<ExitCode> {
    rustix::process::chdir(container_dir)?;
    // Without this call, the process would have the name of the path by which it was started.
    rustix::thread::set_name(c"shim")?;
    // The container's root user owns the folder, but has no access to the parent folders. Therefore the path
    // is relative.
    let folder = Folder::new(PathBuf::from("."));
    let spec = folder.spec()?;
    let plan = spec.plan.as_ref().ok_or_else(|| io::Error::other("this container is not isolated"))?;
    isolation::enter(plan, &spec.recipe.instance_guid.to_string())?;
    let work = if plan.has(IsolationLayer::Files) {
        isolation::WORK_DIR.into()
    } else {
        std::env::current_dir()?.join("work")
    };
    run_container(spec, ContainerPaths { folder, work })
}

fn run_container(mut spec: Spec, home: ContainerPaths) -> io::Result<ExitCode> {
    shim_secrets::apply_to_recipe(&mut spec.recipe)?;
    let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
    LocalSet::new().block_on(&runtime, lifecycle::run(home, spec)).map(|()| ExitCode::SUCCESS)
}

/// Waits for the first order. The executor sends this order after it has written the spec. Returns `false` if
/// the executor is gone, because the container is not needed without the executor.
fn wait_for_start_order() -> io::Result<bool> {
    let (orders, events) = (io::stdin(), io::stdout());
    loop {
        let mut ends = [
            PollFd::new(orders.as_fd(), PollFlags::POLLIN),
            // No event is requested. The loss of the pipe's last reader is an error condition, which `poll`
            // always reports.
            PollFd::new(events.as_fd(), PollFlags::empty()),
        ];
        match nix::poll::poll(&mut ends, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        // The end of the pipe counts as an order. The pipe ends if an operator started the shim by hand.
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

/// Leaves the rep's session and working directory, closes the rep's descriptors in child processes, sets the
/// umask, and makes this process the subreaper of its descendants.
fn detach() -> io::Result<()> {
    // A rep may have a umask that makes its files private. With that umask, users of a container could not
    // enter the folders that are created for the container.
    rustix::process::umask(UMASK);
    close_fds::set_fds_cloexec(FIRST_NON_STDIO_FD, &[]);
    match rustix::process::setsid() {
        // If the shim was started by hand, it may be a process group leader. A process group leader needs no
        // new session here.
        Ok(_) | Err(Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    rustix::process::chdir("/")?;
    Ok(())
}

/// Applies the container's mark, groups and priority to this program. All programs that the shim starts
/// inherit these settings. A failure is logged, and the remaining settings still apply.
fn apply_confinement(spec: &Spec) {
    let try_to = |what: &str, done: io::Result<()>| {
        if let Err(error) = done {
            log_error(&format!("cannot {what}: {error}"));
        }
    };
    let marked = processes::mark_self(&spec.recipe.instance_guid.to_string());
    try_to("set the process mark of the container", marked);
    if std::env::var_os(ALLOW_THP_VARIABLE).is_some() {
        let given = nix::sys::prctl::set_thp_disable(false).map_err(io::Error::from);
        try_to("enable huge pages for the container", given);
    }
    if let Some(group) = &spec.cgroup {
        try_to("enter the control group of the container", cgroup::enter(group));
    }
    if let Some(plan) = &spec.plan {
        try_to("enter the limiting control groups of the container", plan.limits.enter());
    }
    if spec.nice > 0 {
        try_to("lower the priority of the container", raise_nice(spec.nice));
    }
}

/// Raises the nice value of this program. Also raises the nice value of its autogroup if the scheduler
/// divides the processor among sessions.
fn raise_nice(by: i32) -> io::Result<()> {
    rustix::process::nice(by)?;
    match std::fs::write("/proc/self/autogroup", by.to_string()) {
        // Autogroups are not available, or another process just changed one. The nice values of the processes
        // still apply.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        other => other,
    }
}

/// Writes the state of the container, and sends a hint about the change.
fn write_status(folder: &Folder, status: &Status) -> io::Result<()> {
    folder.write_status(status)?;
    send_hint()
}

/// Sends a hint that the folder has changed.
fn send_hint() -> io::Result<()> {
    match rustix::io::write(io::stdout(), b".") {
        // The executor is gone, or has not read many earlier hints. In both cases, the executor still reads
        // the state.
        Ok(_) | Err(Errno::PIPE | Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Waits for a stop order.
async fn wait_for_stop_order(orders: &pipe::Receiver) -> io::Result<()> {
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
fn open_orders() -> io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)
}

/// Logs an error of the shim itself for the executor. Ignores failures to write the error.
pub(crate) fn log_error(what: &dyn Display) {
    // A container could cause errors repeatedly, so the size of the file is limited.
    let is_full = rustix::fs::fstat(io::stderr()).is_ok_and(|found| found.st_size > MAX_ERROR_FILE_BYTES);
    if is_full {
        rustix::fs::ftruncate(io::stderr(), 0).ok();
    }
    writeln!(io::stderr(), "{what}").ok();
}
