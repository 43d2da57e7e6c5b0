//! Second of the three programs that start a container. It is process 1 of the container, builds the file
//! system, and enters the container's user namespace.

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

use schemas::isolation::IsolationLayer;

use super::mounts::{NOSUID_NODEV, make_private, mount_kernel_fs};
use super::outer::{HANDSHAKE_TIMEOUT, POLL_INTERVAL, with_operation};
use super::plan::Plan;
use super::{kernel, loopback, tree, users};

/// Enters the container. The working directory must be the container's folder.
pub(crate) fn enter(plan: &Plan, name: &str) -> io::Result<()> {
    if plan.has(IsolationLayer::Hostname) {
        rustix::system::sethostname(name.as_bytes())
            .map_err(|error| with_operation("set the hostname of the container", error.into()))?;
    }
    if plan.own_network {
        loopback::bring_up()
            .map_err(|error| with_operation("bring up the loopback device of the container", error))?;
    }
    if plan.has(IsolationLayer::Files) {
        build_file_system(plan)?;
    }
    if let Some(first) = plan.first_id {
        chown_folders(plan, first)?;
        enter_user_namespace(first)?;
    }
    kernel::write_limits(plan.first_id.is_some())
}

fn build_file_system(plan: &Plan) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)
        .map_err(|error| with_operation("create a mount namespace", error.into()))?;
    make_private()?;
    if plan.has(IsolationLayer::Processes) {
        // This program also reads `/proc` to find processes.
        mount_kernel_fs("proc", Path::new("/proc"), NOSUID_NODEV | MsFlags::MS_NOEXEC, "")?;
    }
    tree::build(plan)
}

/// Changes the owners of folders. The container's folder gets the container's root user. The work directory
/// gets the user that runs the programs.
fn chown_folders(plan: &Plan, first: u32) -> io::Result<()> {
    let owner = if plan.has(IsolationLayer::Files) {
        users::find(&Path::new(tree::ROOT).join("etc"), plan.default_user())?
    } else {
        users::find(Path::new("/etc"), "root")?
    };
    let give = |path: &str, user: u32, group: u32| {
        chown(path, Some(Uid::from_raw(first + user)), Some(Gid::from_raw(first + group)))
            .map_err(|error| with_operation(&format!("change the owner of {path}"), error.into()))
    };
    give("work", owner.id, owner.group)?;
    // Programs of every user of the container start in the work directory. Users of the host cannot reach the
    // work directory, because they have no access to the container's folder.
    fs::set_permissions("work", fs::Permissions::from_mode(0o1777))?;
    [".", "log"].into_iter().try_for_each(|path| give(path, 0, 0))
}

/// Creates a user namespace, waits until the outer program has written its id maps, and becomes root in the
/// namespace.
///
/// The kernel also charges the resources of a user namespace to the owner of the namespace. Before it creates
/// the namespace, this program therefore becomes the host user that is root in the container. As a result, a
/// container uses up no quota of the host's root user or of another container.
fn enter_user_namespace(first: u32) -> io::Result<()> {
    let owner = Uid::from_raw(first);
    rustix::thread::set_thread_res_uid(Uid::ROOT, owner, Uid::ROOT)?;
    let rights = rustix::thread::capabilities(None)?;
    rustix::thread::set_capabilities(None, CapabilitySets { effective: rights.permitted, ..rights })?;
    unshare(CloneFlags::CLONE_NEWUSER)
        .map_err(|error| with_operation("create a user namespace", error.into()))?;
    let end = Instant::now() + HANDSHAKE_TIMEOUT;
    while fs::read_to_string("/proc/self/uid_map")?.trim().is_empty() {
        if Instant::now() > end {
            return Err(io::Error::other("timed out waiting for the id maps of the container"));
        }
        sleep(POLL_INTERVAL);
    }
    let (user, group) = (Uid::ROOT, Gid::ROOT);
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)?;
    Ok(())
}
