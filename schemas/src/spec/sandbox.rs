//! Parses the environment of a container in specs: its file system, its network, and the required isolation.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{actions, policies, transfers};
use crate::action::{Action, Download};
use crate::definition::{Network, Sandbox};
use crate::fields::{Field, Fields, nearest};
use crate::isolation::Wall;
use crate::limits;
use crate::names::Stack;
use crate::resources::Constraint;

/// The word for every isolation layer.
const FULL: &str = "full";
/// The word for the layers without which there is hardly any isolation.
const DEGRADED: &str = "degraded";
/// Layers that [`DEGRADED`] stands for.
const LEAST: [Wall; 2] = [Wall::Files, Wall::Processes];
/// Prefixes of a root file system that is not a path.
const KINDS: [&str; 2] = [Sandbox::PRELOADED, Sandbox::OCI];
const NETWORKS: [(&str, Network); 2] = [("host", Network::Host), ("none", Network::None)];

/// Parses the sandbox. `Some(None)` if every field has its default value.
pub(super) fn take(fields: &mut Fields<'_>) -> Option<Option<Sandbox>> {
    let root_fs = take_either(fields);
    let network = fields.or("network", Network::Host, take_network);
    transfers::refuse_rules(fields, network == Some(Network::None));
    let cached_dependencies = transfers::take_dependencies(fields);
    let mut label = |name| fields.or(name, String::new(), actions::take_label);
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

/// Parses the network. Properties of Diego's container networks, which a plugin of its cells sets up, are
/// refused.
fn take_network(field: Field<'_>) -> Option<Network> {
    if field.value.is_object() {
        let asked = field.value.as_object().is_some_and(|object| {
            let properties = object.get("properties");
            properties.is_some_and(|properties| properties.as_object().is_none_or(|all| !all.is_empty()))
        });
        return if asked {
            field.bad(
                "has properties for a network between containers, of which cells have none: use host, or none for a \
                 container that shall reach nothing",
            )
        } else {
            Some(Network::Host)
        };
    }
    policies::take_word(field, &NETWORKS)
}

/// Parses `root_fs`, or Diego's name for it, `rootfs`.
fn take_either(fields: &mut Fields<'_>) -> Option<String> {
    let (own, diegos) = (fields.may("root_fs", take_root_fs), fields.may("rootfs", take_root_fs));
    let (own, diegos) = (own?, diegos?);
    if own.is_some() && diegos.is_some() {
        fields.bad("rootfs", "is another name of root_fs: give one of them");
    }
    Some(own.or(diegos).unwrap_or_default())
}

fn take_root_fs(field: Field<'_>) -> Option<String> {
    let (path, problems) = (field.path.clone(), field.problems);
    let text = field.text(limits::PATH_BYTES)?;
    let rest = KINDS.iter().find_map(|kind| text.strip_prefix(kind));
    let is_valid = match rest {
        Some(stack) if text.starts_with(Sandbox::PRELOADED) => Stack::new(stack).is_ok(),
        Some(rest) => !rest.is_empty(),
        None => text.is_empty() || text.starts_with('/'),
    };
    if !is_valid || text.bytes().any(|byte| byte.is_ascii_control()) {
        problems.note(
            path,
            "must be preloaded:STACK, oci:FOLDER, oci:FOLDER:TAG, or the path of a folder of the cell's",
        );
        return None;
    }
    Some(text)
}

/// Parses the required isolation layers: `full`, `degraded`, or a list of layers.
pub(super) fn take_walls(field: Field<'_>) -> Option<BTreeSet<Wall>> {
    let (path, problems) = (field.path.clone(), field.problems);
    if let Value::String(text) = &field.value {
        return match text.as_str() {
            FULL => Some(Wall::ALL.into()),
            DEGRADED => Some(LEAST.into()),
            _ => field.bad(format!("must be {FULL}, {DEGRADED} or a list of walls")),
        };
    }
    let mut walls = BTreeSet::new();
    field.each(Wall::ALL.len(), |field| {
        let (path, problems) = (field.path.clone(), field.problems);
        let wall = take_wall(field)?;
        if !walls.insert(wall) {
            problems.note(path, "is given twice");
        }
        Some(())
    })?;
    if walls.is_empty() {
        problems.note(path, "must name at least one wall");
    }
    Some(walls)
}

fn take_wall(field: Field<'_>) -> Option<Wall> {
    let (path, problems) = (field.path.clone(), field.problems);
    let word = field.text(limits::PATH_BYTES)?;
    let wall = Wall::ALL.into_iter().find(|wall| wall.word() == word);
    if wall.is_none() {
        let words = Wall::ALL.map(Wall::word);
        let known = words.join(", ");
        problems.note(
            path,
            match nearest(&word, &words) {
                Some(near) => format!("is no wall: did you mean {near}?"),
                None => format!("is no wall: use some of {known}"),
            },
        );
    }
    wall
}

/// Adds the constraints that follow from a sandbox. Work that has its own file system or network, or uses
/// absolute paths, needs file isolation. A preloaded file system is that of a stack, as in Diego.
pub(super) fn walled<'a>(
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
    if named || has_result_by_root || actions.into_iter().any(Action::needs_own_files) {
        constraint.walls.insert(Wall::Files);
    }
    let Some(sandbox) = sandbox else { return constraint };
    if constraint.stack.is_none() {
        constraint.stack =
            sandbox.root_fs.strip_prefix(Sandbox::PRELOADED).and_then(|stack| stack.parse().ok());
    }
    constraint
}

/// Converts isolation layers to JSON that [`take_walls`] can parse.
pub(super) fn walls_to_json(walls: &BTreeSet<Wall>) -> Value {
    if walls.is_empty() {
        Value::Null
    } else if *walls == BTreeSet::from(Wall::ALL) {
        FULL.into()
    } else if *walls == BTreeSet::from(LEAST) {
        DEGRADED.into()
    } else {
        json!(walls)
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
