//! The first of the three programs: it leaves the namespaces of the host, and waits for the container to end.

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

/// How long the two programs wait for each other at the most. Neither does more meanwhile than a few system calls.
pub(super) const LIMIT: Duration = Duration::from_secs(20);
/// How often they look.
pub(super) const LOOK: Duration = Duration::from_micros(200);

/// Whether this container leaves any namespace of the host.
pub(crate) fn leaves_host(plan: &Plan) -> bool {
    plan.has(Wall::Files) || !namespaces(plan).is_empty()
}

/// The namespaces that a container has to itself, but for that of mounts: its first process makes that, for this program
/// needs the processes of the host where they are.
fn namespaces(plan: &Plan) -> CloneFlags {
    let wanted = [
        (plan.has(Wall::Processes), CloneFlags::CLONE_NEWPID),
        (plan.has(Wall::Ipc), CloneFlags::CLONE_NEWIPC),
        (plan.has(Wall::Hostname), CloneFlags::CLONE_NEWUTS),
        (plan.own_network, CloneFlags::CLONE_NEWNET),
    ];
    wanted.into_iter().filter(|(has, _)| *has).map(|(_, flag)| flag).collect()
}

/// Starts the second program in namespaces of its own, and ends as it does.
pub(crate) fn lead(plan: &Plan) -> io::Result<ExitCode> {
    let mut flags = namespaces(plan);
    if plan.first_id.is_none() {
        // Who is not root may have the others only together with users of its own, of which it is then root.
        flags |= CloneFlags::CLONE_NEWUSER;
    }
    if plan.has(Wall::Memory) {
        // What keeps the container is in its groups, and should not be what is killed for want of memory. Where we may not
        // say so, that is what is larger.
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

/// Waits until the second program has left the users of the host, and says which ones it has instead: nobody in a namespace
/// may do that for more than one.
fn give_users(inner: &mut Child, first: u32) -> io::Result<()> {
    let pid = inner.id();
    // A new namespace has no users yet. This file, unlike the links in `ns`, needs no right to trace the process: a rep in a
    // container of Docker lacks that right.
    let has_left =
        || fs::read_to_string(format!("/proc/{pid}/uid_map")).is_ok_and(|map| map.trim().is_empty());
    let end = Instant::now() + LIMIT;
    // Of one that has ended nothing is said any more.
    while !has_left() {
        if inner.try_wait()?.is_some() {
            // It has said itself why.
            return Ok(());
        }
        if Instant::now() > end {
            return Err(io::Error::other("it did not leave those of the host"));
        }
        sleep(LOOK);
    }
    let map = users::map(first, IDS);
    // The second program goes on when it has its users, so they come last.
    fs::write(format!("/proc/{pid}/gid_map"), &map)?;
    fs::write(format!("/proc/{pid}/uid_map"), &map)
}

/// This program, once more.
pub(crate) fn again() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(std::env::args_os().next().unwrap_or_default());
    command
}

/// An error that says what could not be done.
pub(super) fn named(what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}
