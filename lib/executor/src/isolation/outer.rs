//! First of the three programs. It creates the namespaces and waits for the container to end.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use rustix::process::{getegid, geteuid};

use schemas::isolation::Wall;

use super::plan::Plan;
use super::users;
use crate::ids::IDS;

/// Maximum time that the first two programs wait for each other. Each of them only makes a few system calls
/// in that time.
pub(super) const LIMIT: Duration = Duration::from_secs(20);
/// Polling interval of that wait.
pub(super) const LOOK: Duration = Duration::from_micros(200);

/// Returns `true` if this container leaves any namespace of the host.
pub(crate) fn leaves_host(plan: &Plan) -> bool {
    plan.has(Wall::Files) || !namespaces(plan).is_empty()
}

/// Returns the container's own namespaces except for the mount namespace. Its first process creates that one,
/// since this program needs the host's view of `/proc`.
fn namespaces(plan: &Plan) -> CloneFlags {
    let wanted = [
        (plan.has(Wall::Processes), CloneFlags::CLONE_NEWPID),
        (plan.has(Wall::Ipc), CloneFlags::CLONE_NEWIPC),
        (plan.has(Wall::Hostname), CloneFlags::CLONE_NEWUTS),
        (plan.own_network, CloneFlags::CLONE_NEWNET),
    ];
    wanted.into_iter().filter(|(has, _)| *has).map(|(_, flag)| flag).collect()
}

/// Starts the second program in new namespaces, and exits with its result.
pub(crate) fn lead(plan: &Plan) -> io::Result<ExitCode> {
    let mut flags = namespaces(plan);
    if plan.first_id.is_none() {
        // Without root the other namespaces require a user namespace, in which this program is then root.
        flags |= CloneFlags::CLONE_NEWUSER;
    }
    if plan.has(Wall::Memory) {
        // This shim is in the container's groups and should not be chosen by the OOM killer. If setting the
        // score is not permitted, the kernel chooses by size.
        drop(fs::write("/proc/self/oom_score_adj", "-1000"));
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(flags).map_err(|error| named("leave the namespaces of the host", error.into()))?;
    if plan.first_id.is_none() {
        be_root_of_oneself(user, group).map_err(|error| named("be root of a namespace", error))?;
    }
    let mut inner = again().args(std::env::args_os().skip(1)).arg(super::INIT).spawn()?;
    if let Some(first) = plan.first_id
        && let Err(error) = give_users(&mut inner, first)
    {
        inner.kill()?;
        inner.wait()?;
        return Err(named("give the container its users", error));
    }
    let end = inner.wait()?;
    Ok(if end.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn be_root_of_oneself(user: u32, group: u32) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}

/// Waits until the second program has created its user namespace, and writes its id maps. A process inside
/// the namespace may map one id only.
fn give_users(inner: &mut Child, first: u32) -> io::Result<()> {
    let pid = inner.id();
    // A new namespace has an empty map. Unlike the links in `ns`, this file needs no permission to trace the
    // process, which a rep in a Docker container lacks.
    let has_left =
        || fs::read_to_string(format!("/proc/{pid}/uid_map")).is_ok_and(|map| map.trim().is_empty());
    let end = Instant::now() + LIMIT;
    // Polling stops when the program exits.
    while !has_left() {
        if inner.try_wait()?.is_some() {
            // The second program has logged the reason.
            return Ok(());
        }
        if Instant::now() > end {
            return Err(io::Error::other("it did not leave those of the host"));
        }
        sleep(LOOK);
    }
    let map = users::map(first, IDS);
    // The second program continues as soon as it has user ids, so they are written last.
    fs::write(format!("/proc/{pid}/gid_map"), &map)?;
    fs::write(format!("/proc/{pid}/uid_map"), &map)
}

/// Returns a command that runs this program again.
pub(crate) fn again() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(std::env::args_os().next().unwrap_or_default());
    command
}

/// Adds the failed operation to an error.
pub(super) fn named(what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}
