//! Processes and tasks of the load: small programs that really run.

use std::path::Path;

use schemas::definition::{DesiredLrp, DesiredTask};
use schemas::names::{ProcessGuid, TaskGuid};
use schemas::spec;
use serde_json::{Value, json};

use crate::error::{Failed, Result};
use crate::recording_client::DOMAIN;

/// Returns a process guid.
///
/// # Errors
/// Returns an error if the name is not a valid process guid.
pub fn process(name: &str) -> Result<ProcessGuid> {
    ProcessGuid::new(name).map_err(Failed::context(name))
}

/// Returns a task guid.
///
/// # Errors
/// Returns an error if the name is not a valid task guid.
pub fn task_guid(name: &str) -> Result<TaskGuid> {
    TaskGuid::new(name).map_err(Failed::context(name))
}

/// Returns a process that runs forever. A different `version` gives a different definition.
///
/// # Errors
/// Returns an error if the name is not a valid process guid.
pub fn sleeper(name: &str, instances: u32, version: u64) -> Result<DesiredLrp> {
    let env = json!([{"name": "VERSION", "value": version.to_string()}]);
    lrp(name, instances, &json!({"run": {"path": "sleep", "args": ["1000000"], "env": env}}))
}

/// Returns a process that crashes shortly after each start.
///
/// # Errors
/// Returns an error if the name is not a valid process guid.
pub fn crasher(name: &str) -> Result<DesiredLrp> {
    lrp(name, 1, &json!({"run": {"path": "sh", "args": ["-c", "sleep 0.3; exit 3"]}}))
}

fn lrp(name: &str, instances: u32, action: &Value) -> Result<DesiredLrp> {
    let desired = json!({
        "process_guid": name, "domain": DOMAIN, "instances": instances, "memory_mb": 8, "action": action,
    });
    spec::lrp(desired).map_err(Failed::context(name))
}

/// Returns a task that adds a line to a file in `folder` and then runs for this number of seconds. The file
/// has the name of the task.
///
/// # Errors
/// Returns an error if the specification is invalid.
pub fn task(guid: &TaskGuid, folder: &Path, seconds: &str) -> Result<DesiredTask> {
    let script = format!("echo ran >> {}; sleep {seconds}", folder.join(guid.as_str()).display());
    let desired = json!({
        "task_guid": guid, "domain": DOMAIN, "memory_mb": 8,
        "placement": {"queue": {"deadline_ms": 600_000}},
        "action": {"run": {"path": "sh", "args": ["-c", script]}},
    });
    spec::task(desired).map_err(Failed::context(guid))
}
