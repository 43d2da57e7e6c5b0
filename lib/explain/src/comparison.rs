//! Comparison of a process in a file with the process in the cluster, field by field. The module also compares
//! any other values.

use std::collections::BTreeSet;

use client::{Client, Error, own_definition_id};
use schemas::definition::DesiredLrp;
use schemas::names::{DefinitionId, ProcessGuid};
use schemas::spec;
use serde::Serialize;
use serde_json::Value;

/// Comparison of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Comparison {
    pub process_guid: ProcessGuid,
    /// `true` if the process exists in the cluster.
    pub desired: bool,
    /// Definition in the file, if it differs from the definition in the cluster. If the file is applied, a
    /// rollout to this definition replaces the instances.
    pub rollout_to: Option<DefinitionId>,
    /// Differences, in the order of the fields.
    pub differences: Vec<Difference>,
}

/// Field that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Path of the field, such as `action.run.args[0]`.
    pub field: String,
    /// Value in the cluster. `None` if the cluster lacks the field.
    pub cluster: Option<Value>,
    /// Value in the file. `None` if the file lacks the field.
    pub file: Option<Value>,
}

/// Compares a process of a file with the process in the cluster. `is_named` is `true` if the file sets the
/// definition id.
///
/// # Errors
/// A query fails, or the cluster cannot seal the secrets of the process.
pub async fn compare(client: &Client, lrp: &DesiredLrp, is_named: bool) -> Result<Comparison, Error> {
    let lrp = &client.seal_lrp(lrp.clone()).await?;
    let guid = lrp.process_guid.clone();
    let known = match client.lrp(&guid).await {
        Ok(one) => one.row.to_desired(),
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(error),
    };
    let Some(known) = known else {
        return Ok(Comparison::missing(guid));
    };
    Ok(compare_lrps(&known, lrp, is_named))
}

/// Compares a process of the cluster with a process of a file. `is_named` is `true` if the file sets the
/// definition id.
///
/// The flag is necessary because an id that equals the guid of the process has two possible sources. If the
/// file sets the id, the id is used unchanged. If the id is the default, an id derived from the content of
/// the definition replaces it.
#[must_use]
pub fn compare_lrps(known: &DesiredLrp, lrp: &DesiredLrp, is_named: bool) -> Comparison {
    let rollout_to = (known.definition != lrp.definition).then(|| definition_id(lrp, is_named));
    // A definition with the same content replaces no instances, even if its id differs. A derived id is not
    // reported as a separate difference.
    let is_named = is_named || lrp.definition_id.as_str() != lrp.process_guid.as_str();
    let named = rollout_to.clone().filter(|_| is_named);
    let definition_id = named.unwrap_or_else(|| known.definition_id.clone());
    let file = DesiredLrp { definition_id, ..lrp.clone() };
    let mut differences = vec![];
    let (cluster, file) = (spec::to_full_json(known), spec::to_full_json(&file));
    walk(String::new(), Some(&cluster), Some(&file), &mut differences);
    Comparison { process_guid: lrp.process_guid.clone(), desired: true, rollout_to, differences }
}

/// Returns the published id of a file's definition.
#[must_use]
pub fn definition_id(lrp: &DesiredLrp, is_named: bool) -> DefinitionId {
    if is_named { lrp.definition_id.clone() } else { own_definition_id(lrp) }
}

/// Returns the differences of two values, in the order of the fields.
#[must_use]
pub fn differences(one: &Value, other: &Value) -> Vec<Difference> {
    let mut found = vec![];
    walk(String::new(), Some(one), Some(other), &mut found);
    found
}

/// Compares values of the same kind recursively, and records the differences.
fn walk(field: String, cluster: Option<&Value>, file: Option<&Value>, found: &mut Vec<Difference>) {
    match (cluster, file) {
        (cluster, file) if cluster == file => {}
        // Sealed values are compared as a whole because their parts have no meaning of their own.
        (Some(cluster), Some(file)) if sealing_key(cluster).is_some() || sealing_key(file).is_some() => {
            found.push(Difference { field, cluster: Some(cluster.clone()), file: Some(file.clone()) });
        }
        (Some(Value::Object(cluster)), Some(Value::Object(file))) => {
            let names: BTreeSet<&String> = cluster.keys().chain(file.keys()).collect();
            for name in names {
                let path = if field.is_empty() { name.clone() } else { format!("{field}.{name}") };
                walk(path, cluster.get(name), file.get(name), found);
            }
        }
        (Some(Value::Array(cluster)), Some(Value::Array(file))) => {
            for at in 0..cluster.len().max(file.len()) {
                walk(format!("{field}[{at}]"), cluster.get(at), file.get(at), found);
            }
        }
        (cluster, file) => {
            found.push(Difference { field, cluster: cluster.cloned(), file: file.cloned() });
        }
    }
}

/// Returns the key that a value is sealed with. `None` if it is not sealed.
#[must_use]
pub fn sealing_key(value: &Value) -> Option<&str> {
    value.get("sealed")?.get("key")?.as_str()
}

impl Comparison {
    /// Creates the comparison of a process that the cluster does not have.
    #[must_use]
    pub const fn missing(process_guid: ProcessGuid) -> Self {
        Self { process_guid, desired: false, rollout_to: None, differences: vec![] }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn value_of_another_type_is_one_difference() {
        let found = differences(&json!({"action": {"run": 1}}), &json!({"action": [1, 2]}));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].field, "action");
    }

    #[test]
    fn same_definition_with_another_id_is_not_a_difference() {
        let web = fixtures::lrp("web", "shop", 3);
        let named =
            |name: &str| DesiredLrp { definition_id: DefinitionId::new(name).unwrap(), ..web.clone() };
        assert!(compare_lrps(&named("0123456789abcdef"), &web, false).differences.is_empty());
        let mut other = web.clone();
        Arc::make_mut(&mut other.definition).memory_mb += 1;
        let found = compare_lrps(&web, &other, false);
        assert_eq!(found.rollout_to, Some(own_definition_id(&other)));
        let fields = |found: Comparison| -> Vec<String> {
            found.differences.into_iter().map(|one| one.field).collect()
        };
        assert_eq!(fields(found), ["memory_mb"]);
        other.definition_id = DefinitionId::new("v2").unwrap();
        assert_eq!(fields(compare_lrps(&web, &other, false)), ["definition_id", "memory_mb"]);
        let as_process = DesiredLrp { definition_id: web.definition_id.clone(), ..other.clone() };
        let found = compare_lrps(&named("v1"), &as_process, true);
        assert_eq!(found.rollout_to.as_ref().map(DefinitionId::as_str), Some("web"));
        assert_eq!(fields(found), ["definition_id", "memory_mb"]);
        let scaled = DesiredLrp { instances: 4, ..web.clone() };
        let found = compare_lrps(&web, &scaled, false);
        assert_eq!(found.rollout_to, None);
        assert_eq!(fields(found), ["instances"]);
    }
}
