//! The second of the three programs, which is process 1 of its container: it makes the file system, and leaves the users
//! of the host.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread::sleep;
use std::time::Instant;

use nix::mount::MsFlags;
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{Gid, Uid, chown};
use rustix::thread::CapabilitySets;

use schemas::isolation::Wall;

use super::mounts::{HARMLESS, fresh, keep_to_ourselves};
use super::outer::{LIMIT, LOOK, named};
use super::plan::Plan;
use super::{kernel, loopback, tree, users};

/// Goes in, with the folder of the container as its working directory.
pub(crate) fn enter(plan: &Plan, name: &str) -> io::Result<()> {
    if plan.has(Wall::Hostname) {
        rustix::system::sethostname(name.as_bytes())
            .map_err(|error| named("name the container", error.into()))?;
    }
    if plan.own_network {
        loopback::up().map_err(|error| named("open the network of the container", error))?;
    }
    if plan.has(Wall::Files) {
        own_files(plan)?;
    }
    if let Some(first) = plan.first_id {
        give_away(plan, first)?;
        leave_users(first)?;
    }
    kernel::limit(plan.first_id.is_some())
}

fn own_files(plan: &Plan) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(|error| named("leave the mounts of the host", error.into()))?;
    keep_to_ourselves()?;
    if plan.has(Wall::Processes) {
        // This program looks for processes there, too.
        fresh("proc", Path::new("/proc"), HARMLESS | MsFlags::MS_NOEXEC, "")?;
    }
    tree::make(plan)
}

/// Gives the folder to who is root in the container, and what programs write in to who runs them.
fn give_away(plan: &Plan, first: u32) -> io::Result<()> {
    let owner = if plan.has(Wall::Files) {
        users::find(&Path::new(tree::ROOT).join("etc"), plan.user())?
    } else {
        users::find(Path::new("/etc"), "root")?
    };
    let give = |path: &str, user: u32, group: u32| {
        chown(path, Some(Uid::from_raw(first + user)), Some(Gid::from_raw(first + group)))
            .map_err(|error| named(&format!("give {path} to the container"), error.into()))
    };
    give("work", owner.id, owner.group)?;
    // Whoever runs a program of the container begins there, and nobody else comes so far.
    fs::set_permissions("work", fs::Permissions::from_mode(0o1777))?;
    [".", "log"].into_iter().try_for_each(|path| give(path, 0, 0))
}

/// Leaves the users of the host, waits until the outer program has said which ones there are instead, and is their root.
///
/// What the kernel counts for a namespace of users, it counts for the owner of that, too. So this program first becomes the user
/// of the host that is root in the container: a container uses up nothing of root's or of another container.
fn leave_users(first: u32) -> io::Result<()> {
    let owner = Uid::from_raw(first);
    rustix::thread::set_thread_res_uid(Uid::ROOT, owner, Uid::ROOT)?;
    let rights = rustix::thread::capabilities(None)?;
    rustix::thread::set_capabilities(None, CapabilitySets { effective: rights.permitted, ..rights })?;
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|error| named("leave the users of the host", error.into()))?;
    let end = Instant::now() + LIMIT;
    while fs::read_to_string("/proc/self/uid_map")?.trim().is_empty() {
        if Instant::now() > end {
            return Err(io::Error::other("the container got no users"));
        }
        sleep(LOOK);
    }
    let (user, group) = (Uid::ROOT, Gid::ROOT);
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)?;
    Ok(())
}
