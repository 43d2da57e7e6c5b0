//! Second of the three programs, and process 1 of its container. It builds the file system and enters the
//! container's user namespace.

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

/// Enters the container. The working directory must be the container's folder.
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
        // This program also reads `/proc` to find processes.
        fresh("proc", Path::new("/proc"), HARMLESS | MsFlags::MS_NOEXEC, "")?;
    }
    tree::make(plan)
}

/// Gives the folder to the container's root user, and the work directory to the user that runs its programs.
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
    // Programs of every user of the container start there. Other users of the host cannot reach the folder.
    fs::set_permissions("work", fs::Permissions::from_mode(0o1777))?;
    [".", "log"].into_iter().try_for_each(|path| give(path, 0, 0))
}

/// Creates a user namespace, waits until the outer program has written its id maps, and becomes root in it.
///
/// The kernel charges the resources of a user namespace to its owner as well. This program therefore first
/// becomes the host user that is root in the container. A container thus uses up no quota of root or of
/// another container.
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
