//! Comparison of a process in a file with the process in the cluster, field by field.

use std::collections::BTreeSet;

use cli_base::failure::Failure;
use client::{Client, own_definition_id};
use schemas::definition::DesiredLrp;
use schemas::names::{DefinitionId, ProcessGuid};
use schemas::spec;
use serde::Serialize;
use serde_json::Value;
use text::words::one_line;

/// Comparison of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Comparison {
    pub(crate) process_guid: ProcessGuid,
    /// `true` if the process exists in the cluster.
    pub(crate) desired: bool,
    /// Definition in the file, if it differs from the definition in the cluster. If the file is applied, a
    /// rollout to this definition replaces the instances.
    rollout_to: Option<DefinitionId>,
    /// Differences, in the order of the fields.
    pub differences: Vec<Difference>,
}

/// Field that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Path of the field, such as `action.run.args[0]`.
    pub(super) field: String,
    /// Value in the cluster. `None` if the cluster lacks the field.
    pub(super) cluster: Option<Value>,
    /// Value in the file. `None` if the file lacks the field.
    pub(super) file: Option<Value>,
}

/// Compares a process of a file with the process in the cluster. `is_named` is `true` if the file sets the
/// definition id.
pub async fn compare(client: &Client, lrp: &DesiredLrp, is_named: bool) -> Result<Comparison, Failure> {
    let lrp = &client.seal_lrp(lrp.clone()).await?;
    let guid = lrp.process_guid.clone();
    let known = match client.lrp(&guid).await {
        Ok(one) => one.row.to_desired(),
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(error.into()),
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
pub(crate) fn compare_lrps(known: &DesiredLrp, lrp: &DesiredLrp, is_named: bool) -> Comparison {
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
pub(crate) fn definition_id(lrp: &DesiredLrp, is_named: bool) -> DefinitionId {
    if is_named { lrp.definition_id.clone() } else { own_definition_id(lrp) }
}

/// Returns the differences of two values, in the order of the fields.
pub(super) fn differences(one: &Value, other: &Value) -> Vec<Difference> {
    let mut found = vec![];
    walk(String::new(), Some(one), Some(other), &mut found);
    found
}

/// Compares values of the same kind recursively, and records the differences.
fn walk(field: String, cluster: Option<&Value>, file: Option<&Value>, found: &mut Vec<Difference>) {
    match (cluster, file) {
        (cluster, file) if cluster == file => {}
        // Sealed values are compared as a whole because their parts have no meaning of their own.
        (Some(cluster), Some(file)) if key_of(cluster).is_some() || key_of(file).is_some() => {
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
fn key_of(value: &Value) -> Option<&str> {
    value.get("sealed")?.get("key")?.as_str()
}

/// Returns `true` if both values are sealed with the same key. If these values differ, their plain texts
/// differ.
fn sealed_with_same_key(cluster: Option<&Value>, file: Option<&Value>) -> bool {
    let key = cluster.and_then(key_of);
    key.is_some() && key == file.and_then(key_of)
}

fn format_value(value: Option<&Value>) -> String {
    match (value, value.and_then(key_of)) {
        (None, _) => "nothing".to_owned(),
        (Some(_), Some(key)) => format!("sealed with key {key}"),
        (Some(value), None) => one_line(&value.to_string()),
    }
}

impl Comparison {
    /// Creates the comparison of a process that the cluster does not have.
    pub(crate) const fn missing(process_guid: ProcessGuid) -> Self {
        Self { process_guid, desired: false, rollout_to: None, differences: vec![] }
    }

    pub(crate) fn text(&self) -> String {
        let guid = &self.process_guid;
        if !self.desired {
            return format!("process {guid} is not desired");
        }
        if self.differences.is_empty() {
            return format!("process {guid} matches the file");
        }
        let width = self.differences.iter().map(|one| one.field.len()).max().unwrap_or_default();
        let mut text = format!("process {guid} differs (cluster -> file):");
        for Difference { field, cluster, file } in &self.differences {
            let is_other = sealed_with_same_key(cluster.as_ref(), file.as_ref());
            let file = if is_other { "another value".to_owned() } else { format_value(file.as_ref()) };
            text.push_str(&format!("\n  {field:width$}  {} -> {file}", format_value(cluster.as_ref())));
        }
        let what = match &self.rollout_to {
            Some(id) => format!("a rollout to {id} would replace its instances"),
            None => "nothing would be restarted".to_owned(),
        };
        format!("{text}\n{what}")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn differences(cluster: &Value, file: &Value) -> Vec<Difference> {
        let mut found = vec![];
        walk(String::new(), Some(cluster), Some(file), &mut found);
        found
    }

    #[test]
    fn differing_fields_are_listed_with_both_values() {
        let cluster =
            json!({"instances": 3, "action": {"run": {"path": "a", "args": ["x", "y"]}}, "routes": {"r": 1}});
        let file =
            json!({"instances": 5, "action": {"run": {"path": "a", "args": ["x"]}}, "annotation": "new"});
        let compared = Comparison {
            process_guid: ProcessGuid::new("web").unwrap(),
            desired: true,
            rollout_to: Some(DefinitionId::new("v2").unwrap()),
            differences: differences(&cluster, &file),
        };
        assert!(!compared.differences.is_empty());
        assert_eq!(
            compared.text(),
            "process web differs (cluster -> file):\n  \
             action.run.args[1]  \"y\" -> nothing\n  \
             annotation          nothing -> \"new\"\n  \
             instances           3 -> 5\n  \
             routes              {\"r\":1} -> nothing\n\
             a rollout to v2 would replace its instances"
        );
        assert!(differences(&cluster, &cluster).is_empty());
    }

    #[test]
    fn sealed_values_are_shown_by_their_keys() {
        let sealed = |key: &str, data: &str| json!({"value": {"sealed": {"key": key, "data": data}}});
        let text = |cluster: &Value, file: &Value| {
            let differences = differences(cluster, file);
            assert_eq!(differences.len(), 1, "{differences:?}");
            let process_guid = ProcessGuid::new("web").unwrap();
            Comparison { process_guid, desired: true, rollout_to: None, differences }.text()
        };
        let known = sealed("k1", "a");
        for (file, shown) in [
            (sealed("k1", "b"), "value  sealed with key k1 -> another value"),
            (sealed("k2", "c"), "value  sealed with key k1 -> sealed with key k2"),
            (json!({"value": "plain"}), "value  sealed with key k1 -> \"plain\""),
            (json!({}), "value  sealed with key k1 -> nothing"),
        ] {
            assert!(text(&known, &file).contains(shown), "{}", text(&known, &file));
        }
        assert!(differences(&known, &known).is_empty());
    }

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
        assert!(
            found.rollout_to.is_none()
                && found.text().ends_with("instances  3 -> 4\nnothing would be restarted")
        );
    }
}
