//! Text of the comparison of a process in a file with the process in the cluster.

use cli_base::failure::Failure;
use client::Client;
use explain::comparison::{self, Comparison, Difference, sealing_key};
use schemas::definition::DesiredLrp;
use serde_json::Value;
use text::words::one_line;

/// Compares a process of a file with the process in the cluster. `is_named` is `true` if the file sets the
/// definition id.
///
/// # Errors
/// A query fails, or the cluster cannot seal the secrets of the process.
pub async fn compare(client: &Client, lrp: &DesiredLrp, is_named: bool) -> Result<Comparison, Failure> {
    Ok(comparison::compare(client, lrp, is_named).await?)
}

/// Returns `true` if both values are sealed with the same key. If these values differ, their plain texts
/// differ.
fn sealed_with_same_key(cluster: Option<&Value>, file: Option<&Value>) -> bool {
    let key = cluster.and_then(sealing_key);
    key.is_some() && key == file.and_then(sealing_key)
}

fn format_value(value: Option<&Value>) -> String {
    match (value, value.and_then(sealing_key)) {
        (None, _) => "nothing".to_owned(),
        (Some(_), Some(key)) => format!("sealed with key {key}"),
        (Some(value), None) => one_line(&value.to_string()),
    }
}

/// Formats a comparison: one line for each difference.
pub(crate) fn text(compared: &Comparison) -> String {
    let guid = &compared.process_guid;
    if !compared.desired {
        return format!("process {guid} is not desired");
    }
    if compared.differences.is_empty() {
        return format!("process {guid} matches the file");
    }
    let width = compared.differences.iter().map(|one| one.field.len()).max().unwrap_or_default();
    let mut text = format!("process {guid} differs (cluster -> file):");
    for Difference { field, cluster, file } in &compared.differences {
        let is_other = sealed_with_same_key(cluster.as_ref(), file.as_ref());
        let file = if is_other { "another value".to_owned() } else { format_value(file.as_ref()) };
        text.push_str(&format!("\n  {field:width$}  {} -> {file}", format_value(cluster.as_ref())));
    }
    let what = match &compared.rollout_to {
        Some(id) => format!("a rollout to {id} would replace its instances"),
        None => "nothing would be restarted".to_owned(),
    };
    format!("{text}\n{what}")
}

#[cfg(test)]
mod tests {
    use explain::comparison::{compare_lrps, differences};
    use schemas::names::{DefinitionId, ProcessGuid};
    use serde_json::json;

    use super::*;

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
            text(&compared),
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
        let text_of = |cluster: &Value, file: &Value| {
            let differences = differences(cluster, file);
            assert_eq!(differences.len(), 1, "{differences:?}");
            let process_guid = ProcessGuid::new("web").unwrap();
            text(&Comparison { process_guid, desired: true, rollout_to: None, differences })
        };
        let known = sealed("k1", "a");
        for (file, shown) in [
            (sealed("k1", "b"), "value  sealed with key k1 -> another value"),
            (sealed("k2", "c"), "value  sealed with key k1 -> sealed with key k2"),
            (json!({"value": "plain"}), "value  sealed with key k1 -> \"plain\""),
            (json!({}), "value  sealed with key k1 -> nothing"),
        ] {
            assert!(text_of(&known, &file).contains(shown), "{}", text_of(&known, &file));
        }
        assert!(differences(&known, &known).is_empty());
    }

    #[test]
    fn change_without_rollout_restarts_nothing() {
        let web = fixtures::lrp("web", "shop", 3);
        let scaled = DesiredLrp { instances: 4, ..web.clone() };
        let text = text(&compare_lrps(&web, &scaled, false));
        assert!(text.ends_with("instances  3 -> 4\nnothing would be restarted"), "{text}");
    }
}
