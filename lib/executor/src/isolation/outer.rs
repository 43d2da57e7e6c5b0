//! First of the three programs that start an isolated container. The program creates the namespaces and waits
//! for the end of the container.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use rustix::process::{getegid, geteuid};

use schemas::isolation::IsolationLayer;

use super::plan::Plan;
use super::users;
use crate::ids::RANGE_LEN;

/// Maximum time for which the first and the second program wait for each other. In this time, each program
/// makes only a few system calls.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);
/// Polling interval while the first two programs wait for each other.
pub(super) const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// Returns `true` if this container has at least one separate namespace.
pub(crate) fn leaves_host(plan: &Plan) -> bool {
    plan.has(IsolationLayer::Files) || !namespaces(plan).is_empty()
}

/// Returns the separate namespaces of the container, except for the mount namespace. The first process of the
/// container creates the mount namespace, because this program needs the host's view of `/proc`.
fn namespaces(plan: &Plan) -> CloneFlags {
    let wanted = [
        (plan.has(IsolationLayer::Processes), CloneFlags::CLONE_NEWPID),
        (plan.has(IsolationLayer::Ipc), CloneFlags::CLONE_NEWIPC),
        (plan.has(IsolationLayer::Hostname), CloneFlags::CLONE_NEWUTS),
        (plan.own_network, CloneFlags::CLONE_NEWNET),
    ];
    wanted.into_iter().filter(|(has, _)| *has).map(|(_, flag)| flag).collect()
}

/// Starts the second program in new namespaces, and exits with its result.
pub(crate) fn run_outer(plan: &Plan) -> io::Result<ExitCode> {
    let mut flags = namespaces(plan);
    if plan.first_id.is_none() {
        // Without root, the other namespaces require a user namespace. This program is root in the user
        // namespace.
        flags |= CloneFlags::CLONE_NEWUSER;
    }
    if plan.has(IsolationLayer::Memory) {
        // This shim is a member of the container's control groups, but the OOM killer should not choose the
        // shim. If setting the score is not permitted, the kernel chooses a process by its memory use.
        drop(fs::write("/proc/self/oom_score_adj", "-1000"));
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(flags).map_err(|error| with_operation("create namespaces", error.into()))?;
    if plan.first_id.is_none() {
        map_self_to_root(user, group)
            .map_err(|error| with_operation("become root of the user namespace", error))?;
    }
    let mut inner = reexec_command().args(std::env::args_os().skip(1)).arg(super::INIT).spawn()?;
    if let Some(first) = plan.first_id
        && let Err(error) = write_id_maps(&mut inner, first)
    {
        inner.kill()?;
        inner.wait()?;
        return Err(with_operation("write the id maps of the container", error));
    }
    let end = inner.wait()?;
    Ok(if end.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn map_self_to_root(user: u32, group: u32) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}

/// Waits until the second program has created its user namespace. Then writes the id maps of the namespace. A
/// process inside the namespace may map only one id, so this program must write the maps.
fn write_id_maps(inner: &mut Child, first: u32) -> io::Result<()> {
    let pid = inner.id();
    // A new namespace has an empty id map. The file with the map can be read without the permission to trace
    // the process, unlike the links in `ns`. A rep in a Docker container does not have that permission.
    let has_left =
        || fs::read_to_string(format!("/proc/{pid}/uid_map")).is_ok_and(|map| map.trim().is_empty());
    let end = Instant::now() + HANDSHAKE_TIMEOUT;
    // The loop also ends when the second program exits.
    while !has_left() {
        if inner.try_wait()?.is_some() {
            // The second program has already logged the reason.
            return Ok(());
        }
        if Instant::now() > end {
            return Err(io::Error::other("timed out waiting for its user namespace"));
        }
        sleep(POLL_INTERVAL);
    }
    let map = users::id_map(first, RANGE_LEN);
    // The second program continues as soon as its user ids are mapped, so the map of the user ids is written
    // last.
    fs::write(format!("/proc/{pid}/gid_map"), &map)?;
    fs::write(format!("/proc/{pid}/uid_map"), &map)
}

/// Returns a command that runs this program again.
pub(crate) fn reexec_command() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(std::env::args_os().next().unwrap_or_default());
    command
}

/// Adds the failed operation to an error.
pub(super) fn with_operation(what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}
