//! What the load desires: small processes that are really there.

use std::path::Path;

use schemas::definition::{DesiredLrp, DesiredTask};
use schemas::names::{ProcessGuid, TaskGuid};
use schemas::spec;
use serde_json::{Value, json};

use crate::asker::DOMAIN;
use crate::failed::{Failed, Result};

/// A process guid.
///
/// # Errors
/// It is none.
pub fn process(name: &str) -> Result<ProcessGuid> {
    ProcessGuid::new(name).map_err(Failed::at(name))
}

/// A task guid.
///
/// # Errors
/// It is none.
pub fn task_guid(name: &str) -> Result<TaskGuid> {
    TaskGuid::new(name).map_err(Failed::at(name))
}

/// A process that runs for ever; with another `version` it has another definition.
///
/// # Errors
/// The name is no process guid.
pub fn sleeper(name: &str, instances: u32, version: u64) -> Result<DesiredLrp> {
    let env = json!([{"name": "VERSION", "value": version.to_string()}]);
    lrp(name, instances, &json!({"run": {"path": "sleep", "args": ["1000000"], "env": env}}))
}

/// A process that crashes a moment after each start.
///
/// # Errors
/// The name is no process guid.
pub fn crasher(name: &str) -> Result<DesiredLrp> {
    lrp(name, 1, &json!({"run": {"path": "sh", "args": ["-c", "sleep 0.3; exit 3"]}}))
}

fn lrp(name: &str, instances: u32, action: &Value) -> Result<DesiredLrp> {
    let desired = json!({
        "process_guid": name, "domain": DOMAIN, "instances": instances, "memory_mb": 8, "action": action,
    });
    spec::lrp(desired).map_err(Failed::at(name))
}

/// A task that adds a line to the file of its name in `folder`, and then takes so many seconds.
///
/// # Errors
/// It is none.
pub fn task(guid: &TaskGuid, folder: &Path, seconds: &str) -> Result<DesiredTask> {
    let script = format!("echo ran >> {}; sleep {seconds}", folder.join(guid.as_str()).display());
    let desired = json!({
        "task_guid": guid, "domain": DOMAIN, "memory_mb": 8,
        "placement": {"queue": {"deadline_ms": 600_000}},
        "action": {"run": {"path": "sh", "args": ["-c", script]}},
    });
    spec::task(desired).map_err(Failed::at(guid))
}
