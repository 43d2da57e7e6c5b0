//! Tests of the read scope. Clients without permission see every event without the values of environments.
//! All other content is unchanged.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use schemas::entry::Entry;
use schemas::names::Domain;
use schemas::refusal::BadField;
use schemas::sight::{HIDDEN_KEY, ReadScope};
use schemas::spec;
use serde_json::{Value, json};

/// Returns the entries of the golden files, one for each event.
fn entries() -> Vec<(String, Entry)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |path: &Path| {
        Some((path.display().to_string(), serde_json::from_slice(&fs::read(path).unwrap()).ok()?))
    };
    files.iter().filter_map(|path| read(path)).collect()
}

/// Hides a value if the value is text.
fn hide(value: &mut Value, found: &mut usize) {
    if value.is_string() {
        *value = json!({"sealed": {"key": HIDDEN_KEY, "data": ""}});
        *found += 1;
    }
}

/// Hides every value of an environment in JSON, and every URL of a callback, download or upload.
fn without_values(value: &mut Value, found: &mut usize) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(|one| without_values(one, found)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("environment_variables" | "env" | "parameters", Value::Array(variables)) => {
                        variables.iter_mut().for_each(|one| hide(&mut one["value"], found));
                    }
                    ("completion_callback_url", url) => hide(url, found),
                    ("from" | "to", url) if url.as_str().is_some_and(|url| url.starts_with("http")) => {
                        hide(url, found);
                    }
                    ("payload", payload) if payload.as_str().is_some_and(|text| text.ends_with('=')) => {
                        hide(payload, found);
                    }
                    (_, other) => without_values(other, found),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn read_scope_hides_environment_values_only() {
    let (mut events, mut found) = (0, 0);
    for (file, entry) in entries() {
        let mut expected = serde_json::to_value(&entry).unwrap();
        let whole = expected.clone();
        let before = found;
        without_values(&mut expected, &mut found);
        let shared = Arc::new(entry.clone());
        for sight in [ReadScope::Nothing, ReadScope::Domain(Domain::new("another").unwrap())] {
            let mut hidden = entry.clone();
            sight.redact_entry(&mut hidden);
            assert_eq!(serde_json::to_value(&hidden).unwrap(), expected, "{file}");
            let copied = sight.redact_shared_entry(Arc::clone(&shared));
            assert_eq!(*copied, hidden, "{file}");
            assert!(found > before || Arc::ptr_eq(&copied, &shared), "{file} is copied without need");
        }
        for sight in [ReadScope::Everything, ReadScope::Domain(Domain::new("apps").unwrap())] {
            let mut seen = entry.clone();
            sight.redact_entry(&mut seen);
            assert_eq!(serde_json::to_value(&seen).unwrap(), whole, "{file}");
        }
        events += 1;
    }
    assert!(events > 60 && found > 12, "{events} events with {found} values");
}

#[test]
fn definition_with_hidden_values_is_refused() {
    let (lrp, mut task) = (crate::golden::lrp(), crate::golden::job());
    let mut hidden = lrp.clone();
    ReadScope::Nothing.redact_definition(&lrp.domain, Arc::make_mut(&mut hidden.definition));
    ReadScope::Nothing.redact_task(&lrp.domain, Arc::make_mut(&mut task.definition));
    assert_eq!(spec::lrp(spec::to_json(&lrp)), Ok(lrp));
    for refusal in
        [spec::lrp(spec::to_json(&hidden)).unwrap_err(), spec::task(spec::task_to_json(&task)).unwrap_err()]
    {
        let is_hidden = |bad: &BadField| bad.problem.starts_with("stands for a value that you may not read");
        assert!(refusal.fields.iter().any(is_hidden), "{refusal:?}");
    }
}
