//! Environment of the programs in a container. From the rep's environment, only `PATH`, the locale and the
//! time zone are used.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use schemas::action::Variable;
use schemas::container::WorkKey;

use crate::folder::{MARKER, Spec};

/// Search path for programs if neither the definition, the image nor the rep provides a `PATH`.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Entry of `CF_INSTANCE_PORTS`.
#[derive(Serialize)]
struct CfPort {
    external: u16,
    internal: u16,
}

/// Returns the environment of one program. Variables of the definition take precedence over variables of the
/// image. Variables of the image take precedence over inherited variables of the cell. Variables that the
/// cell sets take precedence over all other variables, because a plain process must listen on its assigned
/// host port.
pub(crate) fn program_environment(
    spec: &Spec,
    work: &Path,
    inherited: impl Fn(&str) -> Option<String>,
    own: &[Variable],
) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let image = spec.plan.as_ref().map(|plan| plan.root_fs.environment()).unwrap_or_default();
    all.insert("PATH".to_owned(), inherited("PATH").unwrap_or_else(|| DEFAULT_PATH.to_owned()));
    all.insert("HOME".to_owned(), work.display().to_string());
    for name in ["LANG", "TZ"] {
        all.extend(inherited(name).map(|value| (name.to_owned(), value)));
    }
    all.extend(
        image
            .iter()
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    for Variable { name, value } in spec.recipe.environment_variables.iter().chain(own) {
        // Secret values were decrypted before the container started.
        all.extend(value.plain().map(|value| (name.to_string(), value.to_owned())));
    }
    let mut set = |name: &str, value: String| {
        all.insert(name.to_owned(), value);
    };
    let guid = spec.recipe.instance_guid.to_string();
    set(MARKER, guid.clone());
    set("INSTANCE_GUID", guid.clone());
    set("CF_INSTANCE_GUID", guid);
    set("MUSTER_CELL_ID", spec.cell_id.to_string());
    set("MUSTER_DOMAIN", spec.recipe.domain.to_string());
    match &spec.recipe.work {
        WorkKey::Lrp { key, .. } => {
            set("MUSTER_PROCESS_GUID", key.process_guid.to_string());
            set("MUSTER_DEFINITION_ID", key.place.definition_id.to_string());
            for name in ["MUSTER_INDEX", "INSTANCE_INDEX", "CF_INSTANCE_INDEX"] {
                set(name, key.place.index.to_string());
            }
        }
        WorkKey::Task { task_guid, .. } => set("MUSTER_TASK_GUID", task_guid.to_string()),
    }
    set_network(spec, &mut set);
    all
}

/// Sets the variables with the container's address and ports.
fn set_network(spec: &Spec, set: &mut impl FnMut(&str, String)) {
    let address = &spec.net.address;
    set("CF_INSTANCE_IP", address.to_string());
    set("CF_INSTANCE_INTERNAL_IP", address.to_string());
    if let Some(first) = spec.net.ports.first() {
        set("PORT", first.host_port.to_string());
        set("CF_INSTANCE_PORT", first.host_port.to_string());
        set("CF_INSTANCE_ADDR", format!("{address}:{}", first.host_port));
    }
    let ports = spec.net.ports.iter();
    let cf: Vec<CfPort> = ports
        .clone()
        .map(|port| CfPort { external: port.host_port, internal: port.container_port })
        .collect();
    set("CF_INSTANCE_PORTS", serde_json::to_string(&cf).expect("numbers can be encoded as JSON"));
    let host_ports: Vec<String> = ports.clone().map(|port| port.host_port.to_string()).collect();
    set("MUSTER_PORTS", host_ports.join(","));
    for port in ports {
        set(&format!("PORT_{}", port.container_port), port.host_port.to_string());
    }
}
