//! Parses the environment of a container in specs: its file system, its network, and the required isolation.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{actions, policies, transfers};
use crate::action::{Action, Download};
use crate::definition::{Network, Sandbox};
use crate::fields::{Field, Fields, nearest};
use crate::isolation::IsolationLayer;
use crate::limits;
use crate::names::Stack;
use crate::resources::Constraint;

/// Keyword for all isolation layers.
const FULL: &str = "full";
/// Keyword for the layers in [`DEGRADED_LAYERS`]. Without these layers there is hardly any isolation.
const DEGRADED: &str = "degraded";
/// Layers that the keyword [`DEGRADED`] selects.
const DEGRADED_LAYERS: [IsolationLayer; 2] = [IsolationLayer::Files, IsolationLayer::Processes];
/// Prefixes of root file systems that are not paths.
const ROOT_FS_PREFIXES: [&str; 2] = [Sandbox::PRELOADED, Sandbox::OCI];
const NETWORKS: [(&str, Network); 2] = [("host", Network::Host), ("none", Network::None)];

/// Parses the sandbox. `Some(None)` if every field has its default value.
pub(super) fn take(fields: &mut Fields<'_>) -> Option<Option<Sandbox>> {
    fields.document_by::<Sandbox>();
    let root_fs = take_root_fs_alias(fields);
    let network = fields.with_default("network", Network::Host, take_network);
    transfers::refuse_rules(fields, network == Some(Network::None));
    let cached_dependencies = transfers::take_dependencies(fields);
    let mut label = |name| fields.with_default(name, String::new(), actions::take_label);
    let (log_guid, log_source, metrics_guid) =
        (label("log_guid"), label("log_source"), label("metrics_guid"));
    let sandbox = Sandbox {
        root_fs: root_fs?,
        network: network?,
        cached_dependencies: cached_dependencies?,
        log_guid: log_guid?,
        log_source: log_source?,
        metrics_guid: metrics_guid?,
    };
    Some((sandbox != Sandbox::default()).then_some(sandbox))
}

/// Parses the network. Refuses the properties that Diego passes to the network plugin of its cells.
fn take_network(field: Field<'_>) -> Option<Network> {
    if field.value.is_object() {
        let asked = field.value.as_object().is_some_and(|object| {
            let properties = object.get("properties");
            properties.is_some_and(|properties| properties.as_object().is_none_or(|all| !all.is_empty()))
        });
        return if asked {
            field.bad(
                "has properties of a container network, which cells do not support: use host, or none for \
                 no network access",
            )
        } else {
            Some(Network::Host)
        };
    }
    policies::take_word(field, &NETWORKS)
}

/// Parses `root_fs`, or the field `rootfs`, which is Diego's name for the same field.
fn take_root_fs_alias(fields: &mut Fields<'_>) -> Option<String> {
    fields.document("rootfs", "Diego's name of `root_fs`.");
    let (own, diegos) = (fields.optional("root_fs", take_root_fs), fields.optional("rootfs", take_root_fs));
    let (own, diegos) = (own?, diegos?);
    if own.is_some() && diegos.is_some() {
        fields.bad("rootfs", "is another name of root_fs: set only one of them");
    }
    Some(own.or(diegos).unwrap_or_default())
}

fn take_root_fs(field: Field<'_>) -> Option<String> {
    let (path, problems) = (field.path.clone(), field.problems);
    let text = field.text(limits::PATH_BYTES)?;
    let rest = ROOT_FS_PREFIXES.iter().find_map(|kind| text.strip_prefix(kind));
    let is_valid = match rest {
        Some(stack) if text.starts_with(Sandbox::PRELOADED) => Stack::new(stack).is_ok(),
        Some(rest) => !rest.is_empty(),
        None => text.is_empty() || text.starts_with('/'),
    };
    if !is_valid || text.bytes().any(|byte| byte.is_ascii_control()) {
        problems.add(
            path,
            "must be preloaded:STACK, oci:FOLDER, oci:FOLDER:TAG, or the path of a folder on the cell",
        );
        return None;
    }
    Some(text)
}

/// Parses the required isolation layers: `full`, `degraded`, or a list of layers.
pub(super) fn take_isolation(field: Field<'_>) -> Option<BTreeSet<IsolationLayer>> {
    let text = "Isolation layers of a container: a list of them, `full` for all of them, or `degraded` for a \
                file system and processes of its own.";
    field.defined("IsolationSpec", text, |field| field.either(Value::is_string, take_preset, take_layers))
}

fn take_preset(field: Field<'_>) -> Option<BTreeSet<IsolationLayer>> {
    if field.records("enum", json!([FULL, DEGRADED])) {
        return None;
    }
    match field.value.as_str() {
        Some(FULL) => Some(IsolationLayer::ALL.into()),
        Some(DEGRADED) => Some(DEGRADED_LAYERS.into()),
        Some(_) | None => field.bad(format!("must be {FULL}, {DEGRADED} or a list of isolation layers")),
    }
}

fn take_layers(field: Field<'_>) -> Option<BTreeSet<IsolationLayer>> {
    let (path, problems) = (field.path.clone(), field.problems);
    field.records("minItems", 1);
    field.records("uniqueItems", true);
    let mut layers = BTreeSet::new();
    field.list_of(IsolationLayer::ALL.len(), |field| {
        let (path, problems) = (field.path.clone(), field.problems);
        let layer = take_layer(field)?;
        if !layers.insert(layer) {
            problems.add(path, "is given twice");
        }
        Some(())
    })?;
    if layers.is_empty() {
        problems.add(path, "must contain at least one isolation layer");
    }
    Some(layers)
}

fn take_layer(field: Field<'_>) -> Option<IsolationLayer> {
    if field.records_type::<IsolationLayer>() {
        return None;
    }
    let (path, problems) = (field.path.clone(), field.problems);
    let word = field.text(limits::PATH_BYTES)?;
    let layer = IsolationLayer::ALL.into_iter().find(|layer| layer.as_str() == word);
    if layer.is_none() {
        let words = IsolationLayer::ALL.map(IsolationLayer::as_str);
        let known = words.join(", ");
        problems.add(
            path,
            match nearest(&word, &words) {
                Some(near) => format!("is not an isolation layer: did you mean {near}?"),
                None => format!("is not an isolation layer: use some of {known}"),
            },
        );
    }
    layer
}

/// Adds the constraints that a sandbox implies. File isolation is required by work with its own file system
/// or network, and by work with absolute paths. As in Diego, a preloaded file system belongs to a stack, so
/// it requires a cell with that stack.
pub(super) fn with_derived_constraints<'a>(
    mut constraint: Constraint,
    sandbox: Option<&Sandbox>,
    actions: impl IntoIterator<Item = &'a Action>,
    has_result_by_root: bool,
) -> Constraint {
    let named = sandbox.is_some_and(|sandbox| {
        let absolute = |download: &Download| download.to.starts_with('/');
        !sandbox.root_fs.is_empty()
            || sandbox.network != Network::Host
            || sandbox.cached_dependencies.iter().any(absolute)
    });
    if named || has_result_by_root || actions.into_iter().any(Action::needs_own_file_system) {
        constraint.isolation.insert(IsolationLayer::Files);
    }
    let Some(sandbox) = sandbox else { return constraint };
    if constraint.stack.is_none() {
        constraint.stack =
            sandbox.root_fs.strip_prefix(Sandbox::PRELOADED).and_then(|stack| stack.parse().ok());
    }
    constraint
}

/// Converts isolation layers to the JSON form that [`take_isolation`] parses.
pub(super) fn isolation_to_json(layers: &BTreeSet<IsolationLayer>) -> Value {
    if layers.is_empty() {
        Value::Null
    } else if *layers == BTreeSet::from(IsolationLayer::ALL) {
        FULL.into()
    } else if *layers == BTreeSet::from(DEGRADED_LAYERS) {
        DEGRADED.into()
    } else {
        json!(layers)
    }
}

/// Returns the root file system. `None` if it is the default.
pub(super) fn root_fs_of(sandbox: Option<&Sandbox>) -> Option<&str> {
    sandbox.map(|sandbox| sandbox.root_fs.as_str()).filter(|text| !text.is_empty())
}

/// Returns the network. `None` if it is the default.
pub(super) fn network_of(sandbox: Option<&Sandbox>) -> Option<Network> {
    sandbox.map(|sandbox| sandbox.network).filter(|network| *network != Network::Host)
}
