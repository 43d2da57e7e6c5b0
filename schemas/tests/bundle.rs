//! The bundle of all published JSON Schemas, `golden/bundle.json`. It is generated from the types and has one
//! definition for each structure.
//!
//! `MUSTER_WRITE_GOLDEN=1 cargo test -p schemas bundle` generates the bundle again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::LazyLock;

use fixtures::pages::{WRITE_VARIABLE, may_write};
use schemas::Entry;
use schemas::exec::ExecIoReply;
use schemas::message::{Ack, Answer};
use schemas::published::PublishedSchemas;
use schemas::verb::QueryVerb;
use serde_json::{Map, Value, json};

use crate::documented::{ROW_TYPES, Schemas, bodies, definition_name, name, query_schemas};
use crate::golden::{BUNDLE_FILE, folder};

/// Maximum number of lines of the bundle.
const MAX_LINES: usize = 15_500;

/// Prefix of a reference to a definition.
const DEFS: &str = "#/$defs/";

type Definitions = Map<String, Value>;

/// Returns the bundle that the types generate.
pub(crate) fn bundle() -> &'static Value {
    static BUNDLE: LazyLock<Value> = LazyLock::new(generate);
    &BUNDLE
}

/// Returns the part of the bundle that a reference refers to.
pub(crate) fn resolve(reference: &Value) -> &'static Value {
    let target = reference["$ref"].as_str().and_then(|target| target.strip_prefix('#'));
    target.and_then(|path| bundle().pointer(path)).unwrap_or_else(|| panic!("{reference} does not resolve"))
}

fn generate() -> Value {
    let mut schemas = Schemas::new();
    // Types of messages come first, so that they name the definitions that they share with stored types.
    let bodies = bodies(&mut schemas);
    let queries = query_schemas(&mut schemas);
    let (envelope, done) = (schemas.envelope(), schemas.schema_for::<Answer<Ack>>());
    schemas.schema_for::<ExecIoReply>();
    let entry = schemas.schema_for::<Entry>();
    let mut defs = schemas.definitions();
    defs.values_mut().for_each(simplify_variants);
    let meanings: BTreeMap<&str, Value> = bodies
        .iter()
        .map(|(name, body)| (name.as_str(), resolve_in(&defs, body)["description"].clone()))
        .collect();
    share_definitions(&mut defs);
    share_refusal(&mut defs);
    let commands: Map<String, Value> = bodies
        .iter()
        .map(|(name, body)| {
            let request = add_message(&mut defs, &envelope, definition_name(body));
            (
                name.clone(),
                json!({"description": meanings[name.as_str()], "request": request, "answer": done}),
            )
        })
        .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Muster",
        "description": "Schemas of journal entries, events, commands, queries and rows, by name.",
        "entry": entry,
        "events": events(&defs),
        "commands": commands,
        "queries": index_queries(queries),
        "rows": ROW_TYPES.map(|row| (row.to_owned(), reference(row))).into_iter().collect::<Map<_, _>>(),
        "$defs": defs,
    })
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("{DEFS}{name}")})
}

fn resolve_in<'a>(defs: &'a Definitions, reference: &Value) -> &'a Value {
    &defs[definition_name(reference)]
}

/// Moves the description of each variant to its only property, which has none. Removes the types of constants,
/// which the constants imply.
fn simplify_variants(schema: &mut Value) {
    for variant in schema.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten() {
        let variant = variant.as_object_mut().unwrap();
        if variant.contains_key("const") {
            variant.remove("type");
        }
        let meaning = variant.get("description").cloned();
        let properties = variant.get_mut("properties").and_then(Value::as_object_mut);
        let property = properties.filter(|all| all.len() == 1).and_then(|all| all.values_mut().next());
        if let (Some(meaning), Some(Value::Object(property))) = (meaning, property)
            && !property.contains_key("description")
        {
            property.insert("description".into(), meaning);
            variant.remove("description");
        }
    }
}

/// Replaces the refusal in each answer by a reference to one definition.
fn share_refusal(defs: &mut Definitions) {
    let mut refusal = Value::Null;
    for (_, answer) in defs.iter_mut().filter(|(name, _)| name.starts_with("Answer")) {
        let refused = &mut answer["oneOf"][1];
        refusal = std::mem::replace(refused, reference("Refused"));
    }
    refusal["description"] = "Answer to a request that is not carried out.".into();
    defs.insert("Refused".into(), refusal);
}

/// Replaces each numbered definition, such as `Resources2`, by the definition with the same name and
/// structure. The generator numbers types that have equal names.
fn share_definitions(defs: &mut Definitions) {
    let classes = structure_classes(defs);
    let shared: BTreeMap<String, String> = defs
        .keys()
        .map(|name| (name, without_number(name)))
        .filter(|(name, base)| *name != base && classes.get(*base) == classes.get(name.as_str()))
        .map(|(name, base)| (name.clone(), base.to_owned()))
        .collect();
    replace_definitions(defs, &shared);
}

fn without_number(name: &str) -> &str {
    name.trim_end_matches(|digit: char| digit.is_ascii_digit())
}

/// Removes the definitions that are keys of `replacements`, and refers to the values instead.
pub(crate) fn replace_definitions(defs: &mut Definitions, replacements: &BTreeMap<String, String>) {
    defs.retain(|name, _| !replacements.contains_key(name));
    for_each_reference(defs.values_mut(), &mut |target| {
        if let Some(name) = target.strip_prefix(DEFS).and_then(|name| replacements.get(name)) {
            *target = format!("{DEFS}{name}");
        }
    });
}

fn for_each_reference<'a>(schemas: impl Iterator<Item = &'a mut Value>, visit: &mut dyn FnMut(&mut String)) {
    for schema in schemas {
        match schema {
            Value::Object(object) => {
                if let Some(Value::String(target)) = object.get_mut("$ref") {
                    visit(target);
                }
                for_each_reference(object.values_mut(), visit);
            }
            Value::Array(list) => for_each_reference(list.iter_mut(), visit),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// Adds the message of the commands with this body, and returns a reference to it.
fn add_message(defs: &mut Definitions, envelope: &Value, body: &str) -> Value {
    let name = format!("{body}Message");
    let meaning = "Metadata of the command. May be left out.";
    let message = json!({
        "description": format!("Message of a command with the body {body}."),
        "type": "object",
        "properties": {
            "envelope": {"description": meaning, "anyOf": [envelope, {"type": "null"}]},
            "body": {"description": "Content of the command.", "$ref": format!("{DEFS}{body}")},
        },
        "required": ["body"],
        "additionalProperties": false,
    });
    let reference = reference(&name);
    defs.insert(name, message);
    reference
}

/// Returns a reference to each event by its type.
fn events(defs: &Definitions) -> Map<String, Value> {
    let mut events = Map::new();
    for (_, machine, machine_events) in variants(&defs["Event"]) {
        let list = definition_name(machine_events);
        for (number, event, _) in variants(&defs[list]) {
            let target = format!("{DEFS}{list}/oneOf/{number}/properties/{event}");
            events.insert(format!("{machine}.{event}"), json!({"$ref": target}));
        }
    }
    events
}

/// Returns the variants of an enum, each with its number, its name and its content.
fn variants(of: &Value) -> impl Iterator<Item = (usize, &String, &Value)> {
    of["oneOf"].as_array().unwrap().iter().enumerate().map(|(number, variant)| {
        let (name, content) = variant["properties"].as_object().unwrap().iter().next().unwrap();
        (number, name, content)
    })
}

fn index_queries(queries: Vec<(String, Value, Value)>) -> Map<String, Value> {
    let verbs = schemars::schema_for!(QueryVerb).to_value();
    let meanings: BTreeMap<&str, &Value> = verbs["oneOf"]
        .as_array()
        .unwrap()
        .iter()
        .map(|verb| (verb["const"].as_str().unwrap(), &verb["description"]))
        .collect();
    let meaning = |query: &str| {
        let verb = QueryVerb::ALL.iter().copied().find(|verb| name(verb.noun_and_verb()) == query).unwrap();
        meanings[format!("{verb:?}").as_str()]
    };
    queries
        .into_iter()
        .map(|(query, request, answer)| {
            let entry = json!({"description": meaning(&query), "request": request, "answer": answer});
            (query, entry)
        })
        .collect()
}

/// Returns the class of each definition. Definitions are in the same class if they differ only in names and
/// descriptions.
fn structure_classes(defs: &Definitions) -> BTreeMap<String, usize> {
    let mut classes: BTreeMap<String, usize> = defs.keys().map(|name| (name.clone(), 0)).collect();
    let mut count = 1;
    loop {
        let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
        let refined = defs
            .iter()
            .map(|(name, schema)| {
                let number = numbers.len();
                (name.clone(), *numbers.entry(structure(schema, &classes).to_string()).or_insert(number))
            })
            .collect();
        classes = refined;
        if numbers.len() == count {
            return classes;
        }
        count = numbers.len();
    }
}

/// Returns a schema without descriptions, and with the classes of the definitions that it refers to.
fn structure(schema: &Value, classes: &BTreeMap<String, usize>) -> Value {
    let part = |(key, value): (&String, &Value)| match (key.as_str(), value.as_str()) {
        ("description", Some(_)) => None,
        ("$ref", Some(target)) => Some((key.clone(), classes[target.strip_prefix(DEFS)?].into())),
        _ => Some((key.clone(), structure(value, classes))),
    };
    match schema {
        Value::Object(object) => Value::Object(object.iter().filter_map(part).collect()),
        Value::Array(list) => list.iter().map(|value| structure(value, classes)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => schema.clone(),
    }
}

fn definitions() -> &'static Definitions {
    bundle()["$defs"].as_object().unwrap()
}

/// Returns the paths of the properties without a description.
fn undescribed(schema: &Value, path: &str, found: &mut Vec<String>) {
    match schema {
        Value::Object(object) => {
            for (name, property) in object.get("properties").and_then(Value::as_object).into_iter().flatten()
            {
                if property["description"].as_str().is_none_or(str::is_empty) {
                    found.push(format!("{path}/{name}"));
                }
            }
            object.iter().for_each(|(key, value)| undescribed(value, &format!("{path}/{key}"), found));
        }
        Value::Array(list) => {
            list.iter()
                .enumerate()
                .for_each(|(index, value)| undescribed(value, &format!("{path}/{index}"), found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn bundle_matches_golden_file() {
    let path = folder().join(BUNDLE_FILE);
    let text = format!("{:#}\n", bundle());
    if may_write() {
        fs::write(&path, &text).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == text,
        "golden/{BUNDLE_FILE} differs from the types. If the change is intended, run {WRITE_VARIABLE}=1 cargo test \
         -p schemas bundle and commit the difference. Events may only gain types and versions."
    );
}

#[test]
fn bundle_has_at_most_the_maximum_number_of_lines() {
    let lines = format!("{:#}", bundle()).lines().count();
    assert!(lines <= MAX_LINES, "{lines} lines");
}

#[test]
fn bundle_has_one_definition_for_each_structure() {
    let mut by_class: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (name, class) in structure_classes(definitions()) {
        by_class.entry(class).or_default().push(name);
    }
    let equal: Vec<_> = by_class.into_values().filter(|names| names.len() > 1).collect();
    assert!(equal.is_empty(), "definitions of equal structure must share one: {equal:?}");
}

#[test]
fn no_definition_of_the_bundle_has_a_numbered_name() {
    let numbered: Vec<_> =
        definitions().keys().filter(|name| without_number(name) != name.as_str()).collect();
    assert!(
        numbered.is_empty(),
        "types of equal names differ in structure: name one of them with #[schemars(rename = ..)]: {numbered:?}"
    );
}

#[test]
fn every_definition_and_property_of_the_bundle_has_a_description() {
    let mut found: Vec<String> = definitions()
        .iter()
        .filter(|(_, schema)| schema["description"].as_str().is_none_or(str::is_empty))
        .map(|(name, _)| name.clone())
        .collect();
    definitions().iter().for_each(|(name, schema)| undescribed(schema, name, &mut found));
    assert!(found.is_empty(), "without a description: {found:#?}");
}

#[test]
fn every_reference_of_the_bundle_resolves() {
    let mut needed = BTreeSet::new();
    for_each_reference([bundle().clone()].iter_mut(), &mut |target| {
        resolve(&json!({"$ref": target}));
        needed.extend(target.strip_prefix(DEFS).and_then(|path| path.split('/').next()).map(str::to_owned));
    });
    assert_eq!(needed, definitions().keys().cloned().collect(), "every definition is needed");
}

#[test]
fn published_schema_has_exactly_the_definitions_that_it_needs() {
    let published = PublishedSchemas::new();
    for row in published.list() {
        let schema = published.show(&row.name).unwrap();
        let (mut needed, mut reached) = (BTreeSet::new(), 0);
        let mut open = vec![json!({"properties": schema["properties"], "oneOf": schema["oneOf"],
            "$ref": schema["$ref"], "items": schema["items"], "anyOf": schema["anyOf"]})];
        while let Some(mut part) = open.pop() {
            reached += 1;
            for_each_reference([&mut part].into_iter(), &mut |target| {
                let name = target.strip_prefix(DEFS).unwrap();
                if needed.insert(name.to_owned()) {
                    open.push(schema["$defs"][name].clone());
                }
            });
        }
        assert_eq!(reached, needed.len() + 1);
        let defs = schema["$defs"].as_object().unwrap();
        assert_eq!(needed, defs.keys().cloned().collect(), "{}", row.name);
        jsonschema::validator_for(&schema).unwrap_or_else(|error| panic!("{}: {error}", row.name));
    }
}
