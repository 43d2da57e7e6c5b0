//! Collects facts about this host as a cell. It runs a container as a rep would, in a temporary folder.

use std::fs;
use std::path::Path;

use executor::process::{Executor, FIRST_ID, Isolate, Settings};
use rustix::process::geteuid;
use schemas::names::CellId;

use super::super::facts::{Asked, Host, Unknown};
use crate::error::chain;
use crate::serve::shim_command;

/// Cell id of the trial.
const CELL: &str = "doctor";
/// Mount point of cgroup version 2 on a host without version 1.
const UNIFIED: &str = "/sys/fs/cgroup";
/// Controllers of the control groups that a rep creates.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

pub(super) async fn host() -> Asked<Host> {
    let skipped = |why: String| Unknown::Skipped(format!("no container could be tried here: {why}"));
    let folder = tempfile::Builder::new().prefix("muster-doctor-").tempdir();
    let folder = folder.map_err(|error| {
        skipped(format!("no folder can be made in {}: {error}", std::env::temp_dir().display()))
    })?;
    let cell = CellId::new(CELL).map_err(|error| skipped(chain(&error)))?;
    let shim = shim_command().map_err(|error| skipped(chain(&error)))?;
    let mut settings = Settings::new(folder.path().to_owned(), cell, "127.0.0.1", shim);
    settings.isolate = Isolate::WhereItCan { first_id: FIRST_ID };
    let (executor, _changes) = Executor::open(settings).await.map_err(|error| skipped(chain(&error)))?;
    let isolation = executor.isolation();
    let is_root = geteuid().is_root();
    Ok(Host { isolation, is_root, no_namespaces: no_namespaces(is_root), groups: groups() })
}

/// Reads a numeric kernel setting.
fn setting(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the host setting that prevents this user from creating namespaces, if there is one.
fn no_namespaces(is_root: bool) -> Option<String> {
    let most = "/proc/sys/user/max_user_namespaces";
    if setting(most) == Some(0) {
        return Some("sysctl user.max_user_namespaces above 0: it is 0".to_owned());
    }
    if is_root {
        return None;
    }
    if setting("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) {
        return Some("sysctl kernel.unprivileged_userns_clone=1, or run the rep as root".to_owned());
    }
    if setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
        return Some(
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for muster that allows userns, or run the rep as root".to_owned(),
        );
    }
    None
}

/// Describes the control groups that this program can use.
fn groups() -> String {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    if !Path::new(UNIFIED).join("cgroup.controllers").is_file() {
        let versions: Vec<&str> =
            CONTROLLERS.into_iter().filter(|name| Path::new(UNIFIED).join(name).is_dir()).collect();
        return match versions.as_slice() {
            [] => "none are mounted".to_owned(),
            found => format!("of version 1: {}", found.join(", ")),
        };
    }
    let Some(group) = own.lines().find_map(|line| line.strip_prefix("0::")) else {
        return "this program is in none of version 2".to_owned();
    };
    let at = Path::new(UNIFIED).join(group.trim_start_matches('/'));
    let controllers = fs::read_to_string(at.join("cgroup.controllers")).unwrap_or_default();
    let given: Vec<&str> = CONTROLLERS
        .into_iter()
        .filter(|name| controllers.split_whitespace().any(|one| one == *name))
        .collect();
    let procs = rustix::fs::access(at.join("cgroup.procs"), rustix::fs::Access::WRITE_OK);
    let may = if procs.is_ok() { "this user may make groups there" } else { "this user may make none there" };
    let given = if given.is_empty() { "no controllers".to_owned() } else { given.join(", ") };
    format!("in {group} of version 2 with {given}, {may}")
}
