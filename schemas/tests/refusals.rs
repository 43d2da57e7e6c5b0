//! Refusals of broken commands, with the paths of their bad fields, as in `golden/refusals.txt`.
//!
//! `MUSTER_WRITE_GOLDEN=1 cargo test -p schemas refusals` writes the file again.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use fixtures::pages::{WRITE_VARIABLE, may_write};
use schemas::names::Domain;
use schemas::spec::client_command;
use serde_json::{Value, json};

use crate::documented::every_command;

/// Returns the JSON pointers of every value inside a value.
fn pointers(value: &Value, above: &str, found: &mut Vec<String>) {
    let members: Vec<(String, &Value)> = match value {
        Value::Object(object) => {
            object.iter().map(|(name, value)| (name.replace('/', "~1"), value)).collect()
        }
        Value::Array(list) => list.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![],
    };
    for (name, value) in members {
        let pointer = format!("{above}/{name}");
        found.push(pointer.clone());
        pointers(value, &pointer, found);
    }
}

/// Returns the last two names of a pointer, in which each index is 0. Fields of equal names are tried once.
fn last_names(pointer: &str) -> String {
    let name = |name: &str| if name.parse::<usize>().is_ok() { "0".to_owned() } else { name.to_owned() };
    let names: Vec<String> = pointer.split('/').map(name).collect();
    names[names.len().saturating_sub(2)..].join("/")
}

/// Removes the value at a pointer, or adds an unknown field beside it.
fn change_object(body: &mut Value, pointer: &str, change: &str) -> bool {
    let Some((above, name)) = pointer.rsplit_once('/') else { return false };
    let Some(object) = body.pointer_mut(above).and_then(Value::as_object_mut) else { return false };
    if change == "missing" {
        object.remove(name);
    } else {
        object.insert("zzzzzz".into(), json!(1));
    }
    true
}

/// Returns the bad fields of a command with this body. Empty if the command is accepted.
fn bad_fields((noun, verb): (&str, &str), body: &Value) -> String {
    let message = json!({"body": body}).to_string();
    let Err(refusal) = client_command(noun, verb, &Domain::new("apps").unwrap(), message.as_bytes()) else {
        return String::new();
    };
    let fields = refusal.fields.iter().map(|bad| format!("{}: {}", bad.field, bad.problem));
    fields.collect::<Vec<_>>().join(" | ")
}

#[test]
fn refusals_match_golden_file() {
    let wrong = [json!([[]]), json!({"zzzzzz": 1}), json!(""), json!("zzzzzz"), json!(-1), json!(1.5)];
    let wrong = wrong.into_iter().chain([json!(u64::MAX), json!(true)]);
    let wrong: Vec<(String, Value)> = wrong.map(|value| (value.to_string(), value)).collect();
    let (mut text, mut seen) = (String::new(), BTreeSet::new());
    for command in every_command() {
        let (noun, verb) = command.noun_and_verb();
        let body = command.body();
        let mut paths = vec![];
        pointers(&body, "", &mut paths);
        for pointer in paths.into_iter().filter(|pointer| seen.insert(last_names(pointer))) {
            let replaced = wrong.iter().filter_map(|(change, value)| {
                let mut body = body.clone();
                *body.pointer_mut(&pointer)? = value.clone();
                Some((change.as_str(), body))
            });
            let changed = ["missing", "unknown"].into_iter().filter_map(|change| {
                let mut body = body.clone();
                change_object(&mut body, &pointer, change).then_some((change, body))
            });
            for (change, body) in replaced.chain(changed) {
                let refusal = bad_fields((noun, verb), &body);
                if !refusal.is_empty() {
                    writeln!(text, "{noun}.{verb} {pointer} {change} => {refusal}").unwrap();
                }
            }
        }
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/refusals.txt");
    if may_write() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    let differs = golden.lines().zip(text.lines()).find(|(golden, line)| golden != line);
    assert!(golden == text, "refusals differ, first {differs:?}: {WRITE_VARIABLE}=1 writes the file again");
}
