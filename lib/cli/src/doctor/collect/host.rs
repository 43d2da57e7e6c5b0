//! Collects facts about this host's ability to be a cell. For this purpose, it runs a container in a
//! temporary folder in the same way as a rep.

use std::fs;
use std::path::Path;

use executor::process::{Executor, FIRST_ID, IsolationPolicy, Settings};
use host::serve::shim_command;
use rustix::process::geteuid;
use schemas::names::CellId;
use text::chain;

use explain::doctor::facts::{Fact, Host, Unknown};

/// Cell id for the trial container.
const TRIAL_CELL: &str = "doctor";
/// Mount point of cgroup version 2 on a host without version 1.
const CGROUP_ROOT: &str = "/sys/fs/cgroup";
/// Controllers of the control groups that a rep creates.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

pub(super) async fn collect() -> Fact<Host> {
    let skipped = |why: String| Unknown::Skipped(format!("can't run a trial container: {why}"));
    let folder = tempfile::Builder::new().prefix("muster-doctor-").tempdir();
    let folder = folder.map_err(|error| {
        skipped(format!("can't create a folder in {}: {error}", std::env::temp_dir().display()))
    })?;
    let cell = CellId::new(TRIAL_CELL).map_err(|error| skipped(chain(&error)))?;
    let shim = shim_command().map_err(|error| skipped(chain(&error)))?;
    let mut settings = Settings::new(folder.path().to_owned(), cell, "127.0.0.1", shim);
    settings.isolate = IsolationPolicy::BestEffort { first_id: FIRST_ID };
    let (executor, _changes) = Executor::open(settings).await.map_err(|error| skipped(chain(&error)))?;
    let isolation = executor.isolation();
    let is_root = geteuid().is_root();
    Ok(Host {
        isolation,
        is_root,
        namespace_restriction: namespace_restriction(is_root),
        cgroups: describe_cgroups(),
    })
}

/// Reads a numeric kernel setting.
fn numeric_setting(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the host setting that prevents this user from creating namespaces. `None` if there is no such
/// setting.
fn namespace_restriction(is_root: bool) -> Option<String> {
    let most = "/proc/sys/user/max_user_namespaces";
    if numeric_setting(most) == Some(0) {
        return Some("set sysctl user.max_user_namespaces above 0 (it is 0)".to_owned());
    }
    if is_root {
        return None;
    }
    if numeric_setting("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) {
        return Some("set sysctl kernel.unprivileged_userns_clone=1, or run the rep as root".to_owned());
    }
    if numeric_setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
        return Some(
            "set sysctl kernel.apparmor_restrict_unprivileged_userns=0, or add an AppArmor profile for muster \
             that allows userns, or run the rep as root"
                .to_owned(),
        );
    }
    None
}

/// Describes the control groups that this program can use.
fn describe_cgroups() -> String {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    if !Path::new(CGROUP_ROOT).join("cgroup.controllers").is_file() {
        let versions: Vec<&str> =
            CONTROLLERS.into_iter().filter(|name| Path::new(CGROUP_ROOT).join(name).is_dir()).collect();
        return match versions.as_slice() {
            [] => "none mounted".to_owned(),
            found => format!("version 1: {}", found.join(", ")),
        };
    }
    let Some(group) = own.lines().find_map(|line| line.strip_prefix("0::")) else {
        return "this process is in no group of version 2".to_owned();
    };
    let at = Path::new(CGROUP_ROOT).join(group.trim_start_matches('/'));
    let controllers = fs::read_to_string(at.join("cgroup.controllers")).unwrap_or_default();
    let given: Vec<&str> = CONTROLLERS
        .into_iter()
        .filter(|name| controllers.split_whitespace().any(|one| one == *name))
        .collect();
    let procs = rustix::fs::access(at.join("cgroup.procs"), rustix::fs::Access::WRITE_OK);
    let may = if procs.is_ok() { "may" } else { "may not" };
    let given = if given.is_empty() { "no controllers".to_owned() } else { given.join(", ") };
    format!("version 2: {group} with {given}; this user {may} create groups there")
}
